"""The end of a stream that was written, read once more by whoever keeps it: which response, and how it ended.

A terminal may also be taken back before it leaves: `fail_terminal` writes a failure in its place, under the same number.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps, typed_decoder
from dragoman.core.journal import Terminal, TerminalStatus
from dragoman.dialects.responses.errors import failed_fields
from dragoman.model.outcome import ErrorInfo
from dragoman.sse import Frame, FrameParser, encode_frame

__all__ = (
    "change_status",
    "fail_terminal",
    "failed_event",
    "is_waiting",
    "read_opening",
    "read_terminal",
    "read_whole",
    "written_terminal",
)

_TERMINALS: dict[str, TerminalStatus] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_STATUSES: dict[str, TerminalStatus] = {status: status for status in _TERMINALS.values()}
# Told together with the end; an answer that failed waits for nothing.
_WAITING = "response.required_action"
_DATA = b"\ndata: "


# A field of any JSON: beside `None`, msgspec would take nothing but null.
_NOTHING = Raw(b"")


class _Head(Struct, gc=False):
    id: str = ""
    status: str | None = None
    required_action: Raw = _NOTHING


class _Item(Struct, gc=False):
    id: str = ""
    type: str = ""
    call_id: str = ""
    status: str | None = None
    execution: Raw = _NOTHING


class _Whole(Struct, gc=False):
    id: str = ""
    status: str | None = None
    output: list[_Item] | None = None


class _Event(Struct, gc=False):
    type: str = ""
    sequence_number: int | None = None
    response: Raw = _NOTHING


_read_event: Callable[[bytes], _Event] = typed_decoder(_Event)
_read_head: Callable[[bytes], _Head] = typed_decoder(_Head)
_read_whole: Callable[[bytes], _Whole] = typed_decoder(_Whole)

# Items that are no calls, and those that always wait for their client.
_PLAIN_ITEMS = frozenset(("message", "reasoning"))
_OPEN_ITEMS = frozenset(("function_call", "custom_tool_call"))


def read_opening(stream: bytes) -> tuple[str, bytes]:
    """The id of the response that a stream begins to tell, and the object; both empty if it tells of none yet."""
    for frame in _frames(stream):
        event = _event(frame.data)
        if event is not None and bytes(event.response):
            head = _head(bytes(event.response))
            return ("", b"") if head is None else (head.id, bytes(event.response))
    return "", b""


def read_terminal(last: bytes) -> Terminal | None:
    """The end of a stream whose last frames these are; None if no response ends in them."""
    start = last.rfind(_DATA) + len(_DATA)
    end = last.find(b"\n", start)
    event = _event(last[start:end]) if start >= len(_DATA) and end >= 0 else None
    if event is None or event.type not in _TERMINALS:
        events = [_event(frame.data) for frame in _frames(last)]
        ends = [each for each in events if each is not None and each.type in _TERMINALS]
        event = ends[-1] if ends else None
    if event is None or not bytes(event.response):
        return None
    return _terminal(bytes(event.response), _TERMINALS[event.type])


def read_whole(body: bytes) -> Terminal | None:
    """The same of a body; None if it is no response with an id."""
    return _terminal(body, "completed")


def written_terminal(response: Mapping[str, object], body: bytes) -> Terminal | None:
    """The same of a response object that was just written as these bytes; None if it is to be read from them."""
    waiting: list[str] = []
    items: list[str] = []
    for item in cast("list[dict[str, object]]", response["output"]):
        if type(item) is not dict:
            return None
        kind, item_id = item.get("type"), item.get("id")
        if type(kind) is not str or type(item_id) is not str:
            return None
        items.append(item_id)
        if kind in _PLAIN_ITEMS:
            continue
        call_id = item.get("call_id")
        is_open = kind in _OPEN_ITEMS and item.get("status") == "completed"
        if not is_open or "execution" in item or type(call_id) is not str:
            return None
        waiting.append(call_id)
    status = _STATUSES.get(cast("str", response["status"]))
    if status is None:
        return None
    return Terminal(cast("str", response["id"]), status, body, tuple(waiting), tuple(items))


def _terminal(body: bytes, status: TerminalStatus) -> Terminal | None:
    """`status`: if it says none itself."""
    head: _Whole | _Head | None
    waiting: tuple[str, ...] | None = None
    items: tuple[str, ...] = ()
    try:
        head = _read_whole(body)
        if head.output:
            waiting = _waiting(head.output)
            items = tuple([item.id for item in head.output if item.id])
        else:
            waiting = ()
    except FAST_FAILURES:
        head = _head(body)
    if head is None or not head.id:
        return None
    return Terminal(head.id, _STATUSES.get(head.status or "", status), body, waiting, items)


def _waiting(items: Sequence[_Item]) -> tuple[str, ...] | None:
    found: list[str] = []
    for item in items:
        if item.type in _PLAIN_ITEMS:
            continue
        if item.type not in _OPEN_ITEMS or bytes(item.execution) or item.status != "completed":
            return None
        found.append(item.call_id)
    return tuple(found)


def fail_terminal(last: bytes, error: ErrorInfo) -> bytes:
    """The same frames, but that the response failed."""
    return b"".join(_failing(last, error))


def failed_event(body: bytes, number: int) -> bytes:
    """The end of a stream whose response did not get to one: its object, as it is by now."""
    fields = {"type": "response.failed", "response": Raw(body), "sequence_number": number}
    return encode_frame(dumps(fields), b"response.failed")


def change_status(body: bytes, status: str, error: ErrorInfo | None = None) -> bytes:
    """A response object that has come to another end than it tells. It waits for nothing any more."""
    fields: dict[str, object] = {**as_object(body), "status": status}
    fields.pop("required_action", None)
    if error is not None:
        fields["error"] = failed_fields(error)
    return dumps(fields)


def rename(body: bytes, response_id: str) -> bytes:
    """A response object under another id."""
    return dumps({**as_object(body), "id": response_id})


def is_waiting(body: bytes) -> bool:
    """Whether a response object says that it waits for the results of calls."""
    head = _head(body)
    return head is not None and bytes(head.required_action) not in (b"", b"null")


def _failing(last: bytes, error: ErrorInfo) -> Iterator[bytes]:
    waiting: int | None = None
    for frame in _frames(last):
        event = _event(frame.data)
        if event is None:
            yield frame.raw
        elif event.type == _WAITING:
            waiting = event.sequence_number
        elif event.type in _TERMINALS and bytes(event.response):
            number = event.sequence_number if waiting is None else waiting
            yield failed_event(change_status(bytes(event.response), "failed", error), number or 0)
        else:
            yield frame.raw


def _frames(data: bytes) -> list[Frame]:
    parser = FrameParser(max(len(data), 1))
    return [*parser.feed(data), *parser.close()]


def _event(data: bytes | None) -> _Event | None:
    if data is None:
        return None
    try:
        return _read_event(data)
    except FAST_FAILURES:
        return None


def _head(body: bytes) -> _Head | None:
    try:
        return _read_head(body)
    except FAST_FAILURES:
        return None
