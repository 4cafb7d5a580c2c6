"""Handlers for the events between the beginning and the end of an answer. Each hands its event to the `OutputReader`.

A handler returns False if it cannot find the item of its event; the reader then passes the event on as unknown. It raises
MalformedJson if it cannot read a field that may hold a piece of a text or of a call.
"""

from collections.abc import Callable, Mapping
from functools import partial

from dragoman._json import Raw
from dragoman.core.fields import (
    Fields,
    expect_object,
    expect_text,
    extra_of,
    is_present,
    read_int,
    read_object,
    read_text,
    source_text,
)
from dragoman.dialects.responses.content import read_annotation, read_logprobs
from dragoman.dialects.responses.items import check_input, check_item
from dragoman.dialects.responses.open_items import OpenItem
from dragoman.dialects.responses.output import CLIENT_INPUT, OutputReader
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    PROGRESS_EVENTS,
    REASONING_DELTAS,
    REFUSAL_DELTA,
    TERMINAL_EVENTS,
    TEXT_DELTA,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import MediaDelta, OutputDelta, Progress, ReasoningChannel
from dragoman.model.parts import Refusal, Text

Handler = Callable[[OutputReader, Fields], bool]

_PLACE = frozenset({"type", "sequence_number", "item_id", "output_index", "obfuscation"})


def _find(
    output: OutputReader, fields: Fields, types: frozenset[str], *, by_index: bool = False
) -> OpenItem | None:
    item_id = read_text(fields.get("item_id")) or None
    return output.items.find(item_id, _place_of(fields), types, by_index=by_index)


def _find_or_imply(
    output: OutputReader, fields: Fields, types: frozenset[str], kind: str
) -> OpenItem:
    item = _find(output, fields, types)
    if item is None:
        item_id = read_text(fields.get("item_id")) or None
        item = output.items.put(kind, item_id, _place_of(fields))
        output.items.note(
            item, "missing_added", f"expected output_item.added before its {kind} events"
        )
    return item


def _note_late(output: OutputReader, item: OpenItem) -> bool:
    output.items.note(item, "after_done", f"expected nothing more of a finished {item.type} item")
    return True


# --- items -----------------------------------------------------------------------------------------------------------


def _item_of(fields: Fields) -> Raw | None:
    item = fields.get("item")
    check_item(read_object(item) or expect_object(item, "an item"))
    return item


def _place_of(fields: Fields) -> int | None:
    index = read_int(fields.get("output_index"))
    if index is None and is_present(fields.get("output_index")):
        raise MalformedJson("expected output_index as an integer, got another value")
    return index


def _item_added(output: OutputReader, fields: Fields) -> bool:
    item = _item_of(fields)
    if item is None:
        return False
    index = _place_of(fields)
    if index is None:
        output.parts.report("missing_index", "expected an output_index in output_item.added")
    output.announce(item, index)
    return True


def _item_done(output: OutputReader, fields: Fields) -> bool:
    item = _item_of(fields)
    if item is None:
        return False
    output.conclude(item, _place_of(fields))
    return True


# --- messages --------------------------------------------------------------------------------------------------------

_MESSAGE = frozenset({"message"})
_PART_OWNERS = CLIENT_INPUT | {"reasoning"}


def _index(item: OpenItem, fields: Fields) -> int:
    index = read_int(fields.get("content_index"))
    return max(item.texts, default=0) if index is None else index


def _part(output: OutputReader, fields: Fields, *, is_end: bool) -> bool:
    """Open or close a content part of a message, or an entry of a reasoning."""
    part = fields.get("part")
    if part is None:
        return False
    expect_object(part, "part")
    item = _find(output, fields, _PART_OWNERS) or _find_or_imply(
        output, fields, _MESSAGE, "message"
    )
    if item.done:
        return _note_late(output, item)
    if item.type == "reasoning":
        return _entry("content", output, fields, is_end=is_end)
    if not is_end:
        index = read_int(fields.get("content_index"))
        output.open_part(item, len(item.texts) if index is None else index, part)
    elif item.type == "message":
        output.close_part(item, _index(item, fields), part)
    return True


