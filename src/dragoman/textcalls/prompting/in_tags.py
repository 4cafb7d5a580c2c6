"""Calls whose parameters stand in tags: strings as they are, everything else as JSON.

These formats have no escapes. A value that contains what ends it, a key that is no word, and a value whose text the
parameter's declared type would make something else of, can be written but not read back: the sheet gets a doubt.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from dragoman._json import Raw, loads
from dragoman.textcalls.coerce import Untyped, coerce
from dragoman.textcalls.offers import JsonType, Offers, Types
from dragoman.textcalls.prompting.base import SaidCall, Sheet
from dragoman.textcalls.prompting.values import members, text_value

__all__ = ("Tags",)

# What keys may be made of, in every tag and attribute, beside letters and digits.
_KEY_MARKS = frozenset("_.$-")
_BLANK = " \t\r\n"
_TYPES: dict[bytes, JsonType] = {
    b'"': "string",
    b"{": "object",
    b"[": "array",
    b"t": "boolean",
    b"f": "boolean",
    b"n": "null",
}
_STRING = Types(frozenset({"string"}))
_JSON = Types(frozenset({"null", "number", "boolean", "object", "array", "string"}))


class Tags(Struct, frozen=True, kw_only=True):
    """One format: what stands around all calls, around a call (`head` takes its name) and around a parameter.

    parameter: what stands before a value, from its key and its type. end: what stands after it, from its key.
    marks: literals that no value may contain, `{key}` standing for that of the parameter.
    room: what stands around each value that a reader takes off again.
    trims: what a reader takes off both ends of a value: one line break, all white space, or nothing.
    untyped: what a value is for a reader whose type no schema tells; `markup`: what its tag says.
    wrappers: keys that a reader takes for a wrapper of all arguments where they stand alone and undeclared.
    needs_required: a reader refuses calls that lack a required parameter.
    """

    head: Callable[[str], str]
    parameter: Callable[[str, JsonType], str]
    end: Callable[[str], str]
    tail: Callable[[str], str]
    marks: tuple[str, ...]
    opening: str = ""
    closing: str = ""
    between: str = "\n"
    room: str = ""
    trims: Literal["newline", "space", "nothing"] = "newline"
    untyped: Untyped | Literal["markup"] = "string"
    wrappers: tuple[str, ...] = ()
    needs_required: bool = False

    def say(self, calls: Sequence[SaidCall], sheet: Sheet) -> str:
        said = self.between.join(self._call(call, sheet) for call in calls)
        return self.opening + said + self.closing

    def _call(self, call: SaidCall, sheet: Sheet) -> str:
        written = [self.head(call.name)]
        arguments = members(call.arguments)
        sheet.doubts.extend(self._doubts_of_all(call.name, arguments, sheet.offers))
        for key, source in arguments.items():
            value = text_value(source)
            kind = json_type(source)
            types = sheet.offers.types(call.name, key)
            for doubt in self._doubts(key, value, source, types):
                sheet.doubts.append(f"{call.name}.{key[:40]}: {doubt}")
            written += (self.parameter(key, kind), self._spaced(value), self.end(key))
        return "".join((*written, self.tail(call.name)))

    def _spaced(self, value: str) -> str:
        """A value that begins or ends with a line break gets others for the reader to take off."""
        if self.room or self.trims != "newline" or not _has_outer_break(value):
            return self.room + value + self.room
        return f"\n{value}\n"

    def _doubts_of_all(self, name: str, arguments: dict[str, Raw], offers: Offers) -> Iterator[str]:
        alone = next(iter(arguments)) if len(arguments) == 1 else ""
        if alone in self.wrappers and alone not in offers.parameters(name):
            yield f"{name}: a parameter that looks like a wrapper of all"
        if self.needs_required and not arguments.keys() >= set(offers.required(name)):
            yield f"{name}: a required parameter is missing"

    def _doubts(self, key: str, value: str, source: Raw, types: Types) -> Iterator[str]:
        if not key or not all(letter.isalnum() or letter in _KEY_MARKS for letter in key):
            yield "a key that is no word"
        marks = (mark.replace("{key}", key) for mark in self.marks)
        found = next((mark for mark in marks if mark in value), None)
        if found is not None:
            yield f"a value that contains {found}"
        if self.trims == "space" and value != value.strip(_BLANK):
            yield "white space at the ends of a value"
        if not self._keeps_type(value, source, types):
            declared = " or ".join(sorted(types.names)) or "nothing"
            yield f"a {json_type(source)} where the schema says {declared}"

    def _keeps_type(self, value: str, source: Raw, types: Types) -> bool:
        """Whether a reader that goes by the schema reads the value as what it is."""
        kind = json_type(source)
        if self.untyped == "markup":
            types = types if types.names else _STRING if kind == "string" else _JSON
        if kind == "string" and types.is_text:
            return True
        untyped = "string" if self.untyped == "markup" else self.untyped
        read = Raw(coerce(value, types, untyped).encode("utf-8", "backslashreplace"))
        is_same = bytes(read) == bytes(source) or bool(loads(bytes(read)) == loads(bytes(source)))
        return is_same and json_type(read) == kind


def json_type(source: Raw) -> JsonType:
    """The JSON type of a value, from its source."""
    data = bytes(source)
    known = _TYPES.get(data[:1])
    if known is not None:
        return known
    return "number" if set(data) & set(b".eE") else "integer"


def _has_outer_break(value: str) -> bool:
    return value.startswith(("\n", "\r\n")) or value.endswith("\n")
