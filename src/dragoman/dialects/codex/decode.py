"""Reads the messages of a `codex app-server` child: one turn of one thread, as the events of one answer.

The child serves many threads over one pipe; a reader follows the first turn that sends a message and ignores all others.
JSON-RPC itself (ids, answers, approvals) belongs to the caller, who can see in `Progress("item/tool/call")` which request
asks for which call.

A turn may hold many model responses with the client's tool results between them. A gateway that must end its answer at
the calls adds two messages to each answer's stream: `ANSWER` before the first (the answer's id, the offered tools, the
calls of an earlier answer) and `PAUSE` at the end.

`rawResponseItem/completed` repeats the conversation as the model sees it; the reader takes from it only what no other
message has: exact arguments, encrypted reasoning, and the actions of Codex's own tools.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, as_object
from dragoman.core.fields import (
    Fields,
    read_bool,
    read_float,
    read_fragment,
    read_int,
    read_json,
    read_object,
    read_objects,
    read_text,
    read_texts,
)
from dragoman.core.fold import settle_finish
from dragoman.core.open_parts import OpenPart, Parts
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.codex.errors import error_from_wire
from dragoman.dialects.codex.items import Calls, Items, Sighting
from dragoman.dialects.codex.wire import TEXT_DELTA, decode_text_delta, is_phantom, raw_of
from dragoman.dialects.stream_decoder import Step
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    Noticed,
    Progress,
    ReasoningChannel,
    Started,
    UsageReported,
)
from dragoman.model.outcome import (
    ErrorInfo,
    FinishReason,
    Limits,
    LimitWindow,
    Outcome,
    Problem,
    Usage,
)
from dragoman.model.parts import Extra, Opaque
from dragoman.sse import Frame

ANSWER = "gateway/answer"
PAUSE = "gateway/pause"

_NO_CONTEXT = DecodeContext()

# Items that a client injected before the turn come back under this invented turn: history, not answer.
_INJECTED_TURN = "auto-compact-"
# Items that repeat the user's message.
_ECHOES = frozenset({"userMessage", "hookPrompt"})
_RAW_CALLS = frozenset({"function_call", "custom_tool_call"})
_RAW_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_COUNTS = {
    "input": "inputTokens",
    "cached": "cachedInputTokens",
    "cache_write": "cacheWriteInputTokens",
    "output": "outputTokens",
    "reasoning": "reasoningOutputTokens",
    "total": "totalTokens",
}
_ESSENTIAL = frozenset({"input", "output"})
# The limits that every account has; other families of limits have names of their own.
_DEFAULT_LIMIT = "codex"


class TurnUsage(Struct, eq=False):
    """Counts the usage of one answer. Codex reports the sum of the thread and the last model response; an answer is neither.

    The usage of the thread before the first report of this answer is subtracted from every report. If each model response
    reports its usage (`rawResponse/completed`), these are added up instead: the thread's report comes after the results of
    the response's calls, and so in the next answer.
    """

    _before: dict[str, int] | None = None
    _added: dict[str, int] | None = None

    def by_response(self) -> None:
        """Count the reports of model responses; the thread's reports concern an earlier answer or repeat them."""
        self._added = {}

    def add(self, response: Fields) -> Usage | None:
        """Return the answer's usage with one more model response; None if the response has no usage."""
        counts = _counts(response)
        if not counts.keys() >= _ESSENTIAL:
            return None
        added = self._added or {}
        names = {*added, *counts}
        self._added = {name: added.get(name, 0) + counts.get(name, 0) for name in names}
        return replace(Usage(), **self._added)

    def update(self, report: Fields) -> Usage | None:
        """Return the answer's usage so far; None if the report has no numbers."""
        last = _counts(read_object(report.get("last")))
        total = _counts(read_object(report.get("total"))) or last
        if not total or self._added is not None:
            return None
        if self._before is None:
            self._before = {name: count - last.get(name, 0) for name, count in total.items()}
        spent = {name: count - self._before.get(name, 0) for name, count in total.items()}
        return replace(Usage(), **spent)


