"""The blocks of one streamed answer, by their index on the wire: which are open, and what their end makes of them.

Rules, each forced by a server that does it:

- an index is what a block is found by, never its part number; gaps, reuse and a missing index are survived;
- a delta without its block opens one; a delta of another type than its block opens one beside it;
- a call without a name is held until its arguments settle which tool is meant;
- a call that was stopped without input, or with input that is no JSON, waits (`_waiting`) for the next thing that
  happens: see `decode`.

Knows nothing of messages, their ends and their reasons: the reader says whether the protocol closed a block.
"""

from typing import TypeVar

from msgspec.structs import replace

from dragoman._json import Raw, raw
from dragoman.core.ids import Minter
from dragoman.core.names import resolve_name
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.messages.blocks import part_from_block, type_of
from dragoman.dialects.messages.fields import (
    Fields,
    fragment_of,
    is_null,
    own_fields,
    source_of,
    string_of,
)
from dragoman.dialects.messages.growing import (
    Growing,
    GrowingCall,
    GrowingText,
    GrowingThinking,
    GrowingWhole,
)
from dragoman.dialects.messages.wire import (
    DELTA_FIELDS,
    MAPPED_BLOCKS,
    NOTICED_DELTAS,
    OPAQUE_BLOCKS,
    RESULT_SUFFIX,
)
from dragoman.model.events import Event, Noticed, PartEnded
from dragoman.model.parts import Call, Part, PartStatus, Reasoning, Text

__all__ = ("Assembly",)

_IMPLICIT: dict[str, tuple[str, Part]] = {
    "text_delta": ("text", Text()),
    "citations_delta": ("text", Text()),
    "thinking_delta": ("thinking", Reasoning()),
    "signature_delta": ("thinking", Reasoning()),
    "input_json_delta": ("tool_use", Call(call_id="", name="")),
}
"""What a delta without its block belongs to."""


