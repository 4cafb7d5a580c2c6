"""What a format says about its blocks (`TextPattern`, `Body`), and one block while it is read (`Block`).

A pattern says how a block begins (`openers`), what stands in it (`body`) and how it ends (`closers`). Three bodies cover
nearly every format (`JsonBody`, `TaggedBody`, `PythonBody`). Anything else implements `Body`: one generator that reads a
`Block` and reports the calls. Patterns may share an opener: each reads on until its body *confirms*. The first one in
order of registration that confirms wins, and nothing is reported before that.

A body reads with the methods of the cursor and reports with

    confirm()                the opener was meant: from here on the block is this pattern's
    begin(name, call_id)     a call begins
    input(text)              a piece of its arguments; all pieces join to one JSON object
    end()                    the call is complete if the block is in order to its end
    settle_calls()           another call follows, so the calls before it are complete
    close_call()             the format itself closed the call, so it is reported at once
    repaired(message)        something was corrected
    thought(text), say(text) text inside markup: reasoning of the model, or text for the reader

The block keeps the reports as records with their positions. The finder decides what becomes of them.
"""

from collections.abc import Callable, Generator
from typing import Literal, Never, Protocol

from msgspec import Struct

from dragoman.textcalls.cursor import SPACE, Cursor, Malformed, TextBuffer, Wait, Words
from dragoman.textcalls.offers import Offers

# The longest opener, closer or other literal of a format. Real ones have up to 34 characters. The number limits how much
# of a text can be held because it may still become one.
MAX_WORD = 64

# Openers of one text that turned out to begin no call. Trying one costs some ten times as much as passing the same text.
# An answer that is all about such formats has hundreds. After this many, the rest of the text is not searched.
MAX_FAILED = 10_000


class Limits(Struct, frozen=True, kw_only=True):
    """max_block: characters of one call's markup; a model that writes a file into an argument needs hundreds of
    thousands. max_depth: nesting of values, far from Python's recursion limit. max_calls: calls of one text; agents
    send tens. max_name: OpenAI takes 64, Anthropic 128. max_key: one parameter's name. confirm: characters after
    an opener within which its format must confirm it, so that prose about `<tool_call>` is not held for long.

    Every limit has the same outcome: the block is text, and a problem says why.
    """

    max_block: int = 4 * 1024 * 1024
    max_depth: int = 100
    max_calls: int = 128
    max_name: int = 128
    max_key: int = 256
    confirm: int = 256


DEFAULT_LIMITS = Limits()


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
    """The calls so far are complete, whatever follows."""


class Repaired(Struct, frozen=True, gc=False):
    """Something did not follow the format and was corrected."""

    message: str
    at: int


class TextInMarkup(Struct, frozen=True, gc=False):
    """Text from inside markup. The markup around it is dropped, so everything up to `at` is settled."""

    kind: Literal["text", "thought"]
    text: str
    at: int


Record = Begun | Grown | Ended | Settled | Repaired | TextInMarkup
NO_WORDS = Words(())


