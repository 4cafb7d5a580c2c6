"""The items of an answer becoming parts: started, told, ended, each once.

Every method takes one event of the wire, already taken apart, and tells what it means. Whatever the order of events,
what is told stays grammatical: parts are numbered as they start, a call starts when its name is known, and nothing is
said of a part after its end.

A text that the wire has closed (`output_text.done`) ends when its item does, because only the item says whether it is
complete; or when another part starts, so that nothing waits for an item that never ends.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.responses.callbook import CallBook
from dragoman.dialects.responses.content import read_content
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    find_call_id,
    read_list,
    read_object,
    read_text,
)
from dragoman.dialects.responses.items import ItemPart, read_item
from dragoman.dialects.responses.shelf import Item, Shelf
from dragoman.dialects.responses.telling import Telling
from dragoman.dialects.responses.tracks import (
    Found,
    ReasoningTrack,
    SoundTrack,
    TextTrack,
    WholeTrack,
)
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    FUNCTION_LIKE,
    MESSAGE_FIELDS,
    OPAQUE_ITEMS,
    PART_STATUS,
    PREFIXES,
    RESULT_ITEMS,
    STRICT_PREFIXES,
)
from dragoman.model.events import PartEnded
from dragoman.model.parts import Media, Opaque, PartStatus, Reasoning, Refusal, Result, Text

__all__ = ("CLIENT_INPUT", "Ledger")

CLIENT_INPUT = frozenset({"function_call", "custom_tool_call", "message"})
"""The items that input of a client's call may belong to. Backends confuse the kinds, and put calls in messages."""

_KNOWN_ITEMS = frozenset({"message", "reasoning", *CALL_ITEMS, *RESULT_ITEMS, *OPAQUE_ITEMS})


