"""Reads and writes tools and the tool choice: functions, custom tools, and the older `functions` and `function_call`."""

from typing import assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps_document
from dragoman.core.aliases import NameMap, ToolKey, is_named
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_list,
    ask_present,
    ask_text,
    extra_of,
    is_object,
    is_present,
    join_object,
    need_object,
    need_text,
    own_fields,
    present,
    read_fragment,
    read_items,
    read_present,
    refuse,
)
from dragoman.core.freeform import wrapper_tool
from dragoman.core.losses import BUILTIN_FIELDS, LossBook
from dragoman.core.schemas import fix_schema
from dragoman.core.tool_cache import CachedTools, made_of, remembered, written_once
from dragoman.dialects.chat.content import put_breakpoint
from dragoman.dialects.chat.losses import note_foreign
from dragoman.dialects.chat.wire import BUILTIN_KINDS, CACHE_CONTROL, LEGACY_CHOICE, LEGACY_TOOLS
from dragoman.dialects.codec import Target
from dragoman.model.outcome import Repair
from dragoman.model.parts import CLIENT_KINDS, Breakpoint, Extra
from dragoman.model.request import ChoiceMode, Grammar, Tool, ToolChoice, ToolRef

_OUTER_FIELDS = frozenset({"type", "function", "custom", "cache_control"})
_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
_CUSTOM_FIELDS = frozenset({"name", "description", "format"})
_FORMAT_FIELDS = frozenset({"type", "grammar", "syntax", "definition"})
_MODES: dict[str, ChoiceMode] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",  # Mistral's and Anthropic's word
}
_MARK = Extra("chat", {LEGACY_TOOLS: Raw(b"true")})


def is_legacy(tool: Tool) -> bool:
    """Whether the client offered a tool in `functions`, the older form of `tools`, and expects that form of answer."""
    extra = tool.extra
    return extra is not None and LEGACY_TOOLS in extra.fields and extra.dialect == "chat"


def read_tools(fields: Fields, _key: str) -> tuple[Tool, ...]:
    """Read `tools` and `functions`. Raises RequestRefused for a tool that cannot be read."""
    tools = read_list(fields["tools"]) if "tools" in fields else CachedTools()
    if LEGACY_TOOLS not in fields:
        return tools
    legacy = [
        _read_legacy(_object(raw, f"{LEGACY_TOOLS}[{index}]"), f"{LEGACY_TOOLS}[{index}]")
        for index, raw in enumerate(ask_list(fields, LEGACY_TOOLS) or ())
    ]
    return (*legacy, *tools)


@remembered
def read_list(value: Raw) -> CachedTools:
    """Read `tools` alone."""
    return CachedTools(
        _read_tool(_object(raw, f"tools[{index}]"), f"tools[{index}]")
        for index, raw in enumerate(ask_list({"tools": value}, "tools") or ())
    )


def read_choice(fields: Fields, name: str) -> ToolChoice | None:
    """Read the tool choice in this field. Raises RequestRefused for an unknown choice."""
    value = fields[name]
    is_replaced = name == LEGACY_CHOICE and is_present(fields.get("tool_choice"))
    if is_replaced or not is_present(value):
        return None
    mode = read_fragment(value)
    if mode is None:
        choice = _object(value, name)
        if name == LEGACY_CHOICE:
            extra = extra_of("chat", choice, ("name",))
            return ToolChoice(mode="tool", tool=ToolRef(_name(choice, name)), extra=extra)
        return _read_choice(choice, name)
    if mode not in _MODES:
        refuse(name, f"one of {', '.join(_MODES)}", value)
    return ToolChoice(mode=_MODES[mode])


def _object(raw: Raw, path: str) -> dict[str, Raw]:
    return present(need_object(raw, path))


def _name(fields: Fields, path: str) -> str:
    return need_text(fields, "name", path, "a name")


