"""`make soak MINUTES=60`: mixed load on two gateways for a long time; memory, file handles and tasks stay where they were.

All doors, WebSocket too, streamed and not, background responses and continuations, clients that leave or read slowly, broken links
and errors of upstreams, with the store on: the exchanges of `fault_plan.soak_scene`, each checked by the oracle of `make faults`.

Every `SAMPLE_SECONDS` the load pauses until every exchange has ended, and each gateway is measured at rest. A straight line
is fitted through the samples after the warm-up; its slope is given per hour, with a band of about 95 % confidence, and judged:

    flat     even the upper end of the band is within the limit
    grows    even the lower end of the band is beyond it, and the rise is more than chance: the exit code is 1
    unclear  neither: run longer
"""

import argparse
import asyncio
import contextlib
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fault_clients import KEY, fetch
from fault_plan import soak_scene
from fault_sites import Site, running_site
from faults import Play, Result
from msgspec import Struct, field

CLIENTS = 24
SAMPLE_SECONDS = 15.0
REST_SECONDS = 1.0
"""From the end of the last exchange to the measurement: the gateways close what they have to close."""

WARM_UP = 0.25
"""The share of the time in which nothing is judged: the allocator takes what it will use."""

WARM_UP_EXCHANGES = 4000
"""As many are not judged either. Each exchange has a model name of its own, and the gateways remember up to a thousand of them."""

LIMIT = 20.0
"""Seconds that the gateways wait for clients and upstreams: on a busy machine the clients of the soak may be slow themselves."""

LIMITS = {"memory": 4.0, "handles": 4.0, "tasks": 2.0}
"""Per hour, of one gateway. Memory in MiB: at this pace a gateway of 100 MiB takes a day to double. Handles and tasks: less
than one in ten thousand requests may leave something behind."""

SMALLEST_RISE = 8.0
"""In all, of what is measured: a smaller one is chance. The connections that are kept for upstreams alone vary by as much."""

