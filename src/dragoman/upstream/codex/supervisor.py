"""Keeps one child running: starts it, watches it, and replaces it when it dies.

The first restart comes at once, because a crash may be an accident; later restarts wait twice as long each time. The
failures of a child that has lived long enough are forgotten.
"""

import asyncio
import logging
import time
from contextlib import suppress

from dragoman.errors import UpstreamError
from dragoman.upstream.codex.child import Child, Launch

logger = logging.getLogger(__name__)

# A client waits this long for a restart; if the restart takes longer, the client gets an error.
SHORT_REST = 2.0


class Supervisor:
    """Has no child until one is requested or `start` is called."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._child: Child | None = None
        self._problem: UpstreamError | None = None
        self._resting_until: float | None = None
        self._failures = 0  # in total
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def load(self) -> int:
        """How many turns run or wait there."""
        return len(self._child.turns) if self._child is not None else 0

    @property
    def problem(self) -> str | None:
        """Why there is no child, if there should be one."""
        return None if self._child is not None or not self._problem else self._problem.message

    def start(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def child(self) -> Child:
        """The child, as soon as it is ready; waits for a restart that is near.

        Raises:
            UpstreamError: the child cannot be started, or died and is not restarted soon.
        """
        self.start()
        failures = self._failures
        while True:
            if self._child is not None and not self._child.ended.is_set():
                return self._child
            until = self._resting_until
            if until is not None and (
                self._failures > failures or until - time.monotonic() > SHORT_REST
            ):
                raise _unavailable(self._problem)
            # The supervising task always sets the event: a start has its own timeout.
            changed = self._changed
            await changed.wait()

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    async def _keep(self) -> None:
        failures = 0
        try:
            while True:
                lived = await self._serve()
                failures = 1 if lived >= SETTLED_SECONDS else failures + 1
                self._failures += 1
                wait = wait_before(failures)
                why = "there is no app-server" if self._problem is None else self._problem.whole
                logger.warning("%s; started again in %g s", why, wait)
                if wait:
                    self._resting_until = time.monotonic() + wait
                    self._wake()
                    await asyncio.sleep(wait)
                    self._resting_until = None
        finally:
            child, self._child = self._child, None
            if child is not None:
                await child.close()

    async def _serve(self) -> float:
        """Run one child from its start to its end. Returns how long it has served."""
        try:
            child = await Child.start(self._launch)
        except UpstreamError as error:
            self._problem = error
            return 0.0
        began = time.monotonic()
        self._child = child
        self._wake()
        await child.ended.wait()
        self._child, self._problem = None, child.end
        await child.close()
        return time.monotonic() - began

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _unavailable(problem: UpstreamError | None) -> UpstreamError:
    error = UpstreamError("there is no app-server" if problem is None else problem.message)
    error.detail = "" if problem is None else problem.detail
    error.status = 503
    return error


FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
# A wrong configuration shows within a second; a child that has served for a minute works.
SETTLED_SECONDS = 60.0


def wait_before(failures: int) -> float:
    """The seconds to wait after this many failures in a row."""
    if failures <= 1:
        return 0.0
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 2, 60))
