"""Obsidian Copilot's `<use_tool>` blocks: out of a finished text, and into one.

Copilot up to 3.1.x reads its tool calls from such blocks; later releases take structured calls.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from dragoman._json import as_object, dumps_document, loads
from dragoman.errors import MalformedJson
from dragoman.model.parts import Call
from dragoman.textcalls.offers import as_tool_schema
from dragoman.textcalls.whole import FoundCall, scan_text

__all__ = ("extract_use_tool_blocks", "is_read_back", "to_obsidian_xml")

Escape = Literal["none", "entities"]

_FORMAT = "use_tool"


def extract_use_tool_blocks(
    text: str, tools: Iterable[object] | None = None
) -> tuple[FoundCall, ...]:
    """The calls that `<use_tool>` blocks in a text make. Without tools, every name counts and values are untyped."""
    return scan_text(text, tools, formats=_FORMAT).calls


def to_obsidian_xml(call: Call, *, schema: object = None, escape: Escape = "none") -> str:
    """A call as a `<use_tool>` block.

    Strings stand as they are, everything else as JSON: that is how the client reads them back. Parameters come in the
    order of the schema, then the others.

    escape: `entities` for clients that decode them; Copilot does not.
    """
    arguments = _arguments(call)
    properties = as_tool_schema(schema).get("properties")
    order = (
        list(cast("Mapping[str, object]", properties)) if isinstance(properties, Mapping) else []
    )
    keys = [key for key in order if key in arguments] + [
        key for key in arguments if key not in order
    ]
    lines = [f"<name>{call.name}</name>"]
    lines += [_element(key, arguments[key], escape) for key in keys]
    return "\n".join(("<use_tool>", *lines, "</use_tool>"))


def is_read_back(block: str, call: Call, *, schema: object = None) -> bool:
    """Whether a reader of the block gets the call back: one call, the same name, the same values."""
    tool = {"name": call.name, "input_schema": as_tool_schema(schema)}
    found = extract_use_tool_blocks(block, [tool])
    if len(found) != 1 or found[0].name != call.name:
        return False
    return cast("object", loads(found[0].arguments)) == _values(call)


def _element(key: str, source: bytes, escape: Escape) -> str:
    text = str(loads(source)) if source.startswith(b'"') else source.decode("utf-8")
    if escape == "entities":
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<{key}>\n{text}\n</{key}>" if "\n" in text else f"<{key}>{text}</{key}>"


def _arguments(call: Call) -> dict[str, bytes]:
    """The call's arguments, each as JSON source. Input that is no object is one parameter, `input`."""
    if call.kind == "custom":
        return {"input": dumps_document(call.input)}
    try:
        return {key: bytes(value) for key, value in as_object(call.input or "{}").items()}
    except MalformedJson:
        return {"input": dumps_document(call.input)}


def _values(call: Call) -> dict[str, object]:
    return {key: cast("object", loads(source)) for key, source in _arguments(call).items()}
