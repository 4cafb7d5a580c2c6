"""The OpenAI Responses dialect."""

from dragoman.dialects.responses.body import encode_body, write_body
from dragoman.dialects.responses.decode import ResponsesReader, read_body
from dragoman.dialects.responses.encode import ResponsesEncoder
from dragoman.dialects.responses.errors import decode_error, encode_error
from dragoman.dialects.responses.item_list import list_items
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.plain import read_plain
from dragoman.dialects.responses.regular import ResponsesWatch, is_regular_body
from dragoman.dialects.responses.request import decode_request, encode_request, pair_turns
from dragoman.dialects.responses.submitted import read_submitted
from dragoman.dialects.responses.terminal import (
    change_status,
    fail_terminal,
    failed_event,
    is_waiting,
    read_opening,
    read_terminal,
    read_whole,
    rename,
)

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "ResponsesEncoder",
    "ResponsesReader",
    "ResponsesWatch",
    "change_status",
    "decode_error",
    "decode_request",
    "encode_body",
    "encode_error",
    "encode_request",
    "fail_terminal",
    "failed_event",
    "is_regular_body",
    "is_waiting",
    "list_items",
    "pair_turns",
    "read_body",
    "read_opening",
    "read_plain",
    "read_submitted",
    "read_terminal",
    "read_whole",
    "rename",
    "write_body",
)
