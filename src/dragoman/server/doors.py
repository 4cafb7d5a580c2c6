"""The doors: which path speaks which dialect, and what each dialect requires of HTTP besides its bodies.

A path is accepted with and without `/v1` (SDKs disagree on who adds the prefix) and with a trailing slash.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.dialects.codec import Codec
from dragoman.dialects.registry import CODECS
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect

COUNT_PATHS: Mapping[str, Dialect] = {
    "/v1/messages/count_tokens": "messages",
    "/v1/responses/input_tokens": "responses",
}
"""The paths that count the tokens of a request."""


class Door(Struct, frozen=True):
    """One client-facing endpoint. `is_compact`: it answers with a compaction of the conversation."""

    dialect: Dialect
    path: str
    codec: Codec
    request_id_header: bytes | None = None
    is_compact: bool = False


DOORS: Mapping[str, Door] = {
    door.path: door
    for door in (
        Door("chat", "/v1/chat/completions", CODECS["chat"]),
        Door("responses", "/v1/responses", CODECS["responses"]),
        Door("responses", "/v1/responses/compact", CODECS["responses"], is_compact=True),
        Door("messages", "/v1/messages", CODECS["messages"], b"request-id"),
    )
}


def door_of_path(path: str) -> Door:
    """The door whose dialect fits an error about this path; Chat's if the path matches none."""
    for door in DOORS.values():
        if path.startswith((door.path, door.path.removeprefix("/v1"))):
            return door
    return DOORS["/v1/chat/completions"]


def stopping_error() -> ErrorInfo:
    """The error for open streams when the gateway stops."""
    return ErrorInfo(
        kind="overloaded",
        message="the gateway is shutting down; send the request again",
        status=503,
    )
