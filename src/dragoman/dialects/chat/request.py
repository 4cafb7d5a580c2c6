"""Requests, both ways.

Reading takes what clients of Chat Completions send, OpenAI's fields and the extensions of other servers; fields without
a home ride in `extra`, which also distinguishes a request of this dialect from others. Writing makes a request of any dialect
one that a Chat server accepts. `NORMALISED` lists what reading and writing in this dialect does not give back as it was.

A request as nearly all are is read by its type alone, which saves 5 to 10 percent of a small request; one that says anything
else is read field by field. Where both can read it they say the same.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, typed_decoder
from dragoman.core.aliases import NameMap, short_user
from dragoman.core.effort import effort_from_budget
from dragoman.core.fields import (
    NULL,
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_present,
    ask_text,
    extra_of,
    join_object,
    own_fields,
    present,
    read_fragment,
    read_present,
    refuse,
)
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import merge_turns, pair_results
from dragoman.core.plain import has_seldom_settings
from dragoman.dialects.chat.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.chat.tools import ToolWriter, named_tools, read_choice, read_list, read_tools
from dragoman.dialects.chat.turns import MessageWriter, read_turns, turn_of, wire_name
from dragoman.dialects.chat.wire import LEGACY_CHOICE, LEGACY_TOOLS, TypedRequest
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra
from dragoman.model.request import ReasoningSettings, Request, ResponseFormat, ToolChoice, Turn

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
    for message in plain.messages:
        turn = turn_of(message)
        if turn is None:
            return None
        turns.append(turn)
    if not turns:
        return None
    mode = plain.tool_choice
    options = plain.stream_options
    return Request(
        model=plain.model or "",
        turns=tuple(turns),
        tools=() if plain.tools == NULL else read_list(plain.tools),
        tool_choice=None if mode is None else ToolChoice(mode=mode),
        parallel_calls=plain.parallel_tool_calls,
        stream=plain.stream,
        include_usage=None if options is None else options.include_usage,
        max_tokens=plain.max_tokens,
        temperature=plain.temperature,
        extra=Extra("chat", {}),
    )


_OUTER = "response_format"  # under which fields beside `json_schema` are kept
_SCHEMA_FIELDS = frozenset({"name", "description", "schema", "strict"})
_REASONING_FIELDS = frozenset({"effort", "max_tokens", "enabled"})


def read_format(fields: Fields) -> ResponseFormat | None:
    """`response_format`. A type that nobody knows is kept whole."""
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


def write_format(form: ResponseFormat | None, book: LossBook) -> dict[str, object]:
    if form is None:
        return {}
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


def read_reasoning(fields: Fields) -> ReasoningSettings | None:
    """`reasoning_effort`, or OpenRouter's `reasoning`."""
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


def write_reasoning(settings: ReasoningSettings | None, book: LossBook) -> dict[str, object]:
    """An effort. That there should be no reasoning at all is not said: few models take `none`."""
    if settings is None:
        return {}
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


NORMALISED: Mapping[str, str] = {
    "nulls": "a field that is null is left out",
    "single_text": "content that is one plain text part becomes a string, an empty list an empty string",
    "no_content": "an assistant message without text has the content null beside calls, else an empty string",
    "refusal_part": "a refusal among an assistant's content parts becomes the field `refusal`",
    "same_role": "neighbouring assistant messages become one",
    "pairing": "results stand directly after their calls, one for each (see the repairs)",
    "argument_place": "arguments beside `function`, or as an object, become the string inside it",
    "empty_arguments": "empty arguments become {}",
    "call_type": "a call without a type gets it",
    "flat_tool": "a tool or a choice in the flat form of Responses gets the nested one",
    "image_string": "an `image_url` that is a string becomes an object",
    "schemas": "schemas, and strict flags that they do not deserve, are fixed for the target",
    "custom_tools": "custom tools become functions, unless the target has `custom`",
    "single_stop": "a list of one stop sequence becomes a string",
    "choice_without_tools": "`tool_choice` and `parallel_tool_calls` are left out where there are no tools",
    "message_cache": "a cache breakpoint on a message replaces that on its last part",
    "choice_words": "`any` becomes `required`",
}
"""What a request is not given back as it came, by `encode_request(decode_request(body))`."""

