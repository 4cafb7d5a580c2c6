"""`make faults`: break every link and every part, thousands of times, and check each exchange against one oracle.

    python bench/faults.py --rounds 100         # a hundred scenes, some two thousand exchanges
    python bench/faults.py --seed 1234          # one scene again, with every exchange of it

A scene is some two dozen exchanges at once, and the faults of its seed (`fault_plan`). Gateways are real processes on
SQLite or PostgreSQL (`fault_sites`), links are broken by a proxy (`fault_wire`), clients read as SDKs do (`fault_clients`), and
`fault_oracle` says what may come of it. What was acknowledged is read from the other gateway, and once more after all gateways were
killed. The exit code is 1 if a promise was broken; the seeds are printed.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fault_plan
from fault_clients import KEY, exchange_body, fetch, perform
from fault_oracle import Circumstances, Received, broken_promises, unlike_stored
from fault_plan import Exchange, Scene, circumstances_of, scene_of, sent_of
from fault_sites import LIMIT, Site, running_site
from msgspec import Struct, field
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from postgres_server import PostgresServer, run_postgres

Json = dict[str, Any]
PARALLEL = 3
"""Scenes at once; a scene with an event for the whole site runs alone."""

PATIENCE = 60.0
"""Seconds in which a gateway must have recovered after an event."""

_RETRY = 0.2
_ENDS = ("success", "incomplete", "error", "closed", "refused", "left")
_FOLLOWING = 1000
"""The numbers of the exchanges that continue others begin here."""


class Result(Struct, kw_only=True):
    """One exchange and its result. `problems`: the promises that were broken."""

    seed: int
    fault: str
    exchange: Exchange
    received: Received
    problems: list[str] = field(default_factory=list[str])


class Report(Struct):
    """The result of a campaign."""

    results: list[Result] = field(default_factory=list[Result])
    problems: list[str] = field(default_factory=list[str])
    """Broken promises that belong to no single exchange."""
    acknowledged: int = 0
    seconds: float = 0.0

    @property
    def broken(self) -> list[str]:
        """Every broken promise, with its seed."""
        found = [
            f"SEED={result.seed} {result.exchange.name} ({result.fault}; {_described(result.exchange)}): {problem}"
            for result in self.results
            for problem in result.problems
        ]
        return found + self.problems


def _described(exchange: Exchange) -> str:
    way = "background" if exchange.is_background else "stream" if exchange.is_stream else "body"
    return f"{exchange.door} over {exchange.upstream}, {way}, {exchange.behaviour}"


def _label(exchange: Exchange, scene: Scene) -> str:
    """The row of the table that an exchange is counted in."""
    fault = exchange.fault
    if fault is not None:
        return f"{fault.link}: {fault.kind}" + ("" if fault.frames is None else " after a frame")
    if scene.event != "none":
        return scene.event
    return "no fault" if exchange.behaviour == "read" else f"client: {exchange.behaviour}"


class Play:
    """One scene on a site."""

    def __init__(self, site: Site, scene: Scene, acknowledged: dict[str, Json]) -> None:
        self._site = site
        self._scene = scene
        self._acknowledged = acknowledged
        # The first exchange goes to the gateway that the event, if any, is for.
        self._first = scene.seed % len(site.gateways)

    async def run(self) -> list[Result]:
        scene, site = self._scene, self._site
        site.exchanges |= {exchange.name: exchange for exchange in scene.exchanges}
        event = asyncio.ensure_future(site.happen(scene))
        received = await asyncio.gather(
            *(self._perform(number, each) for number, each in enumerate(scene.exchanges))
        )
        await event
        results = [
            self._judge(number, exchange, received[number])
            for number, exchange in enumerate(scene.exchanges)
        ]
        await asyncio.gather(
            *(self._settle(number, result) for number, result in enumerate(results))
        )
        return results

    async def _perform(self, number: int, exchange: Exchange) -> Received:
        await asyncio.sleep(exchange.starts)
        ports = self._site.ports
        own = ports[(self._first + number) % len(ports)]
        return await perform(exchange, [own, *self._site.direct_ports], exchange_body(exchange))

    def _judge(self, number: int, exchange: Exchange, received: Received) -> Result:
        scene = self._scene
        event = scene.event
        is_at_victim = number % len(self._site.gateways) == 0
        if event in ("kill", "stop") and not is_at_victim:
            event = "none"
        fault = exchange.fault
        met = exchange
        if fault is not None and fault.kind not in ("status", "polite end"):
            # A fault behind the end of an answer never happens.
            met = (
                exchange if self._site.has_struck(exchange.name) else replace(exchange, fault=None)
            )
        return Result(
            seed=scene.seed,
            fault=_label(exchange, scene),
            exchange=exchange,
            received=received,
            problems=broken_promises(sent_of(exchange), received, circumstances_of(met, event)),
        )

    async def _settle(self, number: int, result: Result) -> None:
        """Read what was acknowledged from the other gateway, and continue it there."""
        response = result.received.response
        if response is None:
            return
        self._acknowledged[response["id"]] = response
        other = self._other(number)
        result.problems += await read_back(other, response, "at the other gateway")
        if result.exchange.continues and result.received.end == "success":
            result.problems += await self._continue(number, result, response)

    def _other(self, number: int) -> int:
        """The port of the gateway that an exchange was not sent to."""
        ports = self._site.direct_ports
        return ports[(self._first + number + 1) % len(ports)]

    async def _continue(self, number: int, result: Result, response: Json) -> list[str]:
        """Send the results of its calls to the other gateway; the answer must be whole."""
        dice = random.Random(f"{self._scene.seed} {number}")
        name = f"s{self._scene.seed}n{_FOLLOWING + number}"
        before = result.exchange
        following = replace(
            before,
            name=name,
            answer=fault_plan.random_answer(name, dice),
            fault=None,
            behaviour="read",
            is_background=False,
        )
        self._site.exchanges[name] = following
        items: list[Json] = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
            for call in result.received.calls
        ]
        body = exchange_body(
            following,
            input=items or [{"role": "user", "content": "And now?"}],
            previous_response_id=response["id"],
        )
        other = self._other(number)
        received = await perform(following, [other], body)
        deadline = time.monotonic() + PATIENCE
        while (
            received.end == "error" and self._scene.event != "none" and time.monotonic() < deadline
        ):
            await asyncio.sleep(_RETRY)
            received = await perform(following, [other], body)
        if received.response is not None:
            self._acknowledged[received.response["id"]] = received.response
        found = broken_promises(sent_of(following), received, Circumstances())
        return [f"its continuation {name}: {problem}" for problem in found]


async def read_back(port: int, response: Json, where: str) -> list[str]:
    """Compare a response with what a gateway has of it. A store that is not back yet is asked again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            status, found = await fetch(port, f"/v1/responses/{response['id']}")
        except OSError as error:
            status, found = 0, repr(error).encode()
        if status not in (0, 500, 503) or time.monotonic() > deadline:
            return unlike_stored(response, status, found, where)
        await asyncio.sleep(_RETRY)


