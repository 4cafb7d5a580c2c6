"""Markdown for a terminal: the text of a model in styled pieces, as it streams. Pure; the text is already safe to show.

Text goes out as it arrives. Held back are: the beginning of a line until it is clear what block it begins, a mark such as `**` until the
mark that closes it, a word until its end, and a table until it ends. Whatever turns out to be no markup is shown as it was written. Lines of
text are broken between words; code and tables are not.

    # Heading        in the style of a title
    - item           • item
    > quoted         │ quoted
    **a** *b* `c`    in styles of their own, without the marks
    [a](url)         a (url)
    | a | b |        columns of equal width, if they fit
    ```              code, without any markup in it; the fences stay
"""

import re
from collections.abc import Iterator

from dragoman.inspection.layout import Span
from dragoman.inspection.terminal_text import Style, cells, pad

# Characters that are held back: a sentence in bold and a row of a table are shorter. What is longer is shown as it is.
_MAX_HELD = 1_000
_MAX_TABLE = 200  # rows that are held back
_RULE_CELLS = 40

# The beginning of a line that may still become a block: shown when more has come.
_UNDECIDED = re.compile(r" *(#{1,6}|[-*+]|\d{1,9}[.)]?|`{1,2}|~{1,2}|[-*_ ]*)")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}([-*_])( *\1){2,} *")
_HEADING = re.compile(r" {0,3}#{1,6} +")
_ITEM = re.compile(r"( *)[-*+] +")
_QUOTE = re.compile(r" {0,3}> ?")
_ROW = re.compile(r" {0,3}\|")
_DIVIDER = re.compile(r" {0,3}\|?( *:?-+:? *\|)* *:?-+:? *\|? *")

_MARKS = re.compile(r"[*_`\[\\]")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_LINK = re.compile(r"\[([^\[\]\n]+)\]\((\w+:[^\s()]+)\)")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# `__bold__` is not among them: a model that writes about Python means the name.
_EMPHASES: tuple[tuple[re.Pattern[str], Style], ...] = (
    (re.compile(r"\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*(?!\*)"), "strong"),
    (re.compile(r"(?<!\*)\*(?=[^\s*])([^*]+?)(?<=[^\s*])\*(?!\*)"), "emphasis"),
    (re.compile(r"(?<!\w)_(?=[^\s_])([^_]+?)(?<=[^\s_])_(?!\w)"), "emphasis"),
)

# Marks whose end may still come: all of the text after a mark must match.
_OPEN = {
    "\\": re.compile(r"\\"),
    "[": re.compile(r"\[[^\[\]]*(\](\([^\s()]*)?)?"),
    "`": re.compile(r"`.*"),
    "*": re.compile(r"\*{1,2}([^\s*].*)?"),
    "_": re.compile(r"(?<!\w)_([^\s_].*)?"),
}


# Spaces; characters of scripts without spaces, between any two of which a line may be broken; words.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_WORDS = re.compile(f" +|[{_WIDE}]|[^ {_WIDE}]+")
_IS_WIDE = re.compile(f"[{_WIDE}]")
_SHORTEST_LINE = 10  # cells; what is indented further is broken by the terminal


class _WordWrap:
    """Breaks a line between words. The word at the end is held back, because more of it may come."""

    def __init__(self) -> None:
        self._column = 0
        self._indent = 0
        self._space = Span("")
        self._word: list[Span] = []
        self._is_long = False  # the beginning of the word was longer than a line, and is shown

    def begin(self, indent: int) -> None:
        """A line begins. indent: where its text begins, and where the lines below it do."""
        self._column = self._indent = indent

    def feed(self, piece: Span, width: int) -> Iterator[Span]:
        for part in _WORDS.findall(piece.text):
            if part.startswith(" "):
                yield from self._end_word(width)
                self._space = Span(self._space.text + part, piece.style)
            elif _IS_WIDE.match(part):
                yield from self._end_word(width)
                self._word = [Span(part, piece.style)]
                yield from self._end_word(width)
            else:
                self._word.append(Span(part, piece.style))
                if self._is_long or sum(cells(each.text) for each in self._word) > width:
                    yield from self._show_word(width)
                    self._is_long = True

    def end(self, width: int) -> Iterator[Span]:
        """The rest of the line."""
        yield from self._end_word(width)
        yield self._space
        self._space = Span("")

    def _end_word(self, width: int) -> Iterator[Span]:
        if self._word:
            yield from self._show_word(width)
        self._is_long = False

    def _show_word(self, width: int) -> Iterator[Span]:
        word, self._word = self._word, []
        space, self._space = self._space, Span("")
        size = sum(cells(each.text) for each in word)
        does_fit = self._column + cells(space.text) + size <= width
        can_break = self._column != self._indent and width - self._indent >= _SHORTEST_LINE
        if does_fit or self._is_long or not can_break:
            yield space
            self._column += cells(space.text)
        else:
            yield Span("\n" + " " * self._indent)
            self._column = self._indent
        yield from word
        self._column += size
        if self._column > width:  # the terminal has broken a long word
            self._column = (self._column - 1) % width + 1


