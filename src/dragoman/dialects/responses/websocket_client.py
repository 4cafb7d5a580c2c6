"""Responses over a WebSocket, from the client's side: the message for a request, what it may leave out, the frames of an answer.

A server remembers the last response of a connection, so a request that goes on with it needs only the items that are new, and
the response's id. A request does so if all its settings equal those of the request before, and its input begins with the input
of that request and the output items of the answer. Both are compared by digests, each made from the one before it:

    states[0] = digest(owner, settings)        states[n + 1] = digest(states[n], item n)

So an answer is remembered in a few bytes, and whoever keeps connections finds the one that a request continues by looking up the
states of the request, the longest first. Items are compared as JSON values, without `id`, `status` and nulls. Of the items that a
model writes only the members that clients send back are compared: Codex and others leave out the rest. Reasoning may be missing,
because clients of other dialects cannot send it back, and the server has it; reasoning that is there must be the server's.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Protocol, TypeVar, cast

from msgspec import Struct

from dragoman._json import Raw, as_object, dumps, dumps_ordered, dumps_text, loads
from dragoman.core.fields import (
    is_object,
    read_int,
    read_json,
    read_list,
    read_object,
    read_text,
)
from dragoman.dialects.responses.wire import KEEPALIVE_EVENTS, TERMINAL_EVENTS
from dragoman.errors import MalformedJson

BETA = "responses_websockets=2026-02-06"
"""The value of `openai-beta` in the handshake."""

LIMIT_REACHED = "websocket_connection_limit_reached"
"""The code of the error for a request on a connection that is too old."""

MAX_REASONING = 4096
"""Items of reasoning that are remembered of one conversation, 20 bytes each; an answer after more of them is not continued."""

MAX_ITEM_BYTES = 256 * 1024
"""An answer with a larger item, such as an image, is not continued: reading the item would block the event loop too long."""

_Item = Mapping[str, object]

_DIGEST_BYTES = 20  # enough that nobody can find two conversations with the same digest
_SERVER_ERROR = 500
# Members of a POST that a message must not have, or that this module writes itself.
_NOT_SENT = frozenset(
    ("type", "stream", "stream_options", "background", "input", "previous_response_id")
)
# Members that say nothing about how a request is answered. Codex names each turn in `client_metadata`.
_NO_SETTINGS = _NOT_SENT | {"client_metadata"}
# A request with one of these continues something else.
_OTHER_STATE = ("previous_response_id", "conversation")
# Members of an item that may be missing when it comes back.
_PASSING = frozenset(("id", "status"))
# What clients send back of the items that a model writes; of other types they send back everything.
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "function_call": ("call_id", "name", "namespace", "arguments"),
    "custom_tool_call": ("call_id", "name", "namespace", "input"),
}
# Headers of a request that move into the message, because headers of a handshake count for the whole connection.
_BY_NAME = "x-codex-"
_BY_PREFIX = "x-openai-internal-codex-"
_PREFIX = "ws_request_header_"
_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-zA-Z0-9_.-]+)"')
_COLON = re.compile(rb"\s*:\s*")
_PLAIN = re.compile(r"[a-zA-Z0-9_.-]+")
# What an HTTP parser would accept: headers about limits are passed on, and a line end in one would begin another.
_HEADER_NAME = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+")
_ITEM_DONE = "response.output_item.done"
_COMPLETED = "response.completed"
_PREVIOUS = b'"previous_response_id"'


class SocketRequest(Struct, frozen=True, kw_only=True):
    """A request for a WebSocket. `states`: the digests before its first item, and after each item.

    reasoning: the digest of each item of reasoning, by its index. The states do not contain reasoning.
    is_alone: it continues something by itself, or has no items: it never continues a connection's response.
    """

    members: bytes
    metadata: Mapping[str, Raw]
    whole_input: bytes | None
    own_previous: bytes | None
    items: list[Raw]
    states: list[bytes]
    reasoning: Mapping[int, bytes]
    is_alone: bool


def read_request(body: bytes, owner: bytes) -> SocketRequest | None:
    """Read the body of a POST. `owner`: only requests of the same owner continue one another.

    Returns None for a request that only a POST can make: one in the background, or one that is not a JSON object.
    """
    try:
        fields = as_object(body)
        if read_json(fields.get("background")) is True:
            return None
        items = _items(fields.get("input"))
        states, reasoning = _states(owner, fields, items or ())
    except MalformedJson:
        return None
    has_metadata = is_object(fields.get("client_metadata"))
    members = [
        dumps_text(name) + b":" + bytes(value)
        for name, value in fields.items()
        if name not in _NOT_SENT and not (has_metadata and name == "client_metadata")
    ]
    given = fields.get("input")
    previous = fields.get("previous_response_id")
    return SocketRequest(
        members=b",".join(members),
        metadata=read_object(fields.get("client_metadata")),
        whole_input=None if given is None else bytes(given),
        own_previous=None if previous is None else bytes(previous),
        items=items or [],
        states=states,
        reasoning=reasoning,
        is_alone=items is None
        or any(read_json(fields.get(name)) is not None for name in _OTHER_STATE),
    )


def create_message(
    request: SocketRequest, headers: Mapping[str, str], known: int = 0, previous: str | None = None
) -> bytes:
    """The message for a request. `headers`: those of its POST. `known`: how many items the response `previous` covers."""
    parts = [b'"type":"response.create"']
    if request.members:
        parts.append(request.members)
    metadata = {**_metadata_of(headers), **request.metadata}
    if metadata:
        parts.append(b'"client_metadata":' + dumps(metadata))
    if previous is not None:
        parts.append(_PREVIOUS + b":" + dumps_text(previous))
        parts.append(b'"input":[%b]' % b",".join(map(bytes, request.items[known:])))
    else:
        if request.own_previous is not None:
            parts.append(_PREVIOUS + b":" + request.own_previous)
        if request.whole_input is not None:
            parts.append(b'"input":' + request.whole_input)
    return b"{%b}" % b",".join(parts)


def is_of_request(header: str) -> bool:
    """Whether a header of a POST belongs to the request, not to the connection that carries it."""
    return header.startswith((_BY_NAME, _BY_PREFIX))


def _without_previous(data: bytes, previous: str) -> bytes:
    """An event that names no previous response. It is not parsed, because the last event may have megabytes."""
    value = dumps_text(previous)
    at = data.find(_PREVIOUS)
    while at >= 0:
        colon = _COLON.match(data, at + len(_PREVIOUS))
        if colon is not None and data.startswith(value, colon.end()):
            return data[: colon.end()] + b"null" + data[colon.end() + len(value) :]
        at = data.find(_PREVIOUS, at + 1)
    return data


class HasAnswer(Protocol):
    """Something that belongs to an answer: a connection."""

    @property
    def answer(self) -> "AnswerState": ...


T = TypeVar("T", bound=HasAnswer)


class AnswerState:
    """What a connection has to know of the answer that it carries. `previous`: the response that it continues.

    response_id: set when the answer is complete.
    """

    __slots__ = ("_id", "_is_alone", "_previous", "_reasoning", "_state", "response_id")

    def __init__(self, request: SocketRequest, previous: str | None = None) -> None:
        self.response_id: str | None = None
        self._id: str | None = None
        self._is_alone = request.is_alone
        self._previous = previous
        self._state = request.states[-1]
        self._reasoning = set(request.reasoning.values())

    @property
    def state(self) -> bytes | None:
        """The state of requests that continue this answer; None if it cannot be continued."""
        if self.response_id is None or self._is_alone or len(self._reasoning) > MAX_REASONING:
            return None
        return self._state

    def has_reasoning_of(self, request: SocketRequest, count: int) -> bool:
        """Whether the reasoning in the first `count` items of a request, and right behind them, is of this conversation."""
        for number, digest in request.reasoning.items():
            if digest not in self._reasoning:
                return number > count and request.states[number] != request.states[count]
        return True

    def take(self, kind: str, data: bytes) -> bytes:
        """Read one event, and return it as a POST would be answered.

        The client has not asked to continue a response, so the answer does not name one.
        """
        is_short = len(data) <= MAX_ITEM_BYTES
        if kind == _ITEM_DONE:
            self._take_item(read_json(read_object(data).get("item")) if is_short else None)
            return data
        if self._id is None and is_short:
            response = read_object(read_object(data).get("response"))
            self._id = read_text(response.get("id")) or None
        if kind == _COMPLETED:
            self.response_id = self._id
        return data if self._previous is None else _without_previous(data, self._previous)

    def _take_item(self, item: object) -> None:
        if not isinstance(item, dict):
            self._is_alone = True
            return
        form, is_reasoning = _form_of(cast("_Item", item))
        digest = _digest(self._state, form)
        if is_reasoning:
            self._reasoning.add(digest)
        else:
            self._state = digest


def find_continued(request: SocketRequest, answers: Mapping[bytes, T]) -> tuple[int, T] | None:
    """The answer that a request goes on with, and how many of the request's items come before what is new.

    answers: what belongs to an answer, by the answer's `state`.
    """
    count = 0 if request.is_alone else len(request.items) - 1  # at least one item is new
    while count > 0:
        state = request.states[count]
        found = answers.get(state)
        if found is not None and found.answer.has_reasoning_of(request, count):
            return count, found
        while count > 0 and request.states[count] == state:  # items of reasoning have one state
            count -= 1
    return None


class ErrorFrame(Struct, frozen=True):
    """A frame of type `error`, as the answer to a POST."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    code: str | None


