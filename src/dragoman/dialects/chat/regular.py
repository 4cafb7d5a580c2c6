"""Which chunks every client can use as they came.

A regular stream has the envelope (`id`, `object`, `created`, `model`) on every chunk, a role in the first delta of a
choice, an index on every call, id, type and name of a call in its first delta, strings for arguments, calls one after
the other, and one known finish per choice. Null or absent content, repeated ids, empty names in later deltas, usage
anywhere, `event:` lines and comments harm nobody.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, dumps_text, typed_decoder
from dragoman.core.members import replace_member
from dragoman.dialects.base import EncodeContext, Look, Mark
from dragoman.dialects.chat.encode import ChatEncoder
from dragoman.dialects.chat.wire import decode_hot
from dragoman.model.events import Finished
from dragoman.sse import Frame, encode_comment

__all__ = ("ChatWatch", "is_regular_body")

_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter"})
_LEGACY_FINISHES = frozenset({"stop", "length", "function_call", "content_filter"})
_WHOLE = -1  # the lane of what belongs to no choice
_DONE: Mark = (_WHOLE, "done")


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _Call(Struct):
    index: int
    id: str | None = None
    type: Literal["function", "custom"] | None = None
    function: _Function | None = None
    custom: _Custom | None = None

    @property
    def name(self) -> str:
        inner = self.custom or self.function
        return (inner.name or "") if inner is not None else ""

    @property
    def input(self) -> str:
        if self.custom is not None:
            return self.custom.input or ""
        return (self.function.arguments or "") if self.function is not None else ""


class _Delta(Struct):
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(Struct):
    index: int
    delta: _Delta
    finish_reason: str | None = None


class _Envelope(Struct):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class _Chunk(_Envelope):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Error(Struct, gc=False):
    message: str


class _ErrorChunk(Struct):
    error: _Error
    choices: None = None


class _WholeFunction(Struct, gc=False):
    name: str
    arguments: str


class _WholeCustom(Struct, gc=False):
    name: str
    input: str


class _WholeCall(Struct):
    id: str
    type: Literal["function", "custom"]
    function: _WholeFunction | None = None
    custom: _WholeCustom | None = None

    @property
    def is_usable(self) -> bool:
        if self.type == "custom":
            return bool(self.id) and self.custom is not None and bool(self.custom.name)
        function = self.function
        return bool(self.id and function is not None and function.name and function.arguments)


class _Message(Struct):
    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_WholeCall] | None = None
    function_call: _WholeFunction | None = None


class _WholeChoice(Struct):
    index: int
    message: _Message
    finish_reason: str


class _Body(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[_WholeChoice]


_decode_body = typed_decoder(_Body)
_decode_envelope = typed_decoder(_Envelope)
_decode_chunk = typed_decoder(_Chunk)
_decode_error = typed_decoder(_ErrorChunk)

_CHOICES = b'"choices"'
_REST = b'"choices":[]}'
_UNKNOWN_HEAD = b"\0"  # no data begins with it


class ChatWatch:
    """A `watching.Watch` for Chat Completions."""

    harmless: frozenset[str] = frozenset({"repeated_id", "empty_name"})
    ending = b"data: [DONE]\n\n"
    model_path: tuple[str, ...] = ("model",)
    is_repetition = False
    has_default_input = False

    def __init__(self, context: EncodeContext) -> None:
        self.encoder = ChatEncoder(context)
        self._is_legacy = context.legacy_functions
        self._has_usage = context.include_usage
        self._model = context.model
        self._id = ""
        self._calls: dict[int, list[str]] = {}  # choice -> the ids of its calls
        # How plain deltas begin, up to their choices, and what to send instead.
        self._head = _UNKNOWN_HEAD
        self._new_head: bytes | None = None
        self.head = _UNKNOWN_HEAD  # the same, where nothing is sent instead

    def look(self, frame: Frame, data: bytes) -> Look | None:
        if frame.is_done:
            return Look((_DONE,)) if data == b"[DONE]" else None
        try:
            chunk = _decode_chunk(data)
        except FAST_FAILURES:
            return _look_at_error(data)
        if not chunk.choices:
            return self._look_at_rest(chunk)
        if not self._is_own(chunk):
            return None
        known = len(self._calls)
        marks: list[Mark] = []
        said = 0
        for choice in chunk.choices:
            found = self._look_at(choice)
            if found is None:
                return None
            marks += found[0]
            said += found[1]
        return Look(tuple(marks), said, chunk.model, is_settled=len(self._calls) > known)

    def plain(self, data: bytes) -> bytes | None:
        head = self._head
        if not data.startswith(head):
            return self._learn(data)
        return data if self._new_head is None else self._new_head + data[len(head) :]

    def input_size(self, data: bytes) -> int:
        calls = decode_hot(data).choices[0].delta.tool_calls
        return 0 if calls is None else len(calls[0].function.arguments)

    def outline(self, stream: bytes) -> list[Mark]:
        marks: list[Mark] = []
        for piece in stream.split(b"\n\n"):
            data = piece.removeprefix(b"data: ")
            if data == b"[DONE]":
                marks.append(_DONE)
            elif len(data) < len(piece):
                marks += _outline(data)
        return marks

    def catch_up(self) -> bytes:
        # Our encoder gives a choice its role when it first speaks; the wire has given it by now.
        return b"".join(map(self.encoder.open_choice, self._calls))

    def follow(self, data: bytes) -> None:
        """Chat counts nothing."""

    def mend(self, event: Finished) -> Finished:
        return event  # the encoder writes words of its own

    def keep_alive(self) -> bytes:
        return encode_comment("ping")

    def _is_own(self, chunk: _Envelope) -> bool:
        """Whether a chunk belongs to the answer that is told; clients know an answer by its id."""
        self._id = self._id or chunk.id
        return bool(chunk.id) and chunk.id == self._id

    def _look_at_rest(self, chunk: _Chunk) -> Look | None:
        """A chunk without choices: usage, or Azure's first, which has no id yet."""
        if chunk.id and self._id and chunk.id != self._id:
            return None
        is_unwanted = chunk.usage is not None and not self._has_usage
        return Look(model=chunk.model or None, is_stray=is_unwanted)

    def _look_at(self, choice: _Choice) -> tuple[list[Mark], int] | None:
        index, delta = choice.index, choice.delta
        if index not in self._calls:
            if not delta.role or index != len(self._calls):
                return None
            self._calls[index] = []
        marks: list[Mark] = []
        said = 0
        if delta.function_call is not None:
            if not self._is_legacy:
                return None
            if delta.function_call.name:
                marks.append((index, "function", delta.function_call.name))
            said += len(delta.function_call.arguments or "")
        for call in delta.tool_calls or ():
            if self._is_legacy or not self._is_next(call, self._calls[index], marks, index):
                return None
            said += len(call.input)
        finish = choice.finish_reason
        if finish is not None:
            if finish not in (_LEGACY_FINISHES if self._is_legacy else _FINISHES):
                return None
            marks.append((index, "finish", finish))
        return marks, said

    def _is_next(self, call: _Call, ids: list[str], marks: list[Mark], choice: int) -> bool:
        """Whether an entry opens the next call with all that clients need, or continues the last."""
        if call.index == len(ids):
            if not call.id or not call.type or not call.name:
                return False
            ids.append(call.id)
            marks.append((choice, "call", call.index, call.id, call.type, call.name))
            return True
        return call.index == len(ids) - 1 and call.id in (None, ids[-1]) and not call.name

    def _learn(self, data: bytes) -> bytes | None:
        """A plain delta that does not begin as the last one: the envelope may stand elsewhere, or have changed."""
        try:
            envelope = _decode_envelope(data)
        except FAST_FAILURES:
            return None
        if not self._is_own(envelope):
            return None
        head = data[: data.find(_CHOICES)]
        try:
            whole = _decode_envelope(head + _REST)
        except FAST_FAILURES:
            whole = None  # something of the envelope stands behind the choices
        self._head = head if whole == envelope else _UNKNOWN_HEAD
        self._new_head = None
        self.head = _UNKNOWN_HEAD
        if self._model is None or self._model == envelope.model:
            self.head = self._head
            return data
        return self._rename(data, self._model, head)

    def _rename(self, data: bytes, model: str, head: bytes) -> bytes | None:
        renamed = replace_member(data, self.model_path, dumps_text(model))
        if renamed is not None and self._head == head:
            self._new_head = renamed[: len(renamed) - (len(data) - len(head))]
        return renamed


