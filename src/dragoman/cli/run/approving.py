"""Approval at the terminal: what a call would do, and a word of the person's for it."""

from collections import Counter
from collections.abc import Iterator

from dragoman._json import as_object, loads, repeats_names
from dragoman.cli.run.questions import Person
from dragoman.engine.approval import Approval
from dragoman.engine.builtin.guarding import Answer, Ask
from dragoman.errors import MalformedJson
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.visible import cells, exact, wrapped
from dragoman.model.parts import Call

__all__ = ("asking", "question_of")

_INDENT = "    "
_NAMES = {"\t": "tab", "\r": "carriage return", "\x1b": "escape", " ": "space at the end of a line"}
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
        name = exact(approval.tool, Counter())
        prompt = f"allow it? [y]es, [n]o, [a]lways {_this(approval)}, [t] always {name}: "
        question = tuple(question_of(approval, person.width))
        return _ANSWERS[await person.choose(_WORDS, prompt, *question)]

    return ask


def _this(approval: Approval) -> str:
    """What is allowed from now on by whoever says `always`: for a file tool, whatever it puts there."""
    kinds = {subject.kind for subject in approval.subjects}
    if kinds == {"command"}:
        return "this command"
    if kinds != {"path"}:
        return "these arguments"
    return "this path" if len(approval.subjects) == 1 else "these paths"


def question_of(approval: Approval, width: int) -> Iterator[Line]:
    """What is asked, in lines: all of it, however long, and nothing that looks like something else."""
    escaped: Counter[str] = Counter()
    by = ""
    if approval.unseen:
        by = f" (the policy cannot see all of it: {exact(approval.unseen, escaped)})"
    elif approval.rule is not None:
        by = f" (the policy asks: {exact(str(approval.rule), escaped)})"
    yield (
        Span("? ", "title"),
        Span(exact(approval.tool, escaped), "strong"),
        Span(f" needs approval{by}", "faint"),
    )
    fields = list(_fields(approval.call))
    room = max(width - len(_INDENT) - 1, 20)
    for name, text in fields:
        yield from _field(exact(name.replace("\n", "\\n"), escaped), text, room, escaped)
    for subject in approval.subjects:
        # A link leads elsewhere than the arguments say.
        if subject.kind == "path" and not any(subject.text in text for _, text in fields):
            yield from _field("leads to", subject.text, room, escaped)
    if escaped:
        yield from _notice(escaped, room)


def _field(name: str, text: str, room: int, escaped: Counter[str]) -> Iterator[Line]:
    """One thing that the call says: on its line, or below it, where `|` begins each line of it and a space what is wrapped."""
    lines = [exact(line, escaped) for line in text.split("\n")]
    label = f"{name}: " if name else ""
    if len(lines) == 1 and cells(label) + cells(lines[0]) <= room:
        yield (Span(f"{_INDENT}{label}{lines[0]}"),)
        return
    count = f"{len(lines):,} lines" if len(lines) > 1 else "1 line"
    yield (Span(f"{_INDENT}{label}"), Span(f"{count}, {len(text):,} characters", "faint"))
    for line in lines:
        first, *more = wrapped(line, room - 2)
        yield (Span(f"{_INDENT}| ", "faint"), Span(first))
        for piece in more:
            yield (Span(f"{_INDENT}  "), Span(piece))


def _notice(escaped: Counter[str], room: int) -> Iterator[Line]:
    """Which characters are shown as escapes: an escape may also be what stands there."""
    names = [
        f"{count:,} × {_NAMES.get(char, f'U+{ord(char):04X}')}" for char, count in escaped.items()
    ]
    for piece in wrapped(f"escapes stand for {', '.join(names)}", room):
        yield (Span(f"{_INDENT}{piece}", "bad"),)


def _fields(call: Call) -> Iterator[tuple[str, str]]:
    """What the call says, one thing after the other: a text as it is, any other value as its JSON came."""
    source = call.input
    try:
        members = as_object(source)
        if repeats_names(source):
            yield "", source
            return
        values = {name: loads(bytes(value)) for name, value in members.items()}
    except MalformedJson:
        yield "", source
        return
    if not members:
        yield "", source
    for name, value in values.items():
        yield (
            name,
            value if isinstance(value, str) else bytes(members[name]).decode("utf-8", "replace"),
        )
