"""What is left of one answer when it and its calls are over: the turns it adds to the conversation, and what it came to.

The turns are fit to be sent again whatever happened. Of an answer that ended by itself everything stays. Of one that was
cut off

- parts that were complete stay, and the text of the one that was being spoken;
- calls, reasoning and media that were not complete are left out;
- reasoning, and calls of the provider without their result, are left out where nothing follows them: providers refuse a
  message that ends with them.
"""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.engine.events import RunEnd
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import Call, Media, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Turn

__all__ = ("Answer", "compose_turns")


class Answer(Struct, frozen=True, kw_only=True):
    """One answer and all its calls.

    calls: those the model made, whoever runs them, without the provider's own.
    end: why the run cannot go on after it; None: it can.
    """

    turns: tuple[Turn, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None
    limits: Limits | None = None
    end: RunEnd | None = None
    error: ErrorInfo | None = None


def compose_turns(
    parts: Mapping[int, Part], results: Mapping[int, Result], *, is_cut: bool
) -> tuple[Turn, ...]:
    """The assistant's turn and the one with the results, both by the number of the part, which is the order of the calls."""
    said = [parts[number] for number in sorted(parts)]
    if is_cut:
        said = _mend([part for part in said if _is_worth_keeping(part)])
    turns: list[Turn] = []
    if said:
        turns.append(Turn(role="assistant", parts=tuple(said)))
    if results:
        turns.append(Turn(role="tool", parts=tuple(results[number] for number in sorted(results))))
    return tuple(turns)


def _is_worth_keeping(part: Part) -> bool:
    match part:
        case Text(text=text) | Refusal(text=text):
            return bool(text)
        case (
            Reasoning(status=status)
            | Call(status=status)
            | Result(status=status)
            | Media(status=status)
        ):
            return status == "completed"
        case _:
            return True


def _mend(parts: list[Part]) -> list[Part]:
    """Without an end that needs something to follow it."""
    kept = list(parts)
    while kept and (
        isinstance(kept[-1], Reasoning)
        or (isinstance(kept[-1], Call) and kept[-1].executor != "client")
    ):
        kept.pop()
    return kept