class CodexReader:
    """Reads one turn. A `FrameReader` whose frames are lines: one JSON-RPC message each."""

    def __init__(self, context: DecodeContext = _NO_CONTEXT) -> None:
        self.over = False
        self.frame = 0
        self.problems: list[tuple[str, str]] = []
        self._thread: str | None = None
        self._turn: str | None = None
        self._parts = Parts(
            self.problems, tools=context.tools, name_rule=context.name_fallback, seed=context.seed
        )
        self._items = Items(self._parts)
        self._calls = Calls(self._parts, context)
        self._usage = TurnUsage()
        self._limits: Limits | None = None
        self._error: ErrorInfo | None = None
        self._has_started = False
        self._answer: str | None = None
        self._model = ""
        self._created: int | None = None
        self._line = b""
        self._handlers: Mapping[str, Callable[[Fields, Fields], None]] = {
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "item/started": partial(self._see_item, "started"),
            "item/completed": partial(self._see_item, "completed"),
            "item/agentMessage/delta": self._message_delta,
            "item/reasoning/summaryPartAdded": self._nothing,
            "item/reasoning/summaryTextDelta": partial(self._add_thought, "summary"),
            "item/reasoning/textDelta": partial(self._add_thought, "content"),
            "item/tool/call": self._tool_call,
            "rawResponseItem/completed": self._raw_item,
            "rawResponse/completed": self._response_completed,
            "thread/tokenUsage/updated": self._usage_updated,
            "account/rateLimits/updated": self._limits_updated,
            "error": self._error_reported,
            ANSWER: self._answer_announced,
            PAUSE: self._pause_announced,
        }

    def find_delta(self, _opening: bytes, _data: bytes, /) -> tuple[OpenPart, str] | None:
        """Return None: the app-server sends lines, not frames; see `read_line`."""
        return None

    def read(self, frame: Frame) -> tuple[Event, ...]:
        return self.read_line(frame.data) if frame.data is not None else ()

    def read_line(self, line: bytes) -> tuple[Event, ...]:
        """Read one message of the pipe.

        Raises:
            MalformedJson: the line is not a JSON object.
        """
        if line.startswith(TEXT_DELTA) and self._read_text_delta(line):
            return self._parts.take()
        message = as_object(line)
        method = read_fragment(message.get("method")) or ""
        if self.over or not method:
            return ()  # an answer to a request of the caller
        params = read_object(message.get("params"))
        handler = self._handlers.get(method)
        self._line = line
        if not self._concerns(params, attach=handler is not None):
            return ()
        if handler is not None:
            handler(params, message)
        else:
            self._notice(method)
        return self._parts.take()

    def _read_text_delta(self, line: bytes) -> bool:
        """Read a text delta with the typed decoder; False if the message needs the general reader."""
        if self.over:
            return False
        try:
            params = decode_text_delta(line).params
        except FAST_FAILURES:
            return False
        is_ours = params.thread_id == self._thread and params.turn_id == self._turn
        if not is_ours or not self._has_started or not params.delta:
            return False
        self._items.add_text(params.item_id, params.delta)
        return True

    def end(self) -> tuple[Event, ...]:
        if self.over:
            return ()
        if self._error is not None:
            return self.fail(self._error)
        self.problems.append(("cut_stream", "expected turn/completed, got the end of the stream"))
        return self.fail(
            ErrorInfo(
                kind="truncated", message="the app-server ended its output before the turn ended"
            )
        )

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        self._items.abandon()
        self._emit(Failed(error))
        self.over = True
        return self._parts.take()

    # Whether a message belongs to this turn

    def _concerns(self, params: Fields, *, attach: bool) -> bool:
        thread = read_fragment(params.get("threadId")) or ""
        own = read_object(params.get("turn"))
        turn = read_fragment(params.get("turnId")) or read_fragment(own.get("id")) or ""
        if turn.startswith(_INJECTED_TURN):
            return False
        if self._thread is not None and thread and thread != self._thread:
            return False
        if self._turn is not None and turn and turn != self._turn:
            return False
        if attach and turn:
            self._thread = self._thread or thread or None
            self._turn = self._turn or turn
        return True

    def _begin(self, created: int | None = None) -> None:
        if not self._has_started:
            self._has_started = True
            name = replace_lone(self._answer or self._turn or "")
            self._emit(Started(name, self._model, created or self._created))
            if self._limits is not None:
                self._emit(LimitsReported(self._limits))

    # Messages of the gateway

    def _answer_announced(self, params: Fields, _: Fields) -> None:
        self._answer = read_fragment(params.get("answerId")) or None
        self._model = read_text(params.get("model")) or ""
        self._created = read_int(params.get("createdAt"))
        self._usage.by_response()
        if "tools" in params:
            self._calls.offer(read_texts(params.get("tools")))
        self._calls.note_earlier(read_texts(params.get("calls")))

    def _pause_announced(self, _params: Fields, _: Fields) -> None:
        self._finish(None, None)

    # Messages of the app-server

    def _turn_started(self, params: Fields, _: Fields) -> None:
        self._begin(read_int(read_object(params.get("turn")).get("startedAt")))

    def _see_item(self, stage: Literal["started", "completed"], params: Fields, _: Fields) -> None:
        item = read_object(params.get("item"))
        kind = read_fragment(item.get("type")) or ""
        if kind in _ECHOES:
            return
        self._begin()
        if kind in ("agentMessage", "reasoning"):
            read = self._items.start if stage == "started" else self._items.complete
            read(item, is_message=kind == "agentMessage")
        elif kind == "dynamicToolCall":
            self._see_call(stage, item)
        elif stage == "started":
            self._progress("item/started", params, "item")
        elif (whole := raw_of(params, "item")) is not None and not is_phantom(
            read_json(params.get("item"))
        ):
            item_id = read_text(item.get("id")) or None
            kind = replace_lone(kind)
            self._parts.add_whole(Opaque(dialect="codex", type=kind, raw=whole, item_id=item_id))

    def _message_delta(self, params: Fields, _: Fields) -> None:
        text = read_fragment(params.get("delta")) or ""
        if text:
            self._begin()
            self._items.add_text(read_fragment(params.get("itemId")) or "", text)

    def _add_thought(self, channel: ReasoningChannel, params: Fields, _: Fields) -> None:
        text = read_fragment(params.get("delta")) or ""
        if text:
            self._begin()
            item_id = read_fragment(params.get("itemId")) or ""
            index = read_int(params.get(f"{channel}Index")) or 0
            self._items.add_thought(item_id, text, channel, index)

    def _tool_call(self, params: Fields, message: Fields) -> None:
        self._begin()
        self._see_call("request", params)
        if not self.over:
            part = self._calls.part_of(read_text(params.get("callId")) or "")
            self._progress("item/tool/call", message, "id", part)

    def _raw_item(self, params: Fields, _: Fields) -> None:
        item = read_object(params.get("item"))
        kind = read_fragment(item.get("type")) or ""
        if kind == "message" and read_fragment(item.get("role")) != "assistant":
            return
        self._begin()
        if kind in _RAW_CALLS:
            if not self._calls.see_raw(item, self._turn or ""):
                self._fail_nameless()
        elif kind in _RAW_OUTPUTS:
            self._calls.see_output(item)
        elif kind == "message":
            self._items.raw_message(item)
        elif kind == "reasoning":
            self._items.raw_reasoning(item)
        else:
            self._notice("rawResponseItem/completed")

    def _response_completed(self, params: Fields, _: Fields) -> None:
        """Report the usage: one model response is over, and no parallel call follows before its calls are answered."""
        self._begin()
        usage = self._usage.add(read_object(params.get("usage")))
        if usage is not None:
            self._emit(UsageReported(usage))
        self._progress("rawResponse/completed", params, "responseId")

    def _usage_updated(self, params: Fields, _: Fields) -> None:
        usage = self._usage.update(read_object(params.get("tokenUsage")))
        if usage is not None:
            self._begin()
            self._emit(UsageReported(usage))

    def _limits_updated(self, params: Fields, _: Fields) -> None:
        limits = limits_from_wire(read_object(params.get("rateLimits")))
        if limits is None:
            return
        # The limits belong to the account, not the turn: they may come before a turn has begun.
        self._limits = limits
        if self._has_started:
            self._emit(LimitsReported(limits))

    def _error_reported(self, params: Fields, _: Fields) -> None:
        if read_json(params.get("willRetry")) is True:
            self._begin()
            self._items.abandon()
            self._progress("error", params, "error")
        else:
            self._error = error_from_wire(params)

    def _turn_completed(self, params: Fields, _: Fields) -> None:
        turn = read_object(params.get("turn"))
        status = read_fragment(turn.get("status")) or ""
        if status == "failed":
            # Without Started, the answer is Failed alone: the gateway may still try another upstream.
            has_error = raw_of(turn, "error") is not None
            error = error_from_wire(turn) if has_error or self._error is None else self._error
            self._items.abandon()
            self._emit(Failed(error))
            self.over = True
            return
        self._begin(read_int(turn.get("startedAt")))
        # The summary matters only to a caller that did not ask for items.
        for item in read_objects(turn.get("items")):
            if read_fragment(item.get("type")) == "agentMessage" and status == "completed":
                self._items.complete(item, is_message=True)
        self._finish("cancelled" if status == "interrupted" else "stop", status)

    def _finish(self, native: FinishReason | None, word: str | None) -> None:
        self._begin()
        if native == "stop" and not self._items.is_idle:
            self.problems.append(
                ("inferred_end", "turn/completed came before item/completed of open items")
            )
        self._items.abandon()
        # A turn continues until every call is answered; an answered call already has its result.
        reason = settle_finish(native, has_complete_client_calls=self._calls.is_pending)
        self._emit(Finished(reason, inferred=native is None, native=word or None))
        self._emit(Completed())
        self.over = True

    def _see_call(self, sighting: Sighting, fields: Fields) -> None:
        if not self._calls.see(sighting, fields, self._turn or ""):
            self._fail_nameless()

    def _fail_nameless(self) -> None:
        self._items.abandon()
        message = "expected the name of a tool in the call, got none and could not infer it"
        self._emit(Failed(ErrorInfo(kind="protocol", message=message, dialect="codex")))
        self.over = True

    def _progress(self, stage: str, fields: Fields, key: str, part: int | None = None) -> None:
        raw = raw_of(fields, key)
        extra = Extra("codex", {key: raw}) if raw is not None else None
        self._emit(Progress(stage, part, extra))

    def _notice(self, method: str) -> None:
        raw = Raw(self._line.strip())
        self._emit(Noticed("unknown", "codex", replace_lone(method), raw))

    def _emit(self, event: Event) -> None:
        self._parts.events.append(event)

    def _nothing(self, _params: Fields, _message: Fields) -> None:
        """Ignore the message: a later one repeats its content."""


