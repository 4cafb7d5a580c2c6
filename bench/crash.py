"""`make crash`: several gateways on one SQLite file, under load, while processes of theirs start, stop and are killed.

Clients hold conversations by id that go from gateway to gateway, streamed and not, with tool outputs that are submitted.
Some responses are made in the background, and polled at any gateway.
Meanwhile gateways are killed (SIGKILL) or stopped and started again, workers of the one that has several are killed or
asked to end, and `dragoman check` reads the store. Every gateway must return every response whose end a client received,
as it was sent: each response is read at once from one gateway, all are read at the end, and once more after all gateways
were killed together. A background response that was acknowledged as queued must end on every gateway, as one thing for
ever. If a response is missing or differs, the exit code is 1.
"""

import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from commands import run_command
from served import PATIENCE, Served

# Some are always in the middle of a stream, others often at its end.
MODELS = ("rehearsal", "rehearsal", "rehearsal", "rehearsal-slow")
CLIENTS = 8
# The share of requests for a response in the background.
BACKGROUND = 0.25
# After so many seconds a response of a killed gateway counts as failed: short, so that clients wait for it.
LEASE = 4
POLL_SECONDS = 0.05
# Between two events: long enough for a few responses of each client, short enough to be in the middle of some.
SHORTEST, LONGEST = 0.05, 1.2
# What may happen to a gateway, and its share in percent.
EVENTS = {"kill": 30, "stop": 20, "end worker": 15, "kill worker": 15, "check": 20}
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]


Json = dict[str, Any]


class Outcome:
    """What clients received: the final response object by its id, and what went wrong."""

    def __init__(self) -> None:
        self.responses: dict[str, Json] = {}
        self.lost: dict[str, str] = {}
        """What was received and is not there: by its id, what was found in its place."""
        self.queued: dict[str, str] = {}
        """The background responses that were acknowledged: by id, how each ended; empty: not yet."""
        self.cut = 0
        self.refused: Counter[str] = Counter()
        """Errors of the gateway that a client received."""
        self._lock = threading.Lock()

    def add(self, response: Json) -> None:
        with self._lock:
            self.responses[response["id"]] = response

    def queue(self, response_id: str) -> None:
        with self._lock:
            self.queued[response_id] = ""

    def end(self, response_id: str, status: str) -> None:
        """A background response was seen to have ended."""
        with self._lock:
            before = self.queued[response_id] or status
            self.queued[response_id] = before
        if before != status:
            self.lose(response_id, f"it was {before}, and then {status}")

    def lose(self, response_id: str, why: str) -> None:
        with self._lock:
            self.lost.setdefault(response_id, why)

    def refuse(self, why: str) -> None:
        with self._lock:
            self.refused[why] += 1

    def count_cut(self) -> None:
        with self._lock:
            self.cut += 1


