"""One turn of Codex, told to clients as one or several answers.

    RUNNING ──calls wait──► PAUSED ──results come──► RUNNING ──turn/completed──► OVER
       └────────────── interrupted, lost or failed ──────────────► OVER

The child puts messages in as they come; whoever tells the answer takes them out. What comes while the turn is paused
belongs to the next answer. Nothing is given out until there is something for the client to hear, so that a turn that
fails before may be tried elsewhere.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from dragoman._json import dumps
from dragoman.core.failures import error_info
from dragoman.dialects.codex import ANSWER, PAUSE
from dragoman.errors import GatewayError, UpstreamError
from dragoman.upstream.codex.jsonrpc import Message
from dragoman.upstream.codex.watch import Watch

__all__ = ("MAX_BUFFERED", "Line", "Turn")

# What may wait for a client that reads slowly. Codex's pipe is shared: it cannot be made to wait for one of them.
MAX_BUFFERED = 64 * 1024 * 1024

_TOLD = ("turn/", "item/", "rawResponse", "thread/tokenUsage/", "account/rateLimits/", "error")


class Line(Protocol):
    """What a turn needs of its child."""

    def write(self, line: bytes) -> None: ...

    def interrupt(self, thread_id: str, turn_id: str) -> None: ...

    def release(self, thread_id: str) -> None: ...


class Turn:
    """A turn and its thread, which lives only as long.

    model, tools: what the answer is announced with. on_pause: the turn waits for results from now on.
    """

    def __init__(
        self,
        line: Line,
        thread_id: str,
        *,
        model: str,
        tools: list[str],
        on_pause: Callable[["Turn"], None],
        on_end: Callable[["Turn"], None],
    ) -> None:
        self.thread_id = thread_id
        self.watch = Watch(frozenset(tools))
        self.is_paused = False
        self.is_released = False
        self.changed = asyncio.Event()
        self.failure: GatewayError | None = None
        self._line = line
        self._model = model
        self._tools = tools
        self._on_pause = on_pause
        self._on_end = on_end
        self._turn_id = ""
        self._is_requested = False
        self._is_let_go = False
        self._answers = 0
        self._early: list[bytes] = []
        self._ready: list[bytes] = []
        self._later: list[Message] = []
        self._size = 0

    @property
    def turn_id(self) -> str:
        return self._turn_id or self.watch.turn_id

    @property
    def is_answer_over(self) -> bool:
        return self.is_paused or self.watch.is_over

    def requested(self) -> None:
        """The child is being asked to start the turn: it will have a name."""
        self._is_requested = True

    def begin(self, turn_id: str) -> None:
        """The child has named the turn."""
        self._turn_id = turn_id
        if self.is_released:
            self._let_go()

    def announce(self, limits: bytes | None = None) -> None:
        """Begin an answer. `limits`: what the child last said of the account's."""
        self._answers += 1
        number = f".{self._answers}" if self._answers > 1 else ""
        params = {
            "threadId": self.thread_id,
            "answerId": f"{self.thread_id}{number}",
            "model": self._model,
            "tools": self._tools,
            "calls": sorted(self.watch.told),
        }
        self._early.append(_frame(dumps({"method": ANSWER, "params": params})))
        if limits is not None:
            self._early.append(_frame(limits))

    def deliver(self, message: Message) -> None:
        """A message of this turn has come."""
        if self.is_released:
            self._deliver_late(message)
        elif self.is_paused:
            self._keep(message)
        else:
            self._take(message)

    def answer(self, lines: list[bytes], limits: bytes | None) -> None:
        """Give the child the results it waits for, and begin the next answer."""
        self.is_paused = False
        self.watch.answered()
        self.announce(limits)
        for line in lines:
            self._line.write(line)
        later, self._later = self._later, []
        for message in later:
            self.deliver(message)

    def take(self) -> bytes:
        """What has become ready to be told, or nothing."""
        data = b"".join(self._ready)
        self._ready.clear()
        self._size = 0
        self.changed.clear()
        return data

    def pause(self) -> None:
        """End the answer here: the calls that wait are the client's next."""
        self._ready += self._early
        self._early.clear()
        params = {"threadId": self.thread_id}
        self._ready.append(_frame(dumps({"method": PAUSE, "params": params})))
        self.is_paused = True
        self.changed.set()
        self._on_pause(self)

    def fail(self, error: GatewayError) -> None:
        """The turn cannot go on; whoever tells it raises `error`."""
        if self.failure is None and not self.watch.is_over:
            self.failure = error
        self.changed.set()
        self.abandon()

    def abandon(self) -> None:
        """Nobody listens any more: stop the turn if it runs, and forget its thread."""
        if not self.is_released:
            self.is_released = True
            self.is_paused = False
            self._on_end(self)
            if self.turn_id or self.watch.is_over or not self._is_requested:
                self._let_go()

    def _let_go(self) -> None:
        # The name of a turn comes twice, in the answer to its start and by itself: the second changes nothing.
        if self._is_let_go:
            return
        self._is_let_go = True
        if self.turn_id and not self.watch.is_over:
            self._line.interrupt(self.thread_id, self.turn_id)
        self._line.release(self.thread_id)

    def _deliver_late(self, message: Message) -> None:
        """A turn that was abandoned before it had a name is stopped when it gets one."""
        was_nameless = not self.turn_id
        self.watch.note(message)
        if was_nameless and self.turn_id:
            self._let_go()

    def _keep(self, message: Message) -> None:
        if message.method == "turn/completed":
            # It ended without the results, which are for a fresh thread then.
            self.watch.is_over = True
            self.abandon()
            return
        self._later.append(message)
        self._grow(len(message.line))

    def _take(self, message: Message) -> None:
        watch = self.watch
        watch.note(message)
        if watch.is_retrying:
            # What was told cannot be withdrawn; what was not may well be begun anew.
            if watch.is_text_open:
                self.fail(_of_kind("truncated", "Codex lost the model's answer and begins it anew"))
            return
        if watch.dropped is not None:
            self.fail(
                _of_kind(
                    "protocol",
                    f"Codex did not offer the tool {watch.dropped!r} to the model, and took the call of it"
                    " for one of its own",
                )
            )
            return
        if not message.method.startswith(_TOLD):
            return
        frame = _frame(message.line)
        self._grow(len(frame))
        if watch.is_over and watch.is_failed and not watch.is_heard:
            self._early.clear()  # the failure alone: nothing has begun
        elif not watch.is_heard and not watch.is_over:
            self._early.append(frame)
            return
        self._ready += self._early
        self._early.clear()
        self._ready.append(frame)
        self.changed.set()
        if watch.may_pause and not watch.is_over:
            self.pause()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_BUFFERED:
            self.fail(
                _of_kind(
                    "server",
                    f"the client reads too slowly: more than {MAX_BUFFERED:,} bytes of the answer wait for it",
                )
            )


def _frame(line: bytes) -> bytes:
    return b"data: " + line.strip() + b"\n\n"


def _of_kind(kind: str, message: str) -> UpstreamError:
    error = UpstreamError(message)
    error.kind = kind
    error.status = error_info(error).status or error.status
    return error
