"""Reads and writes token counts. The vendor's `input_tokens` excludes cached tokens, `Usage.input` includes them.

    input = input_tokens + cache_read_input_tokens + cache_creation_input_tokens

A stream reports twice: all counts at its start, cumulative totals at its end, of which only `output_tokens` is always
there. So `UsageReader` remembers the earlier counts: an input count without cache counts gets the cache counts of the
first report added.

Both reports have all fields of the vendor's schema, known or not. What is written where nothing is known (`service_tier`,
`cache_creation`) is read as if it were absent.
"""

from msgspec import Struct

from dragoman._json import Raw
from dragoman.core.fields import Fields, extra_of, own_fields, present, read_int, read_object
from dragoman.dialects.messages.wire import MAPPED_FIELDS, STANDARD_TIER
from dragoman.model.outcome import Usage

_KNOWN = MAPPED_FIELDS["usage"]
_FIVE_MINUTES = "ephemeral_5m_input_tokens"
_ONE_HOUR = "ephemeral_1h_input_tokens"
_NOTHING_CREATED = Raw(b'{"%s":0,"%s":0}' % (_FIVE_MINUTES.encode(), _ONE_HOUR.encode()))
_NO_USAGE = Usage()


class UsageReader(Struct, eq=False):
    """Reads the reports of one answer."""

    _fresh: int | None = None
    _cached: int = 0
    _written: int = 0

    def read(self, fields: Fields) -> Usage:
        fresh = read_int(fields.get("input_tokens"))
        cached = read_int(fields.get("cache_read_input_tokens"))
        written = read_int(fields.get("cache_creation_input_tokens"))
        if fresh is not None:
            self._fresh = fresh
        if cached is not None:
            self._cached = cached
        if written is not None:
            self._written = written
        is_stated = fresh is not None or cached is not None or written is not None
        total = None
        if is_stated and self._fresh is not None:
            total = self._fresh + self._cached + self._written
        details = read_object(fields.get("output_tokens_details"))
        return Usage(
            input=total,
            output=read_int(fields.get("output_tokens")),
            cached=cached,
            cache_write=written,
            reasoning=read_int(details.get("thinking_tokens")),
            extra=extra_of("messages", _stated(fields, written or 0), _KNOWN),
        )


def _stated(fields: Fields, written: int) -> Fields:
    """The fields that are not null, without those that say no more than the counts do."""
    stated = present(fields)
    if stated.get("service_tier") == STANDARD_TIER:
        del stated["service_tier"]
    if "cache_creation" in stated and _says_no_more(read_object(stated["cache_creation"]), written):
        del stated["cache_creation"]
    return stated


def _says_no_more(creation: Fields, written: int) -> bool:
    """Whether all tokens were written to the cache for the usual time."""
    five_minutes, one_hour = (
        read_int(creation.get(_FIVE_MINUTES)),
        read_int(creation.get(_ONE_HOUR)),
    )
    return len(creation) == 2 and five_minutes == written and one_hour == 0


def usage_in_full(usage: Usage | None) -> dict[str, object]:
    """Write the counts of a message."""
    usage = usage or _NO_USAGE
    cached, written = usage.cached or 0, usage.cache_write or 0
    out: dict[str, object] = {
        # Another provider may count cached tokens apart from its input; a count must not be negative.
        "input_tokens": max(0, (usage.input or 0) - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "cache_creation": {_FIVE_MINUTES: written, _ONE_HOUR: 0} if written else _NOTHING_CREATED,
        "output_tokens": usage.output or 0,
        "output_tokens_details": _output_details(usage),
        "server_tool_use": None,
        "service_tier": STANDARD_TIER,
        "inference_geo": None,
    }
    return {**out, **own_fields("messages", usage.extra)}


def usage_at_end(usage: Usage | None, before: Usage | None) -> dict[str, object]:
    """Write the counts at the end of a stream. `before`: the report at its start, needed to subtract the cached tokens.

    A count is null unless `usage` has it; clients then keep that of the start. `output_tokens` cannot be null, so it repeats
    the count of the start.
    """
    usage, before = usage or _NO_USAGE, before or _NO_USAGE
    cached = before.cached if usage.cached is None else usage.cached
    written = before.cache_write if usage.cache_write is None else usage.cache_write
    fresh = None if usage.input is None else usage.input - (cached or 0) - (written or 0)
    out: dict[str, object] = {
        "input_tokens": None if fresh is None else max(0, fresh),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": (before.output if usage.output is None else usage.output) or 0,
        "output_tokens_details": _output_details(usage),
        "server_tool_use": None,
    }
    return {**out, **own_fields("messages", usage.extra)}


def _output_details(usage: Usage) -> dict[str, int] | None:
    return None if usage.reasoning is None else {"thinking_tokens": usage.reasoning}
