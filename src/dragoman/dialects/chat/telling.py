"""Where the pieces of one answer put what they have to say: the events of the frame at hand, in order.

Numbers parts, mints ids, collects problems. Knows no wire.
"""

from dragoman._json import Raw
from dragoman.core.ids import Minter
from dragoman.dialects.base import DecodeContext
from dragoman.model.events import Event, Noticed, PartEnded, PartStarted
from dragoman.model.parts import Part

__all__ = ("Telling",)


class Telling:
    """Shared by everything that reads one stream; its reader takes the events after each frame."""

    def __init__(self, context: DecodeContext, found: list[tuple[str, str]]) -> None:
        self.context = context
        self.events: list[Event] = []
        self.response_id = ""
        self._found = found
        self._parts = 0
        self._minter: Minter | None = None

    def start(self, header: Part, choice: int) -> int:
        """Begin a part; its number."""
        number = self._parts
        self._parts += 1
        self.events.append(PartStarted(number, header, choice))
        return number

    def tell_whole(self, part: Part, choice: int) -> None:
        """A part that does not stream."""
        self.events.append(PartEnded(self.start(part, choice), part))

    def notice(self, level: str, raw: Raw, choice: int = 0) -> None:
        """Fields without a home, of a chunk, a choice or a delta (`level`)."""
        self.events.append(Noticed("fields", "chat", level, raw, None, choice))

    def odd(self, kind: str, message: str) -> None:
        self._found.append((kind, message))

    def mint_call_id(self) -> str:
        if self._minter is None:
            self._minter = Minter(self.context.seed or self.response_id)
        return self._minter("call_")

    def take(self) -> tuple[Event, ...]:
        events = tuple(self.events)
        self.events.clear()
        return events
