"""Token counts, both ways. Chat's counts include cached tokens, as ours do.

Counts without a home (prediction tokens, a price) ride in `extra`: a details object that has some is kept whole.
"""

from collections.abc import Mapping

from dragoman._json import Raw
from dragoman.dialects.chat.fields import extra_of, fields_of, int_of, own_fields
from dragoman.model.outcome import Usage

__all__ = ("KNOWN", "KNOWN_INPUT", "KNOWN_OUTPUT", "read_usage", "write_usage")

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


def read_usage(value: Raw) -> Usage:
    fields = fields_of(value)
    given = fields_of(fields.get(_INPUT_DETAILS))
    made = fields_of(fields.get(_OUTPUT_DETAILS))
    known = set(KNOWN)
    if given.keys() - KNOWN_INPUT:
        known.discard(_INPUT_DETAILS)
    if made.keys() - KNOWN_OUTPUT:
        known.discard(_OUTPUT_DETAILS)
    return Usage(
        input=_count(fields, "prompt_tokens", "input_tokens"),
        output=_count(fields, "completion_tokens", "output_tokens"),
        total=int_of(fields.get("total_tokens")),
        # DeepSeek counts beside the details, and so do servers in front of Anthropic.
        cached=_count({**fields, **given}, "cached_tokens", "prompt_cache_hit_tokens"),
        cache_write=_count(
            {**fields, **given}, "cache_write_tokens", "cache_creation_input_tokens"
        ),
        input_audio=int_of(given.get("audio_tokens")),
        reasoning=int_of(made.get("reasoning_tokens")),
        output_audio=int_of(made.get("audio_tokens")),
        extra=extra_of(fields, known),
    )


def write_usage(usage: Usage) -> dict[str, object]:
    given = _stated(
        cached_tokens=usage.cached,
        cache_write_tokens=usage.cache_write,
        audio_tokens=usage.input_audio,
    )
    made = _stated(reasoning_tokens=usage.reasoning, audio_tokens=usage.output_audio)
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
    return {**out, **own_fields(usage.extra)}


def _count(fields: Mapping[str, Raw], *names: str) -> int | None:
    return next((count for name in names if (count := int_of(fields.get(name))) is not None), None)


def _stated(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}