def is_regular_body(data: bytes, context: EncodeContext) -> bool:
    """Whether every client can use a whole answer as it came, as far as its reader has no objection."""
    try:
        body = _decode_body(data)
    except FAST_FAILURES:
        return False
    finishes = _LEGACY_FINISHES if context.legacy_functions else _FINISHES
    return bool(body.id and body.choices) and all(
        choice.finish_reason in finishes and _is_regular_message(choice.message, context)
        for choice in body.choices
    )


def _is_regular_message(message: _Message, context: EncodeContext) -> bool:
    if context.legacy_functions:
        return not message.tool_calls
    calls = message.tool_calls or ()
    return message.function_call is None and all(call.is_usable for call in calls)


def _outline(data: bytes) -> list[Mark]:
    """The marks of a chunk of our own."""
    try:
        chunk = _decode_chunk(data)
    except FAST_FAILURES:
        return [(_WHOLE, "error")]
    marks: list[Mark] = []
    for choice in chunk.choices:
        delta = choice.delta
        if delta.function_call is not None and delta.function_call.name:
            marks.append((choice.index, "function", delta.function_call.name))
        marks.extend(
            (choice.index, "call", call.index, call.id, call.type, call.name)
            for call in delta.tool_calls or ()
            if call.id
        )
        if choice.finish_reason is not None:
            marks.append((choice.index, "finish", choice.finish_reason))
    return marks


def _look_at_error(data: bytes) -> Look | None:
    try:
        error = _decode_error(data).error
    except FAST_FAILURES:
        return None
    return Look(is_error=True) if error.message else None
