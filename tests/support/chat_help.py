"""Chat streams as values, and readings of them that hold the laws every reading must hold."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from disagreements import find_disagreements
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.chat import ChatReader
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.stream_decoder import Step, StreamDecoder
from dragoman.model.events import Event, Failed
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.parts import Call, Part

DONE = "[DONE]"
Json = Mapping[str, object]


def chunk(
    delta: Json | None = None, reason: str | None = None, index: int = 0
) -> dict[str, object]:
    """One chunk as a vendor sends it."""
    choice = {"index": index, "delta": delta or {}, "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [choice],
    }


def finish(reason: str = "stop", index: int = 0) -> dict[str, object]:
    return chunk({}, reason, index)


def call(*entries: Json) -> dict[str, object]:
    """A chunk with these entries of `tool_calls`."""
    return chunk({"tool_calls": list(entries)})


def sse(*payloads: Json | str) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in payloads]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


class Reading(Struct, frozen=True):
    steps: list[Step]
    events: list[Event]
    outcome: Outcome

    @property
    def problems(self) -> list[str]:
        return [problem.kind for step in self.steps for problem in step.problems]

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.outcome.choices[0].parts if self.outcome.choices else ()

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def inputs(self) -> list[tuple[str, str, str]]:
        """(call id, name, input) of each call."""
        return [(each.call_id, each.name, each.input) for each in self.calls]

    @property
    def error(self) -> ErrorInfo:
        last = self.events[-1]
        assert isinstance(last, Failed), last
        return last.error


def _decode(reads: Sequence[bytes], context: DecodeContext) -> list[Step]:
    decoder = StreamDecoder(ChatReader(context))
    steps = [step for data in reads for step in decoder.feed(data)]
    return steps + decoder.close()


def read(data: bytes | Sequence[Json | str], context: DecodeContext | None = None) -> Reading:
    """A stream read whole; the same events and bytes come out however it is cut."""
    if not isinstance(data, bytes):
        data = sse(*data)
    context = context or DecodeContext()
    steps = _decode([data], context)
    events = [event for step in steps for event in step.events]
    for size in (1, 7):
        cut = _decode([data[at : at + size] for at in range(0, len(data), size)], context)
        assert [event for step in cut for event in step.events] == events
        assert b"".join(step.raw for step in cut) == data
    assert is_grammatical(events), events
    assert find_disagreements(events) == ()
    assert all(problem.message for step in steps for problem in step.problems)
    return Reading(steps, events, fold(events))


def frames(stream: bytes) -> list[bytes]:
    """The frames of a stream we wrote, without their blank lines."""
    assert stream == b"" or stream.endswith(b"\n\n")
    return stream.split(b"\n\n")[:-1]


def payloads(stream: bytes) -> list[dict[str, Any]]:
    """The JSON of each data frame but [DONE]."""
    data = [frame.removeprefix(b"data: ") for frame in frames(stream) if frame.startswith(b"data")]
    return [json.loads(each) for each in data if each != b"[DONE]"]
