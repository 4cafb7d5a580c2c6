"""Obsidian Copilot's `<use_tool>` blocks: out of a finished text, and into one.

Copilot up to 3.1.x reads its tool calls from such blocks; later releases take structured calls.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from dragoman._json import dumps_document, loads
from dragoman.errors import ConfigError
from dragoman.model.parts import Call
from dragoman.textcalls.contract.blocks import arguments_of, render_block
from dragoman.textcalls.contract.policy import XmlEscape
from dragoman.textcalls.offers import as_tool_schema
from dragoman.textcalls.whole import FoundCall, scan_text

__all__ = ("extract_use_tool_blocks", "is_read_back", "to_obsidian_xml")

_FORMAT = "use_tool"


def extract_use_tool_blocks(
    text: str, tools: Iterable[object] | None = None
) -> tuple[FoundCall, ...]:
    """The calls that `<use_tool>` blocks in a text make. Without tools, every name counts and values are untyped."""
    return scan_text(text, tools, formats=_FORMAT).calls


def to_obsidian_xml(call: object, *, schema: object = None, escape: XmlEscape = "none") -> str:
    """A call as a `<use_tool>` block.

    call: our `Call`, a `FoundCall`, a record of the aggregator, or a mapping with a name and arguments, as in any
        dialect's answer.

    Strings stand as they are, everything else as JSON: that is how the client reads them back. Parameters come in the
    order of the schema, then the others.

    escape: `entities` for clients that decode them; Copilot does not.

    Raises:
        ConfigError: this is no call.
    """
    return render_block(_as_call(call), schema=schema, escape=escape, keep_null=True).text


def is_read_back(block: str, call: object, *, schema: object = None) -> bool:
    """Whether a reader of the block gets the call back: one call, the same name, the same values."""
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
