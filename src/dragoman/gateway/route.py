"""Which upstreams a request for a model goes to, in the order of the attempts.

The first route whose glob matches the client's name for the model decides: first its upstream, then its fallbacks in
order. Each upstream is asked for the route's `upstream_model` (without one, for the client's name); a fallback written
`name=model` is asked for that model instead, because another provider seldom uses the same names. `peers.py` chooses among
the peers of an upstream, and passes over what rests; `upstream.retry` decides whether a failure allows the next attempt.
"""

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dragoman.config.environment import proxy_from
from dragoman.config.settings import (
    OPENAI_HOST,
    Route,
    Settings,
    UpstreamSettings,
    peers_of,
    split_fallback,
)
from dragoman.core.fields import refuse
from dragoman.errors import ConfigError, RequestRefused
from dragoman.gateway.peers import PeerHealth
from dragoman.gateway.targets import AttemptTarget, target_of
from dragoman.model.parts import Dialect
from dragoman.obsidian.policy import always_applies
from dragoman.upstream.base import Supervised, Upstream
from dragoman.upstream.chatgpt_codex.credentials import auth_path
from dragoman.upstream.rehearsal import RehearsalUpstream
from dragoman.upstream.replay import ReplayUpstream

# Clients choose the names. A deployment uses tens of them; a client that sends many others must not fill the memory.
_MAX_CACHED = 1024
_LONGEST_CACHED = 256
# Enough for a client to recognise a mistyped name; GET /v1/models lists all models.
_GLOBS_SHOWN = 20
_LONGEST_SHOWN = 100
_GLOB_SIGNS = frozenset("*?[")
# Model names that the vendors' own servers have.
_VENDOR_MODELS = (("gpt-5.5", OPENAI_HOST), ("claude-sonnet-4-5", "api.anthropic.com"))


class Candidate(Struct, frozen=True):
    """An upstream to try, and its name for the model."""

    upstream: str
    model: str


class Router:
    """The routes of one configuration, compiled. Pure."""

    def __init__(self, settings: Settings) -> None:
        self._routes = [
            (re.compile(translate(route.model)).match, route) for route in _routes(settings)
        ]
        self._servers = settings.hosted.servers
        self._cached_servers = lru_cache(_MAX_CACHED)(self._find_servers)

    def candidates(self, model: str) -> tuple[Candidate, ...]:
        """The upstreams for a model, at least one.

        Raises:
            RequestRefused: the request names no model (400), or one that no route takes (404, code `model_not_found`).
        """
        if not model:
            refuse("model", "the name of a model", None)
        route = self._route(model)
        if route is not None:
            return _candidates(route, model)
        raise model_not_found(model, tuple(route.model for _, route in self._routes))

    def servers(self, model: str) -> tuple[str, ...]:
        """The MCP servers whose tools are added to the tools of a request for this model."""
        is_short = len(model) <= _LONGEST_CACHED
        return self._cached_servers(model) if is_short else self._find_servers(model)

    def first(self, model: str) -> Candidate | None:
        """The first of the candidates; None if no route takes the model."""
        route = self._route(model) if model else None
        return None if route is None else _candidates(route, model)[0]

    def takes_all(self, model: str) -> bool:
        """Whether the route of a model takes every other name too."""
        route = self._route(model)
        return route is not None and not route.model.strip("*")

    def _find_servers(self, model: str) -> tuple[str, ...]:
        route = self._route(model)
        if route is None or route.mcp is None:
            return self._servers
        return route.mcp

    def _route(self, model: str) -> Route | None:
        return next((route for is_match, route in self._routes if is_match(model)), None)


