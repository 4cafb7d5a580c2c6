"""One block while it is read: a cursor, and the telling of what is found. The seam between a body and the finder.

A body reads by the cursor's methods and tells by

    confirm()                the opener was meant: from here on the block is this pattern's
    begin(name, call_id)     a call begins
    input(text)              a piece of its arguments; all pieces join to one JSON object
    end()                    the call is complete if the block is in order to its end
    settle_calls()           another call follows, so the calls before it are complete
    close_call()             the format itself closed the call: it is told at once
    repaired(message)        something was put right
    thought(text), say(text) words of the model to itself, or for the reader, that stood inside markup

What is told is kept as records with their places; the finder decides what becomes of them.
"""

from collections.abc import Generator
from typing import Literal, Never

from msgspec import Struct

from dragoman.textcalls.limits import Limits
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.tape import SPACE, Cursor, Malformed, Tape, Wait
from dragoman.textcalls.words import Words

__all__ = (
    "NO_WORDS",
    "Begun",
    "Block",
    "Ended",
    "Grown",
    "Record",
    "Repaired",
    "Settled",
    "Spoken",
)


class Begun(Struct, frozen=True, gc=False):
    name: str
    call_id: str
    at: int


class Grown(Struct, frozen=True, gc=False):
    text: str


class Ended(Struct, frozen=True, gc=False):
    call_id: str
    at: int
    is_closed: bool


class Settled(Struct, frozen=True, gc=False):
    """Whatever comes, the calls told so far are complete."""


class Repaired(Struct, frozen=True, gc=False):
    """Something was not as its format asks for, and was put right."""

    message: str
    at: int


class Spoken(Struct, frozen=True, gc=False):
    """Text out of markup: the markup around it is gone, so it settles everything up to `at`."""

    kind: Literal["text", "thought"]
    text: str
    at: int


Record = Begun | Grown | Ended | Settled | Repaired | Spoken
NO_WORDS = Words(())


class Block(Cursor):
    """What a body reads and tells."""

    __slots__ = (
        "closers",
        "is_confirmed",
        "limits",
        "offers",
        "opener",
        "records",
        "start",
        "stop",
        "streams",
    )

    def __init__(
        self, tape: Tape, start: int, *, offers: Offers, limits: Limits, streams: bool
    ) -> None:
        super().__init__(tape, start)
        self.start = start
        self.stop: int | None = None
        self.offers = offers
        self.limits = limits
        self.streams = streams
        self.opener = ""
        self.closers = NO_WORDS
        self.is_confirmed = False
        self.records: list[Record] = []

    def confirm(self) -> Generator[None, None, None]:
        """The opener was meant."""
        if self.is_confirmed:
            return
        if self.at - self.start > self.limits.confirm:
            self.malformed("nothing confirmed the opener in time")
        self.is_confirmed = True
        yield

    def begin(self, name: str, call_id: str = "", *, at: int | None = None) -> None:
        """A call begins; its markup stands from `at` on."""
        if not name or len(name) > self.limits.max_name:
            reason = f"expected a name of 1 to {self.limits.max_name} characters"
            self.malformed(reason, is_limit=bool(name))
        self.records.append(Begun(name, call_id, self.at if at is None else at))

    def input(self, text: str) -> None:
        if text:
            self.records.append(Grown(text))

    def end(self, call_id: str = "", *, at: int | None = None) -> None:
        """The call is complete if the rest of the block is in order. Its markup ends at `at`."""
        self.records.append(Ended(call_id, self.at if at is None else at, is_closed=False))

    def close_call(self, call_id: str = "") -> None:
        """The call is complete whatever comes."""
        self.records.append(Ended(call_id, self.at, is_closed=True))

    def settle_calls(self) -> None:
        """The calls so far are complete whatever comes: the block goes on with another."""
        self.records.append(Settled())

    def repaired(self, message: str) -> None:
        """Something before the cursor was put right; for the record."""
        self.records.append(Repaired(message, self.at))

    def say(self, text: str) -> None:
        self.records.append(Spoken("text", text, self.at))

    def thought(self, text: str) -> None:
        self.records.append(Spoken("thought", text, self.at))

    def malformed(self, reason: str, *, at: int | None = None, is_limit: bool = False) -> Never:
        """Give up: the block is text. `at` is where it went wrong; it must not depend on how the text was cut."""
        raise Malformed(reason, self.at if at is None else at, is_limit=is_limit)

    def expect(self, words: Words) -> Wait[str]:
        """One of the words at the cursor, passed over.

        Raises:
            Malformed: something else stands there.
        """
        found = yield from self.match(words)
        if not found:
            self.malformed(f"expected {' or '.join(words.words)}")
        return found

    def read(
        self, stops: Words, limit: int, *, forbid: str = "", eos_ok: bool = False
    ) -> Wait[tuple[str, str]]:
        """The text up to a stop, and the stop.

        Raises:
            Malformed: the text is longer than the limit, holds a forbidden character, or ends before a stop. The end
                is the stop (an empty one) where that is `eos_ok`.
        """
        pieces: list[str] = []

        def take(piece: str) -> None:
            for index, character in enumerate(piece):
                if character in forbid:
                    at = self.at - len(piece) + index
                    self.malformed(f"expected {' or '.join(stops.words)}, got {character!r}", at=at)
            pieces.append(piece)

        stop = yield from self.until(stops, take if forbid else pieces.append, limit)
        if not stop and not eos_ok:
            self.malformed("the text ended inside a block")
        return "".join(pieces), stop

    def closes_here(self) -> Wait[bool]:
        """Whether a closer of the block stands at the cursor. It is passed over, and the block is over."""
        if not (yield from self.match(self.closers)):
            return False
        self.stop = self.at
        return True

    def is_at_end(self) -> Wait[bool]:
        """Whether the text is over at the cursor."""
        return (yield from self.peek()) == ""

    def close(self, closers: Words, *, is_needed: bool, eos_ok: bool) -> Wait[None]:
        """The end of the block: a closer after white space. Where none is needed, the block ends before the space."""
        stop = self.at
        yield from self.skip(SPACE)
        if (yield from self.match(closers)):
            return
        if is_needed and not (eos_ok and self.tape.ended and self.at >= self.tape.end):
            self.malformed(f"expected {' or '.join(closers.words)}")
        self.stop = stop
