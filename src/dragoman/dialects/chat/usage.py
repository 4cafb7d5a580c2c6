"""Reads and writes token counts. Chat's input count includes cached tokens, as `Usage` does.

Other counts (prediction tokens, a price) are kept in `extra`; a details object with such counts is kept whole.
"""

from collections.abc import Mapping
from typing import cast

from dragoman._json import FAST_FAILURES, Raw, loads, typed_decoder
from dragoman.core.fields import as_int, extra_of, own_fields, read_present
from dragoman.dialects.chat.wire import InputDetails, OutputDetails, TypedUsage
from dragoman.model.outcome import Usage

_INPUT_DETAILS = "prompt_tokens_details"
_OUTPUT_DETAILS = "completion_tokens_details"
KNOWN = frozenset(
    {
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        _INPUT_DETAILS,
        _OUTPUT_DETAILS,
        "input_tokens",
        "output_tokens",
    }
)
KNOWN_INPUT = frozenset({"cached_tokens", "cache_write_tokens", "audio_tokens"})
KNOWN_OUTPUT = frozenset({"reasoning_tokens", "audio_tokens"})


_NO_INPUT = InputDetails()
_NO_OUTPUT = OutputDetails()


_decode = typed_decoder(TypedUsage)


def read_usage(value: Raw) -> Usage:
    try:
        plain = _decode(value)
    except FAST_FAILURES:
        return _read_leniently(value)
    given = plain.prompt_tokens_details or _NO_INPUT
    made = plain.completion_tokens_details or _NO_OUTPUT
    return Usage(
        input=plain.prompt_tokens,
        output=plain.completion_tokens,
        total=plain.total_tokens,
        cached=given.cached_tokens,
        cache_write=given.cache_write_tokens,
        input_audio=given.audio_tokens,
        reasoning=made.reasoning_tokens,
        output_audio=made.audio_tokens,
    )


def _read_leniently(value: Raw) -> Usage:
    """Read usage with missing counts, counts of another type, or unknown fields."""
    counts = _stated(loads(bytes(value)))
    given = _stated(counts.get(_INPUT_DETAILS))
    made = _stated(counts.get(_OUTPUT_DETAILS))
    unknown = counts.keys() - KNOWN
    if given.keys() - KNOWN_INPUT:
        unknown.add(_INPUT_DETAILS)
    if made.keys() - KNOWN_OUTPUT:
        unknown.add(_OUTPUT_DETAILS)
    extra = extra_of("chat", read_present(value), KNOWN - unknown) if unknown else None
    # DeepSeek, and servers in front of Anthropic, put these counts beside the details.
    either = {**counts, **given} if unknown else given
    return Usage(
        input=_count(counts, "prompt_tokens", "input_tokens"),
        output=_count(counts, "completion_tokens", "output_tokens"),
        total=as_int(counts.get("total_tokens")),
        cached=_count(either, "cached_tokens", "prompt_cache_hit_tokens"),
        cache_write=_count(either, "cache_write_tokens", "cache_creation_input_tokens"),
        input_audio=as_int(given.get("audio_tokens")),
        reasoning=as_int(made.get("reasoning_tokens")),
        output_audio=as_int(made.get("audio_tokens")),
        extra=extra,
    )


def write_usage(usage: Usage) -> dict[str, object]:
    given: dict[str, int] = {}
    if usage.cached is not None:
        given["cached_tokens"] = usage.cached
    if usage.cache_write is not None:
        given["cache_write_tokens"] = usage.cache_write
    if usage.input_audio is not None:
        given["audio_tokens"] = usage.input_audio
    made: dict[str, int] = {}
    if usage.reasoning is not None:
        made["reasoning_tokens"] = usage.reasoning
    if usage.output_audio is not None:
        made["audio_tokens"] = usage.output_audio
    tokens_in, tokens_out = usage.input or 0, usage.output or 0
    out: dict[str, object] = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out if usage.total is None else usage.total,
    }
    if given:
        out[_INPUT_DETAILS] = given
    if made:
        out[_OUTPUT_DETAILS] = made
    return out | own_fields("chat", usage.extra)


def _count(counts: Mapping[str, object], name: str, other: str) -> int | None:
    count = as_int(counts.get(name))
    return as_int(counts.get(other)) if count is None else count


def _stated(counts: object) -> dict[str, object]:
    """Return the fields of an object that are not null; an empty dict for any other value."""
    if not isinstance(counts, dict):
        return {}
    fields = cast("dict[str, object]", counts)
    return {name: count for name, count in fields.items() if count is not None}
