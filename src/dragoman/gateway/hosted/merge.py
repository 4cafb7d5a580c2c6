"""Merges several answers of a model, and the calls that were run between them, into one answer. Pure.

    answers of the model   Started parts Finished Completed | Started parts … Finished Completed | …
    the merged answer      Started parts                      parts …                 Finished Usage Completed

Parts are numbered across the merged answer, usage is the sum, and the finish reason is that of the last answer. The client's
own calls pass unchanged. Calls that the gateway runs appear in one of three styles:

    items    as call items of their own, open until the result has come; other parts continue meanwhile
    note     as a line of text when the call has ended
    hidden   not at all
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from dragoman.core.fold import join_part, settle_finish
from dragoman.core.serialize import Serializer
from dragoman.dialects.responses.mcp_calls import (
    ServerTool,
    begin_mcp_call,
    end_mcp_call,
    mcp_arguments,
    without_echo,
)
from dragoman.engine.events import CallSettled, EngineEvent, ModelSpoke, RunEnded, TurnStarted
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Call, Opaque, Part, Result, Text

Style = Literal["items", "note", "hidden"]

CALLING = "calling"
"""The stage of a call whose input is complete and which is being run."""

_BREAK = "\n\n"
_NO_USAGE = Usage()


class MergeRules(Struct, frozen=True, kw_only=True):
    """How answers are merged.

    whose: returns the hosted tool of a call, or None for a tool of the client. mint: returns an id for an item.
    breaks: separates texts of different turns with an empty line.
    searched: returns the parts that show a search for tools and its result to the client; none for any other call.
    """

    style: Style
    whose: Callable[[Call], ServerTool | None]
    mint: Callable[[], str]
    breaks: bool = False
    searched: Callable[[Call, Result], Sequence[Part]] | None = None


class HostedCall(Struct, frozen=True):
    """A call that the gateway ran. `server` is empty if there was no such tool."""

    server: str
    tool: str
    outcome: str

    @property
    def name(self) -> str:
        return f"{self.server}.{self.tool}" if self.server else self.tool


class _OpenCall:
    """A call until its result has come. In the style `items`, `item` is the part with this `number` in the merged answer."""

    __slots__ = ("call", "item", "number", "tool")

    def __init__(self, call: Call, tool: ServerTool) -> None:
        self.call = call
        self.tool = tool
        self.item: Call | None = None
        self.number = -1


class AnswerMerger:
    """One merged answer. `calls`: the calls that the gateway ran; `error`: why the answer failed."""

    def __init__(self, rules: MergeRules) -> None:
        self.calls: list[HostedCall] = []
        self.has_started = False
        self.error: ErrorInfo | None = None
        self.is_over = False
        self._rules = rules
        self._serializer = Serializer()
        self._count = 0  # parts of the merged answer so far
        self._numbers: dict[int, int] = {}  # merged part numbers, by those of this turn
        self._hosted: dict[int, _OpenCall] = {}  # incomplete calls of this turn
        self._running: list[_OpenCall] = []
        self._early: list[CallSettled] = []  # results of calls whose last event has not come yet
        self._open: dict[int, tuple[Part, list[Delta]]] = {}
        self._broken: set[int] = set()  # texts that begin with a break
        self._texts: dict[int, str] = {}  # by part number
        self._has_text = False
        self._needs_break = False
        self._finished: Finished | None = None
        self._completed: Completed | None = None

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self._texts[number] for number in sorted(self._texts))

    def feed(self, event: EngineEvent) -> list[Event]:
        """The events for the client that follow from one event of the engine."""
        match event:
            case ModelSpoke(event=said):
                return [out for each in self._serializer.feed(said) for out in self._merge(each)]
            case TurnStarted():
                self._begin_turn()
                return []
            case CallSettled():
                return self._settle(event)
            case _:
                return []

    def end(self, run: RunEnded) -> list[Event]:
        """The last events of the merged answer."""
        match run.reason:
            case "answered" | "handed_over" as reason:
                is_owed = reason == "handed_over"
                said = self._finished or Finished("stop", inferred=True)
                word = settle_finish(said.reason, has_complete_client_calls=is_owed)
                return self._finish(structs.replace(said, reason=word), run.total)
            case "max_turns" | "max_tokens" | "no_progress":
                return self._finish(Finished("length", inferred=True), run.total)
            case "max_time":
                message = "the hosted tools exceeded the time limit of an answer"
                return self.fail(run.error or ErrorInfo(kind="timeout", message=message))
            case "cancelled":
                message = "the answer was cancelled"
                return self.fail(run.error or ErrorInfo(kind="cancelled", message=message))
            case "failed":
                message = "the answer failed"
                return self.fail(run.error or ErrorInfo(kind="server", message=message))

    def fail(self, error: ErrorInfo) -> list[Event]:
        """The last events of an answer that fails now; open parts are closed. Empty if the answer has ended already."""
        if self.is_over:
            return []
        self.error = error
        self.is_over = True
        return [*self._close(), Failed(error)]

    # --- the model -------------------------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        self._serializer = Serializer()
        self._numbers.clear()
        self._hosted.clear()
        self._early.clear()
        self._finished = self._completed = None
        self._needs_break = self._has_text

    def _merge(self, event: Event) -> Sequence[Event]:
        match event:
            case PartStarted():
                return self._start(event)
            case PartEnded():
                return self._end(event)
            case (
                TextDelta()
                | ReasoningDelta()
                | InputDelta()
                | OutputDelta()
                | MediaDelta()
                | AnnotationAdded()
                | SealAdded()
            ):
                return self._grow(event)
            case Started():
                return self._open_answer(event)
            case Finished():
                self._finished = event if event.choice == 0 else self._finished
            case Completed():
                self._completed = event
            case LimitsReported():
                return (event,)
            case Progress() | Noticed():
                return self._mention(event)
            case UsageReported() | Failed():
                pass  # `end` emits the sum of the usage, and the finish reason
        return ()

    def _open_answer(self, event: Started) -> Sequence[Event]:
        if self.has_started:
            return ()
        self.has_started = True
        return (structs.replace(event, extra=without_echo(event.extra)),)

    def _start(self, event: PartStarted) -> Sequence[Event]:
        header = event.header
        if event.choice != 0:
            return ()
        if isinstance(header, Call) and header.executor == "client":
            tool = self._rules.whose(header)
            if tool is not None:
                return self._start_hosted(event.part, header, tool)
        number = self._open_part(header)
        self._numbers[event.part] = number
        events: list[Event] = [PartStarted(number, header)]
        if isinstance(header, Text):
            self._has_text = True
            if self._needs_break and self._rules.breaks:
                events.append(TextDelta(number, _BREAK))
                self._broken.add(number)
            self._needs_break = False
        return events

    def _grow(self, event: Delta) -> Sequence[Event]:
        hosted = self._hosted.get(event.part)
        if hosted is not None:
            if hosted.item is None or not isinstance(event, InputDelta):
                return ()
            self._open[hosted.number][1].append(event)
            return (structs.replace(event, part=hosted.number),)
        number = self._numbers.get(event.part)
        if number is None:
            return ()
        self._open[number][1].append(event)
        return (event if event.part == number else structs.replace(event, part=number),)

    def _end(self, event: PartEnded) -> Sequence[Event]:
        hosted = self._hosted.pop(event.part, None)
        if hosted is not None and isinstance(event.value, Call):
            return self._run(hosted, event.value)
        number = self._numbers.pop(event.part, None)
        if number is None:
            return ()
        del self._open[number]
        value = event.value
        if number in self._broken and isinstance(value, Text):
            value = structs.replace(value, text=_BREAK + value.text)
        if isinstance(value, Text):
            self._texts[number] = value.text
        return (PartEnded(number, value, event.amended),)

    def _mention(self, event: Progress | Noticed) -> Sequence[Event]:
        if isinstance(event, Noticed) and event.kind in ("done", "fields"):
            return ()
        if event.part is None:
            return (event,) if not self._count or isinstance(event, Noticed) else ()
        number = self._numbers.get(event.part)
        return () if number is None else (structs.replace(event, part=number),)

    def _open_part(self, header: Part) -> int:
        number = self._count
        self._count += 1
        self._open[number] = (header, [])
        return number

    # --- calls that the gateway runs -------------------------------------------------------------------------------

    def _start_hosted(self, part: int, call: Call, tool: ServerTool) -> Sequence[Event]:
        self._hosted[part] = hosted = _OpenCall(call, tool)
        if self._rules.style != "items" or not tool.server:
            return ()
        hosted.item = begin_mcp_call(tool, self._rules.mint())
        hosted.number = self._open_part(hosted.item)
        return (PartStarted(hosted.number, hosted.item), Progress("in_progress", hosted.number))

    def _run(self, hosted: _OpenCall, call: Call) -> Sequence[Event]:
        """Note that a call is complete and runs; emit its result if that has come already."""
        hosted.call = call
        events: list[Event] = []
        if hosted.item is not None:
            events.append(Progress(CALLING, hosted.number, mcp_arguments(call.input)))
        self._running.append(hosted)
        for settled in self._early:
            if _is_same(hosted.call, settled.call):
                self._early.remove(settled)
                return [*events, *self._settle(settled)]
        return events

    def _settle(self, settled: CallSettled) -> list[Event]:
        hosted = self._settled_one(settled.call)
        if hosted is None:
            self._early.append(settled)
            return []
        self._running.remove(hosted)
        tool = hosted.tool
        self.calls.append(HostedCall(tool.server, tool.tool, settled.how))
        if hosted.item is not None:
            return self._end_item(hosted, hosted.item, settled.result)
        if self._rules.searched is not None and not tool.server:
            parts = self._rules.searched(settled.call, settled.result)
            return [event for part in parts for event in self._whole(part)]
        if self._rules.style == "note" and tool.server:
            return self._note(tool, is_error=settled.result.is_error)
        return []

    def _settled_one(self, call: Call) -> _OpenCall | None:
        """The running call that the engine settled. Its id may differ where the model used an id twice."""
        for hosted in self._running:
            if hosted.call.call_id == call.call_id:
                return hosted
        return next((hosted for hosted in self._running if _is_same(hosted.call, call)), None)

    def _end_item(self, hosted: _OpenCall, item: Call, result: Result) -> list[Event]:
        value = end_mcp_call(item, hosted.call.input, result)
        del self._open[hosted.number]
        return [PartEnded(hosted.number, value)]

    def _whole(self, part: Part) -> list[Event]:
        """The events of a part that is complete when it begins."""
        number = self._count
        self._count += 1
        begun: list[Event] = [PartStarted(number, part)]
        if isinstance(part, Call):
            header = structs.replace(part, input="", status="in_progress")
            begun = [PartStarted(number, header), InputDelta(number, part.input)]
        elif isinstance(part, Text):
            self._texts[number] = part.text
            begun = [
                PartStarted(number, Text(status="in_progress")),
                TextDelta(number, part.text),
            ]
        return [*begun, PartEnded(number, part)]

    def _note(self, tool: ServerTool, *, is_error: bool) -> list[Event]:
        line = f"[{tool.server}: {tool.tool}{' failed' if is_error else ''}]\n"
        text = f"\n{line}" if self._has_text else line
        self._has_text = True
        return self._whole(Text(text=text))

    # --- the end ---------------------------------------------------------------------------------------------------

    def _finish(self, finished: Finished, total: Usage) -> list[Event]:
        self.is_over = True
        events = [*self._close(is_failed=False), structs.replace(finished, choice=0)]
        if total != _NO_USAGE:
            events.append(UsageReported(total))
        extra = None if self._completed is None else without_echo(self._completed.extra)
        return [*events, Completed(extra)]

    def _close(self, *, is_failed: bool = True) -> list[Event]:
        """The ends of open parts. They are incomplete, except calls whose result will not come: these are failed."""
        events: list[Event] = []
        for number, (header, deltas) in self._open.items():
            value = join_part(header, deltas)
            if isinstance(value, Call) and value.executor == "gateway" and not is_failed:
                lost = Result(call_id=value.call_id, content=(Text(text="not run"),), is_error=True)
                value = end_mcp_call(value, value.input, lost)
            elif not isinstance(value, Opaque):
                value = structs.replace(value, status="incomplete")
            if number in self._broken and isinstance(value, Text):
                value = structs.replace(value, text=_BREAK + value.text)
            events.append(PartEnded(number, value))
        self._open.clear()
        return events


def _is_same(one: Call, other: Call) -> bool:
    return one.call_id == other.call_id or (one.name, one.input) == (other.name, other.input)
