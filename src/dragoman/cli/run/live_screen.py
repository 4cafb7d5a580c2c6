"""A terminal on which text streams while rows below it change, one for each call or answer in progress.

    finished text, which scrolls
    its last line, if it is not complete yet
    ⠋ read README.md  0.3 s         rows: redrawn at every change and every tick, removed when they are done

Without a terminal there are no rows and no escape codes, only lines. Callers make all text safe to show
(`inspection.terminal_text`), so only this module moves the cursor.
"""

import re
import shutil
from collections.abc import Callable
from typing import TextIO

from msgspec import Struct

from dragoman.inspection.layout import Line
from dragoman.inspection.terminal_text import Style, cells, cut_to, painted

TICK_SECONDS = 0.1
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"
_MOST_ROWS = 8  # of a hundred calls at once, only the first are shown
_LEAST_WIDTH = 20
_STYLES = re.compile("\x1b\\[[0-9;]*m")
_STYLES_OR_TEXT = re.compile("\x1b\\[[0-9;]*m|[^\x1b]+")


class _Row(Struct):
    label: str
    began: float
    waited: float  # how long a person had been asked when it began
    detail: str = ""


class LiveScreen:
    """Owns the screen. `is_live`: the screen is a terminal that can move its cursor."""

    def __init__(
        self, stream: TextIO, *, is_live: bool, has_colours: bool, clock: Callable[[], float]
    ) -> None:
        self._stream = stream
        self.is_live = is_live
        self._has_colours = has_colours
        self._clock = clock
        self._encoding = stream.encoding or "utf-8"
        self._frames = _FRAMES if self.can_write(_FRAMES) else _PLAIN_FRAMES
        self._frame = 0
        self._rows: dict[str, _Row] = {}
        self._drawn: list[int] = []  # the cells of each row below the text
        self._waited = 0.0  # seconds for which a person was asked
        self._asked: float | None = None
        self._tail = ""  # the last line of the text, below which rows are drawn
        self._is_mid_line = False
        self._held: list[str] | None = None  # text that arrives while a person is being asked
        # Other output, written when the person has answered.
        self._late: list[Callable[[], None]] = []

    @property
    def width(self) -> int:
        return max(shutil.get_terminal_size((100, 24)).columns, _LEAST_WIDTH)

    @property
    def height(self) -> int:
        return shutil.get_terminal_size((100, 24)).lines

    def can_write(self, text: str) -> bool:
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            return False
        return True

    @property
    def waited(self) -> float:
        """The seconds for which a person was asked so far."""
        return self._waited + (0.0 if self._asked is None else self._clock() - self._asked)

    @property
    def shows_styles(self) -> bool:
        """Whether a person sees the text in styles, and not a program or a plain terminal."""
        return self.is_live and self._has_colours

    def say(self, text: str | Line) -> None:
        """Write text as it arrives."""
        text = text if isinstance(text, str) else self._painted(text)
        text = self._written(text, "backslashreplace")
        if self._held is not None:
            self._held.append(text)
        elif not self._rows:
            self._write(text)
            self._is_mid_line = not text.endswith("\n") if text else self._is_mid_line
        else:
            self._redraw(said=text)

    def show(self, *lines: Line) -> None:
        """Write whole lines."""
        text = "".join(f"{self._painted(line)}\n" for line in lines)
        text = self._written(text, "backslashreplace")
        if self._held is not None:
            self._held.append(f"\n{text}" if self._held and self._held[-1][-1:] != "\n" else text)
        elif not self._rows:
            self._write(f"\n{text}" if self._is_mid_line else text)
            self._is_mid_line = False
        else:
            self._redraw(shown=text)

    def aside(self, write: Callable[[], None]) -> None:
        """Call a function that writes to the same terminal, between whole lines."""
        if self._held is not None:
            self._late.append(write)
            return
        if not self.is_live:
            write()
            return
        self._end_line()
        write()
        self._redraw()

    def set_row(self, key: str, label: str) -> None:
        """Add or change a row. Its time counts from the first call."""
        if not self.is_live:
            return
        if not self._rows and self._is_mid_line and self._held is None:
            self._write("\n")
            self._is_mid_line = False
        row = self._rows.get(key)
        self._rows[key] = (
            _Row(label, self._clock(), self.waited)
            if row is None
            else _Row(label, row.began, row.waited)
        )
        self._redraw()

    def set_detail(self, key: str, detail: str) -> None:
        row = self._rows.get(key)
        if row is not None:
            row.detail = detail  # the next tick shows it

    def drop_row(self, key: str) -> None:
        if self._rows.pop(key, None) is None:
            return
        self._redraw()

    def clear_rows(self) -> None:
        if self._rows:
            self._rows.clear()
            self._redraw()

    def tick(self) -> None:
        if self._rows and self._held is None:
            self._frame += 1
            self._redraw()

    def ask(self, prompt: str, *lines: Line) -> None:
        """Show a question at the end of the screen, and hold back all other output until `answered`.

        A second question before `answered` is shown below the first.
        """
        self._end_line()
        if self._held is None:
            self._held, self._asked = [], self._clock()
        question = "".join(f"{self._painted(line)}\n" for line in lines) + prompt
        self._write(self._written(question, "backslashreplace"))

    def answered(self) -> None:
        """Write the output that was held back. The person has ended the line, so the cursor is at the start of the next."""
        held, self._held = self._held or [], None
        self._waited, self._asked = self.waited, None
        late, self._late = self._late, []
        for write in late:
            write()
        if held:
            self.say("".join(held))
        self._redraw()

    def prompt(self, text: str) -> None:
        """Write a prompt after a question."""
        self._write(self._written(text, "backslashreplace"))

    def forget_rows(self) -> None:
        """Leave the rows where they are: another program has written below them (Ctrl-Z)."""
        self._drawn = []

    def _end_line(self) -> None:
        self._erase()
        if self._tail:
            self._write(f"{self._tail}\n")
            self._tail = ""
        elif self._is_mid_line:
            self._write("\n")
        self._is_mid_line = False

    def _redraw(self, said: str = "", shown: str = "") -> None:
        if self._held is not None or not self.is_live:
            return
        pieces = [self._erasing(), shown]
        *whole, self._tail = (self._tail + said).split("\n")
        pieces += [f"{line}\n" for line in whole]
        if not self._rows:
            pieces.append(self._tail)
            self._is_mid_line, self._tail, self._drawn = bool(self._tail), "", []
        else:
            width = self.width
            if _cells_of(self._tail) >= width:
                *whole, self._tail = _broken(self._tail, width - 1)
                pieces += [f"{line}\n" for line in whole]
            rows = [self._tail] if self._tail else []
            rows += self._drawn_rows(width)
            pieces.append("\n".join(rows))
            self._drawn = [_cells_of(row) for row in rows]
        self._write("".join(pieces))

    def _drawn_rows(self, width: int) -> list[str]:
        sign = self._frames[self._frame % len(self._frames)]
        now = self._clock()
        rows = [
            self._drawn_row(sign, row, now, width) for row in list(self._rows.values())[:_MOST_ROWS]
        ]
        more = len(self._rows) - _MOST_ROWS
        return [*rows, f"  and {more} more"] if more > 0 else rows

    def _drawn_row(self, sign: str, row: _Row, now: float, width: int) -> str:
        time = seconds(max(now - row.began - (self._waited - row.waited), 0.0))
        room = width - len(time) - 6  # sign, spaces, and the last column, at which terminals wrap
        label = cut_to(row.label, room)
        left = room - cells(label) - 2
        detail = f"  {cut_to(row.detail, left)}" if row.detail and left > 8 else ""
        # Replace each character by one character: a longer row would take two rows of the terminal.
        label, detail = self._written(label, "replace"), self._written(detail, "replace")
        return f"{self._coloured(sign, 'title')} {label}  {self._coloured(time + detail, 'faint')}"

    def _erasing(self) -> str:
        if not self._drawn:
            return ""
        # If the terminal became narrower, it has wrapped the rows.
        width = self.width
        rows = sum(max(1, -(-cells_ // width)) for cells_ in self._drawn)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J"

    def _erase(self) -> None:
        self._write(self._erasing())
        self._drawn = []

    def _painted(self, line: Line) -> str:
        return "".join(self._coloured(span.text, span.style) for span in line)

    def _coloured(self, text: str, style: Style) -> str:
        return painted(text, style) if self._has_colours else text

    def _written(self, text: str, otherwise: str) -> str:
        """The text with characters that the stream can encode."""
        if self.can_write(text):
            return text
        return text.encode(self._encoding, otherwise).decode(self._encoding)

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


def _broken(line: str, width: int) -> list[str]:
    """A line with styles in rows of at most `width` cells; a style goes on in the next row."""
    rows = [""]
    room = width
    for piece in _STYLES_OR_TEXT.findall(line):
        if piece.startswith("\x1b"):
            rows[-1] += piece
            continue
        start = 0
        for at, char in enumerate(piece):
            size = cells(char)
            if size > room:
                rows[-1] += piece[start:at]
                rows.append("")
                start, room = at, width
            room -= size
        rows[-1] += piece[start:]
    return rows


def _cells_of(row: str) -> int:
    return cells(_STYLES.sub("", row))


def seconds(elapsed: float) -> str:
    if elapsed < 60:
        return f"{elapsed:.1f} s"
    minutes, rest = divmod(int(elapsed), 60)
    return f"{minutes} min {rest:02} s"
