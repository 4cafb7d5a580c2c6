"""Between a decoder and an encoder: the events of an answer in, the same with calls in place of markup out.

Text of each choice is scanned; everything else passes untouched, but for the numbers of its parts, which stay dense
where a text became several parts. A structured call ends the scanning of its choice. What is still open when a text
ends waits for the next event of its choice, because only a `Finished` that means a whole answer lets the end of the
text stand for a closing tag. Grammatical sequences in, grammatical sequences out.
"""

from collections.abc import Iterable
from itertools import count

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
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.outcome import FinishReason, Problem
from dragoman.model.parts import Call, Reasoning, Text
from dragoman.model.request import Request
from dragoman.textcalls.choosing import choose_patterns
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.found import CallFound, Found, TextFound, ThoughtFound
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.tail import Tail, TailPolicy
from dragoman.textcalls.weaving import CallIds, Weaver

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
    offers = Offers(tool for tool in tools if tool.kind in ("function", "custom"))
    if not offers:
        return None
    patterns = choose_patterns(formats, model or request.model, None)
    thinking = tuple(pattern for pattern in patterns if pattern.in_think == "call")
    return TextCallStage(
        StageSettings(
            offers=offers, patterns=patterns, reasoning=thinking, policy=policy, seed=seed
        )
    )


class _Choice:
    """What is known of one choice."""

    __slots__ = ("calls", "identify", "is_closed", "is_finished", "tail", "texts")

    def __init__(self, policy: TailPolicy, seed: str) -> None:
        self.tail = Tail(policy)
        self.identify = CallIds(seed)
        self.calls = 0  # complete calls of the client, structured or written
        self.is_closed = False  # a structured call came: text is text
        self.is_finished = False
        self.texts: list[_TextPart] = []


class _TextPart:
    """A text of the upstream while it is scanned. `found` keeps what a reasoning holds until it is over."""

    __slots__ = (
        "begins_in",
        "choice",
        "ended",
        "finder",
        "found",
        "is_plain",
        "is_quick",
        "late",
        "number",
        "weaver",
    )

    def __init__(self, number: int, choice: _Choice, openers: Openers, weaver: Weaver) -> None:
        finder = Finder(openers, weaver.offers)
        self.begins_in = openers.begins_in
        self.is_quick = False  # text in which nothing begins may pass as it is
        self.late: list[str] = []  # text that passed so
        self.number = number
        self.choice = choice
        self.finder = finder
        self.weaver = weaver
        self.is_plain = True  # nothing was found in it, nothing withheld
        self.ended: PartEnded | None = None
        self.found: list[Found] = []

    def catch_up(self) -> None:
        """Account for the text that passed as it was."""
        if self.late:
            self.finder.catch_up(self.late)
            self.weaver.note(self.late)
            self.late.clear()

    def rest(self) -> None:
        """Note whether text may pass as it is: nothing is held, and its part is open under its own number."""
        is_open = self.weaver.text_part == self.number
        self.is_quick = is_open and self.finder.is_quiet and not self.choice.tail.told


class TextCallStage:
    """One answer on its way."""

    def __init__(self, settings: StageSettings) -> None:
        self._settings = settings
        self._numbers = count()
        self._choices: dict[int, _Choice] = {}
        self._choice_of: dict[int, int] = {}  # the choice of each part of the upstream
        self._texts: dict[int, _TextPart] = {}
        self._thoughts: dict[int, _TextPart] = {}
        self._renumbered: dict[int, int] = {}
        self._open: set[int] = set()  # parts that are not scanned and have not ended
        self._openers = Openers(settings.patterns, settings.offers)
        self._thought_openers = Openers(settings.reasoning, settings.offers)
        self.problems: list[Problem] = []

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

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take the next event of the answer."""
        if type(event) is TextDelta:
            # Nearly every event is a piece of text in which nothing begins: it passes as it is, and is noted later.
            text = self._texts.get(event.part)
            if text is not None and text.is_quick and text.begins_in(event.text) is None:
                text.late.append(event.text)
                return (event,)
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
                thoughts = self._thoughts[event.part]
                thoughts.found += thoughts.finder.feed(event.text)
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

    def _choice(self, number: int) -> _Choice:
        choice = self._choices.get(number)
        if choice is None:
            seed = f"{self._settings.seed}#{number}.text"
            choice = self._choices[number] = _Choice(self._settings.policy, seed)
        return choice

    def _start(self, event: PartStarted) -> tuple[Event, ...]:
        choice = self._choice(event.choice)
        self._choice_of[event.part] = event.choice
        events = self._release(choice, "length")
        for text in choice.texts:
            # Parts keep their order: a text that has begun comes before what begins now.
            if text.weaver.is_fresh:
                text.weaver.open_text(events)
        header = event.header
        if isinstance(header, Call) and header.executor == "client":
            events += self._close(choice)
        if isinstance(header, Text) and not choice.is_closed:
            text = self._text(event, choice, self._openers)
            text.weaver.header = header
            self._texts[event.part] = text
            choice.texts.append(text)
            return tuple(events)
        if isinstance(header, Reasoning) and self._settings.reasoning and not choice.is_closed:
            self._thoughts[event.part] = self._text(event, choice, self._thought_openers)
        number = self._renumbered[event.part] = next(self._numbers)
        self._open.add(event.part)
        events.append(event if number == event.part else replace(event, part=number))
        return tuple(events)

    def _text(self, event: PartStarted, choice: _Choice, openers: Openers) -> _TextPart:
        offers = self._settings.offers
        identify = choice.identify
        weaver = Weaver(lambda: next(self._numbers), offers, identify, choice=event.choice)
        return _TextPart(event.part, choice, openers, weaver)

    def _grow(self, event: TextDelta) -> tuple[Event, ...]:
        text = self._texts.get(event.part)
        if text is None:
            return (self._renumber(event),)
        text.catch_up()
        found = text.finder.feed(event.text)
        events: list[Event] = []
        if found == [TextFound(event.text)] and not text.choice.tail.told:
            text.weaver.say(event.text, events, event.logprobs)
        else:
            events = self._take(text, found)
        text.rest()
        return tuple(events)

    def _take(self, text: _TextPart, found: list[Found]) -> list[Event]:
        passed = text.choice.tail.filter(found)
        if text.is_plain:
            is_markup = any(isinstance(one, CallFound | ThoughtFound) for one in found)
            text.is_plain = len(passed) == len(found) and not is_markup
        before = text.weaver.calls
        events = text.weaver.weave(passed)
        text.choice.calls += text.weaver.calls - before
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

    def _take_from_thoughts(self, thoughts: _TextPart) -> list[Event]:
        """The calls in a reasoning that is over. Its text has been told as it was."""
        found = [*thoughts.found, *thoughts.finder.finish("stop")]
        return self._take(
            thoughts, [one for one in found if not isinstance(one, TextFound | ThoughtFound)]
        )

    def _settle(self, text: _TextPart, reason: FinishReason) -> list[Event]:
        """The text is over: tell what was held, and end its part."""
        text.catch_up()
        events = self._take(text, text.finder.finish(reason))
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

    def _release(self, choice: _Choice, reason: FinishReason) -> list[Event]:
        """Settle the texts that are over and only waited for what comes next."""
        events: list[Event] = []
        for text in [text for text in choice.texts if text.ended is not None]:
            events += self._settle(text, reason)
        return events

    def _close(self, choice: _Choice) -> list[Event]:
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
