"""The events of an answer: decoders emit them, encoders read them.

The grammar (`core.grammar` holds it as a table):

    Noticed* Started body Finished+ (UsageReported | LimitsReported | Noticed)* Completed
    body:  per part  PartStarted delta* PartEnded; parts may interleave; UsageReported, LimitsReported, Progress and
           Noticed may stand anywhere in the body
    Failed may replace the rest at any point, also before Started; nothing follows Completed or Failed

`part` numbers the parts of the whole answer 0, 1, 2, … in order of first appearance; `choice` matters only when a
client asked for several choices. Every delta is an increment. For text, reasoning and tool input the joined deltas
equal the value of `PartEnded`, unless `amended` is set.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import Raw
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import Annotation, Dialect, Extra, Part, Seal

__all__ = (
    "AnnotationAdded",
    "Completed",
    "Event",
    "Failed",
    "Finished",
    "InputDelta",
    "LimitsReported",
    "MediaDelta",
    "NoticeKind",
    "Noticed",
    "OutputDelta",
    "PartEnded",
    "PartStarted",
    "Progress",
    "ReasoningChannel",
    "ReasoningDelta",
    "SealAdded",
    "Started",
    "TextDelta",
    "UsageReported",
)

ReasoningChannel = Literal["summary", "content"]
NoticeKind = Literal["ping", "comment", "done", "fields", "unknown", "nameless"]


class Started(Struct, frozen=True, gc=False, tag_field="event", tag="started"):
    response_id: str = ""
    model: str = ""
    created: int | None = None
    extra: Extra | None = None


class PartStarted(Struct, frozen=True, gc=False, tag_field="event", tag="part_started"):
    """`header` is the part as known so far: kind, ids and names set, content empty, status `in_progress`.

    The header of a part that cannot stream (Opaque, Result, Media known whole) may already hold the whole part.
    """

    part: int
    header: Part
    choice: int = 0


class TextDelta(Struct, frozen=True, gc=False, tag_field="event", tag="text_delta"):
    """An increment of a Text or a Refusal."""

    part: int
    text: str
    logprobs: Raw | None = None


class ReasoningDelta(Struct, frozen=True, gc=False, tag_field="event", tag="reasoning_delta"):
    """An increment of one entry (`index`) of a Reasoning's `summary` or `content`."""

    part: int
    text: str
    channel: ReasoningChannel = "summary"
    index: int = 0


class InputDelta(Struct, frozen=True, gc=False, tag_field="event", tag="input_delta"):
    """An increment of a call's input, as source text."""

    part: int
    text: str


class OutputDelta(Struct, frozen=True, gc=False, tag_field="event", tag="output_delta"):
    """An increment of the output of a tool that the provider runs."""

    part: int
    text: str


class MediaDelta(Struct, frozen=True, gc=False, tag_field="event", tag="media_delta"):
    """A piece of media: base64 audio to append, a transcript increment, or a whole preview image."""

    part: int
    data: str = ""
    transcript: str = ""
    extra: Extra | None = None


class AnnotationAdded(Struct, frozen=True, gc=False, tag_field="event", tag="annotation_added"):
    part: int
    annotation: Annotation


class SealAdded(Struct, frozen=True, gc=False, tag_field="event", tag="seal_added"):
    part: int
    seal: Seal


class Progress(Struct, frozen=True, gc=False, tag_field="event", tag="progress"):
    """The provider reports its progress. `stage` is the provider's own word; `part` is None for the answer as a whole."""

    stage: str
    part: int | None = None
    extra: Extra | None = None


class PartEnded(Struct, frozen=True, gc=False, tag_field="event", tag="part_ended"):
    """The complete part; authoritative. `amended`: the value differs from the joined deltas that were emitted."""

    part: int
    value: Part
    amended: bool = False


class UsageReported(Struct, frozen=True, gc=False, tag_field="event", tag="usage_reported"):
    usage: Usage


class LimitsReported(Struct, frozen=True, gc=False, tag_field="event", tag="limits_reported"):
    limits: Limits


class Finished(Struct, frozen=True, gc=False, tag_field="event", tag="finished"):
    """A choice has ended. `inferred`: the decoder concluded it, the provider did not say so. `native`: its own word."""

    reason: FinishReason
    choice: int = 0
    stop_sequence: str | None = None
    inferred: bool = False
    native: str | None = None
    extra: Extra | None = None


class Failed(Struct, frozen=True, gc=False, tag_field="event", tag="failed"):
    error: ErrorInfo


class Completed(Struct, frozen=True, gc=False, tag_field="event", tag="completed"):
    extra: Extra | None = None


class Noticed(Struct, frozen=True, gc=False, tag_field="event", tag="noticed"):
    """A frame, or fields of one, that the vocabulary does not cover. Only an encoder of the same dialect writes it back.

    `nameless`: here was a call that cannot be emitted because its name never came; `name` is its id, `raw` its input as a
    JSON string. No encoder writes it.
    """

    kind: NoticeKind
    dialect: Dialect | None = None
    name: str = ""
    raw: Raw | None = None
    part: int | None = None
    choice: int = 0


Delta = (
    TextDelta | ReasoningDelta | InputDelta | OutputDelta | MediaDelta | AnnotationAdded | SealAdded
)
"""The events that add content to an open part."""

Event = (
    Started
    | PartStarted
    | Delta
    | Progress
    | PartEnded
    | UsageReported
    | LimitsReported
    | Finished
    | Failed
    | Completed
    | Noticed
)
