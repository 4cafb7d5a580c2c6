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
    """One format: what stands around all calls, around a call (`head` takes its name and its number in the turn) and around a parameter.

    parameter: what stands before a value, from its key and its type. end: what stands after it, from its key.
    marks: literals that no value may contain, `{name}` standing for that of the tool.
    room: what stands around each value that a reader takes off again.
    trims: what a reader takes off both ends of a value: one line break, or nothing.
    untyped: what a value is for a reader whose type no schema tells; `markup`: what its tag says.
    wrappers: keys that a reader takes for a wrapper of all arguments where they stand alone and undeclared.
    needs_required: a reader refuses calls that lack a required parameter; only_declared: and undeclared ones.
    read: the reader of one call's text, where only all of it together tells what a value is.
    """

    head: Callable[[str, int], str]
    parameter: Callable[[str, JsonType], str]
    end: Callable[[str], str]
    tail: Callable[[str], str]
    marks: tuple[str, ...]
    opening: str = ""
    closing: str = ""
    between: str = "\n"
    room: str = ""
    trims: Literal["newline", "nothing"] = "newline"
    untyped: Untyped | Literal["markup"] = "string"
    wrappers: tuple[str, ...] = ()
    needs_required: bool = False
    only_declared: bool = False
    read: Callable[[str, str, Offers], dict[str, str]] | None = None

    def say(self, calls: Sequence[SaidCall], sheet: Sheet) -> str:
        said = self.between.join(
            self._call(call, number, sheet) for number, call in enumerate(calls, 1)
        )
        return self.opening + said + self.closing

    def _call(self, call: SaidCall, number: int, sheet: Sheet) -> str:
        written = [self.head(call.name, number)]
        arguments = members(call.arguments)
        for key, source in arguments.items():
            value = text_value(source)
            types = sheet.offers.types(call.name, key)
            doubts = (
                *self._doubts_of_marks(call.name, key, value),
                *self._doubts_of_type(value, source, types),
            )
            sheet.doubts.extend(f"{call.name}.{key[:40]}: {doubt}" for doubt in doubts)
            written += (self.parameter(key, json_type(source)), self._spaced(value), self.end(key))
        written.append(self.tail(call.name))
        text = "".join(written)
        of_all = self._doubts_of_all(call.name, arguments, text, sheet.offers)
        sheet.doubts.extend(f"{call.name}: {doubt}" for doubt in of_all)
        return text

    def _spaced(self, value: str) -> str:
        """A value that begins or ends with a line break gets others for the reader to take off."""
        if self.room or self.trims != "newline" or not _has_outer_break(value):
            return self.room + value + self.room
        return f"\n{value}\n"

    def _doubts_of_all(
        self, name: str, arguments: dict[str, Raw], text: str, offers: Offers
    ) -> Iterator[str]:
        alone = next(iter(arguments)) if len(arguments) == 1 else ""
        if alone in self.wrappers and alone not in offers.parameters(name):
            yield "a parameter that looks like a wrapper of all"
        if self.needs_required and not arguments.keys() >= set(offers.required(name)):
            yield "a required parameter is missing"
        if self.only_declared and not set(offers.parameters(name)) >= arguments.keys():
            yield "a parameter that its schema does not declare"
        if self.read is not None:
            found = self.read(text, name, offers)
            for key, source in arguments.items():
                if key not in found or not _is_same(found[key], source):
                    yield f"a value of {key[:40]!r} that only its context tells"

    def _doubts_of_marks(self, name: str, key: str, value: str) -> Iterator[str]:
        if not key or not all(letter.isalnum() or letter in _KEY_MARKS for letter in key):
            yield "a key that is no word"
        marks = (mark.replace("{name}", name) for mark in self.marks)
        found = next((mark for mark in marks if mark in value), None)
        if found is not None:
            yield f"a value that contains {found}"
        if value.endswith("\r") and self._spaced(value) != value:
            yield "a value that ends with half a line break"

    def _doubts_of_type(self, value: str, source: Raw, types: Types) -> Iterator[str]:
        if self.read is None and not self._keeps_type(value, source, types):
            declared = " or ".join(sorted(types.names)) or "nothing"
            yield f"{json_type(source)} where the schema says {declared}"

    def _keeps_type(self, value: str, source: Raw, types: Types) -> bool:
        """Whether a reader that goes by the schema reads the value as what it is."""
        kind = json_type(source)
        untyped: Untyped = "string"
        if self.untyped != "markup":
            untyped = self.untyped
        elif not types.names:
            types = _STRING if kind == "string" else _JSON
        if kind == "string" and types.is_text:
            return True
        return _is_same(coerce(value, types, untyped), source)


def json_type(source: Raw) -> JsonType:
    """The JSON type of a value, from its source."""
    data = bytes(source)
    known = _TYPES.get(data[:1])
    if known is not None:
        return known
    return "number" if set(data) & set(b".eE") else "integer"


def _has_outer_break(value: str) -> bool:
    return value.startswith(("\n", "\r\n")) or value.endswith("\n")


def _is_same(read: str, source: Raw) -> bool:
    """Whether two sources are one JSON value."""
    found = Raw(read.encode("utf-8", "backslashreplace"))
    if bytes(found) == bytes(source):
        return True
    # Python takes True for 1 and 1.0 for 1; JSON does not.
    is_equal = bool(loads(bytes(found)) == loads(bytes(source)))
    return is_equal and json_type(found) == json_type(source)
