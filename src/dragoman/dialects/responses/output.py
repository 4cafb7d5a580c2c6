"""Reads the output of an answer: its items, and the parts that each item becomes.

Every method handles one wire event that is already split into arguments. Whatever the order of the wire's events, the
emitted events keep to the grammar (`core.open_parts`).

A text that the wire has closed (`output_text.done`) ends with its item, because only the item says whether the text is
complete; or when another part starts, so that no part waits for an item that never ends.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.fields import Fields, extra_of, read_list, read_object, read_text
from dragoman.core.open_parts import OpenReasoning, OpenText, Parts
from dragoman.core.open_wholes import OpenMedia, OpenWhole
from dragoman.dialects.responses.calls import OutputCalls
from dragoman.dialects.responses.content import read_content
from dragoman.dialects.responses.items import ItemPart, find_call_id, find_name, read_item
from dragoman.dialects.responses.open_items import OpenItem, OpenItems
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    FUNCTION_LIKE,
    MESSAGE_FIELDS,
    OPAQUE_ITEMS,
    PART_STATUS,
    PREFIXES,
    REFUSAL_DELTA,
    RESULT_ITEMS,
    STRICT_PREFIXES,
    TEXT_DELTA,
)
from dragoman.model.parts import Media, Opaque, PartStatus, Reasoning, Refusal, Result, Text

CLIENT_INPUT = frozenset({"function_call", "custom_tool_call", "message"})
"""The items that a client call's input may belong to. Backends confuse the kinds, and put calls in messages."""

_KNOWN_ITEMS = frozenset({"message", "reasoning", *CALL_ITEMS, *RESULT_ITEMS, *OPAQUE_ITEMS})


