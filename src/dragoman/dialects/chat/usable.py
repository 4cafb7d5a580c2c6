"""Decides which chunks every client can use unchanged.

A usable stream has the envelope (`id`, `object`, `created`, `model`) on every chunk, `finish_reason` in every choice (null
until the finish, as OpenAI's schema requires), a role in the first delta of a choice, an index on every call, id, type and
name of a call in its first delta and there alone (LlamaIndex opens a call at each id, and reads one call of a chunk), strings
for arguments, calls one after the other, and one known finish per choice. All clients accept null or absent content, empty
names in later deltas, usage in any chunk, `event:` lines and comments.
"""

from collections.abc import Sequence

from dragoman._json import FAST_FAILURES, dumps_text
from dragoman.core.fields import replace_member
from dragoman.dialects.chat.wire import (
    UsableCall,
    UsableChoice,
    UsableChunk,
    UsableEnvelope,
    UsableMessage,
    UsableWholeCall,
    decode_usable_body,
    decode_usable_chunk,
    decode_usable_envelope,
    decode_usable_error,
)
from dragoman.dialects.codec import EncodeContext, FrameVerdict
from dragoman.model.events import Event, Finished, PartStarted
from dragoman.model.parts import Call
from dragoman.sse import Frame, encode_comment

_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter"})
_LEGACY_FINISHES = frozenset({"stop", "length", "function_call", "content_filter"})
_BLANK = b"\n\n"
_CHOICES = b'"choices"'
_NO_CHOICES = b'"choices":[]}'
_FINISH = b'"finish_reason":'  # with the colon: a text may be exactly these letters
_UNKNOWN = b"\0"  # no frame begins or ends with it


