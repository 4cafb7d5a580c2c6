"""Which tools to call: those the tool choice allows, the one the user's words mention first. Pure."""

from collections.abc import Sequence

from dragoman.errors import RequestRefused
from dragoman.model.parts import CallKind, Dialect
from dragoman.model.request import Request, Tool, ToolChoice, ToolRef
from dragoman.upstream.rehearsal.harmless import has_effects
from dragoman.upstream.rehearsal.words import MAX_TEXT, Words, split_name, stems

__all__ = ("callable_tools", "is_forced", "rank")

# Client-run kinds that each dialect has a call for. A patch cannot be harmless and a tool search finds nothing here.
_KINDS: dict[Dialect, frozenset[CallKind]] = {
    "chat": frozenset({"function", "custom"}),
    "responses": frozenset({"function", "custom", "local_shell", "shell", "computer"}),
    "messages": frozenset({"function", "bash", "text_editor", "computer", "memory"}),
}

# Descriptions of real agents run to thousands of words and mention everything; their beginning says what a tool is for.
MAX_DESCRIPTION = 200
# A name that stands in the text as it is outweighs any number of shared words.
_NAMED = 1000
_NAME_WORD = 10


def callable_tools(request: Request, dialect: Dialect) -> tuple[Tool, ...]:
    """The tools that may be called, in the order they were offered.

    Raises:
        RequestRefused: the tool choice demands a tool that is not there.
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


def rank(tools: Sequence[Tool], words: Words) -> list[tuple[Tool, int]]:
    """The tools with their scores, the best first; those that change things last among equals."""
    said = words.text[:MAX_TEXT].lower()
    scored = [(tool, _score(tool, words, said)) for tool in tools]
    return sorted(scored, key=lambda pair: (-pair[1], has_effects(pair[0])))


def _score(tool: Tool, words: Words, said: str) -> int:
    if tool.name.lower() in said and len(split_name(tool.name)) > 1:
        return _NAMED
    name = frozenset(split_name(tool.name))
    if has_effects(tool):
        # A tool that changes things must be named in full: "create a plan" is no request to create a cron job.
        return _NAME_WORD * len(name) if name and name <= words.mentioned else 0
    shared = len(stems(tool.name) & words.mentioned)
    described = stems(f"{(tool.description or '')[:MAX_DESCRIPTION]} {tool.namespace or ''}")
    return _NAME_WORD * shared + len(described & words.mentioned)


def _is_meant(tool: Tool, ref: ToolRef) -> bool:
    # Names decide where there are any: a choice may say `function` of a tool that was declared otherwise.
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
