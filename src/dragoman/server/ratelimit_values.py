"""The values of rate-limit headers, as each vendor spells them. Pure, and forgiving: what cannot be read is None."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil, isfinite

__all__ = ("FARTHEST", "duration_text", "moment_of", "number_of", "seconds_of", "time_text", "whole_seconds")  # fmt: skip

FARTHEST = 366 * 86400.0
"""No reset lies further ahead than a year."""

_DURATION = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_UNIT_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_LONGEST = 64  # a longer value is none of ours


@lru_cache(maxsize=256)
def seconds_of(text: str) -> float | None:
    """`1m2.5s`, `6ms`, `2d`, or bare seconds."""
    if not text or len(text) > _LONGEST:
        return None
    match = _DURATION.fullmatch(text)
    if match is not None:
        parts = zip(match.groups(), _UNIT_SECONDS, strict=True)
        return min(FARTHEST, sum(float(number) * unit for number, unit in parts if number))
    try:
        bare = float(text)
    except ValueError:
        return None
    return bare if isfinite(bare) and 0 <= bare <= FARTHEST else None


@lru_cache(maxsize=256)
def moment_of(text: str) -> float | None:
    """RFC 3339, as seconds since 1970."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def time_text(second: int) -> str:
    """RFC 3339, in whole seconds: the same ones are told again and again."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_text(seconds: float) -> str:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m3s`. Never too early, but for what a float cannot tell."""
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
    if len(milliseconds) > _LONGEST:
        return None
    try:
        value = float(milliseconds)
    except ValueError:
        return None
    return str(ceil(value / 1000)) if isfinite(value) and 0 <= value <= FARTHEST * 1000 else None


def number_of(text: str) -> float | None:
    """A plain number, such as a count or a percentage."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
