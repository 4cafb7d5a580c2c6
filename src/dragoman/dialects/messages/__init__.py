"""Anthropic Messages: reads and writes streams, bodies and requests."""

from dragoman.dialects.messages.body import read_typed, write_body
from dragoman.dialects.messages.decode import MessagesReader, read_body
from dragoman.dialects.messages.encode import MessagesEncoder
from dragoman.dialects.messages.errors import decode_error, encode_error, threads_unsupported
from dragoman.dialects.messages.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.messages.request import (
    asks_for_thread,
    check_request,
    decode_request,
    encode_request,
    find_repairs,
)
from dragoman.dialects.messages.usable import MessagesCheck, is_usable_body
from dragoman.dialects.messages.wire import EVENTS

__all__ = (
    "DEFAULT_TARGET",
    "EVENTS",
    "LOSSES",
    "MessagesCheck",
    "MessagesEncoder",
    "MessagesReader",
    "asks_for_thread",
    "check_request",
    "decode_error",
    "decode_request",
    "encode_error",
    "encode_request",
    "find_repairs",
    "is_usable_body",
    "read_body",
    "read_typed",
    "threads_unsupported",
    "write_body",
)
