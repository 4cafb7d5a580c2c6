"""What to do when an attempt failed: try again, go to the next upstream, or report the error to the client. Pure.

Nothing here waits, draws a random number or reads a clock: the caller passes what it drew and read, and does what is
decided. Nothing is repeated once a byte of an answer has been forwarded.

Three verdicts, by the status of the answer or, where there was none, by the kind of the failure:

- *again*: the same request may well succeed soon. Tried up to `attempts` times, then the next upstream's turn.
- *elsewhere*: this upstream will not serve it, another may: a missing key, an unknown model, a used-up quota.
- *never*: the request itself is at fault; every upstream would be asked in vain.

Switched off (`enabled = false`) it neither repeats nor falls back: the client sees what the first attempt brought.
`attempts = 1` keeps the fallbacks and drops the repeats.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from math import isfinite

from msgspec import Struct

from dragoman.config.settings import RetrySettings
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.upstream.errors import CONNECTIONS_TAKEN


class Failure(Struct, frozen=True, kw_only=True):
    """One failed attempt. `status` is None when there was no answer.

    should_retry: the upstream's own advice (`x-should-retry`, which both vendors' SDKs follow).
    """

    kind: ErrorKind
    status: int | None = None
    retry_after: float | None = None
    should_retry: bool | None = None


class Retry(Struct, frozen=True):
    """The same upstream again, after so many seconds."""

    after: float


class Fallback(Struct, frozen=True):
    """The next upstream, at once."""


class GiveUp(Struct, frozen=True):
    """Tell the client."""


Decision = Retry | Fallback | GiveUp


class _Verdict(Enum):
    AGAIN = auto()
    ELSEWHERE = auto()
    NEVER = auto()


_OF_STATUS: Mapping[int, _Verdict] = {
    401: _Verdict.ELSEWHERE,
    402: _Verdict.ELSEWHERE,
    403: _Verdict.ELSEWHERE,
    404: _Verdict.ELSEWHERE,
    408: _Verdict.AGAIN,
    409: _Verdict.AGAIN,  # both vendors' SDKs repeat it: a lock that was not to be had in time
    425: _Verdict.AGAIN,
    429: _Verdict.AGAIN,
    500: _Verdict.AGAIN,
    502: _Verdict.AGAIN,
    503: _Verdict.AGAIN,
    504: _Verdict.AGAIN,
    # Cloudflare, which stands in front of most providers: the origin is down, slow or unreachable.
    **dict.fromkeys(range(520, 525), _Verdict.AGAIN),
    529: _Verdict.AGAIN,  # Anthropic: overloaded
}

# Kinds that a body reports and that mean the same whatever the status: OpenAI's used-up quota is a 429 like any other.
_OF_REPORTED_KIND: Mapping[ErrorKind, _Verdict] = {
    "quota": _Verdict.ELSEWHERE,
    "context_length": _Verdict.NEVER,
    "content_policy": _Verdict.NEVER,
}

# Where no status was received. A time that ran out is not waited for again: the second wait would be as long.
_OF_SILENCE: Mapping[ErrorKind, _Verdict] = {
    "upstream": _Verdict.AGAIN,
    "truncated": _Verdict.AGAIN,
    "overloaded": _Verdict.AGAIN,
    "rate_limit": _Verdict.AGAIN,
    "server": _Verdict.AGAIN,
    "timeout": _Verdict.ELSEWHERE,
    "protocol": _Verdict.ELSEWHERE,
    "authentication": _Verdict.ELSEWHERE,
    "permission": _Verdict.ELSEWHERE,
    "not_found": _Verdict.ELSEWHERE,
}


def decide(
    settings: RetrySettings,
    failure: Failure,
    *,
    attempt: int,
    forwarded: bool,
    has_fallback: bool,
    jitter: float,
) -> Decision:
    """What to do after the `attempt`-th try (from 1) of one upstream failed.

    forwarded: a byte of the answer has gone to the client. jitter: a random fraction from 0 up to 1.
    """
    if forwarded or not settings.enabled:
        return GiveUp()
    verdict = _verdict(failure)
    if verdict is _Verdict.NEVER:
        return GiveUp()
    if verdict is _Verdict.AGAIN and attempt < settings.attempts:
        after = _delay(settings, attempt, jitter)
        if failure.retry_after is None:
            return Retry(after)
        if failure.retry_after <= settings.max_wait:
            return Retry(max(after, failure.retry_after))
    return Fallback() if has_fallback else GiveUp()


def failure_of(status: int, headers: Mapping[str, str], *, kind: ErrorKind, now: float) -> Failure:
    """An error answer as a failure. Header names are in lower case; `now` is seconds since 1970."""
    advice = headers.get("x-should-retry", "").lower()
    return Failure(
        kind=kind,
        status=status,
        retry_after=retry_after(headers, now=now),
        should_retry={"true": True, "false": False}.get(advice),
    )


def failure_without_answer(error: ErrorInfo) -> Failure:
    """An attempt that brought no status, or a stream that failed before anything was forwarded."""
    # Whoever has waited for a connection in vain would wait as long again.
    is_waited = error.code == CONNECTIONS_TAKEN
    return Failure(kind=error.kind, should_retry=False if is_waited else None)


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """The seconds an upstream asks to be left alone: `retry-after-ms`, else `retry-after` as seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is None:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds)


def _verdict(failure: Failure) -> _Verdict:
    decided = _OF_REPORTED_KIND.get(failure.kind)
    if decided is not None:
        return decided
    if failure.status is None:
        verdict = _OF_SILENCE.get(failure.kind, _Verdict.NEVER)
    else:
        by_class = _Verdict.ELSEWHERE if failure.status >= 500 else _Verdict.NEVER
        verdict = _OF_STATUS.get(failure.status, by_class)
    if failure.should_retry is True:
        return _Verdict.AGAIN
    if failure.should_retry is False and verdict is _Verdict.AGAIN:
        return _Verdict.ELSEWHERE
    return verdict


def _delay(settings: RetrySettings, attempt: int, jitter: float) -> float:
    """Doubled each time; between half and all of it, so that clients that failed together do not return together."""
    # The exponent is bounded: 2.0 ** 1024 raises, and no delay that long is ever used.
    whole = min(settings.max_delay, settings.base_delay * 2.0 ** min(attempt - 1, 60))
    return whole * (0.5 + 0.5 * jitter)


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None
