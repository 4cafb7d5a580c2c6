"""Converts the text of a parameter to JSON, by the type that its schema declares; and Python literals to JSON.

A parameter declared as a string is its text, whatever the text looks like. For other types the text is tried in a fixed
order (null, integer, number, boolean, object, array) and stays a string if none fits: a tool can refuse a wrong type with
a message that the model understands. JSON passes unchanged. Python's spelling of a list or a dict is converted, and so is
JSON that was escaped once too often.

Python literals are read while they stream or from a whole text: strings (with prefixes, triple quotes and escapes),
numbers, `True False None` and their JSON spellings, lists, tuples, sets and dicts. Models often forget to escape a quote
inside a string argument, so the strings of arguments end only at a quote after which the call can continue.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Literal

from dragoman._json import dumps_text, is_strict, loads
from dragoman.errors import MalformedJson
from dragoman.textcalls.cursor import (
    DEFAULT_LIMITS,
    SPACE,
    Cursor,
    LiteralSet,
    Malformed,
    TextBuffer,
    Wait,
)
from dragoman.textcalls.offers import Types


def json_string(text: str) -> str:
    """Return the text as a JSON string."""
    return dumps_text(text).decode("utf-8")


def json_string_inside(text: str) -> str:
    """Return the text as it is written between the quotes of a JSON string."""
    return json_string(text)[1:-1]


def object_source(members: Iterable[tuple[str, str]]) -> str:
    """Return the source of an object from names and the JSON sources of their values."""
    return "{" + ",".join(f"{json_string(name)}:{source}" for name, source in members) + "}"


Take = Callable[[str], None]

_CONSTANTS = {
    "True": "true",
    "true": "true",
    "False": "false",
    "false": "false",
    "None": "null",
    "null": "null",
}
_ATOM = re.compile(r"[-+0-9A-Za-z_.]*")
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_PYTHON_INTEGER = re.compile(rf"[+-]?{_DIGITS}")
_PYTHON_FLOAT = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?[0-9]+)?")
_MAX_ATOM = 400
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_PREFIXES = frozenset("rRbBuUfF")
_STOPS = {quote: LiteralSet((quote, "\\")) for quote in ("'", '"', "'''", '"""')}
_TRIPLES = {quote: LiteralSet((quote * 2,)) for quote in ("'", '"')}
# After the quote: another argument, or the end of the call and then of the list, the line, `print(…)` or the cursor.
_GOES_ON = re.compile(
    r"\s*(?:,\s*(?:[A-Za-z_]\w*\s*=|\))|\)\s*(?:[\],;\n<`]|\)\s*(?:[\n`;]|$)|[A-Za-z_]\w*\s*\(|$))"
)
_MAY_GO_ON = re.compile(r"\s*(?:,\s*(?:[A-Za-z_]\w*\s*)?|\)\s*(?:\)\s*|[A-Za-z_]\w*\s*)?)?")
_MAX_AHEAD = 64
# The name of an argument, with an equals sign, or as a quoted string would end with it.
_ARGUMENT = re.compile(r"""[,('"]([^=,('"]*)=|, ([^=,('"]*)(?=['"])""")


def literal_as_json(text: str) -> str | None:
    """Return a whole text that is one Python literal as JSON; None if it is not one. Sets are not accepted here."""
    buffer = TextBuffer()
    buffer.feed(text, 0)
    buffer.ended = True
    cursor = Cursor(buffer, 0, DEFAULT_LIMITS)
    pieces: list[str] = []
    try:
        for _ in read_literal(cursor, pieces.append, takes_sets=False):
            return None
    except Malformed:
        return None
    return "".join(pieces) if cursor.at >= buffer.end else None


def read_literal(
    cursor: Cursor,
    take: Take,
    *,
    keys: Sequence[str] | None = None,
    takes_sets: bool = True,
    depth: int = 0,
) -> Wait[None]:
    """Read one literal at the cursor and pass it to `take` as JSON.

    keys: it is an argument of a call, and these are the names of the call's arguments.
    """
    cursor.check_depth(depth)
    first = yield from cursor.skip(SPACE)
    if first in ("'", '"'):
        yield from _read_string(cursor, take, keys)
    elif first in ("[", "("):
        yield from _read_list(cursor, take, takes_sets=takes_sets, depth=depth)
    elif first == "{":
        yield from _read_braces(cursor, take, takes_sets=takes_sets, depth=depth)
    else:
        yield from _read_atom(cursor, take, keys)