class ChatCheck:
    """A `codec.FrameCheck` for Chat Completions."""

    harmless: frozenset[str] = frozenset({"repeated_id", "empty_name"})
    ending = b"data: [DONE]\n\n"
    model_path: tuple[str, ...] = ("model",)
    has_default_input = False

    def __init__(self, context: EncodeContext) -> None:
        self._is_legacy = context.legacy_functions
        self._finishes = _LEGACY_FINISHES if context.legacy_functions else _FINISHES
        self._has_usage = context.include_usage
        self._model = context.model
        self._id = ""
        self._calls: dict[int, list[str]] = {}  # choice -> the ids of its calls
        # Calls and finishes that were received and whose events were not emitted yet.
        self._ahead = 0
        # The bytes of plain deltas before their choices, and the bytes to send in their place.
        self._head = _UNKNOWN
        self._new_head: bytes | None = None

    @property
    def choices(self) -> int:
        return len(self._calls)

    @property
    def is_ahead(self) -> bool:
        return self._ahead > 0

    def look(self, frame: Frame, data: bytes, events: Sequence[Event]) -> FrameVerdict:
        look = self._look(frame, data)
        self.take(events)
        return look

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Finished) or (
                isinstance(event, PartStarted) and isinstance(event.header, Call)
            ):
                self._ahead -= 1

    def plain(self, raw: bytes, count: int) -> bytes | None:
        if raw.rfind(_FINISH) < 0 or (count > 1 and raw.count(_FINISH) < count):
            return None
        if not raw.startswith(self._head):
            first = self._learn(raw if count == 1 else raw[: raw.index(_BLANK) + len(_BLANK)])
            if count == 1 or first is None:
                return first
        head, new_head = self._head, self._new_head
        if count > 1 and raw.count(_BLANK + head) < count - 1:
            return None
        if new_head is None:
            return raw
        rest = raw[len(head) :]
        return new_head + (rest if count == 1 else rest.replace(_BLANK + head, _BLANK + new_head))

    def keep_alive(self) -> bytes:
        return encode_comment("ping")

    def _look(self, frame: Frame, data: bytes) -> FrameVerdict:
        if frame.is_done:
            return FrameVerdict(
                problem="" if data == b"[DONE]" else "expected [DONE] and nothing else"
            )
        try:
            chunk = decode_usable_chunk(data)
        except FAST_FAILURES as error:
            return _look_at_error(data, str(error))
        if not chunk.choices:
            return self._look_at_rest(chunk)
        if not self._is_own(chunk):
            return FrameVerdict(
                problem=f"expected a chunk of {self._id!r}, got one of {chunk.id!r}"
            )
        input_size = 0
        for choice in chunk.choices:
            problem = self._look_at_choice(choice)
            if problem:
                return FrameVerdict(problem=problem)
            delta = choice.delta
            input_size += sum(len(call.input) for call in delta.tool_calls or ())
            if delta.function_call is not None:
                input_size += len(delta.function_call.arguments or "")
        return FrameVerdict(input_size=input_size, model=chunk.model)

    def _is_own(self, chunk: UsableEnvelope) -> bool:
        """Whether a chunk belongs to this answer: clients identify an answer by its id."""
        self._id = self._id or chunk.id
        return bool(chunk.id) and chunk.id == self._id

    def _look_at_rest(self, chunk: UsableChunk) -> FrameVerdict:
        """Check a chunk without choices: usage, or Azure's first chunk, which has no id yet."""
        if chunk.id and self._id and chunk.id != self._id:
            return FrameVerdict(
                problem=f"expected a chunk of {self._id!r}, got one of {chunk.id!r}"
            )
        is_unwanted = chunk.usage is not None and not self._has_usage
        return FrameVerdict(model=chunk.model or None, is_stray=is_unwanted)

    def _look_at_choice(self, choice: UsableChoice) -> str:
        """Return why some client cannot use a choice of a chunk; "" if all can."""
        index, delta = choice.index, choice.delta
        if index not in self._calls:
            if not delta.role:
                return "expected a role in the first delta of a choice"
            if index != len(self._calls):
                return f"expected choice {len(self._calls)} next, got choice {index}"
            self._calls[index] = []
        if delta.tool_calls if self._is_legacy else delta.function_call is not None:
            return "expected calls in the form that the client asked for"
        if delta.function_call is not None:
            self._ahead += bool(delta.function_call.name)
        if delta.tool_calls and len(delta.tool_calls) > 1:
            return "expected one call in a delta, got several"
        for call in delta.tool_calls or ():
            problem = self._look_at_call(call, self._calls[index])
            if problem:
                return problem
        finish = choice.finish_reason
        if finish is not None:
            if finish not in self._finishes:
                return f"expected a known finish_reason, got {finish!r}"
            self._ahead += 1
        return ""

    def _look_at_call(self, call: UsableCall, ids: list[str]) -> str:
        """Check that an entry opens the next call with all that clients need, or continues the last call."""
        if call.index == len(ids):
            if not call.id or not call.type or not call.name:
                return "expected id, type and name in the first delta of a call"
            ids.append(call.id)
            self._ahead += 1
            return ""
        if call.index != len(ids) - 1:
            return f"expected more of call {len(ids) - 1}, got call {call.index}"
        if call.id is not None or call.name:
            return "expected no id and no name in a later delta of a call"
        return ""

    def _learn(self, raw: bytes) -> bytes | None:
        """Check a plain delta whose beginning differs from the last one's, and remember its beginning.

        The envelope may follow the choices, or may have changed.
        """
        start = raw.find(b"data:") + len(b"data:")
        data = raw[start:].strip()
        try:
            envelope = decode_usable_envelope(data)
        except FAST_FAILURES:
            return None
        if not self._is_own(envelope):
            return None
        head = raw[: raw.find(_CHOICES, start)]
        try:
            whole = decode_usable_envelope(head[start:] + _NO_CHOICES)
        except FAST_FAILURES:
            whole = None  # a field of the envelope follows the choices
        self._head = head if whole == envelope else _UNKNOWN
        self._new_head = None
        if self._model is None or self._model == envelope.model:
            return raw
        return self._rename(raw, data, dumps_text(self._model))

    def _rename(self, raw: bytes, data: bytes, model: bytes) -> bytes | None:
        renamed = replace_member(data, self.model_path, model)
        if renamed is None:
            return None
        sent = raw.replace(data, renamed, 1)
        head = self._head
        if head is not _UNKNOWN:
            self._new_head = sent[: len(sent) - (len(raw) - len(head))]
        return sent


def is_usable_body(data: bytes, context: EncodeContext, is_typed: bool) -> bool:  # noqa: FBT001 -- see `Codec`
    """Whether every client can use a whole body unchanged. A `TypedBody` has all that a `UsableBody` has."""
    if is_typed and not context.legacy_functions:
        return True
    try:
        body = decode_usable_body(data)
    except FAST_FAILURES:
        return False
    finishes = _LEGACY_FINISHES if context.legacy_functions else _FINISHES
    return bool(body.id and body.choices) and all(
        choice.finish_reason in finishes and _is_usable_message(choice.message, context)
        for choice in body.choices
    )


def _is_usable_message(message: UsableMessage, context: EncodeContext) -> bool:
    if context.legacy_functions:
        return not message.tool_calls
    return message.function_call is None and all(map(_is_usable_call, message.tool_calls or ()))


def _is_usable_call(call: UsableWholeCall) -> bool:
    if call.type == "custom":
        return bool(call.id) and call.custom is not None and bool(call.custom.name)
    function = call.function
    return bool(call.id and function is not None and function.name and function.arguments)


def _look_at_error(data: bytes, problem: str) -> FrameVerdict:
    """Check a chunk that is not a usable part of an answer because of `problem`: it may be an error chunk."""
    try:
        error = decode_usable_error(data).error
    except FAST_FAILURES:
        return FrameVerdict(problem=problem)
    return (
        FrameVerdict(is_error=True)
        if error.message
        else FrameVerdict(problem="expected an error with a message, got an empty message")
    )
