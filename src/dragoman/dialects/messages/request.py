"""Requests, both ways.

Reading takes what the clients of this dialect send; fields without a home ride in `extra`. Writing makes a request the
vendor accepts out of any other dialect's: pairing, names, schemas and thinking are settled here, and whatever cannot be
said is a declared loss. `NORMALISED` lists what reading and writing in this dialect does not bring back as it was.
"""

from collections.abc import Mapping

from dragoman._json import Raw, as_object, dumps_document, raw
from dragoman.core.aliases import NameMap
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import merge_turns, pair_results
from dragoman.core.plain import has_seldom_settings
from dragoman.dialects.base import EncodedRequest, Target
from dragoman.dialects.messages.checks import (
    ask_array,
    ask_flag,
    ask_integer,
    ask_number,
    ask_object,
    ask_string,
    refuse,
)
from dragoman.dialects.messages.conversation import Conversation
from dragoman.dialects.messages.fields import Fields, object_of, own_fields, string_of
from dragoman.dialects.messages.history import read_turns
from dragoman.dialects.messages.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.messages.plain_request import PLAIN_FIELDS, read_plain
from dragoman.dialects.messages.render import Block, own_extra
from dragoman.dialects.messages.retelling import Reteller
from dragoman.dialects.messages.thinking import (
    Plan,
    plan_thinking,
    read_format,
    read_reasoning,
    write_format,
)
from dragoman.dialects.messages.tools import (
    allowed_tools,
    read_choice,
    read_tools,
    write_choice,
    write_tools,
)
from dragoman.dialects.messages.wire import MAPPED_FIELDS
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra
from dragoman.model.request import Request, Turn

__all__ = ("NORMALISED", "decode_request", "encode_request", "pair_turns")

NORMALISED: Mapping[str, str] = {
    "nulls": "a field that is null is left out",
    "single_text": "content that is one plain text block becomes a string",
    "same_role": "neighbouring messages of one role become one",
    "results_first": "tool results stand before other content of their message",
    "empty_text": "a text of white space only is left out; a user message without content says `.`",
    "empty_result": "a tool result without content has no `content`, one that is no error no `is_error`",
    "tool_type": "the type `custom` of a tool is left out",
    "parallel": "`disable_parallel_tool_use: false`, the default, is left out",
    "unsigned_thinking": "a thinking block without a signature is left out",
    "invalid_input": "an `input` that is a string is read as the text of the input",
    "trailing_whitespace": "white space at the end of a final assistant text is left out",
    "max_tokens": "a missing `max_tokens` is filled in",
}
"""What a request is not given back as it came, by `encode_request(decode_request(body))`."""

# What the vendor calls its tiers, and what the others do.
_TIERS: Mapping[str, str] = {"standard_only": "default"}
_TIER_NAMES: Mapping[str, str] = {"auto": "auto", "default": "standard_only"}
_ENCRYPTED = "reasoning.encrypted_content"  # this vendor always gives its seals


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
    return _read_fields(fields) if plain is None else plain


def _read_fields(fields: Fields) -> Request:
    choice, parallel = read_choice(fields)
    metadata = ask_object(fields, "metadata") or {}
    tier = ask_string(fields, "service_tier")
    stops = ask_array(fields, "stop_sequences") or []
    return Request(
        model=ask_string(fields, "model") or "",
        turns=read_turns(fields),
        tools=read_tools(fields),
        tool_choice=choice,
        parallel_calls=parallel,
        stream=ask_flag(fields, "stream"),
        max_tokens=ask_integer(fields, "max_tokens"),
        temperature=ask_number(fields, "temperature"),
        top_p=ask_number(fields, "top_p"),
        top_k=ask_integer(fields, "top_k"),
        stop=tuple(_stop(stop, f"stop_sequences.{index}") for index, stop in enumerate(stops)),
        response_format=read_format(fields),
        reasoning=read_reasoning(fields),
        user=ask_string(metadata, "user_id", "metadata."),
        service_tier=tier if tier is None else _TIERS.get(tier, tier),
        extra=_extra(fields, metadata),
    )


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """The request as this vendor accepts it.

    Raises:
        RequestRefused: it says what cannot be said here and the policy refuses to lose it.
    """
    book = LossBook(LOSSES, policy)
    own = dict(own_extra(request.extra))
    if not own:
        note_request_fields(book, request.extra)
    note_namespaces(book, request.namespaces, note_foreign)
    continues = _continues(own)
    paired, pairing = pair_results(request.turns, continues=continues)
    turns, merging = merge_turns(paired)
    calls = [part for turn in turns for part in turn.parts if isinstance(part, Call)]
    used = [(call.namespace, call.name) for call in calls if call.executor == "client"]
    names = NameMap.build(request.tools, used, target.names)
    conversation = Conversation(Reteller(names, target, book), book, continues=continues)
    conversation.take(turns)
    offered = allowed_tools(request.tools, request.tool_choice)
    tools = write_tools(offered, names, target, book)
    choice = write_choice(
        request.tool_choice, tools.labels, names, book, parallel=request.parallel_calls
    )
    plan = plan_thinking(
        request.reasoning, request.max_tokens, book, lacks_thinking=conversation.lacks_thinking
    )
    plan, choice = _settle_choice(plan, choice, book)
    fields: Block = {"model": request.model, "max_tokens": _max_tokens(request, target, plan)}
    system = conversation.system
    if system is not None:
        fields["system"] = system
    fields["messages"] = conversation.messages
    if tools.source is not None:
        fields["tools"] = tools.source
    if choice is not None:
        fields["tool_choice"] = choice
    fields.update(_sampling(request, plan, book))
    fields.update(_output(request, plan, target, own, book))
    fields.update(_about(request, own, book))
    if has_seldom_settings(request):
        _note_unsaid(request, book)
    body = dumps_document({**fields, **own})
    repairs = (*pairing, *merging, *conversation.repairs, *tools.repairs)
    return EncodedRequest(body, names, book.losses, repairs)


