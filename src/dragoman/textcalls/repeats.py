"""Structured calls that say again what the model has written as text.

Some servers leave the markup in the text and parse it too: the same call comes twice in one choice. It was told when the
text had it, so a structured call that follows one of the text waits until it is whole; if it has the name and arguments
of a written one it is not told again, otherwise all of it is told then. Each written call answers for one repetition.
"""

from typing import cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.errors import MalformedJson
from dragoman.model.events import Event
from dragoman.model.parts import Call

__all__ = ("Repeats",)


class _Doubtful(Struct):
    """A call that may be a repetition, with all that was said of it."""

    written: list[Call]
    events: list[Event]


class Repeats:
    """The calls of one answer that may have been told. `is_idle`: none waits."""

    __slots__ = ("_doubtful", "is_idle")

    def __init__(self) -> None:
        self.is_idle = True
        self._doubtful: dict[int, _Doubtful] = {}

    def __contains__(self, part: object) -> bool:
        return part in self._doubtful

    def doubt(self, part: int, written: list[Call], start: Event) -> None:
        """A structured call begins where there are written ones."""
        self._doubtful[part] = _Doubtful(written, [start])
        self.is_idle = False

    def keep(self, part: int | None, event: Event) -> None:
        """What is said of a call that waits."""
        doubtful = None if part is None else self._doubtful.get(part)
        if doubtful is not None:
            doubtful.events.append(event)

    def settle(self, part: int, call: Call) -> list[Event] | None:
        """The call is whole: what was said of it, or None if it was told before."""
        doubtful = self._doubtful.pop(part)
        self.is_idle = not self._doubtful
        written = doubtful.written
        if call.status == "completed":
            for number, other in enumerate(written):
                if _is_same(call, other):
                    del written[number]
                    return None
        return doubtful.events


def _is_same(call: Call, other: Call) -> bool:
    """By name and arguments, which are compared as values: servers write them anew."""
    if (call.name, call.namespace) != (other.name, other.namespace):
        return False
    if call.input == other.input:
        return True
    try:
        value = cast("object", loads(call.input or "{}"))
        return value == cast("object", loads(other.input or "{}"))
    except (MalformedJson, RecursionError):
        return False
