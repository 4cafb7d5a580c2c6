"""Merges reports of usage and limits, adds up the usage of answers, and counts one answer for its log line and metrics."""

from collections.abc import Iterable
from hashlib import sha256
from operator import itemgetter

from msgspec import Struct, structs

from dragoman.core.fields import own_fields
from dragoman.model.events import (
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import Call, Extra

NOTED: frozenset[type[Event]] = frozenset(
    {Started, PartEnded, Finished, UsageReported, LimitsReported, Failed}
)
"""The events that change a tally; a caller may skip all others for speed."""

_COUNTS = tuple(field.name for field in structs.fields(Usage) if field.name != "extra")

# A log line names at most this many calls of an answer; further calls are only counted.
MAX_NAMES = 32

# Fields beside the counts, and windows of limits, that are merged. No vendor's report has half as many; a stream may report any
# number of times, each time with others.
MAX_FIELDS = 64

# Calls of one answer that are noted: more than any model makes in a turn. Further calls are only counted.
MAX_NOTED = 1024

CallNote = tuple[str, str, int]
"""A call without its content: its name, its call id and the characters of its input."""

_NAME = itemgetter(0)


class InputHash(Struct, frozen=True, gc=False):
    """The source text of a call's input in UTF-8: its size and its hash."""

    bytes: int
    sha256: str


def hash_input(text: str) -> InputHash:
    """A model may write half a surrogate pair, which UTF-8 has no bytes for: it counts as three."""
    data = text.encode("utf-8", "surrogatepass")
    return InputHash(len(data), sha256(data).hexdigest())


class Tally(Struct, eq=False):
    """A summary of one answer without its content: calls, finish, tokens. `note` every event, or those in `NOTED`.

    hashes: of the inputs of `calls`; None: nobody wants them.
    """

    started: bool = False
    response_id: str = ""
    model: str = ""
    usage: Usage | None = None
    limits: Limits | None = None
    finish: FinishReason | None = None
    error: ErrorInfo | None = None
    call_count: int = 0
    calls: list[CallNote] = []
    hashes: list[InputHash] | None = None

    def note(self, event: Event) -> None:
        match event:
            case PartEnded(value=Call() as call):
                self.note_call(call)
            case Finished(reason=reason):
                self.finish = reason
            case UsageReported(usage=usage):
                self.usage = merge_usage(self.usage, usage)
            case LimitsReported(limits=limits):
                self.limits = merge_limits(self.limits, limits)
            case Failed(error=error):
                self.error = error
                self.finish = "error"
            case Started(response_id=response_id, model=model):
                self.response_id = response_id
                self.model = model
                self.started = True
            case _:
                pass

    @property
    def names(self) -> list[str]:
        """The names of the first calls."""
        return list(map(_NAME, self.calls[:MAX_NAMES]))

    def note_call(self, call: Call) -> None:
        self.call_count += 1
        if len(self.calls) < MAX_NOTED:
            self.calls.append((call.name, call.call_id, len(call.input)))
            if self.hashes is not None:
                self.hashes.append(hash_input(call.input))


def make_tally(*, hashes: bool = False) -> Tally:
    """The tally of an answer that has not begun."""
    return Tally(hashes=[]) if hashes else Tally()


def tally_of(events: Iterable[Event], *, hashes: bool = False) -> Tally:
    """The tally of an answer's events."""
    tally = make_tally(hashes=hashes)
    for event in events:
        if type(event) in NOTED:
            tally.note(event)
    return tally


def merge_usage(old: Usage | None, new: Usage) -> Usage:
    """Merge two reports of one answer: counts that the later report states replace earlier ones."""
    if old is None:
        return new
    stated = {name: value for name, value in structs.asdict(new).items() if value is not None}
    extra = new.extra
    if extra is not None:
        known = own_fields(extra.dialect, old.extra)
        if len(known) <= MAX_FIELDS:
            stated["extra"] = Extra(extra.dialect, {**known, **extra.fields})
    return structs.replace(old, **stated)


def add_usage(total: Usage, usage: Usage | None) -> Usage:
    """Add the usage of two answers. A count that neither states stays None; `extra` is omitted."""
    if usage is None:
        return total
    sums: dict[str, int | None] = {}
    for name in _COUNTS:
        one: int | None = getattr(total, name)
        other: int | None = getattr(usage, name)
        sums[name] = one if other is None else other + (one or 0)
    return structs.replace(Usage(), **sums)


def token_count(usage: Usage | None) -> int:
    """The sum of input and output tokens, as far as they are known."""
    if usage is None:
        return 0
    if usage.total is not None:
        return usage.total
    return (usage.input or 0) + (usage.output or 0)


def merge_limits(known: Limits | None, report: Limits) -> Limits:
    """Merge a report into the known limits: it replaces the windows that it names and the credit fields that it states."""
    if known is None:
        return report
    named = {window.name for window in report.windows}
    kept = tuple(window for window in known.windows if window.name not in named)
    return Limits(
        windows=(*report.windows, *kept)[:MAX_FIELDS],
        has_credits=known.has_credits if report.has_credits is None else report.has_credits,
        unlimited=known.unlimited if report.unlimited is None else report.unlimited,
        balance=known.balance if report.balance is None else report.balance,
    )
