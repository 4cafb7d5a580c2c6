"""How much a named key has used, and the rules of its limits. Pure: the time is an argument.

    windows    the minute, the day and the month of UTC that the time is in; each has counts of its own
    running    the requests that run, each until its lease ends, if it is not renewed

A window is known by its start, so a clock that goes back, or that differs from another node's, counts in the window that it
reads and never empties another: no window gets more than its limit. An engine stores the state of a key as one value, and
changes it by one of these functions, one caller at a time (`engine.StoreEngine.change_key`).

What an answer used is known at its end. So a limit of tokens or cost is checked against the answers that have ended: it is
exceeded by at most what the requests use that ran when it was reached. Limits of requests and of `max_streams` are exact.
"""

from datetime import UTC, datetime
from typing import Literal, cast, get_args

from msgspec import Struct, field, structs

from dragoman.store.codec import reader

Window = Literal["minute", "day", "month"]
Measure = Literal["requests", "tokens", "cost"]

WINDOWS = cast("tuple[Window, ...]", get_args(Window))

MILLION = 1_000_000
"""Prices are per million tokens, and costs are counted in millionths: a token costs its price in millionths."""

MAX_COUNT = 2**53 - 1
"""No count grows above this: an upstream may report any number, and every JSON reader takes this one."""

STREAM_WAIT = 1.0
"""Seconds after which a request that found all of `max_streams` taken may try again: nobody knows when one ends."""

_MINUTE, _DAY = 60, 86400
# How long a window is remembered after its start, so that a clock that goes back finds it: ten minutes after the minute's end, the
# longest month and as much again.
_REMEMBERED = {"minute": 11.0 * _MINUTE, "day": 2.0 * _DAY, "month": 62.0 * _DAY}


class Counts(Struct, frozen=True, omit_defaults=True):
    """What was used. `input_tokens` contains `cached_tokens`. `cost`: in millionths of the currency of the prices."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def plus(self, other: "Counts") -> "Counts":
        pairs = zip(structs.astuple(self), structs.astuple(other), strict=True)
        return Counts(*[min(MAX_COUNT, max(0, one) + max(0, two)) for one, two in pairs])


class KeyState(Struct):
    """What is stored for a key. `windows`: by `window start`; `running`: until when each counts without a renewal."""

    windows: dict[str, Counts] = field(default_factory=dict[str, Counts])
    running: dict[str, float] = field(default_factory=dict[str, float])


class KeyLimit(Struct, frozen=True):
    """At most this much in a window. `setting`: its name in the configuration."""

    setting: str
    window: Window
    measure: Measure
    most: int


class KeyChange(Struct, frozen=True):
    """What a worker reports of a key: what its answers used, and which of its requests have ended or still run."""

    used: Counts = Counts()
    ended: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()


class KeyRequest(Struct, frozen=True):
    """A request that asks to be served under the limits of its key. `id`: of the request, while it runs."""

    id: str
    limits: tuple[KeyLimit, ...] = ()
    max_streams: int | None = None


class LimitReached(Struct, frozen=True):
    """A limit that a request would exceed. `wait`: seconds until it no longer would; `setting`: the limit that waits longest."""

    setting: str
    most: int
    wait: float
    window: Window | None = None
    measure: Measure | None = None


class KeyUsage(Struct, frozen=True):
    """The counts of the windows that now is in, and how many requests run."""

    windows: dict[Window, Counts]
    running: int = 0


def window_start(window: Window, now: float) -> float:
    """The start of the window that `now` is in, in seconds since 1970. Days and months are those of UTC."""
    if window == "minute":
        return now // _MINUTE * _MINUTE
    if window == "day":
        return now // _DAY * _DAY
    first = datetime.fromtimestamp(now, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    return first.timestamp()


def window_end(window: Window, now: float) -> float:
    """The end of the window that `now` is in: the start of the next one."""
    start = window_start(window, now)
    if window == "month":
        return window_start("month", start + 32 * _DAY)
    return start + (_MINUTE if window == "minute" else _DAY)


def report(state: KeyState, change: KeyChange, now: float, until: float) -> None:
    """Add what a worker reports. `until`: when the leases of the requests that it renews lapse."""
    for request_id in change.ended:
        state.running.pop(request_id, None)
    for request_id in change.renewed:
        if request_id in state.running:  # it may have ended on the way here
            state.running[request_id] = until
    if change.used != Counts():
        _add(state, change.used, now)


def admit(state: KeyState, asked: KeyRequest, now: float, until: float) -> LimitReached | None:
    """Count a request, unless a limit is reached: then nothing is counted. `until`: when its lease lapses."""
    reached = [limit for limit in asked.limits if _used(state, limit, now) >= limit.most]
    if reached:
        last = max(reached, key=lambda limit: window_end(limit.window, now))
        wait = window_end(last.window, now) - now
        return LimitReached(last.setting, last.most, wait, last.window, last.measure)
    if asked.max_streams is not None:
        state.running = {name: lease for name, lease in state.running.items() if lease > now}
        if len(state.running) >= asked.max_streams:
            return LimitReached("max_streams", asked.max_streams, STREAM_WAIT)
        state.running[asked.id] = until
    _add(state, Counts(requests=1), now)
    return None


def usage_of(state: KeyState, now: float) -> KeyUsage:
    windows: dict[Window, Counts] = {
        window: state.windows.get(_name(window, now), Counts()) for window in WINDOWS
    }
    return KeyUsage(windows, sum(lease > now for lease in state.running.values()))


def read_state(data: bytes | None) -> KeyState:
    """The stored state of a key; None: nothing is stored yet. Raises StoreDamaged."""
    return _read(data) if data else KeyState()


_read = reader(KeyState)


def _used(state: KeyState, limit: KeyLimit, now: float) -> int:
    counts = state.windows.get(_name(limit.window, now))
    used: int = 0 if counts is None else getattr(counts, limit.measure)
    return used


def _add(state: KeyState, used: Counts, now: float) -> None:
    for window in WINDOWS:
        name = _name(window, now)
        state.windows[name] = state.windows.get(name, Counts()).plus(used)
    state.windows = {
        name: counts for name, counts in state.windows.items() if _is_remembered(name, now)
    }


def _is_remembered(name: str, now: float) -> bool:
    window, _, start = name.partition(" ")
    return float(start) > now - _REMEMBERED[window]


def _name(window: Window, now: float) -> str:
    return f"{window} {window_start(window, now):.0f}"
