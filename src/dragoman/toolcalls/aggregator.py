"""Collects the tool calls of one turn from payloads of any dialect, also of several dialects in one turn.

    aggregator = ToolCallAggregator()
    for chunk in stream:
        for delta in aggregator.ingest_delta(chunk).deltas:
            send({"tool_calls": [delta.as_chat_delta()]})
    calls = aggregator.snapshot()

It passes payloads to the dialects' readers and keeps records of the calls that they report. It never changes a payload,
never parses arguments to rewrite them, never logs, and never decides how a turn ends.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from dragoman.core.fields import as_int, expect_instance
from dragoman.core.ids import Minter
from dragoman.dialects.codec import DecodeContext
from dragoman.errors import ConfigError
from dragoman.model.events import Noticed, PartEnded, PartStarted
from dragoman.model.outcome import Problem
from dragoman.model.parts import Call, Text
from dragoman.textcalls.registry import PATTERNS, PatternRegistry
from dragoman.toolcalls.payloads import (
    PayloadContext,
    PayloadReader,
    PayloadReading,
    nameless_call,
)
from dragoman.toolcalls.records import CallRecords, Changes, IngestResult, ToolCallRecord

_NO_CONTEXT = DecodeContext()
_TEXT_CHANNEL = 0  # readers count from 1


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
