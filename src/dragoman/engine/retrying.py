"""Whether an answer that broke off is asked for again. Pure: what was drawn and read is an argument.

Only before any call of it was started: a tool that ran has changed the world, and the model would call it again.
"""

from dragoman.engine.settings import EngineSettings
from dragoman.model.outcome import ErrorInfo, ErrorKind

__all__ = ("retry_after",)

# What may be over in a moment. The others (keys, quota, a request that is refused) would fail again.
_PASSING: frozenset[ErrorKind] = frozenset(
    ("rate_limit", "overloaded", "timeout", "truncated", "upstream", "server", "protocol")
)

# Statuses that say the request is at fault, whatever the kind.
_FINAL_STATUSES = frozenset((400, 401, 403, 404, 413, 422))


def retry_after(
    settings: EngineSettings, error: ErrorInfo, *, attempt: int, jitter: float
) -> float | None:
    """Seconds to wait before asking again after the `attempt`-th try (from 1); None: not again.

    jitter: a random fraction from 0 up to 1; the wait is between half and the whole of what is due.
    """
    if attempt > settings.retries or not _is_passing(error):
        return None
    due = min(settings.retry_max_delay, settings.retry_delay * (1 << min(attempt - 1, 32)))
    after = due * (0.5 + jitter / 2)
    if error.retry_after is None:
        return after
    return max(after, error.retry_after) if error.retry_after <= settings.retry_max_delay else None


def _is_passing(error: ErrorInfo) -> bool:
    return error.kind in _PASSING and error.status not in _FINAL_STATUSES
