"""Reads and writes tools and the tool choice.

A tool that came in this dialect has an `extra` of this dialect, even an empty one: its schema and flags are sent to the
vendor unchanged. Tools of other dialects are adapted to the target.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps, dumps_document, loads, raw
from dragoman.core.aliases import NameMap, ToolKey, key_of
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_list,
    ask_object,
    ask_text,
    extra_of,
    is_present,
    need_object,
    need_text,
    own_fields,
    present,
    read_object,
    read_text,
    without,
)
from dragoman.core.freeform import wrapper_tool
from dragoman.core.losses import BUILTIN_FIELDS, LossBook
from dragoman.core.schemas import EMPTY_SCHEMA, fix_schema, required_names
from dragoman.core.tool_cache import CachedTools, remembered, written_once
from dragoman.dialects.codec import Target
from dragoman.dialects.messages.blocks import added_definition
from dragoman.dialects.messages.breakpoints import NO_CHANGE, ToolBreakpoints
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import Block
from dragoman.dialects.messages.wire import (
    CACHE_CONTROL,
    MAPPED_FIELDS,
    TOOL_CHOICES,
    TOOL_FAMILIES,
)
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, CallKind, Extra, Opaque, Part, Result
from dragoman.model.request import Tool, ToolChoice, ToolRef, Turn

_KNOWN = MAPPED_FIELDS["tool"]

NONE_LOADED: frozenset[ToolKey] = frozenset()

# The version of each built-in tool that is offered to clients of other dialects: the oldest that needs no beta header.
_BUILTINS: Mapping[CallKind, tuple[str, str]] = {
    "web_search": ("web_search_20250305", "web_search"),
    "web_fetch": ("web_fetch_20250910", "web_fetch"),
    "code_interpreter": ("code_execution_20250825", "code_execution"),
}
# The vendor answers 400 to these at the top of a schema.
_ALTERNATIVES = ("allOf", "anyOf", "oneOf")


def read_tools(fields: Fields, key: str) -> tuple[Tool, ...]:
    """Read `tools`. Raises RequestRefused for a tool that cannot be read."""
    return _read_list(fields[key])


@remembered
def _read_list(value: Raw) -> CachedTools:
    tools = ask_list({"tools": value}, "tools") or []
    return CachedTools(_read_tool(tool, f"tools.{index}") for index, tool in enumerate(tools))


def read_added(turns: Sequence[Turn]) -> tuple[Tool, ...]:
    """Read the tools that system messages define. Raises RequestRefused for a tool that cannot be read."""
    if not turns:
        return ()
    return tuple(
        [
            replace(_read_tool(raw(definition), "tool_addition"), place="input")
            for turn in turns
            for part in turn.parts
            if isinstance(part, Opaque) and part.type == "tool_addition"
            if (definition := added_definition(read_object(part.raw)))
        ]
    )


def _read_tool(value: Raw, path: str) -> Tool:
    fields = need_object(value, path)
    variant = ask_text(fields, "type", path)
    if variant is not None and variant != "custom":
        return _read_builtin(fields, variant)
    name = need_text(fields, "name", path, "the name of a tool")
    ask_object(fields, "input_schema", path)
    schema = fields.get("input_schema")
    return Tool(
        name=name,
        description=ask_text(fields, "description", path),
        schema=None if not is_present(schema) else schema,
        strict=ask_bool(fields, "strict", path),
        deferred=ask_bool(fields, "defer_loading", path),
        cache=CACHE_CONTROL.read(fields.get("cache_control")),
        extra=Extra("messages", without(present(fields), _KNOWN)),
    )


def _read_builtin(fields: Fields, variant: str) -> Tool:
    family = next((each for each in TOOL_FAMILIES if variant.startswith(each)), "")
    name = read_text(fields.get("name")) or read_text(fields.get("mcp_server_name"))
    return Tool(
        name=name or family.rstrip("_") or variant,
        kind=TOOL_FAMILIES.get(family, "other"),
        variant=variant,
        extra=Extra("messages", dict(fields)),
    )


def read_choice(fields: Fields, key: str) -> ToolChoice | None:
    """Read `tool_choice`. Raises RequestRefused for an unknown choice."""
    choice = ask_object(fields, key)
    if choice is None:
        return None
    kind = ask_text(choice, "type", key)
    if kind not in TOOL_CHOICES:
        raise RequestRefused(
            f"tool_choice.type: expected one of {', '.join(sorted(TOOL_CHOICES))}, got {kind or 'nothing'}",
            param="tool_choice.type",
        )
    extra = extra_of("messages", present(choice), MAPPED_FIELDS["tool_choice"])
    if kind == "tool":
        name = need_text(choice, "name", key, "the name of a tool")
        return ToolChoice(mode="tool", tool=ToolRef(name), extra=extra)
    if kind == "any":
        return ToolChoice(mode="required", extra=extra)
    return ToolChoice(mode="none" if kind == "none" else "auto", extra=extra)


def read_parallel(fields: Fields) -> bool | None:
    """Read from `tool_choice` whether calls may come in parallel."""
    choice = ask_object(fields, "tool_choice") or {}
    is_serial = ask_bool(choice, "disable_parallel_tool_use", "tool_choice")
    return None if is_serial is None else not is_serial


class WrittenTools(Struct, frozen=True):
    """A list of tools as it is sent; `source` is None if it is empty. `labels`: the identity of each tool, see `_label`.

    points: how many of them have a cache breakpoint.
    """

    source: Raw | None
    labels: frozenset[str]
    repairs: tuple[Repair, ...]
    points: int = 0


_NO_TOOLS = WrittenTools(None, frozenset(), ())


def write_tools(
    tools: tuple[Tool, ...],
    names: NameMap,
    target: Target,
    book: LossBook,
    loaded: frozenset[ToolKey] = NONE_LOADED,
    points: ToolBreakpoints = NO_CHANGE,
) -> WrittenTools:
    """Write the tools in their order, and those in `loaded` as deferred. The result is cached for each list of tools."""
    if not tools:
        return _NO_TOOLS
    key = ("messages: written", target, names.others, loaded, points)
    return written_once(tools, key, book, _write_list, tools, names, target, loaded, points)


def find_loaded(tools: Sequence[Tool], turns: Iterable[Turn], target: Target) -> frozenset[ToolKey]:
    """Return the tools of another dialect that searches have loaded, for an upstream to which they can be written as such.

    The vendor refuses a request in which every tool is deferred.
    """
    if not target.deferred_tools:
        return NONE_LOADED
    found = {
        key
        for turn in turns
        for part in turn.parts
        if isinstance(part, Result) and part.kind == "tool_search" and part.executor == "client"
        for piece in part.content
        if isinstance(piece, Opaque) and piece.dialect != "messages"
        for key in piece.tools
    }
    loaded: set[ToolKey] = set()
    has_plain = False
    for tool in tools:
        if tool.place == "input" and key_of(tool) in found:
            loaded.add(key_of(tool))
        else:
            has_plain = True
    declared = {key_of(tool) for tool in tools if tool.place == "request"}
    return frozenset(loaded - declared) if has_plain else NONE_LOADED


def _write_list(
    book: LossBook,
    tools: tuple[Tool, ...],
    names: NameMap,
    target: Target,
    loaded: frozenset[ToolKey],
    points: ToolBreakpoints,
) -> WrittenTools:
    """Write the tools without duplicates: the vendor refuses a name that comes twice."""
    written: dict[str, Block] = {}
    repairs: list[Repair] = []
    for index, tool in enumerate(tools):
        if tool.place == "input" and _is_own(tool):
            continue  # it stays in its system message
        where = f"tools.{index}"
        block = _write_tool(tool, names, target, book, where)
        if block is None:
            continue
        if loaded and key_of(tool) in loaded:
            block["defer_loading"] = True
        label = _label(block)
        if label in written:
            repairs.append(Repair("duplicate_tool", where, label))
        else:
            written[label] = block
    blocks = list(written.values())
    count = points.settle(blocks)
    source = Raw(dumps_document(blocks)) if blocks else None
    return WrittenTools(source, frozenset(written), tuple(repairs), count)


def write_choice(
    choice: ToolChoice | None,
    tools: Collection[str],
    names: NameMap,
    book: LossBook,
    *,
    parallel: bool | None = None,
) -> Block | None:
    """Write `tool_choice` for the tools that were written. The vendor refuses a choice without tools."""
    if not tools:
        return None
    block: Block | None = None
    if choice is not None:
        note_foreign(book, choice.extra, "tool_choice")
        block = {**_mode(choice, tools, names, book), **own_fields("messages", choice.extra)}
    if parallel is False and (block is None or block["type"] != "none"):
        block = {"type": "auto", **(block or {}), "disable_parallel_tool_use": True}
    return block


def _mode(choice: ToolChoice, tools: Collection[str], names: NameMap, book: LossBook) -> Block:
    match choice.mode:
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
        case "allowed":
            # The tools that are not allowed were left out.
            return {"type": "any" if choice.required else "auto"}
        case "tool" if choice.tool is not None:
            ref = choice.tool
            builtin = _BUILTINS.get(ref.kind)
            name = names.wire(ref.name, ref.namespace) if builtin is None else builtin[1]
            if name in tools:
                return {"type": "tool", "name": name}
            book.note("tool_choice", "tool_choice", ref.name or ref.kind)
            return {"type": "auto"}
        case _:
            return {"type": "auto"}


def allowed_tools(tools: tuple[Tool, ...], choice: ToolChoice | None) -> tuple[Tool, ...]:
    """Return the tools that may be called; a choice may allow only some of them."""
    if choice is None or choice.mode != "allowed":
        return tools
    named = {key_of(ref) for ref in choice.allowed if ref.name}
    kinds = {ref.kind for ref in choice.allowed if not ref.name or ref.kind != "function"}
    return tuple(
        tool
        for tool in tools
        if key_of(tool) in named or (tool.kind in kinds and tool.kind not in ("function", "custom"))
    )


def _is_own(tool: Tool) -> bool:
    return tool.extra is not None and tool.extra.dialect == "messages"


def _write_tool(
    tool: Tool, names: NameMap, target: Target, book: LossBook, where: str
) -> Block | None:
    own = own_fields("messages", tool.extra)
    is_own = _is_own(tool)
    if is_own and tool.variant is not None:
        if tool.kind == "tool_search" and target.deferred_tools is False:
            book.note("builtin_tool", where, tool.variant)
            return None
        return dict(own)
    if tool.kind not in ("function", "custom") and tool.schema is None:
        return _write_builtin(tool, target, book, where)
    note_foreign(book, tool.extra, where, BUILTIN_FIELDS if tool.variant else ())
    if tool.namespace:
        book.note("namespace", where, tool.namespace)
    if tool.kind == "custom":
        book.note("custom_tool", where, tool.name)
        tool = wrapper_tool(tool)
    block: Block = {"name": names.wire(tool.name or tool.kind, tool.namespace)}
    if tool.description:
        block["description"] = tool.description
    schema, strict = (tool.schema or EMPTY_SCHEMA), tool.strict
    if not is_own:
        schema, strict = _fit(tool, target, book, where)
    block["input_schema"] = schema
    if strict is not None:
        block["strict"] = strict
    if is_own and tool.deferred is not None and target.deferred_tools is not False:
        block["defer_loading"] = tool.deferred
    if tool.cache is not None:
        block["cache_control"] = CACHE_CONTROL.write(tool.cache)
    return {**block, **own}


def _write_builtin(tool: Tool, target: Target, book: LossBook, where: str) -> Block | None:
    builtin = _BUILTINS.get(tool.kind)
    if builtin is None or tool.kind not in target.builtin:
        book.note("builtin_tool", where, tool.variant or tool.kind)
        return None
    note_foreign(book, tool.extra, where, known=("type", "name"))
    variant, name = builtin
    block: Block = {"type": variant, "name": name}
    if tool.cache is not None:
        block["cache_control"] = CACHE_CONTROL.write(tool.cache)
    return block


def _fit(tool: Tool, target: Target, book: LossBook, where: str) -> tuple[Raw, bool | None]:
    """Return the schema and the strict flag as the target accepts them. The flag is None unless it is true."""
    wanted = bool(tool.strict)
    fixed, strict, notes = fix_schema(tool.schema, target.schemas, strict=wanted and target.strict)
    merged = _merge_alternatives(fixed)
    if merged is not None:
        fixed, strict = merged, False
        notes = (*notes, "merged alternatives at the top")
    losing = [note for note in notes if not note.startswith("added")]
    if losing:
        book.note("schema", where, "; ".join(losing))
    if wanted and not strict:
        book.note("strict", where, tool.name)
    return fixed, True if strict else None


def _merge_alternatives(schema: Raw) -> Raw | None:
    """Merge the alternatives at the top of a schema: keep all properties, and require those that all alternatives require.

    None if there are no alternatives.
    """
    fields = _mapping(loads(bytes(schema)))
    if not any(key in fields for key in _ALTERNATIVES):
        return None
    properties = dict(_mapping(fields.get("properties")))
    required = required_names(fields)
    for key in _ALTERNATIVES:
        entries = fields.get(key)
        branches = cast("list[object]", entries) if isinstance(entries, list) else []
        demands = [required_names(_mapping(branch)) for branch in branches]
        for branch in branches:
            for name, value in _mapping(_mapping(branch).get("properties")).items():
                properties.setdefault(name, value)
        for name in {name for names in demands for name in names}:
            if key == "allOf" or all(name in names for names in demands):
                required.add(name)
    rest = {key: value for key, value in fields.items() if key not in _ALTERNATIVES}
    out: dict[str, object] = {**rest, "type": "object", "properties": properties}
    if required:
        out["required"] = sorted(required)
    return raw(out)


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _label(block: Block) -> str:
    """Return the identity of a tool: its name, or for a toolset its type and server."""
    name = block.get("name")
    if isinstance(name, Raw):
        return read_text(name) or ""
    if isinstance(name, str):
        return name
    return dumps([block.get("type"), block.get("mcp_server_name")]).decode("utf-8")


# --- searches for deferred tools -------------------------------------------------------------------------------------
# The vendor answers a search inside its answer, with a `server_tool_use` and a `tool_search_tool_result` block. Clients send
# both back. These are the blocks for a search that the gateway runs in the vendor's place.

MAX_PATTERN = 200
"""Characters of a pattern. The vendor's limit."""