def read_error_frame(data: bytes) -> ErrorFrame:
    """Read a frame of type `error`: `{"type", "status", "error", "headers"}`, or flat, without `error`."""
    fields = read_object(data)
    nested = read_object(fields.get("error"))
    error = nested or {name: value for name, value in fields.items() if name != "type"}
    stated = read_int(fields.get("status")) or read_int(fields.get("status_code"))
    status = stated if stated is not None and 400 <= stated <= 599 else _SERVER_ERROR
    headers = [
        (name.lower().encode("ascii"), _shown(value).encode("latin-1", "replace"))
        for name, value in read_object(fields.get("headers")).items()
        if _HEADER_NAME.fullmatch(name) and _shown(value).isprintable()
    ]
    code = read_text(error.get("code"))
    return ErrorFrame(status, tuple(headers), dumps({"error": error}), code)


def event_type(data: bytes) -> str:
    """The `type` of a frame; empty if it has none, or one that a line of an event cannot carry."""
    found = _TYPE.match(data)
    if found is not None:
        return found[1].decode("ascii")
    kind = read_text(read_object(data).get("type")) or ""
    return kind if _PLAIN.fullmatch(kind) else ""


def is_keep_alive(kind: str) -> bool:
    return kind in KEEPALIVE_EVENTS


