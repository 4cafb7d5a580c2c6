"""Recognises the dialect of an answer by its shape: by `type`, `object`, `choices` or `output`.

File names, addresses and content types are often wrong, and some servers answer in another dialect than they were asked in.
Codex's messages are not recognised here: they come through their own pipe.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from dragoman._json import Raw, as_object
from dragoman.core.fields import read_objects, read_text
from dragoman.errors import MalformedJson
from dragoman.sse import Frame

DialectName = Literal["chat", "responses", "messages"]
Form = Literal["stream", "body"]

DIALECTS: Mapping[DialectName, str] = {
    "chat": "OpenAI Chat Completions",
    "responses": "OpenAI Responses",
    "messages": "Anthropic Messages",
}

MESSAGES_BLOCKS = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}
)
_MESSAGES_EVENTS = frozenset(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
)


class Shape(NamedTuple):
    """`is_sure`: only this dialect has such a payload. Pings and errors are shared by several."""

    dialect: DialectName
    form: Form
    is_sure: bool = True


def shape_of_frame(frame: Frame) -> Shape | None:
    """The shape of a frame's payload, or of its event if the payload is damaged; None if it has none."""
    fields = frame_fields(frame)
    shape = shape_of(fields) if fields is not None else None
    if shape is not None and shape.is_sure:
        return shape
    return _shape_of_type(frame.name.decode("utf-8", "replace")) or shape


def shape_of_body(data: bytes) -> Shape | None:
    """The shape of a body; None if it is not a JSON object."""
    try:
        return shape_of(as_object(data))
    except MalformedJson:
        return None


def frame_fields(frame: Frame) -> dict[str, Raw] | None:
    """The fields of a frame's payload; None if it has no payload, or one that is not a JSON object."""
    if frame.data is None or frame.is_done:
        return None
    try:
        return as_object(frame.data)
    except MalformedJson:
        return None


def shape_of(fields: Mapping[str, Raw]) -> Shape | None:
    """The shape of a whole payload of a stream, or of a body."""
    kind, family = read_text(fields.get("type")) or "", read_text(fields.get("object")) or ""
    shape = _shape_of_type(kind) or _shape_of_family(family)
    # The legacy completions API has `choices` too, but no calls.
    if shape is not None or family == "text_completion":
        return shape
    if _is_message(kind, fields):
        return Shape("messages", "body")
    if "choices" in fields:
        return Shape("chat", "body" if b'"message"' in bytes(fields["choices"]) else "stream")
    if bytes(fields.get("output", b"")).startswith(b"["):
        return Shape("responses", "body")
    return _vague_shape(kind, fields)


def _shape_of_type(kind: str) -> Shape | None:
    if kind.startswith("response."):
        return Shape("responses", "stream")
    return Shape("messages", "stream") if kind in _MESSAGES_EVENTS else None


def _shape_of_family(family: str) -> Shape | None:
    if family.startswith("chat.completion"):
        return Shape("chat", "stream" if family.endswith(".chunk") else "body")
    return Shape("responses", "body") if family == "response" else None


def _is_message(kind: str, fields: Mapping[str, Raw]) -> bool:
    """Whether this is Anthropic's message: a message item of Responses has the same type and role."""
    if kind != "message":
        has_blocks = bytes(fields.get("content", b"")).startswith(b"[")
        return not kind and "stop_reason" in fields and has_blocks
    if "stop_reason" in fields or "model" in fields:
        return True
    blocks = read_objects(fields.get("content"))
    return any(read_text(block.get("type")) in MESSAGES_BLOCKS for block in blocks)


def _vague_shape(kind: str, fields: Mapping[str, Raw]) -> Shape | None:
    """The shape of an error or a ping. OpenAI's two dialects share one error body, which counts as Chat Completions here."""
    match kind:
        case "ping":
            return Shape("messages", "stream", is_sure=False)
        case "keepalive":
            return Shape("responses", "stream", is_sure=False)
        case "error" if "sequence_number" in fields or "error" not in fields:
            return Shape("responses", "stream", is_sure=False)
        case "error":
            return Shape("messages", "body", is_sure=False)
        case _:
            return Shape("chat", "body", is_sure=False) if "error" in fields else None