class MarkdownText:
    """The text of one answer. `feed` and `close` return what can be shown; a line feed is always in a plain piece."""

    def __init__(self, *, bullet: str = "•", edge: str = "│", rule: str = "─") -> None:
        self._bullet, self._edge, self._rule = bullet, edge, rule
        self._held: str = ""  # the rest of the line, of which nothing was shown
        self._before: str = ""  # the last character of the line that was shown
        self._is_begun: bool = False  # the block of this line is known
        self._style: Style = "plain"  # of this line
        self._fence: str = ""  # the fence that opened the code block
        self._table: list[str] = []
        self._wrap = _WordWrap()

    def feed(self, text: str, width: int) -> list[Span]:
        """The pieces that can be shown after this text. `width`: the cells of the terminal, for tables."""
        pieces: list[Span] = []
        *whole, rest = text.split("\n")
        for line in whole:
            pieces += self._hold(line, width, is_whole=True)
        pieces += self._hold(rest, width, is_whole=False)
        return [piece for piece in pieces if piece.text]

    def _hold(self, text: str, width: int, *, is_whole: bool) -> Iterator[Span]:
        """Take more of a line. A long text is taken in pieces, because marks are looked for in all that is held."""
        for start in range(0, max(len(text), 1), _MAX_HELD):
            self._held += text[start : start + _MAX_HELD]
            is_last = start + _MAX_HELD >= len(text)
            yield from self._advance(width, is_whole=is_whole and is_last)

    def close(self, width: int) -> list[Span]:
        """What is still held back, at the end of the answer."""
        pieces: list[Span] = []
        if self._held or self._is_begun:
            pieces = list(self._advance(width, is_whole=True))
        pieces += self._end_table(width)
        if pieces and pieces[-1].text == "\n":
            pieces.pop()  # it ended no line of the answer
        self._fence = ""
        return [piece for piece in pieces if piece.text]

    def _advance(self, width: int, *, is_whole: bool) -> Iterator[Span]:
        """Show what is clear. `is_whole`: all of the line is held."""
        if not self._is_begun:
            is_long = len(self._held) > _MAX_HELD
            if not is_whole and not is_long and self._is_undecided():
                return
            if _ROW.match(self._held) and not self._fence and not is_long:
                if is_whole:
                    self._table.append(self._held)
                    self._held = ""
                    if len(self._table) > _MAX_TABLE:
                        yield from self._end_table(width)
                return
            yield from self._end_table(width)
            begun = [piece for piece in self._begin_line(is_whole=is_whole) if piece.text]
            yield from begun
            self._wrap.begin(sum(cells(piece.text) for piece in begun))
        for piece in self._inline(is_whole=is_whole):
            if self._style == "code":
                yield piece
            else:
                yield from self._wrap.feed(piece, width)
        if is_whole:
            yield from self._wrap.end(width)
            yield Span("\n")
            self._held, self._before, self._style, self._is_begun = "", "", "plain", False

    def _is_undecided(self) -> bool:
        if not self._held:
            return True
        if self._fence:
            return self._fence.startswith(self._held.strip(" ")[: len(self._fence)])
        return bool(_UNDECIDED.fullmatch(self._held) or _FENCE.match(self._held))

    def _begin_line(self, *, is_whole: bool) -> Iterator[Span]:
        line = self._held
        self._is_begun = True
        fence = _FENCE.match(line)
        if self._fence:
            is_end = (
                fence is not None and line.strip() == fence[1] and fence[1].startswith(self._fence)
            )
            self._style = "faint" if is_end else "code"
            if is_end:
                self._fence = ""
                yield from self._take(len(line), "faint")
        elif fence is not None:
            self._fence = fence[1]
            yield from self._take(len(line), "faint")
        elif is_whole and _RULE.fullmatch(line):
            self._held = ""
            yield Span(self._rule * _RULE_CELLS, "faint")
        elif heading := _HEADING.match(line):
            self._held, self._style = line[heading.end() :], "title"
        elif item := _ITEM.match(line):
            self._held = line[item.end() :]
            yield Span(f"{item[1]}{self._bullet} ")
        elif quote := _QUOTE.match(line):
            self._held = line[quote.end() :]
            yield Span(f"{self._edge} ", "faint")

    def _take(self, count: int, style: Style) -> Iterator[Span]:
        """Show the first characters that are held, as they are."""
        text, self._held = self._held[:count], self._held[count:]
        self._before = text[-1:] or self._before
        yield Span(text, style)

    def _inline(self, *, is_whole: bool) -> Iterator[Span]:
        if self._style == "code":
            yield from self._take(len(self._held), "code")
            return
        while self._held:
            mark = _MARKS.search(self._held)
            if mark is None:
                yield from self._take(len(self._held), self._style)
                return
            yield from self._take(mark.start(), self._style)
            # The character before it decides whether `_` is a mark; the one after it may make it another mark.
            start = len(self._before)
            whole = self._before + self._held
            found = _marked(whole, start, self._style)
            is_clear = is_whole or len(self._held) > _MAX_HELD
            if found is None and not is_clear and _OPEN[mark[0]].fullmatch(whole, start):
                return
            if found is None:
                yield from self._take(1, self._style)
                continue
            pieces, end = found
            if not is_clear and end == start + len(self._held):
                return
            self._before, self._held = self._held[end - start - 1], self._held[end - start :]
            yield from pieces

    def _end_table(self, width: int) -> Iterator[Span]:
        rows, self._table = self._table, []
        if not rows:
            return
        table = [_cells_of(row) for row in rows if not _DIVIDER.fullmatch(row)]
        columns = max(map(len, table), default=0)
        widths = [
            max(cells(_plain(row[at])) if at < len(row) else 0 for row in table)
            for at in range(columns)
        ]
        if len(table) == len(rows) or sum(widths) + 3 * columns > width:
            for line in rows:  # no table, or one that the terminal would break
                yield from (*_styled(line, "plain"), Span("\n"))
            return
        for number, row in enumerate(table):
            for at, room in enumerate(widths):
                text = row[at] if at < len(row) else ""
                edge = f" {self._edge} " if at else ""
                yield Span(edge, "faint")
                yield from _styled(text, "plain" if number else "strong")
                yield Span(pad("", room - cells(_plain(text))) if at < columns - 1 else "")
            yield Span("\n")


