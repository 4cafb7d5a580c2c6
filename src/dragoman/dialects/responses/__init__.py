"""The OpenAI Responses dialect."""

from dragoman.dialects.responses.body import read_typed, write_body
from dragoman.dialects.responses.compaction import (
    TRIGGER_TURN,
    compaction_item,
    is_compaction,
    is_trigger,
    native_item,
    unpack_item,
    with_trigger,
)
from dragoman.dialects.responses.conversations import conversation_of, with_conversation
from dragoman.dialects.responses.decode import ResponsesReader, read_body
from dragoman.dialects.responses.encode import ResponsesEncoder, queue_response
from dragoman.dialects.responses.envelope import bare_response
from dragoman.dialects.responses.errors import decode_error, encode_error
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.request import (
    asks_for_background,
    decode_request,
    encode_request,
    find_repairs,
    without_background,
)
from dragoman.dialects.responses.terminal import (
    change_status,
    created_event,
    early_response_id,
    has_failed,
    is_waiting,
    read_body_end,
    read_end,
    read_opening,
    sequence_number,
    terminal_event,
)
from dragoman.dialects.responses.turns import EarlierItems, list_items, read_submitted
from dragoman.dialects.responses.usable import ResponsesCheck, is_usable_body
from dragoman.dialects.responses.websocket import (
    KEEP_ALIVE,
    Create,
    Steer,
    error_frame,
    lane_member,
    read_message,
    read_refused,
)

__all__ = (
    "DEFAULT_TARGET",
    "KEEP_ALIVE",
    "LOSSES",
    "TRIGGER_TURN",
    "Create",
    "EarlierItems",
    "ResponsesCheck",
    "ResponsesEncoder",
    "ResponsesReader",
    "Steer",
    "asks_for_background",
    "bare_response",
    "change_status",
    "compaction_item",
    "conversation_of",
    "created_event",
    "decode_error",
    "decode_request",
    "early_response_id",
    "encode_error",
    "encode_request",
    "error_frame",
    "find_repairs",
    "has_failed",
    "is_compaction",
    "is_trigger",
    "is_usable_body",
    "is_waiting",
    "lane_member",
    "list_items",
    "native_item",
    "queue_response",
    "read_body",
    "read_body_end",
    "read_end",
    "read_message",
    "read_opening",
    "read_refused",
    "read_submitted",
    "read_typed",
    "sequence_number",
    "terminal_event",
    "unpack_item",
    "with_conversation",
    "with_trigger",
    "without_background",
    "write_body",
)
