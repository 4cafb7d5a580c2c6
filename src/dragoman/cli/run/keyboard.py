"""What a person types: the interface of a keyboard, what is typed while nothing is asked, and lines on a plain terminal.

While the agent works, the terminal does not echo. Text that is typed then is collected and becomes the beginning of the next question:
the person sees it in the editor, and sends it or not. It is never an answer to another question, such as an approval. A
question that needs an answer waits until nothing was typed for a moment, so that the rest of a paste is not taken as the answer.
"""

import asyncio
import os
import re
import select
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Protocol

# No person types lines this fast, and pasted lines arrive much faster.
PASTE_SECONDS = 0.03
_READ_SIZE = 65536
# A person types a line or a paste while the agent works; more than this is not a question of a person.
_MAX_AHEAD = 1024 * 1024
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
_LFLAG, _CC = 3, 6  # the places of these in the attributes of a terminal


class Keyboard(Protocol):
    """The terminal on which a person types."""

    async def read(self, prompt: str) -> str | None:
        """One answer in one line; None if the person ends the input (Ctrl-D). Nothing typed before it counts."""
        ...

    async def read_question(self, prompt: str) -> str | None:
        """A text of any number of lines; None if the person ends the input."""
        ...

    def remind(self, prompt: str, text: str) -> None:
        """Show a message while `read_question` waits."""
        ...


def can_read(descriptor: int) -> bool:
    """Whether there is input that nobody has read."""
    return bool(select.select([descriptor], [], [], 0)[0])


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_SIZE)
    except OSError:  # the terminal was closed
        return b""


async def until_silent(descriptor: int) -> bytes:
    """Read until nothing has been typed for a moment; what was typed."""
    pieces: list[bytes] = []
    while True:
        while can_read(descriptor):
            data = _read(descriptor)
            if not data:
                return b"".join(pieces)
            pieces.append(data)
        await asyncio.sleep(PASTE_SECONDS)
        if not can_read(descriptor):
            return b"".join(pieces)


def as_typed(data: bytes) -> str:
    """The text that somebody typed without an editor: deletions are applied, keys other than characters are left out."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    kept: list[str] = []
    for char in text.replace("\r", "\n"):
        if char in "\x7f\b":
            del kept[-1:]
        elif char == "\x15":  # Ctrl-U
            kept.clear()
        elif char >= " " or char in "\n\t":
            kept.append(char)
    return "".join(kept)


class TypeAhead:
    """Collects what is typed while nothing is asked. Without echo: the screen belongs to the agent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pieces: list[bytes] = []
        self._size = 0
        self._before: list[int | list[bytes | int]] | None = None

    @contextmanager
    def opened(self) -> Generator[None]:
        """Collect while the context lasts. Needs the running loop."""
        with suppress(termios.error):
            self._before = termios.tcgetattr(self._descriptor)
            quiet = termios.tcgetattr(self._descriptor)
            # Signals of the keyboard stay. Without lines (ICANON) the terminal cuts nothing at 4,095 characters.
            quiet[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, quiet)
        self._start()
        try:
            yield
        finally:
            self._stop()
            self.restore()

    def restore(self) -> None:
        """Restore the terminal's settings."""
        before, self._before = self._before, None
        if before is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave the input to somebody else while the context lasts."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def add(self, data: bytes) -> None:
        if self._size < _MAX_AHEAD:
            self._pieces.append(data)
            self._size += len(data)

    def take(self) -> str:
        """What was typed since the last time."""
        text = as_typed(b"".join(self._pieces))
        self._pieces.clear()
        self._size = 0
        return text

    def _start(self) -> None:
        with suppress(OSError):
            asyncio.get_running_loop().add_reader(self._descriptor, self._collect)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)

    def _collect(self) -> None:
        data = _read(self._descriptor)
        if data:
            self.add(data)
        else:
            self._stop()


class TypedLines:
    """Lines on a terminal that cannot move its cursor (TERM=dumb), with Backspace, Ctrl-U and Ctrl-D.

    write: shows the prompt. The terminal echoes, but does not cut the input into lines: it would drop what exceeds 4,095
    characters of a line.
    """

    def __init__(self, descriptor: int, write: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._write = write
        self._ending: asyncio.TimerHandle | None = None

    async def read(self, prompt: str) -> str | None:
        with self._unbuffered():
            await until_silent(self._descriptor)
            self._write(prompt)
            return await self._read(0.0)

    async def read_question(self, prompt: str) -> str | None:
        """Lines that arrive together are one text; a line that ends with a backslash continues."""
        self._write(prompt)
        with self._unbuffered():
            lines: list[str] = []
            while True:
                text = await self._read(PASTE_SECONDS)
                if text is None or not text.endswith("\\"):
                    return text if not lines else "\n".join([*lines, text or ""])
                lines.append(text.removesuffix("\\"))

    def remind(self, prompt: str, text: str) -> None:
        self._write(f"\n{text}\n{prompt}")

    @contextmanager
    def _unbuffered(self) -> Generator[None]:
        try:
            before = termios.tcgetattr(self._descriptor)
            mode = termios.tcgetattr(self._descriptor)
        except termios.error:  # no terminal
            yield
            return
        mode[_LFLAG] &= ~termios.ICANON
        mode[_CC][termios.VMIN], mode[_CC][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSANOW, mode)
        try:
            yield
        finally:
            with suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    async def _read(self, patience: float) -> str | None:
        loop = asyncio.get_running_loop()
        pieces: list[bytes] = []
        done: asyncio.Future[str | None] = loop.create_future()
        loop.add_reader(self._descriptor, self._take, done, pieces, patience)
        try:
            return await done
        finally:
            loop.remove_reader(self._descriptor)
            if self._ending is not None:
                self._ending.cancel()

    def _take(
        self, done: "asyncio.Future[str | None]", pieces: list[bytes], patience: float
    ) -> None:
        if done.done():  # later input is for the next read
            return
        data = _read(self._descriptor) if patience else self._read_line()
        pieces.append(data)
        if self._ending is not None:
            self._ending.cancel()
        whole = b"".join(pieces) if data[-1:] in (b"", b"\n", b"\x04") else b""
        if not data or (whole.endswith(b"\x04") and not as_typed(whole)):
            text = as_typed(whole)
            done.set_result(text or None)
        elif data.endswith((b"\n", b"\x04")):
            text = as_typed(whole).removesuffix("\n")
            if patience and data.endswith(b"\n"):
                self._ending = asyncio.get_running_loop().call_later(patience, _settle, done, text)
            else:
                _settle(done, text)

    def _read_line(self) -> bytes:
        """What is there, up to the end of a line: the next line is for the next question."""
        pieces: list[bytes] = []
        while not pieces or can_read(self._descriptor):
            try:
                piece = os.read(self._descriptor, 1)
            except OSError:
                piece = b""
            pieces.append(piece)
            if piece in (b"", b"\n", b"\x04"):
                break
        return b"".join(pieces)


def _settle(done: "asyncio.Future[str | None]", text: str) -> None:
    if not done.done():
        done.set_result(text)
