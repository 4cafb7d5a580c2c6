"""Calls whose parameters stand in tags: strings as they are, everything else as JSON.

These formats have no escapes. A value that contains what ends it, a key that is no word, and a value whose text the
parameter's declared type would make something else of, can be written but not read back: the sheet gets a doubt.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from dragoman._json import Raw, is_strict
from dragoman.textcalls.offers import Types
from dragoman.textcalls.prompting.base import SaidCall, Sheet
from dragoman.textcalls.prompting.values import members, text_value

__all__ = ("Tags",)

# What keys may be made of, in every tag and attribute, beside letters and digits.
_KEY_MARKS = frozenset("_.$-")
# Texts that readers take for values of other types where a schema leaves them the choice.
_WORDS = frozenset({"true", "false", "null", "none", "nil", "yes", "no", "nan", "inf", "infinity"})
_BLANK = " \t\r\n"


class Tags(Struct, frozen=True, kw_only=True):
    """One format: what stands around all calls, around a call (`head` takes its name) and around a parameter.

    parameter: what stands before a value, from its key and its type; `end`: what stands after it.
    marks: literals that no value may contain. has_types: the markup itself says what is a string.
    trims: what a reader takes off both ends of a value: one line break, or all white space.
    """

    head: Callable[[str], str]
    parameter: Callable[[str, str], str]
    end: str
    tail: str
    marks: tuple[str, ...]
    opening: str = ""
    closing: str = ""
    between: str = "\n"
    room: str = ""
    trims: Literal["newline", "space"] = "newline"
    has_types: bool = False

    def say(self, calls: Sequence[SaidCall], sheet: Sheet) -> str:
        said = self.between.join(self._call(call, sheet) for call in calls)
        return self.opening + said + self.closing

    def _call(self, call: SaidCall, sheet: Sheet) -> str:
        written = [self.head(call.name)]
        for key, source in members(call.arguments).items():
            value, kind = text_value(source), json_type(source)
            types = sheet.offers.types(call.name, key)
            for doubt in self._doubts(key, value, kind, types):
                sheet.doubts.append(f"{call.name}.{key[:40]}: {doubt}")
            written += (self.parameter(key, kind), self._spaced(value), self.end)
        return "".join((*written, self.tail))

    def _spaced(self, value: str) -> str:
        """A value that begins or ends with a line break gets others for the reader to take off."""
        if self.room or "\n" not in (value[:1], value[-1:]):
            return self.room + value + self.room
        return f"\n{value}\n"

    def _doubts(self, key: str, value: str, kind: str, types: Types) -> list[str]:
        doubts: list[str] = []
        if not key or not all(letter.isalnum() or letter in _KEY_MARKS for letter in key):
            doubts.append("a key that is no word")
        found = next((mark for mark in self.marks if mark in value), None)
        if found is not None:
            doubts.append(f"a value that contains {found}")
        if self.trims == "space" and value != value.strip(_BLANK):
            doubts.append("white space at the ends of a value")
        if not self.has_types and not _keeps_type(value, kind, types):
            doubts.append(f"a {kind} where the schema says {' or '.join(sorted(types.names)) or 'nothing'}")
        return doubts


def json_type(source: Raw) -> str:
    """The JSON type of a value, from its source."""
    first = bytes(source)[:1]
    words = {b'"': "string", b"{": "object", b"[": "array", b"t": "boolean", b"f": "boolean", b"n": "null"}
    if first in words:
        return words[first]
    return "number" if set(bytes(source)) & set(b".eE") else "integer"


def _keeps_type(value: str, kind: str, types: Types) -> bool:
    """Whether a reader that goes by the schema reads the value as what it is."""
    names = types.names
    if kind == "string":
        if types.is_text:
            return True
        is_open = not names or "string" in names
        return is_open and not is_strict(value) and value.strip().lower() not in _WORDS
    return kind in names or (kind == "integer" and "number" in names)
