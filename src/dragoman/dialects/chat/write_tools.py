"""Tools and the choice among them, written for one upstream.

Names are those of the `NameMap`; schemas are fixed to what the upstream accepts. A custom tool is native where the
upstream has them (`custom` among its built-ins), else a function with one string. Built-in tools of other dialects have
no peer here but web search. What a list of tools becomes is remembered with it.
"""

from typing import assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps_document
from dragoman.core.aliases import NameMap
from dragoman.core.freeform import wrapper_tool
from dragoman.core.losses import LossBook
from dragoman.core.memo import Kept, made_of
from dragoman.core.schemas import fix_schema
from dragoman.dialects.base import Target
from dragoman.dialects.chat.fields import fields_of, own_fields
from dragoman.dialects.chat.losses import note_foreign
from dragoman.dialects.chat.wire import LEGACY_CHOICE, LEGACY_TOOLS
from dragoman.model.outcome import Loss, Repair
from dragoman.model.parts import CLIENT_KINDS
from dragoman.model.request import Tool, ToolChoice, ToolRef

__all__ = ("ToolWriter", "named_tools")


def named_tools(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Those that are sent under names of their own."""
    return made_of(tools, "chat: named", lambda: Kept(filter(_is_named, tools)))


def _is_named(tool: Tool) -> bool:
    """Whether a tool is sent under a name of its own, as a function or a custom tool."""
    if tool.kind in ("function", "custom"):
        return True
    return tool.kind in CLIENT_KINDS and tool.schema is not None


class _Written(Struct, frozen=True):
    """A list of tools as fields of a request, and all that was noted on the way. `sent`: who is among them."""

    fields: dict[str, Raw]
    sent: set[tuple[str | None, str]]
    losses: tuple[Loss, ...]
    repairs: tuple[Repair, ...]


class ToolWriter:
    """Writes `tools` and `tool_choice` of one request. `is_own`: it came in this dialect."""

    def __init__(self, names: NameMap, target: Target, book: LossBook, *, is_own: bool) -> None:
        self._names = names
        self._target = target
        self._book = book
        self._is_own = is_own
        self._has_custom = "custom" in target.builtin
        self._sent: set[tuple[str | None, str]] = set()
        self.repairs: tuple[Repair, ...] = ()

    def write(self, tools: tuple[Tool, ...], choice: ToolChoice | None) -> dict[str, object]:
        """All fields of the request that are about tools."""
        if not tools:
            return {}
        allowed = self._allowed(choice)
        key = ("chat: written", self._target, self._book.rules, self._is_own, self._names.others)
        written = (
            made_of(tools, key, lambda: self._list(tools, None))
            if allowed is None
            else self._list(tools, allowed)
        )
        self._book.add(written.losses)
        self._sent = written.sent
        self.repairs = written.repairs
        fields: dict[str, object] = {**written.fields}
        if choice is not None and ("tools" in fields or LEGACY_TOOLS in fields):
            is_legacy = "tools" not in fields
            name = LEGACY_CHOICE if is_legacy else "tool_choice"
            note_foreign(self._book, choice.extra, "tool_choice", known=_CHOICE_FIELDS)
            fields[name] = _with_more(
                self._choice(choice, is_legacy=is_legacy), own_fields(choice.extra)
            )
        return fields

    def _list(
        self, tools: tuple[Tool, ...], allowed: set[tuple[str | None, str]] | None
    ) -> _Written:
        book = self._book.fresh()
        return _ListWriter(self._names, self._target, book, is_own=self._is_own).write(
            tools, allowed
        )

    def _allowed(self, choice: ToolChoice | None) -> set[tuple[str | None, str]] | None:
        """The only tools to send. A client of this dialect says it to an upstream that knows what it means."""
        if choice is None or choice.mode != "allowed" or self._is_own:
            return None
        return {(ref.namespace, ref.name) for ref in choice.allowed}

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


# What a choice of another dialect's is known by; what becomes of that is settled with the choice itself.
_CHOICE_FIELDS = frozenset({"type", "name", "tools", "server_label"})


def _with_more(choice: object, own: dict[str, Raw]) -> object:
    """A choice with the fields that have no home, where it is an object."""
    if not own or not isinstance(choice, dict):
        return choice
    out = dict(cast("dict[str, object]", choice))
    for name, raw in own.items():
        inner = out.get(name)
        out[name] = {**inner, **fields_of(raw)} if isinstance(inner, dict) else raw
    return out


class _ListWriter:
    """Writes one list of tools."""

    def __init__(self, names: NameMap, target: Target, book: LossBook, *, is_own: bool) -> None:
        self._names = names
        self._target = target
        self._book = book
        self._is_own = is_own
        self._has_custom = "custom" in target.builtin
        self._sent: set[tuple[str | None, str]] = set()
        self._repairs: list[Repair] = []

    def write(
        self, tools: tuple[Tool, ...], allowed: set[tuple[str | None, str]] | None
    ) -> _Written:
        fields: dict[str, object] = {}
        written: list[object] = []
        legacy: list[object] = []
        for index, tool in enumerate(tools):
            where = f"tools[{index}]"
            if not _is_named(tool):
                self._write_builtin(tool, where, written, fields)
            elif allowed is None or (tool.namespace, tool.name) in allowed:
                if self._is_repeated(tool, where):
                    continue
                if LEGACY_TOOLS in own_fields(tool.extra):
                    more = fields_of(own_fields(tool.extra).get("function"))
                    legacy.append({**self._function(tool, where), **more})
                else:
                    written.append(self._tool(tool, where))
        if legacy:
            fields[LEGACY_TOOLS] = legacy
        if written:
            fields["tools"] = written
        sources = {name: Raw(dumps_document(value)) for name, value in fields.items()}
        return _Written(sources, self._sent, self._book.losses, tuple(self._repairs))

    def _is_repeated(self, tool: Tool, where: str) -> bool:
        key = (tool.namespace, tool.name)
        if key in self._sent:
            self._repairs.append(Repair("duplicate_tool", where, tool.name))
            return True
        self._sent.add(key)
        return False

    def _write_builtin(
        self, tool: Tool, where: str, written: list[object], fields: dict[str, object]
    ) -> None:
        own = own_fields(tool.extra)
        if own:
            written.append(own)
        elif tool.kind == "web_search" and "web_search" in self._target.builtin:
            fields["web_search_options"] = {}
        else:
            self._book.note("builtin_tool", where, tool.variant or tool.kind)

    def _tool(self, tool: Tool, where: str) -> dict[str, object]:
        note_foreign(self._book, tool.extra, where)
        if tool.namespace is not None:
            self._book.note("namespace", where, tool.namespace)
        rest = dict(own_fields(tool.extra))
        if tool.kind == "custom" and self._has_custom:
            inner: dict[str, object] = {"name": self._names.wire(tool.name, tool.namespace)}
            if tool.description is not None:
                inner["description"] = tool.description
            if tool.grammar is not None:
                grammar = {
                    "syntax": tool.grammar.syntax,
                    "definition": tool.grammar.definition,
                }
                inner["format"] = {"type": "grammar", "grammar": grammar}
            inner |= fields_of(rest.pop("custom", None))
            out: dict[str, object] = {"type": "custom", "custom": inner}
        else:
            inner = self._function(tool, where) | fields_of(rest.pop("function", None))
            out = {"type": "function", "function": inner}
        cache = self._cache(tool, where)
        if cache is not None:
            out["cache_control"] = cache
        return {**out, **rest}

    def _cache(self, tool: Tool, where: str) -> Raw | None:
        if tool.cache is None or self._is_own:
            return tool.cache
        return tool.cache if self._book.note("cache_control", where) == "carry" else None

    def _function(self, tool: Tool, where: str) -> dict[str, object]:
        if tool.kind == "custom":
            self._book.note("custom_tool", where, tool.name)
            # The marks of this dialect belong to the tool, not to the function that stands for it.
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
