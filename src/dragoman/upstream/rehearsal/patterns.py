"""A short text that a regular expression matches, for the `pattern` of a schema. Pure.

Literals, escapes, classes, groups, alternatives and quantifiers are understood; look-around, back references and
flags are not, and then there is no text. The text is made from the pattern, never tried against it: a client's
pattern may take a matcher exponential time, and this takes time linear in what it writes.
"""

import string

__all__ = ("MAX_EXAMPLE", "example")

# Longer than any id or code that a schema describes; a pattern that demands more is left unanswered.
MAX_EXAMPLE = 4096
# Groups in groups: past this depth a pattern is given up.
MAX_DEPTH = 32

_WORD = string.ascii_lowercase + string.ascii_uppercase + string.digits + "_"
_CLASSES = {"d": "1" + string.digits, "w": _WORD, "s": " "}
_OUTSIDE = {"D": "a", "W": " ", "S": "a"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_ANCHORS = {"b", "B", "A", "Z", "z"}
_ANY = "a" + string.ascii_letters + string.digits + " -_.,"
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F))


def example(pattern: str, min_length: int = 0) -> str | None:
    """A text the pattern matches, at least so long if the pattern lets it; None if the pattern is not understood.

    Where a text must be longer, what may be repeated without end is repeated more often.
    """
    try:
        text = _Writer(pattern, 0).write()
        return text if len(text) >= min_length else _Writer(pattern, min_length).write()
    except _NotUnderstood:
        return None


class _NotUnderstood(Exception):
    """The pattern has something in it that is not known here."""


class _Writer:
    """Writes while it reads: each piece of the pattern becomes the text it stands for."""

    def __init__(self, pattern: str, more: int) -> None:
        self._pattern = pattern
        self._at = 0
        self._more = more  # how many characters the first endless repetition adds
        self._size = 0

    def write(self) -> str:
        text = self._alternatives(0)
        if self._at < len(self._pattern):
            raise _NotUnderstood
        return text

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        taken = self._peek()
        if not taken:
            raise _NotUnderstood
        self._at += 1
        return taken

    def _alternatives(self, depth: int) -> str:
        """The first of the alternatives; the others are read over."""
        if depth > MAX_DEPTH:
            raise _NotUnderstood
        text = self._sequence(depth)
        while self._peek() == "|":
            self._at += 1
            more, self._more = self._more, 0
            self._sequence(depth)
            self._more = more
        return text

    def _sequence(self, depth: int) -> str:
        out: list[str] = []
        while self._peek() not in ("", "|", ")"):
            out.append(self._repeated(self._atom(depth)))
        return "".join(out)

    def _atom(self, depth: int) -> str:
        sign = self._take()
        match sign:
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                return self._escape()[:1]
            case "*" | "+" | "?":
                raise _NotUnderstood
            case _:
                return sign

    def _group(self, depth: int) -> str:
        if self._peek() == "?":
            self._at += 1
            sign = self._take()
            if sign == "P" or (sign == "<" and self._peek() not in ("=", "!")):
                name, closing, _ = self._pattern[self._at :].partition(">")
                if not closing or name.startswith(("=", ">")):
                    raise _NotUnderstood
                self._at += len(name) + 1
            elif sign != ":":
                raise _NotUnderstood  # look-around, flags, comments
        text = self._alternatives(depth + 1)
        self._take()  # the closing parenthesis; where there is none the pattern is at its end
        return text

    def _escape(self) -> str:
        """The characters an escape stands for, the likeliest first; none for an anchor."""
        sign = self._take()
        if sign in _ANCHORS:
            return ""
        if sign in "123456789" or sign in "pPkuxcN":
            raise _NotUnderstood  # back references, properties, numbers of characters
        return _CLASSES.get(sign) or _OUTSIDE.get(sign) or _CONTROLS.get(sign) or sign

    def _class(self) -> str:
        is_negative = self._peek() == "^"
        if is_negative:
            self._at += 1
        members: list[str] = []
        while True:
            sign = self._take()
            if sign == "]" and members:
                break
            chars = self._escape() if sign == "\\" else sign
            members.append(self._until(chars) if self._is_range(chars) else chars)
        if not is_negative:
            return "".join(members)[:1]
        return next((char for char in _ANY + _PRINTABLE if not any(char in m for m in members)), "")

    def _is_range(self, first: str) -> bool:
        after = self._pattern[self._at : self._at + 2]
        return len(first) == 1 and len(after) == 2 and after[0] == "-" and after[1] != "]"

    def _until(self, first: str) -> str:
        self._at += 1
        last = self._take()
        last = self._escape() if last == "\\" else last
        if len(last) != 1 or last < first:
            raise _NotUnderstood
        # Only the first character is ever written, and a negative class needs the printable ones.
        return "".join(map(chr, range(ord(first), min(ord(last), ord(first) + 0x100) + 1)))

    def _repeated(self, text: str) -> str:
        least, is_endless = self._quantifier()
        if is_endless and self._more and text:
            least += -(-self._more // len(text))
            self._more = 0
        self._size += least * len(text)
        if self._size > MAX_EXAMPLE:
            raise _NotUnderstood
        return text * least

    def _quantifier(self) -> tuple[int, bool]:
        """How often at least, and whether there is no end to it."""
        least, is_endless = 1, False
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self._at += 1
            # One of what may be none reads better than nothing: `[a-z]*` is a word.
            least, is_endless = (0 if sign == "?" else 1), sign != "?"
        elif sign == "{":
            counts, closing, _ = self._pattern[self._at + 1 :].partition("}")
            first, comma, last = counts.partition(",")
            if not closing or not (first or "0").isdecimal() or (last and not last.isdecimal()):
                return 1, False  # a brace that is a character of its own
            if len(first) > 6 or len(last) > 6 or not (first or comma):
                raise _NotUnderstood
            self._at += len(counts) + 2
            least, is_endless = int(first or "0"), bool(comma) and not last
        if sign in ("*", "+", "?", "{") and self._peek() == "?":
            self._at += 1  # a lazy quantifier matches the same text
        return least, is_endless
