"""Events to a Responses stream, in OpenAI's own sequence.

    response.created, response.in_progress,
    per item: output_item.added, (content_part.added,) deltas, .done, (content_part.done,) output_item.done
    response.completed | response.incomplete | response.failed

`sequence_number` rises by one with every event, `output_index` with every item; ids are told once and stay. Codex runs a
call at its `output_item.done`, whatever comes after, so a call that is not complete never gets one. A text that ended
incomplete is closed only when the answer goes on to its end; before a failure nothing more is said of it.

Texts that share an item id are one message, which stays open until another item begins. Other texts are a message each.
"""

from collections.abc import Callable, Mapping
from typing import Never

from dragoman._json import Raw, dumps, dumps_text
from dragoman.core.failures import error_info
from dragoman.core.fold import merge_usage
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.responses.envelope import Ending, Envelope, ending_of, required_action
from dragoman.dialects.responses.errors import failed_fields
from dragoman.dialects.responses.fields import own_fields, read_object
from dragoman.dialects.responses.losses import LOSSES
from dragoman.dialects.responses.wire import PROGRESS_NAMES, CallSpec, ResultSpec
from dragoman.dialects.responses.writing import (
    ItemWriter,
    JsonObject,
    MessagePart,
    is_message_part,
)
from dragoman.errors import LocalProtocolError, StreamTruncated
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Loss, LossAction, Usage
from dragoman.model.parts import Call, Media, Opaque, Part, PartStatus, Reasoning, Refusal, Result, Text
from dragoman.sse import encode_comment

__all__ = ("ResponsesEncoder",)
