"""What a format says about its blocks (`TextPattern`, `Body`), and one block while it is read (`Block`).

A pattern declares how a block begins (`openers`), how its content is read (`body`) and how it ends (`closers`). Three bodies
cover nearly every format (`JsonBody`, `TaggedBody`, `PythonBody`). Any other implements `Body`: one generator that reads a
`Block` and reports the calls. Patterns may share an opener: each reads on until its body *confirms*. The first pattern in
order of registration that confirms wins, and nothing is reported before that.

A body reads with the methods of the cursor and reports with

    confirm()                the opener is real: the rest of the block belongs to this pattern; comes before any report
    begin(name, call_id)     a call begins
    input(text)              a piece of its arguments; all pieces join to one JSON object
    end()                    the call is complete if the rest of the block is well-formed
    settle_calls()           another call follows, so the calls before it are complete
    close_call()             the format itself closed the call, so the call is reported at once
    repaired(message)        something was corrected
    thought(text)            reasoning of the model inside markup

The collector turns the reports into findings.
"""

from collections.abc import Callable, Generator
from typing import Literal, Protocol

from msgspec import Struct

from dragoman.textcalls.collector import FindingCollector
from dragoman.textcalls.cursor import (
    DEFAULT_LIMITS,
    NO_WORDS,
    SPACE,
    Cursor,
    Limits,
    LiteralSet,
    Wait,
)

# The longest opener, closer or other literal of a format. Real ones have up to 34 characters. The number limits how much
# text can be held because it may still become a literal.
MAX_WORD = 64

# How many openers of one text may turn out to begin no call. Trying an opener costs some ten times as much as passing the
# same text. An answer about such formats has hundreds. After this many, the rest of the text is not searched.
MAX_FAILED = 10_000


class Block(Cursor):
    """The text that a body reads, and the methods by which it reports calls."""

    __slots__ = (
        "_collector",
        "_early_repairs",
        "closers",
        "is_confirmed",
        "offers",
        "opener",
        "start",
        "stop",
        "streams",
    )

    def __init__(
        self, collector: FindingCollector, start: int, limits: Limits, *, streams: bool
    ) -> None:
        super().__init__(collector.buffer, start, limits)
        self._collector = collector
        self.start = start
        self.stop: int | None = None
        self.offers = collector.offers
        self.streams = streams
        self.opener = ""
        self.closers = NO_WORDS
        self.is_confirmed = False
        self._early_repairs: list[tuple[str, int]] = []  # before the block was confirmed

    def confirm(self) -> Generator[None, None, None]:
        """Confirm that the opener begins a block of this pattern."""
        if self.is_confirmed:
            return
        if self.at - self.start > self.limits.confirm:
            self.malformed("nothing confirmed the opener in time")
        self.is_confirmed = True
        yield
        for message, at in self._early_repairs:
            self._collector.add_block_problem("repaired", message, at)

    def begin(self, name: str, call_id: str = "", *, at: int | None = None) -> None:
        """Begin a call whose markup begins at `at`.

        Raises:
            Malformed: the block is not confirmed, or the name or the number of calls exceeds its limit.
        """
        self._check_confirmed()
        if not name or len(name) > self.limits.max_name:
            reason = f"expected a name of 1 to {self.limits.max_name} characters"
            self.malformed(reason, is_limit=bool(name))
        self._collector.begin(name, call_id, self.at if at is None else at)

    def input(self, text: str) -> None:
        if text:
            self._collector.grow(text)

    def end(self, call_id: str = "", *, at: int | None = None) -> None:
        """End the call: it is complete if the rest of the block is well-formed. Its markup ends at `at`."""
        self._collector.end(call_id, self.at if at is None else at)

    def close_call(self, call_id: str = "") -> None:
        """End the call: it is complete, whatever follows."""
        self._collector.end(call_id, self.at)
        self._collector.flush()

    def settle_calls(self) -> None:
        """Complete the calls so far, whatever follows, because the block continues with another call."""
        self._collector.flush()

    def repaired(self, message: str) -> None:
        """Report that something before the cursor was corrected."""
        if self.is_confirmed:
            self._collector.add_block_problem("repaired", message, self.at)
        else:
            self._early_repairs.append((message, self.at))

    def thought(self, text: str) -> None:
        """Report reasoning inside markup. The markup before it is dropped."""
        self._check_confirmed()
        self._collector.add_thought(text, self.at)

    def _check_confirmed(self) -> None:
        if not self.is_confirmed:
            self.malformed("expected confirm() before anything is reported")

    def read_calls(
        self,
        opens: LiteralSet,
        read_call: Callable[["Block", str, int], Wait[None]],
        *,
        between: LiteralSet = NO_WORDS,
        is_opened: bool = False,
        many: bool = True,
    ) -> Wait[None]:
        """Read the calls of the block, each with `read_call(the block, its opener, where its markup begins)`.

        between: literals without meaning that may surround the calls. is_opened: the block's opener began the first call.
        many: several calls may follow each other; text that is not a call ends them.
        """
        is_first = True
        while True:
            start, opener = self.at, self.opener
            if not (is_first and is_opened):
                yield from self.skip(SPACE)
                while (yield from self.match(between)):
                    yield from self.skip(SPACE)
                opener = yield from self.match(opens)
                if not opener and is_first:
                    self.malformed(f"expected {' or '.join(opens.words)}")
                if not opener:
                    return
            yield from read_call(self, opener, self.start if is_first else start)
            is_first = False
            if not many or self.stop is not None:
                return

    def closes_here(self) -> Wait[bool]:
        """Return whether a closer of the block is at the cursor. If so, pass over it and end the block."""
        if not (yield from self.match(self.closers)):
            return False
        self.stop = self.at
        return True

    def is_at_end(self) -> Wait[bool]:
        """Return whether the text ends at the cursor."""
        return (yield from self.peek()) == ""

    def close(self, closers: LiteralSet, *, is_needed: bool, eos_ok: bool) -> Wait[None]:
        """Read the end of the block: a closer after white space. If none is needed, the block ends before the space."""
        stop = self.at
        yield from self.skip(SPACE)
        if (yield from self.match(closers)):
            return
        if is_needed and not (eos_ok and self.buffer.ended and self.at >= self.buffer.end):
            self.malformed(f"expected {' or '.join(closers.words)}")
        self.stop = stop


