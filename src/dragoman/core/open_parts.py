"""The open parts of an answer: where each part begins, grows and ends, for every dialect.

A decoder calls this module with what it reads (more text, the name of a call, more input, the whole text, the end of a
part), and this module emits the canonical events. It knows no dialect.

    NAMELESS --the name is known--> OPEN --its end--> ENDED
       |  input is held              |  each piece is a delta
       |                             '--the wire repeats the whole: the missing rest is a delta
       '--its end: nothing was announced, nothing is emitted--> ENDED

Only calls begin NAMELESS: a call is announced with its name or not at all. The rules for all parts:

- If a character is cut in half between two deltas, the first half is held until the second arrives. A half that stays
  alone becomes U+FFFD in a text. A call's input must not be altered: the call is incomplete and the answer fails (`fault`).
- Emitted events are never retracted. If the whole contradicts the deltas, `PartEnded` has the whole and sets
  `amended`. An input that differs only in its formatting is not a contradiction.
- If the protocol closes a function call with an empty input, the input is `{}`.
- `call_input.InputBuffer` handles providers that resend the whole input in each delta.
- An input that begins with a quotation mark, for a tool whose schema wants an object, is held until its end: if it is a
  JSON string that holds an object, the object is the input.
- An ended part holds its text or input no longer: `PartEnded` has handed it over.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Literal, final

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps_text, is_strict
from dragoman.core.call_input import (
    EndedInput,
    Extent,
    InputBuffer,
    ended_input,
    input_key,
    is_same_input,
    joined,
    unquoted,
)
from dragoman.core.fields import quoted
from dragoman.core.fold import join_logprobs
from dragoman.core.ids import Minter
from dragoman.core.schemas import resolve_name, wants_object
from dragoman.core.surrogates import join_exactly, join_halves, replace_lone
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    ReasoningChannel,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import Annotation, Call, Part, PartStatus, Reasoning, Refusal, Seal, Text
from dragoman.model.request import Tool

Problems = list[tuple[str, str]]
"""Problems: (kind, message)."""


class PartState(Enum):
    NAMELESS = auto()  # a call without a name: nothing may be emitted
    OPEN = auto()  # announced
    ENDED = auto()  # no further input is allowed


class Input(Enum):
    NAME = auto()
    PIECE = auto()
    WHOLE = auto()  # the wire repeats the whole text or input
    END = auto()


TRANSITIONS: Mapping[tuple[PartState, Input], PartState] = {
    (PartState.NAMELESS, Input.PIECE): PartState.NAMELESS,
    (PartState.NAMELESS, Input.WHOLE): PartState.NAMELESS,
    (PartState.NAMELESS, Input.NAME): PartState.OPEN,
    # A call whose name never came emits nothing.
    (PartState.NAMELESS, Input.END): PartState.ENDED,
    (PartState.OPEN, Input.PIECE): PartState.OPEN,
    (PartState.OPEN, Input.WHOLE): PartState.OPEN,
    (PartState.OPEN, Input.END): PartState.ENDED,
}

# Globals, because looking up a member of an enum is slow.
_NAMELESS, _OPEN, _ENDED = PartState.NAMELESS, PartState.OPEN, PartState.ENDED

# How often the whole input of a call may differ from its deltas and is compared with them as JSON, which means to parse
# both. A wire repeats the input three times; one that goes on with other inputs must not make this quadratic.
MAX_COMPARED = 8


class Parts:
    """The parts of one answer: their numbers, the events of the current frame, and the problems.

    problems: a list shared with the decoder, which empties it. fault: why the answer must fail although the protocol
    closed it: a call cannot be emitted as it was sent. seed: for minted ids; set it before the first id is minted.
    """

    __slots__ = (
        "_closing",
        "_count",
        "_mint",
        "_name_rule",
        "_tools",
        "events",
        "fault",
        "has_tools",
        "problems",
        "seed",
    )

    def __init__(
        self,
        problems: Problems,
        *,
        tools: Sequence[Tool] = (),
        name_rule: Literal["schema", "positional"] = "schema",
        seed: str = "",
    ) -> None:
        self.events: list[Event] = []
        self.problems = problems
        self.fault = ""
        self.seed = seed
        self._tools = tools
        self.has_tools = bool(tools)
        self._name_rule: Literal["schema", "positional"] = name_rule
        self._count = 0
        self._mint: Minter | None = None
        self._closing: OpenText | None = None

    def start(self, header: Part, choice: int = 0) -> int:
        """Emit the start of a part and return its number."""
        if self._closing is not None:
            self._closing.end("completed")
        number = self._count
        self._count += 1
        self.events.append(PartStarted(number, header, choice))
        return number

    def add_whole(self, value: Part, choice: int = 0) -> None:
        """Emit a part that does not stream."""
        self.events.append(PartEnded(self.start(value, choice), value))

    def end_before_next(self, text: "OpenText") -> None:
        """The wire has closed this text; its item ends it later. If another part starts before that, end the text then."""
        self._closing = text

    def forget(self, text: "OpenText") -> None:
        """The text has ended: it refers to this object, and the cycle would wait for the garbage collector."""
        if self._closing is text:
            self._closing = None

    def report(self, kind: str, message: str) -> None:
        self.problems.append((kind, message))

    def mint(self, prefix: str) -> str:
        if self._mint is None:
            self._mint = Minter(self.seed)
        return self._mint(prefix)

    def find_name(self, call_input: str, position: int) -> str | None:
        """Find the name of a nameless call among the offered tools."""
        return resolve_name(call_input, self._tools, position, self._name_rule)

    def wants_object(self, name: str) -> bool:
        """Whether the offered tool of this name takes an object."""
        return any(tool.name == name and wants_object(tool) for tool in self._tools)

    def take(self) -> tuple[Event, ...]:
        """Return the events since the last call, and forget them."""
        events = tuple(self.events)
        self.events.clear()
        return events


class PartBase:
    """Base of the open parts.

    is_plain: `grow` can emit the next piece unchanged, if no character in the piece is cut in half.
    """

    __slots__ = ("_parts", "_state", "is_plain", "part")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._state = _OPEN
        self.is_plain = True
        self.part = -1

    @property
    def has_ended(self) -> bool:
        return self._state is _ENDED

    def _move(self, received: Input) -> None:
        """Change the state. Raises LocalProtocolError if a decoder continues a part that has ended."""
        state = TRANSITIONS.get((self._state, received))
        if state is None:
            raise LocalProtocolError(
                f"part {self.part} is {self._state.name}: it takes no {received.name}"
            )
        self._state = state


@final
class OpenText(PartBase):
    """A Text or a Refusal. It `gathers`: it may grow by many pieces at once.

    early: text from the frame that announced the part; used if no other text comes. value: the finished part as decoded
    from the wire; the end takes its other fields from it.
    """

    __slots__ = (
        "_annotations",
        "_half",
        "_logprobs",
        "_pieces",
        "_unsaid",
        "_whole",
        "early",
        "header",
        "value",
    )

    gathers = True

    def __init__(self, parts: Parts, header: Text | Refusal, choice: int = 0) -> None:
        super().__init__(parts)
        if isinstance(header, Text) and header.annotations:
            header = replace(header, annotations=())
        self.header: Text | Refusal = replace(header, text="", logprobs=None, status="in_progress")
        self.value: Text | Refusal | None = None
        self.early = ""
        self._pieces: list[str] = []
        self._half = ""
        self._whole: str | None = None  # the whole text, if it contradicts the deltas
        self._annotations: list[Annotation] = []
        self._logprobs: list[Raw] = []
        self._unsaid: list[Raw] = []  # logprobs of tokens that had no text of their own
        self.part = parts.start(self.header, choice)

    @property
    def is_refusal(self) -> bool:
        return isinstance(self.header, Refusal)

    def add(self, text: str, logprobs: Raw | None = None) -> None:
        """Add a piece of text."""
        self._move(Input.PIECE)
        if logprobs is not None:
            self._logprobs.append(logprobs)
            self._unsaid.append(logprobs)
        text, self._half = join_halves(self._half, text)
        self._emit(text)
        self.is_plain = not self._half and not self._unsaid

    def grow(self, text: str) -> TextDelta:
        """Add a piece, not empty, to a text that `is_plain`; return the delta for the caller to emit."""
        self._pieces.append(text)
        return TextDelta(self.part, text)

    def grow_by(self, texts: list[str]) -> None:
        """`grow` for many pieces; the caller emits them."""
        self._pieces += texts

    def annotate(self, annotation: Annotation) -> None:
        self._annotations.append(annotation)
        self._parts.events.append(AnnotationAdded(self.part, annotation))

    def complete(self, whole: str) -> None:
        """The wire sends the whole text: emit what the deltas lack."""
        self._move(Input.WHOLE)
        if not whole:
            return
        emitted = joined(self._pieces)
        if not whole.startswith(emitted):
            self._whole = whole
            return
        self._whole = None
        self._half = ""
        self._emit(whole[len(emitted) :])
        self.is_plain = not self._unsaid

    def end(self, status: PartStatus) -> None:
        if not self._pieces and self.early:
            self.complete(self.early)
        self._emit(replace_lone(self._half))
        events, part = self._parts.events, self.part
        if self._unsaid:
            # Tokens at the end that have no text of their own.
            events.append(TextDelta(part, "", join_logprobs(self._unsaid)))
        self._move(Input.END)
        self.is_plain = False
        value = self.header if self.value is None else self.value
        if isinstance(value, Text) and (value.annotations or self._annotations):
            for annotation in value.annotations[len(self._annotations) :]:
                self.annotate(annotation)
            value = replace(value, annotations=value.annotations or tuple(self._annotations))
        logprobs = join_logprobs(self._logprobs) if value.logprobs is None else value.logprobs
        is_amended = self._whole is not None
        if is_amended:
            _report_contradiction(self._parts, part)
        text = joined(self._pieces) if self._whole is None else self._whole
        value = replace(value, text=text, logprobs=logprobs, status=status)
        events.append(PartEnded(part, value, is_amended))
        self._pieces = []
        self._logprobs = []
        self._whole = self.value = None
        self.early = ""
        self._parts.forget(self)

    def _emit(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._parts.events.append(TextDelta(self.part, text, join_logprobs(self._unsaid)))
            self._unsaid.clear()


class _Entry(Struct, eq=False):
    """One entry of the summary or the content of a reasoning. `whole` is set only if it contradicts the deltas."""

    pieces: list[str] = []
    half: str = ""
    whole: str | None = None

    def text(self) -> str:
        return joined(self.pieces) if self.whole is None else self.whole


@final
class OpenReasoning(PartBase):
    """A Reasoning: any number of entries in two channels. `channel` and `index` name the entry that grew last."""

    __slots__ = ("_entries", "_pieces", "_seals", "channel", "header", "index")

    def __init__(self, parts: Parts, header: Reasoning, choice: int = 0) -> None:
        super().__init__(parts)
        self.header = replace(header, summary=(), content=(), seals=(), status="in_progress")
        self.channel: ReasoningChannel = "summary"
        self.index = 0
        self.is_plain = False
        self._pieces: list[str] = []  # of the entry that grew last
        self._entries: dict[ReasoningChannel, dict[int, _Entry]] = {"summary": {}, "content": {}}
        self._seals: list[Seal] = []
        self.part = parts.start(self.header, choice)

    @property
    def is_sealed(self) -> bool:
        return bool(self._seals)

    def open_entry(self, channel: ReasoningChannel, index: int) -> None:
        """The wire announces an entry, which may stay empty: emit its beginning, a delta without text."""
        self._move(Input.PIECE)
        if index not in self._entries[channel]:
            self._entries[channel][index] = _Entry()
            self._parts.events.append(ReasoningDelta(self.part, "", channel, index))

    def add(self, text: str, channel: ReasoningChannel = "summary", index: int = 0) -> None:
        """Add a piece to an entry."""
        self._move(Input.PIECE)
        entry = self._entries[channel].setdefault(index, _Entry())
        text, entry.half = join_halves(entry.half, text)
        self.channel, self.index, self._pieces = channel, index, entry.pieces
        self.is_plain = not entry.half
        self._emit(entry, channel, index, text)

    def grow(self, text: str) -> ReasoningDelta:
        """Add a piece, not empty, to the entry that grew last, which `is_plain`; return the delta for the caller to emit."""
        self._pieces.append(text)
        return ReasoningDelta(self.part, text, self.channel, self.index)

    def complete(self, whole: str, channel: ReasoningChannel = "summary", index: int = 0) -> None:
        """The wire sends a whole entry: emit what the deltas lack."""
        self._move(Input.WHOLE)
        if not whole:
            return
        entry = self._entries[channel].setdefault(index, _Entry())
        emitted = joined(entry.pieces)
        self.is_plain = False
        if whole.startswith(emitted):
            entry.half, entry.whole = "", None
            self._emit(entry, channel, index, whole[len(emitted) :])
        else:
            entry.whole = whole

    def seal(self, seals: Sequence[Seal], *, replaces: bool = False) -> None:
        """Add seals. `replaces`: they replace the earlier ones."""
        if seals:
            if replaces:
                self._seals.clear()
            self._seals += seals
            self._parts.events += [SealAdded(self.part, seal) for seal in seals]

    def end(self, status: PartStatus, value: Reasoning | None = None) -> None:
        """End the part. `value`: the finished part as decoded from the wire, None if it never came."""
        final = self.header if value is None else value
        if value is not None:
            self._complete_all("summary", value.summary)
            self._complete_all("content", value.content)
            known = frozenset(self._seals)
            self.seal([seal for seal in value.seals if seal not in known])
        is_amended = False
        for channel, entries in self._entries.items():
            for index, entry in entries.items():
                self._emit(entry, channel, index, replace_lone(entry.half))
                is_amended = is_amended or entry.whole is not None
        self._move(Input.END)
        self.is_plain = False
        if is_amended:
            _report_contradiction(self._parts, self.part)
        final = replace(
            final,
            summary=self._texts("summary"),
            content=self._texts("content"),
            seals=tuple(self._seals),
            status=status,
        )
        self._parts.events.append(PartEnded(self.part, final, is_amended))
        self._entries = {"summary": {}, "content": {}}
        self._pieces = []

    def _complete_all(self, channel: ReasoningChannel, texts: Sequence[str]) -> None:
        entries = self._entries[channel]
        # Finished entries have only a position, deltas have an index. Regular streams count both from 0.
        places = [*sorted(entries), *range(max(entries, default=-1) + 1, len(texts))]
        for place, text in zip(places, texts, strict=False):
            entries.setdefault(place, _Entry())
            self.complete(text, channel, place)

    def _texts(self, channel: ReasoningChannel) -> tuple[str, ...]:
        return tuple(entry.text() for _, entry in sorted(self._entries[channel].items()))

    def _emit(self, entry: _Entry, channel: ReasoningChannel, index: int, text: str) -> None:
        if text:
            entry.pieces.append(text)
            self._parts.events.append(ReasoningDelta(self.part, text, channel, index))


@final
class OpenCall(PartBase):
    """A call. `header` is its identity as far as it is known; change it only before `announce`.

    ended: the input of a call that has ended, for comparison. early: input from the frame that announced the call; used if no other
    input comes. empty: the input to emit if the protocol closes the call without any, `{}` for JSON.
    """

    __slots__ = (
        "_buffer",
        "_choice",
        "_compared",
        "_extent",
        "_fragments",
        "_half",
        "_is_fresh",
        "_is_halved",
        "_is_held",
        "_seals",
        "_was_cumulative",
        "_whole",
        "early",
        "empty",
        "ended",
        "header",
        "is_complete",
    )

    def __init__(self, parts: Parts, header: Call, *, empty: str = "{}", choice: int = 0) -> None:
        super().__init__(parts)
        self._state = _NAMELESS
        self._choice = choice
        self._compared = 0
        self._extent: Extent | None = None
        self._fragments: list[str] = []  # input, kept as long as the kind of the call may change
        self._half = ""
        self._is_fresh = parts.has_tools and empty == "{}"  # no character but blanks was emitted
        self._is_halved = False  # the input ended inside a character
        self._is_held = False  # the input may be a JSON string around an object
        self._seals: dict[Seal, None] = {}
        self._was_cumulative = False
        # The whole input, if it contradicts the deltas or came before the name.
        self._whole: str | None = None
        self.early = ""
        self.empty = empty
        self.ended: EndedInput | None = None
        self.header = header
        self.is_complete = False
        self.is_plain = False
        self._buffer = InputBuffer(is_json=empty == "{}")

    @property
    def is_announced(self) -> bool:
        return self.part >= 0

    @property
    def is_halved(self) -> bool:
        """Whether the input ends inside a character."""
        return bool(self._half) or self._is_halved

    @property
    def has_input(self) -> bool:
        """Whether a piece of input has come."""
        return bool(self._half) or not self._buffer.is_empty

    @property
    def is_whole(self) -> bool:
        """Whether the input is one object, from brace to brace. After the first read, `add` keeps the answer up to date."""
        if self._extent is None:
            self._extent = Extent()
            self._extent.feed(self._buffer.text())
            self.is_plain = False
        return self._extent.is_whole

    def become(self, header: Call, empty: str) -> None:
        """Change the kind of the call. Only before `announce`."""
        self.header = header
        if (empty == "{}") != (self.empty == "{}"):
            self._buffer = InputBuffer(is_json=empty == "{}")
            for fragment in self._fragments:
                self._buffer.push(fragment)
        self.empty = empty

    def announce(self) -> None:
        """The name is known: start the part and emit the held input and seals."""
        self._move(Input.NAME)
        if not self.header.call_id:
            name = self.header.name
            self._parts.report("missing_id", f"expected an id for the call of {name!r}, got none")
            self.header = replace(self.header, call_id=self._parts.mint("call_"))
        self.header = replace(self.header, input="", seals=(), status="in_progress")
        self.part = self._parts.start(self.header, self._choice)
        self._parts.events += [SealAdded(self.part, seal) for seal in self._seals]
        self._fragments.clear()
        extent, self._extent = self._extent, None
        self._emit(self._buffer.text())
        self._extent = extent
        whole, self._whole = self._whole, None
        self._look()
        if whole is not None:
            self.complete(whole)

    def grow(self, fragment: str) -> InputDelta | None:
        """Add a fragment to a call that `is_plain`; return the delta, None if the fragment has no new text."""
        increment = self._push(fragment)
        if self._is_fresh and increment:
            self._see_start(increment)
            self._look()
        return InputDelta(self.part, increment) if increment and not self._is_held else None

    @property
    def gathers(self) -> bool:
        """Whether `grow_by` may be called: only once it is certain that the fragments are increments."""
        return self._buffer.is_incremental and not self._is_held

    def grow_by(self, fragments: list[str]) -> None:
        """Add many fragments, none empty, to a call that `gathers`; the caller emits them."""
        self._buffer.keep(fragments)

    def add(self, fragment: str) -> None:
        """Add a fragment of input. Raises MalformedJson for half a character that has no other half."""
        self._move(Input.PIECE)
        fragment, self._half = join_exactly(self._half, fragment)
        if not self.is_announced:
            self._fragments.append(fragment)
        self._emit(self._push(fragment))
        self._look()

    def complete(self, whole: str) -> None:
        """The wire sends the whole input: emit what the deltas lack."""
        self._move(Input.WHOLE)
        if not whole:
            return
        self.early = ""
        if not self.is_announced:
            self._whole = whole
            return
        increment, disagrees = self._buffer.settle(whole)
        if disagrees and not self._is_same(whole):
            self._whole = whole
        else:
            self._whole = None
            self._half = ""
        self._emit(increment)
        self._look()

    def _is_same(self, whole: str) -> bool:
        self._compared += 1
        return self._compared <= MAX_COMPARED and is_same_input(self._buffer.text(), whole)

    def seal(self, seal: Seal) -> None:
        """Add a seal. A repeated seal is ignored."""
        if seal in self._seals:
            return
        self._seals[seal] = None
        if self.is_announced:
            self._parts.events.append(SealAdded(self.part, seal))

    def settle(self) -> str:
        """No more input will come: emit the input that the buffer holds, and `early`. Returns the whole input."""
        emitted, early = self._buffer.text(), self.early
        if self.empty:  # blanks are no input
            emitted, early = emitted.strip(), early.strip()
        if early and not emitted and not self._half:
            early, self.early = self.early, ""
            self._emit(self._buffer.settle(self._buffer.text() + early)[0])
        self._emit(self._buffer.settle()[0])
        if self._half:
            half, self._half, self._is_halved = self._half, "", True
            self._emit(self._buffer.push(replace_lone(half)))
        self._note_cumulative()
        return self.text()

    def is_object(self) -> bool:
        """Whether the input is a complete JSON object. Parses all of it: calling it after every piece takes quadratic time."""
        self._emit(self._buffer.settle()[0])
        text = self._buffer.text()
        return not self._half and text.lstrip().startswith("{") and is_strict(text)

    @property
    def key(self) -> str | bytes:
        """The input, or a digest of it, before and after the end."""
        return input_key(self.text()) if self.ended is None else self.ended.exact

    def text(self) -> str:
        """The input so far, or the whole input if the wire contradicted the deltas. Empty after the end: see `ended`."""
        if self._whole is not None:
            return self._whole
        return self._buffer.text() or ("" if self.is_announced else self.early)

    def find_name(self, position: int) -> bool:
        """Announce a call whose name never came, if the offered tools determine the name."""
        name = self._parts.find_name(self.settle(), position)
        if name is not None:
            self.header = replace(self.header, name=name)
            self.announce()
        return name is not None

    def drop(self, *, is_fault: bool) -> None:
        """Drop a call whose name never came: only a notice is emitted. `is_fault`: the protocol closed it, so the answer fails."""
        message = "expected a name for every call, got a call without one that fits no offered tool"
        if is_fault:
            self._parts.fault = message
        # Its place among the events, with its id and its input.
        source = Raw(dumps_text(self.text()))
        self._parts.events.append(
            Noticed("nameless", name=self.header.call_id, raw=source, choice=self._choice)
        )
        self.forget("nameless_call", message)

    def forget(self, kind: str, message: str) -> None:
        """End a call that was not announced, and report why nothing of it is emitted."""
        self._parts.report(kind, message)
        self._move(Input.END)
        self._free()

    def end(self, status: PartStatus, value: Call | None = None) -> None:
        """End an announced call. `value`: the finished call as decoded from the wire, None if it never came."""
        self.settle()
        self._release()
        name = self.header.name
        if status == "completed" and self._is_halved:
            status = "incomplete"
            self._parts.fault = f"the input of {name!r} ends inside a character"
        if status == "completed" and self.empty and not self.text().strip():
            self._emit(self._buffer.push(self.empty))
        self._move(Input.END)
        self.is_plain = False
        self.is_complete = status == "completed"
        if self._whole is not None:
            self._parts.report(
                "input_disagrees",
                f"expected the finished input of {name!r} (part {self.part}) to equal its deltas, got another",
            )
        text = self.text()
        if self.is_complete and self.empty == "{}" and not is_strict(text):
            message = f"expected the input of {name!r} as JSON, got {quoted(text[:60])}"
            self._parts.report("invalid_arguments", message)
        header = self.header
        final = header if value is None else value
        final = replace(
            final,
            call_id=header.call_id,
            name=name,
            kind=header.kind,
            namespace=header.namespace,
            item_id=header.item_id or final.item_id,
            input=text,
            seals=tuple(self._seals) or final.seals,
            status=status,
        )
        self._parts.events.append(PartEnded(self.part, final, self._whole is not None))
        self._free()

    def _free(self) -> None:
        self.ended = self.ended or ended_input(self.text())
        self._buffer = InputBuffer()
        self._fragments = []
        self._whole = None
        self.early = ""

    def _push(self, fragment: str) -> str:
        increment = self._buffer.push(fragment)
        if increment is not fragment:
            self._note_cumulative()
        return increment

    def _note_cumulative(self) -> None:
        if self._buffer.is_cumulative and not self._was_cumulative:
            self._was_cumulative = True
            message = "expected increments of a call's input, got everything so far in each delta"
            self._parts.report("cumulative_input", message)

    def _look(self) -> None:
        is_open = self.is_announced and not self._is_held
        self.is_plain = is_open and not self._half and self._extent is None

    def _see_start(self, text: str) -> None:
        first = text.lstrip(" \t\r\n")[:1]
        self._is_fresh = not first
        name = self.header.name
        if first == '"' and self._parts.wants_object(name):
            self._is_held = True
            self._parts.report(
                "quoted_input", f"expected the input of {name!r} as an object, got text"
            )

    def _release(self) -> None:
        """Emit an input that was held: the object in it, else the input as it came."""
        if not self._is_held:
            return
        self._is_held = False
        found = unquoted(self.text())
        if found is not None and not self._is_halved:
            name = self.header.name
            self._parts.report("unquoted_input", f"took the input of {name!r} out of a JSON string")
            self.ended = ended_input(self.text())  # the wire may repeat what it sent
            self._whole = None
            self._buffer = InputBuffer()
            self._buffer.push(found)
        self._emit(self._buffer.text())

    def _emit(self, text: str) -> None:
        if not text:
            return
        if self._extent is not None:
            self._extent.feed(text)
        if self.is_announced:
            if self._is_fresh:
                self._see_start(text)
            if not self._is_held:
                self._parts.events.append(InputDelta(self.part, text))


OpenPart = OpenText | OpenReasoning | OpenCall
"""The parts that grow by deltas."""


def _report_contradiction(parts: Parts, part: int) -> None:
    parts.report(
        "text_disagrees",
        f"expected the finished text of part {part} to begin with its deltas, got another text",
    )
