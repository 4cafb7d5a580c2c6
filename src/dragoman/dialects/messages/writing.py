"""Blocks of a stream as bytes: opened, grown and stopped one at a time.

The hot deltas are a prefix built when the block opened, one JSON string, and a suffix. Which part may take that road is
in `_text`, `_input` and `_thought`; every other delta goes the long way.
"""

from collections.abc import Sequence
from typing import assert_never

from dragoman._json import Raw, dumps, dumps_text, dumps_texts, is_strict
from dragoman.core.losses import LossBook
from dragoman.core.seals import seal_to_signature
from dragoman.dialects.messages.fields import object_of
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import (
    REASONING_JOIN,
    Block,
    block_from_part,
    call_header,
    citation_from_annotation,
    is_object_text,
    note_status,
    own_extra,
    reasoning_block,
    wrapper_key,
)
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    InputDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text

__all__ = ("BlockWriter", "write_event")

_SUFFIX = b"}}\n\n"
_NO_PART = -1
_NO_THOUGHT = (_NO_PART, "", 0)
# Deltas that may be written without content, to carry fields that stand beside it.
_EMPTY = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_WRAPPER_CLOSING = '"}'
_WRAPPED_KINDS = frozenset(
    {"custom", "code_interpreter"}
)  # whose first words decide, see `wrapper_key`


def write_event(name: str, fields: Block) -> bytes:
    """One frame. Clients need the event's name twice."""
    data = dumps({"type": name, **fields})
    return b"event: " + name.encode("ascii") + b"\ndata: " + data + b"\n\n"