def read_body(data: bytes, context: DecodeContext = _NO_CONTEXT) -> Step:
    """Read a whole turn: one message per line.

    Raises:
        MalformedJson: a line is not a JSON object.
    """
    reader = CodexReader(context)
    events = [event for line in data.splitlines() if line for event in reader.read_line(line)]
    events += reader.end()
    return Step(
        data, tuple(events), tuple(Problem(1, kind, text) for kind, text in reader.problems)
    )


def read_typed(_data: bytes) -> Outcome | None:
    """Return None: the app-server streams, and has no bodies."""
    return None


def limits_from_wire(report: Fields) -> Limits | None:
    """Read the limits; None for the snapshot of nulls that Codex sends if the provider reported no limits."""
    family = read_text(report.get("limitId")) or ""
    prefix = "" if family in ("", _DEFAULT_LIMIT) else f"{family}/"
    windows = tuple(
        LimitWindow(
            name=prefix + name,
            used_percent=read_float(window.get("usedPercent")),
            window_minutes=read_int(window.get("windowDurationMins")),
            resets_at=read_int(window.get("resetsAt")),
        )
        for name in ("primary", "secondary")
        if (window := read_object(report.get(name)))
    )
    credits_ = read_object(report.get("credits"))
    if not windows and not credits_:
        return None
    return Limits(
        windows=windows,
        has_credits=read_bool(credits_.get("hasCredits")),
        unlimited=read_bool(credits_.get("unlimited")),
        balance=read_text(credits_.get("balance")) or None,
    )


def _counts(report: Fields) -> dict[str, int]:
    counts = {name: read_int(report.get(key)) for name, key in _COUNTS.items()}
    return {name: count for name, count in counts.items() if count is not None}
