"""What an encoder notes of its stream for the store: the deltas that it made alike, and how the stream ends.

A stream is some thirty times the size of its texts. The store need not find that out by compressing it: the encoder has
filled the texts into one form, and the form and the texts are all there is to keep. These are hints: `cut` uses them
only if everything that was sent since the last `cut` was encoded here.

The frames that end a stream wait until the answer is stored. If it cannot be stored, a failure is encoded in their
place (`WrittenEnd`).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import Literal, final

from msgspec import Struct, structs

from dragoman.model.outcome import ErrorInfo

TerminalStatus = Literal["completed", "incomplete", "failed", "cancelled"]

# No JSON string has one.
_BETWEEN = b"\n"


class Terminal(Struct, frozen=True, gc=False):
    """The response object of a terminal event, and what it says.

    waiting: the ids of the calls whose results the client owes; None: they are to be read from the object.
    items: the ids of its items, as far as they have some.
    """

    id: str
    status: TerminalStatus
    body: bytes
    waiting: tuple[str, ...] | None = None
    items: tuple[str, ...] = ()


@final
class WrittenEnd(Struct, frozen=True, gc=False):
    """The frames that end a stream, as its encoder wrote them.

    fail: encodes a failure to be sent in their place. terminal: of a Responses stream.
    """

    frames: bytes
    fail: Callable[[ErrorInfo], bytes]
    terminal: Terminal | None = None


@final
class Form(Struct, frozen=True, gc=False, array_like=True):
    """How frames are written that differ in a text and a number alone: what stands before, between and behind them."""

    head: bytes
    middle: bytes
    tail: bytes

    def line(self) -> bytes:
        """A frame to be filled in."""
        parts = (self.head, self.middle, self.tail)
        return b"%b%%b%b%%d%b" % tuple([part.replace(b"%", b"%%") for part in parts])


def fill_in(line: bytes, texts: Sequence[bytes], number: int) -> bytes:
    """A frame for each text, numbered from `number` on."""
    holes = zip(texts, count(number), strict=False)
    return line * len(texts) % tuple(chain.from_iterable(holes))


@final
class Deltas(Struct, frozen=True, gc=False, array_like=True):
    """Frames of one form whose numbers follow one another from `number` on. `texts`: JSON strings, one on a line."""

    form: Form
    number: int
    texts: bytes

    @property
    def most(self) -> int:
        """At least as many bytes as the frames have."""
        count = self.texts.count(_BETWEEN) + 1
        around = sum(map(len, structs.astuple(self.form))) + len(str(self.number + count))
        return len(self.texts) + count * around

    def frames(self) -> bytes:
        """As they were written."""
        return fill_in(self.form.line(), self.texts.split(_BETWEEN), self.number)


Piece = bytes | Deltas


def weigh(pieces: Iterable[Piece]) -> int:
    """How many bytes there are to keep."""
    return sum([len(piece.texts if type(piece) is Deltas else piece) for piece in pieces])


def join_pieces(pieces: Iterable[Piece]) -> bytes:
    """All of it, as it was sent."""
    return b"".join([piece.frames() if type(piece) is Deltas else piece for piece in pieces])


class _Run(Struct):
    """Deltas that may go on. `start`, `end`: where their frames stand in what was written."""

    start: int
    end: int
    form: Form
    number: int
    texts: list[bytes]


class Journal:
    """Of one stream. `size`: how many bytes the encoder wrote since the last `cut`. `end`: once it has written it."""

    __slots__ = ("_runs", "end", "size")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self.size = 0
        self.end: WrittenEnd | None = None

    def note(self, form: Form, number: int, texts: bytes, size: int) -> None:
        """Frames of a form were written next, as so many bytes. `texts` as of `Deltas`."""
        start = self.size
        self.size = end = start + size
        runs = self._runs
        # What has a number was written in between if they do not follow one another.
        if runs and (last := runs[-1]).end == start and last.form is form:
            last.texts.append(texts)
            last.end = end
        else:
            runs.append(_Run(start, end, form, number, [texts]))

    def cut(self, sent: bytes) -> list[Piece] | None:
        """The pieces of what was sent since the last time, where its deltas are known; None: keep it as it is."""
        runs, size, self.size = self._runs, self.size, 0
        if runs:
            self._runs = []
        if size != len(sent) or not runs:
            return None
        pieces: list[Piece] = []
        place = 0
        for run in runs:
            if run.start > place:
                pieces.append(sent[place : run.start])
            pieces.append(Deltas(run.form, run.number, _BETWEEN.join(run.texts)))
            place = run.end
        if place < len(sent):
            pieces.append(sent[place:])
        return pieces