_ID_PREFIX = "srvtoolu_"
_PATTERNS = "tool_search_tool_regex"
_RESULT = "tool_search"
_OWN = Extra("messages", {})


def takes_patterns(tool: Tool) -> bool:
    """Whether a search of this vendor takes a regular expression; the other takes words."""
    return tool.variant is not None and tool.variant.startswith(_PATTERNS)


def search_blocks(
    call: Call, call_id: str, names: Sequence[str], error: str | None = None
) -> tuple[Part, ...]:
    """Return the parts of a search and its result. `error`: one of the vendor's codes, if the search failed."""
    own_id = _ID_PREFIX + call_id
    content: dict[str, object]
    if error is None:
        references = [{"type": "tool_reference", "tool_name": name} for name in names]
        content = {"type": "tool_search_tool_search_result", "tool_references": references}
    else:
        content = {"type": "tool_search_tool_result_error", "error_code": error}
    return (
        Call(
            call_id=own_id,
            name=call.name,
            input=call.input,
            kind="tool_search",
            executor="gateway",
            extra=_OWN,
        ),
        Result(
            call_id=own_id,
            content=(
                Opaque(dialect="messages", type=f"{_RESULT}_tool_result", raw=Raw(dumps(content))),
            ),
            is_error=error is not None,
            kind="tool_search",
            name=_RESULT,
            executor="gateway",
            extra=_OWN,
        ),
    )


def searched_id(call: Call) -> str:
    """Return the id under which the model knows a search that a client sends back."""
    return call.call_id.removeprefix(_ID_PREFIX)
