"""The token usage of a Codex turn, and the limits of the account."""

from msgspec.structs import replace

from dragoman.core.fields import Fields, read_bool, read_float, read_int, read_object, read_text
from dragoman.model.outcome import Limits, LimitWindow, Usage

_COUNTS = {
    "input": "inputTokens",
    "cached": "cachedInputTokens",
    "cache_write": "cacheWriteInputTokens",
    "output": "outputTokens",
    "reasoning": "reasoningOutputTokens",
    "total": "totalTokens",
}
_ESSENTIAL = frozenset({"input", "output"})
# The limits that every account has; other families of limits have names of their own.
_DEFAULT_LIMIT = "codex"


class TurnUsage:
    """Counts the usage of one answer. Codex reports the sum of the thread and the last model response; an answer is neither.

    The usage of the thread before the first report of this answer is subtracted from every report. If each model response
    reports its usage (`rawResponse/completed`), these are added up instead: the thread's report comes after the results of
    the response's calls, and so in the next answer.
    """

    def __init__(self, spent: dict[str, int] | None = None) -> None:
        self._before = spent
        self._sum: dict[str, int] | None = spent
        self._added: dict[str, int] | None = None

    def by_response(self) -> None:
        """Count the reports of model responses; the thread's reports concern an earlier answer or repeat them."""
        self._added = {}

    def add(self, response: Fields) -> Usage | None:
        """Return the answer's usage with one more model response; None if the response has no usage."""
        counts = _counts(response)
        if not counts.keys() >= _ESSENTIAL:
            return None
        added = self._added or {}
        names = {*added, *counts}
        self._added = {name: added.get(name, 0) + counts.get(name, 0) for name in names}
        return replace(Usage(), **self._added)

    def update(self, report: Fields) -> Usage | None:
        """Return the answer's usage so far; None if the report has no numbers."""
        last = _counts(read_object(report.get("last")))
        total = _counts(read_object(report.get("total"))) or last
        if not total:
            return None
        if self._added is not None:
            self._sum = total
            return None
        if self._before is None:
            self._before = {name: count - last.get(name, 0) for name, count in total.items()}
        self._sum = total
        spent = {name: count - self._before.get(name, 0) for name, count in total.items()}
        return replace(Usage(), **spent)

    def resume(self) -> "TurnUsage":
        """Return the counter for the next answer of the same turn."""
        rest = TurnUsage(self._sum)
        if self._added is not None:
            rest.by_response()
        return rest


def limits_from_wire(report: Fields) -> Limits | None:
    """Read the limits; None for the snapshot of nulls that Codex sends if the provider reported no limits."""
    family = read_text(report.get("limitId")) or ""
    prefix = "" if family in ("", _DEFAULT_LIMIT) else f"{family}/"
    windows = tuple(
        LimitWindow(
            name=prefix + name,
            used_percent=read_float(window.get("usedPercent")),
            window_minutes=read_int(window.get("windowDurationMins")),
            resets_at=read_int(window.get("resetsAt")),
        )
        for name in ("primary", "secondary")
        if (window := read_object(report.get(name)))
    )
    credits_ = read_object(report.get("credits"))
    if not windows and not credits_:
        return None
    return Limits(
        windows=windows,
        has_credits=read_bool(credits_.get("hasCredits")),
        unlimited=read_bool(credits_.get("unlimited")),
        balance=read_text(credits_.get("balance")) or None,
    )


def _counts(report: Fields) -> dict[str, int]:
    counts = {name: read_int(report.get(key)) for name, key in _COUNTS.items()}
    return {name: count for name, count in counts.items() if count is not None}
