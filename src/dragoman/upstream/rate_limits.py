"""Rate limits in the headers of an upstream's reply: decodes them, and encodes those that are shares of a window for clients.

    OpenAI, Anthropic   counts: a limit of requests or tokens, the remaining number, and the reset time
    Codex, Anthropic's  shares: the used part of the last five hours, or of the week
    subscriptions

Pure and lenient: a value that cannot be read is None. A share has no count. OpenAI's headers have only counts, so a share
is written there in hundredths; Anthropic has a family of headers for subscriptions, which Claude Code reads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil, floor, isfinite

from dragoman.model.outcome import Limits, LimitWindow
from dragoman.model.parts import Dialect

_CODEX_USED = "-used-percent"
_CODEX_FAMILY = "codex"
_FLAGS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}
_OPENAI = "x-ratelimit-"
_ANTHROPIC = "anthropic-ratelimit-"
_UNIFIED = "anthropic-ratelimit-unified-"
_UTILIZATION = "-utilization"
_ALL = 100.0

# The windows of both vendors' subscriptions: Anthropic's names, by the length in minutes.
_UNIFIED_NAMES: Mapping[int, tuple[str, str]] = {
    300: ("5h", "five_hour"),
    10080: ("7d", "seven_day"),
}


FARTHEST = 366 * 86400.0
"""No reset lies further ahead than a year."""

LARGEST = 1e12
"""The largest number in a report. The largest real ones are times in seconds since 1970, which have ten digits."""

_DURATION = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_UNIT_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_LONGEST = 64  # longer values are ignored


def limits_of(headers: Mapping[str, str], now: float) -> Limits | None:
    """The limits in an answer's headers; None without any. Names are in lower case."""
    windows = (*_codex(headers, now), *_openai(headers, now), *_anthropic(headers))
    has_credits = _FLAGS.get(headers.get("x-codex-credits-has-credits", "").lower())
    unlimited = _FLAGS.get(headers.get("x-codex-credits-unlimited", "").lower())
    balance = headers.get("x-codex-credits-balance", "").strip() or None
    if not windows and has_credits is None and unlimited is None and balance is None:
        return None
    return Limits(windows=windows, has_credits=has_credits, unlimited=unlimited, balance=balance)


def share_headers(door: Dialect, limits: Limits, now: float) -> list[tuple[bytes, bytes]]:
    """Limits that are shares of a window, as headers of the client's vendor."""
    windows = [
        window
        for window in limits.windows
        if window.used_percent is not None and window.limit is None
    ]
    if not windows:
        return []
    named = _unified(windows) if door == "messages" else _hundredths(windows, now)
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in named]


# --- reading ----------------------------------------------------------------------------------------------------------


def _codex(headers: Mapping[str, str], now: float) -> Iterator[LimitWindow]:
    for name, value in headers.items():
        if not (name.startswith("x-") and name.endswith(_CODEX_USED)):
            continue
        stem = name.removesuffix(_CODEX_USED)
        family, _, window = stem.removeprefix("x-").rpartition("-")
        used = number_of(value)
        minutes = _whole(headers.get(f"{stem}-window-minutes"))
        resets_at = _whole(headers.get(f"{stem}-reset-at"))
        wait = _whole(headers.get(f"{stem}-reset-after-seconds"))
        if resets_at is None and wait is not None:
            resets_at = int(now) + wait
        # The backend sends only zeros for a window that does not exist.
        if used is None or not family or not (used or minutes or resets_at is not None):
            continue
        prefix = "" if family == _CODEX_FAMILY else f"{family.replace('-', '_')}/"
        yield LimitWindow(
            name=prefix + window, used_percent=used, window_minutes=minutes, resets_at=resets_at
        )


def _openai(headers: Mapping[str, str], now: float) -> Iterator[LimitWindow]:
    for kind in ("requests", "tokens"):
        wait = seconds_of(headers.get(f"{_OPENAI}reset-{kind}", ""))
        yield from _counted(
            kind,
            headers.get(f"{_OPENAI}limit-{kind}"),
            headers.get(f"{_OPENAI}remaining-{kind}"),
            None if wait is None else now + wait,
        )


