"""What the answer should be like: its format and how much thought goes into it, both ways."""

from dragoman._json import Raw
from dragoman.core.effort import effort_from_budget
from dragoman.core.losses import LossBook
from dragoman.dialects.chat.checks import (
    Fields,
    ask_flag,
    ask_integer,
    ask_object,
    ask_string,
    refuse,
)
from dragoman.dialects.chat.fields import extra_of, fields_of, join_object, own_fields
from dragoman.dialects.chat.losses import note_foreign
from dragoman.model.parts import Extra
from dragoman.model.request import ReasoningSettings, ResponseFormat

__all__ = ("read_format", "read_reasoning", "write_format", "write_reasoning")

_OUTER = "response_format"  # under which fields beside `json_schema` are kept
_SCHEMA_FIELDS = frozenset({"name", "description", "schema", "strict"})
_REASONING_FIELDS = frozenset({"effort", "max_tokens", "enabled"})


def read_format(fields: Fields) -> ResponseFormat | None:
    """`response_format`. A type that nobody knows is kept whole."""
    form = ask_object(fields, "response_format")
    if form is None:
        return None
    kind = ask_string(form, "type", "response_format.")
    outer = extra_of(form, ("type", "json_schema"))
    rest = {} if outer is None else {_OUTER: join_object(outer.fields)}
    if kind == "text":
        return ResponseFormat(kind="text", extra=_joined(None, rest))
    if kind == "json_object":
        return ResponseFormat(kind="json_object", extra=_joined(None, rest))
    if kind != "json_schema":
        return ResponseFormat(kind="other", extra=Extra("chat", form))
    path = "response_format.json_schema"
    inner = ask_object(form, "json_schema", "response_format.")
    if inner is None:
        refuse(path, "an object", None)
    return ResponseFormat(
        kind="json_schema",
        name=ask_string(inner, "name", f"{path}."),
        description=ask_string(inner, "description", f"{path}."),
        schema=inner.get("schema"),
        strict=ask_flag(inner, "strict", f"{path}."),
        extra=_joined(extra_of(inner, _SCHEMA_FIELDS), rest),
    )


def _joined(extra: Extra | None, rest: dict[str, Raw]) -> Extra | None:
    return Extra("chat", {**own_fields(extra), **rest}) if rest else extra


def write_format(form: ResponseFormat | None, book: LossBook) -> dict[str, object]:
    if form is None:
        return {}
    own = own_fields(form.extra)
    note_foreign(book, form.extra, "response_format")
    if form.kind == "other":
        if own:
            return {"response_format": own}
        book.note("response_format", "response_format")
        return {}
    own = dict(own)
    outer = fields_of(own.pop(_OUTER, None))
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
    effort = ask_string(fields, "reasoning_effort")
    reasoning = ask_object(fields, "reasoning")
    if reasoning is None:
        return None if effort is None else ReasoningSettings(effort=effort)
    rest = {name: raw for name, raw in reasoning.items() if name not in _REASONING_FIELDS}
    return ReasoningSettings(
        enabled=ask_flag(reasoning, "enabled", "reasoning."),
        effort=ask_string(reasoning, "effort", "reasoning.") or effort,
        budget=ask_integer(reasoning, "max_tokens", "reasoning."),
        extra=Extra("chat", {"reasoning": join_object(rest)}),
    )


def write_reasoning(settings: ReasoningSettings | None, book: LossBook) -> dict[str, object]:
    """An effort. That there should be no reasoning at all is not said: few models take `none`."""
    if settings is None:
        return {}
    own: dict[str, Raw] = own_fields(settings.extra)
    if "reasoning" in own:
        stated = {
            "effort": settings.effort,
            "max_tokens": settings.budget,
            "enabled": settings.enabled,
        }
        given = {name: value for name, value in stated.items() if value is not None}
        return {"reasoning": {**given, **fields_of(own["reasoning"])}}
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
