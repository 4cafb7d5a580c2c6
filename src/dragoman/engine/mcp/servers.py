"""Many MCP servers as one source of tools.

The SDK is imported when the first server is started: a program without servers does not need it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dragoman.config.mcp import check_names, check_settings
from dragoman.config.settings import McpServerSettings
from dragoman.engine.mcp.host import Host
from dragoman.engine.tools import Tool
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from mcp import types

    from dragoman.engine.mcp.server import McpServer
    from dragoman.engine.mcp.tools import McpTool

__all__ = ("McpServers", "SelectedServers")

# Without a configured log, Python prints warnings on standard error. Our own messages replace the SDK's warnings.
_SDK_LOGGERS = ("mcp", "client")
# Errors in this log quote answers of authorization servers, which may contain tokens.
_LOGIN_LOGGER = "mcp.client.auth"


class McpServers:
    """`async with McpServers(settings) as servers:` starts all servers at once; leaving the context ends them.

    A server that does not start does not affect the others: `problems` names it, and it is started again later. Entering waits
    until each server is ready or has failed once, but no longer than `patience` seconds; None: as long as their own limits.

    host: lets a person log in, and asks them the servers' questions; None: no logins, and questions are declined.
    tokens: the folder where access tokens are stored; None: in memory.

    Raises:
        ConfigError: the settings cannot work; on entering: the MCP SDK is not installed.
    """

    def __init__(
        self,
        settings: Iterable[McpServerSettings],
        *,
        patience: float | None = None,
        host: Host | None = None,
        tokens: Path | None = None,
    ) -> None:
        self._settings = tuple(check_settings(each, f"mcp.{each.name}") for each in settings)
        check_names(self._settings)
        self._patience = patience
        self._host = host
        self._tokens = tokens
        self._servers: tuple[McpServer, ...] = ()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._made: dict[str, tuple[tuple[types.Tool, ...], tuple[McpTool, ...]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._settings)

    @property
    def problems(self) -> Mapping[str, str]:
        """The servers that are not available now, by name, and why, as words after the name."""
        return {each.name: each.problem for each in self._servers if each.problem is not None}

    def tools(self) -> Sequence[Tool]:
        """The tools that are available now. The namespace of a tool is its server's name, so no two have the same name."""
        return [tool for server in self._servers for tool in self._tools_of(server)]

    def selected(self, names: Collection[str]) -> "SelectedServers":
        """The tools of some of the servers.

        Raises:
            ConfigError: no server has one of the names.
        """
        for name in names:
            if name not in self.names:
                known = ", ".join(self.names) or "none"
                raise ConfigError(f"expected the name of an MCP server ({known}), got {name!r}")
        return SelectedServers(self, frozenset(names))

    async def __aenter__(self) -> Self:
        if not self._settings:
            return self
        server_type = _server_type()
        self._servers = tuple(
            server_type(each, host=self._host, tokens=self._tokens) for each in self._settings
        )
        self._group = await asyncio.TaskGroup().__aenter__()
        self._tasks = [
            self._group.create_task(server.run(), name=f"mcp {server.name}")
            for server in self._servers
        ]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    for server in self._servers:
                        await server.tried()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        for task in self._tasks:
            task.cancel()
        # An exception of the block is raised unchanged; the group would wrap it.
        await group.__aexit__(None, None, None)

    def _tools_of(self, server: "McpServer") -> tuple["McpTool", ...]:
        listing, made = self._made.get(server.name, ((), ()))
        if listing is not server.listing:
            from dragoman.engine.mcp.tools import McpTool  # noqa: PLC0415 -- see the module's docstring

            made = tuple(McpTool(server, each) for each in server.listing)
            self._made[server.name] = (server.listing, made)
        return made


class SelectedServers:
    """Some of the servers as a source of tools, valid as long as the servers they were selected from."""

    def __init__(self, servers: McpServers, names: Collection[str]) -> None:
        self._servers = servers
        self._names = names

    def tools(self) -> Sequence[Tool]:
        return [
            tool
            for tool in self._servers.tools()
            if tool.offer.declaration.namespace in self._names
        ]


def _server_type() -> "type[McpServer]":
    try:
        from dragoman.engine.mcp.server import McpServer  # noqa: PLC0415 -- see the module's docstring
    except ModuleNotFoundError as error:
        raise ConfigError(
            "MCP servers need the MCP SDK: install the extra `engine` (dragoman[engine])"
        ) from error
    for name in (*_SDK_LOGGERS, _LOGIN_LOGGER):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger(_LOGIN_LOGGER).propagate = False
    return McpServer
