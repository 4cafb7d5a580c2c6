"""Between a decoder and an encoder: the events of an answer in, the same with calls in place of markup out.

Text of each choice is scanned; everything else passes untouched, but for the numbers of its parts, which stay dense
where a text became several parts. A structured call ends the scanning of its choice. What is still open when a text
ends waits for the next event of its choice, because only a `Finished` that means a whole answer lets the end of the
text stand for a closing tag. Grammatical sequences in, grammatical sequences out.

Until something is found the answer is told as it came, only later where text is held. `has_changed` says when that is
no longer so, `debt` what of a text is not told yet: so a caller may pass on what came instead of what is told.
"""

from collections.abc import Callable, Iterable
from itertools import chain, count

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.finish import settle_finish
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
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
from dragoman.model.request import Request
from dragoman.textcalls.found import CallFound, Found, TextFound, ThoughtFound
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.preparing import look_for, offers_of, openers_of
from dragoman.textcalls.repeats import Repeats
from dragoman.textcalls.scanned import Debt, ScannedChoice, ScannedText
from dragoman.textcalls.tail import TailPolicy
from dragoman.textcalls.weaving import Weaver

__all__ = ("StageSettings", "TextCallStage", "stage_for")

_Numbered = (
    TextDelta
    | InputDelta
    | ReasoningDelta
    | OutputDelta
    | MediaDelta
    | SealAdded
    | AnnotationAdded
    | PartEnded
)
_ABOUT_NO_PART = (Started, UsageReported, LimitsReported, Finished, Failed, Completed)
_DEFAULT_POLICY = TailPolicy()


class StageSettings(Struct, frozen=True, kw_only=True):
    """What a stage looks for. `reasoning`: the patterns that count in a reasoning channel too; its text stays."""

    offers: Offers
    patterns: tuple[TextPattern, ...]
    reasoning: tuple[TextPattern, ...] = ()
    policy: TailPolicy = _DEFAULT_POLICY
    seed: str = ""


def stage_for(
    request: Request,
    *,
    formats: str | Iterable[str] = "auto",
    model: str | None = None,
    policy: TailPolicy = _DEFAULT_POLICY,
    seed: str = "",
) -> "TextCallStage | None":
    """The stage for the answer to a request; None where no tool may be called, so that text is text.

    model: the model's name at the upstream, where it is another than the request's.

    Raises:
        ConfigError: `formats` names one that does not exist.
    """
    choice = request.tool_choice
    tools = request.tools
    if choice is not None and choice.mode == "none":
        return None
    if choice is not None and choice.mode == "allowed":
        allowed = {(ref.name, ref.namespace) for ref in choice.allowed}
        tools = tuple(tool for tool in tools if (tool.name, tool.namespace) in allowed)
    offers = offers_of(tools)
    if not offers:
        return None
    wanted = formats if isinstance(formats, str) else tuple(formats)
    looking = look_for(wanted, model or request.model)
    return TextCallStage(
        StageSettings(
            offers=offers,
            patterns=looking.patterns,
            reasoning=looking.reasoning,
            policy=policy,
            seed=seed,
        )
    )