def _read_list(cursor: Cursor, take: Take, *, takes_sets: bool, depth: int) -> Wait[None]:
    end = "]" if (yield from cursor.peek()) == "[" else ")"
    cursor.at += 1
    yield from cursor.read_items(
        end,
        "a list",
        lambda: read_literal(cursor, take, takes_sets=takes_sets, depth=depth + 1),
        take,
    )


def _read_braces(cursor: Cursor, take: Take, *, takes_sets: bool, depth: int) -> Wait[None]:
    """Read a dict or a set; the first value decides which."""
    start = cursor.at
    cursor.at += 1
    is_set: bool | None = None
    parts: list[str] = []

    def read_item() -> Wait[None]:
        nonlocal is_set
        pieces: list[str] = []
        yield from read_literal(cursor, pieces.append, takes_sets=takes_sets, depth=depth + 1)
        has_value = (yield from cursor.skip(SPACE)) == ":"
        is_set = not has_value if is_set is None else is_set
        if is_set and not takes_sets:
            cursor.malformed("expected a dict, got a set", at=start)
        if is_set == has_value:
            cursor.malformed("expected a dict or a set")
        if has_value:
            pieces = [_as_key("".join(pieces)), ":"]
            cursor.at += 1
            yield from read_literal(cursor, pieces.append, takes_sets=takes_sets, depth=depth + 1)
        parts.extend(pieces)

    yield from cursor.read_items("}", "a dict", read_item, parts.append, "{}")
    if is_set:
        parts[0], parts[-1] = "[", "]"
    take("".join(parts))


def _as_key(source: str) -> str:
    return source if source.startswith('"') else json_string(source)


def _read_atom(cursor: Cursor, take: Take, keys: Sequence[str] | None) -> Wait[None]:
    buffer, start = cursor.buffer, cursor.at
    text = ""
    while True:
        index = cursor.at - buffer.base
        found = _ATOM.match(buffer.data, index)
        end = found.end() if found is not None else index
        text += buffer.data[index:end]
        cursor.at = buffer.base + end
        buffer.examined += end - index + 1
        if len(text) > _MAX_ATOM:
            cursor.malformed("expected a shorter value", at=start)
        if end < len(buffer.data) or buffer.ended:
            break
        yield
    if (
        text
        and text[0] in _PREFIXES
        and len(text) <= 2
        and (yield from cursor.peek()) in ("'", '"')
    ):
        is_raw = "r" in text.lower()
        yield from _read_string(cursor, take, keys, is_raw=is_raw)
        return
    written = _CONSTANTS.get(text) or _python_number(text)
    if written is None:
        cursor.malformed(f"expected a value, got {text[:40]!r}", at=start)
    take(written)


def _python_number(text: str) -> str | None:
    if _PYTHON_INTEGER.fullmatch(text):
        return str(int(text))
    return _float(text) if _PYTHON_FLOAT.fullmatch(text) else None


def _float(text: str) -> str | None:
    """Return a number as JSON; None if it is beyond a double."""
    value = float(text)
    return repr(value) if isfinite(value) else None


def _read_string(
    cursor: Cursor, take: Take, keys: Sequence[str] | None, *, is_raw: bool = False
) -> Wait[None]:
    quote = yield from cursor.peek()
    cursor.at += 1
    if (yield from cursor.match(_TRIPLES[quote])):
        quote *= 3
    take('"')

    def give(piece: str) -> None:
        take(json_string_inside(piece))
        if quoted:
            quoted.append(piece)

    stops = _STOPS[quote]
    quoted: list[str] = []  # from the first quote on that did not end the string
    while True:
        stop = yield from cursor.until(stops, give)
        if not stop:
            cursor.malformed("the text ended inside a string")
        if stop == "\\":
            give((yield from _read_escape(cursor, is_raw=is_raw)))
        elif keys is None or len(quote) > 1 or (yield from _ends_here(cursor)):
            break
        else:
            quoted = quoted or [" "]
            give(quote)
    if quoted and keys and _names_argument("".join(quoted), keys):
        cursor.malformed("expected a string in which quotes are escaped")
    take('"')


