"""A turn between its child process and the answers made from it."""

import asyncio
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import UpstreamError
from dragoman.upstream.codex import turn as turn_module
from dragoman.upstream.codex.jsonrpc import Message, read_message
from dragoman.upstream.codex.turn import CodexReply, CodexTurn, PauseDetector


class Wire:
    """A child that records the messages it gets."""

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
        self.turn = CodexTurn(
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


def test_nothing_is_emitted_before_the_first_content() -> None:
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


def test_empty_turn_is_emitted_too() -> None:
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


TRANSCRIPTS = Path(__file__).parents[5] / "shared" / "codex" / "transcripts"

Json = dict[str, Any]


def note(
    watch: PauseDetector, method: str, number: int | None = None, **params: Any
) -> PauseDetector:
    message: Json = {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}
    if number is not None:
        message["id"] = number
    read = read_message(json.dumps(message).encode())
    assert read is not None
    watch.note(read)
    return watch


def raw_call(watch: PauseDetector, call_id: str = "c", **fields: Any) -> PauseDetector:
    item = {"type": "function_call", "call_id": call_id, "name": "get", "arguments": "{}", **fields}
    return note(watch, "rawResponseItem/completed", item=item)


def ask(watch: PauseDetector, call_id: str = "c", number: int = 0) -> PauseDetector:
    return note(watch, "item/tool/call", number, callId=call_id, tool="get", arguments={})


def end(watch: PauseDetector) -> PauseDetector:
    return note(watch, "rawResponse/completed", responseId="r")


@pytest.fixture
def watch() -> PauseDetector:
    return PauseDetector(frozenset({"get"}))


@pytest.mark.parametrize("order", list(permutations(["ask a", "ask b", "end"])))
def test_answer_ends_when_all_calls_wait_and_the_response_is_over(
    watch: PauseDetector, order: tuple[str, ...]
) -> None:
    raw_call(raw_call(watch, "a"), "b")
    for number, step in enumerate(order):
        assert not watch.may_pause
        if step == "end":
            end(watch)
        else:
            ask(watch, step[-1], number)
    assert watch.may_pause
    assert set(watch.waiting) == watch.announced == {"a", "b"}


def test_item_that_comes_after_its_request_is_the_same_call(watch: PauseDetector) -> None:
    assert end(raw_call(ask(watch))).may_pause


def test_call_outside_any_response_waits_by_itself(watch: PauseDetector) -> None:
    item = {"type": "custom_tool_call", "name": "exec", "call_id": "x", "input": ""}
    note(watch, "rawResponseItem/completed", item=item)
    assert not ask(watch, "exec-1").may_pause
    assert end(watch).may_pause


@pytest.mark.parametrize(
    "fields", [{"name": "other"}, {"arguments": "{"}, {"arguments": ""}, {"namespace": "x"}]
)
def test_call_that_codex_answers_itself_is_not_waited_for(
    watch: PauseDetector, fields: Json
) -> None:
    raw_call(watch, "own", **fields)
    raw_call(watch)
    assert end(ask(watch)).may_pause
    output = {"type": "function_call_output", "call_id": "own", "output": "failed"}
    assert note(watch, "rawResponseItem/completed", item=output).dropped is None


def test_offered_tool_that_nobody_was_asked_for_was_dropped(watch: PauseDetector) -> None:
    raw_call(watch)
    output = {"type": "function_call_output", "call_id": "c", "output": "ran"}
    assert note(watch, "rawResponseItem/completed", item=output).dropped == "get"


def test_answered_calls_wait_no_more(watch: PauseDetector) -> None:
    end(ask(raw_call(watch)))
    item = {"type": "dynamicToolCall", "id": "c", "status": "failed"}
    assert not note(watch, "item/completed", item=item).waiting
    end(ask(raw_call(watch, "d"), "d", 1))
    assert (bool(watch.waiting), watch.is_heard) == (True, True)
    watch.answered()
    assert (watch.waiting, watch.is_heard) == ({}, False)


def test_what_is_injected_or_echoed_is_not_heard(watch: PauseDetector) -> None:
    message: Json = {"type": "message", "role": "assistant", "content": []}
    note(watch, "rawResponseItem/completed", turnId="auto-compact-1", item=message)
    note(watch, "rawResponseItem/completed", item={**message, "role": "user"})
    note(watch, "item/started", item={"type": "userMessage", "id": "1"})
    note(watch, "thread/status/changed", status={})
    assert (watch.is_heard, watch.is_text_open) == (False, False)
    note(watch, "item/started", item={"type": "agentMessage", "id": "1"})
    assert (watch.is_heard, watch.is_text_open) == (True, True)


def test_retry_is_seen_once(watch: PauseDetector) -> None:
    assert note(watch, "error", error={}, willRetry=True).is_retrying
    assert not note(watch, "item/agentMessage/delta", itemId="m", delta="x").is_retrying
    assert not note(watch, "error", error={}, willRetry=False).is_retrying


def test_turn_has_a_name_and_an_end(watch: PauseDetector) -> None:
    note(watch, "turn/started", turn={"id": "u1"})
    assert watch.turn_id == "u1"
    note(watch, "turn/completed", turn={"id": "u1", "status": "failed"})
    assert (watch.is_over, watch.is_failed) == (True, True)


def test_fields_of_odd_types_are_passed_over(watch: PauseDetector) -> None:
    note(watch, "rawResponseItem/completed", item=5)
    note(watch, "item/started", item={"type": 5})
    note(watch, "turn/completed", turn=[])
    assert (watch.is_over, watch.is_failed) == (True, False)


def recorded(name: str) -> list[Json]:
    """The messages of a recording; none where the recordings are not at hand."""
    path = TRANSCRIPTS / f"{name}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [record["msg"] for line in lines if (record := json.loads(line))["dir"] == "s2c"]


# In the second recording the calls were answered before their response was over.
@pytest.mark.parametrize(("name", "pauses"), [("client_tool_raw", 1), ("raw_parallel_hold", 0)])
def test_recorded_turn_pauses_where_its_calls_wait(name: str, pauses: int) -> None:
    watch = PauseDetector(frozenset({"get_weather"}))
    found = 0
    messages = recorded(name)
    for fields in messages:
        message = read_message(json.dumps(fields).encode())
        if message is not None and message.method:
            watch.note(message)
            found += watch.may_pause
    assert (watch.is_over, found) == ((True, pauses) if messages else (False, 0))
    assert (watch.dropped, watch.waiting) == (None, {})
