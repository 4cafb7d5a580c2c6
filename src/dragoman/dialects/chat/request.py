"""Reads and writes requests.

The reader takes what clients of Chat Completions send: OpenAI's fields and the extensions of other servers. Fields that
`Request` does not have are kept in `extra`, which also marks a request as one of this dialect. The writer turns a request
of any dialect into one that a Chat server accepts. `docs/dialects/chat.md` lists what changes when a request is read and
written again.
"""

from collections.abc import Mapping

from dragoman._json import Raw, dumps_document
from dragoman.core.aliases import NameMap
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_present,
    ask_raw_object,
    ask_text,
    extra_of,
    join_object,
    own_fields,
    present,
    read_fragment,
    read_present,
    refuse,
    without,
)
from dragoman.core.loaded_tools import in_order_of_loading
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import merge_turns, pair_results, put_system_first
from dragoman.core.prompt_cache import read_settings, write_options
from dragoman.core.request_settings import (
    SettingTable,
    effort_from_budget,
    make_request,
    note_include,
    put,
    request_fields,
    settle_user,
)
from dragoman.dialects.chat.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.chat.tools import ToolWriter, named_tools, read_choice, read_tools
from dragoman.dialects.chat.turns import MessageWriter, read_turns, wire_name
from dragoman.dialects.chat.wire import LEGACY_CHOICE, LEGACY_TOOLS
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra
from dragoman.model.request import CacheSettings, ReasoningSettings, Request, ResponseFormat

_OUTER = "response_format"  # the key in `extra` for fields beside `json_schema`
_SCHEMA_FIELDS = frozenset({"name", "description", "schema", "strict"})
_REASONING_FIELDS = frozenset({"effort", "max_tokens", "enabled"})


def read_format(fields: Fields, _key: str) -> ResponseFormat | None:
    """Read `response_format`. A format of an unknown type is kept whole."""
    form = ask_present(fields, "response_format")
    if form is None:
        return None
    kind = ask_text(form, "type", "response_format")
    outer = extra_of("chat", form, ("type", "json_schema"))
    rest = {} if outer is None else {_OUTER: join_object(outer.fields)}
    if kind == "text":
        return ResponseFormat(kind="text", extra=_joined(None, rest))
    if kind == "json_object":
        return ResponseFormat(kind="json_object", extra=_joined(None, rest))
    if kind != "json_schema":
        return ResponseFormat(kind="other", extra=Extra("chat", form))
    path = "response_format.json_schema"
    inner = ask_present(form, "json_schema", "response_format")
    if inner is None:
        refuse(path, "an object", None)
    return ResponseFormat(
        kind="json_schema",
        name=ask_text(inner, "name", path),
        description=ask_text(inner, "description", path),
        schema=inner.get("schema"),
        strict=ask_bool(inner, "strict", path),
        extra=_joined(extra_of("chat", inner, _SCHEMA_FIELDS), rest),
    )


def _joined(extra: Extra | None, rest: dict[str, Raw]) -> Extra | None:
    return Extra("chat", {**own_fields("chat", extra), **rest}) if rest else extra


def write_format(form: ResponseFormat, book: LossBook) -> dict[str, object]:
    own = own_fields("chat", form.extra)
    note_foreign(book, form.extra, "response_format")
    if form.kind == "other":
        if own:
            return {"response_format": own}
        book.note("response_format", "response_format")
        return {}
    own = dict(own)
    outer = read_present(own.pop(_OUTER, None))
    if form.kind != "json_schema":
        return {"response_format": {"type": form.kind, **outer}}
    stated: dict[str, object] = {
        # The name is required here and nowhere else.
        "name": form.name or "response",
        **({"description": form.description} if form.description is not None else {}),
        **({"schema": form.schema} if form.schema is not None else {}),
        **({"strict": form.strict} if form.strict is not None else {}),
        **own,
    }
    return {"response_format": {"type": "json_schema", "json_schema": stated, **outer}}


def read_reasoning(fields: Fields, _key: str) -> ReasoningSettings | None:
    """Read `reasoning_effort`, or OpenRouter's `reasoning`."""
    effort = ask_text(fields, "reasoning_effort")
    reasoning = ask_present(fields, "reasoning")
    if reasoning is None:
        return None if effort is None else ReasoningSettings(effort=effort)
    rest = {name: raw for name, raw in reasoning.items() if name not in _REASONING_FIELDS}
    return ReasoningSettings(
        enabled=ask_bool(reasoning, "enabled", "reasoning"),
        effort=ask_text(reasoning, "effort", "reasoning") or effort,
        budget=ask_int(reasoning, "max_tokens", "reasoning"),
        extra=Extra("chat", {"reasoning": join_object(rest)}),
    )


