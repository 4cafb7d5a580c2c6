"""One turn of Codex, which clients see as one or several answers.

    RUNNING ──calls wait──► PAUSED ──results come──► RUNNING ──turn/completed──► OVER
       └────────────── interrupted, lost or failed ──────────────► OVER

The child delivers messages as they come; a `CodexReply` takes them as frames, until the turn ends or pauses. Messages
that come while the turn is paused belong to the next answer. No frame is given out before there is something that a client
sees, so that a turn that fails earlier may be tried elsewhere.

`PauseDetector` decides when the answer to a client ends although the turn does not:

    rawResponseItem/completed of a call ──► the call is expected
    item/tool/call ──────────────────────► the call waits for its result
    rawResponse/completed ───────────────► the model response is over: no further parallel call will come

The answer may end (`may_pause`) when calls wait, the response that made them is over, and all calls expected of it have
come. The order of the last two messages is not fixed. A model that writes programs makes calls outside any response;
those wait on their own. If the model's connection is cut after a call, Codex is silent until the call is answered: a
caller that has waited long enough may end the answer as soon as any call is `waiting`. The names that were offered decide which
calls are the client's, as in `dialects.codex`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from dragoman._json import Raw, dumps, is_strict
from dragoman.dialects.codex import ANSWER, PAUSE
from dragoman.errors import GatewayError, UpstreamError
from dragoman.upstream.base import UpstreamReply
from dragoman.upstream.codex.jsonrpc import Message, object_of, text_of
from dragoman.upstream.errors import gone_silent, no_answer

# The buffer for a client that reads slowly. All turns share Codex's pipe, so one slow client must not block it.
MAX_BUFFERED = 64 * 1024 * 1024

_FORWARDED = ("turn/", "item/", "rawResponse", "thread/tokenUsage/", "account/rateLimits/", "error")

TOOL_CALL = "item/tool/call"
_INJECTED_TURN = "auto-compact-"
_ECHOES = frozenset({"userMessage", "hookPrompt"})
_SPOKEN = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_STREAMED = frozenset({"agentMessage", "reasoning"})

# While the model writes a second parallel call with long arguments, Codex is silent. After this time the waiting calls
# are sent without it: the model's connection may be lost, and Codex would not report that before they are answered.
SETTLE_SECONDS = 10.0


class TurnChild(Protocol):
    """The methods of the child that a turn calls."""

    def write(self, line: bytes) -> None: ...

    def interrupt(self, thread_id: str, turn_id: str) -> None: ...

    def release(self, thread_id: str) -> None: ...


class CodexTurn:
    """A turn and its thread, which lives only as long as the turn.

    model, tools: sent at the beginning of an answer. on_pause: called when the turn begins to wait for results.
    is_serial: of several calls of one model response each answer gets one; Codex itself cannot forbid parallel calls.
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
        self.is_serial = False
        self._current: str | None = None  # the call of this answer, if answers get one each
        self._next: set[str] = set()  # the calls of later answers

    @property
    def turn_id(self) -> str:
        return self._turn_id or self.watch.turn_id

    @property
    def is_answer_over(self) -> bool:
        return self.is_paused or self.watch.is_over

    def requested(self) -> None:
        """Note that the child is being asked to start the turn, and will name it."""
        self._is_requested = True

    def begin(self, turn_id: str) -> None:
        """Note the child's id of the turn."""
        self._turn_id = turn_id
        if self.is_released:
            self._let_go()

    def announce(self, limits: bytes | None = None) -> None:
        """Begin an answer. `limits`: the account's limits that the child last reported."""
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
        """Handle a message of this turn."""
        if self.is_released:
            self._deliver_late(message)
        elif self.is_paused or (self.is_serial and self._belongs_later(message)):
            self._keep(message)
        else:
            self._take(message)
            if self.is_serial and self._is_settled_by(message):
                self._take_later()

    def answer(self, lines: list[bytes], limits: bytes | None) -> None:
        """Send the child the results that it waits for, and begin the next answer."""
        self.is_paused = False
        self.watch.answered()
        self.announce(limits)
        for line in lines:
            self._child.write(line)
        self._take_later()

    def take(self) -> bytes:
        """The frames that are ready to be sent; may be empty."""
        data = b"".join(self._ready)
        self._ready.clear()
        self._size = 0
        self.changed.clear()
        return data

    def pause(self) -> None:
        """End the answer here: the client runs the waiting calls."""
        self._ready += self._early
        self._early.clear()
        params = {"threadId": self.thread_id}
        self._ready.append(_frame(dumps({"method": PAUSE, "params": params})))
        self.is_paused = True
        self.changed.set()
        self._on_pause(self)

    def fail(self, error: GatewayError) -> None:
        """End the turn with a failure; its reader raises `error`."""
        if self.failure is None and not self.watch.is_over:
            self.failure = error
        self.changed.set()
        self.abandon()

    def abandon(self) -> None:
        """Stop the turn if it runs, and forget its thread: nobody reads its answer any more."""
        if not self.is_released:
            self.is_released = True
            self.is_paused = False
            self._on_end(self)
            if self.turn_id or self.watch.is_over or not self._is_requested:
                self._let_go()

    def _let_go(self) -> None:
        # The turn's id comes twice, in the answer to its start and in a notification: the second changes nothing.
        if self._is_let_go:
            return
        self._is_let_go = True
        if self.turn_id and not self.watch.is_over:
            self._child.interrupt(self.thread_id, self.turn_id)
        self._child.release(self.thread_id)

    def _deliver_late(self, message: Message) -> None:
        """Stop a turn that was abandoned before it had an id, as soon as the id comes."""
        was_nameless = not self.turn_id
        self.watch.note(message)
        if was_nameless and self.turn_id:
            self._let_go()

    def _take_later(self) -> None:
        """Handle the messages that waited for the call of this answer."""
        is_response_over, has_next = not self.watch.is_response_open, bool(self._next)
        self._current = None
        self._next.clear()
        later, self._later = self._later, []
        for message in later:
            self.deliver(message)
        if has_next and is_response_over and not self.is_released and not self.is_paused:
            # The end of the model response came before its next call was taken up.
            self.watch.is_response_open = False
            if self.watch.may_pause:
                self.pause()

    def _is_settled_by(self, message: Message) -> bool:
        """Whether Codex itself gave the call of this answer its output: its arguments are no JSON, for example."""
        call_id, is_opening = _call_of(message)
        is_open = self.is_paused or self.is_released or call_id in self.watch.waiting
        return bool(call_id) and call_id == self._current and not is_opening and not is_open

    def _belongs_later(self, message: Message) -> bool:
        """Whether a message is about another call than the one of this answer."""
        call_id, is_opening = _call_of(message)
        if not call_id or call_id == self._current:
            return False
        if is_opening and self._current is None:
            self._current = call_id
        elif is_opening:
            self._next.add(call_id)
        return call_id in self._next

    def _keep(self, message: Message) -> None:
        if message.method == "turn/completed":
            # The turn ended without the results, so a new thread will get them.
            self.watch.is_over = True
            self.abandon()
            return
        self._later.append(message)
        self._grow(len(message.line))

    def _take(self, message: Message) -> None:
        watch = self.watch
        watch.note(message)
        if watch.is_retrying:
            # Sent text cannot be withdrawn; if nothing was sent, Codex may begin the response again.
            if watch.is_text_open:
                why = "Codex lost the model's answer and starts it again"
                self.fail(UpstreamError(why, kind="truncated"))
            return
        if watch.dropped is not None:
            why = (
                f"Codex did not offer the tool {watch.dropped!r} to the model, and treated"
                " a call of it as a call of its own tool"
            )
            self.fail(UpstreamError(why, kind="protocol"))
            return
        if not message.method.startswith(_FORWARDED):
            return
        frame = _frame(message.line)
        self._grow(len(frame))
        if watch.is_over and watch.is_failed and not watch.is_heard:
            self._early.clear()  # send only the failure: nothing else was sent
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
            why = f"the client reads too slowly: more than {MAX_BUFFERED:,} bytes of the answer wait for it"
            self.fail(UpstreamError(why, kind="server"))


