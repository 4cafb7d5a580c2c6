"""`<use_tool>` blocks of Obsidian Copilot: reads calls from them, writes calls as blocks, and models the client's reader.

Copilot up to 3.1.x reads its tool calls from such blocks; later releases take structured calls.

Writing: strings are written raw (or with entities), everything else as JSON. In JSON a `<` is written `\\u003c`, so that a
list or an object with markup in its strings is still read as JSON. Parameters come in the order of the schema, then the
others by name, so that equal calls are equal blocks. Every tag that is opened is closed. A parameter whose name cannot be a tag is left out.

The client's reader, as 3.0 to 3.1.5 have it: a block ends at the first closing tag. Its name is the first `<name>`.
Parameters are tags up to the first closing tag of the same name, trimmed. A value with tags in it is a list (`<item>`)
or an object, a value in brackets or braces is JSON if it is valid, and everything else is a string, even a number or a
boolean. Entities are not decoded.
"""

import re
from collections.abc import Iterable, Mapping
from html import unescape
from typing import cast

from msgspec import Struct

from dragoman._json import as_object, dumps_document, loads
from dragoman.core.aliases import flat_name
from dragoman.errors import ConfigError, MalformedJson
from dragoman.model.parts import Call
from dragoman.obsidian.settings import XmlEscape
from dragoman.textcalls.findings import FoundCall
from dragoman.textcalls.offers import as_tool_schema
from dragoman.textcalls.scanner import scan_text

_FORMAT = "use_tool"
_INDENT = "  "
_NULL = b"null"
# Names that a tag can have and that the client does not read as another tag of the block.
_WRITABLE_KEY = re.compile(r"(?!(?:name|use_tool)$)[^<>/\s][^<>]*")
_BLOCK = re.compile(r"<use_tool>(.*?)</use_tool>", re.DOTALL)
_NAME = re.compile(r"<name>(.*?)</name>", re.DOTALL)
_TAG = re.compile(r"<([^>]+)>")
# The client reads an empty value as a list, whatever the schema.
_LISTS = frozenset({"chatHistory", "salientTerms"})
# Deeper markup, and more or longer unclosed tags, are not read to the end: the parameter counts as misread, which is reported.
_MAX_NESTING = 32
_MAX_UNCLOSED = 256
_MAX_UNCLOSED_TEXT = 1_000_000  # characters of all of them: a tag may be as long as the text


def extract_use_tool_blocks(
    text: str, tools: Iterable[object] | None = None
) -> tuple[FoundCall, ...]:
    """The calls of the `<use_tool>` blocks in a text. Without tools, every name is accepted and values are untyped.

    Examples:
        >>> block = "<use_tool><name>webSearch</name><query>Oslo</query></use_tool>"
        >>> [(call.name, call.arguments) for call in extract_use_tool_blocks(block)]
        [('webSearch', '{"query":"Oslo"}')]

    Raises:
        ConfigError: `text` is not a string, or `tools` is not a list of tools.
    """
    return scan_text(text, tools, formats=_FORMAT).calls


def to_obsidian_xml(call: object, *, schema: object = None, escape: XmlEscape = "none") -> str:
    """A call as a `<use_tool>` block.

    Examples:
        >>> print(to_obsidian_xml({"name": "webSearch", "arguments": {"query": "Oslo"}}))
        <use_tool>
          <name>webSearch</name>
          <query>Oslo</query>
        </use_tool>

    call: our `Call`, a `FoundCall`, a record of the aggregator, or a mapping with a name and arguments, as in any
        dialect's answer.

    Strings are written raw, everything else as JSON, as the client reads them. Parameters come in the order of the schema,
    then the others by name.

    escape: `entities` for clients that decode them; Copilot does not.

    Raises:
        ConfigError: `call` has another type.
    """
    return render_block(_as_call(call), schema=schema, escape=escape, keep_null=True).text


def is_read_back(block: str, call: object, *, schema: object = None) -> bool:
    """Whether reading the block gives the call back: one call, with the same name and the same values."""
    call = _as_call(call)
    tool = {"name": call.name, "input_schema": as_tool_schema(schema)}
    found = extract_use_tool_blocks(block, [tool])
    if len(found) != 1 or found[0].name != call.name:
        return False
    return cast("object", loads(found[0].arguments)) == _values(call)


