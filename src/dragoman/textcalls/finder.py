"""Finds tool calls in a text while it streams. Below `TextScanner`; it knows no events of an answer.

    TEXT --opener--> CONFIRMING --a body confirms--> READING --its body ends--> TEXT
      ^                  |                              |
      |<--all fail: text-'                              '--malformed: text--> SKIPPING --closer--> TEXT

TEXT: one search for all openers; only a suffix that may still become one is held. CONFIRMING: every pattern that has the
opener reads on, in order of rank and within a limit; if none confirms, the opener was text and the search goes on one
character later. READING: one body reads its block, whose text is kept until it is settled; then it is markup and is
dropped, or it is text and is reported as text. SKIPPING: the rest of a malformed block passes as text up to its closer,
because a broken argument may quote a call.

No decision depends on where the text was cut, and nothing but the bounded confirmation is read twice.
"""

from enum import Enum, auto

from msgspec import Struct, field

from dragoman.errors import LocalProtocolError
from dragoman.model.outcome import FinishReason
from dragoman.textcalls.block import (
    MAX_FAILED,
    MAX_WORD,
    NO_WORDS,
    Begun,
    Block,
    Ended,
    Grown,
    Limits,
    Repaired,
    Settled,
    TextInMarkup,
)
from dragoman.textcalls.cursor import Malformed, TextBuffer, Wait
from dragoman.textcalls.findings import (
    CallBroken,
    CallEnded,
    CallFound,
    Found,
    InputFound,
    ProblemFound,
    ProblemKind,
    TextFound,
    ThoughtFound,
)
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers, Prepared, Surroundings


class HeldText:
    """The text that is not settled: a buffer, and what a cursor has passed since `settled`, in case the block is text.

    Each character is kept once and joined once.
    """

    __slots__ = ("_passed", "buffer", "settled")

    def __init__(self) -> None:
        self.buffer = TextBuffer()
        self.settled = 0
        self._passed: list[str] = []  # from `settled` to the base of the buffer

    def feed(self, text: str, keep: int) -> None:
        """Add a text. The buffer keeps the text from `keep` on; what is before that and not settled is kept here."""
        buffer = self.buffer
        start = max(self.settled, buffer.base)
        if keep > start:
            self._passed.append(buffer.slice(start, keep))
        buffer.feed(text, keep)

    def settle(self, at: int) -> None:
        """Everything before `at` has been reported or is markup. What follows it is in the buffer again."""
        buffer = self.buffer
        if at < buffer.base:
            buffer.data = "".join(self._passed)[at - self.settled :] + buffer.data
            buffer.base = at
        self.settled = at
        self._passed.clear()

    def text(self, stop: int) -> str:
        """The text from `settled` to `stop`."""
        buffer = self.buffer
        if not self._passed:
            return buffer.slice(self.settled, stop)
        return ("".join(self._passed) + buffer.data[: max(0, stop - buffer.base)])[
            : stop - self.settled
        ]


# White space after a call is held. It is dropped if another call or the end follows. More than this is kept as layout.
MAX_GAP = 256


class _Draft(Struct, eq=False):
    """A call while its block is read. name: None if the tool was not offered. index: None until it is reported."""

    name: str | None
    call_id: str
    start: int
    end: int = -1
    index: int | None = None
    pieces: list[str] = field(default_factory=list[str])