class BlockWriter:
    """`is_cut`: a call for the client ended incomplete. `complete_calls` and `has_refusal` decide the stop reason.

    `is_misleading`: another block follows a cut call that looks whole, so that no stop reason could tell it was cut.
    """

    def __init__(self, book: LossBook) -> None:
        self.complete_calls = 0
        self.has_refusal = False
        self.is_cut = False
        self.is_misleading = False
        self._last_cut: Call | None = None
        self._book = book
        self._index = 0
        self._part = _NO_PART
        self._header: Part = Text()
        self._is_open = False  # content_block_start has been written for the part
        self._is_told = False  # some input of the call has been written
        self._dropped: set[int] = set()
        self._text = _NO_PART
        self._input = _NO_PART
        self._thought: tuple[int, str, int] = _NO_THOUGHT
        self._prefix = b""
        self._key: str | None = None  # where text that is no JSON stands, see `wrapper_key`

    def start(self, event: PartStarted) -> bytes:
        if self._part != _NO_PART:
            raise LocalProtocolError(
                f"expected the end of part {self._part} before part {event.part} starts"
            )
        self._part = event.part
        self._header = header = event.header
        self._is_open = self._is_told = False
        match header:
            case Call():
                block = call_header(header, self._book, self._where)
                return self._drop() if block is None else self._open_call(block, header)
            case Opaque():
                block = block_from_part(header, self._book, self._where)
                return self._drop() if block is None else self._open(block)
            case Media():
                self._book.note("media_output", self._where, header.kind)
                return self._drop()
            case Text() | Refusal() | Reasoning() | Result():
                return b""
            case _:
                assert_never(header)

    def open(self) -> bytes:
        """The start of the block of the open part, where that waits for its first words."""
        is_waiting = self._part != _NO_PART and not self._is_open
        return self._opened() if is_waiting else b""

    def drop(self, part: int) -> None:
        """A part that is not written: all that is said of it is ignored."""
        self._dropped.add(part)

    def is_dropped(self, part: int) -> bool:
        return part in self._dropped

    def text(self, event: TextDelta) -> bytes:
        if event.part == self._text and event.logprobs is None:
            return self._prefix + dumps_text(event.text) + _SUFFIX
        if not self._is_mine(event.part):
            return b""
        if event.logprobs is not None:
            self._book.note("logprobs", self._where)
        if not event.text:
            return b""
        return self._opened() + self._prefix + dumps_text(event.text) + _SUFFIX

    def thought(self, event: ReasoningDelta) -> bytes:
        key = (event.part, event.channel, event.index)
        if key == self._thought:
            return self._prefix + dumps_text(event.text) + _SUFFIX
        if not self._is_mine(event.part):
            return b""
        text = event.text
        if self._thought != _NO_THOUGHT:
            self._book.note("reasoning_entries", self._where)
            text = REASONING_JOIN + text
        self._thought = key
        return self._opened() + self._prefix + dumps_text(text) + _SUFFIX

    def input(self, event: InputDelta) -> bytes:
        if event.part == self._input:
            self._is_told = True
            return self._prefix + dumps_text(event.text) + _SUFFIX
        if not self._is_mine(event.part):
            return b""
        if not self._is_told and isinstance(self._header, Call):
            self._key = wrapper_key(self._header, event.text)
        if self._key is None:
            self._input = self._part
            return self.input(event)
        return self._wrapped(_escape(event.text))

    def write_many(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """Several deltas of the block that grows; None if they must be written one by one."""
        if part != (self._input if kind is InputDelta else self._text):
            return None
        prefix = self._prefix
        return prefix + dumps_texts(texts, _SUFFIX + prefix) + _SUFFIX

    def output(self, event: OutputDelta) -> None:
        """What a provider's tool prints into its call is lost; a result has it, and a call that is not shown takes it along."""
        if self._is_mine(event.part) and isinstance(self._header, Call):
            self._book.note("provider_output", self._where)

    def annotate(self, event: AnnotationAdded) -> bytes:
        if not self._is_mine(event.part):
            return b""
        citation = citation_from_annotation(event.annotation, self._book, self._where)
        if citation is None:
            return b""
        return self._opened() + self._delta({"type": "citations_delta", "citation": citation})

    def notice(self, event: Noticed) -> bytes:
        """Fields beside a delta, or a delta nobody knows, of a part that is open."""
        if event.part != self._part or event.raw is None:
            return b""
        if event.kind == "unknown":
            return self._opened() + self._delta(event.raw)
        field = _EMPTY.get(event.name)
        if field is None:
            return b""
        fields = object_of(event.raw) or {}
        return self._opened() + self._delta({"type": event.name, field: "", **fields})

    def end(self, event: PartEnded) -> bytes:
        if not self._is_mine(event.part):
            self._dropped.discard(event.part)
            return b""
        try:
            return self._end(event.value)
        finally:
            self._part = self._text = self._input = _NO_PART
            self._thought = _NO_THOUGHT

    def interrupt(self) -> bytes:
        """The answer fails: stop what is open, unless it is a call, which must not look complete."""
        is_call = isinstance(self._header, Call)
        out = self._stop() if self._part != _NO_PART and self._is_open and not is_call else b""
        self._part = _NO_PART
        return out

    @property
    def _where(self) -> str:
        return f"parts.{self._part}"

    def _is_mine(self, part: int) -> bool:
        """Whether something said of a part is to be written."""
        if part == self._part:
            return True
        if part in self._dropped:
            return False
        raise LocalProtocolError(f"expected something about part {self._part}, got part {part}")

    def _drop(self) -> bytes:
        self._dropped.add(self._part)
        self._part = _NO_PART
        return b""

    def _end(self, value: Part) -> bytes:
        match value:
            case Text() | Refusal():
                if isinstance(value, Refusal):
                    self.has_refusal = True
                else:
                    note_foreign(self._book, value.item_extra, self._where)
                note_foreign(self._book, value.extra, self._where)
                return self._stop() if self._is_open else b""
            case Reasoning():
                return self._end_reasoning(value)
            case Call():
                return self._end_call(value)
            case Opaque():
                return self._stop()
            case Result() | Media():
                block = block_from_part(value, self._book, self._where)
                return b"" if block is None else self._open(block) + self._stop()
            case _:
                assert_never(value)

    def _end_reasoning(self, value: Reasoning) -> bytes:
        note_foreign(self._book, value.extra, self._where)
        if not self._is_open:
            block = reasoning_block(value, self._book, self._where)
            if block is None:
                return b""
            if block["type"] == "redacted_thinking":
                return self._open(block) + self._stop()
        signature = seal_to_signature(value.seals, value.item_id)
        opened = self._opened()
        if signature is not None:
            opened += self._delta({"type": "signature_delta", "signature": signature})
        return opened + self._stop()

    def _end_call(self, value: Call) -> bytes:
        if value.seals:
            self._book.note("call_seal", self._where)
        is_client = value.executor == "client"
        if is_client and self._is_cut_short(value):
            self.is_cut = True
            self._last_cut = value
            return self._stop()
        if value.status == "incomplete":
            return self._stop()
        note_status(value, self._book, self._where)
        self.complete_calls += is_client
        if not self._is_told:
            self._key = wrapper_key(value, value.input)
        if self._key is not None:
            untold = "" if self._is_told else _escape(value.input)
            return self._wrapped(untold) + self._input_delta(_WRAPPER_CLOSING) + self._stop()
        if not self._is_told:
            return self._input_delta(value.input.strip() or "{}") + self._stop()
        if not is_object_text(value.input):
            self._book.note("invalid_input", self._where, f"call {value.call_id}")
        return self._stop()

    def _is_cut_short(self, value: Call) -> bool:
        """Whether the call must not be run. SDKs read a text that is no JSON leniently, and would run half a call."""
        if value.status != "completed":
            return True
        if value.kind == "custom" or not value.input.strip() or is_strict(value.input):
            return False
        self._book.note("invalid_input", self._where, f"call {value.call_id}")
        return True

    def _open(self, block: Block) -> bytes:
        self._is_open = True
        cut, self._last_cut = self._last_cut, None
        if cut is not None and _looks_whole(cut):
            self.is_misleading = True
        index = self._index
        self._index += 1
        return write_event("content_block_start", {"index": index, "content_block": block})

    def _open_call(self, block: Block, call: Call) -> bytes:
        out = self._open(block)
        self._prefix = self._head("input_json_delta", "partial_json")
        self._key = None
        if call.kind not in _WRAPPED_KINDS:
            self._input = self._part
        return out

    def _opened(self) -> bytes:
        """The start of a text or thinking block, if it has not been written."""
        if self._is_open:
            return b""
        if isinstance(self._header, Reasoning):
            own = own_extra(self._header.extra)
            out = self._open({"type": "thinking", "thinking": "", "signature": "", **own})
            self._prefix = self._head("thinking_delta", "thinking")
            return out
        own = own_extra(self._header.extra if isinstance(self._header, Text | Refusal) else None)
        out = self._open({"type": "text", "text": "", **own})
        self._prefix = self._head("text_delta", "text")
        self._text = self._part
        return out

    def _head(self, delta: str, field: str) -> bytes:
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"%s","%s":' % (self._index - 1, delta.encode(), field.encode())
        )

    def _wrapped(self, escaped: str) -> bytes:
        """A piece of text that is no JSON, as the inside of a JSON string."""
        opening = "" if self._is_told else f'{{"{self._key}":"'
        self._is_told = True
        return self._input_delta(opening + escaped)

    def _input_delta(self, text: str) -> bytes:
        return self._prefix + dumps_text(text) + _SUFFIX if text else b""

    def _delta(self, delta: Block | Raw) -> bytes:
        return write_event("content_block_delta", {"index": self._index - 1, "delta": delta})

    def _stop(self) -> bytes:
        return write_event("content_block_stop", {"index": self._index - 1})


def _looks_whole(cut: Call) -> bool:
    """Whether a client would take a cut call for a complete one: an empty input is `{}` to it."""
    if not cut.input:
        return True
    # The object around a custom tool's text is never closed before the text is.
    return cut.kind != "custom" and (not cut.input.strip() or is_strict(cut.input))


def _escape(text: str) -> str:
    return dumps_text(text)[1:-1].decode("utf-8")