def _anthropic(headers: Mapping[str, str]) -> Iterator[LimitWindow]:
    for kind in ("requests", "tokens", "input-tokens", "output-tokens"):
        stem = f"{_ANTHROPIC}{kind}"
        yield from _counted(
            kind.replace("-", "_"),
            headers.get(f"{stem}-limit"),
            headers.get(f"{stem}-remaining"),
            moment_of(headers.get(f"{stem}-reset", "")),
        )
    for minutes, (name, _) in _UNIFIED_NAMES.items():
        used = number_of(headers.get(f"{_UNIFIED}{name}{_UTILIZATION}", ""))
        if used is not None:
            yield LimitWindow(
                name=name,
                used_percent=used * _ALL,
                window_minutes=minutes,
                resets_at=_whole(headers.get(f"{_UNIFIED}{name}-reset")),
            )


def _counted(
    name: str, limit: str | None, remaining: str | None, resets_at: float | None
) -> Iterator[LimitWindow]:
    most, left = number_of(limit or ""), number_of(remaining or "")
    if left is None:
        return
    used = None if not most else min(_ALL, max(0.0, _ALL * (1 - left / most)))
    yield LimitWindow(
        name=name,
        used_percent=used,
        remaining=left,
        limit=most,
        resets_at=None if resets_at is None else int(resets_at),
    )


def _whole(text: str | None) -> int | None:
    number = number_of(text or "")
    return None if number is None or not 0 <= number <= LARGEST else int(number)


# --- writing ----------------------------------------------------------------------------------------------------------


def _used(window: LimitWindow) -> float:
    return window.used_percent or 0.0


def _hundredths(windows: Iterable[LimitWindow], now: float) -> Iterator[tuple[str, str]]:
    """The window with the largest used share, as if its limit were a hundred requests."""
    window = max(windows, key=_used)
    left = max(0, floor(_ALL - _used(window)))
    yield f"{_OPENAI}limit-requests", "100"
    yield f"{_OPENAI}remaining-requests", str(left)
    if window.resets_at is not None:
        yield f"{_OPENAI}reset-requests", duration_text(max(0.0, window.resets_at - now))


def _unified(windows: Iterable[LimitWindow]) -> Iterator[tuple[str, str]]:
    known = [
        (window, *names)
        for window in windows
        if "/" not in window.name and (names := _UNIFIED_NAMES.get(window.window_minutes or 0))
    ]
    if not known:
        return
    for window, name, _ in known:
        yield f"{_UNIFIED}{name}-status", _status(window)
        yield f"{_UNIFIED}{name}{_UTILIZATION}", f"{_used(window) / _ALL:.4g}"
        if window.resets_at is not None:
            yield f"{_UNIFIED}{name}-reset", str(window.resets_at)
    tightest, _, claim = max(known, key=lambda entry: _used(entry[0]))
    yield f"{_UNIFIED}status", _status(tightest)
    yield f"{_UNIFIED}representative-claim", claim
    if tightest.resets_at is not None:
        yield f"{_UNIFIED}reset", str(tightest.resets_at)


def _status(window: LimitWindow) -> str:
    return "rejected" if _used(window) >= _ALL else "allowed"


# --- values -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def seconds_of(text: str) -> float | None:
    """Seconds from `1m2.5s`, `6ms`, `2d`, or a bare number."""
    if not text or len(text) > _LONGEST:
        return None
    match = _DURATION.fullmatch(text)
    if match is not None:
        parts = zip(match.groups(), _UNIT_SECONDS, strict=True)
        return min(FARTHEST, sum(float(number) * unit for number, unit in parts if number))
    bare = number_of(text)
    return bare if bare is not None and 0 <= bare <= FARTHEST else None


@lru_cache(maxsize=256)
def moment_of(text: str) -> float | None:
    """Seconds since 1970 from an RFC 3339 time."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def time_text(second: int) -> str:
    """An RFC 3339 time in whole seconds. Cached, because values repeat."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_text(seconds: float) -> str:
    """A duration as OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m3s`. Rounded up, except for float errors."""
    milliseconds = ceil(round(seconds * 1000, 2))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    tail = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{tail}"
    return f"{minutes}m{tail}" if minutes else tail


def whole_seconds(milliseconds: str) -> str | None:
    value = number_of(milliseconds)
    return None if value is None or not 0 <= value <= FARTHEST * 1000 else str(ceil(value / 1000))


def number_of(text: str) -> float | None:
    """A plain number, such as a count or a percentage."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
