"""Tools and the choice among them, both ways: functions, custom tools, namespaces, built-in tools.

A namespace is a name that its members carry; it is also declared separately so that an empty one survives. Built-in
tools keep their whole object. This dialect has namespaces and custom tools, so it needs no flattening and no wrapping.
"""

from collections.abc import Callable, Mapping, Sequence
from sys import maxsize
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps, dumps_document
from dragoman.core.aliases import NameLimits, NameMap, ToolKey, key_of
from dragoman.core.credentials import remove_credentials
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
    read_json,
    read_object,
    read_text,
    refuse,
)
from dragoman.core.loaded_tools import NOTHING_FOUND
from dragoman.core.losses import LossBook
from dragoman.core.schemas import EMPTY_SCHEMA, fix_schema
from dragoman.core.tool_cache import CachedTools, made_of, remembered, written_once
from dragoman.dialects.codec import Target
from dragoman.dialects.responses.item_writer import JsonObject
from dragoman.dialects.responses.losses import LOSSES, note_foreign
from dragoman.dialects.responses.wire import NATIVE_TOOLS, TOOL_KINDS
from dragoman.model.parts import Call, Extra, Opaque, Part, Result, Text
from dragoman.model.request import (
    ChoiceMode,
    Grammar,
    Namespace,
    Request,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)

_FUNCTION_FIELDS = frozenset(
    {"type", "name", "description", "parameters", "strict", "function", "defer_loading"}
)
_CUSTOM_FIELDS = frozenset({"type", "name", "description", "format", "defer_loading"})
_FORMAT_FIELDS = frozenset({"type", "grammar", "syntax", "definition"})
_NAMESPACE_FIELDS = frozenset({"type", "name", "description", "tools"})


_Place = Literal["request", "input"]


class DeclaredTools(Struct, frozen=True):
    tools: tuple[Tool, ...] = ()
    namespaces: tuple[Namespace, ...] = ()


# --- reading ---------------------------------------------------------------------------------------------------------


@remembered
def read_declared(value: Raw) -> DeclaredTools:
    """Read the tools that a request declares outside its conversation. Raises as `read_tools`."""
    return read_tools(value, "tools", "request")


def read_tools(value: Raw, where: str, place: _Place) -> DeclaredTools:
    """Read a list of tools.

    Raises:
        RequestRefused: a tool cannot be used.
    """
    tools: list[Tool] = []
    namespaces: list[Namespace] = []
    for number, entry in enumerate(ask_list({where: value}, where) or ()):
        path = f"{where}[{number}]"
        fields = need_object(entry, path)
        kind = need_text(fields, "type", path)
        if kind == "namespace":
            group, members = _namespace(fields, path, place)
            namespaces.append(group)
            tools.extend(members)
        else:
            tools.append(_tool(kind, fields, path, None, place))
    return DeclaredTools(CachedTools(tools), tuple(namespaces))


def _namespace(fields: Fields, path: str, place: _Place) -> tuple[Namespace, list[Tool]]:
    name = need_text(fields, "name", path)
    members: list[Tool] = []
    for number, entry in enumerate(ask_list(fields, "tools", path) or ()):
        inner = f"{path}.tools[{number}]"
        member = need_object(entry, inner)
        kind = ask_text(member, "type", inner) or "function"
        members.append(_tool(kind, member, inner, name, place))
    group = Namespace(
        name,
        ask_text(fields, "description", path),
        extra_of("responses", fields, _NAMESPACE_FIELDS),
        place,
    )
    return group, members


def _tool(kind: str, fields: Fields, path: str, namespace: str | None, place: _Place) -> Tool:
    if kind == "function":
        # Some clients send Chat's form, with the fields inside `function`.
        inner = fields if "name" in fields else ask_object(fields, "function", path) or {}
        ask_object(inner, "parameters", path)  # only its type is checked
        schema = inner.get("parameters")
        return Tool(
            name=need_text(inner, "name", path),
            namespace=namespace,
            description=ask_text(inner, "description", path),
            schema=schema if is_present(schema) else None,
            strict=ask_bool(inner, "strict", path),
            place=place,
            deferred=ask_bool(fields, "defer_loading", path),
            extra=extra_of("responses", fields, _FUNCTION_FIELDS),
        )
    if kind == "custom":
        grammar, known = _grammar(fields, path)
        return Tool(
            name=need_text(fields, "name", path),
            kind="custom",
            namespace=namespace,
            description=ask_text(fields, "description", path),
            grammar=grammar,
            place=place,
            deferred=ask_bool(fields, "defer_loading", path),
            extra=extra_of("responses", fields, known),
        )
    name = read_text(fields.get("name")) or read_text(fields.get("server_label")) or kind
    return Tool(
        name=name,
        kind=TOOL_KINDS.get(kind, "other"),
        namespace=namespace,
        description=read_text(fields.get("description")),
        schema=_builtin_schema(kind, fields),
        variant=kind,
        place=place,
        extra=Extra("responses", dict(fields)),
    )