def _read_tool(fields: dict[str, Raw], path: str) -> Tool:
    kind = ask_text(fields, "type", path) or "function"
    if kind not in ("function", "custom"):
        builtin = BUILTIN_KINDS.get(kind, "other")
        name = read_fragment(fields.get("name")) or kind
        return Tool(name=name, kind=builtin, variant=kind, extra=Extra("chat", fields))
    inner = ask_present(fields, kind, path)
    if inner is None:
        # The flat form of Responses, which clients send here by mistake and servers accept.
        inner, fields = fields, {}
    path = f"{path}.{kind}"
    known = _OUTER_FIELDS | (_FUNCTION_FIELDS if kind == "function" else _CUSTOM_FIELDS)
    if _read_grammar(inner) is None or _has_more(inner.get("format")):
        known -= {"format"}
    rest = {name: raw for name, raw in fields.items() if name not in _OUTER_FIELDS}
    within = {name: raw for name, raw in inner.items() if name not in known}
    if within:
        rest[kind] = join_object(within)
    extra = Extra("chat", rest) if rest else None
    cache = CACHE_CONTROL.read(fields.get("cache_control") or inner.get("cache_control"))
    if kind == "function":
        return _read_function(inner, path, extra, cache)
    return _read_custom(inner, path, extra, cache)


def _read_legacy(fields: Fields, path: str) -> Tool:
    within = extra_of("chat", fields, _FUNCTION_FIELDS)
    extra = _MARK
    if within is not None:
        extra = Extra("chat", {**_MARK.fields, "function": join_object(within.fields)})
    return _read_function(fields, path, extra)


def _read_function(
    inner: Fields, path: str, extra: Extra | None, cache: Breakpoint | None = None
) -> Tool:
    schema = inner.get("parameters")
    if schema is not None and not is_object(schema):
        refuse(f"{path}.parameters", "an object", schema)
    return Tool(
        name=_name(inner, path),
        description=ask_text(inner, "description", path),
        schema=schema,
        strict=ask_bool(inner, "strict", path),
        cache=cache,
        extra=extra,
    )


def _read_custom(inner: Fields, path: str, extra: Extra | None, cache: Breakpoint | None) -> Tool:
    return Tool(
        name=_name(inner, path),
        kind="custom",
        description=ask_text(inner, "description", path),
        grammar=_read_grammar(inner),
        cache=cache,
        extra=extra,
    )


def _read_grammar(inner: Fields) -> Grammar | None:
    form = read_present(inner.get("format"))
    grammar = read_present(form.get("grammar")) or form
    definition = read_fragment(grammar.get("definition"))
    if definition is None:
        return None
    return Grammar(read_fragment(grammar.get("syntax")) or "lark", definition)


def _has_more(form: Raw | None) -> bool:
    """Whether a grammar's format has fields beside its grammar."""
    fields = read_present(form)
    return bool((fields.keys() | read_present(fields.get("grammar")).keys()) - _FORMAT_FIELDS)


def _read_choice(choice: dict[str, Raw], path: str) -> ToolChoice:
    kind = ask_text(choice, "type", path) or "function"
    if kind in _MODES:
        return ToolChoice(mode=_MODES[kind], extra=extra_of("chat", choice, ("type",)))
    if kind != "allowed_tools":
        extra = _nested_extra(choice, kind, ("type", "name"))
        return ToolChoice(mode="tool", tool=_read_ref(choice, path), extra=extra)
    inner = ask_present(choice, "allowed_tools", path) or choice
    allowed = tuple(
        _read_ref(_object(raw, path), f"{path}.allowed_tools.tools[{index}]")
        for index, raw in enumerate(read_items(inner.get("tools")))
    )
    required = _MODES.get(read_fragment(inner.get("mode")) or "") == "required"
    extra = _nested_extra(choice, kind, ("type", "mode", "tools"))
    return ToolChoice(mode="allowed", allowed=allowed, required=required, extra=extra)


def _nested_extra(fields: Fields, name: str, known: tuple[str, ...]) -> Extra | None:
    """Return the unknown fields; those of the object under `name` stay under that name."""
    rest = {each: raw for each, raw in fields.items() if each not in (*known, name)}
    within = extra_of("chat", read_present(fields.get(name)), known)
    if within is not None:
        rest[name] = join_object(within.fields)
    return Extra("chat", rest) if rest else None


def _read_ref(fields: Fields, path: str) -> ToolRef:
    kind = read_fragment(fields.get("type")) or "function"
    if kind in ("function", "custom", "tool"):
        inner = read_present(fields.get(kind)) or fields
        return ToolRef(_name(inner, path), "custom" if kind == "custom" else "function")
    return ToolRef(kind, BUILTIN_KINDS.get(kind, "other"))


