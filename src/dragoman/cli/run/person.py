"""The person at the terminal: their questions, their approval of calls, and what MCP servers ask of them.

Reading waits on the event loop, so that other tasks continue and a wait can be cancelled.
"""

import asyncio
import os
import sys
import threading
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from functools import partial
from itertools import islice
from typing import TypeVar, cast
from urllib.parse import urlsplit

from dragoman._json import as_object, loads, repeats_names
from dragoman.cli.run.keyboard import Keyboard
from dragoman.cli.run.live_screen import LiveScreen
from dragoman.cli.screen import counted
from dragoman.engine.approval import Approval, FileChange
from dragoman.engine.builtin.gate import Ask, Consent, GateRefusal
from dragoman.engine.mcp.host import (
    ElicitationAnswer,
    ElicitationForm,
    ElicitationLink,
    Field,
    read_value,
)
from dragoman.errors import MalformedJson
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.terminal_text import Style, cells, exact, excerpt, visible_line, wrapped
from dragoman.model.parts import Call

T = TypeVar("T")

_PROMPT = "> "
_LEAST_ROWS = 8  # rows of a page, even on a very small screen
_PAGE_WORDS = {"": "next", "r": "rest", "rest": "rest", "n": "no", "no": "no"}


class Person:
    """The person at the terminal, who is asked one question at a time."""

    def __init__(self, screen: LiveScreen, keyboard: Keyboard) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._turn = asyncio.Lock()  # held while waiting for an answer: there is one terminal
        self._is_typing = False  # the person may be typing the next prompt

    async def next_question(self) -> str | None:
        """The next prompt; None: the person has ended the input."""
        async with self._turn:
            self._screen.show(())
            self._screen.ask("")
            self._is_typing = True
            try:
                line = await self._keyboard.read_question(_PROMPT)
            finally:
                self._is_typing = False
                self._screen.answered()
            if line is None:
                self._screen.show(())
            return line

    def _announce(self) -> None:
        """Tell a person who is typing that there is something else to see: it is shown when the line is sent."""
        if self._is_typing:
            self._keyboard.remind(_PROMPT, "something waits for your answer: Enter shows it")

    def remind(self) -> None:
        """Handle Ctrl-C while nothing is running."""
        self._keyboard.remind(_PROMPT, "Ctrl-C again quits, and so does Ctrl-D")

    @property
    def width(self) -> int:
        return self._screen.width

    def show(self, *lines: Line) -> None:
        """Show lines, whatever else is on the screen."""
        self._screen.show(*lines)
        self._announce()

    async def choose(self, words: Mapping[str, T], prompt: str, *lines: Line) -> T | None:
        """Ask for one of several answers, by any of their words; None if the person ends the input.

        Lines that do not fit on the screen are shown page by page, and the question comes after the last page; on an earlier
        page the only possible answer is `no`. No other output is written between the pages.
        """
        self._announce()
        async with self._turn:
            pages = _pages(lines, self._screen.width, max(self._screen.height - 2, _LEAST_ROWS))
            try:
                for number, page in enumerate(pages[:-1], 1):
                    typed = await self._choose(
                        _PAGE_WORDS,
                        f"-- page {number} of {len(pages)}: Enter for the next, [r] for the rest of it, [n]o: ",
                        page,
                    )
                    if typed == "rest":
                        rest = tuple(line for each in pages[number:] for line in each)
                        return await self._choose(words, prompt, rest)
                    if typed != "next":
                        return words.get(typed or "")
                return await self._choose(words, prompt, pages[-1])
            finally:
                self._screen.answered()

    async def _choose(self, words: Mapping[str, T], prompt: str, lines: Sequence[Line]) -> T | None:
        while True:
            self._screen.ask("", *lines)
            line = await self._keyboard.read(prompt)
            if line is None or line.strip().lower() in words:
                return None if line is None else words[line.strip().lower()]

    async def fill_in(self, prompt: str, read: Callable[[str], object], *lines: Line) -> object:
        """Ask for a line and return `read(line)`; ask again while `read` raises ValueError.

        Raises:
            EOFError: the person has ended the input.
        """
        self._announce()
        async with self._turn:
            while True:
                self._screen.ask("", *lines)
                try:
                    line = await self._keyboard.read(prompt)
                finally:
                    self._screen.answered()
                if line is None:
                    raise EOFError
                try:
                    return read(line)
                except ValueError as error:
                    lines = ((Span(f"    {visible_line(str(error))}", "bad"),),)


