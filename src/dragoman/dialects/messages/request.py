"""Requests, both ways.

Reading takes what the clients of this dialect send; fields without a home ride in `extra`. Writing makes a request the
vendor accepts out of any other dialect's: pairing, names, schemas and thinking are settled here, and whatever cannot be
said is a declared loss. `NORMALISED` lists what reading and writing in this dialect does not bring back as it was.

A request as nearly all are is read by its type alone, which saves 5 to 10 percent of a small request; one that says anything
else is read field by field. Where both can read it they say the same.

Reasoning settings that came in this dialect carry an `extra` of it, even an empty one, and are written back as they came.
Settings of other dialects say an effort in a word; it becomes a budget of tokens.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, raw, typed_decoder
from dragoman.core.aliases import NameMap
from dragoman.core.effort import budget_from_effort
from dragoman.core.fields import (
    NULL,
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_object,
    ask_text,
    is_present,
    own_fields,
    present,
    read_object,
    read_text,
    refuse,
    without,
)
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import merge_turns, pair_results
from dragoman.core.plain import has_seldom_settings
from dragoman.core.schemas import SchemaRules, fix_schema
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.messages.blocks import part_of
from dragoman.dialects.messages.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.messages.render import Block
from dragoman.dialects.messages.tools import (
    allowed_tools,
    read_choice,
    read_tool_list,
    read_tools,
    write_choice,
    write_tools,
)
from dragoman.dialects.messages.turns import (
    Conversation,
    PartWriter,
    read_turns,
    settled,
    split_user,
)
from dragoman.dialects.messages.wire import MAPPED_FIELDS, THINKING_TYPES, TypedBlock, TypedRequest
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra, Part, Text
from dragoman.model.request import ReasoningSettings, Request, ResponseFormat, Turn

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
    if plain.system is not None:
        system = _content(plain.system)
        if system is None:
            return None
        if system:
            turns.append(Turn(role="system", parts=system, head=True))
    for message in plain.messages:
        parts = _content(message.content)
        if parts is None:
            return None
        if message.role == "user":
            turns += split_user(parts)
        else:
            turns.append(Turn(role="assistant", parts=parts))
    return Request(
        model=plain.model or "",
        turns=tuple(turns),
        tools=() if plain.tools == NULL else read_tool_list(plain.tools),
        stream=plain.stream,
        max_tokens=plain.max_tokens,
        temperature=plain.temperature,
        user=None if plain.metadata is None else plain.metadata.user_id,
    )


def _content(content: str | list[TypedBlock]) -> tuple[Part, ...] | None:
    if isinstance(content, str):
        return (Text(text=content),)
    parts = tuple(settled(part_of(block)) for block in content)
    is_nameless = any(type(part) is Call and not part.name for part in parts)
    return None if is_nameless else parts


MIN_BUDGET = 1024  # the vendor's least
_DEFAULT_EFFORT = "medium"


def read_reasoning(request: Fields) -> ReasoningSettings | None:
    """`thinking` and the effort in `output_config`."""
    thinking = ask_object(request, "thinking")
    output = ask_object(request, "output_config") or {}
    effort = ask_text(output, "effort", "output_config")
    if thinking is None:
        if effort is None:
            return None
        return ReasoningSettings(effort=effort, extra=Extra("messages", {}))
    kind = ask_text(thinking, "type", "thinking")
    if kind not in THINKING_TYPES:
        raise RequestRefused(
            f"thinking.type: expected one of {', '.join(sorted(THINKING_TYPES))}, got {kind or 'nothing'}",
            param="thinking.type",
        )
    fields = without(present(thinking), MAPPED_FIELDS["thinking"])
    if kind == "between_tools":
        fields["type"] = thinking["type"]
    is_on = kind != "disabled"
    is_shown = read_text(thinking.get("display")) != "omitted"
    return ReasoningSettings(
        enabled=is_on,
        effort=effort,
        budget=ask_int(thinking, "budget_tokens", "thinking"),
        adaptive=kind == "adaptive",
        # Thoughts are shown here unless a client does not want them; elsewhere they must be asked for.
        summary="auto" if is_on and is_shown else None,
        extra=Extra("messages", fields),
    )


def read_format(request: Fields) -> ResponseFormat | None:
    """The format of the answer, from either of the two places it has had."""
    output = ask_object(request, "output_config") or {}
    for where, key, fields in (("output_config", "format", output), ("", "output_format", request)):
        wanted = ask_object(fields, key, where)
        if wanted is None:
            continue
        schema = wanted.get("schema")
        is_schema = read_text(wanted.get("type")) == "json_schema" and is_present(schema)
        return ResponseFormat(
            kind="json_schema" if is_schema else "other",
            schema=schema if is_schema else None,
            extra=Extra("messages", {key: fields[key]}),
        )
    return None


class Plan(Struct, frozen=True):
    """What is sent about thinking. `budget`: tokens it takes out of max_tokens, 0 if the vendor decides."""

    thinking: Block | None = None
    effort: str | None = None
    budget: int = 0

    @property
    def is_on(self) -> bool:
        return self.thinking is not None and self.thinking["type"] != "disabled"


def plan_thinking(
    settings: ReasoningSettings | None,
    max_tokens: int | None,
    book: LossBook,
    *,
    lacks_thinking: bool,
) -> Plan:
    """How to ask for thinking. `lacks_thinking`: the history forbids it, see `Conversation.lacks_thinking`."""
    if settings is None:
        return Plan()
    note_foreign(book, settings.extra, "reasoning")
    is_own = settings.extra is not None and settings.extra.dialect == "messages"
    plan = _own_plan(settings) if is_own else _foreign_plan(settings, max_tokens, book)
    # With adaptive thinking the vendor does not ask for it.
    if lacks_thinking and plan.thinking is not None and plan.thinking["type"] == "enabled":
        book.note("thinking_off", "thinking", "no signed thinking before the last calls")
        return Plan({"type": "disabled"}, plan.effort)
    return plan


def _own_plan(settings: ReasoningSettings) -> Plan:
    own = own_fields("messages", settings.extra)
    if settings.enabled is None:
        return Plan(effort=settings.effort)
    if not settings.enabled:
        return Plan({"type": "disabled", **own}, settings.effort)
    if settings.adaptive or settings.budget is None:
        return Plan({"type": "adaptive", **own}, settings.effort)
    thinking: Block = {"type": "enabled", "budget_tokens": settings.budget, **own}
    return Plan(thinking, settings.effort, settings.budget)


def _foreign_plan(settings: ReasoningSettings, max_tokens: int | None, book: LossBook) -> Plan:
    if settings.summary not in (None, "auto"):
        book.note("reasoning_summary", "reasoning", settings.summary)
    if settings.adaptive:
        return Plan({"type": "adaptive"})
    budget = settings.budget
    if budget is None and (settings.enabled or settings.effort is not None):
        budget = budget_from_effort(settings.effort or _DEFAULT_EFFORT)
    if settings.enabled is False or (budget is None and settings.effort is not None):
        return Plan({"type": "disabled"})
    if budget is None:
        return Plan()
    budget = max(budget, MIN_BUDGET)
    if max_tokens is not None and budget >= max_tokens:
        if max_tokens <= MIN_BUDGET:
            book.note("thinking_off", "thinking", f"max_tokens is {max_tokens}")
            return Plan({"type": "disabled"})
        # Half for the thoughts: the answer must have room too.
        budget = max(MIN_BUDGET, max_tokens // 2)
    return Plan({"type": "enabled", "budget_tokens": budget}, budget=budget)


def write_format(wanted: ResponseFormat | None, rules: SchemaRules, book: LossBook) -> Fields:
    """The fields of the format: `format` for `output_config`, or `output_format` where it came from there."""
    if wanted is None:
        return {}
    own = own_fields("messages", wanted.extra)
    if own:
        return dict(own)
    note_foreign(book, wanted.extra, "response_format")
    if wanted.kind == "text":
        return {}
    if wanted.kind != "json_schema" or wanted.schema is None:
        book.note("response_format", "response_format", wanted.kind)
        return {}
    details = [name for name in ("name", "description") if getattr(wanted, name) is not None]
    if wanted.strict is False:
        details.append("strict")
    if details:
        book.note("format_details", "response_format", ", ".join(details))
    closing = SchemaRules(drop=rules.drop, require_object=False, close_strict=True)
    schema, _, _ = fix_schema(wanted.schema, closing, strict=True)
    return {"format": Raw(b'{"type":"json_schema","schema":' + bytes(schema) + b"}")}


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
    plain = read_typed(body) if TYPED_FIELDS.issuperset(fields) else None
    return _read_fields(fields) if plain is None else plain


def _read_fields(fields: Fields) -> Request:
    choice, parallel = read_choice(fields)
    metadata = ask_object(fields, "metadata") or {}
    tier = ask_text(fields, "service_tier")
    stops = ask_list(fields, "stop_sequences") or []
    return Request(
        model=ask_text(fields, "model") or "",
        turns=read_turns(fields),
        tools=read_tools(fields),
        tool_choice=choice,
        parallel_calls=parallel,
        stream=ask_bool(fields, "stream"),
        max_tokens=ask_int(fields, "max_tokens"),
        temperature=ask_number(fields, "temperature"),
        top_p=ask_number(fields, "top_p"),
        top_k=ask_int(fields, "top_k"),
        stop=tuple(_stop(stop, f"stop_sequences.{index}") for index, stop in enumerate(stops)),
        response_format=read_format(fields),
        reasoning=read_reasoning(fields),
        user=ask_text(metadata, "user_id", "metadata"),
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
    own = dict(own_fields("messages", request.extra))
    if not own:
        note_request_fields(book, request.extra)
    note_namespaces(book, request.namespaces, note_foreign)
    continues = _continues(own)
    paired, pairing = pair_results(request.turns, continues=continues)
    turns, merging = merge_turns(paired)
    calls = [part for turn in turns for part in turn.parts if isinstance(part, Call)]
    used = [(call.namespace, call.name) for call in calls if call.executor == "client"]
    names = NameMap.build(request.tools, used, target.names)
    conversation = Conversation(PartWriter(names, target, book), book, continues=continues)
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
    return pair_results(request.turns, continues=_continues(own_fields("messages", request.extra)))


def _stop(value: Raw, path: str) -> str:
    text = read_text(value)
    return refuse(path, "a string", value) if text is None else text


def _extra(fields: Fields, metadata: Fields) -> Extra | None:
    rest = without(present(fields), MAPPED_FIELDS["request"])
    output = read_object(fields.get("output_config"))
    for key, source in (("metadata", metadata), ("output_config", output)):
        unknown = without(present(source), MAPPED_FIELDS[key]) if source else None
        if unknown:
            rest[key] = raw(unknown)
    return Extra("messages", rest) if rest else None


def asks_for_thread(request: Request) -> bool:
    """Whether the client leaves the history to the server, by a message thread."""
    return "thread" in own_fields("messages", request.extra)


def _continues(own: Mapping[str, Raw]) -> bool:
    """Whether the vendor holds the turns before these (a message thread)."""
    return read_text(read_object(own.get("thread")).get("type")) == "continue"


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


def _output(
    request: Request, plan: Plan, target: Target, own: dict[str, Raw], book: LossBook
) -> Block:
    out: Block = {}
    if plan.thinking is not None:
        out["thinking"] = plan.thinking
    wanted = write_format(request.response_format, target.schemas, book)
    config: Block = {**read_object(own.pop("output_config", None))}
    if plan.effort is not None:
        config["effort"] = plan.effort
    if "format" in wanted:
        config["format"] = wanted["format"]
    if config:
        out["output_config"] = config
    if "output_format" in wanted:
        out["output_format"] = wanted["output_format"]
    return out


def _about(request: Request, own: dict[str, Raw], book: LossBook) -> Block:
    """Who asks, at which tier, and whether as a stream."""
    out: Block = {}
    metadata: Block = {**read_object(own.pop("metadata", None))}
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
