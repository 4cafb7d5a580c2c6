"""Events of answers, for tests of the Responses encoder."""

from typing import Any

from msgspec.structs import replace

import doors
from dragoman.dialects.codec import EncodeContext
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.parts import (
    Call,
    Part,
    Text,
)
from responses_help import Json, payloads, write

START = Started("resp_1", "m", 1)
STOP = (Finished("stop"), Completed())
CALLED = (Finished("tool_calls"), Completed())


def call_events(
    part: int = 0, name: str = "f", text: str = '{"x":1}', **fields: Any
) -> list[Event]:
    call = Call(call_id=f"call_{part}", name=name, input=text, **fields)
    return [PartStarted(part, begun(call)), InputDelta(part, text), PartEnded(part, call)]


def begun(call: Call) -> Call:
    """The header of a call."""
    return replace(call, input="", status="in_progress")


def text_events(part: int = 0, text: str = "hello", **fields: Any) -> list[Event]:
    return [
        PartStarted(part, Text(status="in_progress", **fields)),
        TextDelta(part, text),
        PartEnded(part, Text(text=text, **fields)),
    ]


def whole(part: int, value: Part) -> list[Event]:
    return [PartStarted(part, value), PartEnded(part, value)]


def names(written: list[Json]) -> list[str]:
    return [payload["type"].removeprefix("response.") for payload in written]


def checked(events: list[Event], context: EncodeContext | None = None) -> list[Json]:
    data = write(events, context)
    doors.check_responses(data, profile=context.profile if context else "default")
    return payloads(data)
