"""Codex app-server v2: JSON-RPC messages of a `codex app-server` child. An upstream only; no client uses this dialect."""

from dragoman.dialects.codex.decode import ANSWER, PAUSE, CodexReader, read_body, read_typed
from dragoman.dialects.codex.errors import decode_error
from dragoman.dialects.codex.losses import DEFAULT_TARGET, LOSSES
from dragoman.dialects.codex.request import SWITCHED_OFF, encode_request
from dragoman.dialects.codex.wire import CodexRequest, decode_codex_request, decode_envelope

__all__ = (
    "ANSWER",
    "DEFAULT_TARGET",
    "LOSSES",
    "PAUSE",
    "SWITCHED_OFF",
    "CodexReader",
    "CodexRequest",
    "decode_codex_request",
    "decode_envelope",
    "decode_error",
    "encode_request",
    "read_body",
    "read_typed",
)
