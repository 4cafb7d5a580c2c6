"""How Obsidian Copilot 3.0 to 3.1.5 reads a `<use_tool>` block: its rules, to know beforehand what it will make of one.

A block ends at the first closing tag. Its name is the first `<name>`; parameters are tags up to the first closing tag of
the same name, trimmed. A value with tags in it is a list (`<item>`) or an object, one in brackets or braces is JSON if it
can be, everything else is a string: also numbers and booleans. Entities are not decoded.
"""

import re
from typing import cast

from dragoman._json import loads
from dragoman.errors import MalformedJson

__all__ = ("read_block", "read_value")

_BLOCK = re.compile(r"<use_tool>(.*?)</use_tool>", re.DOTALL)
_NAME = re.compile(r"<name>(.*?)</name>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_OPENER = re.compile(r"<([^>]+)>")
_LISTS = frozenset({"chatHistory", "salientTerms"})  # empty ones are lists, whatever is declared
# Markup that is deeper, or has more tags that nothing closes, is not read to its end: it is no plain string, and that is
# all one needs to know of it.
_MAX_NESTING = 32
_MAX_UNCLOSED = 256


def read_block(text: str) -> tuple[str, dict[str, str]] | None:
    """Name and parameters of the block that a text begins with; None if it begins with none.

    The parameters are the texts in their tags, trimmed; `read_value` makes values of them.
    """
    found = _BLOCK.match(text)
    if found is None:
        return None
    name = _NAME.search(found[1])
    if name is None or not name[1].strip():
        return None
    pairs = _pairs(found[1])
    return name[1].strip(), {key: value.strip() for key, value in pairs if key != "name"}


def read_value(key: str, text: str) -> object:
    """The value that the text in a parameter's tag means."""
    return _value(key, text, 0)


def _pairs(text: str) -> list[tuple[str, str]]:
    """`<key>value</key>`, each up to its first closing tag; what is not closed is passed over."""
    pairs: list[tuple[str, str]] = []
    missing: set[str] = set()
    position = 0
    while (tag := _OPENER.search(text, position)) is not None:
        key, start = tag[1], tag.end()
        end = -1 if key in missing else text.find(f"</{key}>", start)
        if end < 0:
            missing.add(key)
            if len(missing) > _MAX_UNCLOSED:
                return [*pairs, ("", "")]
            position = tag.start() + 1
            continue
        pairs.append((key, text[start:end]))
        position = end + len(key) + 3
    return pairs


def _value(key: str, text: str, depth: int) -> object:
    text = text.strip()
    if not text:
        return [] if key in _LISTS else ""
    if _TAG.search(text) is not None:
        pairs = _pairs(text) if depth < _MAX_NESTING else []
        items = [_value("", inner, depth + 1) for inner_key, inner in pairs if inner_key == "item"]
        if items:
            return items
        return {inner: _value(inner, each, depth + 1) for inner, each in pairs} if pairs else text
    if (text[0], text[-1]) in (("[", "]"), ("{", "}")):
        try:
            return cast("object", loads(text))
        except MalformedJson:
            return text
    return text
