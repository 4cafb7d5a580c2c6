"""Turns the reports of a body into findings, and holds the text of a block in case the block turns out to be text."""

from msgspec import Struct

from dragoman.textcalls.cursor import DEFAULT_LIMITS, Limits, Malformed, TextBuffer
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
from dragoman.textcalls.surroundings import Surroundings


class HeldText:
    """The unsettled text: a buffer, and the text that a cursor has passed since `settled`, in case the block is text.

    Each character is kept once and joined once.
    """

    __slots__ = ("_passed", "buffer", "settled")

    def __init__(self) -> None:
        self.buffer = TextBuffer()
        self.settled = 0
        self._passed: list[str] = []  # from `settled` to the base of the buffer

    def feed(self, text: str, keep: int) -> None:
        """Add a text. The buffer keeps the text from `keep` on; unsettled text before that is kept here."""
        buffer = self.buffer
        start = max(self.settled, buffer.base)
        if keep > start:
            self._passed.append(buffer.slice(start, keep))
        buffer.feed(text, keep)

    def skip(self, count: int) -> int:
        """Count text that passed while nothing was held; return the position after it."""
        buffer = self.buffer
        buffer.data = ""
        buffer.base = buffer.end = self.settled = buffer.end + count
        buffer.examined += count
        return buffer.end

    def settle(self, at: int) -> None:
        """Mark everything before `at` as reported or as markup. The text after `at` is in the buffer again."""
        buffer = self.buffer
        if at < buffer.base:
            buffer.data = "".join(self._passed)[at - self.settled :] + buffer.data
            buffer.base = at
        self.settled = at
        self._passed.clear()

    def text(self, stop: int) -> str:
        """Return the text from `settled` to `stop`."""
        buffer = self.buffer
        if not self._passed:
            return buffer.slice(self.settled, stop)
        return ("".join(self._passed) + buffer.data[: max(0, stop - buffer.base)])[
            : stop - self.settled
        ]


# White space after a call is held, and dropped if another call or the end follows. More white space than this is text.
MAX_GAP = 256


class _Draft(Struct, eq=False):
    """A call while its block is read. name: None if the tool was not offered. index: None until it is reported."""

    name: str | None
    call_id: str
    start: int
    end: int = -1
    index: int | None = None
    pieces: list[str] = []


class FindingCollector:
    """Turns the reports of a block's body into findings: calls, text, or nothing.

    A call is reported when its block or its format closes it, or while it streams if its pattern asks for that. Its
    markup is then settled and dropped. A call of a tool that was not offered is text, with the markup around it.
    """

    def __init__(self, held_text: HeldText, offers: Offers) -> None:
        self.out: list[Found] = []
        self.around = Surroundings()
        self.calls = 0
        self.buffer = held_text.buffer
        self.offers = offers
        self._held = held_text
        self._pattern = ""
        self._streams = False
        self._limits = DEFAULT_LIMITS
        self._draft: _Draft | None = None
        self._kept: _Draft | None = None  # a call that is complete if its block is well-formed
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
        """Report text for the reader."""
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

    def add_block_problem(self, kind: ProblemKind, message: str, at: int) -> None:
        """Report a problem of the block that is being read."""
        self.add_problem(kind, f"{self._pattern}: {message}", at)

    def start(self, pattern: str, limits: Limits, *, streams: bool) -> None:
        """Begin a block."""
        self._pattern = pattern
        self._limits = limits
        self._streams = streams
        self._draft = self._kept = None
        self._has_unknown_call = False

    def check_size(self, at: int) -> None:
        """Raises:
        Malformed: the unsettled text up to `at` exceeds the limit.
        """
        end = self._held.settled + self._limits.max_block
        if at > end:
            reason = f"expected at most {self._limits.max_block} characters"
            raise Malformed(reason, end, is_limit=True)

    def succeed(self, at: int) -> None:
        """End a well-formed block at `at`."""
        if self._kept is not None:
            self._kept.end = at
        self.flush()
        if self._has_unknown_call:
            self._as_text(at)
        self._held.settle(at)

    def fail(self, kind: ProblemKind, reason: str, at: int) -> None:
        """End a malformed block: the unsettled text up to `at` is text."""
        draft = self._draft or self._kept
        if draft is not None and draft.index is not None:
            self.out.append(CallBroken(draft.index, reason))
        self._draft = self._kept = None
        start = self._held.settled
        self._as_text(at)
        self.add_block_problem(kind, reason, start)

    def begin(self, written_name: str, call_id: str, at: int) -> None:
        """Begin a call whose markup begins at `at`."""
        self.check_size(at)
        self.flush()
        most = self._limits.max_calls
        if self.calls >= most:
            raise Malformed(f"expected at most {most} calls", at, is_limit=True)
        name = self.offers.resolve(written_name)
        self._draft = _Draft(name, call_id, at)
        if name is None:
            self.around.has_kept_block = True
            self.add_block_problem(
                "unknown_tool", f"expected a tool that was offered, got {written_name!r}", at
            )
        elif self._streams:
            self._report_start(self._draft, name)

    def grow(self, text: str) -> None:
        """Add a piece of the input of the current call."""
        draft = self._draft
        if draft is not None:
            if draft.index is not None:
                self.out.append(InputFound(draft.index, text))
            else:
                draft.pieces.append(text)

    def end(self, call_id: str, at: int) -> None:
        """End the call: it is complete if the rest of the block is well-formed."""
        self.check_size(at)
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.end = at
            draft.call_id = draft.call_id or call_id
            self._kept = draft

    def add_thought(self, text: str, at: int) -> None:
        self.flush()
        self.out.append(ThoughtFound(text))
        self._held.settle(at)

    def flush(self) -> None:
        """Report the complete call."""
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
