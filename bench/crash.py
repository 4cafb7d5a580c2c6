"""`make crash`: a gateway on SQLite, killed at random moments under load; what a client was told of must be there after.

Each round starts `dragoman serve` on the same file, streams responses from several clients at once, kills the process with
SIGKILL somewhere in it, and starts it again. Every response whose terminal event some client received is then read back
and compared with what was told, and a chain of them is continued. One that is missing or differs ends the run with 1.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "e2e"))

from served import Served

__all__ = ("Told", "run_rounds")

# Some are always in the middle of a stream, others often at its end.
MODELS = ("rehearsal", "rehearsal", "rehearsal", "rehearsal-slow")
CLIENTS = 8
# Long enough for a few responses of each client, short enough to be in the middle of some.
SHORTEST, LONGEST = 0.05, 1.2


class Told:
    """What clients received: the final response object by its id, and how many streams were cut."""

    def __init__(self) -> None:
        self.responses: dict[str, bytes] = {}
        self.cut = 0
        self._lock = threading.Lock()

    def note(self, stream: bytes) -> None:
        """A stream as far as it came."""
        ends = [line for line in stream.split(b"\n") if b'"type":"response.completed"' in line]
        with self._lock:
            if not ends:
                self.cut += 1
                return
            event = json.loads(ends[-1].removeprefix(b"data: "))
            self.responses[event["response"]["id"]] = json.dumps(event["response"]).encode()


def run_rounds(folder: Path, kills: int, seed: int) -> tuple[Told, list[str]]:
    """Kill a gateway so often. What was told, and what was lost of it."""
    dice = random.Random(seed)
    told = Told()
    served = Served(folder, {"DRAGOMAN_STORE_URL": f"sqlite://{folder / 'store.db'}"})
    lost: list[str] = []
    checked: set[str] = set()
    for number in range(kills):
        served.start()
        lost += _lost(served, told, checked)
        stop = threading.Event()
        clients = [
            threading.Thread(
                target=_talk,
                args=(served, told, stop, MODELS[each % len(MODELS)], f"{seed} {number} {each}"),
            )
            for each in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        time.sleep(dice.uniform(SHORTEST, LONGEST))
        served.kill()
        stop.set()
        for client in clients:
            client.join()
    served.start()
    lost += _lost(served, told, checked)
    # Whole, from the first to the last, and not only what is new.
    lost += _lost(served, told, set())
    served.stop()
    return told, lost


def _talk(served: Served, told: Told, stop: threading.Event, model: str, name: str) -> None:
    """One client: a conversation by ids, streamed, until nobody answers."""
    previous: str | None = None
    number = 0
    while not stop.is_set():
        number += 1
        body = {"model": model, "input": f"crash {name} {number}", "stream": True}
        if previous is not None:
            body["previous_response_id"] = previous
        stream = served.read(body)
        told.note(stream)
        ends = [line for line in stream.split(b"\n") if b'"type":"response.completed"' in line]
        if not ends:
            return
        previous = json.loads(ends[-1].removeprefix(b"data: "))["response"]["id"]


def _lost(served: Served, told: Told, checked: set[str]) -> list[str]:
    """The responses that are not there as they were told."""
    lost: list[str] = []
    for response_id, body in list(told.responses.items()):
        if response_id in checked:
            continue
        checked.add(response_id)
        status, found = served.ask(f"/v1/responses/{response_id}")
        if status != 200 or json.loads(found) != json.loads(body):
            lost.append(response_id)
            continue
        status, stream = served.ask(f"/v1/responses/{response_id}?stream=true")
        if status != 200 or b"response.completed" not in stream:
            lost.append(response_id)
    return lost


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Kill a gateway; nothing it told of is lost.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dragoman-crash-") as folder:
        try:
            told, lost = run_rounds(Path(folder), given.kills, given.seed)
        except (AssertionError, urllib.error.URLError) as error:
            print(f"crash: the gateway did not come back: {error}", file=sys.stderr)
            return 2
    print(
        f"crash: seed {given.seed}, {given.kills} kills, {len(told.responses)} responses told whole, "
        f"{told.cut} cut, {len(lost)} lost"
    )
    return 1 if lost or not told.responses else 0


if __name__ == "__main__":
    sys.exit(main())
