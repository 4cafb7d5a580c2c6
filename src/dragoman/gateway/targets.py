"""The upstream and model of one attempt, and what that upstream accepts: its dialect's defaults, then the operator's limits.

Pure. `dialects.codec.Target` documents the values.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeVar, get_args
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dragoman.config.settings import ANTHROPIC_HOST, OPENAI_HOST, ModelLimits, UpstreamSettings
from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.core.schemas import SchemaRules
from dragoman.dialects.codec import Target
from dragoman.dialects.registry import upstream_codec
from dragoman.errors import ConfigError
from dragoman.model.parts import CallKind, Dialect
from dragoman.obsidian.policy import ObsidianPolicy

_T = TypeVar("_T")

# Entries are distinct sets of limits, not models: an operator writes a handful.
_CACHED_TARGETS = 512
_CACHED_HOSTS = 64
_NO_LIMITS = ModelLimits()
_CALL_KINDS: Mapping[str, CallKind] = {kind: kind for kind in get_args(CallKind)}


class AttemptTarget(Struct, frozen=True):
    """One upstream as clients of a dialect reach it: everything about an attempt that does not depend on the request.

    upstream: its name in the configuration. peer: the server of it that is asked, as `config.settings.peers_of` names it;
    settings: those of the peer. weight: the peer's share of the conversations. model: the upstream's name for the model.
    repairs_history: calls in the text of a history become structured ones.
    is_obsidian: an Obsidian policy applies to every request. obsidian: the policy that applies to this request.
    is_shared: callers with different keys use one account of the upstream, so an id that the gateway did not store for this caller
    may be that of another caller's response.
    """

    client_dialect: Dialect
    dialect: Dialect
    upstream: str
    peer: str
    weight: float
    model: str
    settings: UpstreamSettings
    accepts: Target
    is_same_dialect: bool
    is_obsidian: bool
    obsidian: ObsidianPolicy | None = None
    is_shared: bool = False
    repairs_history: bool = True

    @property
    def counts_tokens(self) -> bool:
        """Whether the upstream counts the tokens of a request; see `UpstreamSettings.count_tokens`."""
        settings = self.settings
        if self.dialect not in ("messages", "responses"):
            return False
        if settings.count_tokens is not None:
            return settings.count_tokens == "native"
        if settings.path is not None:  # nobody knows the path for counts
            return False
        is_known = settings.kind == "rehearsal" or is_openai(settings.base_url)
        return self.dialect == "messages" or is_known

    def asks_for_stream(self, *, is_wanted: bool) -> bool:
        """Whether the upstream is asked for a stream, if the client wants one or not."""
        settings = self.settings
        return (is_wanted or settings.always_stream) and not settings.never_stream


def target_of(
    settings: UpstreamSettings, dialect: Dialect, model: str, client_dialect: Dialect
) -> Target:
    """What this upstream accepts in a request in `dialect` for `model` (the upstream's name for it).

    client_dialect: the dialect in which the request came; see `UpstreamSettings.cache`.

    The most specific value wins: the model's limits, then the upstream's, then what the upstream's host is known to
    require, then the dialect's default.

    Raises:
        ConfigError: there is no such dialect, or `builtin_tools` names an unknown kind of tool.
    """
    own = _NO_LIMITS
    if settings.models:
        own = next(
            (limits for glob, limits in settings.models.items() if fnmatchcase(model, glob)), own
        )
    host = _host(settings.base_url)
    caches = _caches(settings, dialect, is_same_dialect=dialect == client_dialect)
    target = _make(dialect, settings.limits, own, host, settings.cache_ttl, caches=caches)
    return structs.replace(target, compacts=True) if _compacts(settings, dialect) else target


def _compacts(settings: UpstreamSettings, dialect: Dialect) -> bool:
    if dialect not in ("messages", "responses") or settings.kind == "rehearsal":
        return False
    if settings.compaction is not None:
        return settings.compaction == "native"
    is_known = settings.kind == "chatgpt-codex" or is_openai(settings.base_url)
    return is_known and dialect == "responses"


def _caches(settings: UpstreamSettings, dialect: Dialect, *, is_same_dialect: bool) -> bool:
    """See `UpstreamSettings.cache`."""
    if is_same_dialect:
        return settings.cache == "always" and dialect == "messages"
    if settings.cache is None:
        return dialect != "chat" or is_openai(settings.base_url)
    return settings.cache != "off"


@lru_cache(_CACHED_HOSTS)
def _host(base_url: str) -> str | None:
    return urlsplit(base_url).hostname


def is_openai(base_url: str) -> bool:
    return _host(base_url) == OPENAI_HOST


@lru_cache(_CACHED_TARGETS)
def _make(
    dialect: Dialect,
    common: ModelLimits,
    own: ModelLimits,
    host: str | None,
    cache_ttl: Literal["5m", "1h"],
    *,
    caches: bool,
) -> Target:
    target = upstream_codec(dialect).target
    if caches or cache_ttl != target.cache_ttl:
        # All servers of Messages take breakpoints where Claude Code sets them, on texts and results; OpenRouter refuses them
        # on the tools of some models.
        is_vendor = host == ANTHROPIC_HOST
        target = structs.replace(target, cache=caches, cache_ttl=cache_ttl, cached_tools=is_vendor)
    if host == OPENAI_HOST and dialect == "chat":
        # OpenAI's reasoning models answer 400 to the older name; its other models take both.
        target = structs.replace(target, max_tokens_field="max_completion_tokens")
    return _limited(_limited(target, common), own)


def _limited(target: Target, limits: ModelLimits) -> Target:
    if limits == _NO_LIMITS:
        return target
    names, ids, schemas = target.names, target.ids, target.schemas
    builtin = limits.builtin_tools
    return structs.replace(
        target,
        names=NameLimits(
            pattern=_either(limits.name_pattern, names.pattern),
            max_length=_either(limits.max_name_length, names.max_length),
            reserved=names.reserved,
        ),
        ids=IdLimits(
            pattern=_either(limits.id_pattern, ids.pattern),
            max_length=_either(limits.max_id_length, ids.max_length),
            min_length=ids.min_length,
        ),
        schemas=_schema_rules(schemas, limits),
        default_max_tokens=_either(limits.default_max_tokens, target.default_max_tokens),
        max_tokens_field=_either(limits.max_tokens_field, target.max_tokens_field),
        builtin=target.builtin if builtin is None else frozenset(map(_call_kind, builtin)),
        strict=_either(limits.strict_tools, target.strict),
        user_first=_either(limits.user_first, target.user_first),
        system_messages=_either(limits.system_messages, target.system_messages),
        max_tools=_either(limits.max_tools, target.max_tools),
        deferred_tools=_either(limits.deferred_tools, target.deferred_tools),
    )


def _schema_rules(rules: SchemaRules, limits: ModelLimits) -> SchemaRules:
    drop = limits.drop_schema_keywords
    return structs.replace(
        rules,
        drop=rules.drop if drop is None else frozenset(drop),
        inline_refs=_either(limits.inline_schema_refs, rules.inline_refs),
    )


def _either(stated: _T | None, default: _T) -> _T:
    return default if stated is None else stated


def _call_kind(name: str) -> CallKind:
    kind = _CALL_KINDS.get(name)
    if kind is None:
        expected = ", ".join(_CALL_KINDS)
        raise ConfigError(f"builtin_tools: expected kinds of tools, among {expected}; got {name!r}")
    return kind