def _builtin_schema(kind: str, fields: Fields) -> Raw | None:
    """Return the schema of a tool that can be offered as a function; None if only the provider can run it."""
    is_client = read_text(fields.get("execution")) == "client"
    if kind == "tool_search" and "execution" in fields and not is_client:
        return None
    schema = fields.get("parameters")
    if is_present(schema):
        return schema
    return EMPTY_SCHEMA if kind == "tool_search" and is_client else None


def _grammar(fields: Fields, path: str) -> tuple[Grammar | None, frozenset[str]]:
    form = ask_object(fields, "format", path) or {}
    if read_text(form.get("type")) != "grammar":
        # Plain text is the default; an explicit `format` is kept in `extra`.
        return None, _CUSTOM_FIELDS - {"format"}
    # This API has both fields in `format`; Chat's form has them one level deeper.
    inner = read_object(form.get("grammar")) or form
    syntax = need_text(inner, "syntax", f"{path}.format")
    definition = ask_text(inner, "definition", f"{path}.format")
    if definition is None:
        refuse(f"{path}.format.definition", "a string", inner.get("definition"))
    has_more = (form.keys() | inner.keys()) - _FORMAT_FIELDS
    # A format with more fields is kept whole in `extra` too.
    return Grammar(syntax, definition), _CUSTOM_FIELDS - ({"format"} if has_more else set())


# --- writing ---------------------------------------------------------------------------------------------------------


class _Writer(Struct, eq=False):
    names: NameMap
    target: Target
    book: LossBook
    is_native: bool

    def write(self, tool: Tool, where: str) -> JsonObject | None:
        if tool.cache is not None:
            self.book.note("cache_control", where)
        if tool.kind == "function":
            return self._function(tool, where)
        if tool.kind == "custom":
            return self._custom(tool, where)
        return self._builtin(tool, where)

    def _function(self, tool: Tool, where: str) -> JsonObject:
        note_foreign(self.book, tool.extra, where)
        schema, strict = tool.schema, tool.strict
        if not self.is_native:
            schema, strict, notes = fix_schema(tool.schema, self.target.schemas, strict=strict)
            if notes:
                self.book.note("schema", where, "; ".join(notes))
            # Without the flag a function is strict in this API, and in no other.
            strict = bool(strict) and self.target.strict
        out: JsonObject = {"type": "function", "name": self.names.wire(tool.name, tool.namespace)}
        if tool.description is not None:
            out["description"] = tool.description
        out["parameters"] = schema
        if strict is not None:
            out["strict"] = strict
        return {**out, **self._flag(tool), **own_fields("responses", tool.extra)}

    def _custom(self, tool: Tool, where: str) -> JsonObject:
        note_foreign(self.book, tool.extra, where)
        out = _custom_fields(tool, self.names.wire(tool.name, tool.namespace))
        return {**out, **self._flag(tool), **own_fields("responses", tool.extra)}

    def _flag(self, tool: Tool) -> JsonObject:
        # Another dialect's deferred tools would never be found: its search is not a tool of this API.
        return _deferred(tool) if self.is_native else {}

    def _builtin(self, tool: Tool, where: str) -> JsonObject | None:
        own = own_fields("responses", tool.extra)
        is_known = tool.kind in self.target.builtin or tool.kind == "other"
        if own and is_known:
            return dict(own)
        native: Mapping[str, object] | None = NATIVE_TOOLS.get(tool.kind)
        if native is None or not is_known:
            self.book.note("builtin_tool", where, tool.variant or tool.kind)
            return None
        note_foreign(self.book, tool.extra, where, known=("type", "name"))
        return dict(native)