class FindingCollector:
    """Makes findings of the records of a block: calls, text, or nothing.

    A call is reported when its block or its format closes it, or while it streams if its pattern asks for that. Its
    markup is then settled and dropped. A call of a tool that was not offered is text, with the markup around it.
    """

    def __init__(self, held_text: HeldText, offers: Offers) -> None:
        self.out: list[Found] = []
        self.around = Surroundings()
        self.calls = 0
        self._held = held_text
        self._offers = offers
        self._pattern = ""
        self._streams = False
        self._draft: _Draft | None = None
        self._kept: _Draft | None = None  # complete if its block is in order
        # Whether the unsettled text has a call of a tool that was not offered.
        self._has_unknown_call = False
        self._gap: list[str] | None = None
        self._gap_size = 0

    @property
    def has_gap(self) -> bool:
        """Whether white space after a call would be held."""
        return self._gap is not None

    @property
    def held_gap(self) -> str:
        return "".join(self._gap or ())

    def add_text(self, text: str) -> None:
        """Text for the reader."""
        if not text:
            return
        if self._gap is not None:
            if text.isspace() and self._gap_size + len(text) <= MAX_GAP:
                self._gap.append(text)
                self._gap_size += len(text)
                return
            text = "".join(self._gap) + text
            self._gap = None
        self.out.append(TextFound(text))

    def add_problem(self, kind: ProblemKind, message: str, at: int) -> None:
        self.out.append(ProblemFound(kind, message, at))

    def end_gap(self) -> None:
        """Drop the white space after the last call."""
        self._gap = None

    def start(self, pattern: str, *, streams: bool) -> None:
        """A block is being read."""
        self._pattern = pattern
        self._streams = streams
        self._draft = self._kept = None
        self._has_unknown_call = False

    def absorb(self, block: Block) -> None:
        """Take the records that a body has made so far.

        Raises:
            Malformed: they exceed the limits.
        """
        records, block.records = block.records, []
        for record in records:
            match record:
                case Grown():
                    self._grow(record.text)
                case Begun():
                    self.check_size(record.at, block.limits)
                    self._begin(record, block)
                case Ended():
                    self.check_size(record.at, block.limits)
                    self._end(record)
                case Repaired():
                    self.add_problem("repaired", f"{self._pattern}: {record.message}", record.at)
                case Settled():
                    self._flush()
                case TextInMarkup():
                    self._take_text(record)

    def check_size(self, at: int, limits: Limits) -> None:
        """Raises:
        Malformed: the unsettled text up to `at` exceeds the limit.
        """
        end = self._held.settled + limits.max_block
        if at > end:
            reason = f"expected at most {limits.max_block} characters"
            raise Malformed(reason, end, is_limit=True)

    def succeed(self, at: int) -> None:
        """The block is in order and ends at `at`."""
        if self._kept is not None:
            self._kept.end = at
        self._flush()
        if self._has_unknown_call:
            self._as_text(at)
        self._held.settle(at)

    def fail(self, kind: ProblemKind, reason: str, at: int) -> None:
        """The block is not in order: what is not settled up to `at` is text."""
        draft = self._draft or self._kept
        if draft is not None and draft.index is not None:
            self.out.append(CallBroken(draft.index, reason))
        self._draft = self._kept = None
        start = self._held.settled
        self._as_text(at)
        self.add_problem(kind, f"{self._pattern}: {reason}", start)

    def _begin(self, begun: Begun, block: Block) -> None:
        self._flush()
        most = block.limits.max_calls
        if self.calls >= most:
            block.malformed(f"expected at most {most} calls", at=begun.at, is_limit=True)
        name = self._offers.resolve(begun.name)
        self._draft = _Draft(name, begun.call_id, begun.at)
        if name is None:
            message = f"{self._pattern}: {begun.name!r} is not a tool that was offered"
            self.add_problem("unknown_tool", message, begun.at)
        elif self._streams:
            self._report_start(self._draft, name)

    def _grow(self, text: str) -> None:
        draft = self._draft
        if draft is not None:
            if draft.index is not None:
                self.out.append(InputFound(draft.index, text))
            else:
                draft.pieces.append(text)

    def _end(self, ended: Ended) -> None:
        draft, self._draft = self._draft, None
        if draft is None:
            return
        draft.end = ended.at
        draft.call_id = draft.call_id or ended.call_id
        self._kept = draft
        if ended.is_closed:
            self._flush()

    def _take_text(self, record: TextInMarkup) -> None:
        self._flush()
        if record.kind == "text":
            self.add_text(record.text)
            self.around.pass_text(record.text)
        else:
            self.out.append(ThoughtFound(record.text))
        self._held.settle(record.at)

    def _flush(self) -> None:
        """Report the call that is complete."""
        draft, self._kept = self._kept, None
        if draft is None:
            return
        if draft.name is None:
            self._has_unknown_call = True
            return
        if self._has_unknown_call:
            self._as_text(draft.start)
        self._report(draft, draft.name)
        self._held.settle(draft.end)
        self._gap = []
        self._gap_size = 0

    def _report(self, draft: _Draft, name: str) -> None:
        start = self._held.settled
        if draft.index is None:
            index = self._report_start(draft, name)
            text = "".join(draft.pieces)
            if text:
                self.out.append(InputFound(index, text))
        else:
            index = draft.index
        self.out.append(CallEnded(index, start, draft.end))

    def _report_start(self, draft: _Draft, name: str) -> int:
        self.end_gap()
        index = draft.index = self.calls
        self.calls += 1
        self.out.append(CallFound(index, name, draft.call_id, self._pattern))
        return index

    def _as_text(self, at: int) -> None:
        text = self._held.text(at)
        self.add_text(text)
        self.around.pass_text(text)
        self._held.settle(at)
        self._has_unknown_call = False


