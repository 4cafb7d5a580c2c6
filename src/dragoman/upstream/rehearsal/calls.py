"""The input of a call, for every kind of tool that is called. Pure."""

from collections.abc import Mapping

from dragoman._json import dumps, loads
from dragoman.core.aliases import flat_name
from dragoman.errors import MalformedJson
from dragoman.model.parts import Call, CallKind, Dialect
from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.arguments import arguments_for
from dragoman.upstream.rehearsal.harmless import (
    COMMAND,
    NOWHERE,
    PLACEHOLDER,
    is_path_name,
    needs_care,
    safe_text,
)
from dragoman.upstream.rehearsal.merging import schema_in
from dragoman.upstream.rehearsal.patterns import example
from dragoman.upstream.rehearsal.words import Words, split_name

__all__ = ("LARGE", "call_input", "call_kind", "call_text", "grow")

# What large files and patches come to; several clients and proxies have limits between 64 and 256 KB.
LARGE = 300_000
_FILLER = 'rehearsal “été” 🎭 \\ "quoted" <b>&amp;</b>\t1e5\n'

_ANNOTATIONS = frozenset({"type", "description", "title"})

# Actions of the vendors' own tools that only look.
_ACTIONS: Mapping[tuple[Dialect, CallKind], object] = {
    ("messages", "bash"): {"command": COMMAND},
    ("messages", "text_editor"): {"command": "view", "path": "README.md"},
    ("messages", "memory"): {"command": "view", "path": "/memories"},
    ("messages", "computer"): {"action": "screenshot"},
    ("responses", "local_shell"): {"type": "exec", "command": COMMAND.split(), "env": {}},
    ("responses", "shell"): {"commands": [COMMAND], "timeout_ms": None, "max_output_length": None},
    ("responses", "computer"): {"type": "screenshot"},
}

# A patch of a file that cannot be there: it is refused, whoever applies it.
_PATCH = f"*** Begin Patch\n*** Update File: {NOWHERE}\n@@\n-rehearsal\n+rehearsal\n*** End Patch"


def call_kind(tool: Tool, dialect: Dialect) -> CallKind:
    """The kind of a call of this tool. Messages has one form of call for every tool that a client runs."""
    return "function" if dialect == "messages" else tool.kind


def call_input(tool: Tool, words: Words, dialect: Dialect, variant: int = 0) -> str:
    """The input as source text: JSON, or free text for a custom tool."""
    if tool.kind == "custom":
        return _free_text(tool, words)
    action = _ACTIONS.get((dialect, tool.kind))
    value = arguments_for(tool, words, variant) if action is None else action
    return dumps(value).decode("utf-8")


def call_text(call: Call) -> str:
    """A call as models without a tool protocol write it, in the form that Hermes and Qwen were taught."""
    arguments = call.input or "{}"
    if call.kind == "custom":
        arguments = dumps({"input": call.input}).decode("utf-8")
    name = dumps(flat_name(call.name, call.namespace)).decode("utf-8")
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def grow(tool: Tool, text: str) -> str:
    """The same input, 300 KB long: in a string that may be long, else in white space."""
    if tool.kind == "custom":
        return text + (" " * LARGE if needs_care(tool) else _filler())
    value = schema_in(loads(text))
    name = None if needs_care(tool) else _long_string(tool)
    if name is None:
        return f"{text[:-1]}{' ' * LARGE}}}"
    return dumps({**value, name: _filler()}).decode("utf-8")


def _free_text(tool: Tool, words: Words) -> str:
    names = set(split_name(tool.name))
    if "patch" in names:
        return _PATCH
    grammar = tool.grammar
    if grammar is not None and grammar.syntax == "regex":
        return example(grammar.definition) or PLACEHOLDER
    if needs_care(tool):
        # A string of its own is code that does nothing in most languages, and no command in any shell.
        return f'"{PLACEHOLDER}"'
    return words.text.strip() or PLACEHOLDER


def _long_string(tool: Tool) -> str | None:
    """A parameter that takes any string, as long as one likes."""
    try:
        schema = schema_in(loads(bytes(tool.schema or b"{}")))
    except MalformedJson:
        return None
    for name, member in schema_in(schema.get("properties")).items():
        keywords = schema_in(member)
        is_free = keywords.get("type") == "string" and not keywords.keys() - _ANNOTATIONS
        if is_free and not is_path_name(name) and safe_text(name, tool.name) is None:
            return name
    return None


def _filler() -> str:
    return _FILLER * (LARGE // len(_FILLER) + 1)