class Upstreams:
    """The upstreams of one configuration, and the targets of each model for clients of a dialect.

    peers: the names of the peers of each upstream. by_name, health: each peer, and its health, by the peer's name.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str] = os.environ,
        before: "Upstreams | None" = None,
    ) -> None:
        """`before`: the upstreams until now; those whose settings did not change are used again, with their connections.

        Raises:
            ConfigError: the environment variable that should hold a key is not set.
        """
        self.settings = settings
        self.router = Router(settings)
        self._settings_of = {
            peer: own
            for name, each in settings.upstreams.items()
            for peer, own in peers_of(name, each).items()
        }
        self.peers = {
            name: tuple(peers_of(name, each)) for name, each in settings.upstreams.items()
        }
        self.by_name = {
            peer: _unchanged(peer, own, before) or make_upstream(peer, own, environ)
            for peer, own in self._settings_of.items()
        }
        self.health: dict[str, PeerHealth] = {
            peer: before.health[peer] if before and before.has(peer, own) else PeerHealth()
            for peer, own in self._settings_of.items()
        }
        self._cached: dict[tuple[Dialect, str], tuple[AttemptTarget, ...]] = {}

    def targets(
        self, client_dialect: Dialect, model: str, only: str | None = None
    ) -> tuple[AttemptTarget, ...]:
        """The targets of a request for a model, in the order of the route; at least one. Peers follow one another.

        only: the upstream to ask, whatever the routes say.

        Raises:
            RequestRefused: no route takes this model (404, code `model_not_found`).
        """
        if only is not None:
            return self._targets(client_dialect, Candidate(only, model))
        targets = self._cached.get((client_dialect, model))
        if targets is None:
            candidates = self.router.candidates(model)
            targets = tuple(
                target for each in candidates for target in self._targets(client_dialect, each)
            )
            if len(model) <= _LONGEST_CACHED:
                if len(self._cached) >= _MAX_CACHED:
                    self._cached.clear()
                self._cached[client_dialect, model] = targets
        return targets

    def start(self, on_limits: Callable[[str, Mapping[str, str]], None]) -> None:
        """Start the upstreams that run as child processes. Requires a running event loop. `on_limits`: see `Supervised`."""
        for upstream in self.by_name.values():
            if isinstance(upstream, Supervised):
                upstream.on_limits = on_limits
                upstream.start()

    def problems(self) -> dict[str, str]:
        """The upstreams that cannot answer now, with the reasons."""
        found: dict[str, str] = {}
        for name, upstream in self.by_name.items():
            problem = upstream.problem if isinstance(upstream, Supervised) else None
            if problem is not None:
                found[name] = upstream.secrets.hide(problem)
        return found

    def resting(self, now: float) -> dict[str, str]:
        """The peers that are not well, and how they are. `now`: of the monotonic clock."""
        reports = {peer: health.report(now) for peer, health in self.health.items()}
        return {peer: report.text for peer, report in reports.items() if not report.is_well}

    async def close(self) -> None:
        """Close the connections to all upstreams."""
        for upstream in self.by_name.values():
            await upstream.close()

    def has(self, peer: str, settings: UpstreamSettings) -> bool:
        """Whether there is a peer with this name and these settings."""
        return self._settings_of.get(peer) == settings

    def peer_of(self, name: str) -> Upstream:
        """The first peer of an upstream that is not resting, for a request that any of them can answer."""
        peers = self.peers[name]
        ready = (peer for peer in peers if not self.health[peer].is_out)
        found = next(ready, None) or min(peers, key=lambda peer: self.health[peer].due(""))
        return self.by_name[found]

    def _targets(self, client_dialect: Dialect, candidate: Candidate) -> tuple[AttemptTarget, ...]:
        name = candidate.upstream
        peers = self.settings.upstreams[name].peers
        weights = [peer.weight for peer in peers] or [1.0]
        return tuple(
            self._target(client_dialect, candidate, peer, weight)
            for peer, weight in zip(self.peers[name], weights, strict=True)
        )

    def _target(
        self, client_dialect: Dialect, candidate: Candidate, peer: str, weight: float
    ) -> AttemptTarget:
        name, model = candidate.upstream, candidate.model
        settings = self._settings_of[peer]
        dialect = self.by_name[peer].dialect_for(client_dialect)
        return AttemptTarget(
            client_dialect=client_dialect,
            dialect=dialect,
            upstream=name,
            peer=peer,
            weight=weight,
            model=model,
            settings=settings,
            accepts=target_of(settings, dialect, model, client_dialect),
            is_same_dialect=dialect == client_dialect,
            is_obsidian=client_dialect == "chat"
            and always_applies(
                self.settings.chat, kind=str(settings.kind), upstream_mode=settings.output_mode
            ),
            is_shared=_is_shared(self.settings, settings),
            repairs_history=_repairs_history(settings, is_same_dialect=dialect == client_dialect),
        )


def _repairs_history(settings: UpstreamSettings, *, is_same_dialect: bool) -> bool:
    """See `AttemptTarget.repairs_history`. Not where the operator wants what passes in one dialect unchanged."""
    if not settings.text_calls or settings.prompted_tools is not None:
        return False
    return not is_same_dialect or settings.passthrough != "exact"


def _is_shared(settings: Settings, upstream: UpstreamSettings) -> bool:
    """See `AttemptTarget.is_shared`. A gateway that does not store every response leaves this to the upstream."""
    stores = settings.store is None or settings.store.policy == "default"
    keys = len(settings.server.api_keys) + len(settings.keys)
    return stores and keys > 1 and upstream.api_key != "client"


def _unchanged(name: str, settings: UpstreamSettings, before: Upstreams | None) -> Upstream | None:
    """The upstream with this name, if it has the same settings. Those that read files when they are made read them again."""
    if before is None or settings.ca_file is not None or settings.kind == "replay":
        return None
    return before.by_name[name] if before.has(name, settings) else None


def make_upstream(
    name: str, settings: UpstreamSettings, environ: Mapping[str, str] = os.environ
) -> Upstream:
    """The upstream that these settings describe.

    Raises:
        ConfigError: the environment variable that should hold its key is not set, or the one for a proxy holds none.
    """
    if settings.kind == "rehearsal":
        return RehearsalUpstream(name)
    if settings.kind == "replay":
        return ReplayUpstream(name, settings)
    if settings.proxy is None and settings.base_url:
        settings = structs.replace(settings, proxy=proxy_from(settings.base_url, environ))
    # These modules need packages of the extra `server`; commands that only read routes work without the extra.
    from dragoman.upstream.chatgpt_codex.upstream import ChatGptCodexUpstream  # noqa: PLC0415
    from dragoman.upstream.codex.upstream import CodexUpstream  # noqa: PLC0415
    from dragoman.upstream.http.upstream import HttpUpstream  # noqa: PLC0415

    if settings.kind == "codex":
        return CodexUpstream(name, settings, environ)
    if settings.kind == "chatgpt-codex":
        auth_file = auth_path(settings.auth_file, environ)
        return ChatGptCodexUpstream(name, settings, auth_file=auth_file)
    key = settings.api_key
    if settings.api_key_env is not None:
        key = environ.get(settings.api_key_env)
        if not key:
            raise ConfigError(
                f"upstreams.{name}.api_key_env: expected a key in the environment variable "
                f"{settings.api_key_env}, which is not set"
            )
    return HttpUpstream(name, settings, key=key)


def default_models(settings: Settings) -> tuple[str, ...]:
    """Names of models that the upstreams of these settings surely have, in the order of the routes; none if none is known."""
    router = Router(settings)
    found = [route.model for route in settings.routes if not _GLOB_SIGNS & set(route.model)]
    for route in settings.routes:
        name = route.upstream_model
        if name is not None and router.first(name) == Candidate(route.upstream, name):
            found.append(name)
    for name, host in _VENDOR_MODELS:
        candidate = router.first(name)
        if candidate is None:
            continue
        own = settings.upstreams[candidate.upstream]
        url = own.peers[0].base_url if own.peers else own.base_url
        # A name that the route replaces works with any upstream. A route that takes every name says nothing about this one.
        is_replaced = candidate.model != name and not router.takes_all(name)
        if is_replaced or urlsplit(url).hostname == host:
            found.append(name)
    # These names mean the upstream's default model.
    for name in ("codex", "rehearsal"):
        candidate = router.first(name)
        if candidate is not None and settings.upstreams[candidate.upstream].kind == name:
            found.append(name)
    return tuple(dict.fromkeys(found))


def default_model(settings: Settings) -> str | None:
    """The first of `default_models`; None if there is none."""
    return next(iter(default_models(settings)), None)


def model_not_found(model: str, globs: tuple[str, ...]) -> RequestRefused:
    """The error for a model that no route takes; `globs`: the models that some route takes."""
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
    """The configured routes; without any, one route that sends every model to the only upstream."""
    if settings.routes or len(settings.upstreams) != 1:
        return settings.routes
    return (Route(model="*", upstream=next(iter(settings.upstreams))),)


def _candidates(route: Route, model: str) -> tuple[Candidate, ...]:
    renamed = route.upstream_model or model
    others = [split_fallback(entry) for entry in route.fallback]
    return (
        Candidate(route.upstream, renamed),
        *(Candidate(name, other or renamed) for name, other in others),
    )
