"""Which dialect a payload speaks, and what that dialect's reader must be given for it.

The only wire knowledge of this package: enough to recognise a payload by its shape, and to put a bare piece (a Chat
delta, one Responses item, one Anthropic block) into the frame its reader expects. What a payload means is the reader's
affair.

Codex's first app-server protocol wraps others' payloads (`codex/event/agent_message_delta` around a Chat delta, …), as
the vendors' stream helpers do (`{"type": "chunk", "chunk": …}`); the wrapping is taken off here.
"""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, as_object, loads, typed_decoder
from dragoman.core.fields import expect_text
from dragoman.model.parts import Dialect

__all__ = ("Place", "Shape", "shapes_of", "source_of")

Fields = Mapping[str, Raw]

_MAX_WRAPPINGS = 6
"""Twice what is seen (`params`, `msg`, `delta`), and a bound on what a hostile payload may cost."""

_MESSAGES_EVENTS = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
    }
)
_MESSAGES_BLOCKS = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}
)
_RESPONSES_ITEMS = frozenset({"reasoning", "compaction", "mcp_list_tools", "mcp_approval_request"})
_RESPONSES_ENDINGS = ("_call", "_output")
_CODEX_ITEMS = frozenset({"dynamicToolCall", "agentMessage", "userMessage"})
_CHAT_FIELDS = (
    "tool_calls",
    "function_call",
    "content",
    "role",
    "refusal",
    "reasoning_content",
    "reasoning",
    "audio",
)
_CODEX_V1_METHODS = frozenset({"agentMessageDelta", "agentMessage"})
_CODEX_V1_TYPES = frozenset({"agent_message_delta", "agent_message", "raw_response_item"})
_CODEX_V1_PREFIX = "codex/event/"
_WRAPPERS = ("params", "msg", "chunk", "item", "delta", "message")
# What the vendors' stream helpers say beside the events of the wire.
_HELPER_PREFIXES = ("tool_calls.", "content.", "refusal.", "logprobs.")
_HELPER_TYPES = frozenset({"input_json", "citation", "signature"})
_HELPER_FIELD = "snapshot"

# What stands around a piece that comes alone.
_CHUNK = b'{"choices":[{"index":%d,"%b":%b,"finish_reason":%b}]}'
_RESPONSE = b'{"object":"response","status":"completed","output":[%b]}'
_MESSAGE = (
    b'{"type":"message","role":"assistant","content":[%b],"stop_reason":"%b",'
    b'"usage":{"input_tokens":0,"output_tokens":0}}'
)
_NOTIFICATION = b'{"method":"%b","params":{"item":%b}}'

_decode_array = typed_decoder(list[Raw])


class Shape(Struct, frozen=True):
    """Something for a reader: one payload of a stream, or (`is_whole`) one body.

    `choice`: which choice it belongs to; a body says so itself. `stream` tells apart the conversations that share one
    Codex pipe. `event` is the name its SSE frame would have.
    """

    dialect: Dialect
    data: bytes
    choice: int
    is_whole: bool = False
    stream: str = ""
    event: str = ""


class Place(Struct, frozen=True):
    """What is known of a payload from outside: its choice, and whether it is said to be a finished message."""

    choice: int = 0
    is_final: bool = False
    depth: int = 0


def shapes_of(data: bytes, place: Place) -> tuple[Shape, ...] | None:
    """What there is to read in a JSON object; None if it has no shape we know.

    Raises:
        MalformedJson: it is no JSON object, or its type is no string.
    """
    return _recognise(as_object(data), data, place)


def source_of(data: bytes) -> str:
    """The id of the answer that a payload belongs to, where it says so."""
    fields = _object(Raw(data))
    holders = (fields, _child(fields, "response"), _child(fields, "message"))
    return next((text for holder in holders if (text := _text(holder, "id"))), "")


