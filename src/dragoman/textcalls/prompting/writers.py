"""Writes calls as text, the reverse of the scanner: JSON, tags, Python calls.

The scanner's pattern of the same name reads a written call back as the same call, unless the writer has reported an
ambiguity. Values are converted from their JSON source token by token: numbers keep their spelling and the work is
linear. Names are safe everywhere, because the format's `names` limit them.

JSON formats insert the model's own argument text into the format's template. JSON strings quote every closer that they
contain, so nothing is ambiguous.

Formats with tags have no escapes. A value that contains its own closing tag, a key that is not a word, and a value whose
text the parameter's declared type would change can be written but not read back. Each of these is an ambiguity.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword
from typing import Literal

from msgspec import Struct, field

from dragoman._json import Raw, as_object, dumps_text, is_same_json, loads
from dragoman.core.aliases import IdLimits, alias_id
from dragoman.core.fields import source_text
from dragoman.textcalls.offers import ANY_TYPE, STRING, JsonType, Offers, Types
from dragoman.textcalls.values import Untyped, coerce

LEGACY_MARKS = frozenset({"functions", "function_call"})
"""Fields with which the reader of Chat marks tools and calls of its older form: they belong to Chat and are not losses."""


class PromptCall(Struct, frozen=True):
    """A call of the conversation. `arguments` is the text of a JSON object; `number` counts the calls from 0."""

    name: str
    arguments: str
    call_id: str = ""
    number: int = 0


class PromptResult(Struct, frozen=True):
    """The output of a call, as text. `number` is that of its call."""

    name: str
    text: str
    call_id: str = ""
    number: int = 0
    is_error: bool = False


class WriteContext(Struct):
    """What a writer needs and reports: the offered tools with the types of their parameters, and the ambiguities."""

    offers: Offers
    ambiguities: list[str] = field(default_factory=list[str])


WriteCalls = Callable[[Sequence[PromptCall], WriteContext], str]
"""Writes the calls of one turn."""

# A JSON string, with the colon that makes it a key; white space; or a word that Python spells differently.
_TOKEN = re.compile(
    r'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\r\n]*:)?|[ \t\r\n]+|true|false|null', re.DOTALL
)
_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}


def text_value(source: Raw) -> str:
    """Return a value for a tag: a string as its text, any other value as JSON."""
    value = bytes(source).decode("utf-8")
    return str(loads(value)) if value.startswith('"') else value


def python_literal(source: Raw) -> str:
    """Return a value as Python spells it."""
    return _TOKEN.sub(_as_python, bytes(source).decode("utf-8"))


def _as_python(token: re.Match[str]) -> str:
    if token[1] is None:
        return _PYTHON_WORDS.get(token[0], token[0])
    # JSON's escapes mean the same in Python, except `\/` and surrogate pairs: the string is rewritten without them.
    spelled = dumps_text(loads(token[1])).decode("utf-8") if "\\" in token[1] else token[1]
    return spelled + (token[2] or "")


def marked_literal(source: Raw, mark: str, ambiguity: Callable[[str], None]) -> str:
    """Return a value with its strings between marks and its keys bare, as the Gemma family spells it."""

    def spell(token: re.Match[str]) -> str:
        if token[1] is None:
            return token[0].strip()
        text = str(loads(token[1]))
        if token[2] is not None:
            if not text or not text.replace("_", "a").isalnum():
                ambiguity(f"a key that is not a word: {text[:40]!r}")
            return text + ":"
        if mark in text:
            ambiguity(f"a text that contains {mark}")
        return mark + text + mark

    return _TOKEN.sub(spell, bytes(source).decode("utf-8"))


# Mistral's templates refuse ids that are not exactly nine letters and digits.
_MISTRAL_IDS = IdLimits(pattern="[a-zA-Z0-9]", max_length=9, min_length=9)


def json_calls(call: str, *, block: tuple[str, str] = ("", ""), between: str = "\n") -> WriteCalls:
    """Return a writer by a call template: `%(name)s`, `%(arguments)s`, `%(number)d`, `%(mistral_id)s`, `%(kimi_id)s`."""

    def write(written: PromptCall) -> str:
        return call % {
            "name": written.name,
            "arguments": written.arguments,
            "number": written.number,
            "mistral_id": mistral_id(written.call_id),
            "kimi_id": kimi_id(written.name, written.number),
        }

    def write_calls(calls: Sequence[PromptCall], _: WriteContext) -> str:
        return block[0] + between.join(map(write, calls)) + block[1]

    return write_calls


def mistral_id(call_id: str) -> str:
    return alias_id(call_id, _MISTRAL_IDS)


def kimi_id(name: str, number: int) -> str:
    """Return Kimi's id, which names the tool and counts the calls of the conversation."""
    return f"functions.{name}:{number}"


