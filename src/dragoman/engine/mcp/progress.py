"""How far a call is, as a server tells it, in one line."""

from collections.abc import Callable

__all__ = ("Progress",)

MAX_REPORTS = 1000
"""Of one call: a server may tell of its progress as often as it likes, and nobody reads that much."""
MAX_CHARS = 200


class Progress:
    """Passes on what a server tells, while the call is waited for."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._left = MAX_REPORTS

    def close(self) -> None:
        self._left = 0

    async def tell(self, progress: float, total: float | None, message: str | None) -> None:
        if self._left:
            self._left -= 1
            self._report(progress_text(progress, total, message))


def progress_text(progress: float, total: float | None, message: str | None) -> str:
    count = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
    if not message:
        return count
    line = " ".join(message.split())[:MAX_CHARS]
    return f"{line} ({count})"
