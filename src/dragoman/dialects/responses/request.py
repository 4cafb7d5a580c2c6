"""Requests, both ways.

Reading refuses what cannot be used and keeps what it does not know. Writing says everything the Responses API has a word
for; the rest is a Loss. A request that came in this dialect goes out as it came but for `NORMALISED`.

A request as nearly all are is read by its type alone, which saves 5 to 10 percent of a small request; one that says anything
else is read field by field. Where both can read it they say the same.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps, typed_decoder
from dragoman.core.aliases import NameMap, short_user
from dragoman.core.effort import effort_from_budget
from dragoman.core.fields import (
    NULL,
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_object,
    ask_text,
    extra_of,
    own_fields,
    read_object,
    read_texts,
    without,
)
from dragoman.core.losses import LossBook, note_request_fields
from dragoman.core.pairing import is_paired, pair_results
from dragoman.core.plain import has_seldom_settings
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.responses.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.responses.tools import (
    Declared,
    read_choice,
    read_declared,
    write_choice,
    write_tools,
)
from dragoman.dialects.responses.turns import (
    Conversation,
    instructions_of,
    read_history,
    turn_of,
)
from dragoman.dialects.responses.wire import TypedRequest
from dragoman.dialects.responses.writing import JsonObject
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra, Opaque, Result, Text
from dragoman.model.request import ReasoningSettings, Request, ResponseFormat, ToolChoice, Turn

_NOTHING = Declared()


TYPED_FIELDS = frozenset(TypedRequest.__struct_fields__)
"""With any other field a request is not plain; to find that out by reading it would cost as much again."""
_decode = typed_decoder(TypedRequest)


def read_typed(body: bytes) -> Request | None:
    """The request, which is known to be UTF-8; None if a closer look is needed.

    Raises:
        RequestRefused: one of its tools cannot be used.
    """
    try:
        plain = _decode(body)
    except FAST_FAILURES:
        return None
    turns: list[Turn] = []
    if plain.instructions is not None:
        turns.append(Turn(role="system", parts=(Text(text=plain.instructions),), head=True))
    if isinstance(plain.input, str):
        turns.append(Turn(role="user", parts=(Text(text=plain.input),)))
    else:
        for item in plain.input:
            turn = turn_of(item)
            if turn is None:
                return None
            turns.append(turn)
    declared = _NOTHING if plain.tools == NULL else read_declared(plain.tools)
    mode = plain.tool_choice
    return Request(
        model=plain.model or "",
        turns=tuple(turns),
        tools=declared.tools,
        namespaces=declared.namespaces,
        tool_choice=None if mode is None else ToolChoice(mode=mode),
        parallel_calls=plain.parallel_tool_calls,
        stream=plain.stream,
        max_tokens=plain.max_output_tokens,
        temperature=plain.temperature,
        store=plain.store,
        extra=Extra("responses", {}),
    )


ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
MIN_OUTPUT_TOKENS = 16  # OpenAI answers 400 below; some clients ask for 1 token to test a key

_SERVICE_TIERS = {
    "standard_only": "default",  # Anthropic's word for it
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


def read_reasoning(fields: Fields) -> ReasoningSettings | None:
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


def write_settings(request: Request, book: LossBook, *, is_native: bool) -> JsonObject:
    out: JsonObject = {
        "parallel_tool_calls": request.parallel_calls,
        "stream": request.stream,
        "max_output_tokens": request.max_tokens if is_native else _max_tokens(request, book),
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_logprobs": request.top_logprobs,
        "text": _text(request, book),
        "reasoning": _reasoning(request.reasoning, book),
        "user": request.user if is_native else _user(request, book),
        "safety_identifier": request.safety_id,
        "prompt_cache_key": request.cache_key,
        "metadata": request.metadata,
        "service_tier": request.service_tier if is_native else _service_tier(request, book),
        "previous_response_id": request.previous_id,
        **_write_state(request, is_native=is_native),
    }
    return {key: value for key, value in out.items() if value is not None}


def write_usual(request: Request, book: LossBook) -> JsonObject:
    """The same for a request of another dialect that has no seldom settings."""
    out: JsonObject = {}
    if request.parallel_calls is not None:
        out["parallel_tool_calls"] = request.parallel_calls
    if request.stream is not None:
        out["stream"] = request.stream
    if request.max_tokens is not None:
        out["max_output_tokens"] = _max_tokens(request, book)
    if request.temperature is not None:
        out["temperature"] = request.temperature
    out["store"] = False
    return out


def _user(request: Request, book: LossBook) -> str | None:
    user = request.user
    if user is None or short_user(user) == user:
        return user
    return short_user(user) if book.note("long_user", "user") == "carry" else None


def _max_tokens(request: Request, book: LossBook) -> int | None:
    limit = request.max_tokens
    if limit is not None and limit < MIN_OUTPUT_TOKENS:
        book.note("min_tokens", "max_tokens", str(limit))
        return MIN_OUTPUT_TOKENS
    return limit


def _text(request: Request, book: LossBook) -> JsonObject | None:
    out: JsonObject = {}
    form = request.response_format
    if form is not None:
        note_foreign(book, form.extra, "response_format")
        written = _format(form, book)
        if written is not None:
            out["format"] = written
    if request.verbosity is not None:
        out["verbosity"] = request.verbosity
    out.update(read_object(own_fields("responses", request.extra).get("text")))
    return out or None


def _format(form: ResponseFormat, book: LossBook) -> JsonObject | None:
    own = own_fields("responses", form.extra)
    if form.kind == "other":
        if not own:
            book.note("response_format", "response_format")
        return dict(own) or None
    out: JsonObject = {"type": form.kind}
    if form.kind == "json_schema":
        # The API demands a name; Chat's own default for the same thing is this word.
        out["name"] = form.name or "response"
        out["schema"] = {} if form.schema is None else form.schema
        if form.description is not None:
            out["description"] = form.description
        if form.strict is not None:
            out["strict"] = form.strict
    return {**out, **own}


def _reasoning(settings: ReasoningSettings | None, book: LossBook) -> JsonObject | None:
    if settings is None:
        return None
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
    # Thinking that is left to the model is what happens without a word.
    return {**stated, **own} if stated or own or (is_own and settings.enabled is None) else None


def _service_tier(request: Request, book: LossBook) -> str | None:
    tier = request.service_tier
    if tier is not None and tier not in _SERVICE_TIERS:
        book.note("unknown_field", "service_tier", tier)
    return None if tier is None else _SERVICE_TIERS.get(tier)


def _write_state(request: Request, *, is_native: bool) -> JsonObject:
    """What the provider keeps and gives back. Other dialects keep nothing, so nothing is to be kept for them."""
    store = request.store if is_native else bool(request.store)
    include = list(request.include)
    thinks = request.reasoning
    is_thinking = (
        thinks is not None
        and thinks.enabled is not False
        and (is_native or bool(thinks.enabled or thinks.effort or thinks.budget))
    )
    if store is False and is_thinking and ENCRYPTED not in include:
        include.append(ENCRYPTED)
    if request.logprobs and LOGPROBS not in include:
        include.append(LOGPROBS)
    out: JsonObject = {}
    if store is not None:
        out["store"] = store
    if include:
        out["include"] = include
    return out


NORMALISED: Mapping[str, str] = {
    # what a request that came in this dialect does not keep
    "input": "a string becomes one user message",
    "message.type": "written although it may be left out",
    "message.content": "one plain text is a string, except in an assistant's message with an id, where it is a list",
    "message.id": "left out where it does not begin with msg_",
    "output_text.annotations": "written although empty",
    "output_text.logprobs": "left out when empty",
    "input_image.detail": "auto where it was left out",
    "output": "one plain text is a string",
    "null": "a field that is null is left out",
    "tools": "an empty list is left out",
    "namespace": "members of one namespace stand together, an empty one comes last; the description is never left out",
    "parameters": "null where a function has none",
}

_FIELDS = frozenset(
    {
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    }
)
# OpenAI's other API has them too, and here they may say all that they may say there.
_SHARED = ("moderation", "prompt_cache_options", "prompt_cache_retention")


# --- reading ---------------------------------------------------------------------------------------------------------


def decode_request(body: bytes) -> Request:
    """What a client asks for.

    Raises:
        RequestRefused: it cannot be used; `param` is the path of the field.
    """
    try:
        fields = as_object(body)
    except MalformedJson as error:
        raise RequestRefused(f"body: {error.message}") from error
    plain = read_typed(body) if TYPED_FIELDS.issuperset(fields) else None
    return _read_fields(fields) if plain is None else plain


def _read_fields(fields: Fields) -> Request:
    history = read_history(fields.get("input"))
    declared = read_declared(fields.get("tools"))
    include = _include(fields)
    text = ask_object(fields, "text") or {}
    return Request(
        model=ask_text(fields, "model") or "",
        turns=(*_instructions(fields), *history.turns),
        # The very list that was read, where nothing is added: it may be one that is remembered.
        tools=(*declared.tools, *history.tools) if history.tools else declared.tools,
        namespaces=(*declared.namespaces, *history.namespaces),
        tool_choice=read_choice(fields.get("tool_choice")),
        parallel_calls=ask_bool(fields, "parallel_tool_calls"),
        stream=ask_bool(fields, "stream"),
        max_tokens=ask_int(fields, "max_output_tokens"),
        temperature=ask_number(fields, "temperature"),
        top_p=ask_number(fields, "top_p"),
        logprobs=True if LOGPROBS in include else None,
        top_logprobs=ask_int(fields, "top_logprobs"),
        response_format=read_format(text),
        reasoning=read_reasoning(fields),
        verbosity=ask_text(text, "verbosity", "text"),
        user=ask_text(fields, "user"),
        safety_id=ask_text(fields, "safety_identifier"),
        cache_key=ask_text(fields, "prompt_cache_key"),
        metadata=_metadata(fields),
        service_tier=ask_text(fields, "service_tier"),
        store=ask_bool(fields, "store"),
        previous_id=ask_text(fields, "previous_response_id"),
        include=include,
        extra=_extra(fields, text),
    )


def _extra(fields: Fields, text: Fields) -> Extra:
    """Never None, so that a request shows which dialect it came in."""
    extra = without(fields, _FIELDS)
    rest = without(text, ("format", "verbosity"))
    if rest:
        extra["text"] = Raw(dumps(rest))
    return Extra("responses", extra)


def _instructions(fields: Fields) -> tuple[Turn, ...]:
    text = ask_text(fields, "instructions")
    if text is None:
        return ()
    return (Turn(role="system", parts=(Text(text=text),), head=True),)


def _include(fields: Fields) -> tuple[str, ...]:
    ask_list(fields, "include")
    return read_texts(fields.get("include"))


def _metadata(fields: Fields) -> Raw | None:
    return None if ask_object(fields, "metadata") is None else fields["metadata"]


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """The request for a Responses upstream.

    Raises:
        RequestRefused: the policy refuses to leave something out.
    """
    book = LossBook(LOSSES, policy)
    is_native = request.extra is not None and request.extra.dialect == "responses"
    shared: Fields = {} if is_native else _shared_fields(request.extra)
    if not is_native:
        note_request_fields(book, request.extra, shared)
    turns, repairs = pair_turns(request)
    names = NameMap.build(request.tools, _used(turns), target.names, flatten=False)
    body: JsonObject = {"model": request.model}
    instructions = instructions_of(turns, book)
    if instructions is not None:
        body["instructions"] = instructions
    body["input"] = Conversation(names, target, book, is_native=is_native).write(turns)
    tools = write_tools(request, names, target, book, is_native=is_native)
    if tools is not None:
        body["tools"] = tools
    if request.tool_choice is not None:
        body["tool_choice"] = write_choice(request.tool_choice, names, book)
    is_seldom = has_seldom_settings(request) or is_native
    body |= (
        write_settings(request, book, is_native=is_native)
        if is_seldom
        else write_usual(request, book)
    )
    if is_seldom:
        _note_absent(request, book)
    body |= shared
    own = own_fields("responses", request.extra)
    if own:
        body |= {key: own[key] for key in own if key not in body and key != "text"}
    return EncodedRequest(dumps(body), names, book.losses, repairs)


def pair_turns(request: Request) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """The conversation with its calls and results paired, and what was done to it."""
    is_native = request.extra is not None and request.extra.dialect == "responses"
    turns = _settled(request.turns) if is_native else request.turns
    if is_paired(turns):
        return turns, ()
    return pair_results(turns, continues=_continues(request))


def _settled(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Outputs that name their tool and no call (Codex sends them) answer nothing and stay where they are."""
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
    """Whether the provider holds earlier turns, so that a result may answer a call that is not here."""
    stored = {"conversation", "prompt"} & set(own_fields("responses", request.extra))
    references = any(
        isinstance(part, Opaque) and part.type in ("item_reference", "compaction")
        for turn in request.turns
        for part in turn.parts
    )
    return request.previous_id is not None or bool(stored) or references


def _shared_fields(extra: Extra | None) -> Fields:
    """What a Chat request says in the very words of this API."""
    if extra is None or extra.dialect != "chat" or not extra.fields:
        return {}
    return {name: extra.fields[name] for name in _SHARED if name in extra.fields}


def _used(turns: tuple[Turn, ...]) -> list[tuple[str | None, str]]:
    return [
        (part.namespace, part.name)
        for turn in turns
        for part in turn.parts
        if isinstance(part, Call)
    ]


def _note_absent(request: Request, book: LossBook) -> None:
    absent: dict[str, object] = {
        "frequency_penalty": request.frequency_penalty,
        "logit_bias": request.logit_bias,
        "presence_penalty": request.presence_penalty,
        "seed": request.seed,
        "top_k": request.top_k,
    }
    for code, value in absent.items():
        if value is not None:
            book.note(code, code)
    if request.stop:
        book.note("stop_sequences", "stop", f"{len(request.stop)} of them")
    if request.choices is not None and request.choices > 1:
        book.note("choices", "n", str(request.choices))
