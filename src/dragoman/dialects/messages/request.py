"""Reads and writes requests.

The reader takes what clients of this dialect send; fields that `Request` does not have are kept in `extra`. The writer turns
a request of any dialect into one that the vendor accepts: it settles pairing, names, schemas and thinking, and notes
everything that it cannot express as a loss. `docs/dialects/messages.md` lists what changes when a request is read and
written again.

Reasoning settings that came in this dialect have an `extra` of this dialect, even an empty one, and are written unchanged.
Settings of other dialects have an effort, which becomes a budget of tokens.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct

from dragoman._json import Raw, dumps_document, raw
from dragoman.core.aliases import NameMap, ToolKey
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_object,
    ask_text,
    is_present,
    need_text,
    own_fields,
    present,
    read_object,
    read_present,
    read_text,
    refuse,
    without,
)
from dragoman.core.loaded_tools import in_order_of_loading
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import merge_turns, pair_results
from dragoman.core.request_settings import (
    SettingTable,
    budget_from_effort,
    make_request,
    note_include,
    request_fields,
    unsaid_noter,
)
from dragoman.core.schemas import SchemaRules, fix_schema
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.messages.breakpoints import NO_CHANGE
from dragoman.dialects.messages.context_management import (
    EDITS_FIELD,
    compaction_betas,
    read_compact_at,
    write_compact_edit,
)
from dragoman.dialects.messages.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.messages.render import Block
from dragoman.dialects.messages.tools import (
    allowed_tools,
    find_loaded,
    read_added,
    read_choice,
    read_parallel,
    read_tools,
    write_choice,
    write_tools,
)
from dragoman.dialects.messages.turns import (
    MessageListWriter,
    RequestBlockWriter,
    find_refused,
    is_native_system,
    lacks_thinking,
    read_turns,
)
from dragoman.dialects.messages.wire import (
    CACHE_CONTROL,
    DEFERRED_BETA,
    MAPPED_FIELDS,
    MAPPED_THINKING,
)
from dragoman.model.outcome import LossAction, Repair
from dragoman.model.parts import Call, Extra
from dragoman.model.request import (
    CacheSettings,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Tool,
    Turn,
)

MIN_BUDGET = 1024  # the vendor's minimum
_DEFAULT_EFFORT = "medium"


def read_reasoning(request: Fields, _key: str) -> ReasoningSettings | None:
    """Read `thinking`, and the effort in `output_config`."""
    thinking = ask_object(request, "thinking")
    effort = ask_text(ask_object(request, "output_config") or {}, "effort", "output_config")
    if thinking is None:
        if effort is None:
            return None
        return ReasoningSettings(effort=effort, extra=Extra("messages", {}))
    kind = need_text(thinking, "type", "thinking")
    fields = without(present(thinking), MAPPED_FIELDS["thinking"])
    if kind not in MAPPED_THINKING:  # a new one must not end the turn of its client
        fields["type"] = thinking["type"]
    is_on = kind != "disabled"
    is_shown = read_text(thinking.get("display")) != "omitted"
    return ReasoningSettings(
        enabled=is_on,
        effort=effort,
        budget=ask_int(thinking, "budget_tokens", "thinking"),
        adaptive=kind == "adaptive",
        # This dialect shows thinking unless the client omits it; the others show it only on request.
        summary="auto" if is_on and is_shown else None,
        extra=Extra("messages", fields),
    )


def read_format(request: Fields) -> ResponseFormat | None:
    """Read the format of the answer, from either of its two places (`output_format` is the older)."""
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


class ThinkingPlan(Struct, frozen=True):
    """The fields to send for thinking. `budget`: tokens that thinking takes out of max_tokens, 0 if the vendor decides."""

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
) -> ThinkingPlan:
    """Return the fields for thinking. `lacks_thinking`: the history forbids it, see `turns.lacks_thinking`."""
    if settings is None:
        return ThinkingPlan()
    note_foreign(book, settings.extra, "reasoning")
    is_own = settings.extra is not None and settings.extra.dialect == "messages"
    plan = _own_plan(settings) if is_own else _foreign_plan(settings, max_tokens, book)
    # With adaptive thinking the vendor does not require a thinking block before the last calls.
    if lacks_thinking and plan.thinking is not None and plan.thinking["type"] == "enabled":
        book.note("thinking_off", "thinking", _UNSIGNED)
        return ThinkingPlan({"type": "disabled"}, plan.effort)
    return plan


def _own_plan(settings: ReasoningSettings) -> ThinkingPlan:
    own = own_fields("messages", settings.extra)
    if settings.enabled is None:
        return ThinkingPlan(effort=settings.effort)
    if not settings.enabled:
        return ThinkingPlan({"type": "disabled", **own}, settings.effort)
    if settings.adaptive or settings.budget is None:
        return ThinkingPlan({"type": "adaptive", **own}, settings.effort)
    thinking: Block = {"type": "enabled", "budget_tokens": settings.budget, **own}
    return ThinkingPlan(thinking, settings.effort, settings.budget)


def _foreign_plan(
    settings: ReasoningSettings, max_tokens: int | None, book: LossBook
) -> ThinkingPlan:
    if settings.summary not in (None, "auto"):
        book.note("reasoning_summary", "reasoning", settings.summary)
    if settings.adaptive:
        return ThinkingPlan({"type": "adaptive"})
    budget = settings.budget
    if budget is None and (settings.enabled or settings.effort is not None):
        budget = budget_from_effort(settings.effort or _DEFAULT_EFFORT)
    if settings.enabled is False or (budget is None and settings.effort is not None):
        return ThinkingPlan({"type": "disabled"})
    if budget is None:
        return ThinkingPlan()
    budget = max(budget, MIN_BUDGET)
    if max_tokens is not None and budget >= max_tokens:
        if max_tokens <= MIN_BUDGET:
            book.note("thinking_off", "thinking", f"max_tokens is {max_tokens}")
            return ThinkingPlan({"type": "disabled"})
        # Thinking gets half: the answer must have room too.
        budget = max(MIN_BUDGET, max_tokens // 2)
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, budget=budget)


def write_format(wanted: ResponseFormat | None, rules: SchemaRules, book: LossBook) -> Fields:
    """Write the format: `format` for `output_config`, or `output_format` if it came from there."""
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


# Settings of other dialects that this dialect does not have.
_note_unsaid = unsaid_noter(
    {
        "presence_penalty": ("presence_penalty", "presence_penalty"),
        "frequency_penalty": ("frequency_penalty", "frequency_penalty"),
        "seed": ("seed", "seed"),
        "choices": ("choices", "n"),
        "logprobs": ("logprobs", "logprobs"),
        "logit_bias": ("logit_bias", "logit_bias"),
        "verbosity": ("verbosity", "verbosity"),
        "cache_key": ("cache_key", "prompt_cache_key"),
        "store": ("store", "store"),
        "previous_id": ("previous_id", "previous_response_id"),
        "top_logprobs": ("logprobs", "top_logprobs"),
    }
)
# The vendor's names of service tiers, and those of the other dialects.
_TIERS: Mapping[str, str] = {"standard_only": "default"}
_TIER_NAMES: Mapping[str, str] = {"auto": "auto", "default": "standard_only"}
_UNSIGNED = "no signed thinking before the last calls"
_ENCRYPTED = "reasoning.encrypted_content"  # this vendor always sends its seals


def decode_request(body: bytes) -> Request:
    """Read a request of this dialect.

    Raises:
        RequestRefused: the request is malformed; `param` says where.
    """
    return _read_fields(request_fields(body))


def check_request(request: Request) -> None:
    """Refuse a request without a message or a limit; its tokens can be counted without a limit.

    Raises:
        RequestRefused: one of them is missing.
    """
    if request.max_tokens is None:
        refuse("max_tokens", "an integer", None)
    if not request.turns or request.turns[-1].head:
        refuse("messages", "at least one message", None)


def _read_limit(fields: Fields, key: str) -> int | None:
    limit = ask_int(fields, key)
    # The vendor takes 0 to fill its cache without an answer.
    if limit is not None and limit < 0:
        refuse(key, "at least 0", fields[key])
    return limit


def _read_stop(fields: Fields, key: str) -> tuple[str, ...]:
    stops = ask_list(fields, key) or []
    return tuple(_stop(stop, f"{key}.{index}") for index, stop in enumerate(stops))


def _stop(value: Raw, path: str) -> str:
    text = read_text(value)
    return refuse(path, "a string", value) if text is None else text


def _read_user(fields: Fields, key: str) -> str | None:
    return ask_text(ask_object(fields, key) or {}, "user_id", key)


def _read_cache(fields: Fields, key: str) -> CacheSettings | None:
    ask_object(fields, key)
    point = CACHE_CONTROL.read(fields[key])
    return None if point is None else CacheSettings(last=point)


# The user ids of Claude Code: a JSON object since version 2, before that words joined by underscores.
_SESSION = re.compile(r"user_.*_session_([0-9A-Za-z-]+)")
_MAX_SESSION = 64  # characters; OpenAI's limit of a cache key


def session_of(user: str) -> str | None:
    """The id of a session of Claude Code, from the user id that it sends."""
    if user.startswith("{"):
        session = read_text(read_object(user.encode("utf-8", "replace")).get("session_id"))
    else:
        found = _SESSION.fullmatch(user)
        session = None if found is None else found[1]
    return session if session and len(session) <= _MAX_SESSION else None


def _read_tier(fields: Fields, key: str) -> str | None:
    tier = ask_text(fields, key)
    return tier if tier is None else _TIERS.get(tier, tier)


SETTINGS = SettingTable(
    {
        "temperature": ("temperature", ask_number),
        "top_p": ("top_p", ask_number),
        "top_k": ("top_k", ask_int),
    },
    {
        "stream": ("stream", ask_bool),
        "model": ("model", ask_text),
        "max_tokens": ("max_tokens", _read_limit),
        "tools": ("tools", read_tools),
        "tool_choice": ("tool_choice", read_choice),
        "stop_sequences": ("stop", _read_stop),
        "thinking": ("reasoning", read_reasoning),
        "output_config": ("reasoning", read_reasoning),
        "metadata": ("user", _read_user),
        "service_tier": ("service_tier", _read_tier),
        "cache_control": ("cache", _read_cache),
    },
    apart=("messages", "system", "output_format"),
)


def _read_fields(fields: Fields) -> Request:
    settings, rest = SETTINGS.read(fields)
    if "output_config" in fields or "output_format" in fields:
        settings["response_format"] = read_format(fields)
    if "tool_choice" in fields:
        settings["parallel_calls"] = read_parallel(fields)
    for key in ("metadata", "output_config"):
        unknown = without(read_present(fields[key]), MAPPED_FIELDS[key]) if key in fields else None
        if unknown:
            rest[key] = raw(unknown)
    user = settings.get("user")
    if isinstance(user, str):
        settings["session"] = session_of(user)
    extra = present(rest) if rest else rest
    if EDITS_FIELD in extra:
        settings["compact_at"] = read_compact_at(extra[EDITS_FIELD])
    turns = read_turns(fields)
    native = [turn for turn in turns if turn.extra is not None and is_native_system(turn)]
    added = read_added(native) if native else ()
    if added:
        settings["tools"] = (*cast("tuple[Tool, ...]", settings.get("tools", ())), *added)
    return make_request(turns=turns, extra=Extra("messages", extra) if extra else None, **settings)


def _used(turns: Sequence[Turn]) -> list[ToolKey]:
    """The tools that the client's calls name."""
    calls = [part for turn in turns for part in turn.parts if isinstance(part, Call)]
    return [(call.namespace, call.name) for call in calls if call.executor == "client"]


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """Write a request as this vendor accepts it.

    Raises:
        RequestRefused: it contains what this dialect cannot express and the policy refuses to lose.
    """
    book = LossBook(LOSSES, policy)
    own = dict(own_fields("messages", request.extra))
    if not own:
        edit = write_compact_edit(request, target)
        note_request_fields(book, request.extra, edit)
        own |= edit
    note_namespaces(book, request.namespaces, note_foreign)
    request = request if target.deferred_tools is not False else in_order_of_loading(request)
    continues = _continues(own)
    paired, pairing = pair_results(request.turns, continues=continues)
    turns, merging = merge_turns(paired)
    names = NameMap.build(request.tools, _used(turns), target.names)
    loaded = find_loaded(request.tools, turns, target)
    conversation = MessageListWriter(
        RequestBlockWriter(names, target, book, request.tools, loaded),
        book,
        continues=continues,
        system_messages=target.system_messages,
    )
    conversation.take(turns)
    offered = allowed_tools(request.tools, request.tool_choice)
    tools = write_tools(offered, names, target, book, loaded)
    points = conversation.settle_breakpoints(request.cache, len(tools.labels), tools.points)
    if points is not NO_CHANGE:
        tools = write_tools(offered, names, target, book, loaded, points)
    choice = write_choice(
        request.tool_choice, tools.labels, names, book, parallel=request.parallel_calls
    )
    plan = plan_thinking(
        request.reasoning, request.max_tokens, book, lacks_thinking=lacks_thinking(turns)
    )
    plan, choice = _settle_choice(plan, choice, book)
    fields: Block = {"model": request.model, "max_tokens": _max_tokens(request, target, plan)}
    if (system := conversation.system) is not None:
        fields["system"] = system
    fields["messages"] = conversation.messages
    if tools.source is not None:
        fields["tools"] = tools.source
    if choice is not None:
        fields["tool_choice"] = choice
    fields.update(_sampling(request, plan, book))
    fields.update(_output(request, plan, target, own, book))
    fields.update(_about(request, own, book))
    _note_unsaid(request, book)
    note_include(request, book, given=(_ENCRYPTED,))
    repairs = (*pairing, *merging, *conversation.repairs, *tools.repairs)
    betas = (*((DEFERRED_BETA,) if loaded else ()), *compaction_betas(own))
    fields |= own
    return EncodedRequest(dumps_document(fields), names, book.losses, repairs, betas=betas)


