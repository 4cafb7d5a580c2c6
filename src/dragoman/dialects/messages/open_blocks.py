"""The open blocks of one streamed answer, by the index that the upstream sends.

Some server requires each of these rules:

- a block is found by its index, which is never its part number; gaps, reuse and a missing index are tolerated;
- a delta without its block opens a block; a delta of another type than its block opens a block beside it;
- a call without a name is held until its arguments show which tool is meant;
- a call that was stopped without input, or with input that is no JSON, waits (`_waiting`) for the next event: see
  `decode`.

This module does not know messages, their ends and their reasons: the reader says whether the protocol closed a block.
`core.open_parts` emits the events of a part.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import Raw, is_strict, raw
from dragoman.core.fields import (
    Fields,
    is_present,
    present,
    read_fragment,
    read_text,
    source_text,
    without,
)
from dragoman.core.open_parts import OpenCall, OpenReasoning, OpenText, Parts
from dragoman.core.open_wholes import OpenWhole
from dragoman.core.seals import seals_from_signature
from dragoman.dialects.messages.blocks import annotation_from_citation, part_from_block, type_of
from dragoman.dialects.messages.wire import (
    DELTA_FIELDS,
    MAPPED_BLOCKS,
    NOTICED_DELTAS,
    OPAQUE_BLOCKS,
    RESULT_SUFFIX,
)
from dragoman.model.events import Noticed
from dragoman.model.parts import Call, Opaque, Part, PartStatus, Reasoning, Text

_IMPLICIT: dict[str, tuple[str, Part]] = {
    "text_delta": ("text", Text()),
    "citations_delta": ("text", Text()),
    "thinking_delta": ("thinking", Reasoning()),
    "signature_delta": ("thinking", Reasoning()),
    "input_json_delta": ("tool_use", Call(call_id="", name="")),
}
"""The block that is opened for a delta without its block."""


class _Block:
    """An open block: its type, its part, its fields, and those fields after the deltas of an opaque block."""

    __slots__ = ("fields", "kind", "merged", "open")

    def __init__(
        self, kind: str, part: OpenText | OpenReasoning | OpenCall | OpenWhole, fields: Fields
    ) -> None:
        self.kind = kind
        self.open = part
        self.fields = fields
        self.merged: dict[str, Raw] | None = None

    def takes(self, delta: str) -> bool:
        match self.open:
            case OpenText():
                return delta in ("text_delta", "citations_delta")
            case OpenReasoning():
                return self.kind == "thinking" and delta in ("thinking_delta", "signature_delta")
            case OpenCall():
                return delta == "input_json_delta"
            case OpenWhole():
                return False

    @property
    def part(self) -> int | None:
        """The number of the part; None if it was not announced."""
        return self.open.part if self.open.part >= 0 else None

    def merge(self, delta: Fields) -> None:
        """Set the fields of an opaque block from a delta: a compaction sends its summary this way."""
        if isinstance(self.open, OpenWhole) and isinstance(self.open.value, Opaque):
            changed = {key: value for key, value in delta.items() if is_present(value)}
            changed.pop("type", None)  # of the delta, not of the block
            self.merged = dict(self.fields) if self.merged is None else self.merged
            self.merged |= changed

    def end_other(self, *, is_closed: bool) -> None:
        """End a block that is not a call."""
        status: PartStatus = "completed" if is_closed else "incomplete"
        match self.open:
            case OpenWhole(value=Opaque() as value) if self.merged is not None:
                self.open.end(status, replace(value, raw=raw(self.merged)))
            case _:
                self.open.end(status)


class OpenBlocks:
    """The open blocks of one answer. `streaming`: the open parts, by index, that a plain delta may continue."""

    def __init__(self, parts: Parts) -> None:
        self.streaming: dict[int, OpenText | OpenReasoning | OpenCall] = {}
        self.complete_calls = 0
        self._parts = parts
        self._open: dict[int, _Block] = {}
        self._beside: dict[tuple[int, str], int] = {}
        self._waiting: list[OpenCall] = []
        self._ids: set[str] = set()
        self._next = 0
        self._calls = 0
        self._is_whole = False  # the blocks are those of a body, which has no deltas

    def open(self, index: int | None, block: Fields, whole: Raw) -> None:
        """Open a block at content_block_start."""
        self._settle_waiting(is_cut=False)
        if index is None:
            self._note(
                "missing_index", f"expected an index, content_block_start {self._next} has none"
            )
            index = self._next
        elif index in self._open:
            self._note("index_reused", f"content_block_start {index} while block {index} is open")
            if self._is_repeat(index, block):
                return
            self._end(index, is_closed=True)
        elif index < self._next:
            self._note("index_reused", f"content_block_start {index} after block {index} ended")
        elif index > self._next:
            self._note("index_gap", f"expected content_block_start {self._next}, got {index}")
        if self._open:
            last = next(reversed(self._open))
            self._note("interleaved_blocks", f"block {index} starts while block {last} is open")
        self._next = max(self._next, index + 1)
        part = self._checked(index, part_from_block(block, whole), block)
        self._begin(index, part, block)

    def read_whole(self, blocks: Sequence[tuple[Fields, Raw]], *, is_cut: bool) -> None:
        """Read the blocks of a body. `is_cut`: a limit ended it, so that its last call is incomplete."""
        self._is_whole = True
        for index, (block, whole) in enumerate(blocks):
            self.open(index, block, whole)
            is_last = index == len(blocks) - 1
            is_call = isinstance(self._open[index].open, OpenCall)
            self._end(index, is_closed=not (is_cut and is_last and is_call))
        self._settle_waiting(is_cut=False)

    def grow(self, index: int | None, delta: Fields, whole: Raw) -> None:
        """Decode a delta that is not plain."""
        kind = type_of(delta)
        if index is None:
            index = next(reversed(self._open), self._next)
            self._note("missing_index", f"expected an index, a {kind or 'delta'} has none")
        field = DELTA_FIELDS.get(kind)
        if field is None:
            self._grow_unknown(index, kind, delta, whole)
            return
        block = self._find(index, kind)
        if block is None:
            return
        rest = without(present(delta), {"type", field})
        if rest:
            noticed = Noticed("fields", "messages", kind, raw(rest), block.part)
            self._parts.events.append(noticed)
        self._add(block, kind, delta.get(field))

    def close(self, index: int | None) -> None:
        """Close a block at content_block_stop."""
        if index is None:
            index = next(reversed(self._open), -1)
            self._note("missing_index", "expected an index, a content_block_stop has none")
        beside = [key for (owner, _), key in self._beside.items() if owner == index]
        if index not in self._open and not beside:
            self._note("missing_block_start", f"content_block_stop {index} without its start")
        for key in (index, *beside):
            if key in self._open:
                self._end(key, is_closed=True)

    def finish(self, *, is_cut: bool) -> None:
        """Close all open blocks at the end of the message; calls that a limit cut become incomplete."""
        for key, block in list(self._open.items()):
            self._note("missing_block_stop", f"expected content_block_stop {key} before the end")
            self._end(key, is_closed=not (is_cut and isinstance(block.open, OpenCall)))
        self._settle_waiting(is_cut=is_cut)

    def abandon(self) -> None:
        """End all open blocks as incomplete: the stream failed."""
        for key in list(self._open):
            self._end(key, is_closed=False)
        self._settle_waiting(is_cut=True)

    @property
    def is_doubtful(self) -> bool:
        """Whether an open call would be incomplete if the stream ended here."""
        return any(
            isinstance(block.open, OpenCall) and not is_strict(block.open.text())
            for block in self._open.values()
        )

    def _begin(self, index: int, part: Part, fields: Fields) -> _Block:
        kind = type_of(fields)
        opened: OpenText | OpenReasoning | OpenCall | OpenWhole
        match part:
            case Text():
                opened = OpenText(self._parts, part)
                opened.add(part.text)
                for annotation in part.annotations:
                    opened.annotate(annotation)
            case Reasoning():
                opened = OpenReasoning(self._parts, part)
                if part.summary:
                    opened.add("".join(part.summary))
                opened.seal(part.seals)
            case Call():
                opened = OpenCall(self._parts, replace(part, input=""))
                # In a stream every call begins with `{}`; it is the input only if the block ends without any other.
                is_stand_in = part.input.strip() == "{}" and not self._is_whole
                opened.early = "" if is_stand_in else part.input
                if part.name:
                    opened.announce()
            case _:
                opened = OpenWhole(self._parts, part)
        block = self._open[index] = _Block(kind, opened, fields)
        if not isinstance(opened, OpenWhole) and kind != "redacted_thinking":
            self.streaming[index] = opened
        return block

    def _checked(self, index: int, part: Part, block: Fields) -> Part:
        """Report the problems of a new block, and mint an id for a call without one of its own."""
        kind = type_of(block)
        if not isinstance(part, Call):
            is_known = (
                kind in MAPPED_BLOCKS or kind in OPAQUE_BLOCKS or kind.endswith(RESULT_SUFFIX)
            )
            if not is_known:
                self._note("unknown_block", f"block {index} has the unknown type {kind!r}")
            return part
        if read_text(block.get("input")) is not None:
            self._note(
                "string_input", f"expected an object as input of block {index}, got a string"
            )
        if not part.name:
            self._note("missing_name", f"expected a name, block {index} ({kind}) has none")
        if not part.call_id:
            self._note("missing_id", f"expected an id, block {index} ({kind}) has none")
            prefix = "toolu_" if part.executor == "client" else "srvtoolu_"
            part = replace(part, call_id=self._parts.mint(prefix))
        elif part.call_id in self._ids:
            self._note("repeated_id", f"block {index} has the id of an earlier block")
            if part.executor == "client":  # its result would be the other call's too
                part = replace(part, call_id=self._parts.mint("toolu_"))
        self._ids.add(part.call_id)
        return part

    def _is_repeat(self, index: int, block: Fields) -> bool:
        """Whether a second start of an open block repeats the first: it is a call with the same id."""
        old = self._open[index].open
        return isinstance(old, OpenCall) and old.header.call_id == read_text(block.get("id"))

    def _find(self, index: int, kind: str) -> _Block | None:
        """Return the block of a delta, and open it if needed; None for input of a call that has ended."""
        wanted, empty = _IMPLICIT[kind]
        block = self._open.get(index)
        if block is not None and block.takes(kind):
            return block
        key = self._beside.get((index, wanted))
        if key is not None and key in self._open:
            return self._open[key]
        if block is not None:
            self._note("delta_mismatch", f"a {kind} came for block {index}, which takes none")
            key = -1 - len(self._beside)
            self._beside[index, wanted] = key
        elif index < self._next and kind == "input_json_delta":
            # The call was emitted as complete, and more input would contradict that.
            self._note("after_block_stop", f"dropped an {kind} for block {index}, which has ended")
            return None
        else:
            self._note("missing_block_start", f"a {kind} came for block {index}, which is not open")
            key = index
            self._next = max(self._next, index + 1)
        fields: Fields = {"type": raw(wanted)}
        return self._begin(key, self._checked(index, empty, fields), fields)

    def _add(self, block: _Block, kind: str, value: Raw | None) -> None:
        text = read_fragment(value)
        match kind, block.open:
            case "citations_delta", OpenText() as opened:
                citation = None if value is None else annotation_from_citation(value)
                if citation is not None:
                    opened.annotate(citation)
            case "signature_delta", OpenReasoning() as opened:
                if text:
                    if opened.is_sealed:
                        self._note("repeated_signature", "a thinking block was signed twice")
                    # A signature replaces an earlier one, as in the vendor's own clients.
                    opened.seal(seals_from_signature(text), replaces=True)
            case "input_json_delta", OpenCall() as opened if text is None and value is not None:
                if is_present(value):
                    message = "expected partial_json as a string, got another value"
                    self._note("object_input", message)
                    opened.add(source_text(value))
            case _, OpenWhole():
                raise AssertionError("`_find` returns no block that came whole")
            case _, opened:
                if text:
                    opened.add(text)

    def _grow_unknown(self, index: int, kind: str, delta: Fields, whole: Raw) -> None:
        block = self._open.get(index)
        if kind not in NOTICED_DELTAS:
            self._note("unknown_delta", f"a delta of block {index} has the unknown type {kind!r}")
        part = None
        if block is not None:
            part = block.part
            block.merge(delta)
        self._parts.events.append(
            Noticed("unknown", "messages", "content_block_delta", whole, part)
        )

    def _end(self, key: int, *, is_closed: bool) -> None:
        block = self._open.pop(key)
        self.streaming.pop(key, None)
        if isinstance(block.open, OpenCall):
            self._end_call(block.open, is_closed=is_closed)
        else:
            block.end_other(is_closed=is_closed)

    def _end_call(self, call: OpenCall, *, is_closed: bool) -> None:
        early = call.early
        text = call.settle()
        if early and not call.early:
            self._note(
                "input_in_start", "the input came whole in content_block_start, not as deltas"
            )
        is_due = is_closed or self._is_whole  # a cut stream may cut the name too
        if not call.is_announced and not (is_due and call.find_name(self._calls)):
            if is_due:
                call.drop(is_fault=True)
            return
        if not is_closed:
            call.end("incomplete")
            return
        self._calls += 1
        if not call.is_halved and (not text.strip() or not is_strict(text)):
            self._waiting.append(call)
        else:
            self._complete(call)

    def _complete(self, call: OpenCall) -> None:
        """End a call that the protocol closed and no limit cut."""
        text = call.settle()
        call.end("completed")
        if is_strict(text) and not text.lstrip().startswith("{"):
            message = f"expected an object as input of call {call.header.call_id}"
            self._note("invalid_arguments", message)
        self.complete_calls += call.is_complete and call.header.executor == "client"

    def _settle_waiting(self, *, is_cut: bool) -> None:
        for call in self._waiting:
            if is_cut:
                call.end("incomplete")
            else:
                self._complete(call)
        self._waiting.clear()

    def _note(self, kind: str, message: str) -> None:
        self._parts.report(kind, message)
