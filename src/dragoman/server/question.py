"""Sends an upstream a tiny real request, and if it fails, says what to write instead.

A list of models shows that a server runs, not that it answers: it may have another path, speak another dialect, or lack
the model. So each model that the routes name is asked for a few tokens. If there is nothing at the address, the likely
alternatives at the same server are tried in turn: other paths, other kinds. `alternatives` and `models_to_ask` are pure.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import get_args
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dragoman.config.secrets import mask_url
from dragoman.config.settings import (
    PASS_ON,
    RetrySettings,
    Route,
    Settings,
    UpstreamSettings,
    split_fallback,
)
from dragoman.config.values import suggestion
from dragoman.core.failures import ReportedError, error_info
from dragoman.errors import ConfigError, GatewayError
from dragoman.gateway.attempt import UpstreamModel
from dragoman.gateway.route import Upstreams, default_model, make_upstream
from dragoman.model.events import Completed, Failed, Finished
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect, Text
from dragoman.model.request import Request, Turn
from dragoman.upstream.errors import ADDRESS_HINT, NOT_FOLLOWED
from dragoman.upstream.http.model_list import OfferedModel
from dragoman.upstream.http.upstream import DIALECTS, HttpUpstream, url_for

MAX_TOKENS = 16
"""Of an answer. OpenAI's Responses accept no smaller limit."""

# Routes often name two or three models; each one costs a request.
_MAX_MODELS = 4
_MAX_ALTERNATIVES = 12
_MODELS_SHOWN = 8
_LONGEST_REASON = 300
_GLOB_SIGNS = frozenset("*?[")
# The ends of addresses of whole endpoints, and the kind of server that has them.
_ENDPOINTS: Mapping[str, Dialect] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "messages",
    "/models": "chat",
}
# Where servers have their API below the root.
_ROOTS = ("/v1", "/api/v1", "/openai/v1")
# Parts of the names of models that are not for conversations.
_OTHER_PURPOSES = (
    *("embed", "whisper", "tts", "dall-e", "image", "rerank", "moderation", "audio", "realtime"),
    *("transcribe", "babbage", "davinci", "instruct", "sora", "bge-", "guard"),
)
ANY_MODEL = "default"
"""A name for servers that have one model and ignore the name."""
# Reasoning models of OpenAI's Chat Completions may answer 400 when they reach the limit before their first word.
_REACHED_LIMIT = "output limit was reached"


class Alternative(Struct, frozen=True):
    """Other settings for an upstream; `advice`: the lines that differ, as the operator would write them."""

    settings: UpstreamSettings
    advice: str


class QuestionResult(Struct, frozen=True):
    """The result of asking. `has_advice`: other settings work, and `detail` says which."""

    is_ok: bool
    detail: str
    has_advice: bool = False


def can_be_asked(settings: UpstreamSettings) -> bool:
    """Whether an upstream can be asked: it speaks a dialect over HTTP, and has its own key or none."""
    return settings.kind in DIALECTS and settings.api_key != PASS_ON


def models_to_ask(settings: Settings, upstream: str) -> tuple[str, ...]:
    """The names that routes and the upstream's own table use for its models, without globs."""
    found: list[str] = []
    for route in settings.routes:
        own = route.upstream_model or route.model
        places = ((route.upstream, None), *map(split_fallback, route.fallback))
        found += [other or own for name, other in places if name == upstream]
    found += settings.upstreams[upstream].models
    return tuple(dict.fromkeys(name for name in found if not _GLOB_SIGNS & set(name)))


def alternatives(settings: UpstreamSettings) -> tuple[Alternative, ...]:
    """Other addresses at the same server, and other kinds, the likeliest first."""
    parts = urlsplit(settings.base_url)
    path = parts.path.rstrip("/")
    ends = [end for end in _ENDPOINTS if path.endswith(end)]
    kinds = list(dict.fromkeys((settings.kind, *(_ENDPOINTS[end] for end in ends), *DIALECTS)))
    paths = [path.removesuffix(ends[0])] if ends else [path]
    if not paths[0]:
        paths += _ROOTS
    elif paths[0].endswith("/v1"):
        paths.append(paths[0].removesuffix("/v1"))
    else:
        paths.append(f"{paths[0]}/v1")
    ways = [(kind, each) for kind in kinds for each in paths]
    if ends:  # the address names the kind
        ways.sort(key=lambda way: way[0] != _ENDPOINTS[ends[0]])
    seen = {_url(settings)}
    found: list[Alternative] = []
    for kind, each in ways:
        base_url = parts._replace(path=each).geturl()
        other = structs.replace(settings, kind=kind, base_url=base_url, also=(), websocket=False)
        if (url := _url(other)) not in seen:
            seen.add(url)
            found.append(Alternative(other, _advice(settings, other)))
    return tuple(found[:_MAX_ALTERNATIVES])


