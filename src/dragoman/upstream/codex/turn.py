"""One turn of Codex, which clients see as one or several answers.

    RUNNING ──calls wait──► PAUSED ──results come──► RUNNING ──turn/completed──► OVER
       └────────────── interrupted, lost or failed ──────────────► OVER

The child puts messages in as they come; a `CodexReply` takes them out as frames, until the turn ends or pauses. What comes
while the turn is paused belongs to the next answer. Nothing is given out until there is something that a client sees, so
that a turn that fails before may be tried elsewhere.

`PauseDetector` says when the answer to a client ends although the turn does not:

    rawResponseItem/completed of a call ──► the call is expected
    item/tool/call ──────────────────────► it waits for its result
    rawResponse/completed ───────────────► the model response is over: no further parallel call will come

The answer may end (`may_pause`) when calls wait, the response that made them is over, and all calls expected of it have
come. The order of the last two messages is not fixed. A model that writes programs makes calls outside any response;
those wait by themselves. If the model's connection is cut after a call, Codex says nothing until the call is answered: a
caller that has waited long enough may end the answer with `is_waiting` alone. Which calls are the client's is decided by
the names that were offered, as `dialects.codex` does.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from dragoman._json import Raw, dumps, is_strict
from dragoman.core.failures import error_info
from dragoman.dialects.codex import ANSWER, PAUSE
from dragoman.errors import GatewayError, UpstreamError
from dragoman.upstream.base import Reply
from dragoman.upstream.codex.jsonrpc import Message, object_of, text_of
from dragoman.upstream.errors import gone_silent, no_answer

# What may wait for a client that reads slowly. Codex's pipe is shared: it cannot be made to wait for one of them.
MAX_BUFFERED = 64 * 1024 * 1024

_FORWARDED = ("turn/", "item/", "rawResponse", "thread/tokenUsage/", "account/rateLimits/", "error")

TOOL_CALL = "item/tool/call"
_INJECTED_TURN = "auto-compact-"
_ECHOES = frozenset({"userMessage", "hookPrompt"})
_SPOKEN = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_STREAMED = frozenset({"agentMessage", "reasoning"})

# A second parallel call with long arguments is silent for as long as the model writes it. Longer than this, the calls
# there are go out by themselves: the model's connection may be gone, and Codex would not say so before they are answered.
SETTLE_SECONDS = 10.0


class TurnChild(Protocol):
    """What a turn needs of its child."""

    def write(self, line: bytes) -> None: ...

    def interrupt(self, thread_id: str, turn_id: str) -> None: ...

    def release(self, thread_id: str) -> None: ...


class CodexTurn:
    """A turn and its thread, which lives only as long.

    model, tools: what the answer is announced with. on_pause: the turn waits for results from now on.
    """

    def __init__(
        self,
        child: TurnChild,
        thread_id: str,
        *,
        model: str,
        tools: list[str],
        on_pause: Callable[["CodexTurn"], None],
        on_end: Callable[["CodexTurn"], None],
    ) -> None:
        self.thread_id = thread_id
        self.watch = PauseDetector(frozenset(tools))
        self.is_paused = False
        self.is_released = False
        self.changed = asyncio.Event()
        self.failure: GatewayError | None = None
        self._child = child
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
            "calls": sorted(self.watch.announced),
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
            self._child.write(line)
        later, self._later = self._later, []
        for message in later:
            self.deliver(message)

    def take(self) -> bytes:
        """What has become ready to be sent, or nothing."""
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
        """The turn cannot continue; its reader raises `error`."""
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
            self._child.interrupt(self.thread_id, self.turn_id)
        self._child.release(self.thread_id)

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
            # What was sent cannot be withdrawn; what was not may be begun again.
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
        if not message.method.startswith(_FORWARDED):
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


class PauseDetector:
    """`waiting` are the calls that wait for a result: by their id, the id of the request that asks for it.

    is_heard: the client has something to hear. is_over: the turn has ended, and `is_failed` how. dropped: a tool that
    Codex did not offer although it was asked to. is_retrying: Codex begins a model response anew.
    """

    def __init__(self, offered: frozenset[str]) -> None:
        self.waiting: dict[str, bytes] = {}
        self.announced: set[str] = set()
        self.turn_id = ""
        self.is_heard = False
        self.is_over = False
        self.is_failed = False
        self.is_retrying = False
        self.is_text_open = False
        self.dropped: str | None = None
        self._offered = offered
        self._expected: dict[str, str] = {}
        self._is_response_open = False

    @property
    def may_pause(self) -> bool:
        return bool(self.waiting) and not self._is_response_open and not self._expected

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting)

    def answered(self) -> None:
        """The calls that wait have been answered, and the turn goes on with another answer."""
        self.waiting = {}
        self.is_heard = self.is_text_open = False

    def note(self, message: Message) -> None:
        """Take the next message of the turn."""
        self.is_retrying = False
        match message.method:
            case (
                "item/agentMessage/delta"
                | "item/reasoning/summaryTextDelta"
                | "item/reasoning/textDelta"
            ):
                self.is_heard = self.is_text_open = self._is_response_open = True
            case "rawResponseItem/completed":
                self._raw_item(message.params())
            case "rawResponse/completed":
                self._is_response_open = self.is_text_open = False
            case "item/started" | "item/completed":
                self._item(message.method, object_of(message.params(), "item"))
            case "item/tool/call":
                self._call(message)
            case "error":
                self.is_retrying = bytes(message.params().get("willRetry", b"")) == b"true"
            case "turn/started":
                self.turn_id = text_of(object_of(message.params(), "turn"), "id")
            case "turn/completed":
                self.is_over = True
                self.is_failed = text_of(object_of(message.params(), "turn"), "status") == "failed"
            case _:
                pass

    def _raw_item(self, params: dict[str, Raw]) -> None:
        if text_of(params, "turnId").startswith(_INJECTED_TURN):
            return
        item = object_of(params, "item")
        kind = text_of(item, "type")
        if kind == "function_call_output":
            name = self._expected.pop(text_of(item, "call_id"), None)
            if name is not None:
                # Answered, and nobody was asked: Codex has a tool of that name itself.
                self.dropped = name
        elif kind in _SPOKEN and not (kind == "message" and text_of(item, "role") != "assistant"):
            self.is_heard = self._is_response_open = True
            if kind == "function_call":
                self._expect(item)

    def _expect(self, item: dict[str, Raw]) -> None:
        name, call_id = text_of(item, "name"), text_of(item, "call_id")
        is_plain = text_of(item, "namespace") in ("", "functions")
        if is_plain and name in self._offered and is_strict(text_of(item, "arguments")):
            if call_id not in self.waiting:
                self._expected[call_id] = name
            self.announced.add(call_id)

    def _item(self, method: str, item: dict[str, Raw]) -> None:
        kind = text_of(item, "type")
        if kind in _ECHOES:
            return
        if kind == "dynamicToolCall" and method == "item/completed":
            self.waiting.pop(text_of(item, "id"), None)
            self._expected.pop(text_of(item, "id"), None)
            return
        self.is_heard = True
        if kind in _STREAMED:
            self.is_text_open = self._is_response_open = True

    def _call(self, message: Message) -> None:
        call_id = text_of(message.params(), "callId")
        self.is_heard = True
        self.waiting[call_id] = message.id
        self.announced.add(call_id)
        self._expected.pop(call_id, None)


class CodexReply(Reply):
    """The reply of a turn. Closing it stops the turn, unless it waits for results or is over."""

    status = 200

    def __init__(
        self,
        name: str,
        turn: CodexTurn,
        headers: Mapping[str, str],
        *,
        first_timeout: float,
        idle_timeout: float,
        settle: float,
    ) -> None:
        self.headers = headers
        self._name = name
        self._turn: CodexTurn | None = turn
        self._first_timeout = first_timeout
        self._idle_timeout = idle_timeout
        self._settle = settle
        self._has_read = False

    async def read(self) -> bytes:
        while (turn := self._turn) is not None:
            data = turn.take()
            if data:
                self._has_read = True
                return data
            if turn.failure is not None:
                self._turn = None
                raise turn.failure
            if turn.is_answer_over:
                self.close()
                break
            await self._wait(turn)
        return b""

    async def _wait(self, turn: CodexTurn) -> None:
        patience = self._idle_timeout if self._has_read else self._first_timeout
        is_settling = turn.watch.is_waiting and self._settle < patience
        try:
            async with asyncio.timeout(self._settle if is_settling else patience):
                await turn.changed.wait()
        except TimeoutError:
            if is_settling:
                turn.pause()
                return
            make = gone_silent if self._has_read else no_answer
            turn.fail(make(self._name, patience))

    def close(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.is_paused:
            turn.abandon()
