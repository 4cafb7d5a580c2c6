"""Which tools a prompt offers, under which names, and what it says about calling them.

A tool that only a provider can run, or one without a schema, cannot be described as a function: it stays in the request,
where the upstream's dialect has a rule for it.
"""

from collections.abc import Iterable

from msgspec import Struct

from dragoman.core.aliases import NameMap, flat_name
from dragoman.core.freeform import wrapper_tool
from dragoman.core.losses import LossBook
from dragoman.core.schemas import EMPTY_SCHEMA
from dragoman.model.parts import CLIENT_KINDS, Call
from dragoman.model.request import Namespace, Request, Tool, ToolChoice, ToolRef
from dragoman.textcalls.prompting.base import LEGACY_MARKS, Signature, ToolPrompt

__all__ = ("Offering", "call_key", "plan_offering")


_Key = tuple[str | None, str]


class Offering(Struct, frozen=True, kw_only=True):
    """tools: those that the prompt offers, as functions under their names in the text. names: the way back.

    kept: tools that stay in the request, and `choice`, which is about one of them. text: the instruction; empty where no
    tool is offered.
    """

    tools: tuple[Tool, ...]
    names: NameMap
    kept: tuple[Tool, ...]
    choice: ToolChoice | None
    text: str


def plan_offering(request: Request, prompt: ToolPrompt, book: LossBook) -> Offering:
    named = tuple(tool for tool in request.tools if _is_sayable(tool))
    kept = tuple(tool for tool in request.tools if not _is_sayable(tool))
    names = NameMap.build(named, _used(request), prompt.names)
    choice = request.tool_choice
    allowed = _allowed(choice)
    offered: dict[str, Tool] = {}
    for index, tool in enumerate(request.tools):
        is_wanted = allowed is None or (tool.namespace, tool.name) in allowed
        if _is_sayable(tool) and is_wanted:
            wire = names.wire(tool.name, tool.namespace)
            offered.setdefault(wire, _as_function(tool, wire, book, f"tools[{index}]"))
    tools = tuple(offered.values())
    text = ""
    if tools:
        lines = [prompt.offer([_signature(tool) for tool in tools])]
        lines += _about_namespaces(request.namespaces, named)
        lines += _about_choice(request, names, offered, book)
        text = "\n\n".join(lines)
    is_about_kept = choice is not None and choice.tool is not None and _is_one_of(choice.tool, kept)
    return Offering(
        tools=tools, names=names, kept=kept, choice=choice if is_about_kept else None, text=text
    )


def call_key(call: Call) -> _Key:
    """What a call is known by. A kind without a name is named for itself."""
    return call.namespace, call.name or call.kind


def _is_sayable(tool: Tool) -> bool:
    if tool.kind in ("function", "custom"):
        return True
    return tool.kind in CLIENT_KINDS and tool.schema is not None


def _used(request: Request) -> list[_Key]:
    return [
        call_key(part)
        for turn in request.turns
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "client"
    ]


def _allowed(choice: ToolChoice | None) -> set[_Key] | None:
    """The only tools to offer; None: all of them."""
    match choice:
        case ToolChoice(mode="none"):
            return set()
        case ToolChoice(mode="allowed"):
            return {(ref.namespace, ref.name) for ref in choice.allowed}
        case _:
            return None


def _as_function(tool: Tool, wire: str, book: LossBook, where: str) -> Tool:
    if tool.kind == "custom":
        book.note("custom_tool", where, tool.name)
        if tool.grammar is not None:
            book.note("grammar", where, tool.grammar.syntax)
        tool = wrapper_tool(tool)
    elif tool.kind != "function":
        book.note("call_kind", where, tool.kind)
    if tool.namespace is not None:
        book.note("namespace", where, tool.namespace)
    if tool.strict:
        book.note("strict", where, tool.name)
    if tool.cache is not None:
        book.note("cache_control", where)
    fields = set(tool.extra.fields) - LEGACY_MARKS if tool.extra is not None else set[str]()
    if fields:
        book.note("tool_fields", where, ", ".join(sorted(fields)))
    return Tool(name=wire, description=tool.description, schema=tool.schema or EMPTY_SCHEMA)


def _signature(tool: Tool) -> Signature:
    return Signature(tool.name, tool.description or "", tool.schema or EMPTY_SCHEMA)


def _about_namespaces(groups: Iterable[Namespace], tools: tuple[Tool, ...]) -> list[str]:
    """What a client says of a group of tools. A group without a word needs none."""
    used = {tool.namespace for tool in tools}
    return [
        f"The functions whose names begin with `{flat_name('', group.name)}`: {group.description}"
        for group in groups
        if group.description and group.name in used
    ]


def _about_choice(
    request: Request, names: NameMap, offered: dict[str, Tool], book: LossBook
) -> list[str]:
    lines: list[str] = []
    choice = request.tool_choice
    if choice is not None:
        demand = _demand(choice, names, offered)
        if demand:
            book.note("tool_choice", "tool_choice", choice.mode)
            lines.append(demand)
    if request.parallel_calls is False:
        book.note("parallel_calls", "parallel_calls")
        lines.append("Make at most one function call in a reply.")
    return lines


def _demand(choice: ToolChoice, names: NameMap, offered: dict[str, Tool]) -> str:
    if choice.mode == "required" or (choice.mode == "allowed" and choice.required):
        return "This time you must call at least one function: do not reply without a call."
    if choice.mode != "tool" or choice.tool is None:
        return ""
    wire = names.wire(choice.tool.name, choice.tool.namespace)
    if wire not in offered:
        return ""
    return f"This time you must call the function `{wire}`, and no other: do not reply without that call."


def _is_one_of(ref: ToolRef, tools: tuple[Tool, ...]) -> bool:
    return any((tool.namespace, tool.name) == (ref.namespace, ref.name) for tool in tools)