class OutputReader:
    """Reads the output of one answer."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.items = OpenItems(parts.problems)
        self.calls = OutputCalls(parts, self.items)
        self._sound: OpenMedia | None = None
        self._open_sound: set[str] = set()  # the streams of the audio that are not closed yet

    # --- items -------------------------------------------------------------------------------------------------------

    def announce(
        self, raw_item: Raw, index: int | None, *, is_complete: bool = False
    ) -> OpenItem | None:
        """Handle `output_item.added`. is_complete: the item's end follows at once, with its content."""
        fields = read_object(raw_item)
        kind = _kind(fields)
        item_id = read_text(fields.get("id")) or None
        if not kind:
            self.parts.report("malformed_item", "expected an item with a type")
            return None
        item = self.items.claim(item_id, index, _compatible(kind))
        if item is not None and item.announced and (not item.done or _is_same_call(item, fields)):
            self.items.note(item, "repeated_item", f"expected each item once, got {kind} again")
            return item
        if item is None or item.done:
            item = self.items.put(kind, item_id, index)
        item.announced = True
        if kind in _KNOWN_ITEMS or not item.calls:
            item.type = kind  # an item with an unknown type that has taken input stays a call
        item.id = item.id or item_id
        self._inspect(item, item_id, fields)
        self._open(item, raw_item, fields)
        if kind == "message" and not is_complete:
            for number, entry in enumerate(read_list(fields.get("content")) or ()):
                self.open_part(item, number, entry)
        return item

    def conclude(self, raw_item: Raw, index: int | None) -> None:
        """Handle `output_item.done`."""
        fields = read_object(raw_item)
        kind = _kind(fields)
        item_id = read_text(fields.get("id")) or None
        item = self.items.claim(item_id, index, _compatible(kind)) if kind else None
        if item is not None and item.done:
            self.items.note(item, "repeated_item", f"expected one end of an item, got {kind} again")
            self._finish_waiting(item, raw_item, fields)
            return
        if item is None or not item.announced:
            message = f"expected output_item.added before the end of {kind or 'an item'}"
            self.parts.report("missing_added", message)
            item = self._announce_late(raw_item, index)
        elif item.type != kind and item.is_empty:
            item.type = kind
            self._open(item, raw_item, fields)
        if item is not None:
            self._finish(item, raw_item, fields)

    def _announce_late(self, raw_item: Raw, index: int | None) -> OpenItem | None:
        """Announce an item that is already complete. Its caller has reported it, so its input is not reported as late."""
        is_body, self.items.is_body = self.items.is_body, True
        item = self.announce(raw_item, index, is_complete=True)
        if item is not None:
            for call in item.calls:
                call.streams = False
        self.items.is_body = is_body
        return item

    def _finish(
        self, item: OpenItem, raw_item: Raw, fields: Fields, default: PartStatus = "completed"
    ) -> None:
        """End the parts of a finished item. `default`: the status if the item has none."""
        item.done = True
        said = PART_STATUS.get(read_text(fields.get("status")) or "", "in_progress")
        status = default if said == "in_progress" else said
        if item.type == "message":
            self._finish_message(item, fields, status)
        elif item.calls:
            self._finish_calls(item, raw_item, fields, status)
        else:
            value = read_item(raw_item, fields, executor="provider")
            if item.reasoning is not None and not item.reasoning.has_ended:
                known = value if isinstance(value, Reasoning) else None
                item.reasoning.end(status, known)
            if item.whole is not None and not item.whole.has_ended:
                self._end_whole(item.whole, value, status)

    def _finish_calls(
        self, item: OpenItem, raw_item: Raw, fields: Fields, status: PartStatus
    ) -> None:
        inner = _calls_within(fields)
        if not inner and item.type in CALL_ITEMS:
            self.calls.finish(item, raw_item, fields, status)
            return
        for call, entry in zip(self.calls.match_inner(item, inner), inner, strict=True):
            self.calls.finish_inner(item, call, entry, is_only=len(inner) == 1)

    def _finish_waiting(self, item: OpenItem, raw_item: Raw, fields: Fields) -> None:
        """Read a repetition of a finished item: the calls that wait for their arguments may have them now."""
        if any(call.finished is not None and not call.open.has_ended for call in item.calls):
            self._finish_calls(item, raw_item, fields, "completed")

    def _open(self, item: OpenItem, raw_item: Raw, fields: Fields) -> None:
        if item.type == "message":
            item.extra = extra_of("responses", fields, MESSAGE_FIELDS)
        elif item.type in CALL_ITEMS:
            self.calls.open(item, raw_item, fields)
        else:
            self._open_other(item, read_item(raw_item, fields, executor="provider"))

    def _open_other(self, item: OpenItem, value: ItemPart) -> None:
        match value:
            case Reasoning():
                self.reasoning(item, value)
            case Result():
                item.whole = OpenWhole(self.parts, replace(value, status="in_progress"))
            case Opaque():
                item.whole = OpenWhole(self.parts, value)
            case _:
                raise AssertionError("calls are opened elsewhere")

    def _inspect(self, item: OpenItem, item_id: str | None, fields: Fields) -> None:
        """Report deviations that can be read but that clients fail on."""
        kind = item.type
        if not item_id:
            self.items.note(item, "missing_id", f"expected an id in the {kind} item")
        elif kind in STRICT_PREFIXES and not item_id.startswith(PREFIXES[kind]):
            self.items.note(
                item,
                "foreign_item_id",
                f"expected an id that begins with {PREFIXES[kind]}, got {item_id!r}",
            )
        if kind in ("message", "function_call") and "status" not in fields:
            self.items.note(item, "missing_status", f"expected a status in the {kind} item")

    # --- messages ----------------------------------------------------------------------------------------------------

    def text(self, item: OpenItem, index: int, header: Text | Refusal) -> OpenText:
        """Return the text at a place of a message; start it if it is new."""
        text = item.texts.get(index)
        if text is not None and type(text.header) is type(header):
            return text
        if text is not None and not text.has_ended:
            text.end("completed")
        text = OpenText(self.parts, replace(header, item_id=item.id, item_extra=item.extra))
        item.texts[index] = text
        self.stream_text(item, item.id, text, index)
        return text

    def stream_text(self, item: OpenItem, item_id: str | None, text: OpenText, index: int) -> None:
        wire = REFUSAL_DELTA if text.is_refusal else TEXT_DELTA
        self.items.stream(item, item_id, text, wire, index)

    def open_part(self, item: OpenItem, index: int, entry: Raw) -> None:
        """Handle `content_part.added`, or an entry of an announced message. Parts other than text are read at the end."""
        fields = read_object(entry)
        if read_text(fields.get("type")) in FUNCTION_LIKE:
            self.calls.open_inner(item, fields)
            return
        part = read_content(entry, fields, item_id=item.id, item_extra=item.extra)
        if isinstance(part, (Text, Refusal)):
            self.text(item, index, part).early = part.text

    def close_part(self, item: OpenItem, index: int, entry: Raw) -> None:
        """Handle `content_part.done`."""
        part = read_content(entry, read_object(entry), item_id=item.id, item_extra=item.extra)
        if isinstance(part, (Text, Refusal)):
            self.close_text(self.text(item, index, part), part.text, part)

    def close_text(self, text: OpenText, whole: str, value: Text | Refusal | None = None) -> None:
        """Handle `output_text.done` and `refusal.done`."""
        if text.has_ended:
            return
        text.value = value or text.value
        text.complete(whole)
        self.parts.end_before_next(text)

    def _finish_message(self, item: OpenItem, fields: Fields, status: PartStatus) -> None:
        item.extra = extra_of("responses", fields, MESSAGE_FIELDS) or item.extra
        calls = self.calls.match_inner(item, _calls_within(fields))
        matches = iter(calls)
        for number, entry in enumerate(read_list(fields.get("content")) or ()):
            part = read_object(entry)
            if read_text(part.get("type")) in FUNCTION_LIKE:
                self.calls.finish_inner(item, next(matches), part, is_only=len(calls) == 1)
                continue
            value = read_content(entry, part, item_id=item.id, item_extra=item.extra)
            if isinstance(value, (Text, Refusal)):
                self._inspect_text(item, value, part)
                self.close_text(self.text(item, number, value), value.text, value)
            else:
                self.parts.add_whole(value)
        for text in item.texts.values():
            if not text.has_ended:
                text.end(status)
        self.calls.finish_rest(item, status)

    def _inspect_text(self, item: OpenItem, value: Text | Refusal, fields: Fields) -> None:
        if isinstance(value, Text) and "annotations" not in fields:
            self.items.note(item, "missing_annotations", "expected annotations in output_text")

    # --- reasoning, audio, whole items -----------------------------------------------------------------------------------

    def reasoning(self, item: OpenItem, header: Reasoning | None = None) -> OpenReasoning:
        """Return the reasoning of an item; start it if it is new."""
        if item.reasoning is None:
            value = Reasoning(item_id=item.id) if header is None else header
            item.reasoning = OpenReasoning(self.parts, value)
        return item.reasoning

    def _end_whole(self, whole: OpenWhole, value: ItemPart | None, status: PartStatus) -> None:
        whole.end(status, value)
        if isinstance(whole.value, Result):
            self.calls.answer(whole.value.call_id)

    def sound(self, data: str, transcript: str) -> None:
        """Handle `audio.delta` and `audio.transcript.delta`. Audio belongs to no item."""
        if self._sound is None or self._sound.has_ended:
            self._sound = OpenMedia(self.parts, Media(kind="audio"))
            self._open_sound = {"data", "transcript"}
        self._sound.add(data, transcript)

    def close_sound(self, what: str) -> None:
        if self._sound is not None and not self._sound.has_ended:
            self._open_sound.discard(what)
            if not self._open_sound:
                self._sound.end("completed")

    # --- the end -----------------------------------------------------------------------------------------------------

    def settle(self, output: Sequence[Raw], status: PartStatus = "completed") -> None:
        """Read the final output. Streamed items stay as emitted; items that were not streamed are emitted now.

        status: the answer's status, which a message or a call without a status of its own takes over.
        """
        if not output and self.items.items:
            self.items.report_in_stream(
                "empty_output", "expected the output again at the end, got none"
            )
        streamed = len(self.items.items)
        self.calls.is_final = True
        for position, entry in enumerate(output):
            fields = read_object(entry)
            item = self.items.match(position, fields) if streamed else None
            if item is None:
                self.items.report_in_stream(
                    "unstreamed_item",
                    f"expected output {position} in the stream, got it only at the end",
                )
                item = self._announce_late(entry, None)
                if item is not None:
                    item.matched = True
                    self._finish(item, entry, fields, _no_better(item, status))
            elif not item.done:
                if status == "completed":
                    self._note_unfinished(item)
                self._finish(item, entry, fields, _no_better(item, status))
            else:
                self._finish_waiting(item, entry, fields)
                for call in item.calls[:1]:
                    self.calls.compare_input(call, fields)

    def close(self, status: PartStatus, *, is_failure: bool = False) -> None:
        """End every open part."""
        for item in self.items.items:
            if not item.done and status == "completed":
                self._note_unfinished(item)
            for text in item.texts.values():
                if not text.has_ended:
                    text.end(status)
            if item.reasoning is not None and not item.reasoning.has_ended:
                item.reasoning.end(status)
            if item.whole is not None and not item.whole.has_ended:
                self._end_whole(item.whole, None, status)
            for call in item.calls:
                if not call.open.has_ended:
                    self.calls.close(item, call, status, is_failure=is_failure)
                elif call.late and not is_failure:
                    self.calls.close_late(call, "")
        if self._sound is not None and not self._sound.has_ended:
            self._sound.end(status)

    @property
    def has_open_input(self) -> bool:
        """Whether a call has begun that the wire has not closed."""
        return any(
            not call.open.has_ended and not call.closed
            for item in self.items.items
            for call in item.calls
        )

    def _note_unfinished(self, item: OpenItem) -> None:
        self.items.note(item, "missing_done", f"expected output_item.done for the {item.type} item")


