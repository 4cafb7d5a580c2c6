"""Tool calls in the text of one choice, as events of an answer.

    scanner = TextScanner(tools)
    for piece in pieces:
        events += scanner.feed(piece)
    events += scanner.finish("stop")

Tells parts (`PartStarted`, `TextDelta`, `InputDelta`, `PartEnded` …), numbered from 0. How the choice ends is
for the caller to say, by `core.finish.settle_finish` and `scanner.calls`.
"""

from collections.abc import Iterable
from itertools import count

from dragoman.model.events import Event
from dragoman.model.outcome import FinishReason, Problem
from dragoman.textcalls.choosing import choose_patterns
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.preparing import openers_of
from dragoman.textcalls.registry import PatternRegistry
from dragoman.textcalls.weaving import CallIds, Weaver

__all__ = ("TextScanner",)


class TextScanner:
    """Scans one text while it streams.

    tools: those that were offered, in any dialect's shape. With none, everything is text; None: every name counts.
    formats: `auto`, a format's name, or several. model: the model's name, whose profile adds formats to `auto`.
    stream: the formats whose arguments are told as they come; those of the others when their call is complete.
    seed: makes the ids of the calls differ from those of other scanners.

    Raises:
        ConfigError: `formats` or `stream` names one that does not exist.
    """

    def __init__(
        self,
        tools: Iterable[object] | None,
        *,
        formats: str | Iterable[str] = "auto",
        model: str | None = None,
        stream: Iterable[str] = (),
        seed: str = "",
        registry: PatternRegistry | None = None,
    ) -> None:
        offers = Offers(tools)
        patterns = choose_patterns(formats, model, registry, stream=stream) if offers else ()
        self._finder = Finder(openers_of(patterns, offers), offers)
        numbers = count()
        self._weaver = Weaver(lambda: next(numbers), offers, CallIds(seed))
        self._is_finished = False

    @property
    def calls(self) -> int:
        """How many complete calls were told."""
        return self._weaver.calls

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was irregular; `frame` is the character where it stands, counted from 1."""
        return tuple(self._weaver.problems)

    @property
    def held(self) -> str:
        """The text that is not told yet."""
        return self._finder.held

    def feed(self, text: str) -> tuple[Event, ...]:
        """Take a piece of the text.

        Raises:
            LocalProtocolError: the text was finished before.
        """
        return tuple(self._weaver.weave(self._finder.feed(text)))

    def finish(self, reason: FinishReason = "stop") -> tuple[Event, ...]:
        """The text is over. Only a reason that means a whole answer lets its end stand for a closing tag."""
        if self._is_finished:
            return ()
        self._is_finished = True
        events = self._weaver.weave(self._finder.finish(reason))
        self._weaver.end_all(events)
        return tuple(events)