def is_last(kind: str) -> bool:
    """Whether nothing of the answer follows an event of this type."""
    return kind in TERMINAL_EVENTS


def is_noted(kind: str) -> bool:
    """Whether `AnswerState.take` has to see an event of this type: those with an item or the whole response."""
    return kind == _ITEM_DONE or kind.count(".") == 1


def sse_frame(kind: str, data: bytes) -> bytes:
    """A frame as a server-sent event. JSON has line ends only between its tokens."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    line = b"event: %b\n" % kind.encode("ascii") if kind else b""
    return b"%bdata: %b\n\n" % (line, data)


def _items(value: Raw | None) -> list[Raw] | None:
    """The items of an input; a string stands for one message."""
    text = read_text(value)
    if text is None:
        return read_list(value)
    return [Raw(dumps({"role": "user", "content": text}))]


def _states(
    owner: bytes, fields: Mapping[str, Raw], items: Iterable[Raw]
) -> tuple[list[bytes], dict[int, bytes]]:
    settings = {
        name: value
        for name, raw in fields.items()
        if name not in _NO_SETTINGS and (value := loads(bytes(raw))) is not None
    }
    state = _digest(owner, dumps_ordered(settings))
    states = [state]
    reasoning: dict[int, bytes] = {}
    for number, raw in enumerate(items):
        form, is_reasoning = _form_of(loads(bytes(raw)))
        digest = _digest(state, form)
        if is_reasoning:
            reasoning[number] = digest
        else:
            state = digest
        states.append(state)
    return states, reasoning


def _digest(state: bytes, form: bytes) -> bytes:
    return blake2b(state + form, digest_size=_DIGEST_BYTES).digest()


def _form_of(item: object) -> tuple[bytes, bool]:
    """The bytes that are equal for equal items, and whether the item is reasoning."""
    if not isinstance(item, dict):
        return dumps_ordered(item), False
    fields = cast("_Item", item)
    kind = fields.get("type") or ("message" if "role" in fields else None)
    if kind == "reasoning":
        sealed = fields.get("encrypted_content")
        said = [fields.get("summary") or None, fields.get("content") or None]
        return dumps_ordered({"reasoning": sealed or said}), True
    if kind == "message":
        return dumps_ordered(_message(fields)), False
    wanted = _WRITTEN.get(str(kind))
    if wanted is None:
        kept = {name: value for name, value in fields.items() if _stays(name, value)}
        return dumps_ordered(kept), False
    call = {name: fields[name] for name in wanted if fields.get(name) is not None}
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        call["arguments"] = _parsed(arguments)
    return dumps_ordered({"type": kind, **call}), False


def _parsed(text: str) -> object:
    """JSON as a value: clients that keep arguments as an object write them again. Other text as it is."""
    try:
        return {"json": cast("object", loads(text))}
    except MalformedJson:
        return text


def _message(fields: _Item) -> dict[str, object]:
    content = fields.get("content")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    if fields.get("role") == "assistant" and isinstance(content, list):
        parts = cast("list[object]", content)
        return {"role": "assistant", "content": [_written_part(part) for part in parts]}
    kept = {name: value for name, value in fields.items() if _stays(name, value)}
    return {**kept, "type": "message", "content": content}


def _written_part(part: object) -> object:
    """A part of a message that the model wrote: its text, without citations and probabilities."""
    if not isinstance(part, dict):
        return part
    fields = cast("_Item", part)
    for name in ("text", "refusal"):
        if isinstance(fields.get(name), str):
            return {name: fields[name]}
    return fields


def _stays(name: str, value: object) -> bool:
    return value is not None and name not in _PASSING


def _metadata_of(headers: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_BY_NAME):
            found[name] = value
        elif name.startswith(_BY_PREFIX):
            found[_PREFIX + name.replace("-", "_")] = value
    return found


def _shown(value: Raw) -> str:
    text = read_text(value)
    return bytes(value).decode("utf-8", "replace") if text is None else text
