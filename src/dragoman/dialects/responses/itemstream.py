"""The items of an answer, streamed: what each event of a part puts on the wire.

One part is open at a time. A message stays open after its text while more of it may come, and what ended incomplete is
closed on the wire only when the answer goes on (`flush`), never before a failure (`abandon`).
"""

from typing import assert_never

from dragoman._json import Raw
from dragoman.core.losses import LossBook
from dragoman.dialects.responses.fields import own_fields
from dragoman.dialects.responses.frames import EventWriter, Stencil
from dragoman.dialects.responses.reasoning_stream import ReasoningStream
from dragoman.dialects.responses.wire import PROGRESS_NAMES, CallSpec, ResultSpec
from dragoman.dialects.responses.writing import (
    ItemWriter,
    JsonObject,
    MessagePart,
    as_message_part,
)
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartStarted,
    Progress,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Call, Extra, Media, Opaque, Part, PartStatus, Reasoning, Refusal, Result, Text

__all__ = ("ItemStream",)
