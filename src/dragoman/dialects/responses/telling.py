"""What has been told of an answer so far: the events of the frame at hand, and the numbers of the parts.

Shared by `ledger` and `callbook`, which decide what to tell.
"""

from dragoman.core.ids import Minter
from dragoman.dialects.responses.call_track import CallTrack
from dragoman.dialects.responses.tracks import Found, ReasoningTrack, TextTrack
from dragoman.model.events import Event, PartStarted
from dragoman.model.parts import Part

__all__ = ("Telling",)


class Telling:
    """`out` collects events until the reader takes them. `live` finds the part of a regular delta by its item's id.

    is_body: the answer comes whole, so it has no deltas and announces nothing, and that is no problem.
    """

    def __init__(self, found: Found) -> None:
        self.out: list[Event] = []
        self.live: dict[str | None, TextTrack | CallTrack | ReasoningTrack] = {}
        self.found = found
        self.is_body = False
        self.seed = ""
        self._closing: TextTrack | None = None
        self._count = 0
        self._mint: Minter | None = None

    def start(self, header: Part) -> int:
        """Announce a part; its number. A text that the wire has closed ends first."""
        closing, self._closing = self._closing, None
        if closing is not None and not closing.ended:
            self.out += closing.end("completed", self.found)
        number = self._count
        self._count += 1
        self.out.append(PartStarted(number, header))
        return number

    def end_before_next(self, track: TextTrack) -> None:
        """The wire has closed this text; its item will end it, or the next part does."""
        self._closing = track

    def mint(self, prefix: str) -> str:
        if self._mint is None:
            self._mint = Minter(self.seed)
        return self._mint(prefix)

    def irregular(self, kind: str, message: str) -> None:
        """Report what only a stream can do wrong."""
        if not self.is_body:
            self.found.append((kind, message))
