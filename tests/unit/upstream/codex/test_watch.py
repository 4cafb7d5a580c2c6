"""When an answer may end although the turn goes on."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dragoman.upstream.codex.jsonrpc import read_message
from dragoman.upstream.codex.watch import Watch

TRANSCRIPTS = Path(__file__).parents[5] / "shared" / "codex" / "transcripts"

Json = dict[str, Any]


def note(watch: Watch, method: str, number: int | None = None, **params: Any) -> Watch:
    message: Json = {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}
    if number is not None:
        message["id"] = number
    read = read_message(json.dumps(message).encode())
    assert read is not None
    watch.note(read)
    return watch


def raw_call(watch: Watch, call_id: str = "c", **fields: Any) -> Watch:
    item = {"type": "function_call", "call_id": call_id, "name": "get", "arguments": "{}", **fields}
    return note(watch, "rawResponseItem/completed", item=item)


def ask(watch: Watch, call_id: str = "c", number: int = 0) -> Watch:
    return note(watch, "item/tool/call", number, callId=call_id, tool="get", arguments={})


def end(watch: Watch) -> Watch:
    return note(watch, "rawResponse/completed", responseId="r")


@pytest.fixture
def watch() -> Watch:
    return Watch(frozenset({"get"}))


@pytest.mark.parametrize("order", list(permutations(["ask a", "ask b", "end"])))
def test_answer_ends_when_all_calls_wait_and_the_response_is_over(
    watch: Watch, order: tuple[str, ...]
) -> None:
    raw_call(raw_call(watch, "a"), "b")
    for number, step in enumerate(order):
        assert not watch.may_pause
        if step == "end":
            end(watch)
        else:
            ask(watch, step[-1], number)
    assert watch.may_pause
    assert set(watch.waiting) == watch.told == {"a", "b"}


def test_item_that_comes_after_its_request_is_the_same_call(watch: Watch) -> None:
    assert end(raw_call(ask(watch))).may_pause


def test_call_outside_any_response_waits_by_itself(watch: Watch) -> None:
    item = {"type": "custom_tool_call", "name": "exec", "call_id": "x", "input": ""}
    note(watch, "rawResponseItem/completed", item=item)
    assert not ask(watch, "exec-1").may_pause
    assert end(watch).may_pause


@pytest.mark.parametrize(
    "fields", [{"name": "other"}, {"arguments": "{"}, {"arguments": ""}, {"namespace": "x"}]
)
def test_call_that_codex_answers_itself_is_not_waited_for(watch: Watch, fields: Json) -> None:
    raw_call(watch, "own", **fields)
    raw_call(watch)
    assert end(ask(watch)).may_pause
    output = {"type": "function_call_output", "call_id": "own", "output": "failed"}
    assert note(watch, "rawResponseItem/completed", item=output).dropped is None


def test_offered_tool_that_nobody_was_asked_for_was_dropped(watch: Watch) -> None:
    raw_call(watch)
    output = {"type": "function_call_output", "call_id": "c", "output": "ran"}
    assert note(watch, "rawResponseItem/completed", item=output).dropped == "get"


def test_answered_calls_wait_no_more(watch: Watch) -> None:
    end(ask(raw_call(watch)))
    item = {"type": "dynamicToolCall", "id": "c", "status": "failed"}
    assert not note(watch, "item/completed", item=item).is_waiting
    end(ask(raw_call(watch, "d"), "d", 1))
    assert (watch.is_waiting, watch.is_heard) == (True, True)
    watch.answered()
    assert (watch.is_waiting, watch.is_heard) == (False, False)


def test_what_is_injected_or_echoed_is_not_heard(watch: Watch) -> None:
    message: Json = {"type": "message", "role": "assistant", "content": []}
    note(watch, "rawResponseItem/completed", turnId="auto-compact-1", item=message)
    note(watch, "rawResponseItem/completed", item={**message, "role": "user"})
    note(watch, "item/started", item={"type": "userMessage", "id": "1"})
    note(watch, "thread/status/changed", status={})
    assert (watch.is_heard, watch.is_text_open) == (False, False)
    note(watch, "item/started", item={"type": "agentMessage", "id": "1"})
    assert (watch.is_heard, watch.is_text_open) == (True, True)


def test_retry_is_seen_once(watch: Watch) -> None:
    assert note(watch, "error", error={}, willRetry=True).is_retrying
    assert not note(watch, "item/agentMessage/delta", itemId="m", delta="x").is_retrying
    assert not note(watch, "error", error={}, willRetry=False).is_retrying


def test_turn_has_a_name_and_an_end(watch: Watch) -> None:
    note(watch, "turn/started", turn={"id": "u1"})
    assert watch.turn_id == "u1"
    note(watch, "turn/completed", turn={"id": "u1", "status": "failed"})
    assert (watch.is_over, watch.is_failed) == (True, True)


def test_fields_of_odd_types_are_passed_over(watch: Watch) -> None:
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
    watch = Watch(frozenset({"get_weather"}))
    found = 0
    messages = recorded(name)
    for fields in messages:
        message = read_message(json.dumps(fields).encode())
        if message is not None and message.method:
            watch.note(message)
            found += watch.may_pause
    assert (watch.is_over, found) == ((True, pauses) if messages else (False, 0))
    assert (watch.dropped, watch.is_waiting) == (None, False)
