"""How far a run may go: turns, tokens, and a model that goes round in circles. Time is the runner's: it aborts what runs."""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec import structs

from dragoman._json import dumps_canonical, loads
from dragoman.engine.events import RunEnd
from dragoman.engine.settings import EngineSettings
from dragoman.errors import MalformedJson
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call

__all__ = ("Repeats", "add_usage", "exceeded", "signature", "token_count")

_COUNTS = tuple(
    field.name for field in structs.fields(Usage) if field.name != "extra"
)  # every count of a Usage


class Repeats:
    """Notices that a model asks for the same again and again.

    A call is known by its name and its arguments as values, whatever their order and spacing. Each answer counts a call
    once. A call that was never made before is progress: the counting begins anew, so that looking at the same thing
    between different steps is no circle, and going round over several calls is one.
    """

    __slots__ = ("_counts", "_seen")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._counts: dict[bytes, int] = {}

    def note(self, calls: Iterable[Call]) -> int:
        """Take the calls of one answer; how often the most repeated one has come since the last progress."""
        names = {signature(call) for call in calls}
        if not names <= self._seen:
            self._seen |= names
            self._counts.clear()
        for name in names:
            self._counts[name] = self._counts.get(name, 0) + 1
        return max((self._counts[name] for name in names), default=0)


def signature(call: Call) -> bytes:
    """The same for the same call: JSON is compared as values, everything else as text."""
    try:
        told = dumps_canonical(loads(call.input))
    except (MalformedJson, RecursionError):
        told = call.input.encode("utf-8", "surrogatepass")
    name = f"{call.kind}\n{call.namespace or ''}\n{call.name}\n".encode("utf-8", "surrogatepass")
    return blake2b(name + told, digest_size=16).digest()


def exceeded(settings: EngineSettings, *, turns: int, tokens: int, repeats: int) -> RunEnd | None:
    """Which limit forbids another request, if one does."""
    if settings.max_repeats is not None and repeats >= settings.max_repeats:
        return "no_progress"
    if settings.max_tokens is not None and tokens >= settings.max_tokens:
        return "max_tokens"
    if settings.max_turns is not None and turns >= settings.max_turns:
        return "max_turns"
    return None


def add_usage(total: Usage, usage: Usage | None) -> Usage:
    """Two answers together. A count that neither states stays unstated; what one dialect adds of its own is left out."""
    if usage is None:
        return total
    sums: dict[str, int | None] = {}
    for name in _COUNTS:
        one: int | None = getattr(total, name)
        other: int | None = getattr(usage, name)
        sums[name] = one if other is None else other + (one or 0)
    return structs.replace(Usage(), **sums)


def token_count(usage: Usage | None) -> int:
    """Input and output together, as far as they were told."""
    if usage is None:
        return 0
    if usage.total is not None:
        return usage.total
    return (usage.input or 0) + (usage.output or 0)
