"""Anthropic Messages: streams, bodies and requests, both ways."""

from dragoman.dialects.messages.body import encode_body, read_body
from dragoman.dialects.messages.decode import MessagesReader
from dragoman.dialects.messages.encode import MessagesEncoder
from dragoman.dialects.messages.errors import decode_error, encode_error
from dragoman.dialects.messages.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.messages.request import NORMALISED, decode_request, encode_request

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "NORMALISED",
    "MessagesEncoder",
    "MessagesReader",
    "decode_error",
    "decode_request",
    "encode_body",
    "encode_error",
    "encode_request",
    "read_body",
)
