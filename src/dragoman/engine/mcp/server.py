"""One MCP server, kept alive: started, and started again when it ends.

starting ─► ready ─► ended ─┬─► starting, after a delay that grows
    └───── failed ──────────┘   down: after so many failures in a row; tried again now and then, or when it is called
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from mcp import types

from dragoman.engine.mcp.host import Host
from dragoman.engine.mcp.life import Life, SessionForgotten, is_cancelled
from dragoman.engine.mcp.oauth import Authorization, authorization_for
from dragoman.engine.mcp.settings import McpServerSettings
from dragoman.errors import ToolError

__all__ = ("McpServer",)

logger = logging.getLogger(__name__)


class McpServer:
    """`run` in a task of its own; the rest from any task of the same loop.

    listing: the tools it has; those of a server that is being started again are still there, of one that is down none.
    problem: why it is not there, as words that go on after its name; None when it is.
    host: who answers what it asks of a person; None: nobody. tokens: the folder of access tokens; None: in memory.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        *,
        host: Host | None = None,
        tokens: Path | None = None,
    ) -> None:
        self.settings = settings
        self.host = host
        self._tokens = tokens
        self._authorization: Authorization | None = None
        self.listing: tuple[types.Tool, ...] = ()
        self.problem: str | None = "is being started"
        # the same for a model, which need not read a server's last words
        self._reason = self.problem
        self._logged: str | None = None
        self._life: Life | None = None
        self._failures = 0
        self._is_over = False
        self._tried = asyncio.Event()
        self._turned = asyncio.Event()
        self._wanted = asyncio.Event()

    @property
    def name(self) -> str:
        return self.settings.name

    async def tried(self) -> None:
        """Until it is ready for the first time, or its first start has failed."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep it alive, until this is cancelled."""
        try:
            await self._keep_alive()
        finally:
            self._is_over = True
            self._settle("was stopped", "")

    async def _keep_alive(self) -> None:
        restart = self.settings.restart
        clock = asyncio.get_running_loop().time
        while True:
            self._wanted.clear()
            began = clock()
            life = Life(self.settings, self._list, host=self.host, authorize=self._authorize)
            self._life = life
            await life.live()
            if is_cancelled():
                raise asyncio.CancelledError
            self._failures = 1 if clock() - began >= restart.stable_after else self._failures + 1
            self._settle(life.ending.reason, life.ending.detail)
            # Started again in vain it says the same: once is enough, until it was there.
            level = logging.DEBUG if self.problem == self._logged else logging.WARNING
            self._logged = self.problem
            logger.log(level, "MCP server %s %s", self.name, self.problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._delay()):
                    await self._wanted.wait()

    def _authorize(self) -> Authorization | None:
        """One for all lives: tokens outlast a connection.

        Raises:
            ConfigError: a variable that the settings name is not set.
        """
        if self._authorization is None:
            self._authorization = authorization_for(
                self.settings, folder=self._tokens, host=self.host, environ=os.environ
            )
        return self._authorization

    async def call(
        self, name: str, arguments: Mapping[str, object], report: Callable[[str], None]
    ) -> types.CallToolResult:
        """Run one of its tools; when it is being started, wait for that, no longer than a start may take.

        Raises:
            ToolError: the server is not there, ended, refused, or answered nonsense.
        """
        life = await self._ready(name)
        try:
            return await life.call(name, arguments, report)
        except SessionForgotten:
            life = await self._ready(name)
            return await life.call(name, arguments, report)

    async def _ready(self, name: str) -> Life:
        seconds = self.settings.start_timeout
        failures = self._failures
        try:
            async with asyncio.timeout(seconds):
                while self._life is None or not self._life.is_ready:
                    if self._is_over or (self._is_down and self._failures > failures):
                        break  # the latter was tried once more, for this call
                    if self._is_down:
                        self._wanted.set()
                    await self._turned.wait()
                else:
                    return self._life
        except TimeoutError:
            pass
        raise ToolError(
            f"the MCP server {self.name!r} is not there: it {self._reason}; its tool {name!r} was not run"
        )

    @property
    def _is_down(self) -> bool:
        return self._failures >= self.settings.restart.attempts

    def _delay(self) -> float:
        restart = self.settings.restart
        if self._is_down:
            return restart.again_after
        return min(restart.first_delay * 2.0 ** (self._failures - 1), restart.max_delay)

    def _list(self, listing: tuple[types.Tool, ...]) -> None:
        self.listing = listing
        self.problem = self._logged = None
        self._turn()

    def _settle(self, reason: str, detail: str) -> None:
        self._reason = reason
        self.problem = f"{reason} ({detail})" if detail else reason
        if self._is_down or self._is_over:
            self.listing = ()
        self._turn()

    def _turn(self) -> None:
        """Wake whoever waits for a change."""
        self._tried.set()
        self._turned.set()
        self._turned = asyncio.Event()