def _url(settings: UpstreamSettings) -> str:
    return url_for("", settings, _dialect(settings), "generate")


def _dialect(settings: UpstreamSettings) -> Dialect:
    return next((each for each in get_args(Dialect) if each == settings.kind), "responses")


def _advice(settings: UpstreamSettings, other: UpstreamSettings) -> str:
    lines: list[str] = []
    if other.kind != settings.kind:
        lines.append(f'kind = "{other.kind}"')
    if other.base_url.rstrip("/") != settings.base_url.rstrip("/"):
        lines.append(f'base_url = "{mask_url(other.base_url)}"')
    return " and ".join(lines)


async def ask_upstream(name: str, settings: Settings, environ: Mapping[str, str]) -> QuestionResult:
    """Ask an upstream for each of its models; see `can_be_asked`. The caller bounds the time."""
    own = settings.upstreams[name]
    models = models_to_ask(settings, name)
    if not models:
        return await _ask_any_model(name, settings, environ)
    answered: list[str] = []
    for model in models[:_MAX_MODELS]:
        error = await _ask(name, own, model, environ)
        if error is not None:
            return await _explained(name, own, model, error, environ)
        answered.append(model)
    more = len(models) - len(answered)
    rest = f"; {more} more not asked" if more else ""
    return QuestionResult(is_ok=True, detail=f"{', '.join(answered)} answered{rest}")


async def _ask_any_model(
    name: str, settings: Settings, environ: Mapping[str, str]
) -> QuestionResult:
    """Ask an upstream if the configuration names none of its models."""
    own = settings.upstreams[name]
    listed = await _listed(name, own, environ)
    globs = [route.model for route in settings.routes if route.upstream == name] or ["*"]
    usable = [
        each
        for each in listed
        if any(fnmatchcase(each, glob) for glob in globs) and _is_for_conversations(each)
    ]
    known = default_model(alone(name, own))
    model = known or next(iter(usable or listed), ANY_MODEL)
    error = await _ask(name, own, model, environ)
    if error is None:
        return QuestionResult(is_ok=True, detail=f"{model} answered")
    if not _is_about_model(error, model):
        return await _explained(name, own, model, error, environ)
    lists = (
        f"it lists {len(listed)} models, and {model} does not answer"
        if listed
        else "it does not list its models"
    )
    return QuestionResult(is_ok=True, detail=f"not asked: {lists}; name a model in a route")


async def _explained(
    name: str,
    settings: UpstreamSettings,
    model: str,
    error: ErrorInfo,
    environ: Mapping[str, str],
) -> QuestionResult:
    said = _short(error.message)
    if _REACHED_LIMIT in error.message:
        return QuestionResult(is_ok=True, detail=f"{model} answered")
    if _is_about_model(error, model):
        return QuestionResult(
            is_ok=False, detail=await _unknown_model(name, settings, model, said, environ)
        )
    working = await _working_alternative(name, settings, model, error, environ)
    if working is None:
        return QuestionResult(is_ok=False, detail=f"asked for {model}: {said}")
    other, found = working
    if found is None:
        detail = f"{said}; write {other.advice}: that works"
        return QuestionResult(is_ok=False, detail=detail, has_advice=True)
    why = await _unknown_model(name, other.settings, model, _short(found.message), environ)
    detail = f"{said}; write {other.advice}: that is there, but {why}"
    return QuestionResult(is_ok=False, detail=detail, has_advice=True)


async def _working_alternative(
    name: str,
    settings: UpstreamSettings,
    model: str,
    error: ErrorInfo,
    environ: Mapping[str, str],
) -> tuple[Alternative, ErrorInfo | None] | None:
    """The alternative that answers although these settings do not; with an error if it only lacks the model."""
    for other in alternatives(settings) if _is_wrong_place(error) else ():
        if error.status in (401, 403) and not _has_other_key_header(settings, other.settings):
            continue  # the same key would be refused again
        found = await _ask(name, other.settings, model, environ)
        if found is None or _is_about_model(found, model):
            return other, found
    return None