Context = Literal["text", "call"]
"""The meaning of an opener in a code fence or in reasoning: text, or the beginning of a call."""

Place = Literal["anywhere", "word", "line", "start"]
"""Where an opener may be: anywhere, not after a letter or digit, at the beginning of a line, before any other text."""


class Body(Protocol):
    """Reads one block, from after its opener to after its closer.

    It must call `block.confirm()` once it is sure that this is its format, report calls with `block.begin`, `block.input`
    and `block.end`, and fail with `block.malformed(reason)`. It reads only through the block's methods, so that it cannot
    see where the text was cut.
    """

    def parse(self, block: Block) -> Wait[None]: ...


class TextPattern(Struct, frozen=True, kw_only=True):
    """One format for tool calls in text.

    name: the name of the format in `formats` and in profiles.
    openers: literals, any of which begins a block. `{name}` in an opener is replaced by each offered tool (`<{name}>`).
    body: reads the text after the opener.
    closers: literals that end the block. The rest of a malformed block up to a closer is text, so that a call that a
        broken argument quotes is not taken for a call.
    needs_closer: a block without a closer is malformed. Otherwise the end of the body ends the block.
    eos_ok: the end of an answer that stopped by itself may replace the closer.
    is_sentinel: the opener cannot be mistaken for prose. A pattern without a sentinel is used only if its name or a
        model's profile asks for it, and only for tools that are offered.
    in_fence, in_think: the meaning of an opener in a code fence, in inline code or in reasoning.
    place: where an opener may be.
    is_mark: the block is a mark around text and no call. Once something that began like a call stayed text, marks stay
        too, because they may belong to it.
    has_stray_word: a model that leaks this block writes a word alone on the line before it, which is dropped with the block.
    stream_args: report arguments while they stream. By default a call is reported when it is complete.
    """

    name: str
    openers: tuple[str, ...]
    body: Body
    closers: tuple[str, ...] = ()
    needs_closer: bool = False
    eos_ok: bool = True
    is_sentinel: bool = True
    in_fence: Context = "text"
    in_think: Context = "text"
    place: Place = "anywhere"
    is_mark: bool = False
    has_stray_word: bool = False
    stream_args: bool = False
    limits: Limits = DEFAULT_LIMITS
