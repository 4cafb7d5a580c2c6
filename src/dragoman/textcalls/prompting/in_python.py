"""Calls written as Python calls, or in the Gemma family's own spelling of an object."""

from collections.abc import Callable, Sequence
from functools import partial
from keyword import iskeyword

from dragoman._json import Raw
from dragoman.textcalls.prompting.base import SaidCall, Sheet
from dragoman.textcalls.prompting.values import marked_literal, members, python_literal

__all__ = ("marked_calls", "python_calls")


def python_calls(
    *, opening: str = "", between: str = ", ", closing: str = ""
) -> Callable[[Sequence[SaidCall], Sheet], str]:
    """`f(a=1, b="x")` for each call."""

    def say(calls: Sequence[SaidCall], sheet: Sheet) -> str:
        return opening + between.join(_python_call(call, sheet) for call in calls) + closing

    return say


def _python_call(call: SaidCall, sheet: Sheet) -> str:
    written: list[str] = []
    for key, value in members(call.arguments).items():
        if not key.isidentifier() or iskeyword(key):
            sheet.doubts.append(f"a parameter that is no name: {key[:40]!r}")
        written.append(f"{key}={python_literal(value)}")
    return f"{call.name}({', '.join(written)})"


def marked_calls(
    *, mark: str, opening: str, closing: str
) -> Callable[[Sequence[SaidCall], Sheet], str]:
    """`call:f{k:<mark>text<mark>,n:42}` for each call, each in its own block."""

    def say(calls: Sequence[SaidCall], sheet: Sheet) -> str:
        spell = partial(marked_literal, mark=mark, doubt=sheet.doubts.append)
        return "".join(
            f"{opening}call:{call.name}{spell(_source(call.arguments))}{closing}" for call in calls
        )

    return say


def _source(arguments: str) -> Raw:
    # A lone surrogate can only stand inside a string, where its escape means the same.
    return Raw(arguments.encode("utf-8", "backslashreplace"))
