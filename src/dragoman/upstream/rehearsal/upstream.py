"""The rehearsal as an upstream: it answers by itself, in whatever dialect it is asked. No network, no key."""

import asyncio

from dragoman.core.secrets import NO_SECRETS
from dragoman.model.parts import Dialect
from dragoman.upstream.base import Reply, UpstreamRequest
from dragoman.upstream.rehearsal.reply import RehearsalReply
from dragoman.upstream.rehearsal.stage import perform

__all__ = ("RehearsalUpstream",)

# Bytes of a request. It is read as a model would read it, in the gateway's own process: a long one in a thread.
_LARGE = 256 * 1024


class RehearsalUpstream:
    """A `base.Upstream`. It keeps nothing between requests, and needs nothing to be let in."""

    secrets = NO_SECRETS

    def __init__(self, name: str = "rehearsal") -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def dialect_for(self, door: Dialect) -> Dialect:
        """The client's own: it speaks them all."""
        return door

    async def send(self, request: UpstreamRequest) -> Reply:
        """The reply. Errors are replies too; nothing is raised."""
        if len(request.body) < _LARGE:
            return RehearsalReply(perform(request))
        return RehearsalReply(await asyncio.to_thread(perform, request))

    async def close(self) -> None:
        """There is nothing to give back."""