def find_repairs(request: Request) -> tuple[Repair, ...]:
    """Return what the vendor refuses in a request of this dialect, and `encode_request` repairs."""
    continues = _continues(own_fields("messages", request.extra))
    found = [*pair_results(request.turns, continues=continues)[1], *find_refused(request.turns)]
    settings = request.reasoning
    if settings is not None and settings.enabled and lacks_thinking(request.turns):
        plan = _own_plan(settings)
        if plan.thinking is not None and plan.thinking["type"] == "enabled":
            found.append(Repair("thinking_off", "thinking", _UNSIGNED))
    return tuple(found)


def asks_for_thread(request: Request) -> bool:
    """Whether the client uses a message thread, which leaves the history to the server."""
    extra = request.extra
    return extra is not None and "thread" in extra.fields and extra.dialect == "messages"


def _continues(own: Mapping[str, Raw]) -> bool:
    """Whether the vendor stores the earlier turns (a message thread)."""
    return read_text(read_object(own.get("thread")).get("type")) == "continue"


def _settle_choice(
    plan: ThinkingPlan, choice: Block | None, book: LossBook
) -> tuple[ThinkingPlan, Block | None]:
    """Resolve the conflict between a forced choice and thinking, which the vendor refuses together."""
    if not plan.is_on or choice is None or choice["type"] not in ("any", "tool"):
        return plan, choice
    if book.note("forced_choice_with_thinking", "tool_choice", str(choice["type"])) == "carry":
        return ThinkingPlan({"type": "disabled"}, plan.effort), choice
    rest = {key: value for key, value in choice.items() if key not in ("type", "name")}
    return plan, {"type": "auto", **rest}