class Block(Cursor):
    """What a body reads, and where it reports calls."""

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
        self, buffer: TextBuffer, start: int, *, offers: Offers, limits: Limits, streams: bool
    ) -> None:
        super().__init__(buffer, start)
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
        """A call begins; its markup begins at `at`."""
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
        """The call is complete, whatever follows."""
        self.records.append(Ended(call_id, self.at, is_closed=True))

    def settle_calls(self) -> None:
        """The calls so far are complete, whatever follows: the block goes on with another call."""
        self.records.append(Settled())

    def repaired(self, message: str) -> None:
        """Something before the cursor was corrected."""
        self.records.append(Repaired(message, self.at))

    def say(self, text: str) -> None:
        self.records.append(TextInMarkup("text", text, self.at))

    def thought(self, text: str) -> None:
        self.records.append(TextInMarkup("thought", text, self.at))

    def malformed(self, reason: str, *, at: int | None = None, is_limit: bool = False) -> Never:
        """Give up: the block is text. `at` is where it went wrong, and must not depend on how the text was cut."""
        raise Malformed(reason, self.at if at is None else at, is_limit=is_limit)

    def check_depth(self, depth: int) -> None:
        """Raises:
        Malformed: values are nested deeper than the limit.
        """
        if depth > self.limits.max_depth:
            self.malformed(f"expected at most {self.limits.max_depth} levels", is_limit=True)

    def expect(self, words: Words) -> Wait[str]:
        """Pass over one of the words at the cursor and return it.

        Raises:
            Malformed: none of them is there.
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
            Malformed: the text is longer than the limit, contains a forbidden character, or ends before a stop. With
                `eos_ok` the end of the text is an empty stop.
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

    def read_items(
        self,
        end: str,
        what: str,
        read_item: Callable[[], Wait[None]],
        take: Callable[[str], None],
        json: str = "[]",
    ) -> Wait[None]:
        """Read items with commas between them, up to and with the character `end`; a comma may stand after the last.

        take: gets the brackets `json` and the commas, while `read_item` gives it the items.
        """
        take(json[0])
        comma = ""
        while (yield from self.skip(SPACE)) != end:
            take(comma)
            comma = ","
            yield from read_item()
            if (yield from self.skip(SPACE)) == ",":
                self.at += 1
            elif (yield from self.peek()) != end:
                self.malformed(f"expected a comma or the end of {what}")
        self.at += 1
        take(json[1])

    def read_calls(
        self,
        opens: Words,
        read_call: Callable[[str, int], Wait[None]],
        *,
        between: Words = NO_WORDS,
        is_opened: bool = False,
        many: bool = True,
    ) -> Wait[None]:
        """Read the calls of the block, each with `read_call(what opened it, where its markup begins)`.

        between: what may stand around them and means nothing. is_opened: the block's opener began the first call.
        many: several may follow each other; what is no call ends them.
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
            yield from read_call(opener, self.start if is_first else start)
            is_first = False
            if not many or self.stop is not None:
                return

    def closes_here(self) -> Wait[bool]:
        """Whether a closer of the block is at the cursor. If so, it is passed over and the block is over."""
        if not (yield from self.match(self.closers)):
            return False
        self.stop = self.at
        return True

    def is_at_end(self) -> Wait[bool]:
        """Whether the text is over at the cursor."""
        return (yield from self.peek()) == ""

    def close(self, closers: Words, *, is_needed: bool, eos_ok: bool) -> Wait[None]:
        """Read the end of the block: a closer after white space. If none is needed, the block ends before the space."""
        stop = self.at
        yield from self.skip(SPACE)
        if (yield from self.match(closers)):
            return
        if is_needed and not (eos_ok and self.buffer.ended and self.at >= self.buffer.end):
            self.malformed(f"expected {' or '.join(closers.words)}")
        self.stop = stop


Context = Literal["text", "call"]
"""What an opener in a code fence or in reasoning is: text, or the beginning of a call."""

Place = Literal["anywhere", "word", "line", "start"]
"""Where an opener may be: anywhere, not after a letter or digit, at the beginning of a line, before any other text."""


class Body(Protocol):
    """Reads one block, from after its opener to after its closer.

    It must call `block.confirm()` once it is sure that this is its format, report calls with `block.begin`, `block.input`
    and `block.end`, and give up with `block.malformed(reason)`. It reads only through the block's methods, so that it
    cannot see where the text was cut.
    """

    def parse(self, block: Block) -> Wait[None]: ...


class TextPattern(Struct, frozen=True, kw_only=True):
    """One format for tool calls in text.

    name: the name of the format in `formats` and in profiles.
    openers: literals, any of which begins a block. `{name}` in an opener is replaced by each offered tool (`<{name}>`).
    body: reads what follows the opener.
    closers: literals that end the block. The rest of a malformed block up to a closer is text, so that a call that a
        broken argument quotes is not taken for a call.
    needs_closer: a block without a closer is malformed. Otherwise the end of its body ends it.
    eos_ok: the end of an answer that stopped by itself may stand for the closer.
    is_sentinel: the opener cannot be mistaken for prose. Other patterns are used only if asked for by name or by a
        model's profile, and only for tools that are offered.
    in_fence, in_think: what an opener means in a code fence, in inline code or in reasoning.
    place: where an opener may be.
    stream_args: report arguments while they come. By default a call is reported when it is complete.
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
    stream_args: bool = False
    limits: Limits = DEFAULT_LIMITS
