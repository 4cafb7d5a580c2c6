"""The end of a Responses stream, for the store: which response it is, and how it ended.

Where we encode the stream, the encoder notes that itself (`core.journal`). Where the upstream's frames are relayed, it is
read from the last of them; if the response cannot be stored, `fail_relayed` puts a failure in the place of that frame.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps
from dragoman.core.journal import Terminal, TerminalStatus
from dragoman.dialects.responses.errors import failed_fields
from dragoman.dialects.responses.item_writer import JsonObject
from dragoman.dialects.responses.wire import (
    EventOutline,
    ItemHead,
    ResponseHead,
    ResponseOutline,
    decode_event_outline,
    decode_item_head,
    decode_numbered_event,
    decode_response_head,
    decode_response_outline,
)
from dragoman.model.outcome import ErrorInfo
from dragoman.sse import Frame, FrameParser, encode_frame

_TERMINALS: dict[str, TerminalStatus] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_STATUSES: dict[str, TerminalStatus] = {status: status for status in _TERMINALS.values()}
# Sent together with the end; an answer that failed waits for nothing.
_WAITING = "response.required_action"
_DATA = b"\ndata: "
_ID = re.compile(rb'"response"\s*:\s*\{\s*"id"\s*:\s*"([^"\\]+)"')
_LONGEST_HEAD = 1024

# Items that are no calls, and those that always wait for their client.
_PLAIN_ITEMS = frozenset(("message", "reasoning"))
_OPEN_ITEMS = frozenset(("function_call", "custom_tool_call"))


def early_response_id(first: bytes) -> str | None:
    """The id of a response, if the first read of its stream has it where vendors write it. Parses no JSON."""
    found = _ID.search(first, 0, _LONGEST_HEAD)
    return None if found is None else found[1].decode("utf-8", "replace")


def sequence_number(data: bytes | None) -> int | None:
    """The number of an event, from the data of its frame; None if it has none."""
    try:
        return None if data is None else decode_numbered_event(data).sequence_number
    except FAST_FAILURES:
        return None


def read_opening(stream: bytes) -> tuple[str, bytes]:
    """The id of the response that a stream begins with, and the object; both empty if there is none yet."""
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


def status_of(response: JsonObject) -> TerminalStatus:
    """The status of a response object that is about to be written."""
    return _STATUSES[str(response["status"])]


def item_ids(output: Iterable[object]) -> tuple[str, ...]:
    """The ids of the items of a response that is about to be written; those that came from an upstream are `Raw`."""
    ids = [
        decode_item_head(bytes(item)).id if isinstance(item, Raw) else _id_of(item)
        for item in output
    ]
    return tuple([item_id for item_id in ids if item_id])


def _id_of(item: object) -> str:
    item_id = cast("JsonObject", item).get("id") if isinstance(item, dict) else None
    return item_id if isinstance(item_id, str) else ""


def encode_failed(response: JsonObject, number: int, error: ErrorInfo) -> bytes:
    """The failure of a response, in place of the terminal event that these are the fields of."""
    fields = {**response, "status": "failed", "error": failed_fields(error)}
    fields.pop("required_action", None)
    return failed_event(dumps(fields), number)


def _terminal(body: bytes, status: TerminalStatus) -> Terminal | None:
    """`status`: if it says none itself."""
    head: ResponseOutline | ResponseHead | None
    waiting: tuple[str, ...] | None = None
    items: tuple[str, ...] = ()
    try:
        head = decode_response_outline(body)
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


def _waiting(items: Sequence[ItemHead]) -> tuple[str, ...] | None:
    found: list[str] = []
    for item in items:
        if item.type in _PLAIN_ITEMS:
            continue
        if item.type not in _OPEN_ITEMS or bytes(item.execution) or item.status != "completed":
            return None
        found.append(item.call_id)
    return tuple(found)


def fail_relayed(last: bytes, error: ErrorInfo) -> bytes:
    """The upstream's last frames, with a failure in place of the terminal event."""
    return b"".join(_failing(last, error))


def failed_event(body: bytes, number: int) -> bytes:
    """The end of a stream whose response did not get to one: its object, as it is by now."""
    fields = {"type": "response.failed", "response": Raw(body), "sequence_number": number}
    return encode_frame(dumps(fields), b"response.failed")


def change_status(body: bytes, status: str, error: ErrorInfo | None = None) -> bytes:
    """A response object that has come to another end than it says. It waits for nothing any more."""
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


def _event(data: bytes | None) -> EventOutline | None:
    if data is None:
        return None
    try:
        return decode_event_outline(data)
    except FAST_FAILURES:
        return None


def _head(body: bytes) -> ResponseHead | None:
    try:
        return decode_response_head(body)
    except FAST_FAILURES:
        return None