def _deferred(tool: Tool) -> JsonObject:
    return {} if tool.deferred is None else {"defer_loading": tool.deferred}


def _custom_fields(tool: Tool, name: str) -> JsonObject:
    out: JsonObject = {"type": "custom", "name": name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.grammar is not None:
        grammar = tool.grammar
        out["format"] = {
            "type": "grammar",
            "syntax": grammar.syntax,
            "definition": grammar.definition,
        }
    return out


def write_tools(
    request: Request, names: NameMap, target: Target, book: LossBook, *, is_native: bool
) -> Raw | None:
    """Return the tools declared outside the conversation; the others are written with their items.

    The written list is cached with the tools, unless the request has namespaces.
    """
    if request.namespaces:
        return _written(book, request, names, target, is_native)
    if not request.tools:
        return None
    key = ("responses: written", target, is_native, names.others)
    return written_once(request.tools, key, book, _written, request, names, target, is_native)


def _written(
    book: LossBook,
    request: Request,
    names: NameMap,
    target: Target,
    is_native: bool,  # noqa: FBT001 -- `written_once` passes it on
) -> Raw | None:
    writer = _Writer(names, target, book, is_native)
    tools = _write_list(request, writer.write, book, is_native=is_native)
    return Raw(dumps_document(tools)) if tools else None


def echo_tools(request: Request, most: int) -> Raw | None:
    """Return the tools as an answer repeats them: as they were declared, without credentials, and functions with every field.

    None if they are larger than `most` bytes.
    """
    if request.namespaces:
        return _echoed(request, most)
    return made_of(request.tools, "responses: echo", _echoed, request, most)


def _echoed(request: Request, most: int) -> Raw | None:
    if sum(map(_weight, request.tools)) > most:
        return None
    book = LossBook(LOSSES, may_refuse=False)
    declared = Request(tools=request.tools, namespaces=request.namespaces)
    shown = remove_credentials(declared)  # an answer is stored
    written = _write_list(shown, lambda tool, _where: _echo(tool), book, is_native=True)
    return Raw(dumps(written))


def define_tools(tools: Sequence[Tool], namespaces: Sequence[Namespace]) -> list[object]:
    """Return the definitions of these tools, as the result of a search contains them. Namespaces without one are left out."""
    names = {tool.namespace for tool in tools}
    groups = tuple([replace(each, place="request") for each in namespaces if each.name in names])
    found = Request(
        tools=tuple([replace(tool, place="request") for tool in tools]), namespaces=groups
    )
    book = LossBook(LOSSES, may_refuse=False)
    return _write_list(found, lambda tool, _where: _echo(tool), book, is_native=True)


def declare_later(
    request: Request, names: NameMap, target: Target, book: LossBook
) -> tuple[Request, dict[ToolKey, JsonObject]]:
    """Return a request of another dialect without the tools that a search has loaded, and the definitions of those tools.

    An upstream with deferred tools reads the definitions where the search loaded them, so that the tools before the conversation,
    and with them the cached beginning of the prompt, stay the same.
    """
    found = {
        key
        for turn in request.turns
        for part in turn.parts
        if isinstance(part, Result) and part.executor == "client"
        for piece in part.content
        if isinstance(piece, Opaque)
        for key in piece.tools
    }
    writer = _Writer(names, target, book, is_native=False)
    later: dict[ToolKey, JsonObject] = {}
    others: list[Tool] = []
    for number, tool in enumerate(request.tools):
        key = key_of(tool)
        is_loaded = tool.deferred is True and key in found and tool.kind in ("function", "custom")
        written = writer.write(tool, f"tools[{number}]") if is_loaded else None
        if written is None:
            others.append(tool)
        else:
            later.setdefault(key, written)
    return (replace(request, tools=tuple(others)) if later else request), later


def declare_plainly(request: Request, book: LossBook) -> Request:
    """Return a request of this dialect for an upstream without deferred tools.

    All its tools are declared outside the conversation. A search that the client runs is a function; a search that the provider
    would run is left out.
    """
    tools: dict[ToolKey, Tool] = {}
    for number, tool in enumerate(request.tools):
        if tool.kind == "tool_search" and tool.schema is None:
            book.note("builtin_tool", f"tools[{number}]", tool.variant or tool.kind)
            continue
        plain = replace(tool, place="request", deferred=None)
        if tool.kind == "tool_search":
            plain = replace(plain, kind="function", variant=None, extra=None)
        tools.setdefault((tool.namespace, tool.name), plain)
    groups: dict[str, Namespace] = {}
    for group in request.namespaces:
        groups.setdefault(group.name, replace(group, place="request"))
    choice = request.tool_choice
    if choice is not None and choice.tool is not None and choice.tool.kind == "tool_search":
        choice = replace(choice, tool=ToolRef(choice.tool.name), extra=None)
    return replace(
        request,
        tools=tuple(tools.values()),
        namespaces=tuple(groups.values()),
        turns=tuple([_with_function_calls(turn) for turn in request.turns]),
        tool_choice=choice,
    )


def _with_function_calls(turn: Turn) -> Turn:
    """Return the turn with function calls in place of the client's searches for tools."""
    if not any(
        isinstance(part, (Call, Result)) and part.kind == "tool_search" for part in turn.parts
    ):
        return turn
    return replace(turn, parts=tuple(map(_function_part, turn.parts)))


def _function_part(part: Part) -> Part:
    if not isinstance(part, (Call, Result)) or part.kind != "tool_search":
        return part
    if part.executor != "client":
        return part
    if isinstance(part, Result) and not part.content:
        part = replace(part, content=(Text(text=NOTHING_FOUND),))
    return replace(part, kind="function", item_id=None, extra=None)


def _weight(tool: Tool) -> int:
    """Estimate the size of a tool without writing it."""
    values = (tool.schema, *own_fields("responses", tool.extra).values())
    texts = (tool.description or "", "" if tool.grammar is None else tool.grammar.definition)
    return sum([len(bytes(each)) for each in values if each is not None]) + sum(map(len, texts))


def _echo(tool: Tool) -> JsonObject:
    own = own_fields("responses", tool.extra)
    if tool.kind == "function":
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
            "strict": tool.strict,
            **_deferred(tool),
            **own,
        }
    if tool.kind == "custom":
        return {**_custom_fields(tool, tool.name), **_deferred(tool), **own}
    return dict(own)


