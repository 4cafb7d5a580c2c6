"""Requests, both ways.

Reading takes what clients of Chat Completions send, OpenAI's fields and the extensions of other servers; fields without
a home ride in `extra`, which also tells a request of this dialect from others. Writing makes a request of any dialect
one that a Chat server accepts. `NORMALISED` lists what reading and writing in this dialect does not give back as it was.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman._json import Raw, as_object, dumps_document
from dragoman.core.aliases import NameMap, short_user
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import merge_turns, pair_results
from dragoman.core.plain import has_seldom_settings
from dragoman.dialects.base import EncodedRequest, Target
from dragoman.dialects.chat.checks import (
    Fields,
    ask_array,
    ask_flag,
    ask_integer,
    ask_number,
    ask_object,
    ask_string,
    refuse,
)
from dragoman.dialects.chat.fields import fields_of, join_object, own_fields, present, text_of
from dragoman.dialects.chat.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.chat.output import read_format, read_reasoning, write_format, write_reasoning
from dragoman.dialects.chat.plain_request import PLAIN_FIELDS, read_plain
from dragoman.dialects.chat.read_tools import read_choice, read_tools
from dragoman.dialects.chat.read_turns import read_turns
from dragoman.dialects.chat.wire import LEGACY_CHOICE, LEGACY_TOOLS
from dragoman.dialects.chat.write_tools import ToolWriter, named_tools
from dragoman.dialects.chat.write_turns import MessageWriter, wire_name
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra
from dragoman.model.request import Request, Turn

__all__ = ("MAPPED", "NORMALISED", "decode_request", "encode_request", "pair_turns")

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
    plain = read_plain(body) if PLAIN_FIELDS.issuperset(fields) else None
    return _read_fields(present(fields)) if plain is None else plain


def _read_fields(fields: Fields) -> Request:
    messages = ask_array(fields, "messages")
    if not messages:
        refuse("messages", "at least one message", fields.get("messages"))
    options = ask_object(fields, "stream_options") or {}
    limit = ask_integer(fields, "max_tokens")
    newer = ask_integer(fields, "max_completion_tokens")
    request = Request(
        model=ask_string(fields, "model") or "",
        turns=read_turns(messages),
        tools=read_tools(fields),
        tool_choice=read_choice(fields),
        parallel_calls=ask_flag(fields, "parallel_tool_calls"),
        stream=ask_flag(fields, "stream"),
        include_usage=ask_flag(options, "include_usage", "stream_options."),
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
        top_k=ask_integer(fields, "top_k"),
        presence_penalty=ask_number(fields, "presence_penalty"),
        frequency_penalty=ask_number(fields, "frequency_penalty"),
        seed=ask_integer(fields, "seed"),
        choices=ask_integer(fields, "n"),
        logprobs=ask_flag(fields, "logprobs"),
        top_logprobs=ask_integer(fields, "top_logprobs"),
        logit_bias=fields.get("logit_bias"),
        stop=_read_stop(fields),
        response_format=read_format(fields),
        reasoning=read_reasoning(fields),
        verbosity=ask_string(fields, "verbosity"),
        user=ask_string(fields, "user"),
        safety_id=ask_string(fields, "safety_identifier"),
        cache_key=ask_string(fields, "prompt_cache_key"),
        metadata=fields.get("metadata"),
        service_tier=ask_string(fields, "service_tier"),
        store=ask_flag(fields, "store"),
    )


def _read_stop(fields: Fields) -> tuple[str, ...]:
    single = text_of(fields.get("stop"))
    if single is not None:
        return (single,)
    stops = ask_array(fields, "stop") or []
    texts = [text_of(raw) for raw in stops]
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
    own = dict(own_fields(request.extra))
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
    options: dict[str, object] = {**fields_of(own.pop("stream_options", None))} if own else {}
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
