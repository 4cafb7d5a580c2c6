"""Reads and writes token counts. The vendor's `input_tokens` excludes cached tokens, `Usage.input` includes them.

    input = input_tokens + cache_read_input_tokens + cache_creation_input_tokens

A stream reports twice: all counts at its start, cumulative totals at its end, of which only `output_tokens` is always
there. So `UsageReader` remembers the earlier counts: an input count without cache counts gets the cache counts of the
first report added.
"""

from dragoman.core.fields import Fields, extra_of, present, read_int, read_object
from dragoman.dialects.messages.wire import MAPPED_FIELDS
from dragoman.model.outcome import Usage

_KNOWN = MAPPED_FIELDS["usage"]


class UsageReader:
    """Reads the reports of one answer."""

    __slots__ = ("_cached", "_fresh", "_written")

    def __init__(self) -> None:
        self._fresh: int | None = None
        self._cached = 0
        self._written = 0

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
            extra=extra_of("messages", present(fields), _KNOWN),
        )


def usage_in_full(usage: Usage | None) -> dict[str, object]:
    """Write the counts of a message. Both token counts are always there, known or not, because every client reads them."""
    return {"input_tokens": 0, **usage_to_wire(usage or Usage())}


def usage_to_wire(usage: Usage, before: Usage | None = None) -> dict[str, object]:
    """Write the vendor's counts. `before`: the report at the start of the stream, needed to subtract the cached tokens.

    `output_tokens` is always there, because every client reads it; without a new count it repeats the count of `before`.
    Other counts are there only if `usage` has them.
    """
    cached = usage.cached if usage.cached is not None else before and before.cached
    written = usage.cache_write if usage.cache_write is not None else before and before.cache_write
    out: dict[str, object] = {}
    if usage.input is not None:
        # Another provider may count cached tokens apart from its input; a count must not be negative.
        out["input_tokens"] = max(0, usage.input - (cached or 0) - (written or 0))
    if usage.cache_write is not None:
        out["cache_creation_input_tokens"] = usage.cache_write
    if usage.cached is not None:
        out["cache_read_input_tokens"] = usage.cached
    made = usage.output if usage.output is not None else before and before.output
    out["output_tokens"] = made or 0
    if usage.reasoning is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.extra is not None and usage.extra.dialect == "messages":
        out.update(usage.extra.fields)
    return out