def _pages(lines: Sequence[Line], width: int, height: int) -> list[list[Line]]:
    """The lines divided into pages; at least one page."""
    pages: list[list[Line]] = [[]]
    room = height
    for line in lines:
        rows = max(1, -(-sum(cells(span.text) for span in line) // width))
        if rows > room and pages[-1]:
            pages.append([])
            room = height
        pages[-1].append(line)
        room -= rows
    return pages


_INDENT = "    "
_NAMES = {"\t": "tab", "\r": "carriage return", "\x1b": "escape", " ": "space at the end of a line"}
_WORDS: dict[str, Consent] = {
    "y": True,
    "yes": True,
    "n": False,
    "no": False,
    "a": "always",
    "always": "always",
    "t": "tool",
    "tool": "tool",
    "v": "never",
    "never": "never",
}
# Lines of a file in a diff: more take long to compare. For longer files the arguments of the call are shown instead.
_MAX_COMPARED = 10_000


_WHY = "why not? (the model reads it; Enter for no reason): "


def approval_from(person: Person) -> Ask:
    """A function that asks the person for approval."""

    async def ask(approval: Approval) -> Consent:
        name = exact(approval.tool, Counter())
        prompt = f"allow it? [y]es, [n]o, [v] never {name}, [a]lways {_this(approval)}, [t] always {name}: "
        question = tuple(question_of(approval, person.width))
        answer = await person.choose(_WORDS, prompt, *question)
        if answer is not False:
            return answer or False  # the end of the input means no
        with suppress(EOFError):
            reason = cast("str", await person.fill_in(_WHY, str.strip))
            return GateRefusal(reason) if reason else False
        return False

    return ask


def _this(approval: Approval) -> str:
    """The words for what `always` allows from now on: for a file tool, any content of the same path."""
    kinds = {subject.kind for subject in approval.subjects}
    if kinds == {"command"}:
        return "this command"
    if kinds != {"path"}:
        return "these arguments"
    return "this path" if len(approval.subjects) == 1 else "these paths"


def question_of(approval: Approval, width: int) -> Iterator[Line]:
    """The question in lines: the whole call, however long, with every ambiguous character shown as an escape."""
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
    room = max(width - len(_INDENT) - 1, 20)
    is_diff = _is_worth_a_diff(approval.changes)
    fields = (
        [("", change.path) for change in approval.changes]
        if is_diff
        else list(_fields(approval.call))
    )
    for change in approval.changes if is_diff else ():
        yield from _diff(change, room, escaped)
    for name, text in () if is_diff else fields:
        yield from _field(exact(name.replace("\n", "\\n"), escaped), text, room, escaped)
    for subject in approval.subjects:
        # A link may lead to another path than the one in the arguments.
        if subject.kind == "path" and not any(subject.text in text for _, text in fields):
            yield from _field("leads to", subject.text, room, escaped)
    if escaped:
        yield from _notice(escaped, room)


def _field(name: str, text: str, room: int, escaped: Counter[str]) -> Iterator[Line]:
    """One field of the call: after its label, or below it, with `|` before each line and spaces before wrapped lines."""
    ends_a_line = text.endswith("\n")
    lines = [exact(line, escaped) for line in text.removesuffix("\n").split("\n")]
    label = f"{name}: " if name else ""
    if len(lines) == 1 and not ends_a_line and cells(label) + cells(lines[0]) <= room:
        yield (Span(f"{_INDENT}{label}{lines[0]}"),)
        return
    size = f"{counted(len(lines), 'line')}, {counted(len(text), 'character')}"
    if ends_a_line:
        size += ", newline at the end"
    yield (Span(f"{_INDENT}{label}"), Span(size, "faint"))
    for line in lines:
        first, *more = wrapped(line, room - 2)
        yield (Span(f"{_INDENT}| ", "faint"), Span(first))
        for piece in more:
            yield (Span(f"{_INDENT}  "), Span(piece))


def _is_worth_a_diff(changes: Sequence[FileChange]) -> bool:
    """Whether the changes are shown as diffs. A new file is shown in full, like any other argument."""
    texts = [
        text for change in changes for text in (change.before, change.after) if text is not None
    ]
    is_small = sum(text.count("\n") + 1 for text in texts) <= _MAX_COMPARED
    return is_small and any(change.before is not None for change in changes)


_SIGNS: dict[str, Style] = {"+": "good", "-": "bad", "@": "faint"}


def _diff(change: FileChange, room: int, escaped: Counter[str]) -> Iterator[Line]:
    """The lines that differ, with three lines around them."""
    what = "new file " if change.before is None else "delete " if change.after is None else ""
    yield (
        Span(
            f"{_INDENT}{what}{exact(change.path.replace(chr(10), chr(92) + 'n'), escaped)}",
            "strong",
        ),
    )
    texts = [change.before, change.after]
    if all(text is None or text.endswith("\n") for text in texts):
        # Where only one of them ends with a newline, the empty line after it shows the difference.
        texts = [text and text.removesuffix("\n") for text in texts]
    before, after = ([] if text is None else text.split("\n") for text in texts)
    lines = unified_diff(before, after, lineterm="")
    for line in islice(lines, 2, None):  # after the names of the files
        style = _SIGNS.get(line[:1], "plain")
        first, *more = wrapped(exact(line[1:], escaped), room - 2)
        yield (Span(_INDENT), Span(f"{line[:1]} {first}" if line[0] != "@" else line, style))
        for piece in more:
            yield (Span(f"{_INDENT}  {piece}", style),)


def _notice(escaped: Counter[str], room: int) -> Iterator[Line]:
    """The list of characters that are shown as escapes: without it, they look like escapes in the original text."""
    names = [
        f"{count:,} × {_NAMES.get(char, f'U+{ord(char):04X}')}" for char, count in escaped.items()
    ]
    for piece in wrapped(f"escapes stand for {', '.join(names)}", room):
        yield (Span(f"{_INDENT}{piece}", "bad"),)


def _fields(call: Call) -> Iterator[tuple[str, str]]:
    """The fields of the call: a string as its text, any other value as the JSON that the model wrote."""
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


_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}
_MOST_LINES = 20
_MOST_DEFAULT = 200  # characters
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class TerminalHost:
    """Asks the person the questions of MCP servers. Every question names the server."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._turn = asyncio.Lock()  # held during a form, whose questions belong together

    async def open_login(self, server: str, url: str) -> None:
        self._person.show(
            (Span(f"the MCP server {visible_line(server)} wants you to log in: open", "strong"),),
            (Span(f"  {visible_line(url)}"),),
        )
        _open_browser(url)

    async def elicit(
        self, server: str, question: ElicitationForm | ElicitationLink
    ) -> ElicitationAnswer:
        async with self._turn:
            try:
                if isinstance(question, ElicitationLink):
                    return await self._visit(server, question)
                return await self._fill_in(server, question)
            except EOFError:
                return ElicitationAnswer(action="cancel")

    async def _visit(self, server: str, link: ElicitationLink) -> ElicitationAnswer:
        host = urlsplit(link.url).hostname or ""
        lines = (
            *self._heading(server, "asks you to visit an address", link.message),
            (Span(f"    {visible_line(link.url)}"),),
        )
        is_wanted = await self._agrees(f"open {visible_line(host)}? [y]es, [n]o: ", *lines)
        if is_wanted:
            _open_browser(link.url)
        return ElicitationAnswer(action="accept" if is_wanted else "decline")

    async def _fill_in(self, server: str, form: ElicitationForm) -> ElicitationAnswer:
        heading = self._heading(server, "asks for some values", form.message)
        if not await self._agrees("answer it? [y]es, [n]o: ", *heading):
            return ElicitationAnswer(action="decline")
        values: dict[str, object] = {}
        for field in form.fields:
            read = partial(read_value, field)
            value = await self._person.fill_in(_prompt(field), read, *_about(field))
            if value is not None:
                values[field.name] = value
        shown = [(Span(f"    {visible_line(f'{key}: {value}')}"),) for key, value in values.items()]
        if form.fields and not await self._agrees("send it? [y]es, [n]o: ", *shown):
            return ElicitationAnswer(action="decline")
        return ElicitationAnswer(action="accept", values=values)

    async def _agrees(self, prompt: str, *lines: Line) -> bool:
        chosen = await self._person.choose(_YES_OR_NO, prompt, *lines)
        if chosen is None:
            raise EOFError
        return chosen

    def _heading(self, server: str, what: str, message: str) -> tuple[Line, ...]:
        words = excerpt(message, max(self._person.width - 4, 20), _MOST_LINES).lines
        return (
            (
                Span("? ", "title"),
                Span(f"the MCP server {visible_line(server)} ", "strong"),
                Span(what),
            ),
            *((Span(f"    {line}"),) for line in words),
        )


def _prompt(field: Field) -> str:
    hint = {"boolean": " (yes or no)", "integer": " (a whole number)", "number": " (a number)"}
    usual = visible_line(str(field.default)[:_MOST_DEFAULT])
    usual = "" if field.default is None else f" [{usual}]"
    needed = " (required)" if field.is_required and field.default is None else ""
    name = visible_line(field.title or field.name)
    return f"{name}{hint.get(field.kind, '')}{needed}{usual}: "


def _about(field: Field) -> Iterator[Line]:
    if field.description:
        yield (Span(f"    {visible_line(field.description)}", "faint"),)
    for number, (_, shown) in enumerate(field.choices, 1):
        yield (Span(f"    {number} {visible_line(shown)}"),)
    if field.kind == "choices":
        yield (Span("    several, with commas between them", "faint"),)


def _open_browser(url: str) -> None:
    """Open a graphical browser, if there is one. A text browser would take over this terminal."""
    is_web = urlsplit(url).scheme in ("http", "https")
    if is_web and (sys.platform == "darwin" or any(os.environ.get(name) for name in _DISPLAYS)):
        # `webbrowser.open` may wait until the browser is closed, so it gets a thread.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
