"""GET /v1/models and /v1/models/{id}: the model names that a client may use, in the format of its dialect.

The list is for pickers, so it has names and no globs: names in routes; names in an upstream's table, of a route's
`upstream_model` or in the list of the upstream itself that are routed there; and the rehearsal's scenarios. A single name is
known if some route takes it, listed or not.

`UpstreamModels` asks the upstreams for their lists; the rest are pure functions.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field

from dragoman._json import dumps_document
from dragoman.config.settings import Settings
from dragoman.errors import GatewayError, RequestRefused, UpstreamError
from dragoman.gateway.reply import read_whole
from dragoman.gateway.route import Candidate, Router, Upstreams
from dragoman.model.parts import Dialect
from dragoman.offload import offload
from dragoman.upstream.base import models_request
from dragoman.upstream.http.model_list import read_model_list
from dragoman.upstream.rehearsal import SCENARIOS
from dragoman.upstream.rehearsal.scenarios import find_scenario

logger = logging.getLogger(__name__)

_WILD = frozenset("*?[")
# Anthropic documents the epoch for an unknown release date.
_UNKNOWN_DATE = "1970-01-01T00:00:00Z"
# Anthropic's own maximum of `limit`.
_MAX_PAGE = 1000


# A list changes when somebody loads a model, and pickers ask for it each time they open.
_FRESH_SECONDS = 60.0
# A person waits in front of a picker. An upstream that takes longer is left out until it has answered once.
_PATIENCE = 3.0
# The longest lists, of services that resell models, have some hundred kilobytes.
_MAX_BYTES = 4 * 1024 * 1024
# Lists that are remembered: one for each upstream, and one for each key where clients bring their own.
_MAX_LISTS = 256

_ASKED = ("chat", "responses", "messages")


class ListedModel(Struct, frozen=True):
    """A model name, and the upstream that answers for it."""

    name: str
    upstream: str


def dialect_of_caller(headers: Iterable[tuple[bytes, bytes]]) -> Dialect:
    """`messages` for Anthropic's clients, recognised by their headers, `chat` for all others."""
    has_key = is_anthropic = False
    for name, value in headers:
        if name in (b"anthropic-version", b"anthropic-beta"):
            return "messages"
        if name == b"x-api-key":
            has_key = True
        elif name == b"user-agent":
            agent = value.lower()
            is_anthropic = b"anthropic" in agent or b"claude" in agent
    return "messages" if has_key and is_anthropic else "chat"


class _List(Struct):
    names: tuple[str, ...] = ()
    fresh_until: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class UpstreamModels:
    """The names that the upstreams list, asked for when a client wants them, and remembered for a minute."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        self._lists: OrderedDict[tuple[str, str], _List] = OrderedDict()

    async def listed(self, key: str | None, owner: str) -> dict[str, tuple[str, ...]]:
        """The names by upstream. `key`: the caller's, for upstreams that want it; `owner`: whose key it is."""
        settings = self._upstreams.settings.upstreams
        asked = [name for name, each in settings.items() if each.kind in _ASKED]
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(self._names(name, key, owner)) for name in asked}
        return {name: task.result() for name, task in tasks.items()}

    async def _names(self, name: str, key: str | None, owner: str) -> tuple[str, ...]:
        is_callers = self._upstreams.settings.upstreams[name].api_key == "client"
        found = self._list(name, owner if is_callers else "")
        async with found.lock:  # of several callers at a time, one asks
            if found.fresh_until <= time.monotonic():
                try:
                    async with asyncio.timeout(_PATIENCE):
                        found.names = await self._ask(name, key if is_callers else None)
                except (TimeoutError, GatewayError) as error:
                    logger.debug("upstream %s did not list its models: %s", name, error)
                found.fresh_until = time.monotonic() + _FRESH_SECONDS
            return found.names

    def _list(self, name: str, owner: str) -> _List:
        lists, place = self._lists, (name, owner)
        found = lists.get(place)
        if found is None:
            found = lists[place] = _List()
            if len(lists) > _MAX_LISTS:
                lists.popitem(last=False)
        lists.move_to_end(place)
        return found

    async def _ask(self, name: str, key: str | None) -> tuple[str, ...]:
        """Raises GatewayError: there is no list, or not one that can be read."""
        upstream = self._upstreams.peer_of(name)
        reply = await upstream.send(models_request(upstream.dialect_for("chat"), key))
        try:
            if reply.status != 200:
                raise UpstreamError(f"expected a list of models, got status {reply.status}")
            body = await read_whole(reply, _MAX_BYTES)
        finally:
            reply.close()
        models = await offload(len(body), read_model_list, body)
        return tuple([model.name for model in models])


