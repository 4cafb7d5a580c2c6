"""A Responses stream or body for the store: which response it is, and how it ended.

Where we write the answer, the encoder notes that itself (`core.store_notes`). Where the upstream's frames or its body are
passed on, it is read from them here.
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
    """The id of a response, if the first read of its stream has it where vendors write it. Parses no JSON."""
    found = _ID.search(first, 0, _LONGEST_HEAD)
    return None if found is None else found[1].decode("utf-8", "replace")


def sequence_number(data: bytes | None) -> int | None:
    """The number of an event, from the data of its frame; None if it has none."""
    try:
        return None if data is None else decode_numbered_event(data).sequence_number
    except FAST_FAILURES:
        return None


def read_opening(frame: bytes) -> bytes:
    """The response object in the first frame of a stream; nothing if it has none."""
    event = _event(frame)
    found = b"" if event is None else bytes(event.response)
    return found if found.startswith(b"{") else b""


def read_end(frame: bytes) -> AnswerEnd | None:
    """The end of a stream whose terminal event this is; None if no response ends in it."""
    event = _event(frame)
    if event is None or event.type not in _TERMINALS:
        return None
    end = read_body_end(bytes(event.response), _TERMINALS[event.type])
    if end is None:
        return None
    fail = partial(_fail_relayed, end.body, event.sequence_number or 0)
    return structs.replace(end, frames=frame, fail=fail)


def read_body_end(body: bytes, status: TerminalStatus = "completed") -> AnswerEnd | None:
    """The same of a body; None if it is no response with an id. `status`: if it says none itself."""
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
    """The status that a response object has; `otherwise`: if it is none of an answer that is over."""
    return _STATUSES.get(str(said), otherwise)


def terminal_status(event: str) -> TerminalStatus:
    """The status of a response that ends with this event, if its object says no other."""
    return _TERMINALS[event]


def item_ids(output: Iterable[object]) -> tuple[str, ...]:
    """The ids of the items of a response that is about to be written; those that came from an upstream are `Raw`."""
    ids = [_id_of(item) for item in output]
    return tuple([item_id for item_id in ids if item_id])


def _id_of(item: object) -> str:
    if isinstance(item, Raw):
        return decode_item_head(bytes(item)).id
    found = (
        cast("JsonObject", item).get("id") if isinstance(item, dict) else getattr(item, "id", "")
    )
    return found if isinstance(found, str) else ""


def encode_failed(response: JsonObject, number: int, error: ErrorInfo) -> bytes:
    """The failure of a response, in place of the terminal event that these are the fields of."""
    fields = {**response, "status": "failed", "error": failed_fields(error)}
    fields.pop("required_action", None)
    return failed_event(dumps(fields), number)


def _fail_relayed(body: bytes, number: int, error: ErrorInfo) -> bytes:
    """The same where the terminal event was the upstream's."""
    return failed_event(change_status(body, "failed", error), number)


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


def is_waiting(body: bytes) -> bool:
    """Whether a response object says that it waits for the results of calls."""
    head = _head(body)
    return head is not None and bytes(head.required_action) not in (b"", b"null")


def has_failed(body: bytes) -> bool:
    """Whether a response object says that it has failed."""
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