def _recognise(fields: Fields, data: bytes, place: Place) -> tuple[Shape, ...] | None:
    if place.depth > _MAX_WRAPPINGS:
        return None
    if method := _text(fields, "method"):
        if method in _CODEX_V1_METHODS or method.startswith(_CODEX_V1_PREFIX):
            return _unwrap(fields, place)
        return (Shape("codex", data, place.choice, stream=_conversation(fields)),)
    if kind := expect_text(fields.get("type"), "type"):
        return _typed(kind, fields, data, place)
    return _untyped(fields, data, place)


def _typed(kind: str, fields: Fields, data: bytes, place: Place) -> tuple[Shape, ...] | None:
    if kind.startswith("response.") or kind == "keepalive":
        return (Shape("responses", data, place.choice),)
    if kind in _MESSAGES_EVENTS:
        return (Shape("messages", data, place.choice, event=kind),)
    if kind == "error":
        is_responses = "sequence_number" in fields or not _child(fields, "error")
        dialect: Dialect = "responses" if is_responses else "messages"
        return (Shape(dialect, data, place.choice, event=kind),)
    if kind in _CODEX_V1_TYPES or kind.startswith(_CODEX_V1_PREFIX) or kind == "chunk":
        return _unwrap(fields, place)
    if _is_helper(kind, fields):
        return ()
    if kind in ("function", "custom") and _child(fields, kind):
        return (_chat_piece(b'{"tool_calls":[' + data + b"]}", place, has_calls=True),)
    return _item(kind, fields, data, place)


def _item(kind: str, fields: Fields, data: bytes, place: Place) -> tuple[Shape, ...] | None:
    """A whole item, block or message that stands alone."""
    if kind == "message" and _is_messages_body(fields):
        return (Shape("messages", data, place.choice, is_whole=True),)
    if kind in _MESSAGES_BLOCKS or kind.endswith("_tool_result"):
        reason = b"tool_use" if kind == "tool_use" else b"end_turn"
        body = _MESSAGE % (data, reason)
        return (Shape("messages", body, place.choice, is_whole=True),)
    if kind in _CODEX_ITEMS:
        method = b"item/completed" if place.is_final else b"item/started"
        return (Shape("codex", _NOTIFICATION % (method, data), place.choice),)
    if kind == "message" or kind in _RESPONSES_ITEMS or kind.endswith(_RESPONSES_ENDINGS):
        return (Shape("responses", _RESPONSE % data, place.choice, is_whole=True),)
    return None


def _untyped(fields: Fields, data: bytes, place: Place) -> tuple[Shape, ...] | None:
    if "choices" in fields:
        return _chat(fields, data, place)
    if _text(fields, "object") == "response" or _is(fields, "output", b"["):
        return (Shape("responses", data, place.choice, is_whole=True),)
    if _is(fields, "delta", b"{") or _is(fields, "message", b"{"):
        return _chat_choice(fields, place)
    if any(_is(fields, key, b"{") for key in _WRAPPERS):
        return _unwrap(fields, place)
    if any(name in fields for name in _CHAT_FIELDS):
        has_calls = any(
            _is(fields, *sign) for sign in (("tool_calls", b"["), ("function_call", b"{"))
        )
        return (_chat_piece(data, place, has_calls=has_calls),)
    if _child(fields, "error"):
        return (Shape("chat", data, place.choice),)
    # An answer to a JSON-RPC request, or nothing but nulls: there is nothing in it for us.
    is_nothing = "result" in fields or all(bytes(value) == b"null" for value in fields.values())
    return () if is_nothing else None


def _chat(fields: Fields, data: bytes, place: Place) -> tuple[Shape, ...]:
    choices = _array(fields, "choices")
    entries = [_object(choice) for choice in choices]
    if not entries:
        # Anything else than an array, or null, is for the reader to refuse.
        is_odd = _child(fields, "error") or bytes(fields["choices"])[:1] not in (b"[", b"n")
        return (Shape("chat", data, place.choice),) if is_odd else ()
    has_message = any(_is(entry, "message", b"{") for entry in entries)
    if has_message or (place.is_final and not any("delta" in entry for entry in entries)):
        return (Shape("chat", data, place.choice, is_whole=True),)
    if len(entries) == 1:
        return (Shape("chat", data, _index(entries[0], place)),)
    return tuple(
        Shape("chat", b'{"choices":[%b]}' % bytes(choice), _index(entry, place))
        for choice, entry in zip(choices, entries, strict=True)
    )