def python_calls(*, block: tuple[str, str], between: str = ", ") -> WriteCalls:
    """Return a writer of `f(a=1, b="x")` for each call."""

    def write_calls(calls: Sequence[PromptCall], context: WriteContext) -> str:
        return block[0] + between.join(_python_call(call, context) for call in calls) + block[1]

    return write_calls


def _python_call(call: PromptCall, context: WriteContext) -> str:
    written: list[str] = []
    for key, value in as_object(call.arguments).items():
        if not key.isidentifier() or iskeyword(key):
            context.ambiguities.append(f"a parameter that is not a Python name: {key[:40]!r}")
        written.append(f"{key}={python_literal(value)}")
    return f"{call.name}({', '.join(written)})"


def marked_calls(*, mark: str, block: tuple[str, str]) -> WriteCalls:
    """Return a writer of `call:f{k:<mark>text<mark>,n:42}` for each call, each in its own block."""

    def write(call: PromptCall, context: WriteContext) -> str:
        # A lone surrogate can only be inside a string, where its escape means the same.
        source = Raw(call.arguments.encode("utf-8", "backslashreplace"))
        spelled = marked_literal(source, mark, context.ambiguities.append)
        return f"{block[0]}call:{call.name}{spelled}{block[1]}"

    def write_calls(calls: Sequence[PromptCall], context: WriteContext) -> str:
        return "".join(write(call, context) for call in calls)

    return write_calls


# The characters besides letters and digits that a key may have in every tag and attribute.
_KEY_MARKS = frozenset("_.$-")
_TYPES_BY_FIRST: dict[bytes, JsonType] = {
    b'"': "string",
    b"{": "object",
    b"[": "array",
    b"t": "boolean",
    b"f": "boolean",
    b"n": "null",
}


