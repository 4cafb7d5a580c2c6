"""Reads the fields of the response object that concern the whole answer: id, model, end, usage and limits."""

from collections.abc import Mapping

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw
from dragoman.core.fields import (
    Fields,
    expect_int,
    expect_object,
    expect_text,
    extra_of,
    is_present,
    read_bool,
    read_float,
    read_int,
    read_object,
    read_text,
    without,
)
from dragoman.dialects.responses.wire import (
    FINISH_OF_REASON,
    LATE_FIELDS,
    REASON_OF_FINISH,
    RESPONSE_FIELDS,
    RUNNING_STATUSES,
    decode_usage,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import Started
from dragoman.model.outcome import FinishReason, Limits, LimitWindow, Usage
from dragoman.model.parts import Extra

LIMITS_EVENT = "codex.rate_limits"
_DEFAULT_LIMIT = "codex"
_NOT_EARLY = RESPONSE_FIELDS | LATE_FIELDS
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAIL_COUNTS = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens", "audio_tokens"),
    "output_tokens_details": ("reasoning_tokens", "audio_tokens"),
}
_USAGE_FIELDS = frozenset({*_COUNTS, *_DETAIL_COUNTS})


def read_started(fields: Fields) -> Started:
    """Read the beginning. Fields that the model does not know go to `extra`, except those that are known only at the end."""
    created = read_float(fields.get("created_at"))
    return Started(
        response_id=read_text(fields.get("id")) or "",
        model=read_text(fields.get("model")) or "",
        created=None if created is None else int(created),
        extra=read_extra(fields),
    )


def read_extra(fields: Fields) -> Extra | None:
    """Return the unknown fields of the beginning."""
    return extra_of("responses", fields, _NOT_EARLY)


def read_end(fields: Fields, started: Extra | None) -> Extra | None:
    """Return the fields of the end that the beginning did not have, or had with another value."""
    known: Mapping[str, Raw] = {} if started is None else started.fields
    news = {
        key: value
        for key, value in fields.items()
        if key not in RESPONSE_FIELDS
        and (is_present(value) if key in LATE_FIELDS else known.get(key) != value)
    }
    return Extra("responses", news) if news else None


def check_end(fields: Fields, event: str) -> None:
    """Check the response object of a stream's last event. Codex and the SDKs take the id and the usage from it.

    Raises:
        MalformedJson: it has no id, or its usage is not one. Counts may be absent.
    """
    if not expect_text(fields.get("id"), f"the id in {event}"):
        raise MalformedJson(f"expected a response with an id in {event}, got none")
    usage = fields.get("usage")
    if usage is None or not is_present(usage):
        return
    try:
        decode_usage(usage)
    except FAST_FAILURES:
        counts = expect_object(usage, "usage")
        for key in _COUNTS:
            expect_int(counts.get(key), f"usage.{key}")
        for key, names in _DETAIL_COUNTS.items():
            details = expect_object(counts.get(key), f"usage.{key}")
            for name in names:
                expect_int(details.get(name), f"usage.{key}.{name}")


class Finish(Struct, frozen=True):
    """How an answer ended. `reason` is None for a natural end, where the content decides; `native` is the vendor's word.

    `extra` has the details that `reason` does not express exactly.
    """

    reason: FinishReason | None
    native: str
    extra: Extra | None = None


def read_finish(fields: Fields, event: str) -> Finish:
    """Read how the answer ended; `event` is "" for a body.

    The status alone is not trusted: servers send `incomplete` for answers that wait for tool results, and some end with
    `in_progress`.
    """
    status = read_text(fields.get("status")) or ""
    details = fields.get("incomplete_details")
    reason = read_text(read_object(details).get("reason"))
    if status == "cancelled" or event == "response.cancelled":
        return Finish("cancelled", "cancelled")
    if reason is not None and details is not None:
        known = FINISH_OF_REASON.get(reason, "length")
        # Other dialects have several causes for `pause`; the native reason is exact, so it is kept.
        is_plain = REASON_OF_FINISH.get(known) == reason and known != "pause"
        extra = None if is_plain else Extra("responses", {"incomplete_details": details})
        return Finish(known, reason, extra)
    if event == "response.incomplete":
        return Finish("length", "incomplete")
    if not event and status in RUNNING_STATUSES:
        return Finish("pause", status, Extra("responses", {"status": fields["status"]}))
    return Finish(None, status or "completed")


def read_usage(value: Raw | None) -> Usage | None:
    if value is None or not is_present(value):
        return None
    try:
        usage = decode_usage(value)
    except FAST_FAILURES:
        return _read_usage_leniently(value)
    inputs, outputs = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=inputs.cached_tokens,
        cache_write=inputs.cache_write_tokens,
        reasoning=outputs.reasoning_tokens,
        input_audio=inputs.audio_tokens,
        output_audio=outputs.audio_tokens,
        total=usage.total_tokens,
    )


def _read_usage_leniently(value: Raw) -> Usage | None:
    """Read a usage with missing counts, counts of another type, or unknown fields."""
    fields = read_object(value)
    if not fields:
        return None
    inputs = read_object(fields.get("input_tokens_details"))
    outputs = read_object(fields.get("output_tokens_details"))
    rest = without(fields, _USAGE_FIELDS)
    for (name, counts), details in zip(_DETAIL_COUNTS.items(), (inputs, outputs), strict=True):
        if without(details, counts):  # details with other fields than these counts are kept whole
            rest[name] = fields[name]
    return Usage(
        input=read_int(fields.get("input_tokens")),
        output=read_int(fields.get("output_tokens")),
        cached=read_int(inputs.get("cached_tokens")),
        cache_write=read_int(inputs.get("cache_write_tokens")),
        reasoning=read_int(outputs.get("reasoning_tokens")),
        input_audio=read_int(inputs.get("audio_tokens")),
        output_audio=read_int(outputs.get("audio_tokens")),
        total=read_int(fields.get("total_tokens")),
        extra=Extra("responses", rest) if rest else None,
    )


def read_limits(fields: Fields) -> Limits | None:
    """Read rate limits from a stream, as the ChatGPT Codex backend reports them; None if the event has no numbers.

        {"type": "codex.rate_limits", "plan_type": "plus", "metered_limit_name": "codex",
         "rate_limits": {"primary": {"used_percent": 42.5, "window_minutes": 300, "reset_at": 1700000000}, …},
         "credits": {"has_credits": true, "unlimited": false, "balance": "5.39"}}

    Windows have the names that the same backend uses in its headers; windows of other limits than this one carry
    that limit's name as a prefix.
    """
    family = (
        read_text(fields.get("metered_limit_name"))
        or read_text(fields.get("limit_name"))
        or _DEFAULT_LIMIT
    )
    family = family.strip().lower().replace("-", "_")
    prefix = "" if family == _DEFAULT_LIMIT else f"{family}/"
    reported = read_object(fields.get("rate_limits"))
    windows = tuple(
        LimitWindow(
            name=prefix + name,
            used_percent=used,
            window_minutes=read_int(window.get("window_minutes")),
            resets_at=read_int(window.get("reset_at")),
        )
        for name in ("primary", "secondary")
        if (window := read_object(reported.get(name)))
        and (used := read_float(window.get("used_percent"))) is not None
    )
    credit = read_object(fields.get("credits"))
    if not windows and not credit:
        return None
    return Limits(
        windows=windows,
        has_credits=read_bool(credit.get("has_credits")),
        unlimited=read_bool(credit.get("unlimited")),
        balance=read_text(credit.get("balance")),
    )