class Gateways:
    """All gateways on one file. One of them has two workers."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._environment = {
            "DRAGOMAN_STORE_URL": f"sqlite://{folder / 'store.db'}",
            "DRAGOMAN_STORE_LEASE": str(LEASE),
        }
        workers = [()] * (count - 1) + [("--workers", "2")]
        self.all = [Served(folder, self._environment, *options) for options in workers]
        self.up: set[Served] = set()

    def start(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Served.start, self.all))
        self.up = set(self.all)

    def happen(self, event: str, dice: random.Random) -> None:
        """Do one thing to a gateway, while the clients go on."""
        if event == "check":
            self._check()
            return
        if event.endswith("worker"):
            pids = self.all[-1].workers()
            if len(pids) > 1:
                os.kill(dice.choice(pids), 9 if event == "kill worker" else 15)
            return
        served = dice.choice(self.all)
        self.up.discard(served)
        if event == "kill":
            served.kill()
        else:
            served.stop()
        served.start()
        self.up.add(served)

    def kill(self) -> None:
        self.up.clear()
        for served in self.all:
            served.kill()

    def stop(self) -> None:
        for served in self.all:
            served.stop()

    def _check(self) -> None:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder), **self._environment}
        done = run_command("check", cwd=self._folder, env=environment, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr


def run_rounds(folder: Path, events: Sequence[str], *, seed: int, gateways: int = 3) -> Outcome:
    """Let these things happen to gateways under load. What clients received, and what was lost of it."""
    dice = random.Random(seed)
    outcome = Outcome()
    group = Gateways(folder, gateways)
    try:
        group.start()
        stop = threading.Event()
        clients = [
            threading.Thread(
                target=_Client(group, outcome, f"{seed} {each}", each).talk, args=(stop,)
            )
            for each in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            for event in events:
                time.sleep(dice.uniform(SHORTEST, LONGEST))
                group.happen(event, dice)
        finally:
            stop.set()
            for client in clients:
                client.join()
        _read_all(group.all, outcome)
        _end_all(group.all, outcome)
        group.kill()
        group.start()
        _read_all(group.all, outcome)
        _end_all(group.all, outcome)
    finally:
        group.stop()
    return outcome


class _Client:
    """One client: conversations by ids, each request to any gateway that is up."""

    def __init__(self, group: Gateways, outcome: Outcome, name: str, number: int) -> None:
        self._group = group
        self._outcome = outcome
        self._name = name
        self._model = MODELS[number % len(MODELS)]
        self._dice = random.Random(name)

    def talk(self, stop: threading.Event) -> None:
        last: Json | None = None
        number = 0
        while not stop.is_set():
            number += 1
            last = self._ask(last, number, stop)
            if last is None:
                time.sleep(0.02)  # the gateway that was asked has just gone
                continue
            self._outcome.add(last)
            served = self._gateway()
            # If it was killed meanwhile: the response is read at the end.
            with suppress(OSError, http.client.HTTPException):
                _read_back(served, self._outcome, last)

    def _gateway(self) -> Served:
        return self._dice.choice([*self._group.up] or self._group.all)

    def _ask(self, last: Json | None, number: int, stop: threading.Event) -> Json | None:
        """One response, or None if its end was not received."""
        stream = self._dice.random() < 0.7
        path, body = self._request(last, number)
        if path.endswith("/responses") and self._dice.random() < BACKGROUND:
            return self._poll(*self._gateway().receive(path, {**body, "background": True}), stop)
        status, received = self._gateway().receive(path, {**body, "stream": stream})
        return self._response(status, received, stream=stream)

    def _poll(self, status: int, received: bytes, stop: threading.Event) -> Json | None:
        """Wait for a background response; None if it did not complete."""
        queued = self._response(status, received, stream=False)
        if queued is None:
            return None
        self._outcome.queue(queued["id"])
        while not stop.is_set():
            with suppress(OSError, http.client.HTTPException):
                response = _look(self._gateway(), self._outcome, queued["id"])
                if response is not None:
                    return response if response["status"] == "completed" else None
            time.sleep(POLL_SECONDS)
        return None

    def _request(self, last: Json | None, number: int) -> tuple[str, Json]:
        """The next of a conversation: its path and its body."""
        path = "/v1/responses"
        body: Json = {
            "model": self._model,
            "input": f"crash {self._name} {number}, weather in Oslo",
        }
        if last is None:
            return path, body
        calls = [item["call_id"] for item in last["output"] if item["type"] == "function_call"]
        outputs = [{"call_id": call, "output": f"cold {number}"} for call in calls]
        if calls and self._dice.random() < 0.5:
            return f"{path}/{last['id']}/submit_tool_outputs", {"tool_outputs": outputs}
        body["previous_response_id"] = last["id"]
        if calls:
            body["input"] = [{"type": "function_call_output", **each} for each in outputs]
        elif self._dice.random() < 0.3:
            del body["previous_response_id"]
            body["tools"] = TOOLS
        return path, body

    def _response(self, status: int, received: bytes, *, stream: bool) -> Json | None:
        if status == 0:
            self._outcome.count_cut()
            return None
        if status != 200:
            self._outcome.refuse(f"{status} {_message(received)}")
            return None
        if not stream:
            whole = _object(received)
            if whole is None:
                self._outcome.count_cut()
            return whole
        lines = [line for line in received.split(b"\n") if line.startswith(b"data: ")]
        event = _object(lines[-1].removeprefix(b"data: ")) if lines else None
        if event is None or event["type"] not in ("response.completed", "response.failed"):
            self._outcome.count_cut()
            return None
        response: Json = event["response"]
        if event["type"] == "response.completed":
            return response
        self._outcome.refuse(f"response.failed {response['error']['message']}")
        return None


def _object(data: bytes) -> Json | None:
    try:
        found: Json = json.loads(data)
    except ValueError:
        return None
    return found


def _message(received: bytes) -> str:
    error = _object(received)
    return str(received[:200]) if error is None else str(error["error"]["message"])


def _read_all(gateways: Sequence[Served], outcome: Outcome) -> None:
    """Read what was received: each response from one gateway after another."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        for number, response in enumerate([*outcome.responses.values()]):
            pool.submit(_read_back, gateways[number % len(gateways)], outcome, response)


