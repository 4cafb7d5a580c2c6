"""Reads from a Responses stream or body what the store needs: the response's id, and how it ended.

Where the gateway encodes the answer, the encoder notes both itself (`core.store_notes`). Where the upstream's frames or
body are relayed, this module reads both from them.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import cast

from msgspec import structs

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps
from dragoman.core.store_notes import AnswerEnd, TerminalStatus
from dragoman.dialects.responses.errors import failed_fields
from dragoman.dialects.responses.item_writer import JsonObject
from dragoman.dialects.responses.wire import (
    EventOutline,
    ResponseHead,
    ResponseOutline,
    decode_event_outline,
    decode_item_head,
    decode_numbered_event,
    decode_response_head,
    decode_response_outline,
)
from dragoman.model.outcome import ErrorInfo
from dragoman.sse import encode_frame, parse_lines

_TERMINALS: dict[str, TerminalStatus] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_STATUSES: dict[str, TerminalStatus] = {status: status for status in _TERMINALS.values()}
_ID = re.compile(rb'"response"\s*:\s*\{\s*"id"\s*:\s*"([^"\\]+)"')
_LONGEST_HEAD = 1024


def early_response_id(first: bytes) -> str | None:
    """Return the id of a response if the first bytes of its stream have it in the usual place. Parses no JSON."""
    found = _ID.search(first, 0, _LONGEST_HEAD)
    return None if found is None else found[1].decode("utf-8", "replace")


def sequence_number(data: bytes | None) -> int | None:
    """Return the number in a frame's data; None if it has none."""
    try:
        return None if data is None else decode_numbered_event(data).sequence_number
    except FAST_FAILURES:
        return None


def read_opening(frame: bytes) -> bytes:
    """Return the response object in the first frame of a stream; b"" if the frame has none."""
    event = _event(frame)
    found = b"" if event is None else bytes(event.response)
    return found if found.startswith(b"{") else b""


def read_end(frame: bytes) -> AnswerEnd | None:
    """Return the end of the stream that this frame ends; None if the frame ends no response."""
    event = _event(frame)
    if event is None or event.type not in _TERMINALS:
        return None
    end = read_body_end(bytes(event.response), _TERMINALS[event.type])
    if end is None:
        return None
    fail = partial(_fail_relayed, end.body, event.sequence_number or 0)
    return structs.replace(end, frames=frame, fail=fail)


def read_body_end(body: bytes, status: TerminalStatus = "completed") -> AnswerEnd | None:
    """Return the end of a body; None if it is not a response with an id. `status`: if the body has none."""
    head: ResponseOutline | ResponseHead | None
    items: tuple[str, ...] = ()
    try:
        head = decode_response_outline(body)
        items = tuple([item.id for item in head.output or () if item.id])
    except FAST_FAILURES:
        head = _head(body)
    if head is None or not head.id:
        return None
    return AnswerEnd(id=head.id, status=status_of(head.status, status), body=body, items=items)


def status_of(said: object, otherwise: TerminalStatus) -> TerminalStatus:
    """Return the status of a response object, or `otherwise` if its status is not a final one."""
    return _STATUSES.get(str(said), otherwise)


def terminal_status(event: str) -> TerminalStatus:
    """Return the status of a response that ends with this event, if its object has none."""
    return _TERMINALS[event]


def item_ids(output: Iterable[object]) -> tuple[str, ...]:
    """Return the ids of the items of an unwritten response; items from an upstream are `Raw`."""
    ids = [_id_of(item) for item in output]
    return tuple([item_id for item_id in ids if item_id])


def _id_of(item: object) -> str:
    if isinstance(item, Raw):
        return decode_item_head(bytes(item)).id
    found = (
        cast("JsonObject", item).get("id") if isinstance(item, dict) else getattr(item, "id", "")
    )
    return found if isinstance(found, str) else ""


def _fail_relayed(body: bytes, number: int, error: ErrorInfo) -> bytes:
    """Return the failure event that replaces the upstream's terminal event."""
    return terminal_event(change_status(body, "failed", error), number)


def terminal_event(body: bytes, number: int) -> bytes:
    """Return the event that ends a stream, with the response object `body`; a failure unless its status says otherwise."""
    head = _head(body)
    status = "failed" if head is None else status_of(head.status, "failed")
    return _snapshot(f"response.{'failed' if status == 'cancelled' else status}", body, number)


def created_event(body: bytes) -> bytes:
    """Return the event that begins a stream, with the response object `body`."""
    return _snapshot("response.created", body, 0)


def _snapshot(name: str, body: bytes, number: int) -> bytes:
    fields = {"type": name, "response": Raw(body), "sequence_number": number}
    return encode_frame(dumps(fields), name.encode("ascii"))


def change_status(body: bytes, status: str, error: ErrorInfo | None = None) -> bytes:
    """Return a response object with another status. Removes `required_action`: the response waits for nothing more."""
    fields: dict[str, object] = {**as_object(body), "status": status}
    fields.pop("required_action", None)
    if error is not None:
        fields["error"] = failed_fields(error)
        fields["completed_at"] = None
    return dumps(fields)


def is_waiting(body: bytes) -> bool:
    """Return whether a response object waits for the results of calls."""
    head = _head(body)
    return head is not None and bytes(head.required_action) not in (b"", b"null")


def has_failed(body: bytes) -> bool:
    """Return whether a response object has the status `failed`."""
    head = _head(body)
    return head is not None and head.status == "failed"


def _event(frame: bytes) -> EventOutline | None:
    try:
        return decode_event_outline(parse_lines(frame).data or b"")
    except FAST_FAILURES:
        return None


def _head(body: bytes) -> ResponseHead | None:
    try:
        return decode_response_head(body)
    except FAST_FAILURES:
        return None
