"""Which tools the model may or must use, both ways."""

from typing import assert_never

from dragoman._json import Raw
from dragoman.core.aliases import NameMap
from dragoman.core.losses import LossBook
from dragoman.dialects.responses.expect import expect_list, expect_object, need_text, refuse
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    own_fields,
    read_json,
    read_object,
    read_text,
)
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.wire import TOOL_KINDS
from dragoman.dialects.responses.writing import JsonObject
from dragoman.model.request import ChoiceMode, ToolChoice, ToolRef

__all__ = ("read_choice", "write_choice")

_MODES: dict[str, ChoiceMode] = {"auto": "auto", "none": "none", "required": "required"}
_NAMED = frozenset({"type", "name", "namespace"})


def read_choice(value: Raw | None) -> ToolChoice | None:
    """Raises RequestRefused for what is no choice."""
    said = read_json(value)
    if said is None:
        return None
    if isinstance(said, dict):
        return _choice(read_object(value))
    mode = _MODES.get(said) if isinstance(said, str) else None
    if mode is None:
        refuse("tool_choice", "auto, none, required or an object", value)
    return ToolChoice(mode=mode)


def _choice(fields: Fields) -> ToolChoice:
    kind = need_text(fields, "type", "tool_choice")
    if kind == "allowed_tools":
        return _allowed(fields)
    ref = _ref(fields, kind, "tool_choice")
    known = _NAMED if kind in ("function", "custom") else frozenset[str]()
    inner = known | {"function"} if kind == "function" else known
    return ToolChoice(mode="tool", tool=ref, extra=extra_of(fields, inner))


def _allowed(fields: Fields) -> ToolChoice:
    # The API has both fields at the top; Chat's form has them in `allowed_tools`.
    inner = read_object(fields.get("allowed_tools")) or fields
    refs: list[ToolRef] = []
    is_plain = True
    for number, entry in enumerate(expect_list(inner.get("tools"), "tool_choice.tools")):
        path = f"tool_choice.tools[{number}]"
        tool = expect_object(entry, path)
        kind = need_text(tool, "type", path)
        refs.append(_ref(tool, kind, path))
        is_plain = is_plain and kind in ("function", "custom") and not set(tool) - _NAMED
    known = {"type", "mode", "allowed_tools"} | ({"tools"} if is_plain else set[str]())
    return ToolChoice(
        mode="allowed",
        allowed=tuple(refs),
        required=read_text(inner, "mode") == "required",
        extra=extra_of(fields, known),
    )


def _ref(fields: Fields, kind: str, path: str) -> ToolRef:
    if kind in ("function", "custom"):
        # Chat's form has the name one level deeper.
        inner = fields if "name" in fields else read_object(fields.get(kind))
        name = need_text(inner, "name", path)
        return ToolRef(
            name,
            "custom" if kind == "custom" else "function",
            read_text(fields, "namespace") or None,
        )
    name = read_text(fields, "name") or read_text(fields, "server_label") or kind
    return ToolRef(name, TOOL_KINDS.get(kind, "other"))


def write_choice(choice: ToolChoice, names: NameMap, book: LossBook) -> object:
    note_foreign(book, choice.extra, "tool_choice")
    own = own_fields(choice.extra)
    match choice.mode:
        case "auto" | "none" | "required" as mode:
            return mode
        case "allowed":
            tools = [_ref_fields(ref, names) for ref in choice.allowed]
            mode = "required" if choice.required else "auto"
            return {"type": "allowed_tools", "mode": mode, "tools": tools, **own}
        case "tool":
            if choice.tool is None:
                return "required"
            return {**_ref_fields(choice.tool, names), **own}
        case _:
            assert_never(choice.mode)


def _ref_fields(ref: ToolRef, names: NameMap) -> JsonObject:
    if ref.kind in ("function", "custom"):
        out: JsonObject = {"type": ref.kind, "name": names.wire(ref.name, ref.namespace)}
        return out if ref.namespace is None else {**out, "namespace": ref.namespace}
    if ref.kind == "mcp":
        return {"type": "mcp", "server_label": ref.name}
    # The choice of a hosted tool goes by the older name of the search.
    return {"type": "web_search_preview" if ref.kind == "web_search" else ref.kind}
