"""What an answer amounted to, for a log line and for counters: calls, finish, tokens. Keeps no content."""

from collections.abc import Iterable

from msgspec import structs

from dragoman.core.limits import merge_limits
from dragoman.model.events import (
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Outcome, Usage
from dragoman.model.parts import Call

__all__ = ("NOTED", "Tally", "tally_of", "tally_whole")

NOTED: frozenset[type[Event]] = frozenset(
    {Started, PartEnded, Finished, UsageReported, LimitsReported, Failed}
)
"""The events that change a tally; a caller in a hurry need not offer the others."""

# A log line names the calls of an answer; one with more than this is counted and not spelled out.
MAX_NAMES = 32


class Tally:
    """Counts one answer. Give it every event, or every event of a class in `NOTED`."""

    __slots__ = ("call_count", "error", "finish", "limits", "model", "names", "started", "usage")

    def __init__(self) -> None:
        self.call_count = 0
        self.names: list[str] = []
        self.finish: FinishReason | None = None
        self.usage: Usage | None = None
        self.limits: Limits | None = None
        self.error: ErrorInfo | None = None
        self.model = ""
        self.started = False

    def note(self, event: Event) -> None:
        match event:
            case PartEnded(value=Call(name=name)):
                self.call_count += 1
                if len(self.names) < MAX_NAMES:
                    self.names.append(name)
            case Finished(reason=reason):
                self.finish = reason
            case UsageReported(usage=usage):
                self.usage = _later(self.usage, usage)
            case LimitsReported(limits=limits):
                self.limits = merge_limits(self.limits, limits)
            case Failed(error=error):
                self.error = error
                self.finish = "error"
            case Started(model=model):
                self.model = model
                self.started = True
            case _:
                pass


def tally_of(events: Iterable[Event]) -> Tally:
    """The tally of an answer's events."""
    tally = Tally()
    for event in events:
        if type(event) in NOTED:
            tally.note(event)
    return tally


def tally_whole(outcome: Outcome) -> Tally:
    """The tally of an answer that has completed."""
    tally = Tally()
    tally.started = True
    tally.model = outcome.model
    tally.usage = outcome.usage
    tally.limits = outcome.limits
    for choice in outcome.choices:
        tally.finish = choice.finish
        for part in choice.parts:
            if isinstance(part, Call):
                tally.call_count += 1
                tally.names.append(part.name)
    del tally.names[MAX_NAMES:]
    return tally


def _later(known: Usage | None, report: Usage) -> Usage:
    """A later report replaces what it states."""
    if known is None:
        return report
    stated = {name: value for name, value in structs.asdict(report).items() if value is not None}
    return structs.replace(known, **stated)
