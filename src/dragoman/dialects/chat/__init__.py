"""OpenAI Chat Completions, and the servers that imitate it."""

from dragoman.dialects.chat.body import read_typed, write_body
from dragoman.dialects.chat.decode import ChatReader, read_body
from dragoman.dialects.chat.encode import ChatEncoder
from dragoman.dialects.chat.errors import decode_error, encode_error
from dragoman.dialects.chat.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.chat.request import decode_request, encode_request, find_repairs
from dragoman.dialects.chat.tools import is_legacy
from dragoman.dialects.chat.usable import ChatCheck, is_usable_body

__all__ = (
    "DEFAULT_TARGET",
    "LOSSES",
    "ChatCheck",
    "ChatEncoder",
    "ChatReader",
    "decode_error",
    "decode_request",
    "encode_error",
    "encode_request",
    "find_repairs",
    "is_legacy",
    "is_usable_body",
    "read_body",
    "read_typed",
    "write_body",
)