# Finish reasons of a complete text, whose end may stand for a closer.
WHOLE: frozenset[FinishReason] = frozenset({"stop", "tool_calls", "stop_sequence"})


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


def _limit_problem(reading: _Reading, error: Malformed) -> str:
    """The message about a candidate that exceeded a limit; empty beyond the limit of confirmation, where it is prose."""
    block = reading.block
    if not error.is_limit or error.at - block.start > block.limits.confirm:
        return ""
    return f"{reading.pattern.name}: {error.reason}"


class Finder:
    """The calls of one text."""

    def __init__(self, openers: Openers, offers: Offers) -> None:
        self._offers = offers
        self._openers = openers
        self._held = HeldText()
        self._collector = FindingCollector(self._held, offers)
        self._state = _State.TEXT
        self._at = 0  # the position of the search for openers
        self._candidates: list[_Reading] = []
        self._reading: _Reading | None = None
        self._limit_problem = ""  # the limit that a candidate exceeded before it could confirm
        self._failed = 0  # openers that began nothing
        self._skip_to = NO_WORDS
        self._skip_tail = ""
        self._stopped = False
        self._is_quiet = True  # nothing is held, so plain text may pass unscanned
        self._begins_in = openers.begins_in

    @property
    def examined(self) -> int:
        """How many characters were looked at so far."""
        return self._held.buffer.examined

    @property
    def held(self) -> str:
        """The text that was fed and not reported yet: what may become a call, or white space after a call."""
        return self._collector.held_gap + self._held.text(self._held.buffer.end)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is held that the end of the text would settle."""
        return self._state is not _State.TEXT or self._at < self._held.buffer.end

    @property
    def is_confirmed(self) -> bool:
        """Whether the held text is a block that its format has confirmed."""
        return self._state is _State.READING

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is held. Then a caller may pass on a piece of text in which nothing begins without feeding it."""
        return self._is_quiet

    def catch_up(self, text: str) -> None:
        """Account for text in which nothing begins and that the caller passed on without feeding it."""
        buffer = self._held.buffer
        self._held.feed(text, self._at)
        buffer.examined += len(text)
        self._at = buffer.end
        self._held.settle(self._at)
        self._collector.around.pass_text(text)

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
            self.catch_up(text)
            return [TextFound(text)]
        keep = self._at if self._reading is None else self._reading.block.at
        self._held.feed(text, keep)
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
        """The text is over, and why. Calling it again changes nothing."""
        if self._state is _State.OVER:
            return []
        self._is_quiet = False
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
        """Note whether plain text may pass unscanned."""
        is_idle = self._state is _State.TEXT and self._at == self._held.buffer.end
        self._is_quiet = is_idle and not self._collector.has_gap

    def _abandon(self, reason: str) -> None:
        """Report whatever is open as text."""
        end = self._held.buffer.end
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
        """Pass text up to the next opener. Whether there is one."""
        buffer, openers = self._held.buffer, self._openers
        while not self._stopped:
            data, index = buffer.data, self._at - buffer.base
            found = openers.find(data, index)
            if found is None:
                buffer.examined += len(data) - index
                held = len(data) if buffer.ended else openers.held_from(data, index)
                self._pass(buffer.base + held)
                return False
            place, word = found
            buffer.examined += place - index + len(word)
            held = place if buffer.ended else min(place, openers.held_from(data, index))
            self._pass(buffer.base + held)
            if held < place:
                return False
            if word[0] in "`~" and not buffer.ended and openers.may_grow(data, place):
                return False
            if self._consider(word):
                return True
        self._pass(buffer.end)
        return False

    def _consider(self, word: str) -> bool:
        """Whether the word at the position of the search may begin a block. If not, it is passed."""
        buffer, around = self._held.buffer, self._collector.around
        index = self._at - buffer.base
        around.settle_before(word)
        found = self._openers.candidates(word, buffer.data, index, around, ended=buffer.ended)
        if found:
            self._candidates = [_Reading(prepared, self._block(prepared)) for prepared in found]
            self._state = _State.CONFIRMING
            return True
        self._pass_token(word)
        return False

    def _pass_token(self, word: str) -> None:
        """Note a run or a tag around reasoning. Of an opener that does not count here, pass one character."""
        collector = self._collector
        if word[0] in "`~" and not word.strip(word[0]):
            collector.around.pass_run(word)
        elif self._openers.is_reasoning_tag(word):
            collector.around.pass_word(word)
        else:
            self._pass(self._at + 1)
            return
        collector.add_text(word)
        self._at += len(word)
        self._held.settle(self._at)

    def _block(self, prepared: Prepared) -> Block:
        pattern = prepared.pattern
        return Block(
            self._held.buffer,
            self._at,
            offers=self._offers,
            limits=pattern.limits,
            streams=pattern.stream_args,
        )

    def _pass(self, to: int) -> None:
        """Everything up to `to` is text."""
        if to > self._at:
            text = self._held.buffer.slice(self._at, to)
            self._collector.around.pass_text(text)
            self._collector.add_text(text)
            self._at = to
            self._held.settle(to)

    def _confirm(self) -> bool:
        """Let the candidates read on until the first in rank confirms or all have failed. Whether that was decided."""
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
        if self._limit_problem:
            self._collector.add_problem("limit", self._limit_problem, self._at)
            self._limit_problem = ""
        self._note_failed()
        buffer = self._held.buffer
        self._pass_token(self._openers.token_at(buffer.data, self._at - buffer.base))
        return True

    def _note_failed(self) -> None:
        self._failed += 1
        if self._failed > MAX_FAILED:
            reason = f"expected at most {MAX_FAILED} openers that begin no call; the rest is text"
            self._collector.add_problem("limit", reason, self._at)
            self._stopped = True

    def _choose(self, reading: _Reading) -> None:
        collector = self._collector
        collector.around.settle_before("")
        collector.around.is_in_word = False
        collector.start(reading.pattern.name, streams=reading.pattern.stream_args)
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
            # What was reported before the error stays. A limit may have been exceeded before it.
            self._collector.absorb(reading.block)
            self._collector.check_size(
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
        self._reading = None
        self._at = at

    def _skip(self) -> bool:
        """Pass text up to and with a closer. Whether one came."""
        buffer, closers, tail = self._held.buffer, self._skip_to, self._skip_tail
        index = self._at - buffer.base
        # A closer may have begun in what was passed before.
        seam = tail + buffer.data[index : index + closers.reach]
        found = closers.find(seam, 0) if tail else None
        if found is not None:
            end = self._at - len(tail) + found[0] + len(found[1])
        else:
            found = closers.find(buffer.data, index)
            end = buffer.end if found is None else buffer.base + found[0] + len(found[1])
        buffer.examined += end - self._at + len(tail)
        if found is None:
            self._skip_tail = (tail + buffer.data[index:])[-closers.reach :]
            self._pass(buffer.end)
            return False
        self._pass(end)
        self._state = _State.TEXT
        return True