MAPPED = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        LEGACY_TOOLS,
        LEGACY_CHOICE,
        "parallel_tool_calls",
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "n",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "stop",
        "response_format",
        "reasoning_effort",
        "reasoning",
        "verbosity",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "metadata",
        "service_tier",
        "store",
    }
)
"""Fields with a home. `max_completion_tokens` has one too, but which of the two names a client used is kept."""

_SELDOM = MAPPED - {
    "model",
    "messages",
    "tools",
    "tool_choice",
    LEGACY_TOOLS,
    LEGACY_CHOICE,
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
}


def decode_request(body: bytes) -> Request:
    """A request of this dialect.

    Raises:
        RequestRefused: it cannot be understood; `param` says where.
    """
    try:
        body.decode("utf-8")
        fields = as_object(body, is_utf8=True)
    except UnicodeDecodeError as error:
        raise RequestRefused(f"expected UTF-8: {error}", code="invalid_json") from error
    except MalformedJson as error:
        raise RequestRefused(error.message, code="invalid_json") from error
    plain = read_typed(body) if TYPED_FIELDS.issuperset(fields) else None
    return _read_fields(present(fields)) if plain is None else plain


def _read_fields(fields: Fields) -> Request:
    messages = ask_list(fields, "messages")
    if not messages:
        refuse("messages", "at least one message", fields.get("messages"))
    options = ask_present(fields, "stream_options") or {}
    limit = ask_int(fields, "max_tokens")
    newer = ask_int(fields, "max_completion_tokens")
    request = Request(
        model=ask_text(fields, "model") or "",
        turns=read_turns(messages),
        tools=read_tools(fields),
        tool_choice=read_choice(fields),
        parallel_calls=ask_bool(fields, "parallel_tool_calls"),
        stream=ask_bool(fields, "stream"),
        include_usage=ask_bool(options, "include_usage", "stream_options"),
        max_tokens=limit if newer is None else newer,
        temperature=ask_number(fields, "temperature"),
        extra=Extra("chat", _read_extra(fields, options)),
    )
    # Each question costs a little, and most requests say nothing of all these.
    return request if _SELDOM.isdisjoint(fields) else _with_seldom(request, fields)


def _with_seldom(request: Request, fields: Fields) -> Request:
    return replace(
        request,
        top_p=ask_number(fields, "top_p"),
        top_k=ask_int(fields, "top_k"),
        presence_penalty=ask_number(fields, "presence_penalty"),
        frequency_penalty=ask_number(fields, "frequency_penalty"),
        seed=ask_int(fields, "seed"),
        choices=ask_int(fields, "n"),
        logprobs=ask_bool(fields, "logprobs"),
        top_logprobs=ask_int(fields, "top_logprobs"),
        logit_bias=fields.get("logit_bias"),
        stop=_read_stop(fields),
        response_format=read_format(fields),
        reasoning=read_reasoning(fields),
        verbosity=ask_text(fields, "verbosity"),
        user=ask_text(fields, "user"),
        safety_id=ask_text(fields, "safety_identifier"),
        cache_key=ask_text(fields, "prompt_cache_key"),
        metadata=fields.get("metadata"),
        service_tier=ask_text(fields, "service_tier"),
        store=ask_bool(fields, "store"),
    )


def _read_stop(fields: Fields) -> tuple[str, ...]:
    single = read_fragment(fields.get("stop"))
    if single is not None:
        return (single,)
    stops = ask_list(fields, "stop") or []
    texts = [read_fragment(raw) for raw in stops]
    for index, text in enumerate(texts):
        if text is None:
            refuse(f"stop[{index}]", "a string", stops[index])
    return tuple(text for text in texts if text is not None)


