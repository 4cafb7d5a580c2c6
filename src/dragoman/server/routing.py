"""Which upstream a request goes to, and which next if that one fails.

Pure: settings and a model name in, a plan out. Whether a failure allows the next attempt is `upstream.retry`'s to say.

The first route whose glob matches the name the client asked for is the plan: its upstream first, then its fallbacks in
their order. Every upstream of the plan is asked for the route's `upstream_model` (the client's name if it has none);
a fallback written `name=model` is asked for that model instead, because another provider seldom knows the same names.
"""

import re
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from dragoman.errors import RequestRefused
from dragoman.server.settings import Settings
from dragoman.upstream.settings import Route

__all__ = ("Attempt", "Router", "model_not_found", "plan", "split_fallback")

# Clients choose the names: a deployment uses tens of them, and whoever sends others must not fill the memory.
_CACHED_PLANS = 1024
_LONGEST_CACHED = 256
# Enough to recognise a mistyped name by; the rest is told by GET /v1/models.
_GLOBS_SHOWN = 20
_LONGEST_SHOWN = 100


class Attempt(Struct, frozen=True):
    """One upstream to try, and the name of the model as it knows it."""

    upstream: str
    model: str


class Router:
    """The routes of one configuration, compiled. Plans are remembered: this is asked for each request."""

    def __init__(self, settings: Settings) -> None:
        self._routes = [
            (re.compile(translate(route.model)).match, route) for route in _routes(settings)
        ]
        self._servers = settings.hosted.servers
        self._remembered = lru_cache(_CACHED_PLANS)(self._find)
        self._remembered_servers = lru_cache(_CACHED_PLANS)(self._find_servers)

    def plan(self, model: str) -> tuple[Attempt, ...]:
        """The attempts for a model, at least one.

        Raises:
            RequestRefused: no route takes this model (404, code `model_not_found`).
        """
        return self._find(model) if len(model) > _LONGEST_CACHED else self._remembered(model)

    def servers(self, model: str) -> tuple[str, ...]:
        """The MCP servers whose tools are offered beside those of a request for this model."""
        is_short = len(model) <= _LONGEST_CACHED
        return self._remembered_servers(model) if is_short else self._find_servers(model)

    def _find_servers(self, model: str) -> tuple[str, ...]:
        route = self._route(model)
        if route is None or route.mcp is None:
            return self._servers
        return route.mcp

    def _find(self, model: str) -> tuple[Attempt, ...]:
        route = self._route(model)
        if route is not None:
            return _attempts(route, model)
        raise model_not_found(model, tuple(route.model for _, route in self._routes))

    def _route(self, model: str) -> Route | None:
        return next((route for is_match, route in self._routes if is_match(model)), None)


def plan(settings: Settings, model: str) -> tuple[Attempt, ...]:
    """The attempts for a model. A server keeps a `Router` instead, which remembers.

    Raises:
        RequestRefused: no route takes this model (404, code `model_not_found`).
    """
    return Router(settings).plan(model)


def split_fallback(entry: str) -> tuple[str, str | None]:
    """`name` or `name=model`: the upstream, and the model it is asked for if that differs from the route's."""
    name, sign, model = entry.partition("=")
    return name, model if sign else None


def model_not_found(model: str, globs: tuple[str, ...]) -> RequestRefused:
    """The error for a model that nothing serves; `globs` are those that something does."""
    name = model if len(model) <= _LONGEST_SHOWN else f"{model[:_LONGEST_SHOWN]}…"
    shown = ", ".join(globs[:_GLOBS_SHOWN]) or "none"
    more = len(globs) - _GLOBS_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    error = RequestRefused(
        f"no route takes the model {name!r}; the models routed here are: {shown}{rest}",
        param="model",
        code="model_not_found",
    )
    error.kind, error.status = "not_found", 404
    return error


def _routes(settings: Settings) -> tuple[Route, ...]:
    """Without routes everything goes to the only upstream."""
    if settings.routes or len(settings.upstreams) != 1:
        return settings.routes
    return (Route(model="*", upstream=next(iter(settings.upstreams))),)


def _attempts(route: Route, model: str) -> tuple[Attempt, ...]:
    renamed = route.upstream_model or model
    others = [split_fallback(entry) for entry in route.fallback]
    return (
        Attempt(route.upstream, renamed),
        *(Attempt(name, other or renamed) for name, other in others),
    )