def _look(served: Served, outcome: Outcome, response_id: str) -> Json | None:
    """A background response, if it has ended. Raises OSError: the gateway has gone."""
    status, found = served.ask(f"/v1/responses/{response_id}")
    response = _object(found) if status == 200 else None
    if response is None:
        outcome.lose(response_id, f"{status} {_message(found)}")
        return {"status": "lost"}
    if response["status"] in ("queued", "in_progress"):
        return None
    outcome.end(response_id, response["status"])
    return response


def _end_all(gateways: Sequence[Served], outcome: Outcome) -> None:
    """Wait until every background response has ended, on every gateway."""
    patience = time.monotonic() + PATIENCE
    for response_id in outcome.queued:
        for served in gateways:
            while _look(served, outcome, response_id) is None:
                if time.monotonic() > patience:
                    outcome.lose(response_id, "it has not ended")
                    break
                time.sleep(POLL_SECONDS)


def _read_back(served: Served, outcome: Outcome, response: Json) -> None:
    """Raises OSError: the gateway has gone."""
    path = f"/v1/responses/{response['id']}"
    status, found = served.ask(path)
    if status != 200:
        outcome.lose(response["id"], f"{status} {_message(found)}")
        return
    if _object(found) != response:
        outcome.lose(response["id"], "it differs")
        return
    status, stream = served.ask(f"{path}?stream=true")
    if status != 200 or b"response.completed" not in stream:
        outcome.lose(response["id"], f"{status} its stream is not there")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Kill gateways; nothing that they acknowledged is lost."
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args(arguments)
    dice = random.Random(given.seed)
    events = dice.choices([*EVENTS], [*EVENTS.values()], k=given.rounds)
    with tempfile.TemporaryDirectory(prefix="dragoman-crash-") as folder:
        try:
            outcome = run_rounds(Path(folder), events, seed=given.seed, gateways=given.gateways)
        except AssertionError as error:
            print(f"crash: a gateway did not come back: {error}", file=sys.stderr)
            return 2
    happened = ", ".join(f"{count} × {name}" for name, count in Counter(events).items())
    print(
        f"crash: seed {given.seed}, {given.gateways} gateways, one of them with 2 workers; {happened}; "
        f"{len(outcome.responses)} responses received whole, {outcome.cut} cut, {len(outcome.lost)} lost"
    )
    ends = ", ".join(f"{count} {name}" for name, count in Counter(outcome.queued.values()).items())
    print(f"  {len(outcome.queued)} background responses were acknowledged: {ends}")
    for why, count in (
        *Counter(outcome.lost.values()).most_common(9),
        *outcome.refused.most_common(9),
    ):
        print(f"  {count} × {why}")
    return 1 if outcome.lost or not outcome.responses else 0


if __name__ == "__main__":
    sys.exit(main())
