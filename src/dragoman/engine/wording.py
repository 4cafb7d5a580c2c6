"""What the engine itself says to the model where a result is due and no tool gave one.

A model acts on these words: each says what happened to the call and, where there is something, what to do instead.
"""

from collections.abc import Mapping, Sequence

from dragoman.engine.events import RunEnd

__all__ = (
    "NOT_OBJECT",
    "aborted",
    "cut_output",
    "dropped_media",
    "dropped_parts",
    "left",
    "not_run",
    "refused_call",
    "said_nothing",
    "timed_out",
    "unknown_kind",
    "unknown_tool",
    "wrong_kind",
    "wrong_output",
)

NOT_OBJECT = "The arguments must be a JSON object."

_REASONS: Mapping[str, str] = {
    "not_closed": (
        "The call was cut off before its input was complete, so it was not run. "
        "Call the tool again with a shorter input."
    ),
    "no_name": "The call names no tool, so it was not run.",
    "invalid_json": (
        "The arguments are not valid JSON, so the call was not run. Call the tool again with one JSON object."
    ),
}

_ENDS: Mapping[RunEnd, str] = {
    "cancelled": "the run was interrupted",
    "max_time": "the time of the run was up",
    "failed": "the run ended with an error",
}


def refused_call(reason: str) -> str:
    """The words for a verdict of `core.calls.judge`."""
    return _REASONS[reason]


def unknown_tool(name: str, near: Sequence[str]) -> str:
    if not near:
        return (
            f"There is no tool named {name!r}. Only the tools of this conversation can be called."
        )
    return f"There is no tool named {name!r}. Did you mean {' or '.join(map(repr, near))}?"


def unknown_kind(kind: str) -> str:
    return f"Calls of the kind {kind!r} cannot be run here. Use one of the other tools."


def wrong_kind(name: str, wanted: str) -> str:
    form = "plain text" if wanted == "custom" else "a JSON object"
    return f"The tool {name!r} takes {form} as its input, and was called with the other form."


def aborted(reason: RunEnd, elapsed: float, *, is_stuck: bool) -> str:
    """For a call that was running when the run was ended."""
    end = _ENDS.get(reason, "the run ended")
    left = " It did not stop when it was told to and may still be at work." if is_stuck else ""
    return f"Aborted after {elapsed:.1f} s: {end}.{left}"


def not_run(reason: RunEnd) -> str:
    """For a call that had not begun."""
    return f"Not run: {_ENDS.get(reason, 'the run ended')}."


def timed_out(seconds: float, *, is_stuck: bool) -> str:
    left = " It did not stop when it was told to and may still be at work." if is_stuck else ""
    return f"Timed out after {seconds:g} s and was stopped.{left}"


def said_nothing(name: str) -> str:
    return f"The tool {name!r} gave up without an answer."


def left(name: str, code: object) -> str:
    return f"The tool {name!r} ended itself with the exit code {code!r} and gave no answer."


def wrong_output(name: str, came: str) -> str:
    return f"The tool {name!r} is broken: it gave back {came} where an output was expected."


def cut_output(left_out: int) -> str:
    return f"\n[… {left_out} characters left out …]\n"


def dropped_media(kind: str, size: int) -> str:
    return f"[{kind} of {size} characters left out: too large]"


def dropped_parts(count: int) -> str:
    return f"[… {count} more parts left out …]"
