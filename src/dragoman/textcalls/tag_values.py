"""The parameters of a block whose tags are named after them: `<query>piano</query>`.

The schema decides first. A parameter declared as a string is its raw text, up to the last of its closing tags before
the next declared parameter, so that HTML in it survives. Anything else ends at its first closing tag; JSON, nested
tags and `<item>` lists are read only where the schema says object or array, or says nothing. Entities stay as they
are: models write raw text, and the reader these blocks were made for does not decode them.
"""

import re

from dragoman._json import is_strict
from dragoman.textcalls.bodies.arguments import trim_newlines
from dragoman.textcalls.coerce import coerce
from dragoman.textcalls.json_text import json_string
from dragoman.textcalls.offers import UNTYPED, Offers, Types, types_within

__all__ = ("as_arguments", "read_parameters")

_TAG = re.compile(r"<([^<>/\s][^<>/\s]*)>")
_ITEM = "item"
_CDATA = ("<![CDATA[", "]]>")
_MAX_NESTING = 32
# The reference reader gives empty lists for these two whatever else it knows.
_LISTS = frozenset({"chatHistory", "salientTerms"})


def read_parameters(text: str, name: str, offers: Offers) -> dict[str, str]:
    """The parameters of a block, each as JSON source. Of two with one name the last counts; unclosed ones are lost."""
    declared = offers.parameters(name)
    siblings = re.compile("|".join(f"<{re.escape(key)}>" for key in declared) or r"(?!)")
    found: dict[str, str] = {}
    missing: set[str] = set()
    position = 0
    while (tag := _TAG.search(text, position)) is not None:
        key, start = tag[1], tag.end()
        end = -1 if key in missing else text.find(f"</{key}>", start)
        if end < 0:
            missing.add(key)
            position = start
            continue
        types = offers.types(name, key)
        if types.is_text:
            sibling = siblings.search(text, end)
            limit = len(text) if sibling is None else sibling.start()
            end = text.rfind(f"</{key}>", end, limit) if limit > end else end
        position = end + len(key) + 3
        if key != "name" or "name" in declared:
            found.pop(key, None)
            found[key] = _value(text[start:end], key, types, offers.schema(name))
    return found


def as_arguments(parameters: dict[str, str]) -> str:
    """Parameters as the source of one JSON object."""
    return "{" + ",".join(f"{json_string(key)}:{value}" for key, value in parameters.items()) + "}"


def _value(text: str, key: str, types: Types, root: object) -> str:
    stripped = text.strip()
    if stripped.startswith(_CDATA[0]) and stripped.endswith(_CDATA[1]):
        return coerce(stripped[len(_CDATA[0]) : -len(_CDATA[1])], types)
    if types.is_text:
        return json_string(trim_newlines(text) if "\n" in stripped else stripped)
    if not stripped and ("array" in types.names or (not types.names and key in _LISTS)):
        return "[]"
    if not types.names:
        return _untyped(stripped, 0)
    if types.names & {"array", "object"} and not is_strict(stripped):
        nested = _nested(stripped, types, root, 0)
        if nested is not None:
            return nested
    return coerce(stripped, types)


def _untyped(text: str, depth: int) -> str:
    """Without a schema: nested tags, JSON that is a list or an object, else text."""
    nested = _nested(text, UNTYPED, None, depth)
    if nested is not None:
        return nested
    return text if text[:1] in ("[", "{") and is_strict(text) else json_string(text)


def _nested(text: str, types: Types, root: object, depth: int) -> str | None:
    """Tags within a value: a list of items, or an object; None if there are none."""
    if depth >= _MAX_NESTING or "<" not in text:
        return None
    pairs: list[tuple[str, str]] = []
    missing: set[str] = set()
    position = 0
    while (tag := _TAG.search(text, position)) is not None:
        key, start = tag[1], tag.end()
        end = -1 if key in missing else text.find(f"</{key}>", start)
        if end < 0:
            missing.add(key)
            position = start
            continue
        pairs.append(
            (key, _inner(text[start:end].strip(), types_within(types, key, root), root, depth))
        )
        position = end + len(key) + 3
    if not pairs:
        return None
    items = [source for key, source in pairs if key == _ITEM]
    if items:
        return "[" + ",".join(items) + "]"
    if types.names and "object" not in types.names:
        return None
    return as_arguments(dict(pairs))


def _inner(text: str, types: Types, root: object, depth: int) -> str:
    if not types.names:
        return _untyped(text, depth + 1)
    if types.names & {"array", "object"}:
        nested = _nested(text, types, root, depth + 1)
        if nested is not None:
            return nested
    return coerce(text, types)