def _kind(fields: Fields) -> str:
    """Return an item's type: the four names of a call are one type, and an item that only holds calls is a message."""
    kind = read_text(fields.get("type")) or ""
    is_call = kind in FUNCTION_LIKE
    if (is_call and find_name(fields)) or (kind in _KNOWN_ITEMS and not is_call):
        return kind if not is_call else "function_call"
    if _calls_within(fields):
        return "message"
    return "function_call" if is_call else kind


def _calls_within(fields: Fields) -> list[Fields]:
    """Return the calls in an item's content."""
    entries = map(read_object, read_list(fields.get("content")) or ())
    return [entry for entry in entries if read_text(entry.get("type")) in FUNCTION_LIKE]


def _compatible(kind: str) -> frozenset[str]:
    """Return the types that an item may have had before it was announced as `kind`."""
    return CLIENT_INPUT if kind in CLIENT_INPUT else frozenset({kind})


def _no_better(item: OpenItem, status: PartStatus) -> PartStatus:
    if any(call.closed for call in item.calls):
        return "completed"
    return status if item.calls or item.type == "message" else "completed"


def _is_same_call(item: OpenItem, fields: Fields) -> bool:
    """Return whether an item is a call that was already emitted, which must not run twice."""
    call_id = find_call_id(fields)
    return bool(call_id) and any(call.open.header.call_id == call_id for call in item.calls)
