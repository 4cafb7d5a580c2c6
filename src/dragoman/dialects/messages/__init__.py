"""Anthropic Messages: streams, bodies and requests, both ways."""

from dragoman.dialects.messages.body import encode_body, read_body, write_body
from dragoman.dialects.messages.decode import MessagesReader
from dragoman.dialects.messages.encode import MessagesEncoder
from dragoman.dialects.messages.errors import decode_error, encode_error
from dragoman.dialects.messages.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.messages.plain_body import read_plain
from dragoman.dialects.messages.regular import MessagesWatch, is_regular_body
from dragoman.dialects.messages.request import (
    NORMALISED,
    decode_request,
    encode_request,
    pair_turns,
)
from dragoman.dialects.messages.terminal import fail_terminal

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "NORMALISED",
    "MessagesEncoder",
    "MessagesReader",
    "MessagesWatch",
    "decode_error",
    "decode_request",
    "encode_body",
    "encode_error",
    "encode_request",
    "fail_terminal",
    "is_regular_body",
    "pair_turns",
    "read_body",
    "read_plain",
    "write_body",
)
