"""Finds tool calls in a text while it streams. The machine under `TextScanner`; no events of an answer here.

    TEXT --opener--> CONFIRMING --a body confirms--> READING --its body ends--> TEXT
      ^                  |                              |
      |<--all fail: text-'                              '--malformed: text--> SKIPPING --closer--> TEXT

TEXT: one search for all openers; only a suffix that may still become one is held. CONFIRMING: every pattern that has the
opener reads on, in order of rank, within a bound; if none confirms, the opener was text and the search goes on one
character later. READING: one body consumes its block, which is kept until it is settled; then it is markup and gone, or
text and told as such. SKIPPING: what is left of a malformed block passes as text up to its closer, because a broken
argument may quote a call.

No decision depends on where the text was cut, and apart from the bounded confirmation nothing is read twice.
"""

from collections.abc import Iterable
from enum import Enum, auto

from dragoman.errors import LocalProtocolError
from dragoman.model.outcome import FinishReason
from dragoman.textcalls.block import NO_WORDS, Block
from dragoman.textcalls.found import Found, TextFound, Trouble
from dragoman.textcalls.limits import MAX_FAILED, MAX_WORD
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers, Prepared
from dragoman.textcalls.spool import Spool
from dragoman.textcalls.tape import Malformed, Wait
from dragoman.textcalls.telling import Telling

__all__ = ("Finder",)

# Endings by which a text is known to be whole, so that its end may stand for a closer.
WHOLE: frozenset[FinishReason] = frozenset({"stop", "tool_calls", "stop_sequence"})


# Pieces of plain text that may pass before they are accounted for; each is kept so long.
MAX_LATE = 64


class _State(Enum):
    TEXT = auto()
    CONFIRMING = auto()
    READING = auto()
    SKIPPING = auto()
    OVER = auto()


class _Reading:
    """One pattern at work on one opener."""

    __slots__ = ("block", "pattern", "prepared", "steps")

    def __init__(self, prepared: Prepared, block: Block) -> None:
        self.pattern = prepared.pattern
        self.prepared = prepared
        self.block = block
        self.steps = self._read()

    def _read(self) -> Wait[None]:
        block, pattern = self.block, self.pattern
        block.closers = self.prepared.closers
        block.opener = yield from block.expect(self.prepared.openers)
        yield from pattern.body.parse(block)
        yield from block.confirm()
        if pattern.closers and block.stop is None:
            needs, eos_ok = pattern.needs_closer, pattern.eos_ok
            yield from block.close(self.prepared.closers, is_needed=needs, eos_ok=eos_ok)

    def advance(self) -> bool:
        """Read as far as the text goes. Whether the block is over.

        Raises:
            Malformed: it is no block of this pattern.
        """
        return next(self.steps, self) is self


def _excuse(reading: _Reading, error: Malformed) -> str:
    """What to say of a candidate that a limit ended. Beyond the bound of confirmation it is prose, and nothing is said."""
    block = reading.block
    if not error.is_limit or error.at - block.start > block.limits.confirm:
        return ""
    return f"{reading.pattern.name}: {error.reason}"


