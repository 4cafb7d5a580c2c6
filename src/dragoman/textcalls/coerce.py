"""The text of a parameter as JSON, by the type its schema declares.

A parameter declared as a string is its text, whatever that looks like. For other types the text is tried in a fixed
order (null, integer, number, boolean, object, array) and stays a string where none fits: a tool can refuse a wrong type
with a message the model understands. JSON passes as it was written; Python's spelling of a list or a dict is
translated, and so is JSON that was escaped once too often.
"""

import re
from typing import Literal

from dragoman._json import is_strict, loads
from dragoman.errors import MalformedJson
from dragoman.textcalls.json_text import json_string
from dragoman.textcalls.literals import literal_as_json
from dragoman.textcalls.offers import Types

__all__ = ("Untyped", "coerce")

Untyped = Literal["string", "json"]
"""What a value without a declared type is: its text, or JSON where it is JSON."""

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 400  # beyond a double; such a text is no number


def coerce(text: str, types: Types, untyped: Untyped = "string") -> str:
    """The text as JSON source."""
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
    return None if whole or _NUMBER.fullmatch(text) is None else repr(float(text))


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
