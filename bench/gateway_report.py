"""The bars, and the tables that hold the measured medians against them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Mode = Literal["flood", "paced", "small"]
MODES: tuple[Mode, ...] = ("flood", "paced", "small")


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway may cost: at most so many times nginx per mode, so much memory; at least so much less than a peer."""

    times_nginx: Mapping[Mode, float]
    idle_mib: float
    stream_kib: float
    peers: Mapping[str, Mapping[Mode, float]]


BARS = Bars(
    times_nginx={"flood": 5.0, "paced": 2.5, "small": 8.0},
    idle_mib=45.0,
    stream_kib=30.0,
    peers={
        "Portkey": {"flood": 6.0, "paced": 2.0, "small": 8.0},
        "LiteLLM": {"flood": 100.0, "paced": 8.0, "small": 50.0},
        "claude-code-router": {"flood": 4.0, "paced": 2.0, "small": 4.0},
    },
)


class Row(msgspec.Struct, kw_only=True):
    """One contestant's medians. `reference` is the row its ratios are taken against; only ours have one."""

    label: str
    cpu: dict[Mode, float]
    latency_us: float
    latency_p99_us: float
    reference: "Row | None" = None


class Memory(msgspec.Struct, kw_only=True):
    """One contestant's memory: fresh, and with `streams` open."""

    label: str
    idle_mib: float
    held_mib: float = 0.0
    streams: int = 0
    stream_kib: float = 0.0
    is_judged: bool = False


class Peer(msgspec.Struct, kw_only=True):
    """Another gateway's row, and ours that does the same work."""

    name: str
    row: Row
    ours: Row


def print_tables(
    rows: Sequence[Row], memory: Sequence[Memory], peers: Sequence[Peer], mock: Row
) -> int:
    """Prints everything; returns how many figures are over their bars."""
    return _print_cpu(rows, mock) + _print_memory(memory) + _print_peers(peers)


def _print_cpu(rows: Sequence[Row], mock: Row) -> int:
    heads = ("flood µs/event", "paced µs/event", "small µs/request")
    over = 0
    print(f"\n{'CPU':<34}" + "".join(f"{head:>22}" for head in heads) + f"{'added latency µs':>20}")
    for row in rows:
        cells: list[str] = []
        for mode in MODES:
            verdict = ""
            base = row.reference
            if not row.cpu[mode]:
                cells.append(f"{'–':>10} {'':<11}")
                continue
            if base is not None and base.cpu[mode]:
                ratio = row.cpu[mode] / base.cpu[mode]
                is_over = ratio > BARS.times_nginx[mode]
                over += is_over
                verdict = f"{ratio:5.2f}× {'OVER' if is_over else 'ok':<4}"
            cells.append(f"{row.cpu[mode]:>10.2f} {verdict:<11}")
        added = f"{row.latency_us - mock.latency_us:.0f} (p99 {row.latency_p99_us - mock.latency_p99_us:.0f})"
        print(f"{row.label:<34}" + "".join(cells) + f"{added:>20}")
    bars = "".join(f"{'':>10} {BARS.times_nginx[mode]:5.2f}×     " for mode in MODES)
    print(f"{'bar, times nginx':<34}{bars}")
    return over


def _print_memory(memory: Sequence[Memory]) -> int:
    over = 0
    print(f"\n{'memory (PSS)':<34}{'idle MiB':>16}{'MiB with streams':>24}{'KiB per stream':>22}")
    for each in memory:
        idle = f"{each.idle_mib:.1f}"
        stream = f"{each.stream_kib:.1f}" if each.streams else "–"
        if each.is_judged:
            is_over = (each.idle_mib > BARS.idle_mib, each.stream_kib > BARS.stream_kib)
            over += sum(is_over)
            idle += " OVER" if is_over[0] else " ok"
            stream += " OVER" if is_over[1] else " ok"
        held = f"{each.held_mib:.1f} ({each.streams})" if each.streams else "–"
        print(f"{each.label:<34}{idle:>16}{held:>24}{stream:>22}")
    print(f"{'bar':<34}{BARS.idle_mib:>16.0f}{'':>24}{BARS.stream_kib:>22.0f}")
    return over


def _print_peers(peers: Sequence[Peer]) -> int:
    over = 0
    if peers:
        print(f"\n{'a peer costs … times ours':<34}" + "".join(f"{mode:>24}" for mode in MODES))
    for peer in peers:
        cells: list[str] = []
        for mode in MODES:
            if not peer.row.cpu[mode]:
                cells.append(f"{'not measured':>24}")
                continue
            ratio = peer.row.cpu[mode] / peer.ours.cpu[mode]
            bar = BARS.peers[peer.name][mode]
            is_below = ratio < bar
            over += is_below
            cells.append(
                f"{ratio:>9.1f}× (bar {bar:.0f}) {'BELOW' if is_below else 'ok':<5}".rjust(24)
            )
        print(f"{peer.name + ', ' + peer.ours.label:<34}" + "".join(cells))
    return over


STORING_BAR = 1.15
"""What storing may make of the CPU time of a streamed response."""


def print_storing(measured: Mapping[tuple[str, Mode], Sequence[tuple[float, float]]]) -> int:
    """By label and load: the CPU time of a request without and with the store. How many are over the bar.

    Both were measured together each time, so that the median of their ratios says more than that of their times.
    """
    print("\n| contestant | load | not stored, µs | stored, µs | × | from | to |")
    print("|---|---|---:|---:|---:|---:|---:|")
    over = 0
    for (label, mode), costs in measured.items():
        plain, stored = (statistics.median(each) for each in zip(*costs, strict=True))
        ratios = sorted(with_store / without for without, with_store in costs)
        times = statistics.median(ratios)
        over += times > STORING_BAR
        print(
            f"| {label} | {mode} | {plain:.0f} | {stored:.0f}"
            f" | {times:.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} |"
        )
    return over