class Assembly:
    """`texts`, `thoughts` and `calls` hold the open blocks whose deltas need no thought, for the reader's hot path."""

    def __init__(self, context: DecodeContext, found: list[tuple[str, str]]) -> None:
        self.texts: dict[int, GrowingText] = {}
        self.thoughts: dict[int, GrowingThinking] = {}
        self.calls: dict[int, GrowingCall] = {}
        self.complete_calls = 0
        self.fault = ""  # why a call that the protocol closed cannot be told as complete
        self._mint = Minter(context.seed)
        self._context = context
        self._found = found
        self._open: dict[int, Growing] = {}
        self._beside: dict[tuple[int, str], int] = {}
        self._waiting: list[GrowingCall] = []
        self._ids: set[str] = set()
        self._next = 0
        self._parts = 0
        self._calls = 0

    def seed(self, seed: str) -> None:
        """What minted ids are made of, where the context gave nothing."""
        self._mint = Minter(seed)

    def open(self, index: int | None, block: Fields, whole: Raw) -> tuple[Event, ...]:
        """A block starts."""
        events = self._settle_waiting(is_cut=False)
        if index is None:
            self._note(
                "missing_index", f"expected an index, content_block_start {self._next} has none"
            )
            index = self._next
        elif index in self._open:
            self._note("index_reused", f"content_block_start {index} while block {index} is open")
            if self._is_repeat(index, block):
                return events
            events = (*events, *self._end(index, is_closed=True))
        elif index < self._next:
            self._note("index_reused", f"content_block_start {index} after block {index} ended")
        elif index > self._next:
            self._note("index_gap", f"expected content_block_start {self._next}, got {index}")
        if self._open:
            others = ", ".join(str(key) for key in self._open)
            self._note("interleaved_blocks", f"block {index} starts while {others} is open")
        self._next = max(self._next, index + 1)
        part = self._checked(index, part_from_block(block, whole), block)
        return (*events, *self._begin(index, part, block))

    def grow(self, index: int | None, delta: Fields, whole: Raw) -> tuple[Event, ...]:
        """A delta that the hot path did not take."""
        kind = type_of(delta)
        if index is None:
            index = next(reversed(self._open), self._next)
            self._note("missing_index", f"expected an index, a {kind or 'delta'} has none")
        field = DELTA_FIELDS.get(kind)
        if field is None:
            return self._grow_unknown(index, kind, delta, whole)
        key, opened = self._find(index, kind)
        if key is None:
            return opened
        target = self._open[key]
        noticed = self._notice(kind, own_fields(delta, {"type", field}), target)
        grown = self._add(target, kind, delta.get(field))
        self._place(key, target)
        return (*opened, *noticed, *grown)

    def close(self, index: int | None) -> tuple[Event, ...]:
        """A block stops."""
        if index is None:
            index = next(reversed(self._open), -1)
            self._note("missing_index", "expected an index, a content_block_stop has none")
        beside = [key for (owner, _), key in self._beside.items() if owner == index]
        if index not in self._open and not beside:
            self._note("missing_block_start", f"content_block_stop {index} without its start")
        keys = [key for key in (index, *beside) if key in self._open]
        return tuple(event for key in keys for event in self._end(key, is_closed=True))

    def finish(self, *, is_cut: bool) -> tuple[Event, ...]:
        """The message ends: what is open is closed by that, but for calls that a limit cut."""
        events: list[Event] = []
        for key, block in list(self._open.items()):
            self._note("missing_block_stop", f"expected content_block_stop {key} before the end")
            is_closed = not (is_cut and isinstance(block, GrowingCall))
            events.extend(self._end(key, is_closed=is_closed))
        return (*events, *self._settle_waiting(is_cut=is_cut))

    def abandon(self) -> tuple[Event, ...]:
        """The stream failed: nothing that is open was closed."""
        events = [event for key in list(self._open) for event in self._end(key, is_closed=False)]
        return (*events, *self._settle_waiting(is_cut=True))

    @property
    def is_doubtful(self) -> bool:
        """Whether an open call would not be complete if it ended here."""
        return any(
            isinstance(block, GrowingCall) and not block.is_strict for block in self._open.values()
        )

    def _begin(self, index: int, part: Part, block: Fields) -> tuple[Event, ...]:
        growing: Growing
        match part:
            case Text():
                growing = GrowingText(self._parts, part)
            case Reasoning() if type_of(block) == "thinking":
                growing = GrowingThinking(self._parts, part)
            case Call():
                growing = GrowingCall(self._parts, part)
            case _:
                growing = GrowingWhole(self._parts, part, block)
        if not (isinstance(growing, GrowingCall) and growing.is_held):
            self._parts += 1
        self._open[index] = growing
        events = growing.start()
        self._place(index, growing)
        return events

    def _checked(self, index: int, part: Part, block: Fields) -> Part:
        """Report what is irregular about a new block; give a call the id it lacks."""
        kind = type_of(block)
        if not isinstance(part, Call):
            is_known = (
                kind in MAPPED_BLOCKS or kind in OPAQUE_BLOCKS or kind.endswith(RESULT_SUFFIX)
            )
            if not is_known:
                self._note("unknown_block", f"block {index} has the unknown type {kind!r}")
            return part
        if string_of(block.get("input")) is not None:
            self._note(
                "string_input", f"expected an object as input of block {index}, got a string"
            )
        if not part.name:
            self._note("missing_name", f"expected a name, block {index} ({kind}) has none")
        if not part.call_id:
            self._note("missing_id", f"expected an id, block {index} ({kind}) has none")
            prefix = "toolu_" if part.executor == "client" else "srvtoolu_"
            part = replace(part, call_id=self._mint(prefix))
        elif part.call_id in self._ids:
            self._note("repeated_id", f"block {index} has the id of an earlier block")
        self._ids.add(part.call_id)
        return part

    def _is_repeat(self, index: int, block: Fields) -> bool:
        """Whether a second start of an open block only says again what the first one said."""
        old = self._open[index]
        return isinstance(old, GrowingCall) and old.call_id == string_of(block.get("id"))

    def _find(self, index: int, kind: str) -> tuple[int | None, tuple[Event, ...]]:
        """The key of the block a delta belongs to, and the events of opening it if it had to be."""
        wanted, empty = _IMPLICIT[kind]
        block = self._open.get(index)
        if block is not None and _takes(block, kind):
            return index, ()
        key = self._beside.get((index, wanted))
        if key is not None and key in self._open:
            return key, ()
        if block is not None:
            self._note("delta_mismatch", f"a {kind} came for block {index}, which takes none")
            key = -1 - len(self._beside)
            self._beside[index, wanted] = key
        elif index < self._next and kind == "input_json_delta":
            # The call was told as complete; more input would contradict that, and nobody could be told.
            self._note("after_block_stop", f"dropped an {kind} for block {index}, which has ended")
            return None, ()
        else:
            self._note("missing_block_start", f"a {kind} came for block {index}, which is not open")
            key = index
            self._next = max(self._next, index + 1)
        fields: Fields = {"type": raw(wanted)}
        part = self._checked(index, empty, fields)
        return key, self._begin(key, part, fields)

    def _add(self, target: Growing, kind: str, value: Raw | None) -> tuple[Event, ...]:
        text = fragment_of(value)
        match kind, target:
            case "citations_delta", GrowingText():
                return target.cite(value) if value is not None else ()
            case "signature_delta", GrowingThinking():
                if not text:
                    return ()
                if target.is_sealed:
                    self._note("repeated_signature", "a thinking block was signed twice")
                return target.sign(text)
            case "input_json_delta", GrowingCall() if text is None and value is not None:
                if is_null(value):
                    return ()
                self._note("object_input", "expected partial_json as a string, got another value")
                return target.add(source_of(value))
            case _, GrowingWhole():
                raise AssertionError("`_find` gives no block that came whole")
            case _:
                return target.add(text or "")

    def _grow_unknown(self, index: int, kind: str, delta: Fields, whole: Raw) -> tuple[Event, ...]:
        target = self._open.get(index)
        if kind not in NOTICED_DELTAS:
            self._note("unknown_delta", f"a delta of block {index} has the unknown type {kind!r}")
        part = None if target is None else _number(target)
        if isinstance(target, GrowingWhole) and target.is_opaque:
            target.merge(delta)
        return (Noticed("unknown", "messages", "content_block_delta", whole, part),)

    def _notice(self, kind: str, fields: Fields, target: Growing) -> tuple[Event, ...]:
        if not fields:
            return ()
        return (Noticed("fields", "messages", kind, raw(fields), _number(target)),)

    def _end(self, key: int, *, is_closed: bool) -> tuple[Event, ...]:
        block = self._open.pop(key)
        for plain in (self.texts, self.thoughts, self.calls):
            plain.pop(key, None)
        if isinstance(block, GrowingCall):
            return self._end_call(block, is_closed=is_closed)
        status: PartStatus = "completed" if is_closed else "incomplete"
        return (*block.flush(), PartEnded(block.part, block.value(status)))

    def _end_call(self, block: GrowingCall, *, is_closed: bool) -> tuple[Event, ...]:
        if is_closed and block.half:
            self.fault = f"the input of call {block.call_id} ends inside a character"
            is_closed = False
        events, was_in_start = block.settle()
        if was_in_start:
            self._note(
                "input_in_start", "the input came whole in content_block_start, not as deltas"
            )
        if block.is_cumulative:
            self._note("cumulative_input", "each input_json_delta repeats all input so far")
        if not is_closed:
            if block.is_held:
                return ()
            return (*events, PartEnded(block.part, block.value("incomplete")))
        if block.is_held:
            events = self._name(block)
            if block.is_held:
                return ()
        self._calls += 1
        if block.is_empty or not block.is_strict:
            self._waiting.append(block)
            return events
        return (*events, self._judge(block))

    def _name(self, block: GrowingCall) -> tuple[Event, ...]:
        context = self._context
        name = resolve_name(block.text, context.tools, self._calls, context.name_fallback)
        if name is None:
            self.fault = "expected a name for every call, the name of one never came"
            message = f"the name of call {block.call_id} never came and no tool fits its arguments"
            self._note("nameless_call", message)
            return ()
        events = block.name_it(self._parts, name)
        self._parts += 1
        return events

    def _judge(self, block: GrowingCall) -> Event:
        """The end of a call that the protocol closed, and no limit cut."""
        if not block.is_strict:
            self._note("invalid_arguments", f"expected JSON as input of call {block.call_id}")
        elif not block.text.lstrip().startswith("{"):
            self._note("invalid_arguments", f"expected an object as input of call {block.call_id}")
        self.complete_calls += block.is_client
        return PartEnded(block.part, block.value("completed"))

    def _settle_waiting(self, *, is_cut: bool) -> tuple[Event, ...]:
        events: list[Event] = []
        for block in self._waiting:
            if is_cut:
                events.append(PartEnded(block.part, block.value("incomplete")))
            else:
                events.extend((*block.fill(), self._judge(block)))
        self._waiting.clear()
        return tuple(events)

    def _place(self, key: int, block: Growing) -> None:
        """Offer a block to the hot path, or take it away while half a character is held."""
        if isinstance(block, GrowingText):
            _put(self.texts, key, block)
        elif isinstance(block, GrowingThinking):
            _put(self.thoughts, key, block)
        elif isinstance(block, GrowingCall):
            _put(self.calls, key, block)

    def _note(self, kind: str, message: str) -> None:
        self._found.append((kind, message))


_Block = TypeVar("_Block", GrowingText, GrowingThinking, GrowingCall)


def _put(plain: dict[int, _Block], key: int, block: _Block) -> None:
    if block.half:
        plain.pop(key, None)
    else:
        plain[key] = block


def _takes(block: Growing, kind: str) -> bool:
    if isinstance(block, GrowingText):
        return kind in ("text_delta", "citations_delta")
    if isinstance(block, GrowingThinking):
        return kind in ("thinking_delta", "signature_delta")
    return isinstance(block, GrowingCall) and kind == "input_json_delta"


def _number(block: Growing) -> int | None:
    """The number of a part that has been told of."""
    return None if isinstance(block, GrowingCall) and block.is_held else block.part
