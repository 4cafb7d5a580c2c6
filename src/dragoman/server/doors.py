"""The doors: which path speaks which dialect, and what each dialect wants of HTTP beyond its bodies.

A path is taken with and without `/v1` (SDKs disagree on whose job the prefix is) and with a trailing slash.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.dialects.registry import CODECS, Codec
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect
from dragoman.model.request import Request

__all__ = (
    "COUNT_TOKENS_PATH",
    "DOORS",
    "THREADS_UNSUPPORTED",
    "Door",
    "asks_for_thread",
    "door_of_path",
    "stopping_error",
)

COUNT_TOKENS_PATH = "/v1/messages/count_tokens"

THREADS_UNSUPPORTED = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":'
    b'"thread: message threads are not kept by this gateway; send the whole conversation",'
    b'"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}}}'
)
"""The refusal on which the Anthropic SDKs' tool runners fall back to sending the whole history."""


class Door(Struct, frozen=True):
    """One client-facing endpoint."""

    dialect: Dialect
    path: str
    codec: Codec
    request_id_header: bytes | None = None


DOORS: Mapping[str, Door] = {
    door.path: door
    for door in (
        Door("chat", "/v1/chat/completions", CODECS["chat"]),
        Door("responses", "/v1/responses", CODECS["responses"]),
        Door("messages", "/v1/messages", CODECS["messages"], b"request-id"),
    )
}


def door_of_path(path: str) -> Door:
    """The door whose dialect fits an error about this path; Chat's where nothing shows."""
    for door in DOORS.values():
        if path.startswith((door.path, door.path.removeprefix("/v1"))):
            return door
    return DOORS["/v1/chat/completions"]


def asks_for_thread(door: Door, request: Request) -> bool:
    """Whether the client leaves the history to the server, by Anthropic's message threads."""
    extra = request.extra
    return door.dialect == "messages" and extra is not None and "thread" in extra.fields


def stopping_error() -> ErrorInfo:
    """What open streams are told when the gateway stops."""
    return ErrorInfo(
        kind="overloaded",
        message="the gateway is shutting down; send the request again",
        status=503,
    )
