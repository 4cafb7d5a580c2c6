"""Approval at the terminal: what a call would do, and a word of the person's for it."""

from collections.abc import Iterator
from typing import cast

from dragoman._json import loads
from dragoman.cli.run.questions import Person
from dragoman.engine.approval import Approval
from dragoman.engine.builtin.guarding import Answer, Ask
from dragoman.errors import MalformedJson
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.visible import excerpt, visible_line
from dragoman.model.parts import Call

__all__ = ("asking", "question_of")

# A person must see what is to be run; past this nobody reads it, and the question says that it is cut.
_MOST_LINES = 40
_WORDS = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
    "t": "tool",
    "tool": "tool",
}
_ANSWERS: dict[str | None, Answer] = {
    "yes": True,
    "no": False,
    "always": "always",
    "tool": "tool",
    None: False,  # whoever ends the input says no
}


def asking(person: Person) -> Ask:
    """Have a person asked at the terminal."""

    async def ask(approval: Approval) -> Answer:
        name = visible_line(approval.tool)
        prompt = f"allow it? [y]es, [n]o, [a]lways this one, [t] always {name}: "
        question = question_of(approval, person.width)
        return _ANSWERS[await person.choose(_WORDS, prompt, *question)]

    return ask


def question_of(approval: Approval, width: int) -> Iterator[Line]:
    """What is asked, in lines."""
    by = "" if approval.rule is None else f" (the policy asks: {visible_line(str(approval.rule))})"
    yield (
        Span("? ", "title"),
        Span(visible_line(approval.tool), "strong"),
        Span(f" needs approval{by}", "faint"),
    )
    for line in _details(approval.call, max(width - 4, 20)):
        yield (Span(f"    {line}"),)


def _details(call: Call, width: int) -> Iterator[str]:
    left = _MOST_LINES
    for name, text in _fields(call.input):
        shown = excerpt(text, width - len(name), max(left, 1))
        lines = shown.lines
        left -= len(lines)
        yield f"{name}{lines[0] if lines else ''}"
        yield from (f"{' ' * len(name)}{line}" for line in lines[1:])
        if shown.is_cut:
            yield f"… CUT HERE: it has {len(text):,} characters in all"


def _fields(source: str) -> Iterator[tuple[str, str]]:
    """What the call says, one thing at a time: the name before it, and its text."""
    try:
        value = cast("object", loads(source))
    except MalformedJson:
        value = None
    if not isinstance(value, dict):
        yield "", source
        return
    for name, each in cast("dict[str, object]", value).items():
        yield f"{visible_line(name)[:40]}: ", each if isinstance(each, str) else str(each)
