"""Stands between a decoder and an encoder: takes the events of an answer and returns them with calls in place of markup.

The text of each choice is scanned. All other events pass unchanged, except for their part numbers, which stay dense
when one text becomes several parts. A structured call ends the scanning of its choice. A text that ends while something
is held waits for the next event of its choice, because only a `Finished` that means a complete answer lets the end of the
text replace a closing tag. If the incoming events keep to the grammar, so do the emitted ones.

Until a call is found, the stage emits the answer unchanged, but later where text is held. `has_changed` becomes true when
the answer is changed, and `held_text` returns the text still held, so that a caller may forward the original frames instead.

Some servers leave the markup in the text and parse it too, so the same call comes twice in one choice. A structured call
that follows a call from the text is therefore held until it is complete. If it has the name and arguments of a call from
the text it is dropped, otherwise all its events are emitted then. Each call from the text matches one repetition.

With `holds_calls` the structured call wins instead, under the upstream's own id: a call from the text is held until its
choice ends or goes on with another part, and is dropped if a structured call repeats it. This costs nothing where the answer is sent whole, and is
needed where the upstream waits for the result under its own id (a paused turn of Codex).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, count

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman._json import is_same_json
from dragoman.core.fold import settle_finish
from dragoman.core.tool_cache import made_of
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import FinishReason, Problem
from dragoman.model.parts import Call, Reasoning, Text
from dragoman.model.request import Request, Tool
from dragoman.textcalls.block import TextPattern
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import CallFound, Found, TextFound, ThoughtFound
from dragoman.textcalls.offers import Offers, offers_of
from dragoman.textcalls.openers import Openers, openers_of
from dragoman.textcalls.registry import MAX_MODEL, PATTERNS, patterns_for
from dragoman.textcalls.scanner import CallIds, FindingWriter
from dragoman.textcalls.tail import Tail, TailPolicy


def _is_same(call: Call, other: Call) -> bool:
    """Return whether name and arguments are equal. Arguments are compared as values: servers rewrite them."""
    if (call.name, call.namespace) != (other.name, other.namespace):
        return False
    return call.input == other.input or is_same_json(call.input or "{}", other.input or "{}")


HeldText = tuple[int, int, bool]
"""Text that is not emitted yet: its part, how many of its characters had arrived, and whether it had ended."""


class ScannedChoice(Struct, eq=False):
    """The state of one choice."""

    tail: Tail
    identify: CallIds
    calls: int = 0  # complete calls of the client, structured or written
    is_closed: bool = False  # a structured call came, so text is no longer scanned
    is_finished: bool = False
    texts: "list[ScannedText]" = []
    written: list[Call] = []  # calls that came as text and were emitted


class ScannedText(Struct, eq=False):
    """A text of the upstream while it is scanned. `found` keeps the findings in reasoning until the reasoning ends.

    `came` and `emitted` count its characters, except for those that passed unscanned.
    """

    number: int
    choice: ScannedChoice
    finder: Finder
    writer: FindingWriter
    late: list[str] = []  # text that passed unscanned
    came: int = 0
    emitted: int = 0
    mark: str = ""  # an opener that was dropped because a structured call followed it
    is_plain: bool = True  # nothing was found in it and nothing was withheld
    ended: PartEnded | None = None
    found: list[Found] = []

    def catch_up(self) -> None:
        """Account for the text that passed unscanned."""
        if self.late:
            text = "".join(self.late)
            self.late.clear()
            self.finder.catch_up(text)
            self.writer.note(text)

    @property
    def is_still(self) -> bool:
        """Whether nothing was found and nothing is held. Then the reason of its end does not matter."""
        return self.is_plain and self.finder.is_quiet

    @property
    def is_calm(self) -> bool:
        """Whether text in which nothing begins would be emitted at once."""
        is_open = self.writer.text_part is not None and self.ended is None and not self.mark
        return is_open and self.finder.is_quiet and not self.choice.tail.passed

    @property
    def is_settled(self) -> bool:
        """Whether all text that arrived was emitted."""
        is_open = self.writer.text_part is not None and self.ended is None
        return is_open and self.emitted == self.came


_ABOUT_NO_PART = (Started, UsageReported, LimitsReported, Finished, Failed, Completed)
_DEFAULT_POLICY = TailPolicy()


class PendingCalls(Struct, eq=False):
    """Holds the calls from the text until their choice ends or goes on with something other than a call.

    Numbers the parts in the order in which they are emitted.
    """

    repeated: int = 0  # calls that were dropped because a structured call repeats them
    _ids: dict[int, str] = {}  # the held parts, and the ids of their calls
    _events: list[tuple[int, Event]] = []  # held events, with their parts
    _choices: dict[int, int] = {}
    _numbers: dict[int, int] = {}
    _count: int = 0

    @property
    def has_calls(self) -> bool:
        return bool(self._events)

    @property
    def count(self) -> int:
        """How many calls were held, and perhaps released since."""
        return len(self._ids)

    def number(self, part: int) -> int | None:
        """Return the number under which a part was emitted."""
        return self._numbers.get(part)

    def note(self, events: Iterable[Event]) -> None:
        """Hold the calls that begin among these events, which come from the text."""
        for event in events:
            if isinstance(event, PartStarted) and isinstance(event.header, Call):
                self._ids[event.part] = event.header.call_id
                self._choices[event.part] = event.choice

    def drop(self, call_id: str) -> bool:
        """Drop a held call that a structured call repeats; return whether it was still held."""
        parts = {part for part, held in self._ids.items() if held == call_id}
        left = [held for held in self._events if held[0] not in parts]
        is_held = len(left) < len(self._events)
        self._events = left
        self.repeated += is_held
        return is_held

    def release(self) -> tuple[Event, ...]:
        """Return all that is held."""
        out: list[Event] = []
        self._release(out, None)
        return tuple(out)

    def pass_on(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Return the events to emit now."""
        if not self._ids:  # nothing was held so far, so each part keeps its number; as in nearly all answers: 2 % of a short one
            for event in events:
                if isinstance(event, PartStarted):
                    self._numbers[event.part] = self._count
                    self._count += 1
            return events
        out: list[Event] = []
        for event in events:
            part = None if isinstance(event, _ABOUT_NO_PART) else event.part
            if part is not None and part in self._ids:
                self._events.append((part, event))
                continue
            if isinstance(event, Finished) or (
                isinstance(event, PartStarted) and not isinstance(event.header, Call)
            ):
                self._release(out, event.choice)
            elif isinstance(event, (Failed, Completed)):
                self._release(out, None)
            out.append(self._numbered(event))
        return tuple(out)

    def _release(self, out: list[Event], choice: int | None) -> None:
        held, self._events = self._events, []
        for part, event in held:
            if choice is None or self._choices[part] == choice:
                out.append(self._numbered(event))
            else:
                self._events.append((part, event))

    def _numbered(self, event: Event) -> Event:
        if isinstance(event, _ABOUT_NO_PART) or event.part is None:
            return event
        if isinstance(event, PartStarted):
            self._numbers[event.part] = self._count
            self._count += 1
        number = self._numbers.get(event.part)
        return event if number == event.part else replace(event, part=number)


