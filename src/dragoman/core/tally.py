"""What an answer amounted to, for a log line and for counters: calls, finish, tokens. Keeps no content."""

from msgspec import structs

from dragoman.model.events import Event, Failed, Finished, PartEnded, Started, UsageReported
from dragoman.model.outcome import ErrorInfo, FinishReason, Usage
from dragoman.model.parts import Call

__all__ = ("NOTED", "Tally")

NOTED: frozenset[type[Event]] = frozenset({Started, PartEnded, Finished, UsageReported, Failed})
"""The events that change a tally; a caller in a hurry need not offer the others."""

# A log line names the calls of an answer; one with more than this is counted and not spelled out.
MAX_NAMES = 32


class Tally:
    """Counts one answer. Give it every event, or every event of a class in `NOTED`."""

    __slots__ = ("call_count", "error", "finish", "model", "names", "started", "usage")

    def __init__(self) -> None:
        self.call_count = 0
        self.names: list[str] = []
        self.finish: FinishReason | None = None
        self.usage: Usage | None = None
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
            case Failed(error=error):
                self.error = error
                self.finish = "error"
            case Started(model=model):
                self.model = model
                self.started = True
            case _:
                pass


def _later(known: Usage | None, report: Usage) -> Usage:
    """A later report replaces what it states."""
    if known is None:
        return report
    stated = {name: value for name, value in structs.asdict(report).items() if value is not None}
    return structs.replace(known, **stated)
