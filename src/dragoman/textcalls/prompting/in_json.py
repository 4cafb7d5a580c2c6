"""Calls whose arguments stand in the text as JSON: the very bytes the model wrote, in the format's own envelope.

Names are safe in any envelope: they are limited to what the format's `names` allow. Nothing here can be ambiguous, as
JSON strings keep every closer they contain to themselves; so no writer here has a doubt.
"""

from collections.abc import Callable, Sequence

from dragoman.core.aliases import IdLimits, alias_id
from dragoman.textcalls.prompting.base import SaidCall, Sheet

__all__ = (
    "cohere_call",
    "enclosed",
    "flat_call",
    "kimi_id",
    "mistral_call",
    "mistral_id",
    "object_call",
    "parameters_call",
)

# Mistral's templates refuse ids that are not exactly nine letters and digits.
_MISTRAL_IDS = IdLimits(pattern="[a-zA-Z0-9]", max_length=9, min_length=9)

Write = Callable[[SaidCall], str]


def enclosed(
    write: Write, *, opening: str = "", between: str = "\n", closing: str = ""
) -> Callable[[Sequence[SaidCall], Sheet], str]:
    """A writer of all calls of a turn, from one of a single call."""

    def say(calls: Sequence[SaidCall], _: Sheet) -> str:
        return opening + between.join(write(call) for call in calls) + closing

    return say


def object_call(call: SaidCall) -> str:
    return f'{{"name": "{call.name}", "arguments": {call.arguments}}}'


def parameters_call(call: SaidCall) -> str:
    return f'{{"name": "{call.name}", "parameters": {call.arguments}}}'


def mistral_call(call: SaidCall) -> str:
    return f'{{"name": "{call.name}", "arguments": {call.arguments}, "id": "{mistral_id(call.call_id)}"}}'


def cohere_call(call: SaidCall) -> str:
    return (
        f'{{"tool_call_id": "{call.number}", "tool_name": "{call.name}", '
        f'"parameters": {call.arguments}}}'
    )


def flat_call(opening: str, middle: str, closing: str) -> Write:
    """The name and the arguments beside each other, with markup around them."""
    return lambda call: f"{opening}{call.name}{middle}{call.arguments}{closing}"


def mistral_id(call_id: str) -> str:
    return alias_id(call_id, _MISTRAL_IDS)


def kimi_id(name: str, number: int) -> str:
    """Kimi's ids name the tool and count the calls of the conversation."""
    return f"functions.{name}:{number}"
