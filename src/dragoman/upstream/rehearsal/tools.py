"""Chooses the tool to call, and makes the input of the call, for every kind of tool. Pure."""

from collections.abc import Mapping, Sequence

from dragoman._json import dumps, loads
from dragoman.core.aliases import flat_name
from dragoman.errors import RequestRefused
from dragoman.model.parts import Call, CallKind, Dialect
from dragoman.model.request import Request, Tool, ToolChoice, ToolRef
from dragoman.upstream.rehearsal.arguments import arguments_for
from dragoman.upstream.rehearsal.schema import read_schema, schema_in
from dragoman.upstream.rehearsal.strings import (
    COMMAND,
    NOWHERE,
    PLACEHOLDER,
    example,
    has_effects,
    is_path_name,
    needs_care,
    safe_text,
)
from dragoman.upstream.rehearsal.words import MAX_TEXT, UserWords, split_name, stems

# Client-run kinds that each dialect has a call for. A patch cannot be harmless, and a tool search would find nothing.
_KINDS: dict[Dialect, frozenset[CallKind]] = {
    "chat": frozenset({"function", "custom"}),
    "responses": frozenset({"function", "custom", "local_shell", "shell", "computer"}),
    "messages": frozenset({"function", "bash", "text_editor", "computer", "memory"}),
}

# Descriptions of real agents have thousands of words and mention everything; the beginning says what a tool is for.
MAX_DESCRIPTION = 200
# A tool name that occurs literally in the text outweighs any number of shared words.
_NAMED = 1000
NAME_WORD = 10


def callable_tools(request: Request, dialect: Dialect) -> tuple[Tool, ...]:
    """The tools that may be called, in the order they were offered.

    Raises:
        RequestRefused: the tool choice demands a tool that was not offered.
    """
    choice = request.tool_choice or ToolChoice()
    kinds = _KINDS.get(dialect, frozenset())
    tools = tuple(tool for tool in request.tools if tool.kind in kinds)
    if choice.mode == "none":
        return ()
    if choice.mode in ("tool", "allowed"):
        wanted = choice.allowed if choice.tool is None else (choice.tool,)
        for ref in wanted:
            _expect(ref, request.tools)
        tools = tuple(tool for tool in tools if any(_is_meant(tool, ref) for ref in wanted))
    if is_forced(request) and not request.tools:
        raise RequestRefused(
            "tool_choice: expected tools to choose from, got none", param="tool_choice"
        )
    return tools


def is_forced(request: Request) -> bool:
    """Whether the tool choice demands a call."""
    choice = request.tool_choice or ToolChoice()
    return choice.mode in ("required", "tool") or (choice.mode == "allowed" and choice.required)


def rank(tools: Sequence[Tool], words: UserWords) -> list[tuple[Tool, int]]:
    """The tools with their scores, the best first; among equals, tools that change things come last."""
    said = words.text[:MAX_TEXT].lower()
    scored = [(tool, _score(tool, words, said)) for tool in tools]
    return sorted(scored, key=lambda pair: (-pair[1], has_effects(pair[0])))


def _score(tool: Tool, words: UserWords, said: str) -> int:
    if tool.name.lower() in said and len(split_name(tool.name)) > 1:
        return _NAMED
    name = frozenset(split_name(tool.name))
    if has_effects(tool):
        # A tool that changes things must be named in full: "create a plan" does not ask for a cron job.
        return NAME_WORD * len(name) if name and name <= words.mentioned else 0
    shared = len(stems(tool.name) & words.mentioned)
    described = stems(f"{(tool.description or '')[:MAX_DESCRIPTION]} {tool.namespace or ''}")
    return NAME_WORD * shared + len(described & words.mentioned)


def _is_meant(tool: Tool, ref: ToolRef) -> bool:
    # If there is a name, it decides: a tool choice may say `function` for a tool that was declared as another kind.
    if ref.namespace is not None and ref.namespace != tool.namespace:
        return False
    return tool.name == ref.name or (
        ref.kind == tool.kind and ref.kind not in ("function", "custom")
    )