_UNITS = {"memory": "MiB", "handles": "handles", "tasks": "tasks"}
_TASKS = re.compile(rb"^dragoman_tasks ([0-9.]+)$", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE") / 1024**2
Verdict = Literal["flat", "grows", "unclear"]


class Sample(Struct, frozen=True):
    """One gateway at rest, so many seconds and exchanges after the start."""

    at: float
    exchanges: int
    memory: float
    handles: int
    tasks: int


class Slope(Struct, frozen=True):
    """Of a straight line through samples: per hour, half the width of its band, and the hours that it covers."""

    per_hour: float
    band: float
    hours: float


def slope_of(points: Sequence[tuple[float, float]]) -> Slope:
    """Return the slope of the values over the seconds, by least squares; the band is two standard errors wide on each side."""
    if len(points) < 3:
        return Slope(0.0, math.inf, 0.0)
    times = [at / 3600 for at, _ in points]
    values = [value for _, value in points]
    line = statistics.linear_regression(times, values)
    middle = statistics.fmean(times)
    errors = [
        value - line.slope * at - line.intercept for at, value in zip(times, values, strict=True)
    ]
    variance = sum(error**2 for error in errors) / (len(points) - 2)
    spread = sum((at - middle) ** 2 for at in times)
    return Slope(line.slope, 2 * math.sqrt(variance / spread), times[-1] - times[0])


def verdict(slope: Slope, limit: float) -> Verdict:
    """Judge a slope; see the module's description."""
    if slope.per_hour + slope.band <= limit:
        return "flat"
    is_sure = slope.per_hour - slope.band > limit and slope.per_hour * slope.hours > SMALLEST_RISE
    return "grows" if is_sure else "unclear"


class _Soak(Struct):
    """What came of a soak."""

    samples: list[list[Sample]] = field(default_factory=list[list[Sample]])
    kinds: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    exchanges: int = 0

    def add(self, result: Result) -> None:
        exchange, received = result.exchange, result.received
        way = "background" if exchange.is_background else "stream" if exchange.is_stream else "body"
        self.kinds[f"{exchange.door}, {way}"] += 1
        self.kinds[result.fault] += 1
        self.kinds["continued"] += exchange.continues and received.end == "success"
        self.ends[received.end] += 1
        self.exchanges += 1
        self.broken += [f"seed {result.seed}: {problem}" for problem in result.problems]


async def _measure(site: Site, number: int, began: float, exchanges: int) -> Sample:
    served = site.gateways[number]
    status, page = await fetch(served.port, "/metrics")
    found = _TASKS.search(page)
    assert status == 200, page[:200]
    assert found is not None, "expected dragoman_tasks in /metrics"
    memory, handles = _process(served.pid)
    return Sample(time.monotonic() - began, exchanges, memory, handles, int(float(found[1])))


def _process(pid: int) -> tuple[float, int]:
    """The resident memory of a process in MiB, and the number of its file handles."""
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE, len([*(folder / "fd").iterdir()])


class _Load:
    """The clients. They start nothing new while `is_open` is not set."""

    def __init__(self, site: Site, soak: _Soak, first: int) -> None:
        self._site = site
        self._soak = soak
        self._seed = first
        self.is_open = asyncio.Event()
        self.is_over = False
        self._running = 0
        self._idle = asyncio.Event()

    async def client(self) -> None:
        while True:
            await self.is_open.wait()
            if self.is_over:
                return
            self._running += 1
            self._seed += 1
            try:
                await self._exchange(self._seed)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

    async def rest(self) -> None:
        """Return when no exchange runs."""
        self.is_open.clear()
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        await asyncio.sleep(REST_SECONDS)

    async def _exchange(self, seed: int) -> None:
        scene = soak_scene(seed)
        for result in await Play(self._site, scene, {}).run():
            self._soak.add(result)
        for name in [name for name in self._site.exchanges if name.startswith(f"s{seed}n")]:
            self._site.forget(name)


async def _run(folder: Path, seconds: float, first: int, soak: _Soak) -> None:
    async with running_site(folder, None, LIMIT) as site:
        soak.samples = [[] for _ in site.gateways]
        load = _Load(site, soak, first)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(load.client())
            while time.monotonic() - began < seconds:
                load.is_open.set()
                await asyncio.sleep(min(SAMPLE_SECONDS, seconds))
                await load.rest()
                for number, samples in enumerate(soak.samples):
                    samples.append(await _measure(site, number, began, soak.exchanges))
                _progress(soak, began)
            load.is_over = True
            load.is_open.set()
        soak.broken += [*site.problems, *site.secrets_in_logs(KEY)]


def _progress(soak: _Soak, began: float) -> None:
    last = "; ".join(
        f"{each[-1].memory:.1f} MiB, {each[-1].handles} handles, {each[-1].tasks} tasks"
        for each in soak.samples
    )
    minutes = (time.monotonic() - began) / 60
    print(
        f"{minutes:5.1f} min, {soak.exchanges} exchanges, {len(soak.broken)} broken: {last}",
        file=sys.stderr,
        flush=True,
    )


def print_report(soak: _Soak, seconds: float) -> int:
    """Print what came of it, as Markdown. Returns the exit code."""
    kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(soak.kinds.items()) if count)
    ends = ", ".join(f"{count:,} {end}" for end, count in soak.ends.most_common())
    print(
        f"soak: {seconds / 60:.0f} minutes, {soak.exchanges:,} exchanges; {len(soak.broken)} broken promises\n"
    )
    print(f"- ends: {ends}\n- kinds: {kinds}\n")
    print("| gateway | what | first | last | least | most | slope per hour | limit | |")
    print("|---|---|--:|--:|--:|--:|--:|--:|---|")
    verdicts: list[Verdict] = []
    for number, samples in enumerate(soak.samples):
        judged = [
            sample
            for sample in samples
            if sample.at >= seconds * WARM_UP and sample.exchanges >= WARM_UP_EXCHANGES
        ]
        for what, limit in LIMITS.items():
            points = [(sample.at, float(getattr(sample, what))) for sample in judged]
            slope = slope_of(points)
            values = [value for _, value in points] or [0.0]
            verdicts.append(verdict(slope, limit))
            shown = " | ".join(
                f"{each:.1f}" for each in (values[0], values[-1], min(values), max(values))
            )
            print(
                f"| {number + 1} | {what} ({_UNITS[what]}) | {shown} "
                f"| {slope.per_hour:+.2f} ± {slope.band:.2f} | {limit:g} | {verdicts[-1]} |"
            )
    for problem in soak.broken[:40]:
        print(f"  {problem}")
    return 1 if soak.broken or "grows" in verdicts or not soak.exchanges else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Mixed load for a long time; nothing grows.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--keep", type=Path, help="a new folder for logs and the store")
    given = parser.parse_args(arguments)
    soak = _Soak()
    seconds = given.minutes * 60
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))
        )
        folder.mkdir(exist_ok=True)
        asyncio.run(_run(folder, seconds, given.first, soak))
    return print_report(soak, seconds)


if __name__ == "__main__":
    sys.exit(main())
