"""The OpenAI Responses dialect: what its codec consists of."""

from dragoman.dialects.responses.body import read_typed, write_body
from dragoman.dialects.responses.decode import ResponsesReader, read_body
from dragoman.dialects.responses.encode import ResponsesEncoder
from dragoman.dialects.responses.errors import decode_error, encode_error
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.request import decode_request, encode_request, find_repairs
from dragoman.dialects.responses.usable import ResponsesCheck, is_usable_body

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "ResponsesCheck",
    "ResponsesEncoder",
    "ResponsesReader",
    "decode_error",
    "decode_request",
    "encode_error",
    "encode_request",
    "find_repairs",
    "is_usable_body",
    "read_body",
    "read_typed",
    "write_body",
)