class Tags(Struct, frozen=True, kw_only=True):
    """One format: the text around all calls of a turn, around each call, and around each value.

    call: with `{name}`, and `{number}`, which counts the calls of the turn from 1. parameter: with `{key}`, and with
    `{type}` and `{is_string}` of its value.
    between: the text between two calls.
    marks: literals that no value may contain; `{name}` is replaced by the name of the tool.
    room: the text around each value, which a reader removes.
    trims: a reader removes one line break from both ends of a value.
    untyped: how a reader reads a value without a declared type; `markup`: as its tag declares.
    wrappers: keys that a reader takes for a wrapper of all arguments if such a key is alone and undeclared.
    needs_required: a reader refuses a call without a required parameter; only_declared: one with an undeclared parameter.
    read: the reader of one call's text, for formats in which the type of a value depends on the whole text.
    """

    block: tuple[str, str] = ("", "")
    call: tuple[str, str]
    parameter: tuple[str, str]
    marks: tuple[str, ...]
    between: str = "\n"
    room: str = ""
    trims: bool = True
    untyped: Untyped | Literal["markup"] = "string"
    wrappers: tuple[str, ...] = ()
    needs_required: bool = False
    only_declared: bool = False
    read: Callable[[str, str, Offers], dict[str, str]] | None = None

    def write_calls(self, calls: Sequence[PromptCall], context: WriteContext) -> str:
        text = self.between.join(
            self._call(call, number, context) for number, call in enumerate(calls, 1)
        )
        return self.block[0] + text + self.block[1]

    def _call(self, call: PromptCall, number: int, context: WriteContext) -> str:
        written = [self.call[0].format(name=call.name, number=number)]
        arguments = as_object(call.arguments)
        for key, source in arguments.items():
            value = text_value(source)
            types = context.offers.types(call.name, key)
            ambiguities = (
                *self._ambiguities_of_marks(call.name, key, value),
                *self._ambiguities_of_type(value, source, types),
            )
            context.ambiguities.extend(
                f"{call.name}.{key[:40]}: {ambiguity}" for ambiguity in ambiguities
            )
            opening, closing = self.parameter
            kind = json_type(source)
            written += (
                opening.format(
                    key=key,
                    type="number" if kind == "integer" else kind,
                    is_string="true" if kind == "string" else "false",
                ),
                self._spaced(value),
                closing.format(key=key),
            )
        written.append(self.call[1].format(name=call.name))
        text = "".join(written)
        of_all = self._ambiguities_of_all(call.name, arguments, text, context.offers)
        context.ambiguities.extend(f"{call.name}: {ambiguity}" for ambiguity in of_all)
        return text

    def _spaced(self, value: str) -> str:
        """Return the value; if it begins or ends with a line break, add others for the reader to remove."""
        if self.room or not self.trims or not _has_outer_break(value):
            return self.room + value + self.room
        return f"\n{value}\n"

    def _ambiguities_of_all(
        self, name: str, arguments: dict[str, Raw], text: str, offers: Offers
    ) -> Iterator[str]:
        alone = next(iter(arguments)) if len(arguments) == 1 else ""
        if alone in self.wrappers and alone not in offers.parameters(name):
            yield "a parameter that looks like a wrapper of all arguments"
        if self.needs_required and not arguments.keys() >= set(offers.required(name)):
            yield "a required parameter is missing"
        if self.only_declared and not set(offers.parameters(name)) >= arguments.keys():
            yield "a parameter that its schema does not declare"
        if self.read is not None:
            found = self.read(text, name, offers)
            for key, source in arguments.items():
                if key not in found or not _is_same(found[key], source):
                    yield f"a value of {key[:40]!r} that depends on its context"

    def _ambiguities_of_marks(self, name: str, key: str, value: str) -> Iterator[str]:
        if not key or not all(letter.isalnum() or letter in _KEY_MARKS for letter in key):
            yield "a key that is not a word"
        marks = (mark.replace("{name}", name) for mark in self.marks)
        found = next((mark for mark in marks if mark in value), None)
        if found is not None:
            yield f"a value that contains {found}"
        if value.endswith("\r") and self._spaced(value) != value:
            yield "a value that ends with half a line break"

    def _ambiguities_of_type(self, value: str, source: Raw, types: Types) -> Iterator[str]:
        if self.read is None and not self._keeps_type(value, source, types):
            declared = " or ".join(sorted(types.names)) or "nothing"
            yield f"{json_type(source)} where the schema says {declared}"

    def _keeps_type(self, value: str, source: Raw, types: Types) -> bool:
        """Return whether a reader that uses the schema reads the value with its type."""
        kind = json_type(source)
        untyped: Untyped = "string"
        if self.untyped != "markup":
            untyped = self.untyped
        elif not types.names:
            types = STRING if kind == "string" else ANY_TYPE
        if kind == "string" and types.is_text:
            return True
        return _is_same(coerce(value, types, untyped), source)


def json_type(source: Raw) -> JsonType:
    """Return the JSON type of a value, from its source."""
    data = bytes(source)
    known = _TYPES_BY_FIRST.get(data[:1])
    if known is not None:
        return known
    return "number" if set(data) & set(b".eE") else "integer"


def _has_outer_break(value: str) -> bool:
    return value.startswith(("\n", "\r\n")) or value.endswith("\n")


def _is_same(read: str, source: Raw) -> bool:
    """Return whether two sources are one JSON value."""
    found = Raw(read.encode("utf-8", "backslashreplace"))
    if bytes(found) == bytes(source):
        return True
    # 1 and 1.0 are one value, but not for a reader that expects an integer.
    return is_same_json(read, source_text(source)) and json_type(found) == json_type(source)
