"""The account's limits as the headers in which Codex's backend tells them. Pure."""

from collections.abc import Iterator
from typing import cast

from dragoman._json import loads
from dragoman.errors import MalformedJson

__all__ = ("has_limits", "limit_headers")

_Json = dict[str, object]

_NAMES = {
    "usedPercent": "used-percent",
    "windowDurationMins": "window-minutes",
    "resetsAt": "reset-at",
}


def has_limits(line: bytes) -> bool:
    """Whether a report says anything: without limits of its provider Codex sends one of nulls."""
    return any(_headers(line))


def limit_headers(line: bytes | None) -> dict[str, str]:
    """Headers for the last report of the child, if there was one."""
    return {} if line is None else dict(_headers(line))


def _headers(line: bytes) -> Iterator[tuple[str, str]]:
    limits = _object(_object(_read(line).get("params")).get("rateLimits"))
    for window in ("primary", "secondary"):
        for key, value in _object(limits.get(window)).items():
            if key in _NAMES and isinstance(value, int | float):
                yield (
                    f"x-codex-{window}-{_NAMES[key]}",
                    f"{value:g}" if key == "usedPercent" else str(value),
                )
    credits_ = _object(limits.get("credits"))
    for key, name in (("hasCredits", "has-credits"), ("unlimited", "unlimited")):
        if isinstance(credits_.get(key), bool):
            yield f"x-codex-credits-{name}", str(credits_[key])
    if isinstance(credits_.get("balance"), str):
        yield "x-codex-credits-balance", str(credits_["balance"])


def _read(line: bytes) -> _Json:
    try:
        return _object(loads(line))
    except MalformedJson:
        return {}


def _object(value: object) -> _Json:
    return cast("_Json", value) if isinstance(value, dict) else {}