def write_reasoning(settings: ReasoningSettings, book: LossBook) -> dict[str, object]:
    """Write the settings as an effort. Reasoning is never switched off: few models accept `none`."""
    own: dict[str, Raw] = own_fields("chat", settings.extra)
    if "reasoning" in own:
        stated = {
            "effort": settings.effort,
            "max_tokens": settings.budget,
            "enabled": settings.enabled,
        }
        given = {name: value for name, value in stated.items() if value is not None}
        return {"reasoning": {**given, **read_present(own["reasoning"])}}
    note_foreign(book, settings.extra, "reasoning")
    if settings.summary is not None:
        book.note("reasoning_settings", "reasoning.summary", settings.summary)
    if settings.effort is not None:
        return {"reasoning_effort": settings.effort}
    if settings.enabled is False:
        book.note("reasoning_off", "reasoning")
        return {}
    if settings.budget is None:
        return {}
    action = book.note("reasoning_settings", "reasoning.budget", str(settings.budget))
    return {"reasoning_effort": effort_from_budget(settings.budget)} if action == "carry" else {}


def decode_request(body: bytes) -> Request:
    """Read a request of this dialect.

    Raises:
        RequestRefused: the request is malformed; `param` says where.
    """
    return _read_fields(request_fields(body))


def _read_include_usage(fields: Fields, key: str) -> bool | None:
    return ask_bool(ask_present(fields, key) or {}, "include_usage", key)


_CACHE_OPTIONS = "prompt_cache_options"
_CACHE_RETENTION = "prompt_cache_retention"


def _read_cache(fields: Fields, _key: str) -> CacheSettings | None:
    return read_settings("chat", fields, _CACHE_OPTIONS, _CACHE_RETENTION)


def _read_stop(fields: Fields, _key: str) -> tuple[str, ...]:
    single = read_fragment(fields.get("stop"))
    if single is not None:
        return (single,)
    stops = ask_list(fields, "stop") or []
    texts = [read_fragment(raw) for raw in stops]
    for index, text in enumerate(texts):
        if text is None:
            refuse(f"stop[{index}]", "a string", stops[index])
    return tuple(text for text in texts if text is not None)


SETTINGS = SettingTable(
    {
        "parallel_tool_calls": ("parallel_calls", ask_bool),
        "temperature": ("temperature", ask_number),
        "top_p": ("top_p", ask_number),
        "presence_penalty": ("presence_penalty", ask_number),
        "frequency_penalty": ("frequency_penalty", ask_number),
        "seed": ("seed", ask_int),
        "n": ("choices", ask_int),
        "logprobs": ("logprobs", ask_bool),
        "top_logprobs": ("top_logprobs", ask_int),
        "logit_bias": ("logit_bias", ask_raw_object),
        "verbosity": ("verbosity", ask_text),
        "user": ("user", ask_text),
        "safety_identifier": ("safety_id", ask_text),
        "prompt_cache_key": ("cache_key", ask_text),
        "service_tier": ("service_tier", ask_text),
        "metadata": ("metadata", ask_raw_object),
        "store": ("store", ask_bool),
    },
    {
        "model": ("model", ask_text),
        "stream": ("stream", ask_bool),
        "messages": ("turns", read_turns),
        "tools": ("tools", read_tools),
        LEGACY_TOOLS: ("tools", read_tools),
        "tool_choice": ("tool_choice", read_choice),
        LEGACY_CHOICE: ("tool_choice", read_choice),
        "stream_options": ("include_usage", _read_include_usage),
        "max_tokens": ("max_tokens", ask_int),
        "max_completion_tokens": ("max_tokens", ask_int),
        "top_k": ("top_k", ask_int),
        "stop": ("stop", _read_stop),
        "response_format": ("response_format", read_format),
        "reasoning_effort": ("reasoning", read_reasoning),
        "reasoning": ("reasoning", read_reasoning),
        _CACHE_OPTIONS: ("cache", _read_cache),
        _CACHE_RETENTION: ("cache", _read_cache),
    },
)


