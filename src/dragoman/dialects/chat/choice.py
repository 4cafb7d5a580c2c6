"""One choice of an answer: what its deltas say, one part after another, and how it ends.

Text, refusal, reasoning and sound are told one at a time: a part ends as soon as something of another kind begins, so
that text after a call is a new Text. Calls may overlap (see `calls`). A message of a body is one large delta.

    SPEAKING --finish_reason--> FINISHED --end of the stream--> told
        '------------------------^   '--more content--> still taken, and reported

Parts end with the finish; that the choice has finished is told at the end of the stream and not before, because
servers send content, and second finishes, after it.
"""

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct

from dragoman._json import Raw
from dragoman.core.drafts import join_logprobs
from dragoman.core.fields import expect_text
from dragoman.core.finish import settle_finish
from dragoman.dialects.chat.annotations import read_annotation
from dragoman.dialects.chat.calls import CallTrack
from dragoman.dialects.chat.content import read_part
from dragoman.dialects.chat.entries import legacy_entry, read_entry, usual_entry
from dragoman.dialects.chat.fields import (
    expect_fields,
    expect_items,
    extra_of,
    fields_of,
    items_of,
    join_object,
    text_of,
)
from dragoman.dialects.chat.open_call import OpenCall
from dragoman.dialects.chat.sealed import read_sealed
from dragoman.dialects.chat.speech import OpenAudio, OpenReasoning, OpenText
from dragoman.dialects.chat.telling import Telling
from dragoman.dialects.chat.wire import (
    AUDIO_FIELDS,
    CHOICE_FIELDS,
    CUT_REASONS,
    DELTA_FIELDS,
    FAILED_FINISHES,
    FINISHES,
    REASONING_FIELDS,
    SEALED_FIELDS,
    UsualChoice,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import Finished, Noticed
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Annotation, Extra, Media, Opaque, Refusal, Text

__all__ = ("ChoiceTrack",)


class _Ending(Struct, frozen=True):
    native: str | None = None
    reason: FinishReason | None = None
    stop_sequence: str | None = None
    extra: Extra | None = None


class ChoiceTrack:
    """`hot_text`, `hot_reasoning` and `hot_call` (with `hot_index`) are what a plain delta may continue, if anything."""

    def __init__(self, telling: Telling, index: int) -> None:
        self._telling = telling
        self._index = index
        self._calls = CallTrack(telling, index)
        self._speech: OpenText | OpenReasoning | OpenAudio | None = None
        self._annotations: list[Annotation] = []  # for the next text
        self._unsaid: dict[bool, list[Raw]] = {
            False: [],
            True: [],
        }  # logprobs for the next text, refusal
        self._thinks_by_list: bool | None = None
        self._message_extra: dict[str, Raw] = {}
        self._ending: _Ending | None = None
        self._spoke_since = False  # since the finish
        self._lanes: set[int] = set()
        self.hot_text: OpenText | None = None
        self.hot_reasoning: OpenReasoning | None = None
        self.hot_call: OpenCall | None = None
        self.hot_index: int | None = None

    def read(self, choice: Mapping[str, Raw], *, lane: int = 0, is_whole: bool = False) -> None:
        """One entry of `choices`. `lane` is its own index, where several are merged into this one.

        Raises:
            MalformedJson: a field that may hold text or a piece of a call is of another type.
            RemoteProtocolError: a call cannot be told (see `calls`).
        """
        self._note_lane(lane)
        before = len(self._telling.events)
        finish = expect_text(choice.get("finish_reason"), "finish_reason")
        delta = expect_fields(choice.get("delta") or choice.get("message"), "delta")
        self._read_delta(delta, fields_of(choice.get("logprobs")), lane, is_whole=is_whole)
        if self._ending is not None:
            self._note_more(before)
        native = finish or None
        rest = extra_of(choice, CHOICE_FIELDS)
        if native is not None and native not in FAILED_FINISHES:
            self._finish(native, choice, rest)
        elif rest is not None:
            self._telling.notice("choice", join_object(rest.fields), self._index)
        self._find_hot()

    def read_usual(self, choice: UsualChoice, *, lane: int = 0) -> None:
        """The same for one that was read by its type.

        Raises:
            RemoteProtocolError: as `read`.
        """
        self._note_lane(lane)
        before = len(self._telling.events)
        delta = choice.delta
        self._say(delta.content or "", None)
        self._say("", None, is_refusal=True)
        if delta.tool_calls:
            self._hush()
            self._calls.read([usual_entry(call) for call in delta.tool_calls], lane=lane)
        if self._ending is not None:
            self._note_more(before)
        if choice.finish_reason:
            self._finish(choice.finish_reason, {}, None)
        self._find_hot()

    def abandon(self) -> None:
        """The answer was cut."""
        if self._speech is not None:
            self._speech.end("incomplete")
            self._speech = None
        self._calls.abandon()

    def conclude(self, *, may_infer: bool) -> Finished | None:
        """The stream is over. None: it cannot be, the choice was cut. `may_infer`: the end itself was spelled out.

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
            self._telling.odd("missing_finish", message)
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

    def _note_lane(self, lane: int) -> None:
        self._lanes.add(lane)
        if len(self._lanes) == 2:
            message = f"expected one choice, got choice {lane} as well: read as one answer"
            self._telling.odd("split_choices", message)
            self._lanes.add(-1)  # said once

    def _read_delta(
        self, delta: Mapping[str, Raw], logprobs: Mapping[str, Raw], lane: int, *, is_whole: bool
    ) -> None:
        self._read_reasoning(delta)
        content = delta.get("content")
        text = text_of(content)
        if text is None:
            for piece in expect_items(content, "content"):
                self._read_piece(piece)
        self._say(text or "", logprobs.get("content"))
        self._say(text_of(delta.get("refusal")) or "", logprobs.get("refusal"), is_refusal=True)
        self._read_audio(delta.get("audio"))
        for image in items_of(delta.get("images")):
            self._read_piece(image)
        for raw in items_of(delta.get("annotations")):
            self._annotate(read_annotation(raw))
        self._read_calls(delta, lane, is_whole=is_whole)
        rest = {name: field for name, field in delta.items() if name not in DELTA_FIELDS}
        if rest and is_whole:
            self._message_extra = rest
        elif rest:
            self._telling.notice("delta", join_object(rest), self._index)

    def _read_calls(self, delta: Mapping[str, Raw], lane: int, *, is_whole: bool) -> None:
        entries = [legacy_entry(delta["function_call"])] if "function_call" in delta else []
        for raw in expect_items(delta.get("tool_calls"), "tool_calls"):
            try:
                entries.append(read_entry(raw))
            except MalformedJson as error:
                if not is_whole:
                    raise  # nobody knows which call it is a piece of
                self._calls.refuse(error)
        if entries:
            self._hush()
            if is_whole:
                self._calls.read_whole(entries)
            else:
                self._calls.read(entries, lane=lane)

    def _read_reasoning(self, delta: Mapping[str, Raw]) -> None:
        """Thoughts as text, as a list with seals, or as both, which say the same; the first seen is read."""
        for field in REASONING_FIELDS:
            text = text_of(delta.get(field))
            if text and not self._thinks_by_list:
                self._thinks_by_list = False
                self._reasoning(field).add(text)
                break
        for field in SEALED_FIELDS:
            for raw in items_of(delta.get(field)):
                entry = read_sealed(raw)
                reasoning = self._reasoning("reasoning_content")
                reasoning.keep(field, raw)
                if entry.text and self._thinks_by_list is not False:
                    self._thinks_by_list = True
                    reasoning.add(entry.text)
                if entry.seal is not None:
                    reasoning.seal(entry.seal)

    def _read_piece(self, raw: Raw) -> None:
        """An entry of a content list."""
        fields = fields_of(raw)
        if text_of(fields.get("type")) == "thinking":
            thinking = fields.get("thinking")
            texts = [text_of(thinking) or ""]
            texts += [text_of(fields_of(item).get("text")) or "" for item in items_of(thinking)]
            self._reasoning("reasoning_content").add("".join(texts))
            return
        part = read_part(raw)
        match part:
            case Text() | Refusal():
                self._say(part.text, None, is_refusal=isinstance(part, Refusal))
            case Media() | Opaque():
                self._turn()
                self._telling.tell_whole(part, self._index)
            case _:
                assert_never(part)

    def _read_audio(self, raw: Raw | None) -> None:
        fields = fields_of(raw)
        if not fields:
            return
        data, transcript = (
            text_of(fields.get("data")) or "",
            text_of(fields.get("transcript")) or "",
        )
        item_id, rest = text_of(fields.get("id")), extra_of(fields, AUDIO_FIELDS)
        audio = self._speech
        if not isinstance(audio, OpenAudio):
            if not data and not transcript and item_id is None:
                # The last update has only `expires_at`, and may come after the finish.
                self._telling.notice(
                    "delta", join_object({"audio": join_object(fields)}), self._index
                )
                return
            self._turn()
            audio = self._speech = OpenAudio(self._telling, self._index, item_id)
        audio.add(data, transcript, rest)

    def _say(self, text: str, logprobs: Raw | None, *, is_refusal: bool = False) -> None:
        unsaid = self._unsaid[is_refusal]
        if logprobs is not None and bytes(logprobs) != b"[]":
            unsaid.append(logprobs)
        speech = self._speech
        is_open = isinstance(speech, OpenText) and speech.is_refusal == is_refusal
        if text or (unsaid and is_open):
            self._text(is_refusal=is_refusal).add(text, join_logprobs(unsaid))
            unsaid.clear()

    def _annotate(self, annotation: Annotation) -> None:
        speech = self._speech
        if isinstance(speech, OpenText) and not speech.is_refusal:
            speech.annotate(annotation)
        else:
            self._annotations.append(annotation)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _text(self, *, is_refusal: bool) -> OpenText:
        speech = self._speech
        if isinstance(speech, OpenText) and speech.is_refusal == is_refusal:
            return speech
        self._turn()
        speech = self._speech = OpenText(self._telling, self._index, is_refusal=is_refusal)
        if not is_refusal:
            for annotation in self._annotations:
                speech.annotate(annotation)
            self._annotations.clear()
        return speech

    def _reasoning(self, field: str) -> OpenReasoning:
        if isinstance(self._speech, OpenReasoning):
            return self._speech
        self._turn()
        speech = self._speech = OpenReasoning(self._telling, self._index, field)
        return speech

    def _turn(self) -> None:
        """Something of another kind begins."""
        self._hush()
        self._calls.pause()

    def _hush(self) -> None:
        if self._speech is not None:
            self._speech.end("completed")
            self._speech = None

    # --- the end ------------------------------------------------------------------------------------------------------

    def _note_more(self, before: int) -> None:
        said = any(not isinstance(event, Noticed) for event in self._telling.events[before:])
        if said and not self._is_merged:
            message = "expected nothing of a choice after its finish_reason, got more content"
            self._telling.odd("after_finish", message)
        self._spoke_since = self._spoke_since or said

    def _finish(self, native: str, choice: Mapping[str, Raw], extra: Extra | None) -> None:
        reason = FINISHES.get(native.lower())
        stop = text_of(choice.get("stop_reason")) or text_of(choice.get("matched_stop"))
        if reason == "stop" and stop and stop.lower() not in FINISHES:
            ending = _Ending(native, "stop_sequence", stop, extra)
        else:
            ending = _Ending(native, reason, None, extra)
        if not self._accepts(ending):
            return
        if reason is None:
            message = f"expected a known finish_reason, got {native!r}: decided from the content"
            self._telling.odd("unknown_finish", message)
        self._ending = ending
        self._spoke_since = False
        self._close(ending)
        settled = self._settle(ending)
        if reason is not None and settled != ending.reason and not self._is_merged:
            message = f"expected finish_reason {settled!r} by the content, got {native!r}"
            self._telling.odd("wrong_finish", message)

    def _accepts(self, ending: _Ending) -> bool:
        """Whether a finish counts, beside one that came before."""
        old = self._ending
        if old is None or self._spoke_since:
            return True
        if self._is_merged:
            return old.reason not in CUT_REASONS
        message = f"expected one finish_reason, got {ending.native!r} after {old.native!r}"
        self._telling.odd("after_finish", message)
        return False

    def _close(self, ending: _Ending) -> None:
        if self._annotations:
            self._text(is_refusal=False)
        self._hush()
        self._calls.finish(was_cut=ending.reason in CUT_REASONS)
        unsaid = {
            name: logprobs
            for name, is_refusal in (("content", False), ("refusal", True))
            if (logprobs := join_logprobs(self._unsaid[is_refusal])) is not None
        }
        if unsaid:
            fields = {"logprobs": join_object(unsaid)}
            self._telling.notice("choice", join_object(fields), self._index)
            self._unsaid = {False: [], True: []}

    def _settle(self, ending: _Ending) -> FinishReason:
        return settle_finish(ending.reason, has_complete_client_calls=self._calls.has_complete)

    @property
    def _is_merged(self) -> bool:
        return len(self._lanes) > 1

    def _find_hot(self) -> None:
        speech = self._speech
        self.hot_text = self.hot_reasoning = self.hot_call = self.hot_index = None
        if self._ending is not None:
            return
        match speech:
            case OpenText() if not speech.is_refusal and speech.is_plain:
                self.hot_text = speech
            case OpenReasoning() if not speech.half and not self._thinks_by_list:
                self.hot_reasoning = speech
            case None if not self._is_merged:
                self.hot_call = self._calls.plain
                self.hot_index = self.hot_call.index if self.hot_call is not None else None
            case _:
                pass