def _max_tokens(request: Request, target: Target, plan: ThinkingPlan) -> int:
    if request.max_tokens is not None:
        return request.max_tokens
    return target.default_max_tokens + plan.budget


def _sampling(request: Request, plan: ThinkingPlan, book: LossBook) -> Block:
    out = SETTINGS.write(request)
    if request.temperature is not None and request.temperature > 1:
        book.note("temperature_range", "temperature", str(request.temperature))
        out["temperature"] = 1.0
    for key in [*out] if plan.is_on else ():
        if not _is_allowed_while_thinking(key, out[key]):
            book.note("sampling_with_thinking", key, str(out.pop(key)))
    stops = [stop for stop in request.stop if stop.strip()]
    if len(stops) < len(request.stop):
        book.note("stop_sequence", "stop_sequences")
    if stops:
        out["stop_sequences"] = stops
    return out


def _is_allowed_while_thinking(key: str, value: object) -> bool:
    is_high = isinstance(value, (int, float)) and value >= 0.95
    return (key == "temperature" and value == 1) or (key == "top_p" and is_high)


def _output(
    request: Request, plan: ThinkingPlan, target: Target, own: dict[str, Raw], book: LossBook
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
    """Write the user, the service tier, `stream` and the automatic cache breakpoint."""
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
    if request.cache is not None and request.cache.last is not None:
        out["cache_control"] = CACHE_CONTROL.write(request.cache.last)
    return out
