"""Which events every client can use as they came.

A regular stream begins with `response.created` and its empty output, announces every item and every content part before
its deltas, sends the input of calls as deltas, ends every item, and repeats all of them in `response.completed`. Items
have ids that OpenAI takes back, a place in the output, and a status. `event:` lines, sequence numbers, the `.done`
events of parts and the details of usage are needed by nobody.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.dialects.base import EncodeContext, Look, Mark
from dragoman.dialects.responses.encode import ResponsesEncoder
from dragoman.dialects.responses.wire import (
    KEEPALIVE_EVENTS,
    MAPPED_EVENTS,
    PREFIXES,
    PROGRESS_EVENTS,
    REPEATED_EVENTS,
    STRICT_PREFIXES,
    decode_delta,
)
from dragoman.model.events import Finished
from dragoman.sse import Frame, encode_comment

__all__ = ("ResponsesWatch", "is_regular_body")

_KNOWN_EVENTS = frozenset({*MAPPED_EVENTS, *PROGRESS_EVENTS, *REPEATED_EVENTS})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_WITH_INPUT = frozenset({"function_call", "custom_tool_call"})
_INPUT_DELTAS = frozenset(
    {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
)
_SUMMARY_DELTAS = frozenset({"response.reasoning_summary_text.delta"})
_INDEXED_DELTAS = _SUMMARY_DELTAS | {
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_text.delta",
}
_WITH_STATUS = frozenset({"message", *_WITH_INPUT})
_ITEM_ID = b'"item_id":'
_OUTPUT_INDEX = b'"output_index":'
_ABSENT = Raw(b"null")
_UNKNOWN_HEAD = b"\0"  # no data begins with it


class _Content(Struct):
    type: str
    text: str | None = None
    annotations: list[Raw] | None = None


class _Item(Struct):
    type: str
    id: str
    status: str | None = None
    role: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = (
        _ABSENT  # a string where the client runs the call; some built-in tools have objects
    )
    input: Raw = _ABSENT
    content: list[_Content] | None = None
    summary: list[Raw] | None = None


class _Usage(Struct, gc=False):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class _Failure(Struct, gc=False):
    message: str
    code: str


class _Details(Struct, gc=False):
    reason: str


class _Response(Struct):
    id: str
    created_at: float
    model: str
    output: list[Raw]
    status: str | None = None
    usage: _Usage | None = None
    error: _Failure | None = None
    incomplete_details: _Details | None = None


class _Body(_Response, kw_only=True):
    object: Literal["response"]


# Events, and ends of items, that say again what deltas have told. Items of tools that the provider runs have no deltas.
_REPETITIONS = frozenset(
    {
        "response.content_part.done",
        "response.custom_tool_call_input.done",
        "response.function_call_arguments.done",
        "response.output_text.done",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.done",
        "response.refusal.done",
    }
)
_WITH_DELTAS = frozenset({"custom_tool_call", "function_call", "message", "reasoning"})


class _Event(Struct):
    """Any event; which of these it needs depends on its type. Items are read apart: only some need be so strict."""

    type: str
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item: Raw = _ABSENT
    response: Raw = _ABSENT
    delta: Raw = _ABSENT


class _Named(Struct):
    type: str
    id: str


class _Numbered(Struct, gc=False):
    sequence_number: int


_decode_event = typed_decoder(_Event)
_decode_item = typed_decoder(_Item)
_decode_named = typed_decoder(_Named)
_decode_response = typed_decoder(_Response)
_decode_body = typed_decoder(_Body)
_decode_number = typed_decoder(_Numbered)
_decode_text = typed_decoder(str)


class ResponsesWatch:
    """A `watching.Watch` for Responses."""

    harmless: frozenset[str] = frozenset()
    ending = b""  # nothing stands for the whole output that the last event repeats
    model_path: tuple[str, ...] = ("response", "model")
    has_default_input = False

    def __init__(self, context: EncodeContext) -> None:
        self.encoder = ResponsesEncoder(context)
        self._waits = context.profile == "required_action"  # a profile whose end no upstream has
        self._has_begun = False
        self._id = ""
        self._is_placed = False  # the deltas of the open part say which item they belong to
        self._shown: list[tuple[str, str]] = []  # the items that were announced
        self.is_repetition = False
        self.head = _UNKNOWN_HEAD

    def look(self, frame: Frame, data: bytes) -> Look | None:
        self._is_placed = False
        self.head = _UNKNOWN_HEAD
        try:
            event = _decode_event(data)
            name = frame.name
            if name and name != event.type.encode("utf-8", "replace"):
                return None
            self.is_repetition = event.type in _REPETITIONS
            return self._look_at(event)
        except FAST_FAILURES:
            return None

    def plain(self, data: bytes) -> bytes | None:
        # One item is open at a time, and one program writes its deltas: the first of them stands for all.
        if not self._is_placed:
            self._is_placed = _ITEM_ID in data and _OUTPUT_INDEX in data
            self.head = b"" if self._is_placed else _UNKNOWN_HEAD
        return data if self._is_placed else None

    def input_size(self, data: bytes) -> int:
        return len(decode_delta(data).delta)

    def outline(self, stream: bytes) -> list[Mark]:
        marks: list[Mark] = []
        for piece in stream.split(b"\n\n"):
            _, _, data = piece.partition(b"\ndata: ")
            if data:
                marks += _outline(_decode_event(data))
        return marks

    def catch_up(self) -> bytes:
        return self.encoder.close_message()

    def follow(self, data: bytes) -> None:
        try:
            number = _decode_number(data).sequence_number
        except FAST_FAILURES:
            return  # nobody needs the numbers; where the upstream has none, ours count our own events
        self.encoder.continue_from(number + 1)

    def mend(self, event: Finished) -> Finished:
        return event  # the encoder writes words of its own

    def keep_alive(self) -> bytes:
        # Without a number: the next is the upstream's to give.
        frame = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'
        return frame if self._has_begun else encode_comment("keep-alive")

    def _look_at(self, event: _Event) -> Look | None:
        match event.type:
            case "response.created":
                return self._look_at_start(event)
            case "response.in_progress" | "response.queued":
                return self._look_at_state(event)
            case "response.output_item.added":
                return self._look_at_item(event, is_done=False)
            case "response.output_item.done":
                return self._look_at_item(event, is_done=True)
            case "response.content_part.added" | "response.reasoning_summary_part.added":
                return None if not _is_placed(event) else Look(tuple(_outline(event)))
            case "response.completed" | "response.incomplete":
                return self._look_at_end(event)
            case "response.failed":
                return _look_at_failure(event)
            case "keepalive":
                return Look()
            case "error" | "response.cancelled" | "response.done":
                return None
            case name if name in KEEPALIVE_EVENTS or name not in _KNOWN_EVENTS:
                return Look(is_stray=True)
            case name if name.endswith(".delta") and not name.startswith("response.audio"):
                return _look_at_delta(event)
            case _:
                return Look()

    def _look_at_start(self, event: _Event) -> Look | None:
        response = _decode_response(event.response)
        if response.output or not response.id.startswith("resp_"):
            return None
        self._has_begun = True
        self._id = response.id
        return Look(((0, "created", response.id),), model=response.model)

    def _look_at_state(self, event: _Event) -> Look | None:
        response = _decode_response(event.response)
        if response.id != self._id:
            return None
        return Look(model=response.model)

    def _look_at_item(self, event: _Event, *, is_done: bool) -> Look | None:
        if event.output_index is None:
            return None
        item = _decode_item(event.item)
        if not _is_usable(item, is_done=is_done):
            return None
        self.is_repetition = is_done and item.type in _WITH_DELTAS
        if not is_done:
            self._shown.append((item.type, item.id))
        is_settled = is_done and item.type == "message"
        return Look(tuple(_outline(event)), is_settled=is_settled)

    def _look_at_end(self, event: _Event) -> Look | None:
        response = _decode_response(event.response)
        if response.id != self._id:
            return None
        is_complete = event.type == "response.completed"
        if self._waits and any(kind in _WITH_INPUT for kind, _ in self._shown):
            return None
        if is_complete and response.status not in (None, "completed"):
            return None
        if not is_complete and response.incomplete_details is None:
            return None
        named = [_decode_named(raw) for raw in response.output]
        if [(item.type, item.id) for item in named] != self._shown:
            return None
        return Look(((0, event.type),), model=response.model)


def is_regular_body(data: bytes, _context: EncodeContext) -> bool:
    """Whether every client can use a whole answer as it came, as far as its reader has no objection."""
    try:
        response = _decode_body(data)
        items = [_decode_item(raw) for raw in response.output]
    except FAST_FAILURES:
        return False
    return bool(response.id) and all(
        _is_usable(item, is_done=item.type == "message" or item.status == "completed")
        and (item.type not in STRICT_PREFIXES or item.id.startswith(PREFIXES[item.type]))
        and (item.type != "message" or item.role == "assistant")
        for item in items
    )


def _is_placed(event: _Event) -> bool:
    return bool(event.item_id) and event.output_index is not None


def _is_usable(item: _Item, *, is_done: bool) -> bool:
    """Whether an item has what clients read, and send back."""
    if not item.id or (item.type in _WITH_STATUS and item.status is None):
        return False
    match item.type:
        case "function_call" | "custom_tool_call":
            given = item.arguments if item.type == "function_call" else item.input
            is_named = bool(item.call_id) and bool(item.name)
            is_text = bytes(given)[:1] == b'"'
            if is_done and item.type == "function_call" and bytes(given) == b'""':
                return False  # clients parse it; what a closed call without arguments means is `{}`
            return is_named and is_text and (not is_done or item.status == "completed")
        case "message":
            return (
                item.content is not None
                and (is_done or not item.content)
                and all(
                    part.type != "output_text" or part.annotations is not None
                    for part in item.content
                )
            )
        case "reasoning":
            return item.summary is not None
        case _:
            return True


def _look_at_delta(event: _Event) -> Look | None:
    index = event.summary_index if event.type in _SUMMARY_DELTAS else event.content_index
    if not _is_placed(event) or (event.type in _INDEXED_DELTAS and index is None):
        return None
    said = len(_decode_text(event.delta)) if event.type in _INPUT_DELTAS else 0
    return Look(said=said)


def _look_at_failure(event: _Event) -> Look | None:
    response = _decode_response(event.response)
    if response.error is None or not response.error.message:
        return None
    return Look(is_error=True, model=response.model)


def _outline(event: _Event) -> list[Mark]:
    """The marks of an event, of ours or of one that has been looked at."""
    match event.type:
        case "response.created":
            return [(0, "created", _decode_response(event.response).id)]
        case "response.output_item.added" | "response.output_item.done":
            item = _decode_item(event.item)
            identity = (item.type, item.id, item.call_id, item.name, item.namespace)
            status = (
                item.status if event.type.endswith("done") and item.type in _WITH_STATUS else None
            )
            return [(0, event.type, event.output_index, *identity, status)]
        case "response.content_part.added":
            return [(0, event.type, event.output_index, event.content_index)]
        case "response.reasoning_summary_part.added":
            return [(0, event.type, event.output_index, event.summary_index)]
        case name if name in _ENDS:
            return [(0, name)]
        case _:
            return []
