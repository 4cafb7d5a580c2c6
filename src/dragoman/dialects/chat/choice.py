"""Decodes one choice of an answer: its deltas, its parts and its finish.

Text, refusal, reasoning and sound are emitted one at a time: a part ends as soon as a part of another kind begins, so
that text after a call is a new Text. Calls may overlap (see `calls`). The message of a body is read as one large delta.

    SPEAKING --finish_reason--> FINISHED --end of the stream--> Finished
        '------------------------^   '--more content--> still decoded, and reported

Parts end with `finish_reason`. `Finished` is emitted only at the end of the stream, because servers send content, and
second finishes, after the first.
"""

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.fields import (
    expect_items,
    expect_present,
    expect_text,
    extra_of,
    join_object,
    read_fragment,
    read_items,
    read_list,
    read_present,
)
from dragoman.core.fold import join_logprobs, settle_finish
from dragoman.core.open_parts import OpenPart, OpenReasoning, OpenText, Parts
from dragoman.core.open_wholes import OpenMedia
from dragoman.dialects.chat.calls import CallTrack
from dragoman.dialects.chat.content import read_annotation, read_part, read_sealed
from dragoman.dialects.chat.entries import legacy_entry, read_entry, typed_entry
from dragoman.dialects.chat.wire import (
    AUDIO_FIELDS,
    CHOICE_FIELDS,
    CUT_REASONS,
    DELTA_FIELDS,
    FAILED_FINISHES,
    FINISHES,
    REASONING_FIELDS,
    SEALED_FIELDS,
    TypedChoice,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import Event, Finished, Noticed
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import (
    Annotation,
    Extra,
    Media,
    Opaque,
    PartStatus,
    Reasoning,
    Refusal,
    Text,
)


class _Ending(Struct, frozen=True):
    native: str | None = None
    reason: FinishReason | None = None
    stop_sequence: str | None = None
    extra: Extra | None = None


class ChoiceTrack:
    """Decodes one choice. `streaming`: the part that a plain delta may continue, if any; `call_index`: its index as a call."""

    def __init__(self, parts: Parts, index: int, declared: frozenset[str]) -> None:
        self._parts = parts
        self._index = index
        self._calls = CallTrack(parts, index, declared)
        self._current: OpenText | OpenReasoning | OpenMedia | None = None
        self._annotations: list[Annotation] = []  # for the next text
        self._unsaid: dict[bool, list[Raw]] = {
            False: [],
            True: [],
        }  # logprobs for the next text, refusal
        self._thinks_by_list: bool | None = None
        self._sealed: dict[str, list[bytes]] = {}  # entries of the open reasoning, as they came
        self._message_extra: dict[str, Raw] = {}
        self._ending: _Ending | None = None
        self._spoke_since = False  # whether content came after the finish
        self._wire_indexes: set[int] = set()
        self.streaming: OpenPart | None = None
        self.call_index: int | None = None

    def read(
        self, choice: Mapping[str, Raw], *, wire_index: int = 0, is_whole: bool = False
    ) -> None:
        """Decode one entry of `choices`. `wire_index`: the entry's own index, where several are merged into this choice.

        Raises:
            MalformedJson: a field that may hold text or a piece of a call is of another type.
            RemoteProtocolError: a call cannot be emitted as it was sent (see `calls`).
        """
        self._note_merged(wire_index)
        before = len(self._parts.events)
        finish = expect_text(choice.get("finish_reason"), "finish_reason")
        delta = expect_present(choice.get("delta") or choice.get("message"), "delta")
        self._read_delta(delta, read_present(choice.get("logprobs")), wire_index, is_whole=is_whole)
        if self._ending is not None:
            self._note_more(before)
        native = finish or None
        rest = extra_of("chat", choice, CHOICE_FIELDS)
        if native is not None and native not in FAILED_FINISHES:
            self._finish(native, choice, rest)
        elif rest is not None:
            self._notice("choice", join_object(rest.fields))
        self._find_streaming()

    def read_typed(self, choice: TypedChoice, *, wire_index: int = 0) -> None:
        """As `read`, for an entry that fits `wire.TypedChoice`.

        Raises:
            RemoteProtocolError: as `read`.
        """
        self._note_merged(wire_index)
        before = len(self._parts.events)
        delta = choice.delta
        if not self._think("reasoning_content", delta.reasoning_content):
            self._think("reasoning", delta.reasoning)
        self._say(delta.content or "", None)
        self._say("", None, is_refusal=True)
        if delta.tool_calls:
            self._end_current()
            self._calls.read(
                [typed_entry(call) for call in delta.tool_calls], wire_index=wire_index
            )
        if self._ending is not None:
            self._note_more(before)
        if choice.finish_reason:
            self._finish(choice.finish_reason, {}, None)
        self._find_streaming()

    def abandon(self) -> None:
        """End all open parts as incomplete: the answer was cut."""
        self._end_current("incomplete")
        self._calls.abandon()

    def conclude(self, *, may_infer: bool) -> Finished | None:
        """Return the finish of the choice at the end of the stream; None if the choice was cut.

        may_infer: the stream ended with `[DONE]`, so a missing finish may be inferred.

        Raises:
            RemoteProtocolError: a call has no name.
        """
        inferred = self._ending is None
        if inferred:
            if not may_infer or not self._calls.are_strict():
                return None
            message = (
                "expected a finish_reason, got the end of the stream: inferred from the content"
            )
            self._parts.report("missing_finish", message)
            self._ending = _Ending()
        ending = self._ending or _Ending()
        self._close(ending)
        extra = {**(ending.extra.fields if ending.extra else {})}
        if self._message_extra:
            extra["message"] = join_object(self._message_extra)
        reason = self._settle(ending)
        return Finished(
            reason,
            self._index,
            ending.stop_sequence if reason == "stop_sequence" else None,
            inferred,
            ending.native,
            Extra("chat", extra) if extra else None,
        )

    # --- deltas -------------------------------------------------------------------------------------------------------

    def _note_merged(self, wire_index: int) -> None:
        self._wire_indexes.add(wire_index)
        if len(self._wire_indexes) == 2:
            message = f"expected one choice, got choice {wire_index} as well: read as one answer"
            self._parts.report("split_choices", message)
            self._wire_indexes.add(-1)  # a third entry: reported only once

    def _read_delta(
        self,
        delta: Mapping[str, Raw],
        logprobs: Mapping[str, Raw],
        wire_index: int,
        *,
        is_whole: bool,
    ) -> None:
        self._read_reasoning(delta)
        content = delta.get("content")
        text = read_fragment(content)
        if text is None:
            for piece in expect_items(content, "content"):
                self._read_piece(piece)
        self._say(text or "", logprobs.get("content"))
        self._say(
            read_fragment(delta.get("refusal")) or "", logprobs.get("refusal"), is_refusal=True
        )
        self._read_audio(delta.get("audio"))
        for image in read_items(delta.get("images")):
            self._read_piece(image)
        for raw in read_items(delta.get("annotations")):
            self._annotate(read_annotation(raw))
        self._read_calls(delta, wire_index, is_whole=is_whole)
        rest = {name: field for name, field in delta.items() if name not in DELTA_FIELDS}
        if rest and is_whole:
            self._message_extra = rest
        elif rest:
            self._notice("delta", join_object(rest))

    def _read_calls(self, delta: Mapping[str, Raw], wire_index: int, *, is_whole: bool) -> None:
        entries = [legacy_entry(delta["function_call"])] if "function_call" in delta else []
        listed = expect_items(delta.get("tool_calls"), "tool_calls")
        if len(listed) < len(read_list(delta.get("tool_calls")) or ()):
            self._parts.report("null_call", "expected a call in each entry of tool_calls, got null")
        for raw in listed:
            try:
                entries.append(read_entry(raw))
            except MalformedJson as error:
                if not is_whole:
                    raise  # the call that the piece belongs to is unknown
                self._calls.refuse(error)
        if entries:
            self._end_current()
            if is_whole:
                self._calls.read_whole(entries)
            else:
                self._calls.read(entries, wire_index=wire_index)

    def _read_reasoning(self, delta: Mapping[str, Raw]) -> None:
        """Decode reasoning as text or as a list with seals. Servers that send both repeat the text: the first seen counts."""
        for field in REASONING_FIELDS:
            if self._think(field, read_fragment(delta.get(field))):
                break
        for field in SEALED_FIELDS:
            for raw in read_items(delta.get(field)):
                entry = read_sealed(raw)
                reasoning = self._reasoning("reasoning_content")
                self._sealed.setdefault(field, []).append(bytes(raw))
                if entry.text and self._thinks_by_list is not False:
                    self._thinks_by_list = True
                    reasoning.add(entry.text)
                if entry.seal is not None:
                    reasoning.seal((entry.seal,))

    def _think(self, field: str, text: str | None) -> bool:
        """Add reasoning that came as text. False: there is none, or reasoning is taken from the list."""
        if not text or self._thinks_by_list:
            return False
        self._thinks_by_list = False
        self._reasoning(field).add(text)
        return True

    def _read_piece(self, raw: Raw) -> None:
        """Decode an entry of a content list."""
        fields = read_present(raw)
        if read_fragment(fields.get("type")) == "thinking":
            thinking = fields.get("thinking")
            texts = [read_fragment(thinking) or ""]
            texts += [
                read_fragment(read_present(item).get("text")) or "" for item in read_items(thinking)
            ]
            reasoning = self._reasoning("reasoning_content")
            if any(texts):
                reasoning.add("".join(texts))
            return
        part = read_part(raw)
        match part:
            case Text() | Refusal():
                self._say(part.text, None, is_refusal=isinstance(part, Refusal))
            case Media() | Opaque():
                self._turn()
                self._parts.add_whole(part, self._index)
            case _:
                assert_never(part)

    def _read_audio(self, raw: Raw | None) -> None:
        fields = read_present(raw)
        if not fields:
            return
        data, transcript = (
            read_fragment(fields.get("data")) or "",
            read_fragment(fields.get("transcript")) or "",
        )
        item_id, rest = read_fragment(fields.get("id")), extra_of("chat", fields, AUDIO_FIELDS)
        audio = self._current
        if not isinstance(audio, OpenMedia):
            if not data and not transcript and item_id is None:
                # The last update has only `expires_at`, and may come after the finish.
                self._notice("delta", join_object({"audio": join_object(fields)}))
                return
            self._turn()
            header = Media(kind="audio", item_id=item_id)
            audio = self._current = OpenMedia(self._parts, header, self._index)
        audio.add(data, transcript, rest)

    def _say(self, text: str, logprobs: Raw | None, *, is_refusal: bool = False) -> None:
        unsaid = self._unsaid[is_refusal]
        if logprobs is not None and bytes(logprobs) != b"[]":
            unsaid.append(logprobs)
        current = self._current
        is_open = isinstance(current, OpenText) and current.is_refusal == is_refusal
        if text or (unsaid and is_open):
            self._text(is_refusal=is_refusal).add(text, join_logprobs(unsaid))
            unsaid.clear()

    def _annotate(self, annotation: Annotation) -> None:
        current = self._current
        if isinstance(current, OpenText) and not current.is_refusal:
            current.annotate(annotation)
        else:
            self._annotations.append(annotation)

    def _notice(self, level: str, raw: Raw) -> None:
        self._parts.events.append(noticed(level, raw, self._index))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _text(self, *, is_refusal: bool) -> OpenText:
        current = self._current
        if isinstance(current, OpenText) and current.is_refusal == is_refusal:
            return current
        self._turn()
        header = Refusal() if is_refusal else Text()
        current = self._current = OpenText(self._parts, header, self._index)
        if not is_refusal:
            for annotation in self._annotations:
                current.annotate(annotation)
            self._annotations.clear()
        return current

    def _reasoning(self, field: str) -> OpenReasoning:
        """Return the open reasoning. All text goes to `summary`: Chat does not distinguish summaries from full reasoning.

        `field` is the name that the server uses, kept as extra where it is not `reasoning_content`.
        """
        if isinstance(self._current, OpenReasoning):
            return self._current
        self._turn()
        extra = None if field == "reasoning_content" else Extra("chat", {field: Raw(b'""')})
        current = self._current = OpenReasoning(self._parts, Reasoning(extra=extra), self._index)
        return current

    def _turn(self) -> None:
        """End the current part and pause the calls: a part of another kind begins."""
        self._end_current()
        self._calls.pause()

    def _end_current(self, status: PartStatus = "completed") -> None:
        """End the open text, refusal, reasoning or sound."""
        current, self._current = self._current, None
        if isinstance(current, OpenReasoning):
            fields = dict(current.header.extra.fields) if current.header.extra is not None else {}
            for field, entries in self._sealed.items():
                fields[field] = Raw(b"[" + b",".join(entries) + b"]")
            self._sealed.clear()
            extra = Extra("chat", fields) if fields else None
            current.end(status, replace(current.header, extra=extra))
        elif current is not None:
            current.end(status)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _note_more(self, before: int) -> None:
        said = any(not isinstance(event, Noticed) for event in self._parts.events[before:])
        if said and not self._is_merged:
            message = "expected nothing of a choice after its finish_reason, got more content"
            self._parts.report("after_finish", message)
        self._spoke_since = self._spoke_since or said

    def _finish(self, native: str, choice: Mapping[str, Raw], extra: Extra | None) -> None:
        reason = FINISHES.get(native.lower())
        stop = read_fragment(choice.get("stop_reason")) or read_fragment(choice.get("matched_stop"))
        if reason == "stop" and stop and stop.lower() not in FINISHES:
            ending = _Ending(native, "stop_sequence", stop, extra)
        else:
            ending = _Ending(native, reason, None, extra)
        if not self._accepts(ending):
            return
        if reason is None:
            message = f"expected a known finish_reason, got {native!r}: decided from the content"
            self._parts.report("unknown_finish", message)
        self._ending = ending
        self._spoke_since = False
        self._close(ending)
        settled = self._settle(ending)
        if reason is not None and settled != ending.reason and not self._is_merged:
            message = f"expected finish_reason {settled!r} by the content, got {native!r}"
            self._parts.report("wrong_finish", message)

    def _accepts(self, ending: _Ending) -> bool:
        """Whether a finish counts, although an earlier finish may have come."""
        old = self._ending
        if old is None or self._spoke_since:
            return True
        if self._is_merged:
            return old.reason not in CUT_REASONS
        message = f"expected one finish_reason, got {ending.native!r} after {old.native!r}"
        self._parts.report("after_finish", message)
        return False

    def _close(self, ending: _Ending) -> None:
        if self._annotations:
            self._text(is_refusal=False)
        self._end_current()
        self._calls.finish(was_cut=ending.reason in CUT_REASONS)
        unsaid = {
            name: logprobs
            for name, is_refusal in (("content", False), ("refusal", True))
            if (logprobs := join_logprobs(self._unsaid[is_refusal])) is not None
        }
        if unsaid:
            fields = {"logprobs": join_object(unsaid)}
            self._notice("choice", join_object(fields))
            self._unsaid = {False: [], True: []}

    def _settle(self, ending: _Ending) -> FinishReason:
        return settle_finish(ending.reason, has_complete_client_calls=self._calls.has_complete)

    @property
    def _is_merged(self) -> bool:
        return len(self._wire_indexes) > 1

    def _find_streaming(self) -> None:
        current = self._current
        self.streaming = self.call_index = None
        if self._ending is not None:
            return
        match current:
            case OpenText() if not current.is_refusal and current.is_plain:
                self.streaming = current
            case OpenReasoning() if current.is_plain and not self._thinks_by_list:
                self.streaming = current
            case None if not self._is_merged:
                call = self._calls.plain
                if call is not None:
                    self.streaming, self.call_index = call.open, call.index
            case _:
                pass


def noticed(level: str, raw: Raw, choice: int = 0) -> Event:
    """Return an event with unknown fields of a chunk, a choice or a delta (`level`)."""
    return Noticed("fields", "chat", level, raw, None, choice)
