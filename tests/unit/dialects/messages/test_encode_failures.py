"""Streams that end badly: an error in the dialect's own form, and never a cut call that looks complete."""

import pytest

import doors
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.messages import LOSSES, MessagesEncoder
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    Started,
    TextDelta,
)
from dragoman.model.outcome import ErrorInfo, FinishReason
from dragoman.model.parts import Call, PartStatus, Reasoning, Text
from messages_streams import data_of, encode

STARTED = Started("msg_1", "claude")
ERROR = ErrorInfo(kind="truncated", message="the stream ended")
CUT = Call(
    call_id="a", name="Write", input='{"file_path":"a","content":"import typ', status="incomplete"
)


def cut_call(number: int = 0) -> list[Event]:
    header = Call(call_id="a", name="Write", status="in_progress")
    return [PartStarted(number, header), InputDelta(number, CUT.input), PartEnded(number, CUT)]


def types(stream: bytes) -> list[str]:
    return [frame["type"] for frame in data_of(stream)]


def test_failure_before_the_start_is_an_error_alone() -> None:
    stream = encode([Failed(ErrorInfo(kind="rate_limit", message="slow down"))])
    doors.check_messages(stream)
    error = {"type": "rate_limit_error", "message": "slow down"}
    assert data_of(stream) == [{"type": "error", "error": error, "request_id": None}]


def test_failure_shows_the_id_of_the_request() -> None:
    encoder = MessagesEncoder(EncodeContext(request_id="req_7"))
    stream = encoder.encode(Failed(ErrorInfo(kind="server", message="broken")))
    assert data_of(stream)[0]["request_id"] == "req_7"


def test_cut_call_is_not_stopped_before_an_error() -> None:
    # M154, M155
    stream = encode([STARTED, *cut_call(), Failed(ERROR)])
    doors.check_messages(stream)
    assert types(stream) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "error",
    ]


def test_call_still_open_is_not_stopped_before_an_error() -> None:
    encoder = MessagesEncoder()
    out = b"".join(map(encoder.encode, [STARTED, *cut_call()[:2], Failed(ERROR)]))
    assert types(out)[-2:] == ["content_block_delta", "error"]


def test_cut_call_is_stopped_when_a_limit_ended_the_answer() -> None:
    # M062: as the vendor does it
    reasons: tuple[FinishReason, ...] = ("length", "context_window", "refusal", "content_filter")
    for reason in reasons:
        stream = encode([STARTED, *cut_call(), Finished(reason), Completed()])
        doors.check_messages(stream)
        assert types(stream)[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        assert data_of(stream)[-2]["delta"]["stop_reason"] != "tool_use"


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "pause", "cancelled"])
def test_cut_call_and_any_other_ending_is_an_error(reason: FinishReason) -> None:
    # M155
    stream = encode([STARTED, *cut_call(), Finished(reason), Completed()])
    doors.check_messages(stream)
    assert types(stream)[-2:] == ["content_block_delta", "error"]


