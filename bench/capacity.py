"""Calculates what a number of streams needs: nodes, memory, connections, database writes, and which limit is reached first.

    python bench/capacity.py            writes the tables of docs/scaling.md

Pure but for `main`: `need` and `limits` are functions of measured figures (`measured_from`, read from bench/curve.json) and of
assumptions (`Service`, `Machine`), and a test keeps the tables of the document equal to what they return. Everything is
calculated for the busiest second.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from curve import Curve, Point, read_curve

DOCUMENT = Path(__file__).parents[1] / "docs" / "scaling.md"
SCALES = (1_000, 10_000, 100_000, 1_000_000)

_DAY = 86_400
_GIB = 1024**3
_BEGIN_SECONDS = 0.5
"""A response that lasts longer is written twice (`state.managed_store.BEGIN_SECONDS`)."""
_LOOKS = 1.0
"""Statements a second of each process that asks which responses were cancelled (`state.managed_store.LOOK_SECONDS`)."""
_RENEWALS_PER_LEASE = 3


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one process and one database cost. The first two are of bench/curve.json; the memory of an idle process and the CPU of a
    request of `make bench`; the others of `make bench-store`, and of a gateway with PostgreSQL under the load of bench/load.py.

    event_us: CPU of the gateway per event. request_us: CPU to open and close a stream, beside its events.
    store_us, database_us: CPU of the gateway and of the database per write. database_bytes: of a stored response, with indexes.
    wire_bytes: of one event, on each of the two sides.
    """

    event_us: float
    stream_kib: float
    idle_mib: float = 40.0
    request_us: float = 200.0
    store_us: float = 165.0
    database_us: float = 330.0
    database_bytes: int = 7_100
    wire_bytes: int = 230


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of it. rate: events a second of a stream. events: of a response. stored: the share that is stored.

    average: the average load as a share of the peak's. continued: the share of requests that read a conversation back.
    """

    streams: int
    rate: float = 30.0
    events: int = 300
    stored: float = 1.0
    average: float = 0.3
    ttl_days: float = 7.0
    continued: float = 0.33

    @property
    def responses(self) -> float:
        """That begin, and end, in a second."""
        return self.streams * self.rate / self.events


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What it runs on, and the settings of the gateway. None of it was measured.

    busy: the share of a processor that a process may use, so that the latency stays flat and a lost node can be borne.
    ports: local ports of an address to one address of an upstream (Linux: 32768 to 60999).
    primary_writes: writes a second of one PostgreSQL primary on 32 processors and fast disks, without a margin.
    balancer_connections: that one load balancer holds towards its clients.
    """

    processors: int = 16
    memory_gib: int = 32
    gigabits: float = 25.0
    busy: float = 0.6
    ports: int = 28_232
    max_streams: int = 4_096
    pool_size: int = 8
    lease: float = 60.0
    database_connections: int = 500
    primary_writes: int = 20_000
    balancer_connections: int = 500_000


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What a service needs at its peak."""

    streams: int
    events: float
    responses: float
    processes: int
    nodes: int
    memory_gib: float
    node_streams: int
    node_addresses: int
    upstream_connections: int
    database_connections: int
    writes: float
    renewals: float
    looks: float
    reads: float
    database_processors: float
    kept_tib: float
    daily_gib: float
    gigabits: float
    primaries: int
    balancers: int


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What ends at so many streams, and what comes next."""

    streams: int
    what: str
    after: str


def measured_from(curve: Curve) -> Measured:
    """The median cost of an event, and the memory of a stream among a thousand and more."""
    points = curve.series[0].by_streams
    return Measured(
        event_us=_median(point.cpu_us for point in points),
        stream_kib=max(point.stream_kib for point in points if point.streams >= 1000),
    )


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2


def writes_of(service: Service) -> float:
    """Writes a second: one for a short response, two for a longer one."""
    is_long = service.events / service.rate > _BEGIN_SECONDS
    return service.responses * service.stored * (2 if is_long else 1)


