"""Noise of Codex that looks like the result of a tool: the answer to its own question for resources nobody serves."""

from dragoman.model.parts import Result, Text

__all__ = ("is_phantom",)


def is_phantom(result: Result) -> bool:
    """Whether it only says that an MCP server is not known. Clients took it for a tool that had completed."""
    said = "".join(part.text for part in result.content if isinstance(part, Text)).lower()
    return "resources/list" in said and "unknown mcp server" in said