async def _on_site(
    folder: Path,
    database: PostgresServer | None,
    scenes: Sequence[Scene],
    report: Report,
    limit: float,
) -> None:
    acknowledged: dict[str, Json] = {}
    async with running_site(folder, database, limit) as site:

        async def play(scene: Scene) -> None:
            report.results += await Play(site, scene, acknowledged).run()
            _progress(report)

        alone = [scene for scene in scenes if scene.event != "none"]
        together = [scene for scene in scenes if scene.event == "none"]
        gate = asyncio.Semaphore(PARALLEL)

        async def play_in_turn(scene: Scene) -> None:
            async with gate:
                await play(scene)

        await asyncio.gather(*(play_in_turn(scene) for scene in together))
        for scene in alone:
            await play(scene)
        await site.restart_all()
        gate = asyncio.Semaphore(16)

        async def read_again(number: int, response: Json) -> list[str]:
            async with gate:
                port = site.direct_ports[number % len(site.gateways)]
                return await read_back(port, response, "after all gateways were killed")

        read = await asyncio.gather(
            *(read_again(number, each) for number, each in enumerate(acknowledged.values()))
        )
        report.problems += [problem for each in read for problem in each]
        report.problems += [*site.problems, *site.secrets_in_logs(KEY)]
        report.acknowledged += len(acknowledged)


