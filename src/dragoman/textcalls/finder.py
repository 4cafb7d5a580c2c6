"""Finds tool calls in a text while it streams. `TextScanner` builds on it; it does not know the events of an answer.

    TEXT --opener--> CONFIRMING --a body confirms--> READING --its body ends--> TEXT
      ^                  |                              |
      |<--all fail: text-'                              '--malformed: text--> SKIPPING --closer--> TEXT

TEXT: one search for all openers; only a suffix that may still become an opener is held. CONFIRMING: every pattern with
this opener reads on, in order of rank and within a limit; if none confirms, the opener was text and the search continues
one character later. READING: one body reads its block, whose text is kept until the block ends; a valid block is markup
and is dropped, any other is reported as text. SKIPPING: the rest of a malformed block passes as text up to its closer,
because a broken argument may quote a call.

No decision depends on where the text was cut, and only the bounded confirmation is read twice.
"""

from enum import Enum, auto

from dragoman.errors import LocalProtocolError
from dragoman.model.outcome import FinishReason
from dragoman.textcalls.block import MAX_FAILED, MAX_WORD, Block
from dragoman.textcalls.collector import FindingCollector, HeldText
from dragoman.textcalls.cursor import NO_WORDS, Malformed, Wait
from dragoman.textcalls.findings import Found, ProblemKind, TextFound
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import REASONING_TAGS, Openers, PreparedPattern

# Finish reasons of a complete text, whose end may replace a closer.
WHOLE: frozenset[FinishReason] = frozenset({"stop", "tool_calls", "stop_sequence"})


class _State(Enum):
    TEXT = auto()
    CONFIRMING = auto()
    READING = auto()
    SKIPPING = auto()
    OVER = auto()


class _Reading:
    """One pattern that reads from one opener."""

    __slots__ = ("block", "pattern", "prepared", "steps")

    def __init__(self, prepared: PreparedPattern, collector: FindingCollector, start: int) -> None:
        pattern = self.pattern = prepared.pattern
        self.prepared = prepared
        self.block = Block(collector, start, pattern.limits, streams=pattern.stream_args)
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
        """Read as far as the text goes; return whether the block is over.

        Raises:
            Malformed: the text is not a block of this pattern.
        """
        return next(self.steps, self) is self


def _limit_problem(reading: _Reading, error: Malformed) -> str:
    """Return the message about a candidate that exceeded a limit; empty beyond the limit of confirmation: that is prose."""
    block = reading.block
    if not error.is_limit or error.at - block.start > block.limits.confirm:
        return ""
    return f"{reading.pattern.name}: {error.reason}"


