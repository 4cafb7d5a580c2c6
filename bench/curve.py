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
from gateway_processes import pin, raise_file_limit
from gateway_targets import Contestant, Pair
from load import Figures, Load, run_load
from load_requests import SOCKET
from msgspec import structs

PLACE = Path(__file__).parent / "curve.json"

STREAMS = (100, 250, 500, 1000, 2000, 4000)
EVENTS = 4000
"""Events a second of all streams in the first series: about a sixth of what the process can do, in each case."""

SOCKET_STREAMS = (100, 1000, 4000)
"""Of WebSockets, which differ in their memory; their CPU time is measured by `make bench`."""

RATES = (1, 2, 4, 8, 16, 32)
RATED_STREAMS = 1000

_HELD_SECONDS = 5.0
_PROBES = 50
_LASTING = 90
"""Seconds that a stream has text for: opening 4,000 of them takes up to half a minute on a busy machine."""

_WARMING = 32  # requests before memory is read


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What one process did with `streams` open streams of `rate` events a second each.

    delivered: events a second that the clients got. cpu_us: of the gateway per event. busy: the share of a processor that it used.
    added_ms, added_p99_ms: the latency of an event, less that of the same load without a gateway. first_byte_ms: of a small
    request beside the streams; None if that was not measured.
    """

    streams: int
    rate: float
    delivered: float
    cpu_us: float
    busy: float
    stream_kib: float
    added_ms: float
    added_p99_ms: float
    first_byte_ms: float | None = None
    first_byte_p99_ms: float | None = None


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
        stream_kib=ours.kib_per_stream,
        added_ms=(ours.latency_us - direct.latency_us) / 1e3,
        added_p99_ms=(ours.latency_p99_us - direct.latency_p99_us) / 1e3,
        first_byte_ms=ours.first_byte_ms,
        first_byte_p99_ms=ours.first_byte_p99_ms,
    )


def median_point(points: Sequence[Point]) -> Point:
    """Field by field."""
    return Point(
        **{
            name: statistics.median(getattr(point, name) for point in points)
            for name in Point.__struct_fields__
        }
    )


Place = tuple[Pair, int, float]
"""A pair of dialects, the number of streams and the rate of each."""


def places_of(pair: Pair) -> tuple[list[Place], list[Place]]:
    """The points of the two series."""
    is_socket = pair.door == SOCKET
    by_streams = [
        (pair, streams, EVENTS / streams) for streams in (SOCKET_STREAMS if is_socket else STREAMS)
    ]
    return by_streams, [] if is_socket else [(pair, RATED_STREAMS, rate) for rate in RATES]


def measure_round(home: Path, mock: Contestant, pairs: Sequence[Pair]) -> dict[Place, Point]:
    """All points of all pairs in turn, so that a busy machine affects them equally."""
    found: dict[Place, Point] = {}
    for place in (each for pair in pairs for series in places_of(pair) for each in series):
        pair, streams, rate = place
        direct = structs.replace(mock, door=pair.upstream)
        found[place] = point = measure_point(home, direct, pair, streams, rate)
        print(
            f"curve: {pair}: {streams} streams of {rate:g}/s: {point.cpu_us:.1f} µs an event,"
            f" {point.stream_kib:.1f} KiB a stream, {point.busy:.0%} busy,"
            f" p50 {point.added_ms:.2f} ms, p99 {point.added_p99_ms:.2f} ms",
            file=sys.stderr,
            flush=True,
        )
    return found


def curve_of(pairs: Sequence[Pair], rounds: Sequence[dict[Place, Point]]) -> Curve:
    """The medians of the rounds."""

    def medians(places: Iterable[Place]) -> tuple[Point, ...]:
        return tuple(median_point([each[place] for each in rounds]) for place in places)

    return Curve(
        python=".".join(map(str, sys.version_info[:3])),
        processors=os.cpu_count() or 1,
        rounds=len(rounds),
        load_average=round(os.getloadavg()[2], 1),
        series=tuple(
            Series(
                door=pair.door,
                upstream=pair.upstream,
                by_streams=medians(by_streams),
                by_rate=medians(by_rate),
            )
            for pair in pairs
            for by_streams, by_rate in (places_of(pair),)
        ),
    )


def measure(pairs: Sequence[Pair], rounds: int, place: Path) -> None:
    """Writes the figures after every round, so that a run that is stopped leaves those of whole rounds."""
    found: list[dict[Place, Point]] = []
    with tempfile.TemporaryDirectory(prefix="dragoman-curve-") as name:
        home = Path(name)
        mock = Contestant(label="mock", door="chat", service=targets.start_mock(home))
        try:
            for turn in range(rounds):
                found.append(measure_round(home, mock, pairs))
                curve = msgspec.json.format(msgspec.json.encode(curve_of(pairs, found)))
                place.write_bytes(curve + b"\n")
                print(f"curve: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        finally:
            mock.service.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="One gateway process from 100 to 4,000 streams.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", default="responses:chat,websocket:chat")
    parser.add_argument("--place", type=Path, default=PLACE, help="where the figures are written")
    given = parser.parse_args()
    pairs = [targets.pair_of(text) for text in given.pairs.split(",")]
    raise_file_limit()
    pin(os.getpid(), is_target=False)
    try:
        measure(pairs, given.rounds, given.place)
    except RuntimeError as error:
        print(f"curve: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
