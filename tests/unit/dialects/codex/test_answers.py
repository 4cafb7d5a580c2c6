"""What a gateway says of an answer in the stream of messages, errors as bodies, and messages that come all at once."""

from typing import Any

import pytest

from codex_reading import Message, note, raw_item, read_all
from dragoman._json import dumps
from dragoman.core.fold import fold
from dragoman.dialects.codex import ANSWER, PAUSE, CodexReader, decode_error, read_body, read_typed
from dragoman.dialects.registry import UPSTREAM_CODECS, codec, upstream_codec
from dragoman.errors import ConfigError
from dragoman.model.events import Event
from dragoman.model.parts import Call, Opaque, Text


def answer(**params: Any) -> Message:
    return note(ANSWER, **{"answerId": "a.2", "model": "m", "createdAt": 7, **params})


def read(*messages: Message) -> list[Event]:
    return read_all(CodexReader(), messages)


def call(call_id: str = "c", name: str = "get", arguments: str = "{}") -> Message:
    return raw_item("function_call", call_id=call_id, name=name, arguments=arguments)


def end(**counts: int) -> Message:
    return note("rawResponse/completed", responseId="r", usage=counts)


def test_answer_is_announced_and_paused() -> None:
    usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
    outcome = fold(read(answer(tools=["get"]), call(), end(**usage), note(PAUSE)))
    assert (outcome.response_id, outcome.model, outcome.created) == ("a.2", "m", 7)
    assert (outcome.choices[0].finish, outcome.completed) == ("tool_calls", True)
    assert outcome.usage is not None
    assert (outcome.usage.input, outcome.usage.total) == (3, 5)


def test_answer_may_be_announced_without_the_tools() -> None:
    parts = fold(read(answer(), call())).choices[0].parts
    assert isinstance(parts[0], Call)


def test_calls_of_an_earlier_answer_are_not_emitted_again() -> None:
    item: dict[str, object] = {"type": "dynamicToolCall", "id": "c", "tool": "get", "arguments": {}}
    old = {"total": {"totalTokens": 5}, "last": {"totalTokens": 5}}
    events = read(
        answer(tools=["get"], calls=["c"]),
        note("item/completed", item=item),
        raw_item("function_call_output", call_id="c", output="ok"),
        note("thread/tokenUsage/updated", tokenUsage=old),
        call(),
        end(inputTokens=1, outputTokens=1),
        note(PAUSE),
    )
    outcome = fold(events)
    # The second use of the id is another call.
    assert [part.call_id for part in outcome.choices[0].parts if isinstance(part, Call)] == ["c"]
    assert outcome.usage is not None
    assert outcome.usage.input == 1


@pytest.mark.parametrize(
    "line", [call(name="exec_command"), call(arguments=""), call(arguments="{")]
)
def test_what_codex_does_itself_is_not_shown_as_a_call(line: Message) -> None:
    output = raw_item("function_call_output", call_id="c", output="unsupported call")
    parts = fold(read(answer(tools=["get"]), line, output)).choices[0].parts
    assert [part.type for part in parts if isinstance(part, Opaque)] == [
        "function_call",
        "function_call_output",
    ]
    assert len(parts) == 2


def test_without_tools_every_call_is_codexs_own() -> None:
    parts = fold(read(answer(tools=[]), call())).choices[0].parts
    assert isinstance(parts[0], Opaque)


def test_answer_counts_by_response_only() -> None:
    old = {"total": {"totalTokens": 5}, "last": {"totalTokens": 5}}
    usage = note("thread/tokenUsage/updated", tokenUsage=old)
    assert read_all(CodexReader(), [answer(tools=[]), usage]) == []


def test_failure_before_anything_is_all_that_is_said() -> None:
    error = {"message": "no", "codexErrorInfo": "usageLimitExceeded"}
    lines = (
        answer(tools=[]),
        note("error", error=error, willRetry=False),
        note("turn/completed", turn={"id": "u", "status": "failed", "error": error}),
    )
    outcome = fold(read(*lines))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.response_id) == ("quota", "")


def test_missing_login_is_reported_with_the_way_to_get_one() -> None:
    error = b'{"error":{"message":"no key","codexErrorInfo":"unauthorized"}}'
    assert "codex login" in decode_error(error, 401).message


@pytest.mark.parametrize(
    ("data", "status", "kind", "code"),
    [
        (
            b'{"error":{"message":"no","codexErrorInfo":"unauthorized"}}',
            500,
            "authentication",
            True,
        ),
        (b'{"error":{"message":"no"}}', 429, "rate_limit", False),
        (b"oops", 503, "overloaded", False),
        (b"oops", None, "upstream", False),
    ],
)
def test_error_bodies(data: bytes, status: int | None, kind: str, code: bool) -> None:
    info = decode_error(data, status)
    assert (info.kind, info.code is not None, info.status) == (kind, code, status)


def test_messages_that_come_at_once_are_read_alike() -> None:
    turn: dict[str, object] = {"id": "u", "status": "completed", "items": []}
    message = {"type": "agentMessage", "id": "m", "text": "Hi."}
    messages = (note("item/completed", item=message), note("turn/completed", turn=turn))
    step = read_body(b"\n\n".join(dumps(message) for message in messages))
    outcome = fold(step.events)
    (part,) = outcome.choices[0].parts
    assert isinstance(part, Text)
    assert part.text == "Hi."
    assert read_body(b"").problems[0].kind == "cut_stream"
    assert read_typed(b"{}") is None


def test_codex_is_a_dialect_of_upstreams_only() -> None:
    assert upstream_codec("codex") is UPSTREAM_CODECS["codex"]
    assert upstream_codec("chat") is codec("chat")
    with pytest.raises(ConfigError):
        codec("codex")
    with pytest.raises(ConfigError):
        upstream_codec("latin")
