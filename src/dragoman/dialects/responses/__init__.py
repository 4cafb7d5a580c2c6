"""The OpenAI Responses dialect."""

from dragoman.dialects.responses.body import read_typed, write_body
from dragoman.dialects.responses.compaction import (
    TRIGGER_TURN,
    compaction_item,
    is_compaction,
    is_trigger,
    native_item,
    unpack_item,
)
from dragoman.dialects.responses.decode import ResponsesReader, read_body
from dragoman.dialects.responses.encode import ResponsesEncoder
from dragoman.dialects.responses.envelope import bare_response
from dragoman.dialects.responses.errors import decode_error, encode_error
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.request import decode_request, encode_request, find_repairs
from dragoman.dialects.responses.terminal import (
    change_status,
    early_response_id,
    failed_event,
    has_failed,
    is_waiting,
    read_body_end,
    read_end,
    read_opening,
    sequence_number,
)
from dragoman.dialects.responses.turns import list_items, read_submitted
from dragoman.dialects.responses.usable import ResponsesCheck, is_usable_body
from dragoman.dialects.responses.websocket import (
    KEEP_ALIVE,
    Create,
    Steer,
    error_frame,
    lane_member,
    lane_of,
    read_message,
)

__all__ = (
    "DEFAULT_TARGET",
    "KEEP_ALIVE",
    "LOSSES",
    "TRIGGER_TURN",
    "Create",
    "ResponsesCheck",
    "ResponsesEncoder",
    "ResponsesReader",
    "Steer",
    "bare_response",
    "change_status",
    "compaction_item",
    "decode_error",
    "decode_request",
    "early_response_id",
    "encode_error",
    "encode_request",
    "error_frame",
    "failed_event",
    "find_repairs",
    "has_failed",
    "is_compaction",
    "is_trigger",
    "is_usable_body",
    "is_waiting",
    "lane_member",
    "lane_of",
    "list_items",
    "native_item",
    "read_body",
    "read_body_end",
    "read_end",
    "read_message",
    "read_opening",
    "read_submitted",
    "read_typed",
    "sequence_number",
    "unpack_item",
    "write_body",
)
