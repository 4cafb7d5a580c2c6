"""A call as a `<use_tool>` block, and what of it the client could not read back.

Strings stand raw (or with entities), everything else as JSON. In JSON a `<` is written `\\u003c`, so that a list or an
object with markup in its strings is still read as JSON. Parameters come in the order of the schema, then the others.
Every tag that is opened is closed; a parameter whose name no tag can have is left out.
"""

import re
from collections.abc import Mapping
from html import unescape
from typing import cast

from msgspec import Struct

from dragoman._json import as_object, dumps_document, loads
from dragoman.core.aliases import flat_name
from dragoman.errors import MalformedJson
from dragoman.model.parts import Call
from dragoman.textcalls.contract.policy import XmlEscape
from dragoman.textcalls.contract.reference import read_block, read_value
from dragoman.textcalls.offers import as_tool_schema

__all__ = ("Rendered", "arguments_of", "render_block")

_INDENT = "  "
_NULL = b"null"
# Names that a tag can have, and that mean nothing else to the reader.
_KEY = re.compile(r"(?!(?:name|use_tool)$)[^<>/\s][^<>]*")


class Rendered(Struct, frozen=True):
    """A block. `misread`: the parameters that the client would read otherwise; `nulls`: those that are null."""

    text: str
    misread: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()


def render_block(
    call: Call, *, schema: object = None, escape: XmlEscape = "none", keep_null: bool = False
) -> Rendered:
    """A call as a block. keep_null: a null is the word `null`; else its parameter is left out."""
    name = flat_name(call.name or call.kind, call.namespace)
    arguments = arguments_of(call)
    nulls = tuple(key for key, source in arguments.items() if source == _NULL)
    if not keep_null:
        arguments = {key: source for key, source in arguments.items() if key not in nulls}
    keys = [key for key in _order(schema, arguments) if _KEY.fullmatch(key)]
    written = [("name", _escaped(name, escape))]
    written += [(key, _escaped(_text(arguments[key]), escape)) for key in keys]
    text = "\n".join(("<use_tool>", *(_element(*each) for each in written), "</use_tool>"))
    return Rendered(text, _misread(text, name, arguments, escape), nulls)


def arguments_of(call: Call) -> dict[str, bytes]:
    """The call's arguments, each as JSON source. Input that is no object is one parameter, `input`."""
    if call.kind == "custom":
        return {"input": dumps_document(call.input)}
    try:
        return {key: bytes(value) for key, value in as_object(call.input or "{}").items()}
    except MalformedJson:
        return {"input": dumps_document(call.input)}


def _order(schema: object, arguments: Mapping[str, bytes]) -> list[str]:
    properties = as_tool_schema(schema).get("properties")
    declared = (
        list(cast("Mapping[str, object]", properties)) if isinstance(properties, Mapping) else []
    )
    known = set(declared)
    return [
        *(key for key in declared if key in arguments),
        *(key for key in arguments if key not in known),
    ]


def _text(source: bytes) -> str:
    if source.startswith(b'"'):
        return str(loads(source))
    text = source.decode("utf-8")
    return text.replace("<", "\\u003c") if "<" in text else text


def _escaped(text: str, escape: XmlEscape) -> str:
    if escape == "none":
        return text
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _element(key: str, text: str) -> str:
    inner = f"\n{text}\n" if "\n" in text else text
    return f"{_INDENT}<{key}>{inner}</{key}>"


def _misread(
    text: str, name: str, arguments: Mapping[str, bytes], escape: XmlEscape
) -> tuple[str, ...]:
    """The parameters that the reader does not get as they are; all of them if it finds no such call."""
    read = read_block(text)
    if read is None or _plain(read[0], escape) != name:
        return tuple(arguments) or ("name",)
    texts = read[1]
    missed = [key for key, source in arguments.items() if not _is_read(key, source, texts, escape)]
    return (*missed, *(key for key in texts if key not in arguments))


def _is_read(key: str, source: bytes, texts: Mapping[str, str], escape: XmlEscape) -> bool:
    text = texts.get(key)
    if text is None:
        return False
    if escape == "entities":
        # A reader that decodes entities goes by the schema: it is enough that it gets the text.
        return unescape(text) == _text(source)
    value = read_value(key, text)
    if source[:1] in (b'"', b"[", b"{"):
        return value == cast("object", loads(source))
    return value == _text(
        source
    )  # numbers and the like arrive as text, and the tools make them numbers


def _plain(text: str, escape: XmlEscape) -> str:
    return unescape(text) if escape == "entities" else text