def _names_argument(text: str, keys: Sequence[str]) -> bool:
    """Return whether another argument begins in a string with quotes in it: one of them was the end of the string."""
    names = frozenset(keys)
    return any(
        found[1].strip() in names if found[2] is None else found[2] in names
        for found in _ARGUMENT.finditer(text)
    )


def _read_escape(cursor: Cursor, *, is_raw: bool) -> Wait[str]:
    """Return the value of an escape. An escape that Python does not know is returned unchanged, with the backslash."""
    character = yield from cursor.peek()
    if not character:
        return "\\"
    cursor.at += 1
    size = _HEX_ESCAPES.get(character)
    if is_raw:
        return "\\" + character
    if size is None:
        return _ESCAPES.get(character, "\\" + character)
    digits = ""
    while len(digits) < size:
        digit = yield from cursor.peek()
        if not digit or digit not in "0123456789abcdefABCDEF":
            return "\\" + character + digits
        digits += digit
        cursor.at += 1
    code = int(digits, 16)
    return chr(code) if code <= 0x10FFFF else "\\" + character + digits


def _ends_here(cursor: Cursor) -> Wait[bool]:
    """Return whether a call can continue after the quote just passed."""
    buffer = cursor.buffer
    while True:
        index = cursor.at - buffer.base
        ahead = buffer.data[index : index + _MAX_AHEAD]
        buffer.examined += len(ahead)
        is_whole = buffer.ended or len(ahead) == _MAX_AHEAD
        found = _GOES_ON.match(ahead)
        # The end of the window counts as the end only if the text has ended.
        if found is not None and (
            is_whole or found.end() < len(ahead) or not _is_open_end(found.group())
        ):
            return True
        if is_whole or _MAY_GO_ON.fullmatch(ahead) is None:
            return False
        yield


def _is_open_end(matched: str) -> bool:
    """Return whether the text matched only because the window ends there."""
    return matched.rstrip().endswith(")")


Untyped = Literal["string", "json"]
"""The meaning of a value without a declared type: its text, or JSON if it is JSON."""

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 400  # beyond a double; such a text is not a number


def coerce(text: str, types: Types, untyped: Untyped = "string") -> str:
    """Return the text as JSON source."""
    names = types.names
    if types.is_text or (not names and untyped == "string"):
        return json_string(text)
    stripped = text.strip()
    if not names:
        return stripped if is_strict(stripped) else json_string(text)
    if "null" in names and (stripped == "null" or (stripped == "None" and "string" not in names)):
        return "null"
    written: str | None = None
    if "integer" in names or "number" in names:
        written = _number(stripped, whole="number" not in names)
    if written is None and "boolean" in names and stripped.lower() in ("true", "false"):
        written = stripped.lower()
    if written is None and names & {"object", "array"}:
        starts = ("{" if "object" in names else "") + ("[" if "array" in names else "")
        written = _container(stripped, starts)
    return json_string(text) if written is None else written


def _number(text: str, *, whole: bool) -> str | None:
    if len(text) > _MAX_DIGITS:
        return None
    if _JSON_NUMBER.fullmatch(text) and (not whole or _INTEGER.fullmatch(text)):
        return text.partition(".")[0] if whole else text
    if _INTEGER.fullmatch(text):
        return str(int(text.partition(".")[0]))
    return None if whole or _NUMBER.fullmatch(text) is None else _float(text)


def _container(text: str, starts: str) -> str | None:
    if not text or text[0] not in starts:
        return None
    if is_strict(text):
        return text
    literal = literal_as_json(text)
    if literal is not None:
        return literal
    try:
        unescaped = loads(f'"{text}"')
    except MalformedJson:
        return None
    found = str(unescaped)
    return found if is_strict(found) else None
