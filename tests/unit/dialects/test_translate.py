"""The road from one dialect to another: what it reports, and that it puts the client's own names back."""

import json

import pytest
from bench_streams import Story, dialect_stream

from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import (
    StreamTranslator,
    make_decoder,
    make_encoder,
    translate_body,
    translate_request,
)
from dragoman.errors import ConfigError
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Outcome, Usage
from dragoman.model.parts import Call, Text

REQUEST = json.dumps(
    {
        "model": "m",
        "input": "hi",
        "tools": [
            {
                "type": "namespace",
                "name": "files",
                "description": "d",
                "tools": [{"type": "function", "name": "write", "parameters": {"type": "object"}}],
            }
        ],
    }
).encode()


HELLO = [{"role": "user", "content": "hi"}]


def read(dialect: str, stream: bytes) -> Outcome:
    decoder = make_decoder(dialect)
    steps = decoder.feed(stream) + decoder.close()
    return fold(event for step in steps for event in step.events)


def read_body(dialect: str, data: bytes) -> Outcome:
    return fold(codec(dialect).read_body(data, DecodeContext()).events)


def test_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="one of chat, responses, messages; got 'morse'"):
        codec("morse")


def test_stop_sequences_that_the_target_lacks_cut_its_answer() -> None:
    asked = json.dumps({"model": "m", "messages": HELLO, "stop": ["END"]}).encode()
    assert translate_request(asked, "chat", "messages").stop == ()
    stop = translate_request(asked, "chat", "responses").stop
    assert stop == ("END",)
    events: list[Event] = [
        Started("resp_1", "m"),
        PartStarted(0, Text(status="in_progress")),
        *(TextDelta(0, piece) for piece in ("One E", "ND", " two")),
        PartEnded(0, Text(text="One END two")),
        Finished("stop"),
        UsageReported(Usage(input=1, output=2)),
        Completed(),
    ]
    encoder = make_encoder("responses")
    frames = [encoder.encode(event) for event in events]
    translator = StreamTranslator("responses", "chat", stop=stop)
    out = b"".join(map(translator.feed, frames[:5]))
    assert translator.is_over
    assert translator.close() == b""
    assert not translator.problems
    body = translate_body(codec("responses").encode_body(events), "responses", "chat", stop=stop)
    (streamed,), (whole,) = read("chat", out).choices, read_body("chat", body.body).choices
    assert streamed == whole
    assert (whole.parts, whole.stop_sequence) == ((Text(text="One "),), "END")
    uncut = StreamTranslator("responses", "chat", stop=["STOP"])
    plain = StreamTranslator("responses", "chat")
    stream = b"".join(frames)
    assert uncut.feed(stream) + uncut.close() == plain.feed(stream) + plain.close()
    assert uncut.is_over
    assert plain.is_over


def test_stream_and_body_give_the_clients_own_names_back() -> None:
    names = translate_request(REQUEST, "responses", "chat").names
    wire = names.wire("write", "files")
    frames = b"".join(dialect_stream("chat", Story(texts=1, calls=1, arguments=12)))
    stream = frames.replace(b'"name":"write"', f'"name":"{wire}"'.encode())
    translator = StreamTranslator("chat", "responses", names=names)
    body = translate_body(
        codec("chat").encode_body(_events("chat", stream)), "chat", "responses", names=names
    )
    for outcome in (
        read("responses", translator.feed(stream) + translator.close()),
        fold(codec("responses").read_body(body.body, DecodeContext()).events),
    ):
        (call,) = [part for part in outcome.choices[0].parts if isinstance(part, Call)]
        assert (call.namespace, call.name) == ("files", "write")
    assert translator.problems == ()
    assert translator.losses == ()


def test_a_request_is_translated_for_the_app_server_too() -> None:
    encoded = translate_request(REQUEST, "responses", "codex")
    (tool,) = json.loads(encoded.body)["thread"]["dynamicTools"]
    assert tool["name"] == encoded.names.wire("write", "files")
    with pytest.raises(ConfigError, match="got 'morse'"):
        translate_request(REQUEST, "responses", "morse")


def _events(dialect: str, stream: bytes) -> list[Event]:
    decoder = make_decoder(dialect)
    return [event for step in decoder.feed(stream) + decoder.close() for event in step.events]


def test_body_that_loses_something_says_so() -> None:
    body = json.dumps(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "ok"},
            ],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    ).encode()
    crossed = translate_body(body, "messages", "chat")
    assert crossed.error is None
    assert [loss.code for loss in crossed.losses] == ["seal"]
    assert translate_body(body, "messages", "messages").losses == ()


def test_encoder_takes_events_one_by_one_or_together() -> None:
    events: list[Event] = [Started("chatcmpl-1", "m", 1), Finished("stop"), Completed()]
    one_by_one = make_encoder("chat")
    together = make_encoder("chat")
    written = b"".join(map(one_by_one.encode, events)) + one_by_one.close()
    assert written == together.encode_all(events) + together.close()
    assert written.endswith(b"data: [DONE]\n\n")


def test_problems_of_the_source_are_reported() -> None:
    translator = StreamTranslator("chat", "messages")
    translator.feed(b"data: {broken\n\n")
    translator.close()
    assert [problem.kind for problem in translator.problems] == ["malformed_frame"]


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
@pytest.mark.parametrize("source", ["chat", "responses", "messages"])
def test_deltas_written_together_are_those_written_one_by_one(source: str, target: str) -> None:
    stream = b"".join(dialect_stream(source, Story(texts=300, calls=2, arguments=80)))
    odd = "100\u00a0% %d \u2028".encode()
    events = _events(source, stream.replace(b"brown", odd).replace(b'"write"', b'"100%b"'))
    context = EncodeContext(seed="s", model="%d", created=1)
    one_by_one, together = make_encoder(target, context), make_encoder(target, context)
    assert together.encode_all(events) == b"".join(map(one_by_one.encode, events))
    assert together.losses == one_by_one.losses


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_encoder_that_takes_a_stream_up_goes_on_as_the_one_that_wrote_it(dialect: str) -> None:
    frames = [*dialect_stream("chat", Story(texts=3, calls=2, arguments=3))]
    events = [*make_decoder("chat").events(b"".join(frames))]
    context = EncodeContext(created=1, seed="s")
    for count, event in enumerate(events, 1):
        if not isinstance(event, TextDelta | InputDelta):
            continue
        whole, resumed = make_encoder(dialect, context), make_encoder(dialect, context)
        last = whole.encode_all(events[:count]).removesuffix(b"\n\n").rpartition(b"\n\n")[2]
        resumed.resume(events[:count], last, 1)
        assert resumed.encode_all(events[count:]) == whole.encode_all(events[count:])