class StageSettings(Struct, frozen=True, kw_only=True, dict=True):
    """What a stage looks for. reasoning: the patterns that also count in a reasoning channel, whose text is kept."""

    offers: Offers
    patterns: tuple[TextPattern, ...]
    reasoning: tuple[TextPattern, ...] = ()
    policy: TailPolicy = _DEFAULT_POLICY

    @cached_property
    def openers(self) -> Openers:
        return openers_of(self.patterns, self.offers)


def stage_for(  # noqa: PLR0913 -- a request, and what is known of its upstream and of its answer
    request: Request,
    *,
    formats: str | Iterable[str] = "auto",
    model: str | None = None,
    policy: TailPolicy = _DEFAULT_POLICY,
    seed: str = "",
    leaks: bool = False,
    holds_calls: bool = False,
) -> "TextCallStage | None":
    """Return the stage for the answer to a request; None if no tool may be called, so that no text can be a call.

    model: the model's name at the upstream, if it differs from the request's. leaks: a call in its text has leaked.

    Raises:
        ConfigError: `formats` has an unknown name.
    """
    choice = request.tool_choice
    tools = request.tools
    if choice is not None:
        if choice.mode == "none":
            return None
        if choice.mode == "allowed":
            allowed = {(ref.name, ref.namespace) for ref in choice.allowed}
            tools = tuple(tool for tool in tools if (tool.name, tool.namespace) in allowed)
    wanted = formats if isinstance(formats, str) else tuple(formats)
    name = model or request.model
    if len(name) > MAX_MODEL:
        name = ""
    key = ("textcalls", wanted, name, policy, leaks, PATTERNS.changes)
    settings = made_of(tools, key, _settings_for, tools, wanted, name, policy, leaks)
    if settings is None:
        return None
    return TextCallStage(settings, seed, PendingCalls() if holds_calls else None)


