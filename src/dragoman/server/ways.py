"""Through which door, to which upstream, in which dialect: what is known of an attempt before its request is.

The same for all requests of a model at a door, so it is found once. Knows no request.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.dialects.base import Target
from dragoman.model.parts import Dialect
from dragoman.server.contract import Terms, is_contracted
from dragoman.server.doors import Door
from dragoman.server.routing import Attempt
from dragoman.server.settings import Settings
from dragoman.server.targets import target_of
from dragoman.upstream.base import Upstream
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("Way", "Ways")

# Clients choose the names of models: a deployment uses tens of them, and whoever sends others must not fill the memory.
_MAX_KNOWN = 1024
_LONGEST_KNOWN = 256


class Way(Struct, frozen=True, gc=False):
    """The way of one attempt.

    target: what the upstream accepts. is_same: both sides speak the same dialect.
    is_contracted: there are terms whatever the request says. terms: the contract of the Chat door, where there is one.
    """

    door: Door
    dialect: Dialect
    attempt: Attempt
    settings: UpstreamSettings
    target: Target
    is_same: bool
    is_contracted: bool
    terms: Terms | None = None


class Ways:
    """Those of one configuration."""

    def __init__(self, settings: Settings, upstreams: Mapping[str, Upstream]) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self._known: dict[tuple[str, str, str], Way] = {}

    def find(self, door: Door, attempt: Attempt) -> Way:
        """The way of an attempt, without terms."""
        key = (door.dialect, attempt.upstream, attempt.model)
        way = self._known.get(key)
        if way is None:
            way = self._make(door, attempt)
            if len(attempt.model) <= _LONGEST_KNOWN:
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[key] = way
        return way

    def _make(self, door: Door, attempt: Attempt) -> Way:
        settings = self._settings.upstreams[attempt.upstream]
        dialect = self._upstreams[attempt.upstream].dialect_for(door.dialect)
        return Way(
            door=door,
            dialect=dialect,
            attempt=attempt,
            settings=settings,
            target=target_of(settings, dialect, attempt.model),
            is_same=dialect == door.dialect,
            is_contracted=door.dialect == "chat" and is_contracted(self._settings.chat, settings),
        )
