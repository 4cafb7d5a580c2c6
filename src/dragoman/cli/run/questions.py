"""Lines that a person types: the next thing to do, or a word of approval. Read from a terminal, one when asked for.

The terminal edits the line; reading waits on the event loop, so that everything else goes on and a wait can be ended.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from dragoman.cli.run.live import LiveScreen
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.visible import cells, visible_line

__all__ = ("Person", "TypedLines")

_PROMPT = "> "
# Nobody types so fast, and terminals hand on what is pasted much faster.
_PASTE_SECONDS = 0.03
_LEAST_ROWS = 8  # of a page, on a screen that is hardly one
_PAGE_WORDS = {"": "next", "r": "rest", "rest": "rest", "n": "no", "no": "no"}
_READ_SIZE = 65536  # terminals give one line at a time, and no longer ones than 4,096 bytes


class TypedLines:
    """Of one terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pieces: list[bytes] = []
        self._ending: asyncio.TimerHandle | None = None

    async def read(self, *, pasted: bool = False) -> str | None:
        """The next line without its end; None where the person has ended the input (Ctrl-D).

        pasted: lines that come together are one.
        """
        loop = asyncio.get_running_loop()
        self._pieces.clear()
        done: asyncio.Future[str | None] = loop.create_future()
        loop.add_reader(self._descriptor, self._take, done, _PASTE_SECONDS if pasted else 0.0)
        try:
            return await done
        finally:
            loop.remove_reader(self._descriptor)
            if self._ending is not None:
                self._ending.cancel()

    def forget(self) -> None:
        """Drop what was typed before it was asked for: it answers another question, or none."""
        with suppress(ImportError, OSError):
            import termios  # noqa: PLC0415 - not on every system

            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _take(self, done: "asyncio.Future[str | None]", patience: float) -> None:
        if done.done():  # what follows is not ours
            return
        try:
            data = os.read(self._descriptor, _READ_SIZE)
        except OSError:  # the terminal is gone
            data = b""
        self._pieces.append(data)
        if self._ending is not None:
            self._ending.cancel()
        if not data or (not patience and data.endswith(b"\n")):
            self._end(done)
        elif data.endswith(b"\n"):
            self._ending = asyncio.get_running_loop().call_later(patience, self._end, done)

    def _end(self, done: "asyncio.Future[str | None]") -> None:
        if not done.done():
            line = b"".join(self._pieces)
            done.set_result(line.decode("utf-8", "replace").rstrip("\r\n") if line else None)


class Person:
    """Somebody at a terminal, who is asked one thing at a time."""

    def __init__(self, screen: LiveScreen, lines: TypedLines) -> None:
        self._screen = screen
        self._lines = lines
        self._turn = asyncio.Lock()  # held while an answer is waited for: the terminal is one

    async def next_question(self) -> str | None:
        """What to do next; None: nothing more."""
        self._screen.show(())
        self._screen.ask(_PROMPT)
        try:
            line = await self._lines.read(pasted=True)
        finally:
            self._screen.answered()
        if line is None:
            self._screen.show(())
        return line

    def remind(self) -> None:
        """Ctrl-C where nothing goes on."""
        self._screen.answered()
        self._screen.say("\n")
        self._screen.show((Span("Ctrl-C again quits, and so does Ctrl-D", "faint"),))
        self._screen.ask(_PROMPT)

    @property
    def width(self) -> int:
        return self._screen.width

    def tell(self, *lines: Line) -> None:
        """Something they should see, whatever else is shown."""
        self._screen.show(*lines)

    async def choose(self, words: Mapping[str, str], prompt: str, *lines: Line) -> str | None:
        """One of several answers, by any of their words; None if the person ends the input.

        Lines that do not fit on the screen are shown page by page, and the question comes after the last: until then
        nothing but `no` answers it. Nothing else is written between the pages.
        """
        async with self._turn:
            self._lines.forget()
            pages = _pages(lines, self._screen.width, max(self._screen.height - 2, _LEAST_ROWS))
            try:
                for number, page in enumerate(pages[:-1], 1):
                    typed = await self._turn_page(number, len(pages), page)
                    if typed != "next":
                        if typed != "rest":
                            return words.get(typed or "")
                        rest = tuple(line for each in pages[number:] for line in each)
                        return await self._choose(words, prompt, rest)
                return await self._choose(words, prompt, pages[-1])
            except BaseException:
                self._screen.say("\n")
                raise
            finally:
                self._screen.answered()

    async def _turn_page(self, number: int, count: int, page: Sequence[Line]) -> str | None:
        """`next`, `rest`, `no`, or None for the end of the input."""
        prompt = f"-- page {number} of {count}: Enter for the next, [r] for the rest of it, [n]o: "
        while True:
            self._screen.ask(prompt, *page)
            line = await self._lines.read()
            if line is None or line.strip().lower() in _PAGE_WORDS:
                return None if line is None else _PAGE_WORDS[line.strip().lower()]

    async def _choose(
        self, words: Mapping[str, str], prompt: str, lines: Sequence[Line]
    ) -> str | None:
        while True:
            self._screen.ask(prompt, *lines)
            line = await self._lines.read()
            if line is None or line.strip().lower() in words:
                return None if line is None else words[line.strip().lower()]

    async def fill_in(self, prompt: str, read: Callable[[str], object], *lines: Line) -> object:
        """What `read` makes of a line; asked for again while it raises ValueError.

        Raises:
            EOFError: the person has ended the input.
        """
        async with self._turn:
            self._lines.forget()
            while True:
                line = await self._typed(prompt, *lines)
                if line is None:
                    raise EOFError
                try:
                    return read(line)
                except ValueError as error:
                    lines = ((Span(f"    {visible_line(str(error))}", "bad"),),)

    async def _typed(self, prompt: str, *lines: Line) -> str | None:
        self._screen.ask(prompt, *lines)
        try:
            return await self._lines.read()
        except BaseException:
            self._screen.say("\n")
            raise
        finally:
            self._screen.answered()


def _pages(lines: Sequence[Line], width: int, height: int) -> list[list[Line]]:
    """The lines in as many pages as it takes; at least one."""
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