def _settings_for(
    tools: tuple[Tool, ...],
    formats: str | tuple[str, ...],
    model: str,
    policy: TailPolicy,
    leaks: bool,  # noqa: FBT001 -- `made_of` passes it on
) -> StageSettings | None:
    offers = offers_of(tools)
    if not offers:
        return None
    chosen = patterns_for(formats, model, leaks=leaks)
    return StageSettings(
        offers=offers, patterns=chosen.patterns, reasoning=chosen.reasoning, policy=policy
    )


class TextCallStage(Struct, eq=False):
    """Finds the calls in the text of one answer.

    seed: the calls found in this answer get ids made from it. pending: holds these calls; None: they are emitted at once.
    """

    settings: StageSettings
    seed: str = ""
    pending: PendingCalls | None = None
    has_changed: bool = False  # the emitted events differ from those that came
    problems: list[Problem] = []
    _numbers: Iterator[int] = field(default_factory=count)
    _choices: dict[int, ScannedChoice] = {}
    _choice_of: dict[int, int] = {}  # the choice of each of the upstream's parts
    _texts: dict[int, ScannedText] = {}
    _thoughts: dict[int, ScannedText] = {}
    _renumbered: dict[int, int] = {}
    _open: set[int] = set()  # parts that are not scanned and have not ended
    # Structured calls that may repeat one from the text: the calls to compare with, and their events so far.
    _held_calls: dict[int, tuple[list[Call], list[Event]]] = {}

    @property
    def is_thinking(self) -> bool:
        """Whether reasoning is scanned too."""
        return bool(self.settings.reasoning)

    @property
    def begins_in(self) -> Callable[[str], object]:
        """See `dialects.staging.Stage`."""
        return self.settings.openers.begins_in

    @property
    def begins(self) -> Mapping[str, bool]:
        """See `dialects.staging.Stage`."""
        return self.settings.openers.begins

    @property
    def calls(self) -> int:
        """How many calls that came as text were emitted, or are held to be emitted."""
        repeated = 0 if self.pending is None else self.pending.repeated
        return sum(choice.tail.passed for choice in self._choices.values()) - repeated

    @property
    def is_truncated(self) -> bool:
        """Whether calls were withheld."""
        return any(choice.tail.withheld for choice in self._choices.values())

    @property
    def is_done(self) -> bool:
        """Whether nothing more can be emitted, so that the upstream can be stopped."""
        choices = self._choices.values()
        is_over = all(one.tail.is_over or one.is_finished for one in choices)
        return bool(choices) and is_over and not self._open

    @property
    def has_held_calls(self) -> bool:
        """Whether complete calls from the text wait for the end of their choice."""
        return self.pending is not None and self.pending.has_calls

    @property
    def calls_held(self) -> int:
        """How many calls from the text have waited, or wait, for the end of their choice."""
        return 0 if self.pending is None else self.pending.count

    @property
    def is_holding(self) -> bool:
        """Whether some text holds characters that may become a call."""
        return any(text.finder.is_waiting for text in self._texts.values())

    @property
    def is_reading(self) -> bool:
        """Whether some text holds a block that its format has confirmed."""
        return any(text.finder.is_confirmed for text in self._texts.values())

    def text_sink(self, part: int) -> Callable[[str], None] | None:
        """Return where to put a piece of this text instead of feeding it, if nothing `begins_in` it; None: feed it.

        The function is valid until any other event is fed.
        """
        text = self._texts.get(part)
        return text.late.append if text is not None and text.is_calm else None

    def held_text(self, part: int) -> HeldText | None:
        """Return the text of a part that is still held; None if none is, or if the part is not a scanned text."""
        text = self._texts.get(part)
        if text is None or text.is_settled:
            return None
        return (part, text.came, text.ended is not None)

    def is_released(self, held: HeldText) -> bool:
        """Return whether this held text has been emitted by now."""
        part, size, is_ended = held
        text = self._texts.get(part)
        if text is None:
            return True
        return not is_ended and text.writer.text_part is not None and text.emitted >= size

    def number_of(self, part: int) -> int | None:
        """Return the number under which a part is emitted, while nothing has changed; None if it is not emitted yet."""
        number = self._own_number(part)
        return number if self.pending is None or number is None else self.pending.number(number)

    def _own_number(self, part: int) -> int | None:
        text = self._texts.get(part)
        return self._renumbered.get(part) if text is None else text.writer.text_part

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take the next event of the answer and return the events to emit."""
        if type(event) is TextDelta:
            # Nearly every event is a piece of text in which nothing begins: it passes unchanged and is accounted for later.
            text = self._texts.get(event.part)
            is_open = text is not None and text.is_calm and text.writer.text_part == event.part
            if text is not None and is_open and self.begins_in(event.text) is None:
                text.late.append(event.text)
                return (event,) if self.pending is None else self.pending.pass_on((event,))
        events = self._feed_held_call(event) if self._held_calls else None
        events = self._feed(event) if events is None else events
        return events if self.pending is None else self.pending.pass_on(events)

    def _feed(self, event: Event) -> tuple[Event, ...]:
        match event:
            case TextDelta():
                return self._grow(event)
            case PartStarted():
                return self._start(event)
            case PartEnded():
                return self._end(event)
            case AnnotationAdded() if event.part in self._texts:
                events: list[Event] = []
                self._texts[event.part].writer.annotate(event.annotation, events)
                return tuple(events)
            case ReasoningDelta() if event.part in self._thoughts:
                self._scan_reasoning(self._thoughts[event.part], event.text)
                return (self._renumber(event),)
            case (
                InputDelta()
                | ReasoningDelta()
                | OutputDelta()
                | MediaDelta()
                | SealAdded()
                | AnnotationAdded()
            ):
                return (self._renumber(event),)
            case Finished():
                return self._finish(event)
            case Progress() | Noticed():
                return (self._mention(event),)
            case Failed() | Completed():
                return (*self._release_all(), event)
            case _:
                return (event,)

    def release_calls(self) -> tuple[Event, ...]:
        """Return the calls that are held: for a caller that takes nothing more of the answer."""
        return () if self.pending is None else self.pending.release()

    def finish_now(self) -> tuple[Event, ...]:
        """End the answer here, as the upstream would: for a caller that stops the upstream because `is_done`."""
        events: list[Event] = []
        for number, choice in self._choices.items():
            if not choice.is_finished:
                for text in choice.texts:
                    text.ended = text.ended or PartEnded(text.number, Text())
                    text.is_plain = False
                events += self._finish(Finished("stop", number, inferred=True))
        events.append(Completed())
        return tuple(events) if self.pending is None else self.pending.pass_on(tuple(events))

    def _choice(self, number: int) -> ScannedChoice:
        choice = self._choices.get(number)
        if choice is None:
            seed = f"{self.seed}#{number}.text"
            choice = ScannedChoice(Tail(self.settings.policy), CallIds(seed))
            self._choices[number] = choice
        return choice

    def _start(self, event: PartStarted) -> tuple[Event, ...]:
        choice = self._choice(event.choice)
        self._choice_of[event.part] = event.choice
        header = event.header
        events: list[Event] = []
        if isinstance(header, Call) and header.executor == "client":
            for text in choice.texts:
                events += self._drop_mark(text)
        events += self._release(choice, "length")
        for text in choice.texts:
            # Parts keep their order: a text that has begun comes before the part that begins now.
            if text.writer.is_fresh:
                text.writer.open_text(events)
        if isinstance(header, Call) and header.executor == "client":
            events += self._close(choice)
            if choice.written:
                self._open.add(event.part)
                self._held_calls[event.part] = (choice.written, [event])
                return tuple(events)
        if isinstance(header, Text) and not choice.is_closed:
            text = self._text(event, choice, self.settings.openers)
            text.writer.header = header
            self._texts[event.part] = text
            choice.texts.append(text)
            return tuple(events)
        if isinstance(header, Reasoning) and self.settings.reasoning and not choice.is_closed:
            openers = openers_of(self.settings.reasoning, self.settings.offers)
            self._thoughts[event.part] = self._text(event, choice, openers)
        events.append(self._announce(event))
        return tuple(events)

    def _announce(self, event: PartStarted) -> PartStarted:
        number = self._renumbered[event.part] = next(self._numbers)
        self._open.add(event.part)
        return event if number == event.part else replace(event, part=number)

    def _feed_held_call(self, event: Event) -> tuple[Event, ...] | None:
        """Hold the events of a structured call that may repeat one from the text until it ends.

        None: the event is about another part.
        """
        held = None
        if not isinstance(event, _ABOUT_NO_PART) and event.part is not None:
            held = self._held_calls.get(event.part)
        if held is None:
            return None
        written, events = held
        events.append(event)
        if not isinstance(event, PartEnded) or not isinstance(event.value, Call):
            return ()
        del self._held_calls[event.part]
        call = event.value
        repeated = next((other for other in written if _is_same(call, other)), None)
        if call.status != "completed" or repeated is None:
            return tuple(chain.from_iterable(map(self._replay, events)))
        written.remove(repeated)
        if self.pending is not None and self.pending.drop(repeated.call_id):
            self._note_repetition(call)
            return tuple(chain.from_iterable(map(self._replay, events)))
        self._open.discard(event.part)
        self._note_repetition(call)
        return ()

    def _note_repetition(self, call: Call) -> None:
        message = f"{call.name}: the call was already written as text, and is sent once"
        self.problems.append(Problem(0, "repeated_call", message))

    def _replay(self, event: Event) -> tuple[Event, ...]:
        return (self._announce(event),) if isinstance(event, PartStarted) else self._feed(event)

    def _text(self, event: PartStarted, choice: ScannedChoice, openers: Openers) -> ScannedText:
        writer = FindingWriter(
            self._numbers.__next__, self.settings.offers, choice.identify, choice=event.choice
        )
        return ScannedText(event.part, choice, Finder(openers, writer.offers), writer)

    def _grow(self, event: TextDelta) -> tuple[Event, ...]:
        text = self._texts.get(event.part)
        if text is None:
            return (self._renumber(event),)
        text.catch_up()
        text.came += len(event.text)
        if text.mark:
            event = replace(event, text=text.mark + event.text)  # the mark was text after all
            text.mark = ""
        found = text.finder.feed(event.text)
        events: list[Event] = []
        if found == [TextFound(event.text)] and not text.choice.tail.passed:
            text.writer.add_text(event.text, events, event.logprobs)
            text.emitted += len(event.text)
        else:
            events = self._take(text, found)
        if text.is_plain and text.emitted < text.came and text.finder.is_quiet:
            self._note_change(text)  # marks around the text were dropped without a finding
        return tuple(events)

    def _note_change(self, text: ScannedText) -> None:
        text.is_plain = False
        self.has_changed = True

    def _scan_reasoning(self, thoughts: ScannedText, text: str) -> None:
        found = thoughts.finder.feed(text)
        thoughts.found += [one for one in found if not isinstance(one, (TextFound, ThoughtFound))]

    def _take(self, text: ScannedText, found: list[Found]) -> list[Event]:
        passed = text.choice.tail.filter(found)
        if text.is_plain:
            is_markup = any(isinstance(one, (CallFound, ThoughtFound)) for one in found)
            if is_markup or len(passed) != len(found):
                self._note_change(text)
        text.emitted += sum([len(one.text) for one in passed if isinstance(one, TextFound)])
        before = text.writer.calls
        events = text.writer.write(passed)
        if text.writer.calls != before:
            text.choice.calls += text.writer.calls - before
            text.choice.written += _calls_in(events)
        if self.pending is not None:
            self.pending.note(events)
        if text.writer.problems:
            self.problems += text.writer.problems
            text.writer.problems.clear()
        return events

    def _end(self, event: PartEnded) -> tuple[Event, ...]:
        choice = self._choice(self._choice_of.get(event.part, 0))
        text = self._texts.get(event.part)
        if text is not None:
            text.ended = event
            if text.is_still:
                return tuple(self._settle(text, "stop"))
            text.catch_up()
            if isinstance(event.value, Text) and event.value.status == "incomplete":
                return tuple(self._settle(text, "cancelled"))
            return tuple([] if text.finder.is_waiting else self._settle(text, "stop"))
        self._open.discard(event.part)
        value = event.value
        if isinstance(value, Call) and value.executor == "client" and value.status == "completed":
            choice.calls += 1
        events: list[Event] = [self._renumber(event)]
        thoughts = self._thoughts.pop(event.part, None)
        if thoughts is not None:
            events += self._take_from_reasoning(thoughts)
        return tuple(events)

    def _take_from_reasoning(self, thoughts: ScannedText) -> list[Event]:
        """Return the events of the calls in ended reasoning, whose text was emitted unchanged."""
        rest = thoughts.finder.finish("stop")
        rest = [one for one in rest if not isinstance(one, (TextFound, ThoughtFound))]
        return self._take(thoughts, [*thoughts.found, *rest])

    def _settle(self, text: ScannedText, reason: FinishReason) -> list[Event]:
        """End a text: emit its held text, and end its part."""
        events: list[Event] = []
        if not text.is_still:
            text.catch_up()
            events = self._take(text, text.finder.finish(reason))
        if text.is_plain and text.emitted < text.came:
            self._note_change(text)
        text.choice.texts.remove(text)
        del self._texts[text.number]
        ended, writer = text.ended, text.writer
        if ended is None:
            writer.end_all(events, "incomplete")
        elif not text.is_plain:
            status = ended.value.status if isinstance(ended.value, Text) else "completed"
            writer.end_all(events, status)
        else:
            self._renumbered[text.number] = writer.open_text(events)
            events.append(self._renumber(ended))
        return events

    def _release(self, choice: ScannedChoice, reason: FinishReason) -> list[Event]:
        """Settle the texts that have ended and waited for the next event."""
        events: list[Event] = []
        for text in [text for text in choice.texts if text.ended is not None]:
            events += self._settle(text, reason)
        return events

    def _drop_mark(self, text: ScannedText) -> list[Event]:
        """Drop an opener, or its beginning, that a server's own parser left before the call that it made of the rest."""
        text.catch_up()
        held = text.finder.held
        mark = held.strip()
        if not mark or not self.settings.openers.is_mark(mark):
            return []
        found = text.finder.stop()
        if found and found[-1] == TextFound(held):
            del found[-1]
            text.mark = held
        self._note_change(text)
        message = f"expected no opener before a structured call, got {mark!r} and dropped it"
        self.problems.append(Problem(text.came, "leaked_mark", message))
        return self._take(text, found)

    def _close(self, choice: ScannedChoice) -> list[Event]:
        """Stop scanning the text of this choice, because a structured call came."""
        choice.is_closed = True
        events: list[Event] = []
        for text in choice.texts:
            text.catch_up()
            events += self._take(text, text.finder.stop())
        return events

    def _finish(self, event: Finished) -> tuple[Event, ...]:
        choice = self._choice(event.choice)
        events = self._release(choice, event.reason)
        choice.is_finished = True
        reason = event.reason
        if choice.tail.passed:
            reason = settle_finish(reason, has_complete_client_calls=choice.calls > 0)
        events.append(event if reason == event.reason else replace(event, reason=reason))
        return tuple(events)

    def _release_all(self) -> list[Event]:
        events: list[Event] = []
        for choice in self._choices.values():
            events += self._release(choice, "cancelled")
        return events

    def _renumber(self, event: Delta | PartEnded) -> Event:
        number = self._renumbered[event.part]
        return event if number == event.part else replace(event, part=number)

    def _mention(self, event: Progress | Noticed) -> Event:
        """Return the event without its part number if that part has not been emitted."""
        number = None if event.part is None else self._own_number(event.part)
        return event if number == event.part else replace(event, part=number)


def _calls_in(events: Iterable[Event]) -> Iterable[Call]:
    """Return the calls that events complete."""
    for event in events:
        match event:
            case PartEnded(value=Call(status="completed") as call):
                yield call
            case _:
                pass