def known_models(
    settings: Settings, listed: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[ListedModel, ...]:
    """The names for a picker, in the order of the routes and of the upstreams. `listed`: what the upstreams list."""
    router = Router(settings)
    found: dict[str, ListedModel] = {}
    for name, wanted in _candidates(settings, listed or {}):
        if name in found or _WILD & set(name):
            continue
        candidate = router.first(name)
        # A name from an upstream's own table is listed only if its route leads to that upstream.
        if candidate is not None and (wanted is None or candidate == Candidate(wanted, name)):
            found[name] = ListedModel(name, candidate.upstream)
    return tuple(found.values())


def list_models(
    settings: Settings,
    dialect: str,
    query: Mapping[str, str] | None = None,
    listed: Mapping[str, tuple[str, ...]] | None = None,
    *,
    allows: Callable[[str], bool] | None = None,
) -> bytes:
    """The body for GET /v1/models. `query`: Anthropic's `limit`, `after_id` and `before_id`; `allows`: whether the caller may use a name.

    Raises:
        RequestRefused: `limit` is not a number from 1 to 1000.
    """
    models = known_models(settings, listed)
    if allows is not None:
        models = tuple([model for model in models if allows(model.name)])
    if dialect != "messages":
        return dumps_document({"object": "list", "data": [_openai(model) for model in models]})
    page, has_more = _page(models, query or {})
    return dumps_document(
        {
            "data": [_anthropic(model) for model in page],
            "has_more": has_more,
            "first_id": page[0].name if page else None,
            "last_id": page[-1].name if page else None,
        }
    )


def find_model(settings: Settings, dialect: str, name: str) -> bytes:
    """The body for GET /v1/models/{name}.

    Raises:
        RequestRefused: no route takes this model (404, code `model_not_found`).
    """
    candidate = Router(settings).candidates(name)[0]
    if settings.upstreams[candidate.upstream].kind == "rehearsal":
        find_scenario(candidate.model)
    model = ListedModel(name, candidate.upstream)
    return dumps_document(_anthropic(model) if dialect == "messages" else _openai(model))


def _candidates(
    settings: Settings, listed: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str | None]]:
    """Possible model names, each with the upstream that must answer for it, or None for any."""
    for route in settings.routes:
        yield route.model, None
    for route in settings.routes:
        if route.upstream_model is not None:
            yield route.upstream_model, route.upstream
    for name, upstream in settings.upstreams.items():
        if upstream.kind == "codex":
            yield "codex", name  # the model that Codex is configured with
        for model in SCENARIOS if upstream.kind == "rehearsal" else upstream.models:
            yield model, name
        for model in listed.get(name, ()):
            yield model, name


def _page(
    models: tuple[ListedModel, ...], query: Mapping[str, str]
) -> tuple[tuple[ListedModel, ...], bool]:
    """The requested part of the list, and whether the list continues in that direction."""
    size = _limit(query.get("limit"))
    names = [model.name for model in models]
    after, before = query.get("after_id"), query.get("before_id")
    if before is not None and before in names:
        end = names.index(before)
        start = max(0, end - size)
        return models[start:end], start > 0
    start = names.index(after) + 1 if after is not None and after in names else 0
    return models[start : start + size], start + size < len(models)


def _limit(text: str | None) -> int:
    # Anthropic returns 20 by default; not all clients with a picker ask for the rest.
    if text is None:
        return _MAX_PAGE
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _MAX_PAGE):
        raise RequestRefused(
            f"limit: expected a number from 1 to {_MAX_PAGE}, got {text[:40]!r}", param="limit"
        )
    return int(text)


def _openai(model: ListedModel) -> dict[str, object]:
    return {"id": model.name, "object": "model", "created": 0, "owned_by": model.upstream}


def _anthropic(model: ListedModel) -> dict[str, object]:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": _UNKNOWN_DATE,
        "lifecycle": "active",
    }
