"""Measures how one gateway process behaves from 100 to 4,000 open streams, and up to the rate where it is full: `make bench-curve`.

Two series. In the first the number of streams grows and the events of all of them stay at 4,000 a second, so that whatever
grows is the price of a stream. In the second a thousand streams stay open and their rate grows until the process is full.

Every point has a gateway of its own, so that memory is that of its streams alone, and is followed by the same load on the
mock without a gateway: the latency that the gateway adds is the difference. CPU time is that of the gateway's process while
all streams run. The medians of the rounds are written to bench/curve.json, from which scripts/pictures.py draws the curve
and bench/capacity.py makes the tables of docs/scaling.md.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import gateway_targets as targets
import msgspec
from gateway_processes import pin, pss_kib, raise_file_limit
from gateway_targets import Contestant, Pair
from load import Figures, Load, run_load
from load_requests import SOCKET
from msgspec import structs

__all__ = ("PLACE", "Curve", "Point", "Series", "read_curve")

PLACE = Path(__file__).parent / "curve.json"

STREAMS = (100, 250, 500, 1000, 2000, 4000)
EVENTS = 4000
"""Events a second of all streams in the first series: about a sixth of what the process can do, in each case."""

RATES = (1, 2, 4, 8, 16, 32)
RATED_STREAMS = 1000

_HELD_SECONDS = 8.0
_PROBES = 100
_LASTING = 90
"""Seconds that a stream has text for: opening 4,000 of them takes up to half a minute on a busy machine."""

_WARMING = 32  # requests before memory is read


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What one process did with `streams` open streams of `rate` events a second each.

    cpu_us: of the gateway per event. busy: the share of a processor that it used. The times are milliseconds;
    `direct_…` are those of the same load without a gateway.
    """

    streams: int
    rate: float
    delivered: float
    cpu_us: float
    busy: float
    idle_mib: float
    held_mib: float
    stream_kib: float
    latency_ms: float
    latency_p99_ms: float
    direct_ms: float
    direct_p99_ms: float
    first_byte_ms: float
    first_byte_p99_ms: float
    direct_first_byte_ms: float


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one pair of dialects: by the number of streams, and by their rate."""

    door: str
    upstream: str
    by_streams: tuple[Point, ...]
    by_rate: tuple[Point, ...] = ()


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement. `load_average`: of the machine during it, the measurement's own load of about two included."""

    python: str
    processors: int
    rounds: int
    load_average: float
    series: tuple[Series, ...]


def read_curve(place: Path = PLACE) -> Curve:
    return msgspec.json.decode(place.read_bytes(), type=Curve)


def load_of(contestant: Contestant, streams: int, rate: float) -> Load:
    # Two thirds of the deltas are text, and only text is stamped with the time.
    model = f"{contestant.model}-p{1000 / rate:g}-x{round(rate * _LASTING * 1.5)}"
    return structs.replace(
        contestant.load(),
        model=model,
        connections=streams,
        requests=streams,
        hold=_HELD_SECONDS,
        probes=_PROBES,
    )


def held(contestant: Contestant, streams: int, rate: float) -> Figures:
    """Raises RuntimeError if not all streams stayed open."""
    figures = run_load(load_of(contestant, streams, rate), contestant.service.pid)
    if figures.failed or figures.open_held < streams:
        fault = figures.first_fault or f"{figures.open_held} are open"
        raise RuntimeError(f"{contestant.label}: expected {streams} open streams; {fault}")
    return figures


def measure_point(home: Path, mock: Contestant, pair: Pair, streams: int, rate: float) -> Point:
    service = targets.start_gateway(home, mock.service.port)
    try:
        contestant = targets.gateway_contestant(service, pair)
        idle = pss_kib(service.pid) / 1024
        run_load(structs.replace(contestant.load(), requests=_WARMING))
        ours = held(contestant, streams, rate)
    finally:
        service.stop()
    direct = held(mock, streams, rate)
    return Point(
        streams=streams,
        rate=rate,
        delivered=ours.events / ours.seconds,
        cpu_us=ours.cpu_per_event,
        busy=ours.cpu_per_event * ours.events / ours.seconds / 1e6,
        idle_mib=idle,
        held_mib=ours.pss_held_mib,
        stream_kib=ours.kib_per_stream,
        latency_ms=ours.latency_us / 1e3,
        latency_p99_ms=ours.latency_p99_us / 1e3,
        direct_ms=direct.latency_us / 1e3,
        direct_p99_ms=direct.latency_p99_us / 1e3,
        first_byte_ms=ours.first_byte_ms,
        first_byte_p99_ms=ours.first_byte_p99_ms,
        direct_first_byte_ms=direct.first_byte_ms,
    )


def median_point(points: Sequence[Point]) -> Point:
    """Field by field."""
    return Point(
        **{
            name: statistics.median(getattr(point, name) for point in points)
            for name in Point.__struct_fields__
        }
    )


def measure(home: Path, pairs: Iterable[Pair], rounds: int) -> tuple[Series, ...]:
    """All points of all pairs in turn, round by round, so that a busy machine disturbs them alike."""
    mock = Contestant(label="mock", door="chat", service=targets.start_mock(home))
    wanted = [
        (pair, streams, rate)
        for pair in pairs
        for streams, rate in (
            *((streams, EVENTS / streams) for streams in STREAMS),
            # The WebSocket differs in its memory; its CPU time is measured by `make bench`.
            *((RATED_STREAMS, rate) for rate in RATES if pair.door != SOCKET),
        )
    ]
    found: dict[tuple[Pair, int, float], list[Point]] = {each: [] for each in wanted}
    try:
        for turn in range(rounds):
            for pair, streams, rate in wanted:
                direct = structs.replace(mock, door=pair.upstream)
                point = measure_point(home, direct, pair, streams, rate)
                found[pair, streams, rate].append(point)
                print(
                    f"curve: round {turn + 1} of {rounds}, {pair}: {streams} streams of {rate:g}/s:"
                    f" {point.cpu_us:.1f} µs an event, {point.stream_kib:.1f} KiB a stream,"
                    f" {point.busy:.0%} busy, p50 {point.latency_ms - point.direct_ms:.2f} ms,"
                    f" p99 {point.latency_p99_ms - point.direct_p99_ms:.2f} ms",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        mock.service.stop()
    medians = {each: median_point(points) for each, points in found.items()}
    return tuple(
        Series(
            door=pair.door,
            upstream=pair.upstream,
            by_streams=tuple(medians[pair, streams, EVENTS / streams] for streams in STREAMS),
            by_rate=tuple(medians[pair, RATED_STREAMS, rate] for rate in RATES)
            if pair.door != SOCKET
            else (),
        )
        for pair in pairs
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="One gateway process from 100 to 4,000 streams.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", default="responses:chat,websocket:chat")
    parser.add_argument("--place", type=Path, default=PLACE, help="where the figures are written")
    given = parser.parse_args()
    pairs = [targets.pair_of(text) for text in given.pairs.split(",")]
    raise_file_limit()
    pin(os.getpid(), is_target=False)
    with tempfile.TemporaryDirectory(prefix="dragoman-curve-") as home:
        try:
            series = measure(Path(home), pairs, given.rounds)
        except RuntimeError as error:
            print(f"curve: {error}", file=sys.stderr)
            return 2
    curve = Curve(
        python=".".join(map(str, sys.version_info[:3])),
        processors=os.cpu_count() or 1,
        rounds=given.rounds,
        load_average=round(os.getloadavg()[2], 1),
        series=series,
    )
    given.place.write_bytes(msgspec.json.format(msgspec.json.encode(curve)) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