def pair_turns(request: Request) -> tuple[tuple[Turn, ...], tuple[Repair, ...]]:
    """The conversation with its calls and results paired, and what was done to it."""
    return pair_results(request.turns, continues=_continues(own_extra(request.extra)))


def _stop(value: Raw, path: str) -> str:
    text = string_of(value)
    return refuse(path, "a string", value) if text is None else text


def _extra(fields: Fields, metadata: Fields) -> Extra | None:
    rest = own_fields(fields, MAPPED_FIELDS["request"])
    output = object_of(fields.get("output_config")) or {}
    for key, source in (("metadata", metadata), ("output_config", output)):
        unknown = own_fields(source, MAPPED_FIELDS[key]) if source else None
        if unknown:
            rest[key] = raw(unknown)
    return Extra("messages", rest) if rest else None


def _continues(own: Mapping[str, Raw]) -> bool:
    """Whether the vendor holds the turns before these (a message thread)."""
    thread = object_of(own.get("thread"))
    return thread is not None and string_of(thread.get("type")) == "continue"


def _settle_choice(plan: Plan, choice: Block | None, book: LossBook) -> tuple[Plan, Block | None]:
    """A forced choice and thinking exclude each other."""
    if not plan.is_on or choice is None or choice["type"] not in ("any", "tool"):
        return plan, choice
    if book.note("forced_choice_with_thinking", "tool_choice", str(choice["type"])) == "carry":
        return Plan({"type": "disabled"}, plan.effort), choice
    rest = {key: value for key, value in choice.items() if key not in ("type", "name")}
    return plan, {"type": "auto", **rest}


def _max_tokens(request: Request, target: Target, plan: Plan) -> int:
    if request.max_tokens is not None:
        return request.max_tokens
    return target.default_max_tokens + plan.budget


def _sampling(request: Request, plan: Plan, book: LossBook) -> Block:
    out: Block = {}
    temperature = request.temperature
    if temperature is not None and temperature > 1:
        book.note("temperature_range", "temperature", str(temperature))
        temperature = 1.0
    wanted: dict[str, float | None] = {
        "temperature": temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
    }
    for key, value in wanted.items():
        if value is None:
            continue
        if plan.is_on and not _is_allowed_while_thinking(key, value):
            book.note("sampling_with_thinking", key, str(value))
        else:
            out[key] = value
    stops = [stop for stop in request.stop if stop.strip()]
    if len(stops) < len(request.stop):
        book.note("stop_sequence", "stop_sequences")
    if stops:
        out["stop_sequences"] = stops
    return out


def _is_allowed_while_thinking(key: str, value: float) -> bool:
    return (key == "temperature" and value == 1) or (key == "top_p" and value >= 0.95)


def _output(request: Request, plan: Plan, target: Target, own: Fields, book: LossBook) -> Block:
    out: Block = {}
    if plan.thinking is not None:
        out["thinking"] = plan.thinking
    wanted = write_format(request.response_format, target.schemas, book)
    config: Block = {**(object_of(own.pop("output_config", None)) or {})}
    if plan.effort is not None:
        config["effort"] = plan.effort
    if "format" in wanted:
        config["format"] = wanted["format"]
    if config:
        out["output_config"] = config
    if "output_format" in wanted:
        out["output_format"] = wanted["output_format"]
    return out


def _about(request: Request, own: Fields, book: LossBook) -> Block:
    """Who asks, at which tier, and whether as a stream."""
    out: Block = {}
    metadata: Block = {**(object_of(own.pop("metadata", None)) or {})}
    if request.user is not None and request.safety_id not in (None, request.user):
        book.note("user_id", "user")
    user = request.safety_id or request.user
    if user is not None:
        metadata["user_id"] = user
    if request.metadata is not None:
        book.note("metadata", "metadata")
    if metadata:
        out["metadata"] = metadata
    if request.service_tier is not None:
        tier = _TIER_NAMES.get(request.service_tier)
        if tier is None:
            book.note("service_tier", "service_tier", request.service_tier)
        else:
            out["service_tier"] = tier
    if request.stream is not None:
        out["stream"] = request.stream
    return out


# Where a client said it, if that is not where the code says.
_ASKED_AS = {
    "cache_key": "prompt_cache_key",
    "choices": "n",
    "previous_id": "previous_response_id",
}


def _note_unsaid(request: Request, book: LossBook) -> None:
    """What other dialects can ask for and this one cannot."""
    asked: Mapping[str, bool] = {
        "presence_penalty": bool(request.presence_penalty),
        "frequency_penalty": bool(request.frequency_penalty),
        "seed": request.seed is not None,
        "choices": request.choices is not None and request.choices > 1,
        "logprobs": bool(request.logprobs),
        "logit_bias": request.logit_bias is not None,
        "verbosity": request.verbosity is not None,
        "cache_key": request.cache_key is not None,
        "store": bool(request.store),
        "previous_id": request.previous_id is not None,
    }
    for code, is_asked in asked.items():
        if is_asked:
            book.note(code, _ASKED_AS.get(code, code))
    if request.top_logprobs:
        book.note("logprobs", "top_logprobs")
    include = [name for name in request.include if name != _ENCRYPTED]
    if include:
        book.note("include", "include", ", ".join(include))
