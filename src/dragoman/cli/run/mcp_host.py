"""What MCP servers ask of the person at the terminal: to log in, to fill in a form, to visit an address."""

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from urllib.parse import urlsplit

from dragoman.cli.run.questions import Person
from dragoman.engine.mcp.host import Answer, Field, Form, Link, read_value
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.visible import excerpt, visible_line

__all__ = ("TerminalHost",)

_YES_OR_NO = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
_MOST_LINES = 20
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class TerminalHost:
    """Of one person. Every question says which server asks it."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._turn = asyncio.Lock()  # a form has several questions, which belong together

    async def open_login(self, server: str, url: str) -> None:
        self._person.tell(
            (Span(f"the MCP server {visible_line(server)} wants you to log in: open", "strong"),),
            (Span(f"  {visible_line(url)}"),),
        )
        _open_browser(url)

    async def elicit(self, server: str, question: Form | Link) -> Answer:
        async with self._turn:
            try:
                if isinstance(question, Link):
                    return await self._visit(server, question)
                return await self._fill_in(server, question)
            except EOFError:
                return Answer(action="cancel")

    async def _visit(self, server: str, link: Link) -> Answer:
        host = urlsplit(link.url).hostname or ""
        lines = (
            *self._heading(server, "asks you to visit an address", link.message),
            (Span(f"    {visible_line(link.url)}"),),
        )
        chosen = await self._choose(f"open {visible_line(host)}? [y]es, [n]o: ", *lines)
        if chosen == "yes":
            _open_browser(link.url)
        return Answer(action="accept" if chosen == "yes" else "decline")

    async def _fill_in(self, server: str, form: Form) -> Answer:
        heading = self._heading(server, "asks for some values", form.message)
        if await self._choose("answer it? [y]es, [n]o: ", *heading) == "no":
            return Answer(action="decline")
        values: dict[str, object] = {}
        for field in form.fields:

            def read(text: str, field: Field = field) -> object:
                return read_value(field, text)

            value = await self._person.fill_in(_prompt(field), read, *_about(field))
            if value is not None:
                values[field.name] = value
        shown = [(Span(f"    {visible_line(f'{key}: {value}')}"),) for key, value in values.items()]
        if form.fields and await self._choose("send it? [y]es, [n]o: ", *shown) == "no":
            return Answer(action="decline")
        return Answer(action="accept", values=values)

    async def _choose(self, prompt: str, *lines: Line) -> str:
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
    usual = "" if field.default is None else f" [{visible_line(str(field.default))}]"
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
    """Where there is one. A browser in the terminal would take it from us, so one is opened only where windows are."""
    is_web = urlsplit(url).scheme in ("http", "https")
    if is_web and (sys.platform == "darwin" or any(os.environ.get(name) for name in _DISPLAYS)):
        # Some browsers are waited for until they are closed: not by us.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
