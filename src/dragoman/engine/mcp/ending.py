"""Why the way to a server ended, told once by whoever saw it first."""

import asyncio

from dragoman.core.secrets import NO_SECRETS, Secrets

__all__ = ("MAX_MESSAGE_BYTES", "Ending")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""One message of a server: the largest images that providers take have some 7 MB as base64."""


class Ending:
    """`reason` goes on after the server's name: `ended with exit status 1`. `detail` is for the operator alone: a
    server's last words may hold what no model should read. Whoever quotes others hides `secrets` first.

    Of HTTP, where the SDK keeps it to itself: `status`, of the last request that was refused, and `is_forgotten`: the
    server knows our session no more.
    """

    def __init__(self, secrets: Secrets = NO_SECRETS) -> None:
        self.secrets = secrets
        self.reason = ""
        self.detail = ""
        self.status: int | None = None
        self.is_forgotten = False
        self._came = asyncio.Event()

    @property
    def has_come(self) -> bool:
        return self._came.is_set()

    def tell(self, reason: str, detail: str = "") -> None:
        """The first reason counts: those that follow are its consequences."""
        if not self.has_come:
            self.reason = reason
            self.detail = detail
            self._came.set()

    async def wait(self) -> None:
        await self._came.wait()