def test_what_follows_a_cut_call_waits_for_the_end() -> None:
    text: list[Event] = [
        PartStarted(1, Text(status="in_progress")),
        TextDelta(1, "a"),
        TextDelta(1, "b"),
        PartEnded(1, Text(text="ab")),
    ]
    encoder = MessagesEncoder()
    for event in [STARTED, *cut_call()]:
        encoder.encode(event)
    assert [encoder.encode(event) for event in text] == [b""] * 4
    assert encoder.encode(Noticed("ping")) != b""
    assert encoder.encode(Finished("length")) == b""
    rest = encoder.encode(Completed())
    assert types(rest) == [
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    failing = encode([STARTED, *cut_call(), *text, Failed(ERROR)])
    assert types(failing)[-2:] == ["content_block_delta", "error"]


def test_thoughts_after_a_cut_call_wait_too() -> None:
    thought: list[Event] = [
        PartStarted(1, Reasoning(status="in_progress")),
        ReasoningDelta(1, "hm"),
        PartEnded(1, Reasoning(summary=("hm",))),
    ]
    stream = encode([STARTED, *cut_call(), *thought, Finished("length"), Completed()])
    doors.check_messages(stream)
    assert types(stream)[-1] == "message_stop"


def second_call(text: str, *, is_cut: bool) -> list[Event]:
    header = Call(call_id="b", name="g", status="in_progress")
    status: PartStatus = "incomplete" if is_cut else "completed"
    ended = Call(call_id="b", name="g", input=text, status=status)
    sequence: list[Event] = [InputDelta(1, text)] if text else []
    return [PartStarted(1, header), *sequence, PartEnded(1, ended)]


def test_two_cut_calls_are_both_stopped_at_a_limit() -> None:
    second = second_call("", is_cut=True)
    stream = encode([STARTED, *cut_call(), *second, Finished("length"), Completed()])
    doors.check_messages(stream)
    assert types(stream).count("content_block_stop") == 2


def test_cut_call_that_would_look_whole_before_another_is_an_error() -> None:
    # M063
    for text in ("", "{}"):
        first = Call(call_id="a", name="rm", input=text, status="incomplete")
        sequence: list[Event] = [InputDelta(0, text)] if text else []
        header = Call(call_id="a", name="rm", status="in_progress")
        opened: list[Event] = [STARTED, PartStarted(0, header), *sequence, PartEnded(0, first)]
        stream = encode(
            [*opened, *second_call("{}", is_cut=False), Finished("length"), Completed()]
        )
        doors.check_messages(stream)
        assert types(stream)[-1] == "error"
        alone = encode([*opened, Finished("length"), Completed()])
        assert types(alone)[-1] == "message_stop"


def test_cut_custom_call_is_not_closed() -> None:
    call = Call(call_id="a", name="p", kind="custom", status="in_progress")
    ended = Call(call_id="a", name="p", kind="custom", input="*** Beg", status="incomplete")
    events: list[Event] = [
        STARTED,
        PartStarted(0, call),
        InputDelta(0, "*** Beg"),
        PartEnded(0, ended),
    ]
    stream = encode([*events, Failed(ERROR)])
    assert data_of(stream)[2]["delta"]["partial_json"] == '{"input":"*** Beg'


def test_open_text_and_thinking_are_stopped_before_an_error() -> None:
    for header, ended in (
        (Text(status="in_progress"), Text(text="a", status="incomplete")),
        (Reasoning(status="in_progress"), Reasoning(status="incomplete")),
    ):
        stream = encode([STARTED, PartStarted(0, header), PartEnded(0, ended), Failed(ERROR)])
        doors.check_messages(stream)
    encoder = MessagesEncoder()
    sequence: list[Event] = [
        STARTED,
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "a"),
        Failed(ERROR),
    ]
    assert types(b"".join(map(encoder.encode, sequence)))[-2:] == ["content_block_stop", "error"]


def test_block_that_was_never_opened_needs_no_stop() -> None:
    encoder = MessagesEncoder()
    sequence: list[Event] = [STARTED, PartStarted(0, Text(status="in_progress")), Failed(ERROR)]
    assert types(b"".join(map(encoder.encode, sequence))) == ["message_start", "error"]


def test_closing_without_an_end_is_an_error() -> None:
    encoder = MessagesEncoder()
    encoder.encode(STARTED)
    stream = encoder.close()
    doors.check_messages(stream)
    assert types(stream) == ["message_start", "error"]
    assert encoder.close() == b""


def test_input_changed_after_streaming_is_an_error_and_the_rest_is_silence() -> None:
    header = Call(call_id="a", name="f", status="in_progress")
    events: list[Event] = [
        STARTED,
        PartStarted(0, header),
        InputDelta(0, '{"a":1}'),
        PartEnded(0, Call(call_id="a", name="f", input='{"a":2}'), amended=True),
        Finished("tool_calls"),
        Completed(),
    ]
    stream = encode(events)
    doors.check_messages(stream)
    assert types(stream)[-2:] == ["content_block_delta", "error"]


def test_answer_that_ended_with_an_error_is_an_error() -> None:
    stream = encode([STARTED, Finished("error"), Completed()])
    doors.check_messages(stream)
    assert types(stream) == ["message_start", "error"]


def test_policy_may_refuse_everything_and_the_stream_still_goes_on() -> None:
    context = EncodeContext(losses=dict.fromkeys(LOSSES, "refuse"))
    header = Call(call_id="a", name="p", kind="custom", status="in_progress")
    ended = Call(call_id="a", name="p", kind="custom", input="x")
    events: list[Event] = [STARTED, PartStarted(0, header), InputDelta(0, "x"), PartEnded(0, ended)]
    encoder = MessagesEncoder(context)
    for event in [*events, Finished("tool_calls"), Completed()]:
        encoder.encode(event)
    assert [loss.action for loss in encoder.losses] == ["drop"]