def _cells_of(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    inner = inner.removesuffix("|") if not inner.endswith("\\|") else inner
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", inner)]


def _plain(text: str) -> str:
    return "".join(piece.text for piece in _styled(text, "plain"))


def _styled(text: str, style: Style) -> Iterator[Span]:
    """A whole text, with the markup inside lines."""
    at = 0
    while mark := _MARKS.search(text, at):
        yield Span(text[at : mark.start()], style)
        found = _marked(text, mark.start(), style)
        if found is None:
            yield Span(text[mark.start()], style)
            at = mark.end()
            continue
        pieces, at = found
        yield from pieces
    yield Span(text[at:], style)


def _marked(text: str, start: int, style: Style) -> tuple[list[Span], int] | None:
    """What a mark at this place marks, and where it ends; None if nothing is marked."""
    match text[start]:
        case "\\":
            found = _ESCAPED.match(text, start)
            return None if found is None else ([Span(found[1], style)], found.end())
        case "`":
            found = _CODE.match(text, start)
            return None if found is None else ([Span(found[2], "code")], found.end())
        case "[":
            found = _LINK.match(text, start)
            if found is None:
                return None
            name, url = found.groups()
            address = [] if name == url else [Span(f" ({url})", "faint")]
            return [Span(name, "link"), *address], found.end()
        case _:
            for pattern, own in _EMPHASES:
                found = pattern.match(text, start)
                if found is not None:
                    return list(_styled(found[1], own)), found.end()
            return None