class Ledger:
    """The parts of one answer."""

    def __init__(self, context: DecodeContext, found: Found) -> None:
        self.telling = Telling(found)
        self.telling.seed = context.seed
        self.shelf = Shelf(found)
        self.calls = CallBook(context, self.telling)
        self._found = found
        self._sound: SoundTrack | None = None

    # --- items -------------------------------------------------------------------------------------------------------

    def announce(
        self, raw_item: Raw, index: int | None, *, is_complete: bool = False
    ) -> Item | None:
        """`output_item.added`. `is_complete`: the item's end follows at once, with its content."""
        fields = read_object(raw_item)
        kind = _kind(fields)
        item_id = read_text(fields, "id") or None
        if not kind:
            self._found.append(("malformed_item", "expected an item with a type"))
            return None
        item = self.shelf.claim(item_id, index, _compatible(kind))
        if item is not None and item.announced and (not item.done or _is_same_call(item, fields)):
            self.shelf.note(item, "repeated_item", f"expected each item once, got {kind} again")
            return item
        if item is None or item.done:
            item = self.put(kind, item_id, index)
        item.announced = True
        if kind in _KNOWN_ITEMS or not item.calls:
            item.type = kind  # but what takes input is a call, by whatever name
        item.id = item.id or item_id
        self._inspect(item, item_id, fields)
        self._open(item, raw_item, fields)
        if kind == "message" and not is_complete:
            for number, entry in enumerate(read_list(fields.get("content")) or ()):
                self.open_part(item, number, entry)
        return item

    def put(self, kind: str, item_id: str | None, index: int | None) -> Item:
        """A new item. Where two share an id, deltas can no longer go by it alone."""
        item = self.shelf.put(kind, item_id, index)
        if item.is_shared:
            self.telling.live.pop(item_id, None)
        return item

    def conclude(self, raw_item: Raw, index: int | None) -> None:
        """`output_item.done`."""
        fields = read_object(raw_item)
        kind = _kind(fields)
        item_id = read_text(fields, "id") or None
        item = self.shelf.claim(item_id, index, _compatible(kind)) if kind else None
        if item is not None and item.done:
            self.shelf.note(item, "repeated_item", f"expected one end of an item, got {kind} again")
            return
        if item is None or not item.announced:
            self._found.append(
                (
                    "missing_added",
                    f"expected output_item.added before the end of {kind or 'an item'}",
                )
            )
            item = self._announce_late(raw_item, index)
        elif item.type != kind and item.is_empty:
            item.type = kind
            self._open(item, raw_item, fields)
        if item is not None:
            self._finish(item, raw_item, fields)

    def _announce_late(self, raw_item: Raw, index: int | None) -> Item | None:
        """Announce what is already complete. That was reported; its input is not also early and late."""
        is_body, self.telling.is_body = self.telling.is_body, True
        item = self.announce(raw_item, index, is_complete=True)
        if item is not None:
            for track in item.calls:
                track.streams = False
        self.telling.is_body = is_body
        return item

    def _finish(
        self, item: Item, raw_item: Raw, fields: Fields, default: PartStatus = "completed"
    ) -> None:
        """The item is complete, as far as it will ever be. `default`: where it does not say how far."""
        item.done = True
        said = PART_STATUS.get(read_text(fields, "status") or "", "in_progress")
        status = default if said == "in_progress" else said
        if item.type == "message":
            self._finish_message(item, fields, status)
        elif item.calls:
            self.calls.finish(item, raw_item, fields, status)
        else:
            value = read_item(raw_item, fields, executor="provider")
            if item.reasoning is not None and not item.reasoning.ended:
                known = value if isinstance(value, Reasoning) else None
                self.telling.out += item.reasoning.end(known, status, self._found)
            if item.whole is not None and not item.whole.ended:
                self._end_whole(item.whole, value, status)

    def _open(self, item: Item, raw_item: Raw, fields: Fields) -> None:
        if item.type == "message":
            item.extra = extra_of(fields, MESSAGE_FIELDS)
        elif item.type in CALL_ITEMS:
            self.calls.open(item, raw_item, fields)
        else:
            self._open_other(item, read_item(raw_item, fields, executor="provider"))

    def _open_other(self, item: Item, value: ItemPart) -> None:
        match value:
            case Reasoning():
                self.reasoning(item, value)
            case Result():
                header = replace(value, status="in_progress")
                item.whole = WholeTrack(self.telling.start(header), header)
            case Opaque():
                item.whole = WholeTrack(self.telling.start(value), value)
            case _:
                raise AssertionError("calls have a book of their own")

    def _inspect(self, item: Item, item_id: str | None, fields: Fields) -> None:
        """What clients stumble over although it can be read."""
        kind = item.type
        if not item_id:
            self.shelf.note(item, "missing_id", f"expected an id in the {kind} item")
        elif kind in STRICT_PREFIXES and not item_id.startswith(PREFIXES[kind]):
            self.shelf.note(
                item,
                "foreign_item_id",
                f"expected an id that begins with {PREFIXES[kind]}, got {item_id!r}",
            )
        if kind in ("message", "function_call") and "status" not in fields:
            self.shelf.note(item, "missing_status", f"expected a status in the {kind} item")

    # --- messages ----------------------------------------------------------------------------------------------------

    def text(self, item: Item, index: int, header: Text | Refusal) -> TextTrack:
        """The text at a place of a message, started if it is new."""
        track = item.texts.get(index)
        if track is not None and type(track.header) is type(header):
            return track
        if track is not None and not track.ended:
            self.telling.out += track.end("completed", self._found)
        header = replace(
            header,
            text="",
            logprobs=None,
            status="in_progress",
            item_id=item.id,
            item_extra=item.extra,
        )
        if isinstance(header, Text):
            header = replace(header, annotations=())
        track = TextTrack(self.telling.start(header), header, index)
        item.texts[index] = track
        if not item.is_shared:
            self.telling.live[item.id] = track
        return track

    def open_part(self, item: Item, index: int, entry: Raw) -> None:
        """`content_part.added`, or an entry of an announced message. Others than text come whole, at the end."""
        fields = read_object(entry)
        if read_text(fields, "type") in FUNCTION_LIKE:
            self.calls.open_inner(item, fields)
            return
        part = read_content(entry, fields, item_id=item.id, item_extra=item.extra)
        if isinstance(part, Text | Refusal):
            self.text(item, index, part).early = part.text

    def close_part(self, item: Item, index: int, entry: Raw) -> None:
        """`content_part.done`."""
        part = read_content(entry, read_object(entry), item_id=item.id, item_extra=item.extra)
        if isinstance(part, Text | Refusal):
            self.close_text(self.text(item, index, part), part.text, part)

    def close_text(self, track: TextTrack, text: str, value: Text | Refusal | None = None) -> None:
        """`output_text.done`, `refusal.done`."""
        if track.ended:
            return
        track.value = value or track.value
        self.telling.out += track.top_up(text)
        self.telling.end_before_next(track)

    def _finish_message(self, item: Item, fields: Fields, status: PartStatus) -> None:
        item.extra = extra_of(fields, MESSAGE_FIELDS) or item.extra
        inner = 0
        for number, entry in enumerate(read_list(fields.get("content")) or ()):
            part = read_object(entry)
            if read_text(part, "type") in FUNCTION_LIKE:
                self.calls.finish_inner(item, inner, part)
                inner += 1
                continue
            value = read_content(entry, part, item_id=item.id, item_extra=item.extra)
            if isinstance(value, Text | Refusal):
                self._inspect_text(item, value, part)
                self.close_text(self.text(item, number, value), value.text, value)
            else:
                self.telling.out.append(PartEnded(self.telling.start(value), value))
        for track in item.texts.values():
            if not track.ended:
                self.telling.out += track.end(status, self._found)
        for call in item.calls:
            if call.is_started and not call.ended:
                self.calls.end(call, status, None)

    def _inspect_text(self, item: Item, value: Text | Refusal, fields: Fields) -> None:
        if isinstance(value, Text) and "annotations" not in fields:
            self.shelf.note(item, "missing_annotations", "expected annotations in output_text")

    # --- reasoning, sound, what comes whole --------------------------------------------------------------------------

    def reasoning(self, item: Item, header: Reasoning | None = None) -> ReasoningTrack:
        """The reasoning of an item, started if it is new."""
        if item.reasoning is None:
            value = Reasoning(item_id=item.id) if header is None else header
            value = replace(value, summary=(), content=(), seals=(), status="in_progress")
            item.reasoning = ReasoningTrack(self.telling.start(value), value)
        return item.reasoning

    def _end_whole(self, track: WholeTrack, value: object, status: PartStatus) -> None:
        known = value if isinstance(value, Opaque | Result) else None
        self.telling.out += track.end(status, known)
        if isinstance(track.header, Result):
            self.calls.answer(track.header.call_id)

    def sound(self, data: str, transcript: str) -> None:
        """`audio.delta`, `audio.transcript.delta`."""
        if self._sound is None or self._sound.ended:
            header = Media(kind="audio", status="in_progress")
            self._sound = SoundTrack(self.telling.start(header))
        self.telling.out += self._sound.push(data, transcript)

    def close_sound(self, what: str) -> None:
        track = self._sound
        if track is not None and not track.ended:
            track.waiting.discard(what)
            if not track.waiting:
                self.telling.out += track.end("completed")

    # --- the end -----------------------------------------------------------------------------------------------------

    def settle(self, output: Sequence[Raw], status: PartStatus = "completed") -> None:
        """The final output. What was streamed stays as it was told; what never was is told now.

        status: of the answer; a message or a call that does not say otherwise is no more complete than that.
        """
        if not output and self.shelf.items:
            self.telling.irregular("empty_output", "expected the output again at the end, got none")
        streamed = len(self.shelf.items)
        for position, entry in enumerate(output):
            fields = read_object(entry)
            item = self.shelf.match(position, fields) if streamed else None
            if item is None:
                self.telling.irregular(
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
                for track in item.calls[:1]:
                    self.calls.compare_input(track, fields)

    def close(self, status: PartStatus, *, is_failure: bool = False) -> bool:
        """End every part that is open. False if a call has to be given up because nobody ever named it."""
        out = self.telling.out
        named = True
        for item in self.shelf.items:
            if not item.done and status == "completed":
                self._note_unfinished(item)
            for text in item.texts.values():
                if not text.ended:
                    out += text.end(status, self._found)
            if item.reasoning is not None and not item.reasoning.ended:
                out += item.reasoning.end(None, status, self._found)
            if item.whole is not None and not item.whole.ended:
                self._end_whole(item.whole, None, status)
            for call in item.calls:
                if not call.ended:
                    is_named = self.calls.close(item, call, status, is_failure=is_failure)
                    named = named and is_named
        if self._sound is not None and not self._sound.ended:
            out += self._sound.end(status)
        return named

    def note_gap(self) -> None:
        """Events are missing. An open call is what was sent only if the wire still repeats its input."""
        for item in self.shelf.items:
            for track in item.calls:
                track.lacks_events = not track.ended and track.header.executor == "client"

    @property
    def has_open_input(self) -> bool:
        """Whether some call has begun that the wire did not close."""
        return any(
            not track.ended and not track.closed
            for item in self.shelf.items
            for track in item.calls
        )

    def _note_unfinished(self, item: Item) -> None:
        self.shelf.note(item, "missing_done", f"expected output_item.done for the {item.type} item")


def _kind(fields: Fields) -> str:
    """What an item is: by its type, but the four words for a call are one, and an unknown item may hold calls."""
    kind = read_text(fields, "type") or ""
    if kind in FUNCTION_LIKE:
        return "function_call"
    if kind in _KNOWN_ITEMS:
        return kind
    entries = read_list(fields.get("content")) or ()
    if any(read_text(read_object(entry), "type") in FUNCTION_LIKE for entry in entries):
        return "message"
    return kind


def _compatible(kind: str) -> frozenset[str]:
    """The types that an item may have been taken for before it was announced as `kind`."""
    return CLIENT_INPUT if kind in CLIENT_INPUT else frozenset({kind})


def _no_better(item: Item, status: PartStatus) -> PartStatus:
    if any(track.closed for track in item.calls):
        return "completed"
    return status if item.calls or item.type == "message" else "completed"


def _is_same_call(item: Item, fields: Fields) -> bool:
    """Whether an item is a call that has been told already: not to be run twice."""
    call_id = find_call_id(fields)
    return bool(call_id) and any(track.header.call_id == call_id for track in item.calls)
