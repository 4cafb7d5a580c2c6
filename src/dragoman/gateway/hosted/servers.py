"""The MCP servers of a configuration, kept running as long as the gateway.

There is no person here: a server that wants a login gets a token by client credentials, or the one that `dragoman run` of the
same user has obtained; what it asks of a person is declined.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from dragoman.config.environment import state_folder
from dragoman.config.settings import McpServerSettings
from dragoman.engine.mcp.servers import McpServers, SelectedServers
from dragoman.errors import ConfigError
from dragoman.gateway.hosted.memory import Memory

logger = logging.getLogger(__name__)


def tokens_folder(environ: Mapping[str, str]) -> Path:
    """Where the access tokens for MCP servers are kept, in the user's state directory."""
    return state_folder(environ) / "mcp"


class HostedServers:
    """Created outside a loop, started with the gateway, ended by `close`."""

    def __init__(self, settings: Sequence[McpServerSettings]) -> None:
        """
        Raises:
            ConfigError: the settings cannot work.
        """
        self.memory = Memory()
        self._servers = McpServers(settings, tokens=tokens_folder(os.environ))
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