def _delta(fields: Fields) -> str:
    text = expect_text(fields.get("delta"), "delta")
    if text is None:
        raise MalformedJson("expected a delta, got none")
    return text


def _text_delta(header: Text | Refusal, output: OutputReader, fields: Fields) -> bool:
    text = _delta(fields)
    item = _find_or_imply(output, fields, _MESSAGE, "message")
    index = _index(item, fields)
    if item.done:
        return _note_late(output, item)
    if index not in item.texts:
        output.items.note(item, "missing_added", "expected content_part.added before its text")
    opened = output.text(item, index, header)
    if opened.has_ended:
        return _note_late(output, item)
    opened.add(text, read_logprobs(fields.get("logprobs")))
    output.stream_text(item, read_text(fields.get("item_id")), opened, index)
    return True


def _text_done(header: Text | Refusal, key: str, output: OutputReader, fields: Fields) -> bool:
    item = _find_or_imply(output, fields, _MESSAGE, "message")
    if item.done:
        return _note_late(output, item)
    output.close_text(
        output.text(item, _index(item, fields), header), read_text(fields.get(key)) or ""
    )
    return True


def _annotation(output: OutputReader, fields: Fields) -> bool:
    item = _find(output, fields, _MESSAGE)
    text = None if item is None else item.texts.get(_index(item, fields))
    annotation = fields.get("annotation")
    if text is None or text.has_ended or annotation is None or not is_present(annotation):
        return False
    text.annotate(read_annotation(annotation))
    return True


# --- reasoning -------------------------------------------------------------------------------------------------------

_REASONING = frozenset({"reasoning"})


def _place(channel: ReasoningChannel, fields: Fields) -> int:
    return max(read_int(fields.get(f"{channel}_index")) or 0, 0)


def _reasoning_delta(channel: ReasoningChannel, output: OutputReader, fields: Fields) -> bool:
    text = _delta(fields)
    item = _find_or_imply(output, fields, _REASONING, "reasoning")
    reasoning = output.reasoning(item)
    if reasoning.has_ended:
        return _note_late(output, item)
    reasoning.add(text, channel, _place(channel, fields))
    output.items.stream(
        item, read_text(fields.get("item_id")), reasoning, REASONING_DELTAS[channel]
    )
    return True


def _entry(
    channel: ReasoningChannel, output: OutputReader, fields: Fields, *, is_end: bool
) -> bool:
    """Open or close an entry. `…_text.done` has the text itself, `…_part.done` has it in its part."""
    item = _find_or_imply(output, fields, _REASONING, "reasoning")
    reasoning = output.reasoning(item)
    if reasoning.has_ended:
        return _note_late(output, item)
    if is_end:
        part = read_object(fields.get("part"))
        text = read_text(fields.get("text")) or read_text(part.get("text")) or ""
        reasoning.complete(text, channel, _place(channel, fields))
    else:
        reasoning.open_entry(channel, _place(channel, fields))
    return True


# --- input of calls --------------------------------------------------------------------------------------------------


def _owners(kind: str) -> frozenset[str]:
    return CLIENT_INPUT if kind in CLIENT_INPUT else frozenset({kind})


def _input_delta(kind: str, output: OutputReader, fields: Fields) -> bool:
    text = _delta(fields)
    item = _find_or_imply(output, fields, _owners(kind), kind)
    call = output.calls.current(item, kind, fields)
    if call.open.has_ended:
        call.late.append(text)
        return _note_late(output, item)
    output.calls.identify(item, call, fields)
    call.open.add(text)
    item.active = call
    if call.wire is not None and (len(item.calls) == 1 or not output.calls.is_parallel(item)):
        output.items.stream(item, read_text(fields.get("item_id")), call.open, call.wire)
    return True


def _input_done(kind: str, key: str, output: OutputReader, fields: Fields) -> bool:
    item = _find_or_imply(output, fields, _owners(kind), kind)
    call = output.calls.current(item, kind, fields)
    value = fields.get(key)
    check_input(value, key)
    text = read_text(fields.get(key))
    if text is None and value is not None and is_present(value):
        message = f"expected {key} as a string, got JSON of another type"
        output.parts.report("object_input", message)
        text = source_text(value)
    if call.open.has_ended:
        output.calls.close_late(call, text or "")
    else:
        output.calls.identify(item, call, fields)
        output.calls.close_input(item, call, text or "")
    return True


