"""Argument values as text formats spell them, made from their JSON source token by token.

Numbers keep their spelling, and the work is linear: nothing is built but the text. Knows no format.
"""

import re
from collections.abc import Callable

from dragoman._json import Raw, as_object, dumps_text, loads

__all__ = ("marked_literal", "members", "python_literal", "text_value")

# A JSON string, with the colon that makes it a key; white space; or one of the words that Python spells its own way.
_TOKEN = re.compile(
    r'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\r\n]*:)?|[ \t\r\n]+|true|false|null', re.DOTALL
)
_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}


def members(arguments: str) -> dict[str, Raw]:
    """The arguments by name, each in its own JSON source."""
    return as_object(arguments)


def text_value(source: Raw) -> str:
    """A value for a tag: a string as its text, anything else as JSON."""
    value = bytes(source).decode("utf-8")
    return str(loads(value)) if value.startswith('"') else value


def python_literal(source: Raw) -> str:
    """A value as Python spells it."""
    return _TOKEN.sub(_as_python, bytes(source).decode("utf-8"))


def _as_python(token: re.Match[str]) -> str:
    if token[1] is None:
        return _PYTHON_WORDS.get(token[0], token[0])
    # JSON's escapes mean the same in Python, but for `\/` and for pairs of surrogates: written anew without them.
    spelled = dumps_text(loads(token[1])).decode("utf-8") if "\\" in token[1] else token[1]
    return spelled + (token[2] or "")


def marked_literal(source: Raw, mark: str, doubt: Callable[[str], None]) -> str:
    """A value with its strings between marks and its keys bare, as the Gemma family spells it."""

    def spell(token: re.Match[str]) -> str:
        if token[1] is None:
            return token[0].strip()
        text = str(loads(token[1]))
        if token[2] is not None:
            if not text or not text.replace("_", "a").isalnum():
                doubt(f"a key that is no word: {text[:40]!r}")
            return text + ":"
        if mark in text:
            doubt(f"a text that contains {mark}")
        return mark + text + mark

    return _TOKEN.sub(spell, bytes(source).decode("utf-8"))