def _as_call(call: object) -> Call:
    if isinstance(call, Call):
        return call
    what, kind = type(call).__name__, cast("object", None)
    if isinstance(call, Mapping):
        fields = cast("Mapping[str, object]", call)
        inner = fields.get("function")
        fields = cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else fields
        name = fields.get("name")
        source = fields.get("arguments", fields.get("input", ""))
    else:
        name, source = getattr(call, "name", None), getattr(call, "arguments", None)
        kind = getattr(call, "type", None)
    if not isinstance(name, str) or source is None:
        raise ConfigError(f"expected a call with a name and arguments, got {what}")
    text = source if isinstance(source, str) else dumps_document(source).decode("utf-8")
    return Call(
        call_id="", name=name, input=text, kind="custom" if kind == "custom" else "function"
    )


def _values(call: Call) -> dict[str, object]:
    return {key: cast("object", loads(source)) for key, source in arguments_of(call).items()}


# --- writing ----------------------------------------------------------------------------------------------------------


class Rendered(Struct, frozen=True):
    """A block. misread: the parameters that the client would read as another value. nulls: the parameters that are null."""

    text: str
    misread: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()


def render_block(
    call: Call, *, schema: object = None, escape: XmlEscape = "none", keep_null: bool = False
) -> Rendered:
    """A call as a block. keep_null: write a null as the word `null` instead of leaving its parameter out."""
    name = flat_name(call.name or call.kind, call.namespace)
    arguments = arguments_of(call)
    nulls = tuple(key for key, source in arguments.items() if source == _NULL)
    if not keep_null:
        arguments = {key: source for key, source in arguments.items() if key not in nulls}
    keys = [key for key in _order(schema, arguments) if _WRITABLE_KEY.fullmatch(key)]
    written = [("name", _escaped(name, escape))]
    written += [(key, _escaped(_text(arguments[key]), escape)) for key in keys]
    text = "\n".join(("<use_tool>", *(_element(*each) for each in written), "</use_tool>"))
    return Rendered(text, _misread(text, name, arguments, escape), nulls)


def arguments_of(call: Call) -> dict[str, bytes]:
    """The call's arguments, each as JSON source. Input that is not an object is one parameter, `input`."""
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
        *sorted(key for key in arguments if key not in known),
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
    """The parameters that the client would misread; all of them if it does not find the call."""
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
        # A reader that decodes entities uses the schema, so it only needs the text.
        return unescape(text) == _text(source)
    value = read_value(key, text)
    if source[:1] in (b'"', b"[", b"{"):
        return value == cast("object", loads(source))
    # Numbers, booleans and null arrive as text, and the tools convert them.
    return value == _text(source)


def _plain(text: str, escape: XmlEscape) -> str:
    return unescape(text) if escape == "entities" else text


# --- the client's reader ----------------------------------------------------------------------------------------------


def read_block(text: str) -> tuple[str, dict[str, str]] | None:
    """Name and parameters of the block at the beginning of a text; None if there is no block.

    The parameters are the trimmed texts in their tags; `read_value` converts them to values.
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
    """The value that the client reads from the text in a parameter's tag."""
    return _value(key, text, 0)


def _end_of_tags(text: str) -> int:
    """Where a search for tags may end: otherwise each `<` after the last `>` would be searched to the end of the text."""
    return text.rfind(">") + 1


def _pairs(text: str) -> list[tuple[str, str]]:
    """`<key>value</key>`, each up to its first closing tag. A tag that is not closed is skipped."""
    pairs: list[tuple[str, str]] = []
    missing: set[str] = set()
    size = 0
    position, last = 0, _end_of_tags(text)
    while (tag := _TAG.search(text, position, last)) is not None:
        key, start = tag[1], tag.end()
        end = -1 if key in missing else text.find(f"</{key}>", start)
        if end < 0:
            missing.add(key)
            size += len(key)
            if len(missing) > _MAX_UNCLOSED or size > _MAX_UNCLOSED_TEXT:
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
    if _TAG.search(text, 0, _end_of_tags(text)) is not None:
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