class Finder:
    """The calls of one text. `strips`: take calls out of the text without telling them."""

    def __init__(self, openers: Openers, offers: Offers, *, strips: bool = False) -> None:
        self._offers = offers
        self._openers = openers
        self._spool = Spool()
        self._telling = Telling(self._spool, offers, strips=strips)
        self._state = _State.TEXT
        self._at = 0  # where the search for openers stands
        self._candidates: list[_Reading] = []
        self._reading: _Reading | None = None
        self._excuse = ""  # the limit that a candidate passed before it could confirm
        self._failed = 0  # openers that began nothing
        self._skip_to = NO_WORDS
        self._skip_tail = ""
        self._stopped = False
        self._is_quiet = True  # nothing is held, and plain text may pass unseen
        self._late: list[str] = []  # text that passed so, and has yet to be accounted for
        self._begins_in = openers.begins_in

    @property
    def examined(self) -> int:
        """How many characters were looked at so far."""
        self._account()
        return self._spool.tape.examined

    @property
    def held(self) -> str:
        """The text that was fed and not yet told: the beginning of what may become a call, or white space behind one."""
        self._account()
        return self._telling.held_gap + self._spool.text(self._spool.tape.end)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is held that the end of the text would decide."""
        self._account()
        return self._state is not _State.TEXT or self._at < self._spool.tape.end

    @property
    def is_confirmed(self) -> bool:
        """Whether the held text is a block that its format has confirmed."""
        return self._state is _State.READING

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is held. Then a piece of text in which nothing begins may be told without asking here."""
        return self._is_quiet

    def catch_up(self, texts: Iterable[str]) -> None:
        """Take pieces of text that were told without asking, because nothing was held and nothing begins in them."""
        self._late.extend(texts)
        self._account()

    def feed(self, text: str) -> list[Found]:
        """Take a piece of the text.

        Raises:
            LocalProtocolError: the text was finished before.
        """
        if self._state is _State.OVER:
            raise LocalProtocolError("expected no text after the end of the text")
        if not text:
            return []
        if self._is_quiet and self._begins_in(text) is None:
            self._late.append(text)
            if len(self._late) > MAX_LATE:
                self._account()
            return [TextFound(text)]
        self._account()
        keep = self._at if self._reading is None else self._reading.block.at
        self._spool.feed(text, keep)
        self._run()
        self._rest()
        return self._drain()

    def stop(self) -> list[Found]:
        """Look no further: what is held and everything to come is text."""
        if self._state is not _State.OVER and not self._stopped:
            self._abandon("scanning was stopped")
            self._stopped = True
            self._rest()
        return self._drain()

    def finish(self, reason: FinishReason = "stop") -> list[Found]:
        """The text is over, and why. Telling it again changes nothing."""
        if self._state is _State.OVER:
            return []
        self._account()
        self._is_quiet = False
        if reason not in WHOLE:
            self._abandon("the answer was cut off")
        self._spool.tape.ended = True
        self._run()
        self._telling.end_gap()
        self._state = _State.OVER
        return self._drain()

    def _drain(self) -> list[Found]:
        out, self._telling.out = self._telling.out, []
        return out

    def _account(self) -> None:
        """Catch up with the text that passed unseen."""
        if self._late:
            text = "".join(self._late)
            self._late.clear()
            self._spool.feed(text, self._at)
            self._spool.tape.examined += len(text)
            self._at = self._spool.tape.end
            self._spool.settle(self._at)
            self._telling.around.pass_text(text)

    def _rest(self) -> None:
        """Note whether plain text may pass unseen."""
        is_idle = self._state is _State.TEXT and self._at == self._spool.tape.end
        self._is_quiet = is_idle and not self._telling.has_gap

    def _abandon(self, reason: str) -> None:
        """Whatever is open is text."""
        self._account()
        end = self._spool.tape.end
        if self._reading is not None:
            self._telling.fail("truncated", reason, end)
        elif self._at < end:
            self._pass(end)
        self._candidates = []
        self._reading = None
        self._at = end
        self._state = _State.TEXT

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            match self._state:
                case _State.TEXT:
                    goes_on = self._search()
                case _State.CONFIRMING:
                    goes_on = self._confirm()
                case _State.READING:
                    goes_on = self._read()
                case _State.SKIPPING:
                    goes_on = self._skip()
                case _State.OVER:
                    goes_on = False

    def _search(self) -> bool:
        """Pass text up to the next opener. Whether there is one."""
        tape, openers = self._spool.tape, self._openers
        while not self._stopped:
            data, index = tape.data, self._at - tape.base
            found = openers.find(data, index)
            if found is None:
                tape.examined += len(data) - index
                held = len(data) if tape.ended else openers.held_from(data, index)
                self._pass(tape.base + held)
                return False
            place, word = found
            tape.examined += place - index + len(word)
            held = place if tape.ended else min(place, openers.held_from(data, index))
            self._pass(tape.base + held)
            if held < place:
                return False
            if word[0] in "`~" and not tape.ended and openers.may_grow(data, place):
                return False
            if self._consider(word):
                return True
        self._pass(tape.end)
        return False

    def _consider(self, word: str) -> bool:
        """Whether what stands at the search's place may begin a block. If not, it is passed."""
        tape, around = self._spool.tape, self._telling.around
        index = self._at - tape.base
        around.settle_before(word)
        found = self._openers.candidates(word, tape.data, index, around, ended=tape.ended)
        if found:
            self._candidates = [_Reading(prepared, self._block(prepared)) for prepared in found]
            self._state = _State.CONFIRMING
            return True
        self._pass_token(word)
        return False

    def _pass_token(self, word: str) -> None:
        """A run or a word about thinking is noted; of an opener that does not count one character is passed."""
        telling = self._telling
        if word[0] in "`~" and not word.strip(word[0]):
            telling.around.pass_run(word)
        elif self._openers.is_about_thinking(word):
            telling.around.pass_word(word)
        else:
            self._pass(self._at + 1)
            return
        telling.say(word)
        self._at += len(word)
        self._spool.settle(self._at)

    def _block(self, prepared: Prepared) -> Block:
        pattern = prepared.pattern
        return Block(
            self._spool.tape,
            self._at,
            offers=self._offers,
            limits=pattern.limits,
            streams=pattern.stream_args,
        )

    def _pass(self, to: int) -> None:
        """Everything up to `to` is text."""
        if to > self._at:
            text = self._spool.tape.slice(self._at, to)
            self._telling.around.pass_text(text)
            self._telling.say(text)
            self._at = to
            self._spool.settle(to)

    def _confirm(self) -> bool:
        """Let the candidates read on until the first in rank that is alive confirms. Whether anything was decided."""
        while self._candidates:
            reading = self._candidates[0]
            block = reading.block
            try:
                if not block.is_confirmed:
                    is_over = reading.advance()
                    if not block.is_confirmed and not is_over:
                        size = self._spool.tape.end - block.start
                        if size <= block.limits.confirm + MAX_WORD:
                            return False
                        block.malformed("nothing confirmed the opener in time")
            except Malformed as error:
                self._candidates.pop(0)
                self._excuse = self._excuse or _excuse(reading, error)
                continue
            self._excuse = ""
            self._choose(reading)
            return True
        self._state = _State.TEXT
        if self._excuse:
            self._telling.note("limit", self._excuse, self._at)
            self._excuse = ""
        self._note_failed()
        tape = self._spool.tape
        self._pass_token(self._openers.token_at(tape.data, self._at - tape.base))
        return True

    def _note_failed(self) -> None:
        self._failed += 1
        if self._failed > MAX_FAILED:
            reason = f"expected at most {MAX_FAILED} openers that begin no call; the rest is text"
            self._telling.note("limit", reason, self._at)
            self._stopped = True

    def _choose(self, reading: _Reading) -> None:
        telling = self._telling
        telling.around.settle_before("")
        telling.around.is_in_word = False
        telling.start(reading.pattern.name, streams=reading.pattern.stream_args)
        self._candidates = []
        self._reading = reading
        self._state = _State.READING

    def _read(self) -> bool:
        """Let the body read on. Whether the block is over."""
        reading = self._reading
        if reading is None:
            raise LocalProtocolError("expected a block that is being read")
        is_over, error = False, None
        try:
            is_over = reading.advance()
        except Malformed as found:
            error = found
        try:
            # What was told before it went wrong stands; a limit may have been passed before that.
            self._telling.absorb(reading.block)
            self._telling.bound(
                reading.block.at if error is None else error.at, reading.block.limits
            )
        except Malformed as found:
            error = found
        if error is not None:
            self._fail(reading, error)
        elif is_over:
            self._succeed(reading.block)
        return is_over or error is not None

    def _succeed(self, block: Block) -> None:
        at = block.at if block.stop is None else block.stop
        self._telling.succeed(at)
        self._resume(at)
        self._state = _State.TEXT

    def _fail(self, reading: _Reading, error: Malformed) -> None:
        tape = self._spool.tape
        is_end = tape.ended and error.at >= tape.end
        kind: Trouble = "limit" if error.is_limit else "truncated" if is_end else "malformed"
        at = max(error.at, self._spool.settled)
        self._note_failed()
        self._telling.fail(kind, error.reason, at)
        self._resume(at)
        self._skip_to, self._skip_tail = reading.prepared.closers, ""
        self._state = _State.SKIPPING if reading.prepared.closers.words else _State.TEXT

    def _resume(self, at: int) -> None:
        self._reading = None
        self._at = at

    def _skip(self) -> bool:
        """Pass text up to and with a closer. Whether one came."""
        tape, closers, tail = self._spool.tape, self._skip_to, self._skip_tail
        index = self._at - tape.base
        # A closer may have begun in what was passed before.
        seam = tail + tape.data[index : index + closers.reach]
        found = closers.find(seam, 0) if tail else None
        if found is not None:
            end = self._at - len(tail) + found[0] + len(found[1])
        else:
            found = closers.find(tape.data, index)
            end = tape.end if found is None else tape.base + found[0] + len(found[1])
        tape.examined += end - self._at + len(tail)
        if found is None:
            self._skip_tail = (tail + tape.data[index:])[-closers.reach :]
            self._pass(tape.end)
            return False
        self._pass(end)
        self._state = _State.TEXT
        return True