def _expect(ref: ToolRef, tools: Sequence[Tool]) -> None:
    if any(_is_meant(tool, ref) for tool in tools):
        return
    offered = ", ".join(tool.name for tool in tools) or "none"
    raise RequestRefused(
        f"tool_choice: expected one of the tools offered ({offered}), got {ref.name!r}",
        param="tool_choice",
    )


# The size of large files and patches; several clients and proxies have limits between 64 and 256 KB.
LARGE = 300_000
_FILLER = 'rehearsal “été” 🎭 \\ "quoted" <b>&amp;</b>\t1e5\n'

_ANNOTATIONS = frozenset({"type", "description", "title"})

# Read-only actions of the vendors' own tools.
_ACTIONS: Mapping[tuple[Dialect, CallKind], object] = {
    ("messages", "bash"): {"command": COMMAND},
    ("messages", "text_editor"): {"command": "view", "path": "README.md"},
    ("messages", "memory"): {"command": "view", "path": "/memories"},
    ("messages", "computer"): {"action": "screenshot"},
    ("responses", "local_shell"): {"type": "exec", "command": COMMAND.split(), "env": {}},
    ("responses", "shell"): {"commands": [COMMAND], "timeout_ms": None, "max_output_length": None},
    ("responses", "computer"): {"type": "screenshot"},
}

# A patch for a file that cannot exist: every client refuses it.
_PATCH = f"*** Begin Patch\n*** Update File: {NOWHERE}\n@@\n-rehearsal\n+rehearsal\n*** End Patch"


def call_kind(tool: Tool, dialect: Dialect) -> CallKind:
    """The kind of a call of this tool. Messages has one form of call for every tool that a client runs."""
    return "function" if dialect == "messages" else tool.kind


def call_input(tool: Tool, words: UserWords, dialect: Dialect, variant: int = 0) -> str:
    """The input as source text: JSON, or free text for a custom tool."""
    if tool.kind == "custom":
        return _free_text(tool, words)
    action = _ACTIONS.get((dialect, tool.kind))
    value = arguments_for(tool, words, variant) if action is None else action
    return dumps(value).decode("utf-8")


def call_text(call: Call) -> str:
    """A call as models without a tool protocol write it, in the format of Hermes and Qwen."""
    arguments = call.input or "{}"
    if call.kind == "custom":
        arguments = dumps({"input": call.input}).decode("utf-8")
    name = dumps(flat_name(call.name, call.namespace)).decode("utf-8")
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def grow(tool: Tool, text: str) -> str:
    """The input extended to 300 KB: by a string that may be long, else by white space."""
    if tool.kind == "custom":
        return text + (" " * LARGE if needs_care(tool) else _filler())
    value = schema_in(loads(text))
    name = None if needs_care(tool) else _long_string(tool)
    if name is None:
        return f"{text[:-1]}{' ' * LARGE}}}"
    return dumps({**value, name: _filler()}).decode("utf-8")


def _free_text(tool: Tool, words: UserWords) -> str:
    names = set(split_name(tool.name))
    if "patch" in names:
        return _PATCH
    grammar = tool.grammar
    if grammar is not None and grammar.syntax == "regex":
        return example(grammar.definition) or PLACEHOLDER
    if needs_care(tool):
        # A string literal is code without effect in most languages, and a command in no shell.
        return f'"{PLACEHOLDER}"'
    return words.text.strip() or PLACEHOLDER


def _long_string(tool: Tool) -> str | None:
    """A parameter that takes a string of any length."""
    schema = read_schema(tool.schema)
    for name, member in schema_in(schema.get("properties")).items():
        keywords = schema_in(member)
        is_free = keywords.get("type") == "string" and not keywords.keys() - _ANNOTATIONS
        if is_free and not is_path_name(name) and safe_text(name, tool.name) is None:
            return name
    return None


def _filler() -> str:
    return _FILLER * (LARGE // len(_FILLER) + 1)
