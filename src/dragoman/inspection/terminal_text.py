"""Makes text safe for a terminal: it cannot move the cursor, change colours or hide text, and its width in cells is known.

Text of a model is displayed literally: control characters, escape sequences, direction overrides, invisible format
characters and lone surrogates appear as the escapes that a programmer would write for them.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal, NamedTuple
from unicodedata import category, combining, east_asian_width

# C0 except LF, DEL and C1, marks and overrides of direction, invisible separators and tags, lone surrogates. The joiners
# U+200C and U+200D stay: scripts and emoji need them, and they cannot reorder anything.
_UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAMED = {"\t": "\\t", "\r": "\\r"}
Style = Literal[
    "plain", "title", "faint", "good", "warning", "bad", "strong", "emphasis", "code", "link"
]

# Parameters of the escape sequence that selects a style (ECMA-48, "SGR").
_CODES: dict[Style, str] = {
    "plain": "",
    "title": "1;36",
    "faint": "2",
    "good": "1;32",
    "warning": "33",
    "bad": "1;31",
    "strong": "1",
    "emphasis": "3",
    "code": "36",
    "link": "4",
}

# Code is readable with four, and a terminal's eight would take half of a narrow column.
_TAB_CELLS = 4


def visible(text: str) -> str:
    """The text with every unsafe character written as an escape. Line feeds stay; tabs become spaces."""
    text = text.replace("\r\n", "\n")
    if "\t" in text:
        text = text.expandtabs(_TAB_CELLS)
    return _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    """The text as `visible` returns it, but on one line: line feeds are escapes too."""
    return _UNSAFE.sub(_escape, text).replace("\n", "\\n")


# Terminals draw nothing for these characters, although Unicode counts them as letters, marks or signs.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_HIDDEN_KINDS = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))


def exact(line: str, escaped: Counter[str]) -> str:
    """A line in which every character can be seen, even those that `visible` keeps; `escaped` counts the escapes.

    For text on which a person decides: unusual spaces, joiners, selectors, spaces at the end of the line, and marks that are
    drawn over a letter of ASCII are escapes too.
    """
    body = line.rstrip(" ")
    if body.isascii() and body.isprintable() and len(body) == len(line):
        return line
    pieces: list[str] = []
    before = ""
    for char in body:
        is_hidden = _is_hidden(char, before)
        before = char
        if is_hidden:
            escaped[char] += 1
        pieces.append(_escape_of(char) if is_hidden else char)
    trailing = len(line) - len(body)
    if trailing:
        escaped[" "] += trailing
    return "".join(pieces) + "\\x20" * trailing


def _is_hidden(char: str, before: str) -> bool:
    if " " <= char < "\x7f":
        return False
    kind = category(char)
    if kind in ("Mn", "Me"):
        return (
            before < "\x80"
            or "\ufe00" <= char <= "\ufe0f"
            or char >= "\U000e0000"
            or char in _BLANK
        )
    return kind in _HIDDEN_KINDS or char in _BLANK


def _escape(match: re.Match[str]) -> str:
    return _escape_of(match[0])


def _escape_of(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """How many terminal cells the text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if combining(character) or character in "\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def pad(text: str, width: int) -> str:
    """The text padded with spaces to `width` cells."""
    return text + " " * (width - cells(text))


def cut_to(text: str, width: int) -> str:
    """One line of text, cut to `width` cells."""
    if cells(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while kept and cells(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def painted(text: str, style: Style) -> str:
    """The text in a style, for a terminal that shows colours."""
    code = _CODES[style]
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def shows_colours(environ: Mapping[str, str]) -> bool:
    """Whether the person at the terminal wants colours and the terminal has them, by the usual variables."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class Excerpt(NamedTuple):
    lines: tuple[str, ...]
    is_cut: bool


def excerpt(text: str, width: int, max_lines: int) -> Excerpt:
    """The text made visible and wrapped to `width` cells; no more than `max_lines` of it.

    Only as much of the text is read as can be shown, so the cost does not grow with a huge value.
    """
    head = text[: width * max_lines + 1]
    lines: list[str] = []
    for paragraph in visible(head).split("\n"):
        lines.extend(wrapped(paragraph, width))
        if len(lines) > max_lines:
            break
    is_cut = len(lines) > max_lines or len(head) < len(text)
    return Excerpt(tuple(lines[:max_lines]), is_cut)


def wrapped(paragraph: str, width: int) -> list[str]:
    """All of a paragraph in lines of at most `width` cells, cut at a space where there is one in the second half."""
    lines: list[str] = []
    start = 0
    while True:
        end = _fit(paragraph, start, width)
        if end == len(paragraph):
            lines.append(paragraph[start:])
            return lines
        space = paragraph.rfind(" ", start + (end - start) // 2, end)
        if space > start:
            end = space + 1
        lines.append(paragraph[start:end])
        start = end


def _fit(text: str, start: int, width: int) -> int:
    """The end of the longest piece from `start` that fits; at least one character."""
    end = start
    used = 0
    while end < len(text):
        used += _cells(text[end])
        if used > width and end > start:
            break
        end += 1
    return end