def run_campaign(
    scenes: Sequence[Scene], *, keep: Path | None = None, limit: float = LIMIT
) -> Report:
    """Play these scenes, first those on SQLite, then those on PostgreSQL.

    keep: a folder for the gateways' logs. limit: seconds that the gateways wait for clients and upstreams.
    """
    report = Report()
    began = time.monotonic()
    on_sqlite = [scene for scene in scenes if not scene.needs_postgres]
    on_postgres = [scene for scene in scenes if scene.needs_postgres]
    with contextlib.ExitStack() as stack:
        # A socket's path has at most 107 bytes.
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        for name, some in (("sqlite", on_sqlite), ("postgres", on_postgres)):
            if some:
                (folder / name).mkdir(parents=True)
                database = stack.enter_context(run_postgres()) if name == "postgres" else None
                asyncio.run(_on_site(folder / name, database, some, report, limit))
    report.seconds = time.monotonic() - began
    return report


def _progress(report: Report) -> None:
    if sys.stderr.isatty():
        count, broken = len(report.results), len(report.broken)
        print(f"\r{count} exchanges, {broken} broken promises", end="", file=sys.stderr, flush=True)


def print_table(report: Report) -> None:
    """The ends of the exchanges by fault, as a table of Markdown."""
    print(f"| fault | exchanges | {' | '.join(_ENDS)} | broken promises |")
    print(f"|---|{'--:|' * (len(_ENDS) + 2)}")
    faults = sorted({result.fault for result in report.results})
    rows = [(name, [each for each in report.results if each.fault == name]) for name in faults]
    for name, some in (*rows, ("**all**", report.results)):
        ends = Counter(str(each.received.end) for each in some)
        counts = " | ".join(str(ends[end]) for end in _ENDS)
        print(f"| {name} | {len(some)} | {counts} | {sum(bool(each.problems) for each in some)} |")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Break links and parts; no promise is broken.")
    parser.add_argument("--rounds", type=int, default=100, help="scenes; a hundred have every kind")
    parser.add_argument("--seed", type=int, help="play this scene alone, and print its exchanges")
    parser.add_argument("--first", type=int, help="the seed of the first scene")
    parser.add_argument("--keep", type=Path, help="a new folder for logs and stores")
    given = parser.parse_args(arguments)
    first = int(time.time()) // 100 * 100 if given.first is None else given.first
    seeds = range(first, first + given.rounds) if given.seed is None else (given.seed,)
    report = run_campaign([scene_of(seed) for seed in seeds], keep=given.keep)
    if given.seed is not None:
        for result in report.results:
            received = result.received
            print(
                f"{result.exchange.name}: {result.fault}; {_described(result.exchange)}: {received.end} {received.detail}"
            )
    print_table(report)
    print(
        f"\nfaults: seeds {seeds[0]} to {seeds[-1]}, {len(report.results)} exchanges in {report.seconds:.0f} s; "
        f"{report.acknowledged} responses were acknowledged and read back; {len(report.broken)} broken promises"
    )
    for problem in report.broken[:40]:
        print(f"  {problem}")
    if report.broken:
        failing = sorted({result.seed for result in report.results if result.problems})
        print("  again: " + " ".join(f"make faults SEED={seed};" for seed in failing[:20]))
    return 1 if report.broken or not report.results else 0


if __name__ == "__main__":
    sys.exit(main())
