"""A minimal terminal: what is on the screen after everything that was written to it."""

import re

_TOKEN = re.compile(r"\x1b\[(\??\d*(?:;\d+)*)( ?[A-Za-z])|\r|\n|\x08|.", re.DOTALL)


EDITOR_MODES = ("?1", "?7", "?12", "?25", "?2004", "0")
"""Modes that a line editor sets: keys, wrapping, the cursor's look, bracketed paste."""


class Terminal:
    """Knows line ends, wrapping, movements of the cursor, `CSI J` (erase below), `CSI K` (erase the rest of the line), modes and
    colours, which it leaves out.

    feeds_return: a line feed goes to the first column, as terminals have it for programs.
    """

    def __init__(self, width: int = 80, *, feeds_return: bool = True) -> None:
        self._width = width
        self._feeds_return = feeds_return
        self._rows: list[list[str]] = [[]]
        self._row = 0
        self._column = 0

    def feed(self, text: str) -> None:
        for found in _TOKEN.finditer(text):
            if found[2] is not None:
                self._obey(found[2], found[1])
            elif found[0] == "\r":
                self._column = 0
            elif found[0] == "\b":
                self._column = max(self._column - 1, 0)
            elif found[0] == "\n":
                self._line_feed()
            else:
                assert found[0].isprintable(), f"reached the terminal raw: {found[0]!r}"
                self._put(found[0])

    @property
    def lines(self) -> list[str]:
        """The lines that are not empty at their end."""
        return ["".join(row).rstrip() for row in self._rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n")

    def _obey(self, command: str, arguments: str) -> None:
        match command:
            case "A":
                self._row -= int(arguments or 1)
                assert self._row >= 0, "moved above the first row"
            case "J":
                del self._rows[self._row + 1 :]
                del self._rows[self._row][self._column :]
            case "B":
                for _ in range(int(arguments or 1)):
                    self._row += 1
                    if self._row == len(self._rows):
                        self._rows.append([])
            case "C":
                self._column = min(self._column + int(arguments or 1), self._width - 1)
            case "D":
                self._column = max(self._column - int(arguments or 1), 0)
            case "K":
                del self._rows[self._row][self._column :]
            case "m":
                pass
            case "h" | "l" | " q" if arguments in EDITOR_MODES:
                pass
            case _:
                raise AssertionError(f"unknown escape sequence CSI {arguments} {command}")

    def _line_feed(self) -> None:
        self._row += 1
        if self._feeds_return:
            self._column = 0
        if self._row == len(self._rows):
            self._rows.append([])

    def _put(self, character: str) -> None:
        if self._column == self._width:
            self._column = 0
            self._line_feed()
        row = self._rows[self._row]
        row += [" "] * (self._column + 1 - len(row))
        row[self._column] = character
        self._column += 1
