"""A client's tools as `dynamicTools` of a thread.

Everything is a function there: free-form tools have one string, namespaces are flattened into the name, and names that
Codex keeps for its own tools get others (`NameMap`, which also leads back). A client's tools are fixed for a thread.
"""

from collections.abc import Iterable

from msgspec import Struct

from dragoman.core.aliases import NameMap
from dragoman.core.freeform import wrapper_tool
from dragoman.core.losses import LossBook
from dragoman.core.schemas import fix_schema
from dragoman.dialects.base import Target
from dragoman.dialects.codex.losses import note_foreign
from dragoman.model.outcome import Repair
from dragoman.model.parts import CLIENT_KINDS
from dragoman.model.request import Tool, ToolChoice

__all__ = ("Offer", "is_named", "offer_tools")


class Offer(Struct, frozen=True):
    """The tools as they are sent."""

    tools: list[dict[str, object]]
    repairs: tuple[Repair, ...]


def is_named(tool: Tool) -> bool:
    """Whether a tool is offered under a name of its own."""
    if tool.kind in ("function", "custom"):
        return True
    return tool.kind in CLIENT_KINDS and tool.schema is not None


def offer_tools(
    tools: Iterable[Tool], choice: ToolChoice | None, names: NameMap, target: Target, book: LossBook
) -> Offer:
    """The tools that may be called, each once."""
    allowed = _allowed(choice)
    offered: list[dict[str, object]] = []
    repairs: list[Repair] = []
    seen: set[tuple[str | None, str]] = set()
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        key = (tool.namespace, tool.name)
        if not is_named(tool):
            book.note("builtin_tool", where, tool.variant or tool.kind)
        elif allowed is not None and key not in allowed:
            continue
        elif key in seen:
            repairs.append(Repair("duplicate_tool", where, tool.name))
        else:
            seen.add(key)
            offered.append(_function(tool, where, names, target, book))
    _note_choice(choice, book)
    return Offer(offered, tuple(repairs))


def _allowed(choice: ToolChoice | None) -> set[tuple[str | None, str]] | None:
    """The only tools to offer; None for all of them."""
    match choice:
        case ToolChoice(mode="none"):
            return set()
        case ToolChoice(mode="tool", tool=ref) if ref is not None:
            return {(ref.namespace, ref.name)}
        case ToolChoice(mode="allowed", allowed=refs):
            return {(ref.namespace, ref.name) for ref in refs}
        case _:
            return None


def _note_choice(choice: ToolChoice | None, book: LossBook) -> None:
    if choice is not None:
        note_foreign(book, choice.extra, "tool_choice", known=("type", "name", "tools"))
    if choice is not None and (choice.mode in ("required", "tool") or choice.required):
        book.note("tool_choice", "tool_choice", choice.mode)


def _function(
    tool: Tool, where: str, names: NameMap, target: Target, book: LossBook
) -> dict[str, object]:
    if tool.namespace is not None:
        book.note("namespace", where, tool.namespace)
    if tool.cache is not None:
        book.note("cache_control", where)
    note_foreign(book, tool.extra, where)
    name = names.wire(tool.name, tool.namespace)
    if tool.kind == "custom":
        book.note("custom_tool", where, tool.name)
        tool = wrapper_tool(tool)
    elif tool.kind != "function":
        book.note("call_kind", where, tool.kind)
    schema, _, notes = fix_schema(tool.schema, target.schemas)
    if tool.strict:
        notes = (*notes, "not strict")
    if notes:
        book.note("schema", where, "; ".join(notes))
    return {
        "type": "function",
        "name": name,
        # Required there, even where there is none.
        "description": tool.description or "",
        "inputSchema": schema,
    }
