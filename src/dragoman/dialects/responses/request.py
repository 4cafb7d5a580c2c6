"""Requests, both ways.

Reading refuses unusable requests and keeps unknown fields. Writing encodes everything that the Responses API can express;
the rest is a loss. A request that came in this dialect is sent unchanged, except for the changes that this dialect's page
in docs/dialects lists.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

from msgspec.structs import replace

from dragoman._json import Raw, as_object, dumps
from dragoman.core.aliases import NameMap, ToolKey
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_object,
    ask_text,
    extra_of,
    is_present,
    need_text,
    own_fields,
    read_object,
    read_text,
    read_texts,
    refuse,
    without,
)
from dragoman.core.loaded_tools import in_order_of_loading
from dragoman.core.losses import LossBook, note_request_fields
from dragoman.core.pairing import is_paired, pair_results
from dragoman.core.prompt_cache import read_settings, write_options
from dragoman.core.request_settings import (
    SettingTable,
    effort_from_budget,
    make_request,
    put,
    settle_user,
    unsaid_noter,
)
from dragoman.core.seals import split_family
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.responses.compaction import CONTEXT_FIELD, read_compact_at, write_context
from dragoman.dialects.responses.item_writer import JsonObject
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.responses.tools import (
    DeclaredTools,
    declare_later,
    declare_plainly,
    echo_choice,
    echo_tools,
    read_choice,
    read_declared,
    write_choice,
    write_tools,
)
from dragoman.dialects.responses.turns import (
    InputItemWriter,
    instructions_of,
    read_history,
)
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra, Opaque, Reasoning, Result, Text
from dragoman.model.request import (
    CacheSettings,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Turn,
)

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
_DEFAULT_NAME = "response"  # the API demands a name for a format; Chat's default name is this one
MIN_OUTPUT_TOKENS = 16  # OpenAI answers 400 below 16; some clients ask for 1 token to test a key

_SERVICE_TIERS = {
    "standard_only": "default",  # Anthropic's name
    **{
        tier: tier for tier in ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
    },
}


def read_format(text: Fields) -> ResponseFormat | None:
    fields = ask_object(text, "format", "text") or {}
    kind = ask_text(fields, "type", "text.format")
    match kind:
        case None:
            return None
        case "text" | "json_object":
            return ResponseFormat(kind=kind, extra=extra_of("responses", fields, ("type",)))
        case "json_schema":
            known = ("type", "name", "description", "schema", "strict")
            return ResponseFormat(
                kind=kind,
                name=ask_text(fields, "name", "text.format"),
                description=ask_text(fields, "description", "text.format"),
                schema=fields.get("schema"),
                strict=ask_bool(fields, "strict", "text.format"),
                extra=extra_of("responses", fields, known),
            )
        case _:
            return ResponseFormat(kind="other", extra=Extra("responses", dict(fields)))


def read_reasoning(fields: Fields, _key: str) -> ReasoningSettings | None:
    settings = ask_object(fields, "reasoning")
    if settings is None:
        return None
    effort = ask_text(settings, "effort", "reasoning")
    return ReasoningSettings(
        enabled=None if effort is None else effort != "none",
        effort=effort,
        summary=ask_text(settings, "summary", "reasoning"),
        extra=extra_of("responses", settings, ("effort", "summary")),
    )


def _write_settings(
    request: Request, own: Fields, target: Target, book: LossBook, *, is_native: bool
) -> JsonObject:
    out = SETTINGS.write(request)
    if request.stream is not None:
        out["stream"] = request.stream
    if not is_native:
        if request.max_tokens is not None:
            out["max_output_tokens"] = _max_tokens(request.max_tokens, book)
        if request.user is not None:
            put(out, "user", settle_user(request, book))
        if request.service_tier is not None:
            put(out, "service_tier", _service_tier(request.service_tier, book))
        if request.session is not None and target.cache and request.cache_key is None:
            out["prompt_cache_key"] = request.session
    if request.cache is not None:
        out |= _write_cache(request.cache)
    if request.response_format is not None or request.verbosity is not None or "text" in own:
        put(out, "text", _text(request, own, book))
    if request.reasoning is not None:
        put(out, "reasoning", _reasoning(request.reasoning, book))
    _write_state(request, out, is_native=is_native)
    return out


def _max_tokens(limit: int, book: LossBook) -> int:
    if limit >= MIN_OUTPUT_TOKENS:
        return limit
    book.note("min_tokens", "max_tokens", str(limit))
    return MIN_OUTPUT_TOKENS


def _text(request: Request, own: Fields, book: LossBook) -> JsonObject | None:
    out: JsonObject = {}
    form = request.response_format
    if form is not None:
        note_foreign(book, form.extra, "response_format")
        written = _format(form, book)
        if written is not None:
            out["format"] = written
    if request.verbosity is not None:
        out["verbosity"] = request.verbosity
    if "text" in own:
        out.update(read_object(own["text"]))
    return out or None


def _format(form: ResponseFormat, book: LossBook) -> JsonObject | None:
    own = own_fields("responses", form.extra)
    if form.kind == "other":
        if not own:
            book.note("response_format", "response_format")
        return dict(own) or None
    out: JsonObject = {"type": form.kind}
    if form.kind == "json_schema":
        out["name"] = form.name or _DEFAULT_NAME
        out["schema"] = {} if form.schema is None else form.schema
        if form.description is not None:
            out["description"] = form.description
        if form.strict is not None:
            out["strict"] = form.strict
    return {**out, **own}


def _reasoning(settings: ReasoningSettings, book: LossBook) -> JsonObject | None:
    note_foreign(book, settings.extra, "reasoning")
    own = own_fields("responses", settings.extra)
    effort = settings.effort
    if effort is None and settings.budget is not None and settings.enabled is not False:
        effort = effort_from_budget(settings.budget)
    out: JsonObject = {"effort": effort, "summary": settings.summary}
    stated = {key: value for key, value in out.items() if value is not None}
    is_own = settings.extra is None or settings.extra.dialect == "responses"
    if settings.enabled is False and effort is None and not is_own:
        book.note("reasoning_off", "reasoning")
    # Without a `reasoning` field the model decides itself whether it reasons.
    return {**stated, **own} if stated or own or (is_own and settings.enabled is None) else None


def _service_tier(tier: str, book: LossBook) -> str | None:
    if tier not in _SERVICE_TIERS:
        book.note("unknown_field", "service_tier", tier)
    return _SERVICE_TIERS.get(tier)


def _write_state(request: Request, out: JsonObject, *, is_native: bool) -> None:
    """Write `store` and `include`. Other dialects store nothing, so `store` is false for their requests.

    What nobody stores is lost unless the answer has it encrypted: the client, or the escrow for it, then sends it back.
    """
    store = request.store if is_native else bool(request.store)
    include = list(request.include)
    if store is False and ENCRYPTED not in include and _may_reason(request, is_native=is_native):
        include.append(ENCRYPTED)
    if request.logprobs and LOGPROBS not in include:
        include.append(LOGPROBS)
    put(out, "store", store)
    if include:
        out["include"] = include


# Models of the vendor that reason without being asked to. Not all others may be asked for encrypted reasoning: GPT-4.1 and
# the chat models answer 400 ("Encrypted content is not supported with this model").
_REASONING_MODELS = re.compile(
    r"(?:.*/)?(?:o[1-9]|gpt-(?:[5-9]|[1-9][0-9])|gpt-oss|codex-)(?!.*chat)"
)
_CACHED_MODELS = 64  # clients may choose the names, so there are few
# Characters. Clients may also choose how long a name is, and for a long one the pattern takes quadratic time.
_LONGEST_MODEL = 256


@lru_cache(_CACHED_MODELS)
def _is_reasoning_model(model: str) -> bool:
    return _REASONING_MODELS.match(model) is not None


def _may_reason(request: Request, *, is_native: bool) -> bool:
    """Whether the answer may contain reasoning, and the model accepts being asked for its encrypted form."""
    settings = request.reasoning
    if settings is not None and settings.enabled is False:
        return False
    if is_native:
        return settings is not None
    if settings is not None and (settings.enabled or settings.effort or settings.budget):
        return True
    if len(request.model) <= _LONGEST_MODEL and _is_reasoning_model(request.model):
        return True
    for turn in request.turns:
        if turn.role == "assistant":
            for part in turn.parts:
                if isinstance(part, Reasoning) and split_family(part.seals, "openai")[0]:
                    return True
    return False


_note_unsaid = unsaid_noter(
    {
        "frequency_penalty": ("frequency_penalty", "frequency_penalty"),
        "logit_bias": ("logit_bias", "logit_bias"),
        "presence_penalty": ("presence_penalty", "presence_penalty"),
        "seed": ("seed", "seed"),
        "top_k": ("top_k", "top_k"),
    }
)
# Chat has this field too, with the same values.
_SHARED = ("moderation",)


# --- reading ---------------------------------------------------------------------------------------------------------


def decode_request(body: bytes) -> Request:
    """Decode a client's request.

    Raises:
        RequestRefused: the request cannot be used; `param` is the path of the field.
    """
    try:
        fields = as_object(body)
    except MalformedJson as error:
        raise RequestRefused(f"body: {error.message}") from error
    return _read_fields(fields)


def _read_metadata(fields: Fields, key: str) -> Raw | None:
    return None if ask_object(fields, key) is None else fields[key]


_CACHE_OPTIONS = "prompt_cache_options"
_CACHE_RETENTION = "prompt_cache_retention"


def _read_cache(fields: Fields, _key: str) -> CacheSettings | None:
    return read_settings("responses", fields, _CACHE_OPTIONS, _CACHE_RETENTION)


def _write_cache(settings: CacheSettings) -> JsonObject:
    written = {_CACHE_OPTIONS: write_options(settings), _CACHE_RETENTION: settings.retention}
    return {name: value for name, value in written.items() if value is not None}


def _read_include(fields: Fields, key: str) -> tuple[str, ...]:
    return read_texts(fields[key]) if ask_list(fields, key) else ()


SETTINGS = SettingTable(
    {
        "parallel_tool_calls": ("parallel_calls", ask_bool),
        "max_output_tokens": ("max_tokens", ask_int),
        "temperature": ("temperature", ask_number),
        "top_p": ("top_p", ask_number),
        "top_logprobs": ("top_logprobs", ask_int),
        "user": ("user", ask_text),
        "safety_identifier": ("safety_id", ask_text),
        "prompt_cache_key": ("cache_key", ask_text),
        "metadata": ("metadata", _read_metadata),
        "service_tier": ("service_tier", ask_text),
        "previous_response_id": ("previous_id", ask_text),
        "store": ("store", ask_bool),
    },
    {
        "model": ("model", ask_text),
        "stream": ("stream", ask_bool),
        "tool_choice": ("tool_choice", read_choice),
        "reasoning": ("reasoning", read_reasoning),
        "include": ("include", _read_include),
        _CACHE_OPTIONS: ("cache", _read_cache),
        _CACHE_RETENTION: ("cache", _read_cache),
    },
    apart=("instructions", "input", "tools", "text"),
)
_NOTHING = DeclaredTools()


# Settings that the model has no fields for. An answer repeats them, so their types are checked.
_UNMODELLED: Mapping[str, Callable[[Fields, str], object]] = {
    "background": ask_bool,
    "frequency_penalty": ask_number,
    "max_tool_calls": ask_int,
    "presence_penalty": ask_number,
    "prompt": ask_object,
    "truncation": ask_text,
}
# What may stand in place of `input`: each of them names a conversation or a text that the server has.
_INSTEAD_OF_INPUT = ("previous_response_id", "prompt", "conversation")


def _read_fields(fields: Fields) -> Request:
    history = read_history(fields.get("input"))
    declared = read_declared(fields["tools"]) if "tools" in fields else _NOTHING
    settings, rest = SETTINGS.read(fields)
    for name in rest:
        if name in _UNMODELLED:
            _UNMODELLED[name](fields, name)
    if "include" in settings and LOGPROBS in read_texts(fields["include"]):
        settings["logprobs"] = True
    text = ask_object(fields, "text") if "text" in fields else None
    if text:
        settings["response_format"] = read_format(text)
        settings["verbosity"] = ask_text(text, "verbosity", "text")
        unknown = without(text, ("format", "verbosity"))
        if unknown:
            rest["text"] = Raw(dumps(unknown))
    instructions = ask_text(fields, "instructions")
    turns = history.turns
    if instructions is not None:
        turns = (Turn(role="system", parts=(Text(text=instructions),), head=True), *turns)
    if not history.turns or not settings.get("model"):
        _check_required(fields, settings)
    if CONTEXT_FIELD in rest:
        settings["compact_at"] = read_compact_at(rest[CONTEXT_FIELD])
    return make_request(
        turns=turns,
        # If nothing is added, keep the same list: it may be a cached one.
        tools=(*declared.tools, *history.tools) if history.tools else declared.tools,
        namespaces=(*declared.namespaces, *history.namespaces),
        extra=Extra("responses", rest),  # never None: it marks the dialect of the request
        **settings,
    )


def _check_required(fields: Fields, settings: Mapping[str, object]) -> None:
    if not settings.get("model") and not is_present(fields.get("prompt")):
        need_text(fields, "model", "")  # only a stored prompt may name the model
    if not is_present(fields.get("input")) and not any(
        is_present(fields.get(name)) for name in _INSTEAD_OF_INPUT
    ):
        refuse("input", "a string or an array", fields.get("input"))


# --- repeating -------------------------------------------------------------------------------------------------------


# Bytes or characters of one setting. A stream repeats it three times, and a request may have 64 MiB; the tools and the
# instructions of coding agents have 200 KiB together.
MAX_ECHO = 1024 * 1024


def asks_for_background(request: Request) -> bool:
    """Whether the answer goes on without its client, who polls it."""
    extra = request.extra
    if extra is None or extra.dialect != "responses" or "background" not in extra.fields:
        return False
    return bytes(extra.fields["background"]).strip() == b"true"


def without_background(request: Request) -> Request:
    """Return the request for an upstream whose answer is awaited."""
    extra = request.extra
    if extra is None or extra.dialect != "responses" or "background" not in extra.fields:
        return request
    return replace(request, extra=Extra("responses", without(extra.fields, ("background",))))


def repeated_tools(request: Request, book: LossBook) -> Raw | None:
    """Return the tools as the answer to a request repeats them; None if there are none, or too many."""
    if not request.tools and not request.namespaces:
        return None
    tools = echo_tools(request, MAX_ECHO)
    if tools is None:
        book.note("echo", "tools")
    return tools


def settings_key(request: Request) -> tuple[object, ...] | None:
    """Return all that `echo_settings` depends on; None if that is more than the settings that most requests state.

    The key of a request with a raw value in one of its settings cannot be hashed.
    """
    extra = request.extra
    if extra is not None and extra.fields and extra.dialect == "responses":
        return None
    return (
        _stated_instructions(request),
        request.tool_choice,
        request.reasoning,
        request.response_format,
        request.verbosity,
        request.cache,
        *SETTINGS.values(request),
    )


def echo_settings(request: Request, book: LossBook) -> JsonObject:
    """Return the settings that a request states, except its tools, as the answer to it repeats them."""
    out = SETTINGS.write(request)
    if out.get("service_tier") == "auto":
        del out["service_tier"]  # an answer names the tier that was used
    instructions = _stated_instructions(request)
    if instructions is not None:
        out["instructions"] = instructions
    if request.tool_choice is not None:
        out["tool_choice"] = echo_choice(request.tool_choice)
    if request.reasoning is not None:
        settings = request.reasoning
        own = own_fields("responses", settings.extra)
        out["reasoning"] = {"effort": settings.effort, "summary": settings.summary, **own}
    if request.cache is not None:
        out |= _write_cache(request.cache)
    own = own_fields("responses", request.extra)
    if request.response_format is not None or request.verbosity is not None or "text" in own:
        out["text"] = _echo_text(request)
    for name in own.keys() & (_UNMODELLED.keys() | {"conversation"}):
        if is_present(own.get(name)):
            out[name] = _echo_conversation(own[name]) if name == "conversation" else own[name]
    for name in [name for name, value in out.items() if _is_too_large(value)]:
        del out[name]
        book.note("echo", name)
    return out


def _echo_conversation(value: Raw) -> object:
    """A request names a conversation by its id alone, or in an object; an answer always in an object."""
    name = read_text(value)
    return value if name is None else {"id": name}


def _is_too_large(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > MAX_ECHO
    if isinstance(value, Raw):
        return len(bytes(value)) > MAX_ECHO
    return isinstance(value, dict) and any(map(_is_too_large, cast("JsonObject", value).values()))


def _stated_instructions(request: Request) -> str | None:
    first = request.turns[0] if request.turns else None
    if first is None or not first.head:
        return None
    parts = first.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return parts[0].text
    return "".join([part.text for part in parts if isinstance(part, Text)])


def _echo_text(request: Request) -> JsonObject:
    own = own_fields("responses", request.extra)
    form = request.response_format
    out: JsonObject = {"format": {"type": "text"}, "verbosity": request.verbosity or "medium"}
    if form is not None:
        fields: JsonObject = {"type": form.kind}
        if form.kind == "json_schema":
            fields["description"] = form.description
            fields["name"] = form.name or _DEFAULT_NAME
            fields["schema"] = form.schema
            fields["strict"] = form.strict is True
        out["format"] = {**fields, **own_fields("responses", form.extra)}
    return {**out, **read_object(own.get("text"))}


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """Encode the request for a Responses upstream.

    Raises:
        RequestRefused: the policy refuses to drop something.
    """
    book = LossBook(LOSSES, policy)
    is_native = request.extra is not None and request.extra.dialect == "responses"
    shared: Fields = {}
    compacting: Fields = {}
    if not is_native:
        compacting = write_context(request, target)
        request = in_order_of_loading(request)
    if not is_native and request.extra is not None and request.extra.fields:
        shared = _shared_fields(request.extra)
        note_request_fields(book, request.extra, shared)
    offered = request.tools
    if is_native and target.deferred_tools is False:
        request = declare_plainly(request, book)
    turns, repairs = _pair_turns(request)
    names = NameMap.build(offered, _used(turns), target.names, flatten=False)
    body: JsonObject = {"model": request.model}
    instructions = instructions_of(turns, book)
    if instructions is not None:
        body["instructions"] = instructions
    later: dict[ToolKey, JsonObject] = {}
    if target.deferred_tools and not is_native:
        request, later = declare_later(request, names, target, book)
    body["input"] = InputItemWriter(
        names, target, book, offered, is_native=is_native, later=later
    ).write(turns)
    tools = write_tools(request, names, target, book, is_native=is_native)
    if tools is not None:
        body["tools"] = tools
    if request.tool_choice is not None:
        body["tool_choice"] = write_choice(request.tool_choice, names, book)
    own = request.extra.fields if is_native and request.extra is not None else {}
    body |= _write_settings(request, own, target, book, is_native=is_native)
    _note_absent(request, book)
    body |= shared
    body |= compacting
    if own:
        body |= {key: own[key] for key in own if key not in body and key != "text"}
    losses = book.losses if book.noted else ()
    return EncodedRequest(dumps(body), names, losses, repairs, request.stop)


def find_repairs(request: Request) -> tuple[Repair, ...]:
    """Return what servers refuse in a request of this dialect, and `encode_request` repairs."""
    return _pair_turns(request)[1]


def _pair_turns(request: Request) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """Return the conversation with its calls and results paired, and the repairs."""
    is_native = request.extra is not None and request.extra.dialect == "responses"
    turns = _settled(request.turns) if is_native else request.turns
    if is_paired(turns):
        return turns, ()
    return pair_results(turns, continues=_continues(request))


def _settled(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Mark outputs that name a tool but no call (Codex sends them) so that pairing leaves them in place."""
    for turn in turns:
        if turn.role == "tool":
            break
    else:
        return turns
    return tuple(
        replace(
            turn,
            parts=tuple(
                replace(part, executor="gateway")
                if isinstance(part, Result) and not part.call_id and part.name is not None
                else part
                for part in turn.parts
            ),
        )
        if turn.role == "tool"
        else turn
        for turn in turns
    )


def _continues(request: Request) -> bool:
    """Return whether the provider stores earlier turns, so that a result may answer a call that is not here."""
    stored = {"conversation", "prompt"} & set(own_fields("responses", request.extra))
    references = any(
        isinstance(part, Opaque) and part.type in ("item_reference", "compaction")
        for turn in request.turns
        for part in turn.parts
    )
    return request.previous_id is not None or bool(stored) or references


def _shared_fields(extra: Extra) -> Fields:
    """Return the fields of a Chat request that this API has too, with the same values."""
    if extra.dialect != "chat":
        return {}
    return {name: extra.fields[name] for name in _SHARED if name in extra.fields}


def _used(turns: tuple[Turn, ...]) -> list[ToolKey]:
    return [
        (part.namespace, part.name) for turn in turns for part in turn.parts if type(part) is Call
    ]


def _note_absent(request: Request, book: LossBook) -> None:
    _note_unsaid(request, book)
    if request.choices is not None and request.choices > 1:
        book.note("choices", "n", str(request.choices))
