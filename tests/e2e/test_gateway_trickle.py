"""A slow upstream: what it has said is at the client before it says more, whatever the pair of dialects.

The upstream stands at a gate before each piece. The test opens one gate, and only when the SDK has shown the piece the
next: a gateway that held anything back would leave both waiting.
"""

import threading
from collections.abc import Iterator

import pytest

from dragoman.testing import Chunk, ScriptedReply, Wait
from sdk_clients import DOORS, anthropic_client, openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool, stream

dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
doors = pytest.mark.parametrize("door", DOORS)

TOOL = {"type": "object", "properties": {"note": {"type": "string"}}}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


class Gates:
    """A stream that stops before every frame that holds one of the marks."""

    def __init__(self, dialect: str, answer: Answer, marks: tuple[str, ...]) -> None:
        self.events = {mark: threading.Event() for mark in marks}
        waiting = list(marks)
        self.chunks: list[Chunk] = []
        for frame in stream(dialect, answer).split(b"\n\n")[:-1]:
            if waiting and waiting[0].encode() in frame:
                self.chunks.append(Wait(self.events[waiting.pop(0)]))
            self.chunks.append(frame + b"\n\n")
        assert not waiting

    def reply(self) -> ScriptedReply:
        return ScriptedReply(content_type="text/event-stream", chunks=self.chunks)

    def open_all(self) -> None:
        for event in self.events.values():
            event.set()


def pieces_told(door: str, url: str, model: str) -> Iterator[str]:
    """Every piece of text or of arguments, when the SDK has it."""
    match door:
        case "chat":
            function = {"name": "take_note", "parameters": TOOL}
            for chunk in openai_client(url).chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": "hi"}],
                tools=[{"type": "function", "function": function}],
                stream=True,
            ):
                for choice in chunk.choices:
                    yield choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        yield (call.function.arguments if call.function else "") or ""
        case "responses":
            for event in openai_client(url).responses.create(
                model=model,
                input="hi",
                tools=[
                    {"type": "function", "name": "take_note", "parameters": TOOL, "strict": False}
                ],
                stream=True,
            ):
                if event.type in (
                    "response.output_text.delta",
                    "response.function_call_arguments.delta",
                ):
                    yield event.delta
        case _:
            for part in anthropic_client(url).messages.create(
                model=model,
                max_tokens=99,
                messages=[{"role": "user", "content": "hi"}],
                tools=[{"name": "take_note", "input_schema": TOOL}],
                stream=True,
            ):
                if part.type == "content_block_delta":
                    delta = part.delta
                    if delta.type == "text_delta":
                        yield delta.text
                    elif delta.type == "input_json_delta":
                        yield delta.partial_json


def wait_for(lines: Iterator[str], mark: str) -> str:
    seen: list[str] = []
    for piece in lines:
        seen.append(piece)
        if mark in piece:
            return "".join(seen)
    raise AssertionError(f"{mark} never came; only {seen}")


@dialects
@doors
def test_every_piece_arrives_before_the_next_is_sent(stage: Stage, door: str, dialect: str) -> None:
    marks = ("text-one", "text-two", "note-one", "note-two", "other-one", "other-two")
    answer = Answer(
        (
            Said(("text-one ", "text-two ")),
            Tool("call_1", "take_note", ('{"note":"note-one', " note-two", '"}')),
            Tool("call_2", "take_note", ('{"note":"other-one', " other-two", '"}')),
        )
    )
    gates = Gates(dialect, answer, marks)
    scene = stage.scene(dialect, gates.reply())
    found = pieces_told(door, stage.url, scene.model)
    try:
        for mark, gate in gates.events.items():
            gate.set()
            wait_for(found, mark)
        assert "".join(found).endswith('"}')
    finally:
        gates.open_all()


@dialects
@doors
def test_of_interleaved_calls_the_first_is_sent_as_it_comes_and_the_other_after_it(
    stage: Stage, door: str, dialect: str
) -> None:
    marks = ("a-one", "b-one", "a-two", "b-two")
    answer = Answer(
        (
            Tool("call_1", "take_note", ('{"note":"a-one', " a-two", '"}')),
            Tool("call_2", "take_note", ('{"note":"b-one', " b-two", '"}')),
        ),
        interleaved=True,
    )
    gates = Gates(dialect, answer, marks)
    scene = stage.scene(dialect, gates.reply())
    found = pieces_told(door, stage.url, scene.model)
    try:
        gates.events["a-one"].set()
        wait_for(found, "a-one")
        gates.events["b-one"].set()
        gates.events["a-two"].set()
        assert "b-one" not in wait_for(found, "a-two")
        gates.events["b-two"].set()
        assert "".join(found) == '"}{"note":"b-one b-two"}'
    finally:
        gates.open_all()
