"""The settings of a request that are more than a word: limits, text format, reasoning, and what the provider keeps."""

from dragoman._json import Raw
from dragoman.core.aliases import short_user
from dragoman.core.effort import effort_from_budget
from dragoman.core.losses import LossBook
from dragoman.dialects.responses.expect import expect_bool, expect_object, expect_text
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    is_present,
    own_fields,
    read_object,
)
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.writing import JsonObject
from dragoman.model.parts import Extra
from dragoman.model.request import ReasoningSettings, Request, ResponseFormat

__all__ = ("LOGPROBS", "read_format", "read_reasoning", "write_settings", "write_usual")

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
MIN_OUTPUT_TOKENS = 16  # OpenAI answers 400 below; some clients ask for 1 token to test a key

_SERVICE_TIERS = {
    "standard_only": "default",  # Anthropic's word for it
    **{
        tier: tier for tier in ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
    },
}


def read_format(value: Raw | None) -> ResponseFormat | None:
    fields = expect_object(value, "text.format")
    kind = expect_text(fields, "type", "text.format")
    match kind:
        case None:
            return None
        case "text" | "json_object":
            return ResponseFormat(kind=kind, extra=extra_of(fields, ("type",)))
        case "json_schema":
            known = ("type", "name", "description", "schema", "strict")
            return ResponseFormat(
                kind=kind,
                name=expect_text(fields, "name", "text.format"),
                description=expect_text(fields, "description", "text.format"),
                schema=fields.get("schema"),
                strict=expect_bool(fields, "strict", "text.format"),
                extra=extra_of(fields, known),
            )
        case _:
            return ResponseFormat(kind="other", extra=Extra("responses", dict(fields)))


def read_reasoning(fields: Fields) -> ReasoningSettings | None:
    value = fields.get("reasoning")
    settings = expect_object(value, "reasoning")
    if not is_present(value):
        return None
    effort = expect_text(settings, "effort", "reasoning")
    return ReasoningSettings(
        enabled=None if effort is None else effort != "none",
        effort=effort,
        summary=expect_text(settings, "summary", "reasoning"),
        extra=extra_of(settings, ("effort", "summary")),
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
    out.update(read_object(own_fields(request.extra).get("text")))
    return out or None


def _format(form: ResponseFormat, book: LossBook) -> JsonObject | None:
    own = own_fields(form.extra)
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
    own = own_fields(settings.extra)
    effort = settings.effort
    if effort is None and settings.budget is not None and settings.enabled is not False:
        effort = effort_from_budget(settings.budget)
    out: JsonObject = {"effort": effort, "summary": settings.summary}
    told = {key: value for key, value in out.items() if value is not None}
    is_own = settings.extra is None or settings.extra.dialect == "responses"
    if settings.enabled is False and effort is None and not is_own:
        book.note("reasoning_off", "reasoning")
    # Thinking that is left to the model is what happens without a word.
    return {**told, **own} if told or own or (is_own and settings.enabled is None) else None


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