def _write_list(
    request: Request,
    write: Callable[[Tool, str], JsonObject | None],
    book: LossBook,
    *,
    is_native: bool,
) -> list[object]:
    groups = {group.name: group for group in request.namespaces if group.place == "request"}
    members: dict[str, list[object]] = {}
    out: list[object] = []
    for number, tool in enumerate(request.tools):
        # A foreign request's tools of this place have no item here.
        is_in_item = tool.place == "input" and is_native
        written = None if is_in_item else write(tool, f"tools[{number}]")
        if written is None:
            continue
        if tool.namespace is None:
            out.append(written)
            continue
        if tool.namespace not in members:
            members[tool.namespace] = []
            group = groups.get(tool.namespace, Namespace(tool.namespace))
            out.append(_group(group, members[tool.namespace], book))
        members[tool.namespace].append(written)
    # The list of tools does not show where an empty namespace was, so it comes last.
    out.extend(_group(group, [], book) for name, group in groups.items() if name not in members)
    return out


def _group(group: Namespace, members: Sequence[object], book: LossBook) -> JsonObject:
    note_foreign(book, group.extra, f"namespaces.{group.name}")
    return {
        "type": "namespace",
        "name": group.name,
        "description": group.description or "",
        "tools": members,
        **own_fields("responses", group.extra),
    }


_MODES: dict[str, ChoiceMode] = {"auto": "auto", "none": "none", "required": "required"}
_NAMED = frozenset({"type", "name", "namespace"})


def read_choice(fields: Fields, key: str) -> ToolChoice | None:
    """Read `tool_choice`. Raises RequestRefused if it is not a choice."""
    value = fields[key]
    choice = read_json(value)
    if choice is None:
        return None
    if isinstance(choice, dict):
        return _choice(read_object(value))
    mode = _MODES.get(choice) if isinstance(choice, str) else None
    if mode is None:
        refuse(key, "auto, none, required or an object", value)
    return ToolChoice(mode=mode)