def cpu_of(service: Service, measured: Measured) -> float:
    """Processors that the gateway keeps busy."""
    events = service.streams * service.rate * measured.event_us
    requests = service.responses * measured.request_us
    return (events + requests + writes_of(service) * measured.store_us) / 1e6


def need(service: Service, measured: Measured, machine: Machine) -> Need:
    """What the service needs."""
    by_cpu = cpu_of(service, measured) / machine.busy
    processes = max(1, math.ceil(max(by_cpu, service.streams / machine.max_streams)))
    memory = processes * measured.idle_mib / 1024 + service.streams * measured.stream_kib / 1024**2
    gigabits = 2 * service.streams * service.rate * measured.wire_bytes * 8 / 1e9
    nodes = max(
        math.ceil(processes / machine.processors),
        math.ceil(memory / machine.memory_gib),
        math.ceil(gigabits / machine.gigabits),
    )
    node_streams = math.ceil(service.streams / nodes)
    writes = writes_of(service)
    renewals = service.streams * service.stored / (machine.lease / _RENEWALS_PER_LEASE)
    stored_daily = service.responses * service.stored * service.average * _DAY
    daily = stored_daily * measured.database_bytes / _GIB
    return Need(
        streams=service.streams,
        events=service.streams * service.rate,
        responses=service.responses,
        processes=processes,
        nodes=nodes,
        memory_gib=memory,
        node_streams=node_streams,
        node_addresses=math.ceil(node_streams / machine.ports),
        upstream_connections=service.streams,
        database_connections=processes * machine.pool_size,
        writes=writes,
        renewals=renewals,
        looks=processes * _LOOKS,
        reads=service.responses * service.stored * service.continued,
        database_processors=(writes + renewals) * measured.database_us / 1e6,
        kept_tib=daily * service.ttl_days / 1024,
        daily_gib=daily,
        gigabits=gigabits,
        primaries=math.ceil((writes + renewals) / machine.primary_writes),
        balancers=math.ceil(service.streams / machine.balancer_connections),
    )


def limits(service: Service, measured: Measured, machine: Machine) -> list[Limit]:
    """The limits of a service of this kind in the order in which growth reaches them; its own number of streams is not used."""
    one = msgspec.structs.replace(service, streams=1)
    per_process = machine.busy / cpu_of(one, measured)
    per_node = per_process * machine.processors
    per_write = writes_of(one) + service.stored / (machine.lease / _RENEWALS_PER_LEASE)
    gigabits = 2 * service.rate * measured.wire_bytes * 8 / 1e9
    found = [
        (per_process, "one process, by its processor", "`workers`, one for each processor"),
        (machine.max_streams, "one process, by `max_streams`, if its streams are slow", "a higher `max_streams`, which costs memory only"),
        (per_node, "one node, by its processors", "nodes behind a load balancer, and PostgreSQL in place of SQLite"),
        (machine.ports, "one node, by the local ports to one address of an upstream", "a second address, at the node or at the upstream"),
        (machine.memory_gib * 1024**2 / measured.stream_kib, "one node, by its memory", "more nodes; processors end long before"),
        (machine.gigabits / gigabits, "one node, by its network", "more nodes"),
        (100 / machine.pool_size * per_process, "PostgreSQL's usual 100 connections", f"a smaller `pool_size`, or `max_connections` of {machine.database_connections}"),
        (machine.database_connections / machine.pool_size * per_process, f"{machine.database_connections} connections of PostgreSQL", "a connection pooler (PgBouncer), or separate databases"),
        (machine.primary_writes / per_write, "one primary, by its writes", "cells: deployments with a database of their own, callers spread by key; and `store.policy = \"asked\"`"),
        (machine.balancer_connections, "one load balancer, by its connections", "several, by DNS or anycast; one in each cell"),
    ]  # fmt: skip
    return [
        Limit(streams=int(streams), what=what, after=after)
        for streams, what, after in sorted(found, key=lambda each: each[0])
    ]