def _chat_choice(fields: Fields, place: Place) -> tuple[Shape, ...] | None:
    """A choice without its chunk, or whatever else carries a delta or a message under that name."""
    place = _within(fields, place)
    is_whole = _is(fields, "message", b"{")
    piece = bytes(fields["message" if is_whole else "delta"])
    inner = _object(Raw(piece))
    if _text(inner, "type") or _text(inner, "method"):
        return _recognise(inner, piece, replace(place, is_final=place.is_final or is_whole))
    if is_whole:
        place = replace(place, is_final=True)
    has_calls = any(name in inner for name in ("tool_calls", "function_call"))
    finish = bytes(fields.get("finish_reason", b"null"))
    return (_chat_piece(piece, place, has_calls=has_calls, finish=finish),)


def _chat_piece(piece: bytes, place: Place, *, has_calls: bool, finish: bytes = b"null") -> Shape:
    """A delta or a message put into the chunk or the body around it. A finished message has ended by itself."""
    if place.is_final and finish == b"null":
        finish = b'"tool_calls"' if has_calls else b'"stop"'
    name = b"message" if place.is_final else b"delta"
    data = _CHUNK % (place.choice, name, piece, finish)
    return Shape("chat", data, place.choice, is_whole=place.is_final)


def _unwrap(fields: Fields, place: Place) -> tuple[Shape, ...]:
    """What a wrapper holds. Codex's first protocol has many events; those without anything for us hold nothing."""
    place = _within(fields, place)
    for key in _WRAPPERS:
        inner = bytes(fields.get(key, b"null"))
        inside = replace(place, depth=place.depth + 1, is_final=place.is_final or key == "message")
        if inner.startswith(b"{"):
            return _recognise(_object(Raw(inner)), inner, inside) or ()
        if inner.startswith(b'"') and key in ("delta", "message"):
            return (_chat_piece(b'{"content":%b}' % inner, inside, has_calls=False),)
    return ()


def _within(fields: Fields, place: Place) -> Place:
    for key in ("choice_index", "choiceIndex", "index"):
        number = _integer(fields, key)
        if number is not None:
            return replace(place, choice=number)
    return place


def _is_messages_body(fields: Fields) -> bool:
    """Anthropic's message and Responses' message item have the same type and role."""
    if "stop_reason" in fields or "model" in fields:
        return True
    blocks = [_object(block) for block in _array(fields, "content")]
    return any(_text(block, "type") in _MESSAGES_BLOCKS for block in blocks)


def _is_helper(kind: str, fields: Fields) -> bool:
    return (
        kind.startswith(_HELPER_PREFIXES)
        or kind in _HELPER_TYPES
        or (kind in _MESSAGES_BLOCKS and _HELPER_FIELD in fields)
    )


def _conversation(fields: Fields) -> str:
    params = _child(fields, "params")
    turn = _text(params, "turnId") or _text(_child(params, "turn"), "id")
    return f"{_text(params, 'threadId')}/{turn}"


def _index(choice: Fields, place: Place) -> int:
    number = _integer(choice, "index")
    return place.choice if number is None else number


def _is(fields: Fields, key: str, opening: bytes) -> bool:
    return bytes(fields.get(key, b"")).startswith(opening)


def _text(fields: Fields, key: str) -> str:
    return cast("str", loads(bytes(fields[key]))) if _is(fields, key, b'"') else ""


def _integer(fields: Fields, key: str) -> int | None:
    value = cast("object", loads(bytes(fields.get(key, b"null"))))
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _child(fields: Fields, key: str) -> Fields:
    return _object(fields.get(key))


def _object(raw: Raw | None) -> Fields:
    data = bytes(raw or b"")
    return as_object(data) if data.startswith(b"{") else {}


def _array(fields: Fields, key: str) -> list[Raw]:
    return _decode_array(bytes(fields[key])) if _is(fields, key, b"[") else []