# --- progress and output of the provider's tools ---------------------------------------------------------------------


def _part_number(item: OpenItem | None) -> int | None:
    if item is None:
        return None
    if item.whole is not None:
        return None if item.whole.has_ended else item.whole.part
    calls = [call.open for call in item.calls]
    return next((call.part for call in calls if call.is_announced and not call.has_ended), None)


def _progress(kind: str, stage: str, output: OutputReader, fields: Fields) -> bool:
    item = _find(output, fields, frozenset({kind}), by_index=True)
    part = _part_number(item)
    if part is None:
        return False
    output.parts.events.append(Progress(stage, part, extra_of("responses", fields, _PLACE)))
    return True


def _partial_image(output: OutputReader, fields: Fields) -> bool:
    item = _find(output, fields, frozenset({"image_generation_call"}))
    part = _part_number(item)
    data = read_text(fields.get("partial_image_b64"))
    if part is None or not data:
        return False
    extra = extra_of("responses", fields, _PLACE | {"partial_image_b64"})
    output.parts.events.append(MediaDelta(part, data, "", extra))
    return True


def _shell_output(output: OutputReader, fields: Fields) -> bool:
    item = _find(output, fields, frozenset({"shell_call_output", "shell_call"}))
    part = _part_number(item)
    delta = read_object(fields.get("delta"))
    text = (read_text(delta.get("stdout")) or "") + (read_text(delta.get("stderr")) or "")
    if part is None:
        return False
    if text:
        output.parts.events.append(OutputDelta(part, text))
    return True


def _repeated(_output: OutputReader, _fields: Fields) -> bool:
    return True


# --- sound -----------------------------------------------------------------------------------------------------------


def _sound(output: OutputReader, fields: Fields) -> bool:
    output.sound(read_text(fields.get("delta")) or "", "")
    return True


def _transcript(output: OutputReader, fields: Fields) -> bool:
    output.sound("", read_text(fields.get("delta")) or "")
    return True


def _sound_done(what: str, output: OutputReader, _fields: Fields) -> bool:
    output.close_sound(what)
    return True


def is_content(name: str) -> bool:
    """Return whether an event of this name carries content, or the end, of the answer."""
    return name in HANDLERS or name in TERMINAL_EVENTS


_STREAMED = [spec for spec in CALL_ITEMS.values() if spec.events]
HANDLERS: Mapping[str, Handler] = {
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.content_part.added": partial(_part, is_end=False),
    "response.content_part.done": partial(_part, is_end=True),
    TEXT_DELTA: partial(_text_delta, Text()),
    "response.output_text.done": partial(_text_done, Text(), "text"),
    "response.output_text.annotation.added": _annotation,
    REFUSAL_DELTA: partial(_text_delta, Refusal()),
    "response.refusal.done": partial(_text_done, Refusal(), "refusal"),
    "response.reasoning_summary_part.added": partial(_entry, "summary", is_end=False),
    "response.reasoning_summary_part.done": partial(_entry, "summary", is_end=True),
    REASONING_DELTAS["summary"]: partial(_reasoning_delta, "summary"),
    "response.reasoning_summary_text.done": partial(_entry, "summary", is_end=True),
    REASONING_DELTAS["content"]: partial(_reasoning_delta, "content"),
    "response.reasoning_text.done": partial(_entry, "content", is_end=True),
    "response.audio.delta": _sound,
    "response.audio.done": partial(_sound_done, "data"),
    "response.audio.transcript.delta": _transcript,
    "response.audio.transcript.done": partial(_sound_done, "transcript"),
    "response.image_generation_call.partial_image": _partial_image,
    "response.shell_call_output_content.delta": _shell_output,
    **{each.delta: partial(_input_delta, each.type) for each in _STREAMED if each.delta},
    **{f"{each.events}.done": partial(_input_done, each.type, each.field) for each in _STREAMED},
    **{name: partial(_progress, kind, stage) for name, (kind, stage) in PROGRESS_EVENTS.items()},
    # The `output_item.done` of the same item has the whole output.
    "response.shell_call_output_content.done": _repeated,
}
