"""The MCP servers of a configuration, kept running as long as the gateway."""

import asyncio
import logging
from collections.abc import Collection, Sequence

from dragoman.engine.mcp.servers import McpServers, SelectedServers
from dragoman.engine.mcp.settings import McpServerSettings
from dragoman.errors import ConfigError
from dragoman.server.hosted.memory import Memory

__all__ = ("Hosting",)

logger = logging.getLogger(__name__)


class Hosting:
    """Created outside a loop, started with the gateway, ended by `close`."""

    def __init__(self, settings: Sequence[McpServerSettings]) -> None:
        """
        Raises:
            ConfigError: the settings cannot work.
        """
        self.memory = Memory()
        self._servers = McpServers(settings)
        self.names = frozenset(self._servers.names)
        self._is_ready = asyncio.Event()
        self._is_ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the servers, all at once. Needs the running loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._live())

    async def source(self, names: Collection[str]) -> SelectedServers:
        """The tools of these servers, when each has been started or has failed to."""
        self.start()
        await self._is_ready.wait()
        return self._servers.selected(names)

    def troubles(self) -> dict[str, str]:
        """The servers that are not there now, with the reasons."""
        return dict(self._servers.problems)

    async def close(self) -> None:
        """End the servers."""
        self._is_ending.set()
        if self._task is not None:
            await self._task

    async def _live(self) -> None:
        # One task enters and leaves: what the servers run in belongs to it.
        try:
            async with self._servers:
                self._is_ready.set()
                await self._is_ending.wait()
        except ConfigError as error:
            logger.error("MCP servers cannot be started: %s", error.message)  # noqa: TRY400 - its words say it all
        except Exception:
            # The gateway goes on without them.
            logger.exception("the MCP servers failed")
        finally:
            self._is_ready.set()
