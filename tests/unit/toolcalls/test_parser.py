"""Calls with parsed parameters, from bodies and streams of every dialect."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import ChatCompletion

from dragoman.core.ids import Minter
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import codec
from dragoman.errors import ConfigError, ToolError
from dragoman.model.events import (
    Completed,
    Failed,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Dialect, Text
from dragoman.model.request import Tool
from dragoman.toolcalls import ParsedToolCalls, ToolCall, ToolCallParser, parse_tool_calls
from dragoman.toolcalls.parser import is_minted, nameless, unify
from toolcall_wires import (
    Payload,
    chat_body,
    chat_call,
    chat_stream,
    chunk,
    codex_stream,
    function_item,
    messages_body,
    messages_stream,
    responses_body,
    responses_stream,
    tool_delta,
)

ARGUMENTS = '{"city": "Paris",  "n": 1.0}'
PARAMETERS = {"city": "Paris", "n": 1.0}
TEXT_BLOCK = {"type": "text", "text": "Wait. "}

Streams = Callable[[Sequence[str]], list[Payload]]
STREAMS: list[Streams] = [chat_stream, responses_stream, messages_stream]
BODIES: list[tuple[Payload, Dialect, str]] = [
    (chat_body(chat_call(ARGUMENTS)), "chat", "openai"),
    (responses_body(ARGUMENTS), "responses", "openai"),
    (
        messages_body(
            TEXT_BLOCK, {"type": "tool_use", "id": "call_1", "name": "f", "input": PARAMETERS}
        ),
        "messages",
        "anthropic",
    ),
]


def sse(payloads: Sequence[Payload]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads)


def shown(parsed: ParsedToolCalls) -> list[tuple[str, str, dict[str, object]]]:
    return [(call.id, call.name, call.parameters) for call in parsed.calls]


@pytest.mark.parametrize(("body", "dialect", "provider"), BODIES)
def test_body_gives_calls_and_text(body: Payload, dialect: Dialect, provider: str) -> None:
    for source in (body, json.dumps(body), json.dumps(body).encode(), "\ufeff" + json.dumps(body)):
        for named in ("auto", dialect):
            parsed = parse_tool_calls(source, dialect=cast("Dialect", named))
            assert shown(parsed) == [("call_1", "f", PARAMETERS)]
            assert parsed.text == "Wait. "
            assert (parsed.errors, parsed.failure, parsed.problems) == ((), None, ())
            (call,) = parsed.calls
            assert (call.metadata.provider, call.metadata.dialect) == (provider, dialect)
            assert call.metadata.raw is not None
            assert json.loads(call.metadata.raw.input) == PARAMETERS


def test_raw_call_keeps_the_exact_arguments() -> None:
    (call,) = parse_tool_calls(chat_body(chat_call(ARGUMENTS))).calls
    assert call.metadata.raw == Call(call_id="call_1", name="f", input=ARGUMENTS)


@pytest.mark.parametrize("stream", STREAMS)
def test_stream_gives_the_same_calls_as_its_body(stream: Streams) -> None:
    payloads = stream([ARGUMENTS[:5], ARGUMENTS[5:]])
    for source in (payloads, iter(payloads), sse(payloads), sse(payloads).decode()):
        parsed = parse_tool_calls(source)
        assert shown(parsed) == [("call_1", "f", PARAMETERS)]
        assert (parsed.errors, parsed.failure, parsed.problems) == ((), None, ())


def test_sdk_object_is_a_body() -> None:
    parsed = parse_tool_calls(ChatCompletion.model_validate(chat_body(chat_call(ARGUMENTS))))
    assert shown(parsed) == [("call_1", "f", PARAMETERS)]


def test_codex_messages_are_a_stream() -> None:
    parsed = parse_tool_calls(codex_stream(PARAMETERS))
    assert shown(parsed) == [("call_1", "f", PARAMETERS)]
    assert parsed.calls[0].metadata.provider == "codex"


def test_bare_messages_and_items_are_finished() -> None:
    for source in (
        {"role": "assistant", "tool_calls": [chat_call(ARGUMENTS)]},
        json.dumps({"role": "assistant", "tool_calls": [chat_call(ARGUMENTS)]}),
        function_item(ARGUMENTS, "completed"),
        [function_item(ARGUMENTS, "completed")],
        json.dumps([function_item(ARGUMENTS, "completed")]),
    ):
        assert shown(parse_tool_calls(source)) == [("call_1", "f", PARAMETERS)]


def test_events_are_a_source() -> None:
    events = (
        codec("chat")
        .read_body(json.dumps(chat_body(chat_call(ARGUMENTS))).encode(), DecodeContext())
        .events
    )
    parsed = parse_tool_calls(events)
    assert shown(parsed) == [("call_1", "f", PARAMETERS)]
    assert parsed.text == "Wait. "
    assert parsed.calls[0].metadata.provider is None


def test_events_that_stop_early_give_the_cut_call_with_its_error() -> None:
    error = ErrorInfo(kind="truncated", message="cut")
    parsed = parse_tool_calls(
        [
            Started(),
            PartStarted(0, Text(status="in_progress")),
            TextDelta(0, "Hel"),
            PartStarted(1, Call(call_id="c", name="f", status="in_progress")),
            InputDelta(1, '{"a"'),
            PartStarted(
                2, Call(call_id="s", name="own", executor="provider", status="in_progress")
            ),
            InputDelta(9, "of a part nobody began"),
            PartEnded(8, Call(call_id="d", name="g", input="{}")),
            Failed(error),
        ]
    )
    assert shown(parsed) == [("d", "g", {}), ("c", "f", {})]
    (_, cut) = parsed.calls
    assert cut.metadata.raw is not None
    assert (cut.metadata.raw.input, cut.metadata.raw.status) == ('{"a"', "incomplete")
    assert parsed.errors == (cut.metadata.error,)
    assert parsed.text == "Hel"
    assert parsed.failure == error


def test_calls_come_in_order_and_bad_ones_keep_no_other_back() -> None:
    parsed = parse_tool_calls(
        chat_body(
            chat_call('{"secret', "a"),
            chat_call("[1]", "b"),
            chat_call("", "c"),
            chat_call(ARGUMENTS, "d"),
        )
    )
    assert [call.id for call in parsed.calls] == ["a", "b", "c", "d"]
    assert [call.metadata.error is None for call in parsed.calls] == [False, False, True, True]
    assert parsed.calls[3].parameters == PARAMETERS
    assert [type(error) for error in parsed.errors] == [ToolError, ToolError]
    assert "secret" not in " ".join(error.message for error in parsed.errors)


def test_call_without_an_id_is_given_one_and_says_so() -> None:
    parsed = parse_tool_calls(
        chat_body(chat_call("{}", "call_0"), chat_call(ARGUMENTS, None), chat_call("{}", "call_2"))
    )
    made = parsed.calls[1]
    assert made.id.startswith("call_")
    assert made.parameters == PARAMETERS
    assert [call.metadata.error is not None for call in parsed.calls] == [False, True, False]


def test_call_without_a_name_is_an_error_of_its_own() -> None:
    item = {**function_item("{}", "completed"), "name": "", "id": "fc_2", "call_id": "call_2"}
    body = {**responses_body(ARGUMENTS), "output": [item, function_item(ARGUMENTS, "completed")]}
    parsed = parse_tool_calls(body)
    assert ("call_1", "f", PARAMETERS) in shown(parsed)
    assert ("call_2", "", {}) in shown(parsed)
    assert len(parsed.errors) == 1
    assert parsed.failure is not None


def test_tools_of_the_request_settle_a_name_that_never_comes() -> None:
    body = chat_body(chat_call("{}", "call_1", ""))
    parsed = parse_tool_calls(body, context=DecodeContext(tools=(Tool(name="only"),)))
    assert shown(parsed) == [("call_1", "only", {})]


def test_call_that_length_cut_off_has_an_error() -> None:
    (call,) = parse_tool_calls(chat_body(chat_call('{"a"'), finish="length")).calls
    assert call.metadata.error is not None
    assert "cut off" in call.metadata.error.message


@pytest.mark.parametrize("stream", STREAMS)
def test_stream_that_ends_early_gives_the_cut_call_with_its_error(stream: Streams) -> None:
    parsed = parse_tool_calls(sse(stream(['{"a"', ":1}"])[:4]))
    assert shown(parsed) == [("call_1", "f", {})]
    assert len(parsed.errors) == 1
    assert parsed.failure is not None
    assert parsed.failure.kind == "truncated"


SILENT: list[object] = [
    None,
    {},
    [],
    b"",
    "",
    {"choices": []},
    {"choices": [{}]},
    {"choices": [{"message": {}}]},
    chat_body(text=None, finish="stop"),
]


@pytest.mark.parametrize("source", SILENT)
def test_answer_without_calls_has_none_and_that_is_no_error(source: object) -> None:
    parsed = parse_tool_calls(source)
    assert (parsed.calls, parsed.text, parsed.errors, parsed.failure) == ((), "", (), None)


@pytest.mark.parametrize("source", ["garbage", b"\xff\xfe", 7, {"foo": 1}, "{", [[1]]])
def test_source_that_cannot_be_read_is_a_problem(source: object) -> None:
    parsed = parse_tool_calls(source)
    assert parsed.calls == ()
    kinds = {problem.kind for problem in parsed.problems}
    assert kinds & {"unknown_payload", "invalid_utf8"}


def test_unknown_dialect_is_refused() -> None:
    with pytest.raises(ConfigError):
        parse_tool_calls({}, dialect=cast("Dialect", "gopher"))


def test_dialect_given_is_insisted_on() -> None:
    parsed = parse_tool_calls({"foo": 1}, dialect="responses")
    assert parsed.calls == ()
    assert parsed.failure is not None or parsed.problems
    parser = ToolCallParser(dialect="codex")
    assert parser.feed({"type": "response.created"}) == ()
    assert parser.feed({"choices": []}) == ()
    assert parser.feed(codex_stream({})[1])[0].id == "call_1"


def test_failed_answer_says_why() -> None:
    parsed = parse_tool_calls({"error": {"message": "no", "type": "invalid_request_error"}})
    assert parsed.failure is not None
    assert parsed.failure.message == "no"


def test_calls_are_stamped_as_they_are_given() -> None:
    times = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(9))
    parser = ToolCallParser(clock=lambda: next(times))
    stamps = [
        call.metadata.timestamp
        for payload in messages_stream(["{}"])
        for call in parser.feed(payload)
    ]
    assert stamps == ["2026-01-01T00:00:00.000Z"]
    (call,) = parse_tool_calls(chat_body(chat_call("{}"))).calls
    assert call.metadata.timestamp is None


@pytest.mark.parametrize(
    ("payloads", "number"),
    [
        (messages_stream(["{", "}"]), 4),
        (responses_stream(["{", "}"]), 5),
        (chat_stream(["{", "}"]), 4),
        (codex_stream({}), 1),
    ],
)
def test_call_is_given_the_moment_it_is_complete_and_once(
    payloads: list[Payload], number: int
) -> None:
    parser = ToolCallParser()
    counts = [len(parser.feed(payload)) for payload in payloads]
    assert counts.index(1) == number
    assert sum(counts) == 1
    assert parser.close() == ()


def test_text_and_calls_alternate() -> None:
    parser = ToolCallParser()
    calls: list[ToolCall] = []
    for payload in (
        chunk({"content": "a"}),
        chunk(tool_delta("{", 0, "call_1", "f")),
        chunk({"content": "b"}),
        chunk(tool_delta("{}", 1, "call_2", "g")),
        chunk(tool_delta("}", 0)),
        chunk({}, "tool_calls"),
    ):
        calls.extend(parser.feed(payload))
    assert parser.text == "ab"
    assert [(call.id, call.parameters) for call in calls] == [("call_1", {}), ("call_2", {})]


def test_text_of_other_choices_is_not_the_first_choices() -> None:
    parser = ToolCallParser()
    for choice in (1, 0):
        parser.feed(chunk({"content": str(choice)}, choice=choice))
    assert parser.text == "0"


def test_nothing_of_one_stream_is_left_for_the_next() -> None:
    parser = ToolCallParser()
    assert parser.feed(sse(chat_stream(['{"a"'])[:3])) == ()
    (cut,) = parser.close()
    assert cut.metadata.error is not None
    assert parser.close() == ()
    calls = [call for payload in chat_stream(["{}"]) for call in parser.feed(payload)]
    assert [call.parameters for call in calls] == [{}]


def test_two_parsers_share_nothing() -> None:
    one, other = ToolCallParser(), ToolCallParser()
    calls: list[ToolCall] = []
    for mine, theirs in zip(chat_stream(['{"a":1}']), chat_stream(['{"b":2}']), strict=True):
        calls.extend([*one.feed(mine), *other.feed(theirs)])
    assert [call.parameters for call in calls] == [{"a": 1}, {"b": 2}]


def test_json_documents_may_be_fed_as_text_or_bytes() -> None:
    parser = ToolCallParser()
    calls = [
        call
        for number, payload in enumerate(messages_stream(["{}"]))
        for call in parser.feed(json.dumps(payload) if number % 2 else json.dumps(payload).encode())
    ]
    assert [call.id for call in calls] == ["call_1"]


@pytest.mark.parametrize("frame", [b"data: \xff\n\n", b"data: {oops\n\n", b"dXta: {}\n\n"])
def test_stream_ends_with_a_failure_at_a_frame_that_cannot_be_read(frame: bytes) -> None:
    *first, last, end = [sse([payload]) for payload in chat_stream(['{"a": ', '"b', '"}'])]
    parsed = parse_tool_calls(b": hi\n\nevent: x\n\n" + b"".join(first) + frame + last + end)
    (call,) = parsed.calls
    assert call.metadata.error is not None
    assert parsed.failure is not None
    assert parsed.failure.kind == "protocol"
    kinds = [problem.kind for problem in parsed.problems]
    assert kinds[0] in ("unknown_payload", "invalid_utf8")
    assert kinds[1:] == ["failed"]


def test_frame_beyond_the_limit_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.toolcalls.parser.MAX_FRAME_BYTES", 1000)
    parser = ToolCallParser()
    assert parser.feed(b"data: " + b"x" * 2000) == ()
    assert [problem.kind for problem in parser.problems] == ["frame_too_large"]
    assert parser.feed(sse(codex_stream({}))) == ()
    assert parser.failure is not None


@settings(max_examples=60, deadline=None)
@given(places=st.lists(st.integers(0, 5000), max_size=20))
@pytest.mark.parametrize("stream", STREAMS)
def test_any_cut_of_the_bytes_gives_the_same_calls(stream: Streams, places: list[int]) -> None:
    data = sse(stream([ARGUMENTS[:9], ARGUMENTS[9:]]))
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    parser = ToolCallParser()
    pieces: Iterator[bytes] = (data[a:b] for a, b in pairwise(edges))
    calls = [call for piece in pieces for call in parser.feed(piece)]
    assert [(call.id, call.parameters) for call in calls] == [("call_1", PARAMETERS)]
    assert parser.close() == ()


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60) | st.text(max_size=60))
def test_no_bytes_raise(data: bytes | str) -> None:
    assert parse_tool_calls(data).calls == ()


def test_completed_events_end_quietly() -> None:
    assert parse_tool_calls([Started(), Completed()]) == ParsedToolCalls()


CALL = Call(call_id="call_1", name="f", input='{"a": 1.0}')
NOON = datetime(2026, 1, 2, 12, 0, 0, 5999, tzinfo=UTC)


def made(call: Call, now: datetime | None = None, *, lacks_id: bool = False) -> ToolCall:
    return unify(call, dialect="chat", choice=0, now=now, lacks_id=lacks_id)


def test_parameters_are_the_parsed_arguments_and_the_raw_call_is_kept() -> None:
    call = made(CALL)
    assert (call.id, call.name, call.parameters) == ("call_1", "f", {"a": 1.0})
    assert call.metadata.raw is CALL
    assert (call.metadata.provider, call.metadata.dialect) == ("openai", "chat")
    assert call.metadata.error is None
    assert call.metadata.timestamp is None


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_empty_arguments_are_no_parameters_and_no_error(text: str) -> None:
    call = made(replace(CALL, input=text))
    assert call.parameters == {}
    assert call.metadata.error is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"secret', "8 characters that are not"),
        ("[1]", "an array"),
        ('"secret"', "a string"),
        ("7", "a number"),
        ("1.5", "a number"),
        ("true", "a boolean"),
        ("null", "null"),
    ],
)
def test_unusable_arguments_are_an_error_that_does_not_quote_them(text: str, words: str) -> None:
    call = made(replace(CALL, input=text))
    assert call.parameters == {}
    error = call.metadata.error
    assert isinstance(error, ToolError)
    assert words in error.message
    assert "'call_1'" in error.message
    assert "secret" not in error.message


def test_call_that_was_cut_off_is_an_error() -> None:
    error = made(replace(CALL, status="incomplete")).metadata.error
    assert error is not None
    assert "cut off" in error.message


def test_call_without_an_id_is_an_error_that_keeps_its_parameters() -> None:
    call = made(CALL, lacks_id=True)
    assert call.parameters == {"a": 1.0}
    assert call.metadata.error is not None
    assert "without an id" in call.metadata.error.message


def test_freeform_input_is_one_parameter() -> None:
    call = made(replace(CALL, kind="custom", input="*** Begin {"))
    assert call.parameters == {"input": "*** Begin {"}
    assert call.metadata.error is None


@pytest.mark.parametrize(
    "now",
    [NOON, NOON.replace(tzinfo=None), NOON.astimezone(timezone(timedelta(hours=-7)))],
)
def test_timestamp_is_iso_8601_in_utc(now: datetime) -> None:
    assert made(CALL, now).metadata.timestamp == "2026-01-02T12:00:00.005Z"


def test_call_from_bare_events_has_no_provider() -> None:
    call = unify(CALL, dialect=None, choice=2, now=None, lacks_id=False)
    assert (call.metadata.provider, call.metadata.dialect) == (None, None)
    assert call.metadata.choice_index == 2


def test_nameless_call_is_only_its_error() -> None:
    call = nameless(None, dialect="messages", choice=0, now=NOON)
    assert (call.id, call.name, call.parameters, call.metadata.raw) == ("", "", {}, None)
    assert call.metadata.error is not None
    assert "expected a name" in call.metadata.error.message
    assert call.metadata.provider == "anthropic"


def test_minted_ids_are_known_by_their_seed() -> None:
    mint = Minter("seed")
    mint("msg_")
    second = mint("call_")
    assert is_minted(second, "seed", 2)
    assert not is_minted(second, "seed", 1)
    assert not is_minted(second, "other", 9)
    assert not is_minted("call_1", "seed", 9)
    ids = [mint("call_") for _ in range(300)]
    assert all(is_minted(call_id, "seed", 302) for call_id in ids)
    assert not is_minted(ids[-1], "seed", 301)


def test_many_calls_without_an_id_are_each_reported() -> None:
    count = 400
    payloads: list[Payload] = [
        chunk({"tool_calls": [{"index": index, "function": {"name": "f", "arguments": "{}"}}]})
        for index in range(count)
    ]
    found = parse_tool_calls([*payloads, chunk({}, finish="tool_calls")])
    assert len(found.errors) == len(found.calls) == count
