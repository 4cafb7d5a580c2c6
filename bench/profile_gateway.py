"""Where the gateway's time goes: the functions that cost most per event or per request.

    python bench/profile_gateway.py --pair chat:responses --mode flood

The gateway runs as `make bench` runs it, but in a process that can profile itself: SIGUSR1 begins, the next one ends and
writes what was found (the gateway itself takes SIGUSR2). A load is run once unprofiled, which gives the true cost, and once under cProfile, whose shares are applied
to it. cProfile charges every Python call, so functions that make many calls look dearer than they are: compare runs.
"""

import argparse
import cProfile
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import CodeType, FrameType

import gateway_targets as targets
import msgspec
from gateway import load_of
from gateway_processes import Service, free_port, pin
from gateway_report import MODES, Mode
from load import run_load

_SOURCE = str(Path(__file__).parents[1] / "src") + "/"
_WAITING = ("poll", "select")


class Cost(msgspec.Struct, frozen=True):
    """What one function took while the profiler ran, in seconds: by itself, and with all it called."""

    name: str
    calls: int
    own: float
    whole: float


def serve_profiled(found: Path) -> None:
    """`dragoman serve` with the arguments that are left, and a profiler that obeys signals."""
    from dragoman.cli import main as dragoman  # noqa: PLC0415 - only the child needs the gateway

    profiler = cProfile.Profile()

    is_running = False

    def toggle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_running
        is_running = not is_running
        if is_running:
            profiler.enable()
            return
        profiler.disable()
        costs = [
            Cost(_name(entry.code), entry.callcount, entry.inlinetime, entry.totaltime)
            for entry in profiler.getstats()
        ]
        partial = found.with_suffix(".part")
        partial.write_bytes(msgspec.json.encode(costs))
        partial.rename(found)
        profiler.clear()

    signal.signal(signal.SIGUSR1, toggle)
    sys.exit(dragoman())


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code
    path = code.co_filename.rpartition("site-packages/")[2].removeprefix(_SOURCE)
    return f"{path}:{code.co_firstlineno} {code.co_qualname}"


def start(home: Path, mock: int) -> Service:
    port = free_port()
    config = targets.write_config(home, mock)
    command = [sys.executable, __file__, "--found", str(home / "found.json")]
    command += ["serve", "--config", str(config), "--port", str(port)]
    service = Service(command, port, home / "gateway.log")
    service.wait_ready()
    return service


def profile(service: Service, contestant: targets.Contestant, mode: Mode, found: Path) -> None:
    """Prints the table of one load."""
    load = load_of(contestant, mode)
    run_load(load, service.pid)  # warms up
    plain = run_load(load, service.pid)
    os.kill(service.pid, signal.SIGUSR1)
    profiled = run_load(load, service.pid)
    os.kill(service.pid, signal.SIGUSR1)
    while not found.exists():
        time.sleep(0.05)
    costs = msgspec.json.decode(found.read_bytes(), type=list[Cost])
    found.unlink()
    if plain.failed or profiled.failed:
        raise RuntimeError(f"{contestant.label}, {mode}: {plain.first_fault}")
    is_small = mode == "small"
    true = plain.cpu_per_request if is_small else plain.cpu_per_event
    units = profiled.done if is_small else profiled.events
    working = [cost for cost in costs if not cost.name.startswith(_WAITING)]
    scale = true / sum(cost.own for cost in working)
    print(f"\n{contestant.label}, {mode}: {true:.2f} µs per {'request' if is_small else 'event'}")
    print(f"{'own µs':>8}{'whole µs':>10}{'calls':>8}")
    for cost in sorted(working, key=lambda cost: cost.own, reverse=True)[:_TOP]:
        calls = cost.calls / units
        print(f"{cost.own * scale:>8.2f}{cost.whole * scale:>10.2f}{calls:>8.2f}  {cost.name}")


_TOP = 45


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the gateway's time goes.")
    parser.add_argument("--pair", type=targets.pair_of, default=targets.Pair("chat", "responses"))
    parser.add_argument("--mode", choices=MODES, action="append", help="all, if none is given")
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.found:
        sys.argv[1:] = rest
        serve_profiled(given.found)
        return
    pin(os.getpid(), is_target=False)
    with tempfile.TemporaryDirectory(prefix="dragoman-profile-") as name:
        home = Path(name)
        mock = targets.start_mock(home)
        try:
            service = start(home, mock.port)
            try:
                contestant = targets.gateway_contestant(service, given.pair)
                for mode in given.mode or MODES:
                    profile(service, contestant, mode, home / "found.json")
            finally:
                service.stop()
        finally:
            mock.stop()


if __name__ == "__main__":
    main()