def _read_fields(fields: Fields) -> Request:
    if "messages" not in fields:
        refuse("messages", "at least one message", None)
    settings, rest = SETTINGS.read(fields)
    # The names of these are kept: only some servers have them, or their inner fields.
    is_newer = "max_completion_tokens" in fields
    newer = ask_int(fields, "max_completion_tokens") if is_newer else None
    if newer is not None:
        settings["max_tokens"] = newer
        rest["max_completion_tokens"] = fields["max_completion_tokens"]
        if "max_tokens" in fields:
            rest["max_tokens"] = fields["max_tokens"]
    if "top_k" in settings:
        rest["top_k"] = fields["top_k"]
    if "stream_options" in fields:
        unknown = without(read_present(fields["stream_options"]), ("include_usage",))
        if unknown:
            rest["stream_options"] = join_object(unknown)
    return make_request(extra=Extra("chat", present(rest) if rest else rest), **settings)


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """Write a request as a Chat server accepts it.

    Raises:
        RequestRefused: it contains what Chat cannot express and the policy refuses to lose.
    """
    book = LossBook(LOSSES, policy)
    own = dict(own_fields("chat", request.extra))
    is_own = request.extra is not None and request.extra.dialect == "chat"
    if not is_own and request.extra is not None and request.extra.fields:
        note_request_fields(book, request.extra)
    if request.namespaces:
        note_namespaces(book, request.namespaces, note_foreign)
    request = in_order_of_loading(request)
    paired, pairing = pair_results(request.turns)
    turns, merging = merge_turns(paired)
    if not target.system_messages:
        turns, moved = put_system_first(turns)
        merging = (*merging, *moved)
    used = [
        wire_name(part)
        for turn in turns
        for part in turn.parts
        if type(part) is Call and part.executor == "client"
    ]
    names = NameMap.build(named_tools(request.tools), used, target.names)
    messages = MessageWriter(names, target, book, request.tools, is_own=is_own)
    tools = ToolWriter(names, target, book, is_own=is_own)
    fields: dict[str, object] = {"model": request.model, "messages": messages.write(turns)}
    fields |= tools.write(request.tools, request.tool_choice)
    _write_settings(request, own, target, fields, book, is_own=is_own)
    if request.response_format is not None:
        fields |= write_format(request.response_format, book)
    if request.reasoning is not None:
        fields |= write_reasoning(request.reasoning, book)
    if request.previous_id is not None:
        book.note("previous_response", "previous_response_id", request.previous_id)
    if request.include:
        note_include(request, book)
    repairs = (*pairing, *merging, *messages.repairs, *tools.repairs)
    if own:
        fields |= own
    losses = book.losses if book.noted else ()
    return EncodedRequest(dumps_document(fields), names, losses, repairs)


def find_repairs(request: Request) -> tuple[Repair, ...]:
    """Return what servers refuse in a request of this dialect, and `encode_request` repairs."""
    return pair_results(request.turns)[1]


def _write_settings(
    request: Request,
    own: dict[str, Raw],
    target: Target,
    fields: dict[str, object],
    book: LossBook,
    *,
    is_own: bool,
) -> None:
    """Write the settings into `fields`. What is written in place of a field of `own` is removed there."""
    settings = SETTINGS.write(request)
    if "tools" not in fields and LEGACY_TOOLS not in fields:
        settings.pop("parallel_tool_calls", None)
    if not is_own:
        _settle_foreign(request, settings, book)
        if request.session is not None and target.cache and request.cache_key is None:
            settings["prompt_cache_key"] = request.session
    fields |= settings
    if request.cache is not None:
        put(fields, _CACHE_OPTIONS, write_options(request.cache))
        put(fields, _CACHE_RETENTION, request.cache.retention)
    if request.stream is not None:
        fields["stream"] = request.stream
    options = _stream_options(request, own, is_own=is_own)
    if options:
        fields["stream_options"] = options
    if request.max_tokens is not None:
        # Nearly every server reads `max_tokens`; OpenAI's reasoning models require the newer name. A client's newer
        # name is kept, whatever the target reads by default.
        newer = own.pop("max_completion_tokens", None)
        name = target.max_tokens_field if newer is None else "max_completion_tokens"
        fields[name] = request.max_tokens
    if request.stop:
        fields["stop"] = request.stop[0] if len(request.stop) == 1 else request.stop
    if request.top_k is not None and (
        own.pop("top_k", None) is not None or book.note("top_k", "top_k") == "carry"
    ):
        fields["top_k"] = request.top_k


def _stream_options(request: Request, own: dict[str, Raw], *, is_own: bool) -> dict[str, object]:
    options: dict[str, object] = {**read_present(own.pop("stream_options", None))} if own else {}
    if request.include_usage is not None:
        options["include_usage"] = request.include_usage
    elif request.stream and not is_own:
        # The other dialects always report usage; Chat does so only on request.
        options["include_usage"] = True
    return options


def _settle_foreign(request: Request, settings: dict[str, object], book: LossBook) -> None:
    """Reduce the user, metadata and store settings of another dialect's request to what a Chat server accepts."""
    if request.user is not None:
        put(settings, "user", settle_user(request, book))
    if request.metadata is not None and book.note("metadata", "metadata") != "carry":
        del settings["metadata"]
    if request.store is not None and not (request.store and book.note("store", "store") == "carry"):
        del settings["store"]