# --- the tables ------------------------------------------------------------------------------------------------------


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _size(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{max(value, 0.0):.2f}" if value < 10 else f"{value:.0f}"


def curve_table(points: Sequence[Point], first: str, label: Callable[[Point], str]) -> str:
    head = (
        first,
        "events a second",
        "CPU µs per event",
        "of a processor",
        "KiB per stream",
        "added latency p50, ms",
        "p99, ms",
        "first byte p50, ms",
        "p99, ms",
    )
    rows = (
        (
            label(point),
            f"{point.delivered:,.0f}",
            f"{point.cpu_us:.1f}",
            f"{point.busy:.0%}",
            f"{point.stream_kib:.1f}",
            _milliseconds(point.added_ms),
            _milliseconds(point.added_p99_ms),
            _milliseconds(point.first_byte_ms),
            _milliseconds(point.first_byte_p99_ms),
        )
        for point in points
    )
    return table(head, rows)


def need_table(needs: Sequence[Need]) -> str:
    rows: list[tuple[str, Callable[[Need], str]]] = [
        ("events a second", lambda each: _count(each.events)),
        ("responses that begin and end in a second", lambda each: _count(each.responses)),
        ("gateway processes", lambda each: _count(each.processes)),
        ("nodes", lambda each: _count(each.nodes)),
        ("memory of all nodes, GiB", lambda each: _size(each.memory_gib)),
        ("streams of a node: as many connections to clients, and to upstreams", lambda each: _count(each.node_streams)),
        ("local addresses of a node for its connections to one upstream", lambda each: _count(each.node_addresses)),
        ("network of all nodes, Gbit/s", lambda each: _size(each.gigabits)),
        ("load balancers", lambda each: _count(each.balancers)),
        ("connections to databases", lambda each: _count(each.database_connections)),
        ("database writes a second", lambda each: _count(each.writes)),
        ("leases renewed a second", lambda each: _count(each.renewals)),
        ("questions for cancelled responses a second", lambda each: _count(each.looks)),
        ("conversations read back a second", lambda each: _count(each.reads)),
        ("processors of the databases", lambda each: _size(each.database_processors)),
        ("primaries, and so cells", lambda each: _count(each.primaries)),
        ("stored in a day, GiB, and swept again", lambda each: _size(each.daily_gib)),
        ("kept, TiB", lambda each: _size(each.kept_tib)),
    ]  # fmt: skip
    head = ("streams", *(_count(each.streams) for each in needs))
    return table(head, ((name, *(show(each) for each in needs)) for name, show in rows))


def limits_table(found: Iterable[Limit]) -> str:
    head = ("streams", "what ends", "what comes next")
    lines = [head, ("--:", "---", "---")]
    lines += [(f"{each.streams:,}", each.what, each.after) for each in found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sections(curve: Curve) -> dict[str, str]:
    """The tables of the document by the names of their places in it."""
    measured, machine = measured_from(curve), Machine()
    main, *others = curve.series
    found = {
        "streams": curve_table(main.by_streams, "streams", lambda point: f"{point.streams:,}"),
        "rates": curve_table(main.by_rate, "events a second of a stream", lambda point: f"{point.rate:g}"),
        "need": need_table([need(Service(streams=streams), measured, machine) for streams in SCALES]),
        "limits": limits_table(limits(Service(streams=0), measured, machine)),
    }  # fmt: skip
    for series in others:
        found[series.door] = curve_table(
            series.by_streams, "streams", lambda point: f"{point.streams:,}"
        )
    return found


def written(document: str, tables: dict[str, str]) -> str:
    """The document with each table between its two marks.

    Raises:
        ValueError: the document has no place for a table.
    """
    for name, text in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, is_begun, rest = document.partition(begin)
        _, is_ended, tail = rest.partition(end)
        if not is_begun or not is_ended:
            raise ValueError(f"expected {begin.strip()} and {end}; one of them is missing")
        document = f"{head}{begin}{text}\n{end}{tail}"
    return document


def main() -> int:
    document = DOCUMENT.read_text(encoding="utf-8")
    try:
        changed = written(document, sections(read_curve()))
    except ValueError as error:
        print(f"capacity: {DOCUMENT.name}: {error}", file=sys.stderr)
        return 1
    DOCUMENT.write_text(changed, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
