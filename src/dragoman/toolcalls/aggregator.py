"""Collects the tool calls of one turn from payloads of any dialect, also of several dialects in one turn.

    aggregator = ToolCallAggregator()
    for chunk in stream:
        for delta in aggregator.ingest_delta(chunk).deltas:
            send({"tool_calls": [delta.as_chat_delta()]})
    calls = aggregator.snapshot()

It passes payloads to the dialects' readers and keeps records of the calls that they report. It never changes a payload,
never parses arguments to rewrite them, never logs, and never decides how a turn ends.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman._json import is_same_json
from dragoman.core.call_input import judge
from dragoman.core.fields import as_int, expect_instance
from dragoman.core.ids import Minter
from dragoman.dialects.codec import DecodeContext
from dragoman.errors import ConfigError
from dragoman.model.events import Event, InputDelta, Noticed, PartEnded, PartStarted
from dragoman.model.outcome import Problem
from dragoman.model.parts import Call, CallKind, Text
from dragoman.textcalls.registry import PATTERNS, PatternRegistry
from dragoman.toolcalls.payloads import PayloadContext, PayloadReader, PayloadReading, nameless_call

_NO_CONTEXT = DecodeContext()
_TEXT_CHANNEL = 0  # readers count from 1


class Pieces(Struct, frozen=True, eq=False):
    """The first `count` of a growing list of pieces. The list only grows; a changed text is another list.

    The arguments of a delta are joined only on demand: ten thousand one-character deltas cost ten thousand small steps.
    """

    shared: Sequence[str]
    count: int

    def join(self) -> str:
        return "".join(self.shared[: self.count])

    def __repr__(self) -> str:
        return f"<{self.count} pieces>"


class ToolCallDelta(Struct, frozen=True):
    """The change of one call by one payload.

    `index` counts the calls of a choice from 0 in order of creation, as Chat's `index` does. `is_first`: the call is
    new. `amended`: the text reported before was wrong; `arguments` is the right one and `arguments_delta` is empty.
    """

    index: int
    id: str
    type: CallKind
    name: str
    arguments_delta: str
    pieces: Pieces
    namespace: str | None = None
    is_first: bool = False
    amended: bool = False
    choice_index: int = 0

    @property
    def arguments(self) -> str:
        """All arguments up to and including this delta. Each access joins the pieces."""
        return self.pieces.join()

    def as_chat_delta(self) -> dict[str, object]:
        """An entry of `tool_calls` in a Chat Completions delta: an increment, id, type and name in the first only."""
        body: dict[str, object] = {}
        is_custom = self.type == "custom"
        entry: dict[str, object] = {"index": self.index}
        if self.is_first:
            entry |= {"id": self.id, "type": "custom" if is_custom else "function"}
            body["name"] = self.name
        body["input" if is_custom else "arguments"] = self.arguments_delta
        entry["custom" if is_custom else "function"] = body
        return entry


class ToolCallRecord(Struct, frozen=True):
    """One call. `arguments` is the text as received, never parsed and never rewritten.

    `executable`: the protocol closed the call and its arguments are valid for its type. `reason`: `complete`;
    `amended` (complete, but other than what was streamed before); or why not: `not_closed`, `no_name`, `invalid_json`.
    """

    id: str
    type: CallKind
    name: str
    arguments: str
    executable: bool
    reason: str
    namespace: str | None = None
    index: int = 0

    def as_chat(self) -> dict[str, object]:
        """An entry of `tool_calls` in a Chat Completions message."""
        if self.type == "custom":
            return {
                "id": self.id,
                "type": "custom",
                "custom": {"name": self.name, "input": self.arguments},
            }
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


class IngestResult(Struct, frozen=True):
    """The changes of a payload. updated: there are deltas. closed: the calls that the payload completed."""

    updated: bool = False
    deltas: tuple[ToolCallDelta, ...] = ()
    closed: tuple[ToolCallRecord, ...] = ()


_PartKey = tuple[int, int]


class _Entry(Struct, eq=False):
    """One call while it grows. `call` has everything but the arguments. owner: the part that supplies its arguments."""

    index: int
    choice: int
    call: Call
    owner: _PartKey
    channels: set[int]
    pieces: list[str] = field(default_factory=list[str])
    amended: bool = False
    is_closed: bool = False
    is_confirmed: bool = False
    record: ToolCallRecord | None = None

    def text(self) -> str:
        return "".join(self.pieces)

    def snapshot(self) -> ToolCallRecord:
        """The record, made again only after a change."""
        if self.record is None:
            text = self.text()
            if self.is_closed:
                # One text for the entry and its record. The pieces belong to the deltas that were returned.
                self.pieces = [text]
            status = "completed" if self.is_closed else "incomplete"
            call = self.call
            verdict = judge(replace(call, input=text, status=status))
            is_amended = verdict.executable and self.amended
            self.record = ToolCallRecord(
                call.call_id,
                call.kind,
                call.name,
                text,
                verdict.executable,
                "amended" if is_amended else verdict.reason,
                call.namespace,
                self.index,
            )
        return self.record


class _Change(Struct, eq=False):
    """The changes of one entry by one payload."""

    entry: _Entry
    is_first: bool = False
    amended: bool = False
    closed: bool = False
    texts: list[str] = field(default_factory=list[str])

    def delta(self) -> ToolCallDelta | None:
        if not (self.is_first or self.amended or self.texts):
            return None
        entry = self.entry
        call = entry.call
        return ToolCallDelta(
            entry.index,
            call.call_id,
            call.kind,
            call.name,
            "".join(self.texts),
            Pieces(entry.pieces, len(entry.pieces)),
            call.namespace,
            self.is_first,
            self.amended,
            entry.choice,
        )


class Changes:
    """The changes by one payload, entry by entry, in order of the first change."""

    def __init__(self) -> None:
        self._changes: dict[int, _Change] = {}

    def of(self, entry: _Entry) -> _Change:
        entry.record = None
        change = self._changes.get(id(entry))
        if change is None:
            change = self._changes[id(entry)] = _Change(entry)
        return change

    def result(self) -> IngestResult:
        changes = self._changes.values()
        deltas = tuple(delta for change in changes if (delta := change.delta()) is not None)
        closed = tuple(change.entry.snapshot() for change in changes if change.closed)
        return IngestResult(bool(deltas), deltas, closed)


class CallRecords:
    """The calls of one choice in order of creation. `found` collects problems, as it does in readers.

    The events come from any number of readers ("channels"). A call that arrives through two channels is one record: same
    call id, same name. The first channel that has a call owns its text. From the other channels only the final text
    counts, by these rules:

        the texts are equal, or equal as JSON values        nothing changes
        the record is open and its text begins the other    the rest is appended
        otherwise                                           the other text replaces it, and the record is amended

    After a finished message has closed a call, streams no longer change it.

    Two parts of one channel are two calls, even with the same id, because that channel's reader has distinguished them. A
    whole message may name a call by another id than the stream did (a legacy `function_call` has none, some servers mint
    twice). If no record has the id, the call matches the first record that came from a stream, is not yet confirmed by a
    message, has the same name, and has equal arguments or, while it is open, arguments with which the call's arguments
    begin. Calls that the provider runs itself get no record.
    """

    def __init__(self, choice: int = 0) -> None:
        self._choice = choice
        self.found: list[tuple[str, str]] = []
        self._entries: list[_Entry] = []
        self._by_id: dict[str, list[_Entry]] = {}
        self._parts: dict[_PartKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def snapshot(self) -> tuple[ToolCallRecord, ...]:
        return tuple(entry.snapshot() for entry in self._entries)

    def absorb(self, channel: int, events: Iterable[Event], changes: Changes) -> None:
        """Apply events of a stream, as its reader returned them."""
        for event in events:
            match event:
                case InputDelta():
                    self._grow((channel, event.part), event.text, changes)
                case PartStarted(header=Call(executor="client") as call):
                    self._start((channel, event.part), call, changes)
                case PartEnded(value=Call() as call):
                    self._end((channel, event.part), call, changes, amended=event.amended)
                case _:
                    nameless = nameless_call(event)
                    if nameless is not None:
                        self.add_nameless(channel, nameless)

    def confirm(self, channel: int, calls: Iterable[Call], changes: Changes) -> None:
        """Apply the client's calls of one whole message."""
        calls = list(calls)
        taken: set[int] = set()
        matches = [self._match_id(call, taken) for call in calls]
        for part, call in enumerate(calls):
            if not call.name:
                self.add_nameless(channel, call)
                continue
            entry = matches[part] or self._match_content(call, taken)
            if entry is None:
                entry = self.add((channel, part), call, changes)
            else:
                entry.channels.add(channel)
                self._settle(entry, call, changes)
            entry.is_confirmed = True

    def add(self, owner: _PartKey, call: Call, changes: Changes) -> _Entry:
        """Add a new call, with the input it has so far."""
        entry = _Entry(len(self._entries), self._choice, replace(call, input=""), owner, {owner[0]})
        self._entries.append(entry)
        self._by_id.setdefault(call.call_id, []).append(entry)
        change = changes.of(entry)
        change.is_first = True
        self._append(entry, call.input, changes)
        if call.status == "completed":
            self._close(entry, changes)
        return entry

    def add_nameless(self, channel: int, call: Call) -> None:
        """Add a call whose name never came, so that it keeps its id and its place. It is not a change that a client could use."""
        if not call.call_id or any(
            not each.call.name for each in self._by_id.get(call.call_id, ())
        ):
            return  # it has no id that could be kept, or another channel had it
        entry = self.add((channel, -1 - len(self._entries)), call, Changes())
        entry.is_confirmed = True

    def _start(self, key: _PartKey, call: Call, changes: Changes) -> None:
        channel = key[0]
        for entry in self._by_id.get(call.call_id, ()):
            if channel not in entry.channels and entry.call.name == call.name:
                entry.channels.add(channel)
                self._parts[key] = entry
                return
        self._parts[key] = self.add(key, call, changes)

    def _grow(self, key: _PartKey, text: str, changes: Changes) -> None:
        entry = self._parts.get(key)
        if entry is not None and entry.owner == key and not entry.is_closed:
            self._append(entry, text, changes)

    def _end(self, key: _PartKey, call: Call, changes: Changes, *, amended: bool) -> None:
        entry = self._parts.pop(key, None)
        if entry is None or (entry.is_confirmed and entry.is_closed):
            return  # a finished message has closed the call
        if entry.owner != key or entry.is_closed:
            self._settle(entry, call, changes)
            return
        if amended:
            self._amend(entry, call.input, changes)
        if call.status == "completed":
            self._close(entry, changes)

    def _settle(self, entry: _Entry, call: Call, changes: Changes) -> None:
        """Apply the end of a call from a channel that does not own its text."""
        if call.status != "completed":
            return
        text = entry.text()
        if call.input != text and not (call.kind != "custom" and is_same_json(call.input, text)):
            if not entry.is_closed and call.input.startswith(text):
                self._append(entry, call.input[len(text) :], changes)
            else:
                self._amend(entry, call.input, changes)
                self.found.append(
                    ("input_disagrees", f"call {call.call_id!r} came with other arguments before")
                )
        if not entry.is_closed:
            self._close(entry, changes)

    def _append(self, entry: _Entry, text: str, changes: Changes) -> None:
        if text:
            entry.pieces.append(text)
            changes.of(entry).texts.append(text)

    def _amend(self, entry: _Entry, text: str, changes: Changes) -> None:
        # A new list, because deltas that were returned before refer to the old text.
        entry.pieces = [text]
        entry.amended = True
        change = changes.of(entry)
        change.amended = True
        change.texts.clear()

    def _close(self, entry: _Entry, changes: Changes) -> None:
        entry.is_closed = True
        changes.of(entry).closed = True

    def _match_id(self, call: Call, taken: set[int]) -> _Entry | None:
        for entry in self._by_id.get(call.call_id, ()):
            if entry.index not in taken and entry.call.name == call.name:
                taken.add(entry.index)
                return entry
        return None

    def _match_content(self, call: Call, taken: set[int]) -> _Entry | None:
        for entry in self._entries:
            is_free = entry.index not in taken and not entry.is_confirmed
            if is_free and entry.call.name == call.name and _may_be(entry, call):
                taken.add(entry.index)
                return entry
        return None


