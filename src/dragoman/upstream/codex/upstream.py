"""Codex as an upstream: a request starts a turn of an app-server, or continues a turn that waits for its results.

    a request ──► does it continue a paused turn? ─┬─yes──► its results are sent, and the same turn continues
                                                   └─no───► a new thread: its history is injected, and a turn started

Both ways lead to the same conversation with the model. A turn whose calls were sent to the client is paused for a
limited time; every other thread is forgotten when its answer ends.

A `ChildSupervisor` keeps one child running: it starts the child, watches it, and replaces it when it dies. The first restart comes at once,
because a crash may be an accident; later restarts wait twice as long each time. The failures of a child that has lived long enough are
forgotten.
"""

import asyncio
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf

from dragoman._json import Raw, as_object
from dragoman.config.secrets import hidden_from_clients
from dragoman.config.settings import UpstreamSettings
from dragoman.dialects.codex import CodexRequest, decode_codex_request
from dragoman.errors import UpstreamError
from dragoman.model.parts import Dialect
from dragoman.upstream.base import CheckResult, UpstreamRequest
from dragoman.upstream.codex import jsonrpc
from dragoman.upstream.codex.child import Child, Launch, limit_headers, thread_params, tool_names
from dragoman.upstream.codex.jsonrpc import Message, object_of, text_of
from dragoman.upstream.codex.paused_turns import (
    PausedTurn,
    PausedTurns,
    TurnContinuation,
    digests,
    settings_digest,
)
from dragoman.upstream.codex.turn import SETTLE_SECONDS, CodexReply, CodexTurn

logger = logging.getLogger(__name__)

# Keys of the gateway's own callers, which the child must not see.
_PRIVATE = frozenset({"DRAGOMAN_API_KEYS", "DRAGOMAN_UPSTREAM_KEY"})
_STREAM = "text/event-stream"


