"""The stage that finds calls in the text of a whole answer, made when there is something to find, which is seldom.

Whether anything begins in a text is known without one: that is prepared once for a list of tools and a model.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from dragoman.core.memo import made_of
from dragoman.dialects.staging import Debt
from dragoman.model.events import Event
from dragoman.model.outcome import Problem
from dragoman.model.request import Tool
from dragoman.textcalls.choosing import PATTERNS
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.preparing import Looking, look_for, offers_of, openers_of
from dragoman.textcalls.stage import StageSettings, TextCallStage

__all__ = ("LateStage", "Sought", "sought_in")

# Clients choose the names of models: longer ones are not kept.
_LONGEST_KNOWN = 256


class Sought(Struct, frozen=True, gc=False):
    """What is looked for in the answers of a model that was offered some tools."""

    offers: Offers
    looking: Looking
    begins_in: Callable[[str], object]
    begins: Mapping[str, bool]
    is_thinking: bool


def sought_in(tools: tuple[Tool, ...], formats: str | tuple[str, ...], model: str) -> Sought | None:
    """What is looked for; None where no tool may be called, so that text is text. Remembered with the tools.

    Raises:
        ConfigError: `formats` names one that does not exist.
    """
    if len(model) > _LONGEST_KNOWN:
        return _make(tools, formats, model)
    key = (_make, formats, model, PATTERNS.changes)
    return made_of(tools, key, lambda: _make(tools, formats, model))


def _make(tools: tuple[Tool, ...], formats: str | tuple[str, ...], model: str) -> Sought | None:
    offers = offers_of(tools)
    if not offers:
        return None
    looking = look_for(formats, model)
    openers = openers_of(looking.patterns, offers)
    return Sought(offers, looking, openers.begins_in, openers.begins, bool(looking.reasoning))


class LateStage:
    """As a `TextCallStage`, which it makes when it is first given something."""

    __slots__ = (
        *("_seed", "_sought", "_stage"),
        *("begins_in", "has_changed", "is_thinking", "problems"),
    )

    def __init__(self, sought: Sought, seed: str) -> None:
        self.begins_in = sought.begins_in
        self.is_thinking = sought.is_thinking
        self.has_changed = False
        self._sought = sought
        self._seed = seed
        self._stage: TextCallStage | None = None
        self.problems: Sequence[Problem] = ()

    @property
    def is_reading(self) -> bool:
        return self._stage is not None and self._stage.is_reading

    @property
    def begins(self) -> Mapping[str, bool]:
        return self._sought.begins

    def feed(self, event: Event) -> tuple[Event, ...]:
        stage = self._made()
        told = stage.feed(event)
        self.has_changed = stage.has_changed
        return told

    def lane(self, part: int) -> Callable[[str], None] | None:
        return self._made().lane(part)

    def debt(self, part: int) -> Debt | None:
        return self._made().debt(part)

    def owed(self, part: int) -> int:
        return self._made().owed(part)

    def is_paid(self, debt: Debt) -> bool:
        return self._made().is_paid(debt)

    def number_of(self, part: int) -> int | None:
        return self._made().number_of(part)

    def _made(self) -> TextCallStage:
        if self._stage is None:
            sought = self._sought
            self._stage = TextCallStage(
                StageSettings(
                    offers=sought.offers,
                    patterns=sought.looking.patterns,
                    reasoning=sought.looking.reasoning,
                    seed=self._seed,
                )
            )
            self.problems = self._stage.problems
        return self._stage