def _choice(fields: Fields) -> ToolChoice:
    kind = need_text(fields, "type", "tool_choice")
    if kind == "allowed_tools":
        return _allowed(fields)
    ref = _ref(fields, kind, "tool_choice")
    known = _NAMED if kind in ("function", "custom") else frozenset[str]()
    inner = known | {"function"} if kind == "function" else known
    return ToolChoice(mode="tool", tool=ref, extra=extra_of("responses", fields, inner))


def _allowed(fields: Fields) -> ToolChoice:
    # This API has both fields at the top; Chat's form has them in `allowed_tools`.
    inner = read_object(fields.get("allowed_tools")) or fields
    refs: list[ToolRef] = []
    is_plain = True
    for number, entry in enumerate(ask_list(inner, "tools", "tool_choice") or ()):
        path = f"tool_choice.tools[{number}]"
        tool = need_object(entry, path)
        kind = need_text(tool, "type", path)
        refs.append(_ref(tool, kind, path))
        is_plain = is_plain and kind in ("function", "custom") and not set(tool) - _NAMED
    known = {"type", "mode", "allowed_tools"} | ({"tools"} if is_plain else set[str]())
    return ToolChoice(
        mode="allowed",
        allowed=tuple(refs),
        required=read_text(inner.get("mode")) == "required",
        extra=extra_of("responses", fields, known),
    )


def _ref(fields: Fields, kind: str, path: str) -> ToolRef:
    if kind in ("function", "custom"):
        # Chat's form has the name one level deeper.
        inner = fields if "name" in fields else read_object(fields.get(kind))
        name = need_text(inner, "name", path)
        return ToolRef(
            name,
            "custom" if kind == "custom" else "function",
            read_text(fields.get("namespace")) or None,
        )
    name = read_text(fields.get("name")) or read_text(fields.get("server_label")) or kind
    return ToolRef(name, TOOL_KINDS.get(kind, "other"))


def write_choice(choice: ToolChoice, names: NameMap, book: LossBook) -> object:
    note_foreign(book, choice.extra, "tool_choice")
    own = own_fields("responses", choice.extra)
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


# Every name is allowed, so none gets an alias.
_SAME_NAMES = NameMap(NameLimits(pattern=r"[\s\S]", max_length=maxsize), flatten=False)


def echo_choice(choice: ToolChoice) -> object:
    """Return the choice as an answer repeats it."""
    return write_choice(choice, _SAME_NAMES, LossBook(LOSSES, may_refuse=False))


def _ref_fields(ref: ToolRef, names: NameMap) -> JsonObject:
    if ref.kind in ("function", "custom"):
        out: JsonObject = {"type": ref.kind, "name": names.wire(ref.name, ref.namespace)}
        return out if ref.namespace is None else {**out, "namespace": ref.namespace}
    if ref.kind == "mcp":
        return {"type": "mcp", "server_label": ref.name}
    # `tool_choice` uses the older name of the web search tool.
    return {"type": "web_search_preview" if ref.kind == "web_search" else ref.kind}


# --- searches for deferred tools -------------------------------------------------------------------------------------
# The provider answers a search inside its answer, with a `tool_search_call` and a `tool_search_output` item. Neither has a
# call id. These are the items for a search that the gateway runs in the provider's place.

_CALL_PREFIX = "tsc_"
_OUTPUT_PREFIX = "tso_"
_OWN = Extra("responses", {"call_id": Raw(b"null"), "execution": Raw(b'"server"')})


def search_items(
    call: Call, call_id: str, tools: Sequence[Tool], namespaces: Sequence[Namespace]
) -> tuple[Part, ...]:
    """Return the parts of a search and its result. A search that failed has found no tools: the output has no error."""
    return (
        Call(
            call_id=_CALL_PREFIX + call_id,
            name="tool_search",
            input=call.input,
            kind="tool_search",
            executor="gateway",
            item_id=_CALL_PREFIX + call_id,
            extra=_OWN,
        ),
        Result(
            call_id=_CALL_PREFIX + call_id,
            content=tuple(
                [
                    Opaque(dialect="responses", type="function", raw=Raw(dumps(each)))
                    for each in define_tools(tools, namespaces)
                ]
            ),
            kind="tool_search",
            executor="gateway",
            item_id=_OUTPUT_PREFIX + call_id,
            extra=_OWN,
        ),
    )


def searched_id(call: Call) -> str:
    """Return the id under which the model knows a search that a client sends back."""
    return call.call_id.removeprefix(_CALL_PREFIX)
