"""Tools and the choice among them, read from a request.

Functions and custom tools are Chat's own; any other type is a built-in of some server and is kept whole. `functions` and
`function_call`, their ancestors, are read as tools; marks in `extra` remember the form.
"""

from dragoman._json import Raw
from dragoman.core.memo import Kept, remembered
from dragoman.dialects.chat.checks import (
    Fields,
    ask_array,
    ask_flag,
    ask_object,
    ask_string,
    refuse,
)
from dragoman.dialects.chat.fields import (
    extra_of,
    fields_of,
    is_object,
    items_of,
    join_object,
    text_of,
)
from dragoman.dialects.chat.wire import BUILTIN_KINDS, LEGACY_CHOICE, LEGACY_TOOLS
from dragoman.model.parts import Extra
from dragoman.model.request import ChoiceMode, Grammar, Tool, ToolChoice, ToolRef

__all__ = ("read_choice", "read_list", "read_tools")

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


def read_tools(fields: Fields) -> tuple[Tool, ...]:
    """Raises RequestRefused for a tool that cannot be read."""
    legacy = [
        _read_legacy(_object(raw, f"{LEGACY_TOOLS}[{index}]"), f"{LEGACY_TOOLS}[{index}]")
        for index, raw in enumerate(ask_array(fields, LEGACY_TOOLS) or ())
    ]
    value = fields.get("tools")
    if value is None:
        return tuple(legacy)
    tools = read_list(value)
    return (*legacy, *tools) if legacy else tools


@remembered
def read_list(value: Raw) -> Kept:
    """The same for `tools` alone."""
    return Kept(
        _read_tool(_object(raw, f"tools[{index}]"), f"tools[{index}]")
        for index, raw in enumerate(ask_array({"tools": value}, "tools") or ())
    )


def read_choice(fields: Fields) -> ToolChoice | None:
    """Raises RequestRefused for a choice that nobody knows."""
    name = "tool_choice" if "tool_choice" in fields else LEGACY_CHOICE
    value = fields.get(name)
    if value is None:
        return None
    mode = text_of(value)
    if mode is None:
        choice = _object(value, name)
        if name == LEGACY_CHOICE:
            extra = extra_of(choice, ("name",))
            return ToolChoice(mode="tool", tool=ToolRef(_name(choice, name)), extra=extra)
        return _read_choice(choice, name)
    if mode not in _MODES:
        refuse(name, f"one of {', '.join(_MODES)}", value)
    return ToolChoice(mode=_MODES[mode])


def _object(raw: Raw, path: str) -> dict[str, Raw]:
    if not is_object(raw):
        refuse(path, "an object", raw)
    return fields_of(raw)


def _name(fields: Fields, path: str) -> str:
    name = ask_string(fields, "name", f"{path}.")
    return name or refuse(f"{path}.name", "a name", fields.get("name"))


def _read_tool(fields: dict[str, Raw], path: str) -> Tool:
    kind = ask_string(fields, "type", f"{path}.") or "function"
    if kind not in ("function", "custom"):
        builtin = BUILTIN_KINDS.get(kind, "other")
        name = text_of(fields.get("name")) or kind
        return Tool(name=name, kind=builtin, variant=kind, extra=Extra("chat", fields))
    inner = ask_object(fields, kind, f"{path}.")
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
    cache = fields.get("cache_control") or inner.get("cache_control")
    if kind == "function":
        return _read_function(inner, path, extra, cache)
    return _read_custom(inner, path, extra, cache)


def _read_legacy(fields: Fields, path: str) -> Tool:
    within = extra_of(fields, _FUNCTION_FIELDS)
    extra = _MARK
    if within is not None:
        extra = Extra("chat", {**_MARK.fields, "function": join_object(within.fields)})
    return _read_function(fields, path, extra)


def _read_function(inner: Fields, path: str, extra: Extra | None, cache: Raw | None = None) -> Tool:
    schema = inner.get("parameters")
    if schema is not None and not is_object(schema):
        refuse(f"{path}.parameters", "an object", schema)
    return Tool(
        name=_name(inner, path),
        description=ask_string(inner, "description", f"{path}."),
        schema=schema,
        strict=ask_flag(inner, "strict", f"{path}."),
        cache=cache,
        extra=extra,
    )


def _read_custom(inner: Fields, path: str, extra: Extra | None, cache: Raw | None) -> Tool:
    return Tool(
        name=_name(inner, path),
        kind="custom",
        description=ask_string(inner, "description", f"{path}."),
        grammar=_read_grammar(inner),
        cache=cache,
        extra=extra,
    )


def _read_grammar(inner: Fields) -> Grammar | None:
    form = fields_of(inner.get("format"))
    grammar = fields_of(form.get("grammar")) or form
    definition = text_of(grammar.get("definition"))
    if definition is None:
        return None
    return Grammar(text_of(grammar.get("syntax")) or "lark", definition)


def _has_more(form: Raw | None) -> bool:
    """Whether a grammar's format says more than its grammar."""
    fields = fields_of(form)
    return bool((fields.keys() | fields_of(fields.get("grammar")).keys()) - _FORMAT_FIELDS)


def _read_choice(choice: dict[str, Raw], path: str) -> ToolChoice:
    kind = ask_string(choice, "type", f"{path}.") or "function"
    if kind in _MODES:
        return ToolChoice(mode=_MODES[kind], extra=extra_of(choice, ("type",)))
    if kind != "allowed_tools":
        extra = _nested_extra(choice, kind, ("type", "name"))
        return ToolChoice(mode="tool", tool=_read_ref(choice, path), extra=extra)
    inner = ask_object(choice, "allowed_tools", f"{path}.") or choice
    allowed = tuple(
        _read_ref(_object(raw, path), f"{path}.allowed_tools.tools[{index}]")
        for index, raw in enumerate(items_of(inner.get("tools")))
    )
    required = _MODES.get(text_of(inner.get("mode")) or "") == "required"
    extra = _nested_extra(choice, kind, ("type", "mode", "tools"))
    return ToolChoice(mode="allowed", allowed=allowed, required=required, extra=extra)


def _nested_extra(fields: Fields, name: str, known: tuple[str, ...]) -> Extra | None:
    """The fields without a home, those of the object under `name` under that name."""
    rest = {each: raw for each, raw in fields.items() if each not in (*known, name)}
    within = extra_of(fields_of(fields.get(name)), known)
    if within is not None:
        rest[name] = join_object(within.fields)
    return Extra("chat", rest) if rest else None


def _read_ref(fields: Fields, path: str) -> ToolRef:
    kind = text_of(fields.get("type")) or "function"
    if kind in ("function", "custom", "tool"):
        inner = fields_of(fields.get(kind)) or fields
        return ToolRef(_name(inner, path), "custom" if kind == "custom" else "function")
    return ToolRef(kind, BUILTIN_KINDS.get(kind, "other"))
