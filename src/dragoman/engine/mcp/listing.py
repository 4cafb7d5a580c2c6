"""Which tools a server has: all pages of its list, bounded, each name once, less those that the settings leave out."""

import logging
from fnmatch import fnmatchcase

from mcp import ClientSession, types

from dragoman.engine.mcp.settings import McpServerSettings

__all__ = ("MAX_TOOLS", "is_wanted", "list_tools")

logger = logging.getLogger(__name__)

MAX_TOOLS = 1000
"""Of one server. No model chooses well among a hundred; more than this is a server that never stops."""
MAX_PAGES = 100


def is_wanted(settings: McpServerSettings, name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in settings.allow) and not any(
        fnmatchcase(name, glob) for glob in settings.deny
    )


async def list_tools(session: ClientSession, settings: McpServerSettings) -> tuple[types.Tool, ...]:
    """Raises:
    MCPError: the server refused, or is gone.
    ValueError: its list is not what the protocol says.
    """
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.tools is None:
        return ()
    found: dict[str, types.Tool] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            if tool.name and is_wanted(settings, tool.name):
                found.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(found.values())
        if cursor in cursors or len(found) >= MAX_TOOLS:
            break
        cursors.add(cursor)
    logger.warning("MCP server %s: its list of tools does not end; it is cut", settings.name)
    return tuple(found.values())[:MAX_TOOLS]
