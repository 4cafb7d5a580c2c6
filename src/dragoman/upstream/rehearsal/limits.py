"""Where an answer is cut short: at a stop sequence, or when the tokens run out. Pure."""

from collections.abc import Sequence
from typing import assert_never

from msgspec import structs

from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.upstream.rehearsal.tokens import CHARACTERS, count_part

__all__ = ("cut_at_stop", "cut_at_tokens")


def cut_at_stop(parts: Sequence[Part], stops: Sequence[str]) -> tuple[list[Part], str | None]:
    """The parts up to the first stop sequence in a text, and which it was."""
    for index, part in enumerate(parts):
        if not isinstance(part, Text):
            continue
        found = [(part.text.find(stop), stop) for stop in stops if stop and stop in part.text]
        if found:
            place, stop = min(found)
            return [*parts[:index], structs.replace(part, text=part.text[:place])], stop
    return list(parts), None


def cut_at_tokens(parts: Sequence[Part], limit: int) -> list[Part] | None:
    """The parts that so many tokens hold, the last one cut; None if they hold all of them."""
    left = limit
    for index, part in enumerate(parts):
        size = count_part(part)
        if size > left:
            return [*parts[:index], *([_cut(part, left * CHARACTERS)] if left > 0 else [])]
        left -= size
    return None


def _cut(part: Part, length: int) -> Part:
    match part:
        case Text() | Refusal():
            return structs.replace(part, text=part.text[:length], status="incomplete")
        case Call():
            room = max(0, length - len(part.name))
            return structs.replace(part, input=part.input[:room], status="incomplete")
        case Reasoning():
            # What was not thought to its end is not sealed.
            thought = "".join(part.summary)[:length]
            return Reasoning(summary=(thought,), status="incomplete")
        case Result() | Media() | Opaque():
            return part
        case _:
            assert_never(part)