def _read_extra(fields: Fields, options: Fields) -> dict[str, Raw]:
    """Fields without a home; and those that are not every server's, to be written under the same name again."""
    rest = {name: raw for name, raw in fields.items() if name not in MAPPED}
    if "max_completion_tokens" in fields and "max_tokens" in fields:
        rest["max_tokens"] = fields["max_tokens"]
    if "top_k" in fields:
        rest["top_k"] = fields["top_k"]
    unknown = {name: raw for name, raw in options.items() if name != "include_usage"}
    if unknown:
        rest["stream_options"] = join_object(unknown)
    return rest


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """The request as a Chat server accepts it.

    Raises:
        RequestRefused: it says what cannot be said here and the policy refuses to lose it.
    """
    book = LossBook(LOSSES, policy)
    own = dict(own_fields("chat", request.extra))
    is_own = request.extra is not None and request.extra.dialect == "chat"
    if not is_own:
        note_request_fields(book, request.extra)
    note_namespaces(book, request.namespaces, note_foreign)
    paired, pairing = pair_turns(request)
    turns, merging = merge_turns(paired)
    used = [
        wire_name(part)
        for turn in turns
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "client"
    ]
    names = NameMap.build(named_tools(request.tools), used, target.names)
    messages = MessageWriter(names, target, book, is_own=is_own)
    tools = ToolWriter(names, target, book, is_own=is_own)
    fields: dict[str, object] = {"model": request.model, "messages": messages.write(turns)}
    fields |= tools.write(request.tools, request.tool_choice)
    if request.parallel_calls is not None and ("tools" in fields or LEGACY_TOOLS in fields):
        fields["parallel_tool_calls"] = request.parallel_calls
    fields |= _write_stream(request, own, is_own=is_own)
    fields |= _write_limits(request, own, target)
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if has_seldom_settings(request):
        fields |= _write_sampling(request, own, book)
        fields |= write_format(request.response_format, book)
        fields |= write_reasoning(request.reasoning, book)
        fields |= _write_about(request, book, is_own=is_own)
        _note_unsaid(request, book)
    repairs = (*pairing, *merging, *messages.repairs, *tools.repairs)
    return EncodedRequest(dumps_document(fields | own), names, book.losses, repairs)


def pair_turns(request: Request) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """The conversation with its calls and results paired, and what was done to it."""
    return pair_results(request.turns)


def _write_stream(request: Request, own: dict[str, Raw], *, is_own: bool) -> dict[str, object]:
    options: dict[str, object] = {**read_present(own.pop("stream_options", None))} if own else {}
    if request.include_usage is not None:
        options["include_usage"] = request.include_usage
    elif request.stream and not is_own:
        # The other dialects always report usage; Chat does only when asked.
        options["include_usage"] = True
    fields: dict[str, object] = {} if request.stream is None else {"stream": request.stream}
    return {**fields, "stream_options": options} if options else fields


def _write_limits(request: Request, own: dict[str, Raw], target: Target) -> dict[str, object]:
    """Nearly every server reads `max_tokens`; OpenAI's reasoning models insist on the newer name.

    A client that used the newer name means it, whatever the target reads by default.
    """
    if request.max_tokens is None:
        return {}
    newer = own.pop("max_completion_tokens", None)
    field = target.max_tokens_field if newer is None else "max_completion_tokens"
    return {field: request.max_tokens}


def _write_sampling(request: Request, own: dict[str, Raw], book: LossBook) -> dict[str, object]:
    stated: dict[str, object] = {
        "top_p": request.top_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "n": request.choices,
        "logprobs": request.logprobs,
        "top_logprobs": request.top_logprobs,
        "logit_bias": request.logit_bias,
    }
    if request.stop:
        stated["stop"] = request.stop[0] if len(request.stop) == 1 else request.stop
    if request.top_k is not None and (
        own.pop("top_k", None) is not None or book.note("top_k", "top_k") == "carry"
    ):
        stated["top_k"] = request.top_k
    return {name: value for name, value in stated.items() if value is not None}


def _write_about(request: Request, book: LossBook, *, is_own: bool) -> dict[str, object]:
    """What the request says about itself."""
    stated: dict[str, object] = {
        "verbosity": request.verbosity,
        "user": request.user if is_own else _user(request, book),
        "safety_identifier": request.safety_id,
        "prompt_cache_key": request.cache_key,
        "service_tier": request.service_tier,
    }
    if request.metadata is not None and (is_own or book.note("metadata", "metadata") == "carry"):
        stated["metadata"] = request.metadata
    if is_own or (request.store and book.note("store", "store") == "carry"):
        stated["store"] = request.store
    return {name: value for name, value in stated.items() if value is not None}


def _user(request: Request, book: LossBook) -> str | None:
    user = request.user
    if user is None or short_user(user) == user:
        return user
    return short_user(user) if book.note("long_user", "user") == "carry" else None


def _note_unsaid(request: Request, book: LossBook) -> None:
    if request.previous_id is not None:
        book.note("previous_response", "previous_response_id", request.previous_id)
    if request.include:
        book.note("include", "include", ", ".join(request.include))
