"""The messages of Responses over a WebSocket, one JSON object per text frame.

A client sends `response.create`, which is the body of a POST with a few more members, and may send `response.steer`. The server
sends the events of the stream, without SSE around them, and frames of type `error`.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from dragoman._json import Raw, as_object, dumps, dumps_text, loads
from dragoman.errors import MalformedJson, RequestRefused

KEEP_ALIVE = b'{"type":"keepalive"}'
"""The frame for a silent connection. Codex waits five minutes for a frame, and pings do not count; clients ignore this type."""

_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
# Members that a POST does not have, or that mean nothing here. Codex and openai-agents send `stream`, although it is forbidden.
_OF_SOCKET = frozenset(("type", "stream_id", "generate", "background", "stream"))
# Codex sends these headers of a request as members of `client_metadata`: by their names, or behind this prefix.
_HEADER = "ws_request_header_"
_CODEX_HEADER = re.compile(r"x-(?:codex|openai-internal-codex)-[a-z0-9-]+")


class Create(Struct, frozen=True, kw_only=True):
    """One `response.create`.

    body: the body of the equal POST, which streams. size: its length; input_size: that of its `input`. lane: its `stream_id`; None: the default lane. previous: the response that
    it continues. generates: whether a model is asked. headers: those that belong to this request, not to the connection.
    """

    body: bytes
    size: int
    input_size: int = 0
    lane: str | None = None
    previous: str | None = None
    generates: bool = True
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Steer(Struct, frozen=True):
    """A `response.steer`. `failure`: the frame that says that steering is not supported."""

    lane: str | None
    failure: bytes


def read_message(text: str) -> Create | Steer:
    """Read a message of the client.

    Raises:
        RequestRefused: it is not JSON, or of another type, or asks for what a connection cannot do.
    """
    try:
        fields = as_object(text)
    except MalformedJson as error:
        raise RequestRefused(
            f"expected a text frame with one JSON object: {error.message}"
        ) from error
    lane = _read_lane(fields)
    kind = _read(fields, "type")
    if kind == "response.steer":
        return Steer(lane, _steer_failed(fields))
    if kind != "response.create":
        raise RequestRefused(
            f"type: expected response.create, got {str(kind)[:60]!r}", param="type"
        )
    return _read_create(fields, lane)


def read_refused(text: str) -> tuple[str | None, str | None]:
    """The lane of a refused message, for its error, and the response that it wanted to continue.

    None: it names no valid lane, or is not a continuation.
    """
    try:
        fields = as_object(text)
        lane = _read_lane(fields)
    except (MalformedJson, RequestRefused):
        return None, None
    is_create = _read(fields, "type") == "response.create"
    previous = _read(fields, "previous_response_id")
    return lane, previous if is_create and isinstance(previous, str) else None


def error_frame(status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Return the frame for what a POST would be answered with. Codex ignores an error without `status`."""
    shown = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name not in (b"content-type", b"vary") and not name.startswith(b"access-control-")
    }
    error: dict[str, object] = loads(body)["error"]
    if error.get("code") is None:
        error["code"] = error["type"]  # the schema of this frame requires a string
    frame: dict[str, object] = {"type": "error", "status": status, "error": error}
    return dumps({**frame, "headers": shown} if shown else frame)


def lane_member(lane: str | None) -> bytes:
    """The beginning of a frame of this lane, in place of its brace."""
    return b"{" if lane is None else b'{"stream_id":%b,' % dumps_text(lane)


def _read_lane(fields: Mapping[str, Raw]) -> str | None:
    name = _read(fields, "stream_id")
    if name is None:
        return None
    if not isinstance(name, str) or _LANE.fullmatch(name) is None:
        raise RequestRefused(
            "stream_id: expected 1 to 256 letters, digits, '_', '.' or '-'",
            param="stream_id",
            code="invalid_stream_id",
        )
    return name


def _read_create(fields: Mapping[str, Raw], lane: str | None) -> Create:
    if _read(fields, "background") not in (None, False):
        raise RequestRefused(
            "background: expected false: a response over a WebSocket ends with its connection",
            param="background",
            code="unsupported_parameter",
        )
    generate = _read(fields, "generate")
    if generate is not None and not isinstance(generate, bool):
        raise RequestRefused("generate: expected a boolean", param="generate")
    previous = _read(fields, "previous_response_id")
    members = [
        dumps_text(name) + b":" + bytes(value)
        for name, value in fields.items()
        if name not in _OF_SOCKET
    ]
    body = b"{%b}" % b",".join([*members, b'"stream":true'])
    return Create(
        body=body,
        size=len(body),
        input_size=len(bytes(fields.get("input", b""))),
        lane=lane,
        previous=previous if isinstance(previous, str) else None,
        generates=generate is not False,
        headers=_headers_in(_read(fields, "client_metadata")),
    )


def _headers_in(metadata: object) -> tuple[tuple[bytes, bytes], ...]:
    if not isinstance(metadata, dict):
        return ()
    found: list[tuple[bytes, bytes]] = []
    for name, value in metadata.items():  # pyright: ignore[reportUnknownVariableType] -- any JSON
        if not (isinstance(name, str) and isinstance(value, str)):
            continue
        header = name.removeprefix(_HEADER)
        if header != name:
            header = header.replace("_", "-")
        is_plain = value.isascii() and value.isprintable()
        if is_plain and _CODEX_HEADER.fullmatch(header) is not None:
            found.append((header.encode("ascii"), value.encode("ascii")))
    return tuple(found)


def _steer_failed(fields: Mapping[str, Raw]) -> bytes:
    error = {
        "code": "steering_not_supported",
        "message": "a running response cannot be steered here; send response.create when it has ended",
        "type": "invalid_request_error",
    }
    wanted = [name for name in ("previous_response_id", "input") if name in fields]
    steer = b",".join([dumps_text(name) + b":" + bytes(fields[name]) for name in wanted])
    head = b'"type":"response.steer.failed","sequence_number":0,"error":' + dumps(error)
    return b'{%b,"steer":{%b}}' % (head, steer)


def _read(fields: Mapping[str, Raw], name: str) -> object:
    """The value of a member that should be short; None if there is none."""
    value = fields.get(name)
    return None if value is None else loads(bytes(value))
