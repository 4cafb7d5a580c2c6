"""The events between the beginning and the end of an answer, each handed to the ledger.

A handler returns False if it cannot say what its event is about; the reader then passes the event on unread. It raises
MalformedJson if a field cannot be read that may hold a piece of a text or of a call.
"""

from collections.abc import Callable, Mapping
from functools import partial

from dragoman._json import Raw
from dragoman.core.fields import expect_object, expect_text
from dragoman.dialects.responses.content import read_annotation, read_logprobs
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    is_present,
    read_int,
    read_object,
    read_text,
    source_text,
)
from dragoman.dialects.responses.items import check_input, check_item
from dragoman.dialects.responses.ledger import CLIENT_INPUT, Ledger
from dragoman.dialects.responses.shelf import Item
from dragoman.dialects.responses.wire import (
    INPUT_FAMILIES,
    PROGRESS_EVENTS,
    REPEATED_EVENTS,
    TERMINAL_EVENTS,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import MediaDelta, OutputDelta, Progress, ReasoningChannel
from dragoman.model.parts import Refusal, Text

__all__ = ("HANDLERS", "Handler", "is_content")

Handler = Callable[[Ledger, Fields], bool]

_PLACE = frozenset({"type", "sequence_number", "item_id", "output_index", "obfuscation"})


def _find(
    ledger: Ledger, fields: Fields, types: frozenset[str], *, by_index: bool = False
) -> Item | None:
    item_id = read_text(fields, "item_id") or None
    return ledger.shelf.find(item_id, _place_of(fields), types, by_index=by_index)


def _find_or_imply(ledger: Ledger, fields: Fields, types: frozenset[str], kind: str) -> Item:
    item = _find(ledger, fields, types)
    if item is None:
        item_id = read_text(fields, "item_id") or None
        item = ledger.put(kind, item_id, _place_of(fields))
        ledger.shelf.note(
            item, "missing_added", f"expected output_item.added before its {kind} events"
        )
    return item


def _note_late(ledger: Ledger, item: Item) -> bool:
    ledger.shelf.note(item, "after_done", f"expected nothing more of a finished {item.type} item")
    return True


# --- items -----------------------------------------------------------------------------------------------------------


def _item_of(fields: Fields) -> Raw | None:
    item = fields.get("item")
    check_item(read_object(item) or expect_object(item, "an item"))
    return item


def _place_of(fields: Fields) -> int | None:
    index = read_int(fields, "output_index")
    if index is None and is_present(fields.get("output_index")):
        raise MalformedJson("expected output_index as an integer, got another value")
    return index


def _item_added(ledger: Ledger, fields: Fields) -> bool:
    item = _item_of(fields)
    if item is None:
        return False
    index = _place_of(fields)
    if index is None:
        ledger.telling.found.append(
            ("missing_index", "expected an output_index in output_item.added")
        )
    ledger.announce(item, index)
    return True


def _item_done(ledger: Ledger, fields: Fields) -> bool:
    item = _item_of(fields)
    if item is None:
        return False
    ledger.conclude(item, _place_of(fields))
    return True


# --- messages --------------------------------------------------------------------------------------------------------

_MESSAGE = frozenset({"message"})
_PART_OWNERS = CLIENT_INPUT | {"reasoning"}


def _index(item: Item, fields: Fields) -> int:
    index = read_int(fields, "content_index")
    return max(item.texts, default=0) if index is None else index


def _part_added(ledger: Ledger, fields: Fields) -> bool:
    part = fields.get("part")
    if part is None:
        return False
    expect_object(part, "part")
    item = _find(ledger, fields, _PART_OWNERS) or _find_or_imply(
        ledger, fields, _MESSAGE, "message"
    )
    if item.done:
        return _note_late(ledger, item)
    if item.type == "reasoning":
        return _summary_added("content", ledger, fields)
    index = read_int(fields, "content_index")
    ledger.open_part(item, len(item.texts) if index is None else index, part)
    return True


def _part_done(ledger: Ledger, fields: Fields) -> bool:
    part = fields.get("part")
    if part is None:
        return False
    expect_object(part, "part")
    item = _find(ledger, fields, _PART_OWNERS) or _find_or_imply(
        ledger, fields, _MESSAGE, "message"
    )
    if item.done:
        return _note_late(ledger, item)
    if item.type == "reasoning":
        return _summary_done("content", ledger, fields)
    if item.type == "message":
        ledger.close_part(item, _index(item, fields), part)
    return True


def _text_delta(header: Text | Refusal, ledger: Ledger, fields: Fields) -> bool:
    text = expect_text(fields.get("delta"), "delta")
    if text is None:
        raise MalformedJson("expected a delta, got none")
    item = _find_or_imply(ledger, fields, _MESSAGE, "message")
    index = _index(item, fields)
    if item.done:
        return _note_late(ledger, item)
    if index not in item.texts:
        ledger.shelf.note(item, "missing_added", "expected content_part.added before its text")
    track = ledger.text(item, index, header)
    if track.ended:
        return _note_late(ledger, item)
    ledger.telling.out += track.push(text, read_logprobs(fields.get("logprobs")))
    if not item.is_shared:
        ledger.telling.live[read_text(fields, "item_id") or item.id] = track
    return True


def _text_done(header: Text | Refusal, key: str, ledger: Ledger, fields: Fields) -> bool:
    item = _find_or_imply(ledger, fields, _MESSAGE, "message")
    if item.done:
        return _note_late(ledger, item)
    track = ledger.text(item, _index(item, fields), header)
    ledger.close_text(track, read_text(fields, key) or "")
    return True


def _annotation(ledger: Ledger, fields: Fields) -> bool:
    item = _find(ledger, fields, _MESSAGE)
    track = None if item is None else item.texts.get(_index(item, fields))
    annotation = fields.get("annotation")
    if track is None or track.ended or annotation is None or not is_present(annotation):
        return False
    ledger.telling.out += track.annotate(read_annotation(annotation))
    return True


# --- reasoning -------------------------------------------------------------------------------------------------------

_REASONING = frozenset({"reasoning"})


def _place(channel: ReasoningChannel, fields: Fields) -> int:
    return max(read_int(fields, f"{channel}_index") or 0, 0)


def _summary_delta(channel: ReasoningChannel, ledger: Ledger, fields: Fields) -> bool:
    text = expect_text(fields.get("delta"), "delta")
    if text is None:
        raise MalformedJson("expected a delta, got none")
    item = _find_or_imply(ledger, fields, _REASONING, "reasoning")
    track = ledger.reasoning(item)
    if track.ended:
        return _note_late(ledger, item)
    ledger.telling.out += track.push(channel, _place(channel, fields), text)
    if not item.is_shared:
        ledger.telling.live[read_text(fields, "item_id") or item.id] = track
    return True


def _summary_added(channel: ReasoningChannel, ledger: Ledger, fields: Fields) -> bool:
    item = _find_or_imply(ledger, fields, _REASONING, "reasoning")
    track = ledger.reasoning(item)
    if track.ended:
        return _note_late(ledger, item)
    track.open(channel, _place(channel, fields))
    return True


def _summary_done(channel: ReasoningChannel, ledger: Ledger, fields: Fields) -> bool:
    """`…_text.done` has the text itself, `…_part.done` has it in its part."""
    item = _find_or_imply(ledger, fields, _REASONING, "reasoning")
    track = ledger.reasoning(item)
    if track.ended:
        return _note_late(ledger, item)
    text = read_text(fields, "text") or read_text(read_object(fields.get("part")), "text") or ""
    if text:
        ledger.telling.out += track.top_up(channel, _place(channel, fields), text)
    return True


# --- input of calls --------------------------------------------------------------------------------------------------


def _owners(kind: str) -> frozenset[str]:
    return CLIENT_INPUT if kind in CLIENT_INPUT else frozenset({kind})


def _input_delta(kind: str, ledger: Ledger, fields: Fields) -> bool:
    text = expect_text(fields.get("delta"), "delta")
    if text is None:
        raise MalformedJson("expected a delta, got none")
    item = _find_or_imply(ledger, fields, _owners(kind), kind)
    track = ledger.calls.current(item, kind)
    if track.ended:
        return _note_late(ledger, item)
    ledger.calls.identify(item, track, fields)
    ledger.telling.out += track.push(text)
    if not item.is_shared:
        ledger.telling.live[read_text(fields, "item_id") or item.id] = track
    return True


def _input_done(kind: str, key: str, ledger: Ledger, fields: Fields) -> bool:
    item = _find_or_imply(ledger, fields, _owners(kind), kind)
    track = ledger.calls.current(item, kind)
    if track.ended:
        return True
    ledger.calls.identify(item, track, fields)
    value = fields.get(key)
    check_input(value, key)
    text = read_text(fields, key)
    if text is None and value is not None and is_present(value):
        ledger.telling.found.append(
            ("object_input", f"expected {key} as a string, got JSON of another type")
        )
        text = source_text(value)
    ledger.calls.close_input(item, track, text or "")
    return True


# --- what tools of the provider do -----------------------------------------------------------------------------------


def _part_number(item: Item | None) -> int | None:
    if item is None:
        return None
    if item.whole is not None:
        return None if item.whole.ended else item.whole.part
    open_calls = [track for track in item.calls if track.is_started and not track.ended]
    return open_calls[0].part if open_calls else None


def _progress(kind: str, stage: str, ledger: Ledger, fields: Fields) -> bool:
    item = _find(ledger, fields, frozenset({kind}), by_index=True)
    part = _part_number(item)
    if part is None:
        return False
    ledger.telling.out.append(Progress(stage, part, extra_of(fields, _PLACE)))
    return True


def _partial_image(ledger: Ledger, fields: Fields) -> bool:
    item = _find(ledger, fields, frozenset({"image_generation_call"}))
    part = _part_number(item)
    data = read_text(fields, "partial_image_b64")
    if part is None or not data:
        return False
    extra = extra_of(fields, _PLACE | {"partial_image_b64"})
    ledger.telling.out.append(MediaDelta(part, data, "", extra))
    return True


def _shell_output(ledger: Ledger, fields: Fields) -> bool:
    item = _find(ledger, fields, frozenset({"shell_call_output", "shell_call"}))
    part = _part_number(item)
    delta = read_object(fields.get("delta"))
    text = (read_text(delta, "stdout") or "") + (read_text(delta, "stderr") or "")
    if part is None:
        return False
    if text:
        ledger.telling.out.append(OutputDelta(part, text))
    return True


def _repeated(_ledger: Ledger, _fields: Fields) -> bool:
    return True


# --- sound -----------------------------------------------------------------------------------------------------------


def _sound(ledger: Ledger, fields: Fields) -> bool:
    ledger.sound(read_text(fields, "delta") or "", "")
    return True


def _transcript(ledger: Ledger, fields: Fields) -> bool:
    ledger.sound("", read_text(fields, "delta") or "")
    return True


def _sound_done(what: str, ledger: Ledger, _fields: Fields) -> bool:
    ledger.close_sound(what)
    return True


def is_content(name: str) -> bool:
    """Whether an event of this name says something of the answer."""
    return name in HANDLERS or name in TERMINAL_EVENTS


HANDLERS: Mapping[str, Handler] = {
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.content_part.added": _part_added,
    "response.content_part.done": _part_done,
    "response.output_text.delta": partial(_text_delta, Text()),
    "response.output_text.done": partial(_text_done, Text(), "text"),
    "response.output_text.annotation.added": _annotation,
    "response.refusal.delta": partial(_text_delta, Refusal()),
    "response.refusal.done": partial(_text_done, Refusal(), "refusal"),
    "response.reasoning_summary_part.added": partial(_summary_added, "summary"),
    "response.reasoning_summary_part.done": partial(_summary_done, "summary"),
    "response.reasoning_summary_text.delta": partial(_summary_delta, "summary"),
    "response.reasoning_summary_text.done": partial(_summary_done, "summary"),
    "response.reasoning_text.delta": partial(_summary_delta, "content"),
    "response.reasoning_text.done": partial(_summary_done, "content"),
    "response.audio.delta": _sound,
    "response.audio.done": partial(_sound_done, "data"),
    "response.audio.transcript.delta": _transcript,
    "response.audio.transcript.done": partial(_sound_done, "transcript"),
    "response.image_generation_call.partial_image": _partial_image,
    "response.shell_call_output_content.delta": _shell_output,
    **{
        f"{family}.delta": partial(_input_delta, kind)
        for family, (kind, _) in INPUT_FAMILIES.items()
    },
    **{
        f"{family}.done": partial(_input_done, kind, key)
        for family, (kind, key) in INPUT_FAMILIES.items()
    },
    **{name: partial(_progress, kind, stage) for name, (kind, stage) in PROGRESS_EVENTS.items()},
    **dict.fromkeys(REPEATED_EVENTS, _repeated),
}
