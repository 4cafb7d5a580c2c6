"""What the writer of a stream tells whoever keeps it of what it wrote: the deltas that it made alike, and how it ended.

A stream is some thirty times what it says. Whoever keeps it need not find that out by compressing it: the writer has
filled the texts into one form, and the form and the texts are all there is to keep. No more than hints: `cut` only
takes them for what they are if everything that was told since the last time was written here.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Literal, final

from msgspec import Struct

__all__ = (
    "Deltas",
    "Journal",
    "Piece",
    "Terminal",
    "TerminalStatus",
    "fill_in",
    "form_of",
    "join_pieces",
    "weigh",
)

TerminalStatus = Literal["completed", "incomplete", "failed", "cancelled"]

# No JSON string has one.
_BETWEEN = b"\n"


class Terminal(Struct, frozen=True, gc=False):
    """The response object as it was told last, and what it says of itself.

    waiting: the ids of the calls whose results the client owes; None: what it says of them takes a closer look.
    items: the ids of its items, as far as they have some.
    """

    id: str
    status: TerminalStatus
    body: bytes
    waiting: tuple[str, ...] | None = None
    items: tuple[str, ...] = ()


@final
class Deltas(Struct, frozen=True, gc=False, array_like=True):
    """Frames that are written alike: `head`, a text, `middle`, a number that rises by one, `tail`.

    texts: JSON strings, one on a line.
    """

    head: bytes
    middle: bytes
    tail: bytes
    number: int
    texts: bytes

    @property
    def most(self) -> int:
        """At least as many bytes as its frames have."""
        around = len(self.head) + len(self.middle) + len(self.tail) + len(str(self.number)) + 1
        return len(self.texts) + (self.texts.count(_BETWEEN) + 1) * around

    def frames(self) -> bytes:
        """As they were written."""
        form = form_of(self.head, self.middle, self.tail)
        return fill_in(form, self.texts.split(_BETWEEN), self.number)


Piece = bytes | Deltas


def weigh(pieces: Iterable[Piece]) -> int:
    """How much there is to keep."""
    return sum([len(piece.texts if type(piece) is Deltas else piece) for piece in pieces])


def join_pieces(pieces: Iterable[Piece]) -> bytes:
    """All of it, as it was told."""
    return b"".join([piece.frames() if type(piece) is Deltas else piece for piece in pieces])


def form_of(head: bytes, middle: bytes, tail: bytes) -> bytes:
    """A frame to be filled in."""
    parts = (head, middle, tail)
    return b"%b%%b%b%%d%b" % tuple([part.replace(b"%", b"%%") for part in parts])


def fill_in(form: bytes, texts: Sequence[bytes], number: int) -> bytes:
    """A frame for each text, numbered from `number` on."""
    holes = zip(texts, count(number), strict=False)
    return form * len(texts) % tuple(chain.from_iterable(holes))


class Journal:
    """Of one stream. `size`: how many bytes were written since the last `cut`, counted by who writes them.

    terminal: what the end says of itself, if it was written and is easily told.
    """

    __slots__ = ("_alike", "size", "terminal")

    def __init__(self) -> None:
        self._alike: list[tuple[int, int, Deltas]] = []
        self.size = 0
        self.terminal: Terminal | None = None

    def note(self, deltas: Deltas, size: int) -> None:
        """These were written next, as so many bytes."""
        self._alike.append((self.size, size, deltas))
        self.size += size

    def cut(self, told: bytes) -> list[Piece] | None:
        """What was told since the last time, where the deltas that it is made of are known; None: keep it as it is."""
        alike, size, self.size = self._alike, self.size, 0
        if size != len(told):
            self.terminal = None
            if alike:
                self._alike = []
            return None
        if not alike:
            return None
        self._alike = []
        pieces: list[Piece] = []
        place = 0
        for start, length, deltas in alike:
            if start > place:
                pieces.append(told[place:start])
            pieces.append(deltas)
            place = start + length
        if place < len(told):
            pieces.append(told[place:])
        return pieces