def _frame(line: bytes) -> bytes:
    return b"data: " + line.strip() + b"\n\n"


def _call_of(message: Message) -> tuple[str, bool]:
    """The id of the client's call that a message is about, or an empty text; and whether the message may be the call's first."""
    if message.method == TOOL_CALL:
        return text_of(message.params(), "callId"), True
    if message.method in ("item/started", "item/completed"):
        item = object_of(message.params(), "item")
        is_call = text_of(item, "type") == "dynamicToolCall"
        return text_of(item, "id") if is_call else "", message.method == "item/started"
    if message.method == "rawResponseItem/completed":
        item = object_of(message.params(), "item")
        kind = text_of(item, "type")
        if kind in ("function_call", "function_call_output"):
            return text_of(item, "call_id"), kind == "function_call"
    return "", False


class PauseDetector:
    """`waiting`: the calls that wait for a result: from the call's id to the id of the JSON-RPC request.

    is_heard: there is something for the client. is_over: the turn has ended; is_failed: it failed. dropped: a tool that
    Codex did not offer although it was asked to. is_retrying: Codex begins a model response again.
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
        self.is_response_open = False

    @property
    def may_pause(self) -> bool:
        return bool(self.waiting) and not self.is_response_open and not self._expected

    def answered(self) -> None:
        """Note that the waiting calls have been answered, and that the turn continues with another answer."""
        self.waiting = {}
        self.is_heard = self.is_text_open = False

    def note(self, message: Message) -> None:
        """Handle the next message of the turn."""
        self.is_retrying = False
        match message.method:
            case (
                "item/agentMessage/delta"
                | "item/reasoning/summaryTextDelta"
                | "item/reasoning/textDelta"
            ):
                self.is_heard = self.is_text_open = self.is_response_open = True
            case "rawResponseItem/completed":
                self._raw_item(message.params())
            case "rawResponse/completed":
                self.is_response_open = self.is_text_open = False
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
                # The call has an output although no client was asked: Codex has its own tool of that name.
                self.dropped = name
        elif kind in _SPOKEN and not (kind == "message" and text_of(item, "role") != "assistant"):
            self.is_heard = self.is_response_open = True
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
            self.is_text_open = self.is_response_open = True

    def _call(self, message: Message) -> None:
        call_id = text_of(message.params(), "callId")
        self.is_heard = True
        self.waiting[call_id] = message.id
        self.announced.add(call_id)
        self._expected.pop(call_id, None)


class CodexReply(UpstreamReply):
    """The reply of a turn. Closing it stops the turn, unless the turn waits for results or has ended."""

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
        is_settling = bool(turn.watch.waiting) and self._settle < patience
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