class CodexUpstream:
    """One or several children, and the paused turns.

    settle: see `turn.SETTLE_SECONDS`. on_limits: called with this upstream's name and the account's limits, as headers.
    """

    settle = SETTLE_SECONDS
    on_limits: Callable[[str, Mapping[str, str]], None] | None = None

    def __init__(
        self, name: str, settings: UpstreamSettings, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.secrets = hidden_from_clients(settings)
        self._settings = settings
        self._environ = os.environ if environ is None else environ
        self._folder: str | None = None
        self._supervisors: list[ChildSupervisor] = []
        self._held: PausedTurns[_Held] = PausedTurns(settings.held_ttl, settings.held_max)
        self._sweeping: asyncio.TimerHandle | None = None

    def dialect_for(self, door: Dialect) -> Dialect:  # noqa: ARG002 - Codex speaks only its own
        return "codex"

    def url_of(self, dialect: Dialect, operation: str) -> str:  # noqa: ARG002 -- it runs here
        return ""

    @property
    def problem(self) -> str | None:
        """Why no child can answer: each has failed. None if one can."""
        problems = [supervisor.problem for supervisor in self._supervisors]
        return problems[0] if problems and None not in problems else None

    def start(self) -> None:
        """Start the children before the first request."""
        for supervisor in self._all_supervisors():
            supervisor.start()

    async def send(self, request: UpstreamRequest) -> CodexReply:
        asked = decode_codex_request(request.body)
        found = self._held.take(asked)
        if found is not None:
            held, more = found
            if await self._continue(held, more, asked):
                return self._reply(held.child, held.turn)
        return await self._begin(asked)

    async def check(self) -> CheckResult:
        """Start a child, which shows whether the program exists and speaks the protocol."""
        try:
            child = await self._all_supervisors()[0].child()
        except UpstreamError as error:
            return CheckResult(ok=False, status=None, detail=error.whole)
        return CheckResult(ok=True, status=None, detail=f"started; {child.agent or 'it answers'}")

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for held in self._held.clear():
            held.turn.abandon()
        supervisors, self._supervisors = self._supervisors, []
        async with asyncio.TaskGroup() as group:
            for supervisor in supervisors:
                group.create_task(supervisor.close())
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None

    # --- turns -------------------------------------------------------------------------------------------------------

    async def _begin(self, asked: CodexRequest) -> CodexReply:
        supervisor = min(self._all_supervisors(), key=lambda each: each.load)
        child = await supervisor.child()
        held = _Held(child, asked)
        thread_id, model = await self._open_thread(child, asked.thread)
        turn = held.turn = CodexTurn(
            child,
            thread_id,
            model=model,
            tools=tool_names(asked.thread),
            on_pause=lambda _: self._hold(held),
            on_end=lambda _: self._held.drop(held),
        )
        turn.is_serial = asked.serial
        child.turns[thread_id] = turn
        turn.announce(child.limits)
        is_running = False
        try:
            if asked.items:
                injected = {"threadId": thread_id, "items": asked.items}
                await child.request("thread/inject_items", injected)
            turn.requested()
            params: dict[str, object] = {"threadId": thread_id, "input": []}
            params |= as_object(bytes(asked.turn))
            started = await child.request(
                "turn/start", params, lambda late: turn.begin(_turn_id(late.result()))
            )
            turn.begin(_turn_id(started))
            is_running = True
        finally:
            if not is_running:
                turn.abandon()
        return self._reply(child, turn)

    async def _open_thread(self, child: Child, thread: Raw) -> tuple[str, str]:
        """Start a new thread; return its id and its model."""

        def discard(late: Message) -> None:
            child.release(text_of(object_of(late.result(), "thread"), "id"))

        params = thread_params(thread, child.overrides, self._empty_folder())
        result = await child.request("thread/start", params, discard)
        thread_id = text_of(object_of(result, "thread"), "id")
        if not thread_id:
            raise UpstreamError(f"upstream {self.name!r}: expected a thread's id, got none")
        return thread_id, text_of(result, "model")

    async def _continue(self, held: "_Held", more: TurnContinuation, asked: CodexRequest) -> bool:
        """Answer the calls of a paused turn. False if the turn can no longer continue."""
        turn, child = held.turn, held.child
        waiting = turn.watch.waiting
        is_sent = False
        try:
            if more.steer:
                params = {
                    "threadId": turn.thread_id,
                    "expectedTurnId": turn.turn_id,
                    "input": more.steer,
                }
                await child.request("turn/steer", params)
            if turn.is_paused and not child.ended.is_set():
                held.remember(asked)
                lines = [
                    jsonrpc.answer(number, more.results[call_id])
                    for call_id, number in waiting.items()
                ]
                turn.answer(lines, child.limits)
                is_sent = True
        except UpstreamError:
            return False
        finally:
            if not is_sent:
                turn.abandon()
        return is_sent

    def _hold(self, held: "_Held") -> None:
        now = time.monotonic()
        waiting = PausedTurn(
            held,
            frozenset(held.turn.watch.waiting),
            held.settings,
            held.said,
            now,
        )
        for gone in self._held.hold(waiting):
            gone.turn.abandon()
        if self._sweeping is None:
            self._sweep_later()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        # At most a tenth late; holding a turn a little longer costs nothing.
        self._sweeping = loop.call_later(max(self._settings.held_ttl / 10, 0.01), self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        for held in self._held.expired(time.monotonic()):
            held.turn.abandon()
        if len(self._held):
            self._sweep_later()

    def _reply(self, child: Child, turn: CodexTurn) -> CodexReply:
        return CodexReply(
            self.name,
            turn,
            {"content-type": _STREAM, **limit_headers(child.limits)},
            first_timeout=self._settings.first_byte_timeout,
            idle_timeout=self._settings.idle_timeout,
            settle=self.settle,
        )

    # --- children ----------------------------------------------------------------------------------------------------

    def _all_supervisors(self) -> "list[ChildSupervisor]":
        if not self._supervisors:
            launch = Launch(
                name=self.name,
                command=self._settings.command,
                environment=child_environment(self._settings, self._environ),
                folder=self._empty_folder,
                patience=self._settings.connect_timeout,
                limits_interval=self._settings.limits_interval,
                on_limits=self._note_limits,
            )
            self._supervisors = [ChildSupervisor(launch) for _ in range(self._settings.children)]
        return self._supervisors

    def _note_limits(self, headers: Mapping[str, str]) -> None:
        if self.on_limits is not None:
            self.on_limits(self.name, headers)

    def _empty_folder(self) -> str:
        # Programs that clean up temporary files may have removed it.
        if self._folder is None or not os.path.isdir(self._folder):  # noqa: PTH112 - a string is wanted
            self._folder = tempfile.mkdtemp(prefix="dragoman-codex-")
        return self._folder


class _Held:
    """A turn, its child, and digests of its request, because the request itself may be large."""

    turn: CodexTurn
    settings: bytes
    said: tuple[bytes, ...]

    def __init__(self, child: Child, asked: CodexRequest) -> None:
        self.child = child
        self.remember(asked)

    def remember(self, asked: CodexRequest) -> None:
        self.settings, self.said = settings_digest(asked), digests(asked.items)


def child_environment(settings: UpstreamSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: this process's without private keys, with the operator's additions."""
    found = {name: value for name, value in environ.items() if name not in _PRIVATE}
    # Its standard error goes to a log, not to a terminal.
    found["NO_COLOR"] = "1"
    if settings.codex_home is not None:
        found["CODEX_HOME"] = os.path.expanduser(settings.codex_home)  # noqa: PTH111 - a string is wanted
    return {**found, **settings.env}


def _turn_id(result: Mapping[str, Raw]) -> str:
    return text_of(object_of(result, "turn"), "id")


# --- keeping a child running ------------------------------------------------------------------------------------------

# A client waits this long for a restart; if the restart takes longer, the client gets an error.
SHORT_REST = 2.0
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
# A wrong configuration shows within a second; a child that has served for a minute works.
SETTLED_SECONDS = 60.0


class ChildSupervisor:
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
            self._resting_until = inf  # those that wait for a child get an error
            self._wake()

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
    if problem is None:
        return UpstreamError("there is no app-server", status=503)
    return UpstreamError(problem.message, status=503, detail=problem.detail)


def wait_before(failures: int) -> float:
    """The seconds to wait after this many failures in a row."""
    if failures <= 1:
        return 0.0
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 2, 60))
