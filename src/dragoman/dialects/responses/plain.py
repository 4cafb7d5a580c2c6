"""The output of a completed response as OpenAI writes it, read by its type alone: messages of text, calls of functions.

Whatever else an output holds does not fit, and the ledger reads it item by item. Where both can read it they say the
same.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, is_strict, typed_decoder
from dragoman.dialects.responses.fields import Fields, is_present
from dragoman.dialects.responses.wire import PREFIXES, RegularCall
from dragoman.model.events import Event, InputDelta, PartEnded, PartStarted, TextDelta
from dragoman.model.parts import Call, Text

__all__ = ("Plain", "read_plain")


class Plain(Struct, frozen=True):
    events: list[Event]
    has_calls: bool


class _Text(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["output_text"]  # as a tag it could be left out: only unions demand one
    text: str
    annotations: tuple[()]
    logprobs: tuple[()] | None = None


class _Message(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="message"):
    id: str
    status: Literal["completed"]
    content: list[_Text]
    role: str = ""


_decode = typed_decoder(list[_Message | RegularCall])
_COMPLETED = b'"completed"'


def read_plain(response: Fields) -> Plain | None:
    """The parts of a completed response; None if a closer look is needed."""
    output = response.get("output")
    if output is None or bytes(response.get("status", b"")) != _COMPLETED:
        return None
    if is_present(response.get("incomplete_details")):
        return None
    try:
        items = _decode(output)
    except FAST_FAILURES:
        return None
    events: list[Event] = []
    call_ids: set[str] = set()
    part = 0
    for item in items:
        if isinstance(item, RegularCall):
            if not _is_regular(item) or item.call_id in call_ids:
                return None
            call_ids.add(item.call_id)
            _tell_call(item, part, events)
            part += 1
            continue
        if not item.id.startswith(PREFIXES["message"]):
            return None
        for text in item.content:
            if not text.text:
                return None
            _tell_text(text.text, item.id, part, events)
            part += 1
    if len({item.id for item in items}) < len(items):
        return None
    return Plain(events, bool(call_ids))


def _is_regular(call: RegularCall) -> bool:
    return (
        call.status == "completed"
        and call.id.startswith(PREFIXES["function_call"])
        and bool(call.call_id)
        and bool(call.name)
        and is_strict(call.arguments)
    )


def _tell_call(call: RegularCall, part: int, events: list[Event]) -> None:
    namespace = call.namespace or None
    header = Call(
        call_id=call.call_id,
        name=call.name,
        namespace=namespace,
        status="in_progress",
        item_id=call.id,
    )
    value = Call(
        call_id=call.call_id,
        name=call.name,
        input=call.arguments,
        namespace=namespace,
        item_id=call.id,
    )
    events += (PartStarted(part, header), InputDelta(part, call.arguments), PartEnded(part, value))


def _tell_text(text: str, item_id: str, part: int, events: list[Event]) -> None:
    header = Text(status="in_progress", item_id=item_id)
    value = Text(text=text, item_id=item_id)
    events += (PartStarted(part, header), TextDelta(part, text), PartEnded(part, value))
