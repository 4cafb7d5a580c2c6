"""Decides what follows a failed attempt: retry, the next upstream, or an error for the client. Pure.

Nothing here waits, draws a random number or reads a clock: the caller passes these values in, and carries out the
decision. Nothing is repeated once a byte of an answer has been forwarded.

The status of the answer or, without an answer, the kind of the failure selects one of three verdicts:

- *again*: the same request may succeed soon. It is tried up to `attempts` times, then at the next upstream.
  Peers of the upstream that were not tried come first, without a wait.
- *elsewhere*: this upstream will not serve the request, another may: a missing key, an unknown model, a used-up quota.
- *never*: the request itself is wrong; every upstream would refuse it.

With `enabled = false` there is neither retry nor fallback: the client sees the result of the first attempt.
`attempts = 1` keeps the fallbacks and drops the repeats.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from msgspec import Struct

from dragoman.config.settings import RetrySettings
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.upstream.errors import CONNECTIONS_TAKEN
from dragoman.upstream.rate_limits import number_of


class Failure(Struct, frozen=True, kw_only=True):
    """One failed attempt. `status` is None when there was no answer.

    should_retry: the upstream's own advice (`x-should-retry`, which both vendors' SDKs follow).
    is_local: a limit of the gateway is why, not the upstream.
    """

    kind: ErrorKind
    status: int | None = None
    retry_after: float | None = None
    should_retry: bool | None = None
    is_local: bool = False


class Retry(Struct, frozen=True):
    """Ask the same upstream again, after this many seconds."""

    after: float


class OtherPeer(Struct, frozen=True):
    """Ask another peer of the same upstream at once."""


class Fallback(Struct, frozen=True):
    """Ask the next upstream at once."""


class GiveUp(Struct, frozen=True):
    """Report the error to the client."""


Otherwise = OtherPeer | Fallback | GiveUp
Decision = Retry | Otherwise


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
    409: _Verdict.AGAIN,  # both vendors' SDKs repeat it: the server could not get a lock in time
    425: _Verdict.AGAIN,
    429: _Verdict.AGAIN,
    500: _Verdict.AGAIN,
    502: _Verdict.AGAIN,
    503: _Verdict.AGAIN,
    504: _Verdict.AGAIN,
    # From Cloudflare, which most providers use: the origin is down, slow or unreachable.
    **dict.fromkeys(range(520, 525), _Verdict.AGAIN),
    529: _Verdict.AGAIN,  # Anthropic: overloaded
}

# Error kinds in a body that mean the same with any status: OpenAI's used-up quota has status 429 like a rate limit.
_OF_REPORTED_KIND: Mapping[ErrorKind, _Verdict] = {
    "quota": _Verdict.ELSEWHERE,
    "context_length": _Verdict.NEVER,
    "content_policy": _Verdict.NEVER,
}

# Without a status. After a timeout there is no retry: the second wait would be as long.
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
    otherwise: Otherwise,
    jitter: float,
) -> Decision:
    """What to do after the `attempt`-th try (from 1) of one upstream failed.

    forwarded: a byte of the answer has been sent to the client. otherwise: what is left if the same server is not asked again.
    jitter: a random number in [0, 1).
    """
    if forwarded or not settings.enabled:
        return GiveUp()
    verdict = _verdict(failure)
    if verdict is _Verdict.NEVER:
        return GiveUp()
    if isinstance(otherwise, OtherPeer):
        return otherwise
    if verdict is _Verdict.AGAIN and attempt < settings.attempts:
        after = _delay(settings, attempt, jitter)
        if failure.retry_after is None:
            return Retry(after)
        if failure.retry_after <= settings.max_wait:
            return Retry(max(after, failure.retry_after))
    return otherwise


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
    """The failure of an attempt without a status, or of a stream that failed before anything was forwarded."""
    # A retry after waiting for a free connection would wait as long again.
    is_waited = error.code == CONNECTIONS_TAKEN
    return Failure(kind=error.kind, should_retry=False if is_waited else None, is_local=is_waited)


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """The delay in seconds that an upstream asks for: `retry-after-ms`, else `retry-after` as seconds or as a date."""
    milliseconds = number_of(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = number_of(value)
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
    """The delay doubles each time; jitter picks from half to all of it, so that clients do not return all at once."""
    # The exponent is bounded: 2.0 ** 1024 raises, and no delay that long is ever used.
    whole = min(settings.max_delay, settings.base_delay * 2.0 ** min(attempt - 1, 60))
    return whole * (0.5 + 0.5 * jitter)
