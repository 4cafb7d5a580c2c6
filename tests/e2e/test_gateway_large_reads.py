"""Reads that are too large for one step: however they are cut, the client gets all of it, in order."""

import json
from collections.abc import Iterator

import pytest

from dragoman.gateway import answer
from dragoman.sse import FrameParser
from dragoman.testing import ScriptedReply, sse
from plain_http import ask, plain_body, streaming
from sdk_clients import DOORS
from stage import Stage, running_stage
from vendor_wire import Answer, Said, stream

FEW = tuple(f"{number} words, “and more” " for number in range(100))
MANY = FEW * 20
LONG = (*FEW, "x" * 400_000, *FEW, "é" * 40_000, *FEW)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


def together(sent: bytes) -> ScriptedReply:
    """A reply of which every frame is a chunk, as one piece of bytes: few reads bring many chunks."""
    frames = [frame.raw for frame in FrameParser().feed(sent)]
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    chunks = b"".join([b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames])
    return ScriptedReply(framing="raw", chunks=[head + chunks + b"0\r\n\r\n"])


def text_of(door: str, sent: bytes) -> str:
    parser = FrameParser()
    frames = [frame for frame in (*parser.feed(sent), *parser.close()) if not frame.is_done]
    events = [json.loads(frame.data) for frame in frames if frame.data is not None]
    match door:
        case "chat":
            deltas = [choice["delta"] for event in events for choice in event["choices"]]
            return "".join(delta.get("content") or "" for delta in deltas)
        case "responses":
            kind = "response.output_text.delta"
            return "".join(event["delta"] for event in events if event["type"] == kind)
        case _:
            deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
            return "".join(delta["text"] for delta in deltas)


@pytest.mark.parametrize("way", ["chunks", "whole", "crlf"])
@pytest.mark.parametrize("texts", [FEW, MANY, LONG], ids=["few", "many", "long"])
@pytest.mark.parametrize("dialect", DOORS)
@pytest.mark.parametrize("door", DOORS)
def test_what_comes_together_is_sent_whole_and_in_order(
    stage: Stage, door: str, dialect: str, texts: tuple[str, ...], way: str
) -> None:
    sent = stream(dialect, Answer((Said(texts),)))
    if way == "crlf":
        sent = sent.replace(b"\n", b"\r\n")
    scene = stage.scene(dialect, together(sent) if way == "chunks" else sse(sent))
    with streaming(stage.url, door, plain_body(door, scene.model, stream=True)) as response:
        assert text_of(door, response.read()) == "".join(texts)


@pytest.mark.parametrize("cut", ["frames", "whole"])
@pytest.mark.parametrize("dialect", DOORS)
@pytest.mark.parametrize("door", DOORS)
def test_answer_beyond_the_limit_fails(
    stage: Stage, door: str, dialect: str, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "MAX_ANSWER_BYTES", 20_000)
    sent = stream(dialect, Answer((Said(MANY),)))
    reply = sse(sent, cut_into="frames") if cut == "frames" else sse(sent)
    scene = stage.scene(dialect, reply, reply)
    with streaming(stage.url, door, plain_body(door, scene.model, stream=True)) as response:
        received = response.read()
        assert b"expected an answer of at most 20,000 bytes, got more" in received
    body = ask(stage.url, door, plain_body(door, scene.model))  # the upstream streams all the same
    assert body.status_code >= 400
    assert "expected an answer of at most 20,000 bytes" in body.text
