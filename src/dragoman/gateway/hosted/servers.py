"""The MCP servers of a configuration, which run as long as the gateway.

No person can log in here: a server that wants a login gets a token by client credentials, or the token that `dragoman run` of
the same user has obtained. Questions of a server to a person are declined.
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
from dragoman.gateway.hosted.history import AnswerMemory

logger = logging.getLogger(__name__)


def tokens_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the access tokens for MCP servers, in the user's state directory."""
    return state_folder(environ) / "mcp"


class HostedServers:
    """The running MCP servers. Created outside an event loop, started with the gateway, ended by `close`."""

    def __init__(self, settings: Sequence[McpServerSettings]) -> None:
        """
        Raises:
            ConfigError: the settings are invalid.
        """
        self.memory = AnswerMemory()
        self._servers = McpServers(settings, tokens=tokens_folder(os.environ))
        self.names = frozenset(self._servers.names)
        self._is_ready = asyncio.Event()
        self._is_ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start all servers concurrently. Requires a running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._live())

    async def source(self, names: Collection[str]) -> SelectedServers:
        """The tools of these servers, once every server has started or has failed to start."""
        self.start()
        await self._is_ready.wait()
        return self._servers.selected(names)

    async def close(self) -> None:
        """End the servers."""
        self._is_ending.set()
        if self._task is not None:
            if not self._is_ready.is_set():  # a server may take half a minute to start
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _live(self) -> None:
        # The same task must enter and leave the context: the servers' task group belongs to that task.
        try:
            async with self._servers:
                self._is_ready.set()
                await self._is_ending.wait()
        except ConfigError as error:
            logger.error("MCP servers cannot be started: %s", error.message)  # noqa: TRY400 - the message says why
        except Exception:
            # The gateway continues without hosted tools.
            logger.exception("the MCP servers failed")
        finally:
            self._is_ready.set()
