"""Which dialect a payload has by its shape, and answers that come in another dialect than was asked for."""

import json
from itertools import permutations

import pytest

from corpus_checks import CHECKS, calls_of, cuts, text_of
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.shapes import Shape, shape_of_body, shape_of_frame
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.dialects.translate import StreamTranslator, make_decoder, read_body, translate_body
from dragoman.model.events import Event
from dragoman.model.outcome import Problem
from dragoman.sse import Frame, parse_lines
from vendor_wire import Answer, Said, Tool, body_bytes, stream

PAIRS = [*permutations(("chat", "responses", "messages"), 2)]
ANSWER = Answer((Said(("One", " two")), Tool("call_1", "f", ('{"a": 1', ".0}"))))

every_pair = pytest.mark.parametrize(("asked", "answered"), PAIRS)


def problem(asked: str, answered: str) -> Problem:
    message = (
        f"expected an answer of the dialect {asked}, got one of {answered}: it was read as such"
    )
    return Problem(1, "other_dialect", message)


def decoded(decoder: StreamDecoder, reads: list[bytes]) -> list[Event]:
    steps = [step for read in reads for step in decoder.feed(read)] + decoder.close()
    assert b"".join(step.raw for step in steps) == b"".join(reads)
    return [event for step in steps for event in step.events]


SHAPES: list[tuple[dict[str, object], Shape | None]] = [
    ({"type": "response.created"}, Shape("responses", "stream")),
    ({"type": "message_start"}, Shape("messages", "stream")),
    ({"object": "chat.completion.chunk"}, Shape("chat", "stream")),
    ({"object": "chat.completion", "choices": []}, Shape("chat", "body")),
    ({"choices": [{"delta": {}}]}, Shape("chat", "stream")),
    ({"choices": [{"message": {}}]}, Shape("chat", "body")),
    ({"object": "response"}, Shape("responses", "body")),
    ({"output": []}, Shape("responses", "body")),
    ({"type": "message", "stop_reason": None}, Shape("messages", "body")),
    ({"type": "message", "model": "m"}, Shape("messages", "body")),
    ({"type": "message", "content": [{"type": "tool_use"}]}, Shape("messages", "body")),
    ({"content": [], "stop_reason": "end_turn"}, Shape("messages", "body")),
    ({"type": "message", "content": [{"type": "output_text"}]}, None),
    ({"content": "text", "stop_reason": None}, None),
    ({"object": "text_completion", "choices": []}, None),
    ({"type": "ping"}, Shape("messages", "stream", is_sure=False)),
    ({"type": "keepalive"}, Shape("responses", "stream", is_sure=False)),
    ({"type": "error", "message": "m"}, Shape("responses", "stream", is_sure=False)),
    ({"type": "error", "error": {}}, Shape("messages", "body", is_sure=False)),
    ({"error": {}}, Shape("chat", "body", is_sure=False)),
    ({}, None),
]


@pytest.mark.parametrize(("payload", "shape"), SHAPES)
def test_shapes(payload: object, shape: Shape | None) -> None:
    data = json.dumps(payload).encode()
    assert shape_of_body(data) == shape
    assert shape_of_frame(Frame(b"data: " + data, data)) == shape


@pytest.mark.parametrize(
    ("raw", "shape"),
    [
        (b"event: response.created\ndata: {cut\n\n", Shape("responses", "stream")),
        (b": comment\n\n", None),
        (b"data: [DONE]\n\n", None),
        (b"data: [1]\n\n", None),
    ],
)
def test_shapes_of_frames_without_a_readable_payload(raw: bytes, shape: Shape | None) -> None:
    assert shape_of_frame(parse_lines(raw)) == shape
    assert shape_of_body(raw) is None


@every_pair
def test_a_stream_in_another_dialect_is_read_as_its_own_decoder_reads_it(
    asked: str, answered: str
) -> None:
    data = stream(answered, ANSWER)
    own = decoded(make_decoder(answered), [data])
    for reads in cuts(data).values():
        decoder = make_decoder(asked)
        assert decoded(decoder, reads) == own
        assert decoder.problems == [problem(asked, answered)]
        assert decoder.is_over


@every_pair
@pytest.mark.parametrize("lead", [b": comment\n\n", b'data: {"type":"keepalive"}\n\n'])
def test_frames_that_several_dialects_share_do_not_decide(
    asked: str, answered: str, lead: bytes
) -> None:
    decoder = make_decoder(asked)
    outcome = fold(decoded(decoder, [lead, stream(answered, ANSWER)]))
    assert outcome.completed
    assert [(call.name, call.input) for call in calls_of(outcome)] == [("f", '{"a": 1.0}')]
    assert "other_dialect" in [each.kind for each in decoder.problems]


@every_pair
def test_a_stream_that_has_begun_stays_in_its_dialect(asked: str, answered: str) -> None:
    first = stream(asked, ANSWER).partition(b"\n\n")[0] + b"\n\n"
    decoder = make_decoder(asked)
    decoded(decoder, [first, stream(answered, ANSWER)])
    assert "other_dialect" not in [each.kind for each in decoder.problems]


@every_pair
def test_a_body_in_another_dialect_is_read_as_its_own_decoder_reads_it(
    asked: str, answered: str
) -> None:
    data = body_bytes(answered, ANSWER)
    step = read_body(data, asked)
    assert step.events == codec(answered).read_body(data, DecodeContext()).events
    assert step.problems == (problem(asked, answered),)


@pytest.mark.parametrize("asked", ["chat", "responses", "messages"])
@pytest.mark.parametrize("data", [b"{}", b"[1]", b'{"hello":1}', b'{"error":{"message":"m"}}'])
def test_a_body_without_a_shape_is_refused_by_its_own_decoder(asked: str, data: bytes) -> None:
    assert read_body(data, asked) == codec(asked).read_body(data, DecodeContext())


@every_pair
def test_a_relayed_answer_in_another_dialect_is_encoded_in_the_clients(
    asked: str, answered: str
) -> None:
    data = stream(answered, ANSWER)
    whole = StreamTranslator(answered, asked)
    expected = whole.feed(data) + whole.close()
    for reads in cuts(data).values():
        relay = StreamRelay(asked, decode=DecodeContext(), encode=EncodeContext())
        out = b"".join(map(relay.feed, reads)) + relay.close()
        assert (relay.reason, relay.is_passing) == ("other_dialect", False)
        CHECKS[asked](out)
        assert out == expected
        assert [(each.kind, each.frame) for each in relay.problems] == [("other_dialect", 1)]
    relayed, tally = relay_body(
        body_bytes(answered, ANSWER), asked, decode=DecodeContext(), encode=EncodeContext()
    )
    assert tally.names == ["f"]
    assert relayed.body == translate_body(body_bytes(answered, ANSWER), answered, asked).body
    assert relayed.problems == (problem(asked, answered),)


def test_text_comes_through_a_translation_from_another_dialect() -> None:
    translator = StreamTranslator("chat", "messages")
    out = translator.feed(stream("responses", ANSWER)) + translator.close()
    assert text_of(fold(decoded(make_decoder("messages"), [out]))) == "One two"