async def listed_models(
    name: str, settings: UpstreamSettings, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The models for conversations that a server lists, at this address or at one of the alternatives; none if it lists none."""
    places = {
        each.base_url: each for each in (settings, *(a.settings for a in alternatives(settings)))
    }
    for place in places.values():
        listed = await _listed(name, place, environ)
        if listed:
            return tuple(filter(_is_for_conversations, listed)) or listed
    return ()


async def locate(
    name: str, settings: UpstreamSettings, model: str, environ: Mapping[str, str]
) -> UpstreamSettings:
    """The settings with which an upstream answers: these, or an alternative with another path or kind. The caller bounds the time.

    Raises:
        ConfigError: nothing answers, the key is refused, or there is no such model.
    """
    error = await _ask(name, settings, model, environ)
    found = settings
    if error is not None and not _is_about_model(error, model):
        working = await _working_alternative(name, settings, model, error, environ)
        if working is not None:
            found, error = working[0].settings, working[1]
    if error is None or _REACHED_LIMIT in error.message:
        return found
    said = _short(error.message)
    if _is_about_model(error, model):
        raise ConfigError(await _unknown_model(name, found, model, said, environ))
    # An error in the dialect's own form comes from the right place; the request may just not suit it.
    if error.raw is not None and error.status is not None and not _is_wrong_place(error):
        return found
    raise ConfigError(f"asked for {model}: {said}")


async def _unknown_model(
    name: str, settings: UpstreamSettings, model: str, said: str, environ: Mapping[str, str]
) -> str:
    listed = await _listed(name, settings, environ)
    if model in listed or not listed:
        return f"the model {model!r} is refused: {said}"
    shown = ", ".join(listed[:_MODELS_SHOWN])
    more = f" and {len(listed) - _MODELS_SHOWN} more" if len(listed) > _MODELS_SHOWN else ""
    hint = suggestion(model, listed) or f"; it has {shown}{more}"
    return f"it has no model {model!r}{hint} ({said})"


def _is_for_conversations(model: str) -> bool:
    return not any(word in model.lower() for word in _OTHER_PURPOSES)


def _is_about_model(error: ErrorInfo, model: str) -> bool:
    if error.code == "model_not_found":
        return True
    if error.message.endswith(ADDRESS_HINT):
        return False  # the message names the upstream, which may be called like the model
    return error.status in (400, 404, 422) and model in error.message


def _is_wrong_place(error: ErrorInfo) -> bool:
    return (
        error.status in (401, 403, 404, 405)
        or error.code == NOT_FOLLOWED
        or error.kind in ("protocol", "truncated")
    )


def _has_other_key_header(one: UpstreamSettings, other: UpstreamSettings) -> bool:
    """Messages servers take the key in a different header."""
    return (one.kind == "messages") != (other.kind == "messages")


def _short(message: str) -> str:
    line = " ".join(message.split()).removesuffix(ADDRESS_HINT)
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"


def alone(name: str, settings: UpstreamSettings) -> Settings:
    """Settings in which every model is this upstream's, and nothing is tried twice."""
    return Settings(
        upstreams={name: settings},
        routes=(Route(model="*", upstream=name),),
        retry=RetrySettings(enabled=False),
    )


async def _ask(
    name: str, settings: UpstreamSettings, model: str, environ: Mapping[str, str]
) -> ErrorInfo | None:
    """Ask for a few tokens; the error if no answer comes, or none in the dialect of the upstream."""
    question = Request(
        model=model,
        turns=(Turn(role="user", parts=(Text(text="Say ok."),)),),
        max_tokens=MAX_TOKENS,
        stream=False,
        store=False if settings.kind == "responses" else None,
    )
    ended = False
    try:
        upstreams = Upstreams(alone(name, settings), environ)
        async with (
            UpstreamModel(upstreams, client_dialect=_dialect(settings)) as asked,
            asked.ask(question) as answer,
        ):
            async for events in answer:
                for event in events:
                    if isinstance(event, Failed):
                        return event.error
                    ended = ended or isinstance(event, (Finished, Completed))
    except ReportedError as error:
        return error.info
    except GatewayError as error:
        return error_info(error)
    if not ended:
        return ErrorInfo(kind="protocol", message=f"upstream {name!r} sent no answer", status=502)
    return None


async def _listed(
    name: str, settings: UpstreamSettings, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The names of the upstream's models; none if it does not list them."""
    try:
        return tuple([model.name for model in await ask_models(name, settings, environ)])
    except GatewayError:
        return ()


async def ask_models(
    name: str, settings: UpstreamSettings, environ: Mapping[str, str]
) -> tuple[OfferedModel, ...]:
    """The models that an upstream lists; none if it has no list.

    Raises:
        ConfigError: it has no key. UpstreamError: it cannot be reached, or refuses the request.
    """
    upstream = make_upstream(name, settings, environ)
    try:
        return await upstream.models() if isinstance(upstream, HttpUpstream) else ()
    finally:
        await upstream.close()
