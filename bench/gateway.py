"""Measures the gateway's cost against nginx: `make bench`, and against other gateways: `make bench-peers`.

Three loads, each on every contestant in turn and all of it repeated; medians are printed. Flood: whole streams at once,
which shows the translator and the HTTP parsers. Paced: 3,200 events a second on 32 streams, one event per read as tokens
come, which shows wake-ups and system calls. Small: 1 KB in and out, not streamed. Only ratios of one run mean anything.

Responses over a WebSocket are a door of their own (`websocket:chat`), measured beside the same pair over HTTP; there are no
small requests there, because every answer is streamed.

One stream of every contestant is read whole and checked before anything is measured.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import gateway_targets as targets
from gateway_peers import start_peers
from gateway_processes import Service, pin, pss_kib, raise_file_limit
from gateway_report import MODES, Memory, Mode, Peer, Row, print_storing, print_tables
from gateway_targets import Contestant, Pair
from load import Figures, Load, run_load, verify
from load_requests import SOCKET
from msgspec import structs

_PAIRS = "chat:responses,responses:chat,websocket:chat,chat:chat,messages:chat"
_STORED_PAIRS = "responses:chat,responses:messages"
# How often in a round: a flood is over in a third of a second, in which a machine may be busy with something else.
_STREAMED: dict[Mode, int] = {"flood": 8, "paced": 1}
_LIVES = 3
_HELD_STREAMS = 1000
_HELD_SECONDS = 6.0
_NGINX = "nginx, passing on chat"
"""The one reference for every pair: events of Chat are the longest, and bytes are all that nginx counts."""

Measured = dict[tuple[str, Mode], list[Figures]]


def load_of(contestant: Contestant, mode: Mode) -> Load:
    base = contestant.load()
    share = contestant.share
    if mode == "flood":
        return structs.replace(base, connections=16, requests=max(8, round(150 * share)))
    if mode == "paced":
        streams = contestant.paced_streams
        model = f"{base.model}-p10-x200"
        return structs.replace(base, model=model, connections=streams, requests=streams * 2)
    requests = max(32, round(3000 * share))
    return structs.replace(base, connections=32, requests=requests, is_stream=False)


def check(contestants: Sequence[Contestant]) -> None:
    """Raises RuntimeError for a contestant that does not deliver what the mock sent."""
    for each in contestants:
        fault = verify(each.load())
        if fault:
            raise RuntimeError(f"{each.label}: {fault}")


def measure(contestants: Sequence[Contestant], rounds: int) -> Measured:
    """All contestants in turn, load by load, so that a busy machine affects them equally."""
    measured: Measured = {}
    for turn in range(rounds + 1):
        for mode in MODES:
            for each in contestants:
                if mode == "small" and each.door == SOCKET:
                    continue
                figures = run_load(load_of(each, mode), each.service.pid)
                if figures.failed:
                    raise RuntimeError(f"{each.label}, {mode}: {figures.first_fault}")
                if turn:  # the first turn warms up
                    measured.setdefault((each.label, mode), []).append(figures)
        said = f"round {turn} of {rounds}" if turn else "warm"
        print(f"bench: {said}", file=sys.stderr, flush=True)
    return measured


def row_of(label: str, measured: Measured) -> Row:
    median = statistics.median
    flood, paced = measured[label, "flood"], measured[label, "paced"]
    small = measured.get((label, "small"), [Figures()])
    return Row(
        label=label,
        cpu={
            "flood": median(each.cpu_per_event for each in flood),
            "paced": median(each.cpu_per_event for each in paced),
            "small": median(each.cpu_per_request for each in small),
        },
        latency_us=median(each.latency_us for each in paced),
        latency_p99_us=median(each.latency_p99_us for each in paced),
    )


def memory_of(contestant: Contestant, *, is_judged: bool) -> Memory:
    """Of a service that was only just started: idle, and with a thousand streams of an event a second each."""
    idle = pss_kib(contestant.service.pid) / 1024
    load = contestant.load()
    run_load(structs.replace(load, requests=32))
    held = structs.replace(
        load,
        model=f"{load.model}-p1000-x60",
        connections=_HELD_STREAMS,
        requests=_HELD_STREAMS,
        hold=_HELD_SECONDS,
    )
    figures = run_load(held, contestant.service.pid)
    if figures.open_held < _HELD_STREAMS:
        fault = figures.first_fault or f"{figures.open_held} are open"
        raise RuntimeError(f"{contestant.label}: expected {_HELD_STREAMS} open streams; {fault}")
    return Memory(
        label=contestant.label,
        idle_mib=idle,
        held_mib=figures.pss_held_mib,
        streams=figures.open_held,
        stream_kib=figures.kib_per_stream,
        is_judged=is_judged,
    )


def idle_memory(contestant: Contestant) -> Memory:
    """Of a peer: a thousand streams are more than some of them take."""
    return Memory(label=contestant.label, idle_mib=pss_kib(contestant.service.pid) / 1024)


def measure_storing(bench: "Bench", pairs: Sequence[Pair], rounds: int) -> int:
    """Streamed responses with the store on and off, one after the other. How many cost more than they may.

    Two processes of one program differ by some per cent for as long as they live: there are several of each.
    """
    measured: dict[tuple[str, Mode], list[tuple[float, float]]] = {}
    for life in range(1, _LIVES + 1):
        plain = [targets.gateway_contestant(bench.gateway(), pair) for pair in pairs]
        service = bench.gateway(stored=True)
        both = [
            (each, structs.replace(each, service=service, label=f"{each.label}, stored"))
            for each in plain
        ]
        check([one for each in both for one in each])
        for turn in range(rounds + 1):
            for mode, count in _STREAMED.items():
                for (each, kept), number in product(both, range(count)):
                    costs = costs_of(each, kept, mode, is_reversed=number % 2 == 1)
                    if turn:
                        measured.setdefault((each.label, mode), []).append(costs)
            said = f"round {turn} of {rounds}, processes {life} of {_LIVES}"
            print(f"bench: {said}", file=sys.stderr, flush=True)
        for started in (service, *(each.service for each in plain)):
            started.stop()
    return print_storing(measured)


def costs_of(
    first: Contestant, second: Contestant, mode: Mode, *, is_reversed: bool
) -> tuple[float, float]:
    """Of both, one right after the other."""
    if is_reversed:
        cost = cost_of(second, mode)
        return cost_of(first, mode), cost
    return cost_of(first, mode), cost_of(second, mode)


def cost_of(contestant: Contestant, mode: Mode) -> float:
    """Microseconds of CPU time per request."""
    figures = run_load(load_of(contestant, mode), contestant.service.pid)
    if figures.failed:
        raise RuntimeError(f"{contestant.label}, {mode}: {figures.first_fault}")
    return figures.cpu_per_request


class Bench:
    """The services of one run, which end with it."""

    def __init__(self, home: Path, services: ExitStack) -> None:
        self._home = home
        self._services = services
        self.mock = self._keep(targets.start_mock(home))

    def _keep(self, service: Service) -> Service:
        self._services.callback(service.stop)
        return service

    def memory(self, pairs: Sequence[Pair], nginx: str | None) -> list[Memory]:
        """A fresh process for each: what one load leaves behind would distort the next."""
        found: list[Memory] = []
        if nginx:
            service = self._keep(targets.start_nginx(nginx, self._home, self.mock.port))
            plain = Contestant(label=_NGINX, door="chat", service=service)
            found.append(memory_of(plain, is_judged=False))
            service.stop()
        for pair in pairs:
            service = self._keep(targets.start_gateway(self._home, self.mock.port))
            contestant = targets.gateway_contestant(service, pair)
            # The bar is that of a stream over HTTP; a WebSocket also keeps its conversation.
            found.append(memory_of(contestant, is_judged=pair.door != SOCKET))
            service.stop()
        return found

    def gateway(self, *, stored: bool = False) -> Service:
        store = self._home / "store.db" if stored else None
        return self._keep(targets.start_gateway(self._home, self.mock.port, store))

    def contestants(self, pairs: Sequence[Pair], nginx: str | None) -> list[Contestant]:
        found = [Contestant(label="mock, no gateway", door="chat", service=self.mock)]
        if nginx:
            service = self._keep(targets.start_nginx(nginx, self._home, self.mock.port))
            found.append(Contestant(label=_NGINX, door="chat", service=service))
        gateway = self._keep(targets.start_gateway(self._home, self.mock.port))
        found += [targets.gateway_contestant(gateway, pair) for pair in pairs]
        # In all other rows nobody captures; this one has the cost of the inspector's capture.
        capturing = self._keep(targets.start_gateway(self._home, self.mock.port, None, "--inspect"))
        first = targets.gateway_contestant(capturing, pairs[0])
        found.append(structs.replace(first, label=f"{first.label}, captured"))
        # Every request has its spans, and all of them are sent: to the mock, which accepts and forgets them.
        tracing = targets.start_gateway(self._home, self.mock.port, collector=self.mock.port)
        first = targets.gateway_contestant(self._keep(tracing), pairs[0])
        found.append(structs.replace(first, label=f"{first.label}, traced"))
        return found

    def peers(self) -> dict[str, Contestant]:
        started = start_peers(self._home, self.mock.port)
        for each in started.values():
            self._keep(each.service)
        return started


def run(bench: Bench, pairs: Sequence[Pair], rounds: int, *, with_peers: bool) -> int:
    nginx = targets.nginx_program()
    if nginx is None:
        print(f"bench: {targets.NGINX_MISSING}", file=sys.stderr)
    memory = bench.memory(pairs, nginx)
    print("bench: memory measured", file=sys.stderr, flush=True)
    contestants = bench.contestants(pairs, nginx)
    peers = bench.peers() if with_peers else {}
    memory += [idle_memory(peer) for peer in peers.values()]
    everyone = [*contestants, *peers.values()]
    check(everyone)
    measured = measure(everyone, rounds)
    rows = {each.label: row_of(each.label, measured) for each in everyone}
    for pair in pairs:
        rows[targets.gateway_label(pair)].reference = rows.get(_NGINX)
    beside = [
        Peer(name=name, row=rows[peer.label], ours=rows[targets.gateway_label(pair)])
        for name, peer in peers.items()
        if (pair := targets.pair_of(f"{peer.door}:{peer.upstream}")) in pairs
    ]
    over = print_tables(list(rows.values()), memory, beside, rows["mock, no gateway"])
    print(f"\n{over} over the bar" if over else "\neverything within the bars")
    return 1 if over or nginx is None else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="What the gateway costs beside nginx.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", help="door:upstream, separated by commas")
    parser.add_argument(
        "--store", action="store_true", help="measure what storing responses adds, and nothing else"
    )
    parser.add_argument("--peers", action="store_true", help="measure other gateways as well")
    given = parser.parse_args()
    try:
        wanted = given.pairs or (_STORED_PAIRS if given.store else _PAIRS)
        pairs = [targets.pair_of(text) for text in wanted.split(",")]
    except ValueError as error:
        parser.error(str(error))
    raise_file_limit()
    pin(os.getpid(), is_target=False)
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as home, ExitStack() as services:
        try:
            if given.store:
                over = measure_storing(Bench(Path(home), services), pairs, given.rounds)
                return 1 if over else 0
            return run(Bench(Path(home), services), pairs, given.rounds, with_peers=given.peers)
        except RuntimeError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
