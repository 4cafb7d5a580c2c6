"""Counts the processor instructions of a request in two trees of this project: `make bench-instructions BASE=../other`.

Instructions do not depend on how busy the machine is or on its clock, so two versions that differ by one per cent can be told
apart in one run. Each tree's gateway runs under callgrind (valgrind), with its own .venv and the configuration of `make
bench`; counting begins when the gateway is warm. What the kernel does is not counted. Where the instructions go is in the files
that --keep names, for callgrind_annotate; Python's own functions are found with bench/profile_gateway.py.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import gateway_targets as targets
from gateway_processes import Service, free_port
from gateway_targets import Pair
from load import Load, run_load
from msgspec import structs

_PAIRS = "chat:chat,responses:chat,messages:chat,chat:responses,responses:responses"
_WARMING = 300
"""Requests before counting: caches are full, and the interpreter has specialised its instructions."""

_READY_SECONDS = 300.0  # a program starts some thirty times slower under valgrind
_TOTALS = re.compile(rb"^totals: (\d+)", re.MULTILINE)


class CountedGateway:
    """The gateway of one tree under callgrind, which counts when it is asked to."""

    def __init__(self, tree: Path, mock: int, home: Path) -> None:
        python = tree / ".venv" / "bin" / "python"
        if not python.exists():
            raise RuntimeError(f"expected {python}; run `make venv` in {tree}")
        self._files = home / "callgrind"
        port = free_port()
        home.mkdir()
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-instr=no"]
        command += [f"--callgrind-out-file={self._files}", str(python), "-m", "dragoman", "serve"]
        command += ["--config", str(targets.write_config(home, mock)), "--port", str(port)]
        # One seed: the order of a set must not make the difference.
        environment = {"PYTHONHASHSEED": "0"}
        self.service = Service(command, port, home / "gateway.log", environment=environment)
        self.service.wait_ready(_READY_SECONDS)

    def count(self, load: Load) -> float:
        """Instructions per request."""
        run_load(structs.replace(load, requests=_WARMING))
        self._control("--zero")
        self._control("--instr=on")
        figures = run_load(load)
        self._control("--instr=off")
        before = set(self._files.parent.glob("callgrind.*"))
        self._control("--dump")
        if figures.failed:
            raise RuntimeError(figures.first_fault)
        (dumped,) = set(self._files.parent.glob("callgrind.*")) - before
        found = _TOTALS.search(dumped.read_bytes())
        if found is None:
            raise RuntimeError(f"expected the totals of callgrind in {dumped}, found none")
        return int(found[1]) / figures.done

    def _control(self, option: str) -> None:
        command = ["callgrind_control", option, str(self.service.pid)]
        subprocess.run(command, check=True, capture_output=True)


def load_of(gateway: CountedGateway, pair: Pair, requests: int, *, is_stream: bool) -> Load:
    contestant = targets.gateway_contestant(gateway.service, pair)
    return structs.replace(
        contestant.load(), connections=8, requests=requests, is_stream=is_stream, timeout=600.0
    )


def compare(trees: list[Path], pairs: list[Pair], given: argparse.Namespace, home: Path) -> None:
    """Prints a row per pair: the instructions in each tree, and their ratio to the last one's."""
    with ExitStack() as services:
        mock = targets.start_mock(home)
        services.callback(mock.stop)
        gateways: list[CountedGateway] = []
        for number, tree in enumerate(trees):
            gateways.append(CountedGateway(tree, mock.port, home / str(number)))
            services.callback(gateways[-1].service.stop)
        what = "a stream of 600 deltas" if given.stream else "a small request"
        print(f"| instructions of {what} | {' | '.join(tree.name for tree in trees)} | ratio |")
        print(f"|---|{'--:|' * (len(trees) + 1)}")
        for pair in pairs:
            counts = [
                each.count(load_of(each, pair, given.requests, is_stream=given.stream))
                for each in gateways
            ]
            cells = " | ".join(f"{count:,.0f}" for count in counts)
            print(f"| {pair} | {cells} | {counts[0] / counts[-1]:.3f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Instructions per request in two trees.")
    parser.add_argument("--base", type=Path, help="the tree to compare with")
    parser.add_argument("--pairs", default=_PAIRS, help="door:upstream, separated by commas")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--stream", action="store_true", help="whole streams at once")
    parser.add_argument("--keep", type=Path, help="a folder for the files of callgrind")
    given = parser.parse_args()
    if shutil.which("callgrind_control") is None:
        print(
            "instructions: valgrind is not installed: apt-get install -y valgrind", file=sys.stderr
        )
        return 2
    pairs = [targets.pair_of(text) for text in given.pairs.split(",")]
    trees = [Path(__file__).resolve().parents[1], *([given.base.resolve()] if given.base else [])]
    with tempfile.TemporaryDirectory(prefix="dragoman-instructions-") as name:
        home = given.keep or Path(name)
        home.mkdir(parents=True, exist_ok=True)
        try:
            compare(trees, pairs, given, home)
        except RuntimeError as error:
            print(f"instructions: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