def _may_be(entry: _Entry, call: Call) -> bool:
    text = entry.text()
    if not entry.is_closed and call.input.startswith(text):
        return True
    return call.input == text or is_same_json(call.input, text)


class _Choice(Struct):
    """The state of one choice in the current turn. spans: the positions of the calls already taken from text."""

    records: CallRecords
    mint: Minter
    spans: set[tuple[int, int, int, str, str]] = field(
        default_factory=set[tuple[int, int, int, str, str]]
    )


class ToolCallAggregator:
    """One turn's tool calls, per choice.

    Examples:
        >>> aggregator = ToolCallAggregator()
        >>> for piece in ('{"city":', '"Oslo"}'):
        ...     call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": piece}}
        ...     result = aggregator.ingest_delta({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        >>> [(call.name, call.arguments, call.reason) for call in aggregator.snapshot()]
        [('weather', '{"city":"Oslo"}', 'not_closed')]
        >>> result = aggregator.ingest_delta({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        >>> aggregator.snapshot()[0].executable
        True

    context: facts about the request: its tools supply names that the payloads lack, `seed` makes minted ids differ from
        those of other aggregators, `choices=1` merges an answer that a server spreads over several choices.
    text_patterns: the registry of formats for calls written as text; the shared one by default.
    """

    def __init__(
        self, context: DecodeContext = _NO_CONTEXT, *, text_patterns: PatternRegistry | None = None
    ) -> None:
        expect_instance(context, DecodeContext)
        self._seed = context.seed
        self._tools = context.tools or None
        self._reader = PayloadReader(context)
        self._patterns = PATTERNS if text_patterns is None else text_patterns
        self._choices: dict[int, _Choice] = {}
        self._turn = 0

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of this turn: irregular or unreadable payloads. `frame` counts payloads from 1."""
        return tuple(self._reader.problems)

    def ingest_delta(self, delta: object, *, choice_index: int = 0) -> IngestResult:
        """Take a piece of a stream: a chunk, an event, a notification, or a bare Chat delta.

        `choice_index` is the choice of payloads that do not name one.

        Raises:
            ConfigError: `choice_index` is not a number from 0 on. So do the other methods that take it.
        """
        changes = Changes()
        place = PayloadContext(_number_of(choice_index))
        self._take(self._reader.read(delta, place), changes)
        return changes.result()

    def ingest_message(
        self, message: object, *, choice_index: int = 0, emit_if_missing: bool = False
    ) -> IngestResult:
        """Take a finished message, body or item. Calls that it repeats are closed; calls that it adds are reported complete.

        emit_if_missing: if neither the message nor the stream before it had a call, look for calls written in the
            message's text, in every format with a sentinel and with the registered patterns. If the tools are known,
            only calls of these tools are found.
        """
        changes = Changes()
        place = PayloadContext(_number_of(choice_index), is_final=True)
        readings = self._reader.read(message, place)
        self._take(readings, changes)
        if emit_if_missing:
            for choice, texts in _texts(readings).items():
                self._take_texts(choice, texts, changes)
        return changes.result()

    def snapshot(self, *, choice_index: int = 0) -> tuple[ToolCallRecord, ...]:
        """The calls of a choice so far, in order of creation. Records never change; take another snapshot instead."""
        choice = self._choices.get(_number_of(choice_index))
        return choice.records.snapshot() if choice is not None else ()

    def has_calls(self, choice_index: int | None = None) -> bool:
        """Whether a choice, or any, has a call."""
        if choice_index is None:
            return any(len(choice.records) for choice in self._choices.values())
        choice = self._choices.get(_number_of(choice_index))
        return choice is not None and len(choice.records) > 0

    def close(self, choice_index: int | None = None) -> IngestResult:
        """End the stream. Calls that their protocol did not close stay open: not executable."""
        changes = Changes()
        number = None if choice_index is None else _number_of(choice_index)
        self._take(self._reader.end(number), changes)
        return changes.result()

    def reset_turn(self, choice_index: int | None = None) -> None:
        """Forget the turn, of one choice or of all. Text patterns stay registered."""
        number = None if choice_index is None else _number_of(choice_index)
        self._reader.reset(number)
        self._turn += 1
        if number is None:
            self._choices.clear()
        else:
            self._choices.pop(number, None)

    def _take(self, readings: Iterable[PayloadReading], changes: Changes) -> None:
        whole: dict[int, list[Call]] = {}
        channel = _TEXT_CHANNEL
        for reading in readings:
            if not reading.is_whole:
                choice = self._choice(reading.choice)
                choice.records.absorb(reading.channel, reading.events, changes)
                self._collect(choice.records)
                continue
            # Match all documents of one message together: one document may repeat a call of another.
            channel = reading.channel
            for number, calls in _calls(reading).items():
                whole.setdefault(number, []).extend(calls)
        for number, calls in whole.items():
            records = self._choice(number).records
            records.confirm(channel, calls, changes)
            self._collect(records)

    def _take_texts(self, number: int, texts: list[str], changes: Changes) -> None:
        choice = self._choice(number)
        if len(choice.records) > len(choice.spans):
            return  # there are structured calls, so the text is not searched
        for part, text in enumerate(texts):
            calls, problems = self._patterns.find(text, self._tools)
            for problem in problems:
                self._reader.note("text_pattern", problem)
            for call in calls:
                span = (part, call.start, call.end, call.name, call.arguments)
                if span in choice.spans:
                    continue
                owner = (_TEXT_CHANNEL, len(choice.spans))
                choice.spans.add(span)
                made = Call(call_id=choice.mint("call_"), name=call.name, input=call.arguments)
                choice.records.add(owner, made, changes)

    def _choice(self, number: int) -> _Choice:
        choice = self._choices.get(number)
        if choice is None:
            seed = f"{self._seed}#{self._turn}.{number}.text"
            choice = self._choices[number] = _Choice(CallRecords(number), Minter(seed))
        return choice

    def _collect(self, records: CallRecords) -> None:
        for kind, message in records.found:
            self._reader.note(kind, message)
        records.found.clear()


def _number_of(choice_index: object) -> int:
    """The number of a choice. Digits count too: a program may have the number from a URL or from JSON."""
    number = as_int(choice_index)
    if number is None or number < 0:
        raise ConfigError(f"expected a choice_index of 0 or more, got {choice_index!r}")
    return number


def _calls(reading: PayloadReading) -> dict[int, list[Call]]:
    """The client's calls of a whole message by choice."""
    choices = _choices_of(reading)
    found: dict[int, list[Call]] = {}
    for event in reading.events:
        match event:
            case PartEnded(value=Call(executor="client") as call):
                found.setdefault(choices[event.part], []).append(call)
            case Noticed() if (nameless := nameless_call(event)) is not None:
                number = event.choice if reading.dialect == "chat" else reading.choice
                found.setdefault(number, []).append(nameless)
            case _:
                pass
    return found


def _texts(readings: Iterable[PayloadReading]) -> dict[int, list[str]]:
    """The texts that ended in a message, by choice."""
    found: dict[int, list[str]] = {}
    for reading in readings:
        choices = _choices_of(reading)
        for event in reading.events:
            if isinstance(event, PartEnded) and isinstance(event.value, Text):
                choice = choices.get(event.part, reading.choice)
                found.setdefault(choice, []).append(event.value.text)
    return found


def _choices_of(reading: PayloadReading) -> dict[int, int]:
    """Which choice each part belongs to."""
    starts = (event for event in reading.events if isinstance(event, PartStarted))
    return {start.part: reading.choice_of(start) for start in starts}