def named_tools(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return the tools that are sent under names of their own."""
    return made_of(tools, "chat: named", _named, tools)


def _named(tools: tuple[Tool, ...]) -> CachedTools:
    return CachedTools(filter(is_named, tools))


class _Written(Struct, frozen=True):
    """A list of tools as fields of a request. `sent`: namespace and name of each tool among them."""

    fields: dict[str, Raw]
    sent: frozenset[ToolKey]
    repairs: tuple[Repair, ...]


class ToolWriter:
    """Writes `tools` and `tool_choice` of one request. `is_own`: it came in this dialect."""

    def __init__(self, names: NameMap, target: Target, book: LossBook, *, is_own: bool) -> None:
        self._names = names
        self._target = target
        self._book = book
        self._is_own = is_own
        self._has_custom = "custom" in target.builtin
        self._sent: frozenset[ToolKey] = frozenset()
        self.repairs: tuple[Repair, ...] = ()

    def write(self, tools: tuple[Tool, ...], choice: ToolChoice | None) -> dict[str, object]:
        """Return all fields of the request that concern tools."""
        if not tools:
            return {}
        allowed = self._allowed(choice)
        key = ("chat: written", self._target, self._is_own, self._names.others, allowed)
        written = written_once(tools, key, self._book, self._write_fresh, tools, allowed)
        self._sent = written.sent
        self.repairs = written.repairs
        fields: dict[str, object] = {**written.fields}
        if choice is not None and ("tools" in fields or LEGACY_TOOLS in fields):
            is_legacy = "tools" not in fields
            name = LEGACY_CHOICE if is_legacy else "tool_choice"
            note_foreign(self._book, choice.extra, "tool_choice", known=_CHOICE_FIELDS)
            fields[name] = _with_more(
                self._choice(choice, is_legacy=is_legacy), own_fields("chat", choice.extra)
            )
        return fields

    def _write_fresh(
        self, book: LossBook, tools: tuple[Tool, ...], allowed: frozenset[ToolKey] | None
    ) -> "_Written":
        """Write the list for the cache: its losses go into a book of their own."""
        writer = ToolWriter(self._names, self._target, book, is_own=self._is_own)
        return writer.write_list(tools, allowed)

    def _allowed(self, choice: ToolChoice | None) -> frozenset[ToolKey] | None:
        """Return the only tools to send; None for all. A Chat client's own `allowed_tools` is sent as it is instead."""
        if choice is None or choice.mode != "allowed" or self._is_own:
            return None
        return frozenset((ref.namespace, ref.name) for ref in choice.allowed)

    def _choice(self, choice: ToolChoice, *, is_legacy: bool) -> object:
        match choice.mode:
            case "auto" | "none" | "required":
                return choice.mode
            case "allowed" if self._is_own:
                tools = [self._ref(ref) for ref in choice.allowed]
                mode = "required" if choice.required else "auto"
                return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
            case "allowed":
                return "required" if choice.required else "auto"
            case "tool":
                return self._forced(choice.tool, is_legacy=is_legacy)
            case _:
                assert_never(choice.mode)

    def _forced(self, ref: ToolRef | None, *, is_legacy: bool) -> object:
        is_sent = ref is not None and (ref.namespace, ref.name) in self._sent
        if ref is None or not (is_sent or self._is_own):
            self._book.note("tool_choice", "tool_choice", ref.name if ref is not None else "")
            return "auto"
        if is_legacy:
            return {"name": self._names.wire(ref.name, ref.namespace)}
        return self._ref(ref)

    def _ref(self, ref: ToolRef) -> dict[str, object]:
        if ref.kind not in ("function", "custom") and ref.kind not in CLIENT_KINDS:
            return {"type": ref.name}
        kind = "custom" if self._is_custom(ref) else "function"
        return {"type": kind, kind: {"name": self._names.wire(ref.name, ref.namespace)}}

    def _is_custom(self, ref: ToolRef) -> bool:
        return ref.kind == "custom" and self._has_custom

    # --- the list of tools --------------------------------------------------------------------------------------------

    def write_list(self, tools: tuple[Tool, ...], allowed: frozenset[ToolKey] | None) -> _Written:
        sent: set[ToolKey] = set()
        repairs: list[Repair] = []
        fields: dict[str, object] = {}
        written: list[object] = []
        legacy: list[object] = []
        for index, tool in enumerate(tools):
            where = f"tools[{index}]"
            if not is_named(tool):
                self._write_builtin(tool, where, written, fields)
                continue
            key = (tool.namespace, tool.name)
            if key in sent:
                repairs.append(Repair("duplicate_tool", where, tool.name))
            elif allowed is None or key in allowed:
                sent.add(key)
                if LEGACY_TOOLS in own_fields("chat", tool.extra):
                    more = read_present(own_fields("chat", tool.extra).get("function"))
                    legacy.append({**self._function(tool, where), **more})
                else:
                    written.append(self._tool(tool, where))
        if legacy:
            fields[LEGACY_TOOLS] = legacy
        if written:
            fields["tools"] = written
        sources = {name: Raw(dumps_document(value)) for name, value in fields.items()}
        return _Written(sources, frozenset(sent), tuple(repairs))

    def _write_builtin(
        self, tool: Tool, where: str, written: list[object], fields: dict[str, object]
    ) -> None:
        own = own_fields("chat", tool.extra)
        if own:
            written.append(own)
        elif tool.kind == "web_search" and "web_search" in self._target.builtin:
            fields["web_search_options"] = {}
        else:
            self._book.note("builtin_tool", where, tool.variant or tool.kind)

    def _tool(self, tool: Tool, where: str) -> dict[str, object]:
        note_foreign(self._book, tool.extra, where, BUILTIN_FIELDS if tool.variant else ())
        if tool.namespace is not None:
            self._book.note("namespace", where, tool.namespace)
        rest = dict(own_fields("chat", tool.extra))
        if tool.kind == "custom" and self._has_custom:
            inner: dict[str, object] = {"name": self._names.wire(tool.name, tool.namespace)}
            if tool.description is not None:
                inner["description"] = tool.description
            if tool.grammar is not None:
                grammar = {"syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
                inner["format"] = {"type": "grammar", "grammar": grammar}
            inner |= read_present(rest.pop("custom", None))
            out: dict[str, object] = {"type": "custom", "custom": inner}
        else:
            inner = self._function(tool, where) | read_present(rest.pop("function", None))
            out = {"type": "function", "function": inner}
        put_breakpoint(out, self._cache(tool, where))
        return {**out, **rest}

    def _cache(self, tool: Tool, where: str) -> Breakpoint | None:
        if tool.cache is None or self._is_own:
            return tool.cache
        return tool.cache if self._book.note("cache_control", where) == "carry" else None

    def _function(self, tool: Tool, where: str) -> dict[str, object]:
        if tool.kind == "custom":
            self._book.note("custom_tool", where, tool.name)
            # The extra fields of this dialect belong to the tool, not to the function that replaces it.
            tool = replace(wrapper_tool(tool), extra=None)
        elif tool.kind != "function":
            self._book.note("call_kind", where, tool.kind)
        out: dict[str, object] = {"name": self._names.wire(tool.name, tool.namespace)}
        if tool.description is not None:
            out["description"] = tool.description
        strict = tool.strict
        schema: Raw | None = None
        if tool.schema is not None or not self._is_own:
            schema, strict, notes = fix_schema(
                tool.schema, self._target.schemas, strict=tool.strict
            )
            if notes:
                self._book.note("schema", where, "; ".join(notes))
        if schema is not None:
            out["parameters"] = schema
        if strict is not None and self._target.strict:
            out["strict"] = strict
        elif strict:
            self._book.note("schema", where, "the upstream knows no strict functions")
        return out


# The fields by which other dialects express a choice. `ToolWriter._choice` handles them, so they are not losses.
_CHOICE_FIELDS = frozenset({"type", "name", "tools", "server_label"})


def _with_more(choice: object, own: dict[str, Raw]) -> object:
    """Add the unknown fields to a choice that is an object."""
    if not own or not isinstance(choice, dict):
        return choice
    out = dict(cast("dict[str, object]", choice))
    for name, raw in own.items():
        inner = out.get(name)
        out[name] = {**inner, **read_present(raw)} if isinstance(inner, dict) else raw
    return out
