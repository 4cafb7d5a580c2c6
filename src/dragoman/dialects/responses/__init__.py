"""The OpenAI Responses dialect."""

from dragoman.dialects.responses.body import encode_body
from dragoman.dialects.responses.decode import ResponsesReader, read_body
from dragoman.dialects.responses.encode import ResponsesEncoder
from dragoman.dialects.responses.errors import decode_error, encode_error
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.responses.regular import ResponsesWatch, is_regular_body
from dragoman.dialects.responses.request import decode_request, encode_request, pair_turns

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "ResponsesEncoder",
    "ResponsesReader",
    "ResponsesWatch",
    "decode_error",
    "decode_request",
    "encode_body",
    "encode_error",
    "encode_request",
    "is_regular_body",
    "pair_turns",
    "read_body",
)
