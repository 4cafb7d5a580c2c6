"""How the model shall think and in which form it shall answer: `thinking`, `output_config`, `output_format`.

Settings that came in this dialect carry an `extra` of it, even an empty one, and are written back as they came. Settings
of other dialects say an effort in a word; it becomes a budget of tokens.
"""

from msgspec import Struct

from dragoman._json import Raw
from dragoman.core.effort import budget_from_effort
from dragoman.core.losses import LossBook
from dragoman.core.schemas import SchemaRules, fix_schema
from dragoman.dialects.messages.checks import ask_integer, ask_object, ask_string
from dragoman.dialects.messages.fields import Fields, is_null, own_fields, string_of
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import Block, own_extra
from dragoman.dialects.messages.wire import MAPPED_FIELDS, THINKING_TYPES
from dragoman.errors import RequestRefused
from dragoman.model.parts import Extra
from dragoman.model.request import ReasoningSettings, ResponseFormat

__all__ = ("Plan", "plan_thinking", "read_format", "read_reasoning", "write_format")

MIN_BUDGET = 1024  # the vendor's least
_DEFAULT_EFFORT = "medium"


def read_reasoning(request: Fields) -> ReasoningSettings | None:
    """`thinking` and the effort in `output_config`."""
    thinking = ask_object(request, "thinking")
    output = ask_object(request, "output_config") or {}
    effort = ask_string(output, "effort", "output_config.")
    if thinking is None:
        if effort is None:
            return None
        return ReasoningSettings(effort=effort, extra=Extra("messages", {}))
    kind = ask_string(thinking, "type", "thinking.")
    if kind not in THINKING_TYPES:
        raise RequestRefused(
            f"thinking.type: expected one of {', '.join(sorted(THINKING_TYPES))}, got {kind or 'nothing'}",
            param="thinking.type",
        )
    fields = own_fields(thinking, MAPPED_FIELDS["thinking"])
    if kind == "between_tools":
        fields["type"] = thinking["type"]
    is_on = kind != "disabled"
    is_shown = string_of(thinking.get("display")) != "omitted"
    return ReasoningSettings(
        enabled=is_on,
        effort=effort,
        budget=ask_integer(thinking, "budget_tokens", "thinking."),
        adaptive=kind == "adaptive",
        # Thoughts are shown here unless a client does not want them; elsewhere they must be asked for.
        summary="auto" if is_on and is_shown else None,
        extra=Extra("messages", fields),
    )


def read_format(request: Fields) -> ResponseFormat | None:
    """The format of the answer, from either of the two places it has had."""
    output = ask_object(request, "output_config") or {}
    for place, fields in (("output_config.format", output), ("output_format", request)):
        key = place.rpartition(".")[2]
        wanted = ask_object(fields, key, place.removesuffix(key))
        if wanted is None:
            continue
        schema = wanted.get("schema")
        is_schema = string_of(wanted.get("type")) == "json_schema" and not is_null(schema)
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
    own = own_extra(settings.extra)
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
    own = own_extra(wanted.extra)
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
