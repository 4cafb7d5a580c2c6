"""A turn between its child and the answers that are told of it."""

import asyncio
import json
from typing import Any

import pytest

from dragoman.errors import UpstreamError
from dragoman.upstream.codex import turn as turn_module
from dragoman.upstream.codex.jsonrpc import Message, read_message
from dragoman.upstream.codex.reply import CodexReply
from dragoman.upstream.codex.turn import Turn


class Wire:
    """A child that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def write(self, line: bytes) -> None:
        self.said.append(line.decode())

    def interrupt(self, thread_id: str, turn_id: str) -> None:
        self.said.append(f"interrupt {thread_id} {turn_id}")

    def release(self, thread_id: str) -> None:
        self.said.append(f"release {thread_id}")


class Made:
    def __init__(self) -> None:
        self.wire = Wire()
        self.paused = 0
        self.ended = 0
        self.turn = Turn(
            self.wire,
            "t",
            model="m",
            tools=["get"],
            on_pause=lambda _: self._pause(),
            on_end=lambda _: self._end(),
        )
        self.turn.announce()

    def _pause(self) -> None:
        self.paused += 1

    def _end(self) -> None:
        self.ended += 1


def message(method: str, number: int | None = None, **params: Any) -> Message:
    fields: dict[str, Any] = {
        "method": method,
        "params": {"threadId": "t", "turnId": "u", **params},
    }
    if number is not None:
        fields["id"] = number
    read = read_message(json.dumps(fields).encode())
    assert read is not None
    return read


def call(call_id: str, number: int) -> Message:
    return message("item/tool/call", number, callId=call_id, tool="get", arguments={})


def methods(data: bytes) -> list[str]:
    frames = data.decode().split("\n\n")[:-1]
    return [json.loads(frame.removeprefix("data: "))["method"] for frame in frames]


COMPLETED = message("turn/completed", turn={"id": "u", "status": "completed"})


def test_nothing_is_told_until_there_is_something_to_hear() -> None:
    made = Made()
    made.turn.deliver(message("turn/started", turn={"id": "u"}))
    made.turn.deliver(message("warning", message="x"))
    assert made.turn.take() == b""
    made.turn.deliver(message("item/agentMessage/delta", itemId="m", delta="x"))
    assert methods(made.turn.take()) == [
        "gateway/answer",
        "turn/started",
        "item/agentMessage/delta",
    ]


def test_empty_turn_is_told_too() -> None:
    made = Made()
    made.turn.deliver(COMPLETED)
    assert methods(made.turn.take()) == ["gateway/answer", "turn/completed"]
    made.turn.fail(UpstreamError("too late"))
    assert made.turn.failure is None


def test_call_that_comes_while_the_turn_is_paused_is_the_next_answers() -> None:
    made = Made()
    made.turn.begin("u")
    made.turn.deliver(call("a", 0))
    assert methods(made.turn.take())[-1] == "gateway/pause"
    made.turn.deliver(call("b", 1))
    assert made.turn.take() == b""
    made.turn.answer([b"result\n"], None)
    assert made.wire.said == ["result\n"]
    assert methods(made.turn.take()) == ["gateway/answer", "item/tool/call", "gateway/pause"]
    assert (made.paused, set(made.turn.watch.waiting)) == (2, {"b"})


def test_turn_that_is_abandoned_before_it_has_a_name_is_stopped_when_it_gets_one() -> None:
    made = Made()
    made.turn.requested()
    made.turn.abandon()
    made.turn.abandon()
    assert (made.ended, made.wire.said) == (1, [])
    made.turn.deliver(message("thread/status/changed"))
    made.turn.deliver(message("turn/started", turn={"id": "u"}))
    assert made.wire.said == ["interrupt t u", "release t"]
    made.turn.deliver(COMPLETED)
    assert len(made.wire.said) == 2


def test_turn_is_stopped_once_though_its_name_comes_twice() -> None:
    made = Made()
    made.turn.requested()
    made.turn.deliver(message("turn/started", turn={"id": "u"}))
    made.turn.abandon()
    made.turn.begin("u")
    assert made.wire.said == ["interrupt t u", "release t"]


def test_answer_that_nobody_reads_ends() -> None:
    made = Made()
    turn_module.MAX_BUFFERED, before = 1000, turn_module.MAX_BUFFERED
    try:
        for _ in range(20):
            made.turn.deliver(message("item/agentMessage/delta", itemId="m", delta="x" * 100))
    finally:
        turn_module.MAX_BUFFERED = before
    assert made.turn.failure is not None
    assert made.turn.failure.kind == "server"
    assert made.wire.said[-1] == "release t"


def test_reply_that_is_closed_gives_nothing() -> None:
    async def main() -> None:
        reply = CodexReply("codex", Made().turn, {}, first_timeout=1, idle_timeout=1, settle=1)
        reply.close()
        assert await reply.read() == b""

    asyncio.run(main())


def test_silence_in_the_middle_of_an_answer_is_an_error() -> None:
    async def main() -> None:
        made = Made()
        made.turn.begin("u")
        reply = CodexReply("codex", made.turn, {}, first_timeout=1, idle_timeout=0.01, settle=1)
        made.turn.deliver(message("item/agentMessage/delta", itemId="m", delta="x"))
        assert await reply.read()
        with pytest.raises(UpstreamError, match="sent nothing for"):
            await reply.read()
        assert made.wire.said == ["interrupt t u", "release t"]

    asyncio.run(main())
