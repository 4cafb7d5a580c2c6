"""Rate limits that are reported piece by piece."""

from dragoman.model.outcome import Limits

__all__ = ("merge_limits",)


def merge_limits(known: Limits | None, report: Limits) -> Limits:
    """What is known after a report: it replaces the windows that it names, and what it says of credits."""
    if known is None:
        return report
    named = {window.name for window in report.windows}
    kept = tuple(window for window in known.windows if window.name not in named)
    return Limits(
        windows=(*report.windows, *kept),
        has_credits=known.has_credits if report.has_credits is None else report.has_credits,
        unlimited=known.unlimited if report.unlimited is None else report.unlimited,
        balance=known.balance if report.balance is None else report.balance,
    )