class TextCallStage:
    """One answer on its way."""

    def __init__(self, settings: StageSettings) -> None:
        self._settings = settings
        self._numbers = count()
        self._choices: dict[int, ScannedChoice] = {}
        self._choice_of: dict[int, int] = {}  # the choice of each part of the upstream
        self._texts: dict[int, ScannedText] = {}
        self._thoughts: dict[int, ScannedText] = {}
        self._renumbered: dict[int, int] = {}
        self._open: set[int] = set()  # parts that are not scanned and have not ended
        self._repeats = Repeats()
        self._openers = openers_of(settings.patterns, settings.offers)
        self.begins_in = self._openers.begins_in
        self.begins = self._openers.begins
        self.problems: list[Problem] = []
        self.has_changed = False  # something else was told than came
        self.is_thinking = bool(settings.reasoning)  # reasoning is scanned too

    @property
    def calls(self) -> int:
        """How many calls were told that came as text."""
        return sum(choice.tail.told for choice in self._choices.values())

    @property
    def is_truncated(self) -> bool:
        """Whether calls were withheld."""
        return any(choice.tail.withheld for choice in self._choices.values())

    @property
    def is_done(self) -> bool:
        """Whether nothing more can come that would be told: the upstream need not go on."""
        choices = self._choices.values()
        is_over = all(one.tail.is_over or one.is_finished for one in choices)
        return bool(choices) and is_over and not self._open

    @property
    def is_holding(self) -> bool:
        """Whether some text holds what may become a call."""
        return any(text.finder.is_waiting for text in self._texts.values())

    @property
    def is_reading(self) -> bool:
        """Whether some text holds a block that its format has confirmed."""
        return any(text.finder.is_confirmed for text in self._texts.values())

    def may_touch(self, text: str) -> bool:
        """Whether anything may be found in a text that is there as a whole."""
        return self.begins_in(text) is not None

    def lane(self, part: int) -> Callable[[str], None] | None:
        """Where to put a piece of this text instead of feeding it, if nothing `begins_in` it; None: feed it.

        Holds until anything else is fed.
        """
        text = self._texts.get(part)
        return text.late.append if text is not None and text.is_calm else None

    def debt(self, part: int) -> Debt | None:
        """What of a text is still to be told; None if nothing is, or it is no text that is scanned."""
        text = self._texts.get(part)
        if text is None or text.is_settled:
            return None
        return (part, text.came, text.ended is not None)

    def is_paid(self, debt: Debt) -> bool:
        """Whether that has been told by now."""
        part, size, is_ended = debt
        text = self._texts.get(part)
        if text is None:
            return True
        return not is_ended and text.weaver.text_part is not None and text.told >= size

    def owed(self, part: int) -> int:
        """How many characters of a text that came were not told."""
        text = self._texts.get(part)
        return 0 if text is None else text.came - text.told

    def number_of(self, part: int) -> int | None:
        """The number under which a part is told, while nothing has changed; None if it is not told yet."""
        text = self._texts.get(part)
        return self._renumbered.get(part) if text is None else text.weaver.text_part

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take the next event of the answer."""
        if type(event) is TextDelta:
            # Nearly every event is a piece of text in which nothing begins: it passes as it is, and is noted later.
            text = self._texts.get(event.part)
            if text is not None and text.is_quick and text.begins_in(event.text) is None:
                text.late.append(event.text)
                return (event,)
        told = None if self._repeats.is_idle else self._feed_doubtful(event)
        return self._feed(event) if told is None else told

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
                self._texts[event.part].weaver.annotate(event.annotation, events)
                return tuple(events)
            case ReasoningDelta() if event.part in self._thoughts:
                self._note_thought(self._thoughts[event.part], event.text)
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

    def finish_now(self) -> tuple[Event, ...]:
        """End the answer here, as if the upstream had: for a caller that cuts it because `is_done`."""
        events: list[Event] = []
        for number, choice in self._choices.items():
            if not choice.is_finished:
                for text in choice.texts:
                    text.ended = text.ended or PartEnded(text.number, Text())
                    text.is_plain = False
                events += self._finish(Finished("stop", number, inferred=True))
        return (*events, Completed())

    def _choice(self, number: int) -> ScannedChoice:
        choice = self._choices.get(number)
        if choice is None:
            seed = f"{self._settings.seed}#{number}.text"
            choice = self._choices[number] = ScannedChoice(self._settings.policy, seed)
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
            # Parts keep their order: a text that has begun comes before what begins now.
            if text.weaver.is_fresh:
                text.weaver.open_text(events)
        if isinstance(header, Call) and header.executor == "client":
            events += self._close(choice)
            if choice.written:
                self._open.add(event.part)
                self._repeats.doubt(event.part, choice.written, event)
                return tuple(events)
        if isinstance(header, Text) and not choice.is_closed:
            text = self._text(event, choice, self._openers)
            text.weaver.header = header
            self._texts[event.part] = text
            choice.texts.append(text)
            return tuple(events)
        if isinstance(header, Reasoning) and self._settings.reasoning and not choice.is_closed:
            openers = openers_of(self._settings.reasoning, self._settings.offers)
            self._thoughts[event.part] = self._text(event, choice, openers)
        events.append(self._announce(event))
        return tuple(events)

    def _announce(self, event: PartStarted) -> PartStarted:
        number = self._renumbered[event.part] = next(self._numbers)
        self._open.add(event.part)
        return event if number == event.part else replace(event, part=number)

    def _feed_doubtful(self, event: Event) -> tuple[Event, ...] | None:
        """Of a structured call that may say again what was written nothing is told before its end.

        None: the event is about something else.
        """
        if isinstance(event, _ABOUT_NO_PART) or event.part not in self._repeats:
            return None
        if not isinstance(event, PartEnded) or not isinstance(event.value, Call):
            self._repeats.keep(event.part, event)
            return ()
        events = self._repeats.settle(event.part, event.value)
        if events is None:
            self._open.discard(event.part)
            message = f"{event.value.name}: the call was written as text before, and is told once"
            self.problems.append(Problem(0, "repeated_call", message))
            return ()
        return tuple(chain.from_iterable(map(self._retell, (*events, event))))

    def _retell(self, event: Event) -> tuple[Event, ...]:
        return (self._announce(event),) if isinstance(event, PartStarted) else self._feed(event)

    def _text(self, event: PartStarted, choice: ScannedChoice, openers: Openers) -> ScannedText:
        offers = self._settings.offers
        identify = choice.identify
        weaver = Weaver(lambda: next(self._numbers), offers, identify, choice=event.choice)
        return ScannedText(event.part, choice, openers, weaver)

    def _grow(self, event: TextDelta) -> tuple[Event, ...]:
        text = self._texts.get(event.part)
        if text is None:
            return (self._renumber(event),)
        text.catch_up()
        text.came += len(event.text)
        if text.mark:
            event, text.mark = (
                replace(event, text=text.mark + event.text),
                "",
            )  # it was text after all
        found = text.finder.feed(event.text)
        events: list[Event] = []
        if found == [TextFound(event.text)] and not text.choice.tail.told:
            text.weaver.say(event.text, events, event.logprobs)
            text.told += len(event.text)
        else:
            events = self._take(text, found)
        if text.is_plain and text.told < text.came and text.finder.is_quiet:
            self._note_change(text)  # marks that only dress the text went without a word
        text.rest()
        return tuple(events)

    def _note_change(self, text: ScannedText) -> None:
        text.is_plain = False
        self.has_changed = True

    def _note_thought(self, thoughts: ScannedText, text: str) -> None:
        found = thoughts.finder.feed(text)
        thoughts.found += [one for one in found if not isinstance(one, TextFound | ThoughtFound)]

    def _take(self, text: ScannedText, found: list[Found]) -> list[Event]:
        passed = text.choice.tail.filter(found)
        if text.is_plain:
            is_markup = any(isinstance(one, CallFound | ThoughtFound) for one in found)
            if is_markup or len(passed) != len(found):
                self._note_change(text)
        text.told += sum([len(one.text) for one in passed if isinstance(one, TextFound)])
        before = text.weaver.calls
        events = text.weaver.weave(passed)
        if text.weaver.calls != before:
            text.choice.calls += text.weaver.calls - before
            text.choice.written += _calls_in(events)
        for other in text.choice.texts:
            other.is_quick = other.is_quick and not text.choice.tail.told
        if text.weaver.problems:
            self.problems += text.weaver.problems
            text.weaver.problems.clear()
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
            events += self._take_from_thoughts(thoughts)
        return tuple(events)

    def _take_from_thoughts(self, thoughts: ScannedText) -> list[Event]:
        """The calls in a reasoning that is over. Its text has been told as it was."""
        rest = thoughts.finder.finish("stop")
        rest = [one for one in rest if not isinstance(one, TextFound | ThoughtFound)]
        return self._take(thoughts, [*thoughts.found, *rest])

    def _settle(self, text: ScannedText, reason: FinishReason) -> list[Event]:
        """The text is over: tell what was held, and end its part."""
        events: list[Event] = []
        if not text.is_still:
            text.catch_up()
            events = self._take(text, text.finder.finish(reason))
        if text.is_plain and text.told < text.came:
            self._note_change(text)
        text.choice.texts.remove(text)
        del self._texts[text.number]
        ended, weaver = text.ended, text.weaver
        if ended is None:
            weaver.end_all(events, "incomplete")
        elif not text.is_plain:
            status = ended.value.status if isinstance(ended.value, Text) else "completed"
            weaver.end_all(events, status)
        else:
            self._renumbered[text.number] = weaver.open_text(events)
            events.append(self._renumber(ended))
        return events

    def _release(self, choice: ScannedChoice, reason: FinishReason) -> list[Event]:
        """Settle the texts that are over and only waited for what comes next."""
        events: list[Event] = []
        for text in [text for text in choice.texts if text.ended is not None]:
            events += self._settle(text, reason)
        return events

    def _drop_mark(self, text: ScannedText) -> list[Event]:
        """Leave out the opener, or its beginning, that a server's own parser left before the call it made of the rest."""
        text.catch_up()
        held = text.finder.held
        mark = held.strip()
        if not mark or not self._openers.is_mark(mark):
            return []
        found = text.finder.stop()
        if found and found[-1] == TextFound(held):
            del found[-1]
            text.mark = held
        self._note_change(text)
        message = f"{mark!r} stood before a structured call and was left out"
        self.problems.append(Problem(text.came, "leaked_mark", message))
        return self._take(text, found)

    def _close(self, choice: ScannedChoice) -> list[Event]:
        """A structured call: from here on the text of this choice is text."""
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
        if choice.tail.told:
            reason = settle_finish(reason, has_complete_client_calls=choice.calls > 0)
        events.append(event if reason == event.reason else replace(event, reason=reason))
        return tuple(events)

    def _release_all(self) -> list[Event]:
        events: list[Event] = []
        for choice in self._choices.values():
            events += self._release(choice, "cancelled")
        return events

    def _renumber(self, event: _Numbered) -> Event:
        number = self._renumbered[event.part]
        return event if number == event.part else replace(event, part=number)

    def _mention(self, event: Progress | Noticed) -> Event:
        """A remark about a part; about none where that part has not been told."""
        if event.part is None:
            return event
        text = self._texts.get(event.part)
        number = self._renumbered.get(event.part) if text is None else text.weaver.text_part
        return event if number == event.part else replace(event, part=number)


def _calls_in(events: Iterable[Event]) -> Iterable[Call]:
    """The calls that events complete."""
    for event in events:
        if (
            isinstance(event, PartEnded)
            and isinstance(event.value, Call)
            and event.value.status == "completed"
        ):
            yield event.value
