"""OpenAI Chat Completions, and the servers that imitate it."""

from dragoman.dialects.chat.body import encode_body, write_body
from dragoman.dialects.chat.decode import ChatReader, read_body
from dragoman.dialects.chat.encode import ChatEncoder
from dragoman.dialects.chat.errors import decode_error, encode_error
from dragoman.dialects.chat.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.chat.plain import read_plain
from dragoman.dialects.chat.regular import ChatWatch, is_regular_body
from dragoman.dialects.chat.request import NORMALISED, decode_request, encode_request, pair_turns

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "NORMALISED",
    "ChatEncoder",
    "ChatReader",
    "ChatWatch",
    "decode_error",
    "decode_request",
    "encode_body",
    "encode_error",
    "encode_request",
    "is_regular_body",
    "pair_turns",
    "read_body",
    "read_plain",
    "write_body",
)