class Finder:
    """Finds the calls of one text."""

    def __init__(self, openers: Openers, offers: Offers) -> None:
        self._openers = openers
        self._held = HeldText()
        self._collector = FindingCollector(self._held, offers)
        self._state = _State.TEXT
        self._at = 0  # the position of the search for openers
        self._candidates: list[_Reading] = []
        self._reading: _Reading | None = None
        self._limit_problem = ""  # the limit that a candidate exceeded before it could confirm
        self._failed = 0  # openers that began no call
        self._skip_to = NO_WORDS
        self._skip_tail = ""
        self._stopped = False
        # Where a word begins that will be dropped if a call follows it.
        self._stray_at: int | None = None
        self._stray_word = ""  # the word before the block that is being read
        self._calls = 0  # complete calls before that block
        # Nothing is held. Then a caller may pass on text in which nothing begins without feeding it.
        self.is_quiet = not openers.has_stray_words
        self._begins_in = openers.begins_in

    @property
    def examined(self) -> int:
        """How many characters were examined so far."""
        return self._held.buffer.examined

    @property
    def held(self) -> str:
        """The text that was fed and not reported yet: a possible call, or white space after a call."""
        return self._collector.held_gap + self._held.text(self._held.buffer.end)

    @property
    def is_waiting(self) -> bool:
        """Whether text is held that the end of the text would settle."""
        return self._state is not _State.TEXT or self._at < self._held.buffer.end

    @property
    def is_confirmed(self) -> bool:
        """Whether the held text is a block that its format has confirmed."""
        return self._state is _State.READING

    def catch_up(self, text: str) -> None:
        """Account for text in which nothing begins and that the caller passed on without feeding it."""
        self._at = self._held.skip(len(text))
        self._collector.around.pass_text(text)

    def feed(self, text: str) -> list[Found]:
        """Take a piece of the text.

        Raises:
            LocalProtocolError: the text is already finished.
        """
        if self._state is _State.OVER:
            raise LocalProtocolError("expected no text after finish()")
        if not text:
            return []
        if self.is_quiet and self._begins_in(text) is None:
            self.catch_up(text)
            return [TextFound(text)]
        keep = self._at if self._reading is None else self._reading.block.at
        if self._stray_at is not None:
            keep = self._stray_at
        self._held.feed(text, keep)
        self._run()
        self._rest()
        return self._drain()

    def stop(self) -> list[Found]:
        """Stop searching: held text and all later text is plain text."""
        if self._state is not _State.OVER and not self._stopped:
            self._abandon("scanning was stopped")
            self._stopped = True
            self._rest()
        return self._drain()

    def finish(self, reason: FinishReason = "stop") -> list[Found]:
        """End the text for a reason. A second call changes nothing."""
        if self._state is _State.OVER:
            return []
        self.is_quiet = False
        if reason not in WHOLE:
            self._abandon("the answer was cut off")
        self._held.buffer.ended = True
        self._run()
        self._collector.end_gap()
        self._state = _State.OVER
        return self._drain()

    def _drain(self) -> list[Found]:
        out, self._collector.out = self._collector.out, []
        return out

    def _rest(self) -> None:
        """Note whether plain text may pass without a search."""
        is_idle = self._state is _State.TEXT and self._at == self._held.buffer.end
        may_stray = self._openers.has_stray_words and self._collector.around.is_line_empty
        self.is_quiet = is_idle and not self._collector.has_gap and not may_stray

    def _abandon(self, reason: str) -> None:
        """Report all open text as plain text."""
        end = self._held.buffer.end
        self._pass_stray()
        if self._reading is not None:
            self._collector.fail("truncated", reason, end)
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
        """Pass text up to the next opener; return whether there is one."""
        buffer, openers = self._held.buffer, self._openers
        while not self._stopped:
            data, index = buffer.data, self._at - buffer.base
            found = openers.find(data, index)
            if found is None:
                buffer.examined += len(data) - index
                held = len(data) if buffer.ended else openers.words.held_from(data, index)
                if not buffer.ended:
                    held = self._stray_from(index, held)
                self._pass(buffer.base + held)
                return False
            place, word = found
            buffer.examined += place - index + len(word)
            held = place if buffer.ended else min(place, openers.words.held_from(data, index))
            stray = self._stray_from(index, held)
            self._pass(buffer.base + stray)
            if held < place:
                return False
            if stray < place:
                self._stray_at, self._at = self._at, buffer.base + place
            if word[0] in "`~" and not buffer.ended and openers.words.may_grow(data, place):
                self._pass_stray()
                return False
            if self._consider(word):
                return True
        self._pass(buffer.end)
        return False

    def _stray_from(self, start: int, end: int) -> int:
        """Return where a word alone at the end of this piece of the buffer begins; `end` if there is none."""
        if not self._openers.has_stray_words:
            return end
        is_line_empty = self._collector.around.is_line_empty
        return self._openers.stray_from(
            self._held.buffer.data, start, end, is_line_empty=is_line_empty
        )

    def _pass_stray(self) -> None:
        """Report the word before an opener as text: no call follows it."""
        if self._stray_at is not None:
            to, self._at, self._stray_at = self._at, self._stray_at, None
            self._pass(to)

    def _consider(self, word: str) -> bool:
        """Return whether the word at the search position may begin a block. If not, pass over it."""
        buffer, around = self._held.buffer, self._collector.around
        index = self._at - buffer.base
        around.settle_before(word)
        found = self._openers.candidates(word, buffer.data, index, around, ended=buffer.ended)
        if found:
            self._candidates = [_Reading(prepared, self._collector, self._at) for prepared in found]
            self._state = _State.CONFIRMING
            return True
        around.quote_opener()
        self._pass_stray()
        self._pass_token(word)
        return False

    def _pass_token(self, word: str) -> None:
        """Note a run or a tag around reasoning. If the word is an opener that does not count here, pass one character."""
        collector = self._collector
        if word[0] in "`~" and not word.strip(word[0]):
            collector.around.pass_run(word)
        elif word in REASONING_TAGS:
            collector.around.pass_word(word)
        else:
            self._pass(self._at + 1)
            return
        collector.add_text(word)
        self._at += len(word)
        self._held.settle(self._at)

    def _pass(self, to: int) -> None:
        """Report everything up to `to` as text."""
        if to > self._at:
            text = self._held.buffer.slice(self._at, to)
            self._collector.around.pass_text(text)
            self._collector.add_text(text)
            self._at = to
            self._held.settle(to)

    def _confirm(self) -> bool:
        """Advance the candidates until the first in rank confirms or all have failed; return whether that is decided."""
        while self._candidates:
            reading = self._candidates[0]
            block = reading.block
            try:
                if not block.is_confirmed:
                    is_over = reading.advance()
                    if not block.is_confirmed and not is_over:
                        size = self._held.buffer.end - block.start
                        if size <= block.limits.confirm + MAX_WORD:
                            return False
                        block.malformed("nothing confirmed the opener in time")
            except Malformed as error:
                self._candidates.pop(0)
                self._limit_problem = self._limit_problem or _limit_problem(reading, error)
                continue
            self._limit_problem = ""
            self._choose(reading)
            return True
        self._state = _State.TEXT
        self._pass_stray()
        if self._limit_problem:
            self._collector.add_problem("limit", self._limit_problem, self._at)
            self._limit_problem = ""
        self._note_failed()
        buffer = self._held.buffer
        self._pass_token(self._openers.token_at(buffer.data, self._at - buffer.base))
        return True

    def _note_failed(self) -> None:
        self._failed += 1
        self._collector.around.has_kept_block = True
        if self._failed > MAX_FAILED:
            reason = f"expected at most {MAX_FAILED} openers that begin no call; the rest is text"
            self._collector.add_problem("limit", reason, self._at)
            self._stopped = True

    def _choose(self, reading: _Reading) -> None:
        collector = self._collector
        pattern = reading.pattern
        if self._stray_at is not None and pattern.has_stray_word:
            # It stays unsettled: it is text if the block is, and markup if the block is.
            self._stray_word = self._held.text(self._at).strip()
            self._calls, self._stray_at = collector.calls, None
        self._pass_stray()
        collector.around.settle_before("")
        collector.around.is_in_word = False
        collector.start(pattern.name, pattern.limits, streams=pattern.stream_args)
        self._candidates = []
        self._reading = reading
        self._state = _State.READING

    def _read(self) -> bool:
        """Advance the body; return whether the block is over."""
        reading = self._reading
        if reading is None:
            raise LocalProtocolError("expected a block that is being read")
        is_over, error = False, None
        try:
            is_over = reading.advance()
        except Malformed as found:
            error = found
        try:
            # The limit may have been exceeded before the error.
            self._collector.check_size(reading.block.at if error is None else error.at)
        except Malformed as found:
            error = found
        if error is not None:
            self._fail(reading, error)
        elif is_over:
            self._succeed(reading.block)
        return is_over or error is not None

    def _succeed(self, block: Block) -> None:
        at = block.at if block.stop is None else block.stop
        self._collector.succeed(at)
        self._resume(at)
        self._state = _State.TEXT

    def _fail(self, reading: _Reading, error: Malformed) -> None:
        buffer = self._held.buffer
        is_end = buffer.ended and error.at >= buffer.end
        kind: ProblemKind = "limit" if error.is_limit else "truncated" if is_end else "malformed"
        at = max(error.at, self._held.settled)
        self._note_failed()
        self._collector.fail(kind, error.reason, at)
        self._resume(at)
        self._skip_to, self._skip_tail = reading.prepared.closers, ""
        self._state = _State.SKIPPING if reading.prepared.closers.words else _State.TEXT

    def _resume(self, at: int) -> None:
        if self._stray_word:
            if self._collector.calls > self._calls:
                message = f"{self._stray_word!r} alone before a call was dropped"
                self._collector.add_problem("repaired", message, at)
            self._stray_word = ""
        self._reading = None
        self._at = at

    def _skip(self) -> bool:
        """Pass text up to and with a closer; return whether one came."""
        buffer, closers, tail = self._held.buffer, self._skip_to, self._skip_tail
        index = self._at - buffer.base
        # A closer may begin in text that was passed before.
        seam = tail + buffer.data[index : index + closers.reach]
        found = closers.find(seam, 0) if tail else None
        if found is not None:
            end = self._at - len(tail) + found[0] + len(found[1])
        else:
            found = closers.find(buffer.data, index)
            end = buffer.end if found is None else buffer.base + found[0] + len(found[1])
        buffer.examined += end - self._at + len(tail)
        if found is None:
            self._skip_tail = (
                (tail + buffer.data[index:])[-closers.reach :] if closers.reach else ""
            )
            self._pass(buffer.end)
            return False
        self._pass(end)
        self._state = _State.TEXT
        return True
