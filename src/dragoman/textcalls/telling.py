"""What becomes of the records of a block: calls, text, or nothing.

A call is told when its block or its format closes it; while it streams only where its pattern asks for that. Its markup
is then settled and gone. A call of a tool that was not offered is text, with whatever markup stands around it.
"""

from dragoman.textcalls.block import Begun, Block, Ended, Grown, Repaired, Settled, Spoken
from dragoman.textcalls.found import (
    CallBroken,
    CallEnded,
    CallFound,
    Found,
    InputFound,
    TextFound,
    ThoughtFound,
    Trouble,
    TroubleFound,
)
from dragoman.textcalls.limits import Limits
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.spool import Spool
from dragoman.textcalls.surroundings import Surroundings
from dragoman.textcalls.tape import Malformed

__all__ = ("Telling",)

# White space behind a call is held: it goes if another call or the end follows. More than this is somebody's layout.
MAX_GAP = 256


class _Draft:
    """A call while its block is read. `name` is None if it was not offered, `index` None until it is told."""

    __slots__ = ("call_id", "end", "index", "name", "pieces", "start")

    def __init__(self, begun: Begun, name: str | None) -> None:
        self.name = name
        self.call_id = begun.call_id
        self.start = begun.at
        self.end = -1
        self.index: int | None = None
        self.pieces: list[str] = []


class Telling:
    """Turns records into what was found. `strips`: calls are taken out of the text and not told."""

    def __init__(self, spool: Spool, offers: Offers, *, strips: bool) -> None:
        self.out: list[Found] = []
        self.around = Surroundings()
        self.calls = 0
        self._spool = spool
        self._offers = offers
        self._strips = strips
        self._pattern = ""
        self._streams = False
        self._draft: _Draft | None = None
        self._kept: _Draft | None = None  # complete, if its block is
        self._has_strange = False  # a call that was not offered stands in the unsettled text
        self._gap: list[str] | None = None
        self._gap_size = 0

    @property
    def has_gap(self) -> bool:
        """Whether white space behind a call would be held."""
        return self._gap is not None

    @property
    def held_gap(self) -> str:
        return "".join(self._gap or ())

    def say(self, text: str) -> None:
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

    def note(self, kind: Trouble, message: str, at: int) -> None:
        self.out.append(TroubleFound(kind, message, at))

    def end_gap(self) -> None:
        """Nothing but white space came behind the last call."""
        self._gap = None

    def start(self, pattern: str, *, streams: bool) -> None:
        """A block is being read."""
        self._pattern = pattern
        self._streams = streams
        self._draft = self._kept = None
        self._has_strange = False

    def absorb(self, block: Block) -> None:
        """Take what a body has told so far.

        Raises:
            Malformed: it is more than the limits allow.
        """
        records, block.records = block.records, []
        for record in records:
            match record:
                case Grown():
                    self._grow(record.text)
                case Begun():
                    self.bound(record.at, block.limits)
                    self._begin(record, block)
                case Ended():
                    self.bound(record.at, block.limits)
                    self._end(record)
                case Repaired():
                    self.note("repaired", f"{self._pattern}: {record.message}", record.at)
                case Settled():
                    self._flush()
                case Spoken():
                    self._speak(record)

    def bound(self, at: int, limits: Limits) -> None:
        """What is not settled must not reach too far.

        Raises:
            Malformed: it does.
        """
        end = self._spool.settled + limits.max_block
        if at > end:
            reason = f"expected at most {limits.max_block} characters"
            raise Malformed(reason, end, is_limit=True)

    def succeed(self, at: int) -> None:
        """The block is in order and ends at `at`."""
        if self._kept is not None:
            self._kept.end = at
        self._flush()
        if self._has_strange:
            self._as_text(at)
        self._spool.settle(at)

    def fail(self, kind: Trouble, reason: str, at: int) -> None:
        """The block is not in order: what is not settled up to `at` is text."""
        draft = self._draft or self._kept
        if draft is not None and draft.index is not None:
            self.out.append(CallBroken(draft.index, reason))
        self._draft = self._kept = None
        start = self._spool.settled
        self._as_text(at)
        self.note(kind, f"{self._pattern}: {reason}", start)

    def _begin(self, begun: Begun, block: Block) -> None:
        self._flush()
        most = block.limits.max_calls
        if self.calls >= most:
            block.malformed(f"expected at most {most} calls", at=begun.at, is_limit=True)
        name = begun.name if self._strips else self._offers.resolve(begun.name)
        self._draft = _Draft(begun, name)
        if name is None:
            message = f"{self._pattern}: {begun.name!r} is no tool that was offered"
            self.note("unknown_tool", message, begun.at)
        elif self._streams and not self._strips:
            self._tell_start(self._draft, name)

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

    def _speak(self, spoken: Spoken) -> None:
        self._flush()
        if spoken.kind == "text":
            self.say(spoken.text)
            self.around.pass_text(spoken.text)
        else:
            self.out.append(ThoughtFound(spoken.text))
        self._spool.settle(spoken.at)

    def _flush(self) -> None:
        """Tell the call that is complete."""
        draft, self._kept = self._kept, None
        if draft is None:
            return
        if draft.name is None:
            self._has_strange = True
            return
        if self._has_strange:
            self._as_text(draft.start)
        if not self._strips:
            self._tell(draft, draft.name)
        self._spool.settle(draft.end)
        self._gap = []
        self._gap_size = 0

    def _tell(self, draft: _Draft, name: str) -> None:
        start = self._spool.settled
        if draft.index is None:
            index = self._tell_start(draft, name)
            text = "".join(draft.pieces)
            if text:
                self.out.append(InputFound(index, text))
        else:
            index = draft.index
        self.out.append(CallEnded(index, start, draft.end))

    def _tell_start(self, draft: _Draft, name: str) -> int:
        self.end_gap()
        index = draft.index = self.calls
        self.calls += 1
        self.out.append(CallFound(index, name, draft.call_id, self._pattern))
        return index

    def _as_text(self, at: int) -> None:
        text = self._spool.text(at)
        self.say(text)
        self.around.pass_text(text)
        self._spool.settle(at)
        self._has_strange = False
