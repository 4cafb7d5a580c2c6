"""The newest that each upstream has said of its limits: for `GET /v1/limits`, and as gauges for Prometheus.

Reports come from headers and from streams; whoever has one calls `note`. One per gateway, so that with several workers
each knows what it has seen itself. Headers come with every answer and would cost a twentieth of it to read: they are read
when somebody asks, and once a second.
"""

from collections import deque
from collections.abc import Callable, Mapping

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.core.usage import merge_limits
from dragoman.model.outcome import Limits
from dragoman.upstream.rate_limits import limits_of


class Snapshot(Struct, frozen=True):
    """What is known of an upstream's limits. `at`: when it was last reported, in seconds since 1970."""

    limits: Limits
    at: float


# Answers whose headers wait to be read, of each upstream. Not all have all limits, but few in a row leave any out.
_WAITING = 8


class LatestLimits:
    """`report` is called with every new state, for the metrics."""

    def __init__(self, now: Callable[[], float], report: Callable[[str, Limits], None]) -> None:
        self._now = now
        self._report = report
        self._snapshots: dict[str, Snapshot] = {}
        self._waiting: dict[str, deque[tuple[Mapping[str, str], float]]] = {}

    def note(self, upstream: str, limits: Limits) -> None:
        """An upstream has said something of its limits."""
        self.settle()
        self._merge(upstream, limits, self._now())

    def note_headers(self, upstream: str, headers: Mapping[str, str]) -> None:
        """The same, of an answer's headers, which need not say anything."""
        waiting = self._waiting.get(upstream)
        if waiting is None:
            waiting = self._waiting[upstream] = deque(maxlen=_WAITING)
        waiting.append((headers, self._now()))

    def settle(self) -> None:
        """Read the headers that wait."""
        waiting, self._waiting = self._waiting, {}
        for upstream, answers in waiting.items():
            for headers, at in answers:
                limits = limits_of(headers, at)
                if limits is not None:
                    self._merge(upstream, limits, at)

    def newest(self, upstream: str) -> Snapshot | None:
        self.settle()
        return self._snapshots.get(upstream)

    def page(self) -> bytes:
        """The body for GET /v1/limits: every upstream that has said anything."""
        self.settle()
        entries = [_entry(name, snapshot) for name, snapshot in sorted(self._snapshots.items())]
        return dumps({"object": "list", "data": entries})

    def _merge(self, upstream: str, limits: Limits, at: float) -> None:
        known = self._snapshots.get(upstream)
        merged = merge_limits(None if known is None else known.limits, limits)
        self._snapshots[upstream] = Snapshot(merged, at)
        self._report(upstream, merged)


def _entry(upstream: str, snapshot: Snapshot) -> dict[str, object]:
    limits = snapshot.limits
    return {
        "upstream": upstream,
        "at": int(snapshot.at),
        "windows": [
            {name: value for name, value in structs.asdict(window).items() if value is not None}
            for window in limits.windows
        ],
        "credits": _credits(limits),
    }


def _credits(limits: Limits) -> dict[str, object] | None:
    if limits.has_credits is None and limits.unlimited is None and limits.balance is None:
        return None
    return {
        "has_credits": limits.has_credits,
        "unlimited": limits.unlimited,
        "balance": limits.balance,
    }
