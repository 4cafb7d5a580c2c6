"""What the engine does over several answers of a model, told as one answer. Pure.

    answers of the model   Started parts Finished Completed | Started parts … Finished Completed | …
    what is told           Started parts                      parts …                 Finished Usage Completed

Parts are numbered over the whole answer, usage is the sum, the reason of the finish is the last one's. The client's own
calls are told as they come. Those that are run here are told in one of three ways:

    items    as calls of their own (`items`), open until their result is there; what the model says meanwhile goes on
    note     as a line of text when they are over
    hidden   not at all
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from dragoman._json import Raw, dumps
from dragoman.core.drafts import Delta, join_part
from dragoman.core.finish import settle_finish
from dragoman.core.serial import Serializer
from dragoman.engine.events import CallSettled, EngineEvent, ModelSpoke, RunEnded, TurnStarted
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
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
from dragoman.model.parts import Call, Extra, Opaque, Part, Result, Text
from dragoman.server.hosted.items import Label, called_item, ended_item
from dragoman.server.records import HostedCall

__all__ = ("CALLING", "Style", "Teller", "Telling")

Style = Literal["items", "note", "hidden"]

CALLING = "calling"
"""The stage of a call whose input is complete and which is being run."""

_BREAK = "\n\n"
_NO_USAGE = Usage()
# What an upstream's response object tells of the request it got, which is not the client's.
_ECHOED = ("tools", "tool_choice", "parallel_tool_calls", "instructions", "previous_response_id")


class Teller(Struct, frozen=True, kw_only=True):
    """How an answer is told.

    whose: the tool here that a call is for, None for the client's. mint: an id for an item.
    breaks: what the model says in different turns would run together, and is kept apart.
    """

    style: Style
    whose: Callable[[Call], Label | None]
    mint: Callable[[], str]
    breaks: bool = False


class _HostedCall:
    """A call on its way. `item` is told as part `number`, where it is told; `result` is there before it may be told."""

    __slots__ = ("call", "item", "label", "number")

    def __init__(self, call: Call, label: Label) -> None:
        self.call = call
        self.label = label
        self.item: Call | None = None
        self.number = -1


class Telling:
    """One answer. `calls`: those that were run here; `error`: how it failed."""

    def __init__(self, teller: Teller) -> None:
        self.calls: list[HostedCall] = []
        self.has_started = False
        self.error: ErrorInfo | None = None
        self.is_over = False
        self._teller = teller
        self._serializer = Serializer()
        self._count = 0  # parts told
        self._numbers: dict[int, int] = {}  # parts of this turn, by the numbers they are told under
        self._hosted: dict[int, _HostedCall] = {}  # calls of this turn that are being spoken
        self._running: list[_HostedCall] = []
        self._early: list[CallSettled] = []  # results of calls that are not told yet
        self._open: dict[int, tuple[Part, list[Delta]]] = {}
        self._broken: set[int] = set()  # texts that begin with a break
        self._texts: dict[int, str] = {}  # by their numbers
        self._has_text = False
        self._needs_break = False
        self._finished: Finished | None = None
        self._completed: Completed | None = None

    @property
    def text(self) -> str:
        """All words that were told, as a client of one text has them."""
        return "".join(self._texts[number] for number in sorted(self._texts))

    def feed(self, event: EngineEvent) -> list[Event]:
        """What is told of it."""
        match event:
            case ModelSpoke(event=said):
                return [told for each in self._serializer.feed(said) for told in self._retell(each)]
            case TurnStarted():
                self._begin_turn()
                return []
            case CallSettled():
                return self._settle(event)
            case _:
                return []

    def end(self, run: RunEnded) -> list[Event]:
        """The last of it."""
        match run.reason:
            case "answered" | "handed_over" as reason:
                is_owed = reason == "handed_over"
                said = self._finished or Finished("stop", inferred=True)
                word = settle_finish(said.reason, has_complete_client_calls=is_owed)
                return self._finish(structs.replace(said, reason=word), run.total)
            case "max_turns" | "max_tokens" | "no_progress":
                return self._finish(Finished("length", inferred=True), run.total)
            case "max_time":
                message = "the tools that are run in the gateway took longer than an answer may"
                return self.fail(run.error or ErrorInfo(kind="timeout", message=message))
            case "cancelled":
                message = "the answer was cancelled"
                return self.fail(run.error or ErrorInfo(kind="cancelled", message=message))
            case "failed":
                message = "the answer failed"
                return self.fail(run.error or ErrorInfo(kind="server", message=message))

    def fail(self, error: ErrorInfo) -> list[Event]:
        """It ends here: what is open is closed, and the failure told. Nothing if it was over."""
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

    def _retell(self, event: Event) -> Sequence[Event]:
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
                pass  # the run tells the sum, and how it ended
        return ()

    def _open_answer(self, event: Started) -> Sequence[Event]:
        if self.has_started:
            return ()
        self.has_started = True
        return (structs.replace(event, extra=_unechoed(event.extra)),)

    def _start(self, event: PartStarted) -> Sequence[Event]:
        header = event.header
        if event.choice != 0:
            return ()
        if isinstance(header, Call) and header.executor == "client":
            label = self._teller.whose(header)
            if label is not None:
                return self._start_hosted(event.part, header, label)
        number = self._open_part(header)
        self._numbers[event.part] = number
        told: list[Event] = [PartStarted(number, header)]
        if isinstance(header, Text):
            self._has_text = True
            if self._needs_break and self._teller.breaks:
                told.append(TextDelta(number, _BREAK))
                self._broken.add(number)
            self._needs_break = False
        return told

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

    # --- calls that are run here -----------------------------------------------------------------------------------

    def _start_hosted(self, part: int, call: Call, label: Label) -> Sequence[Event]:
        self._hosted[part] = hosted = _HostedCall(call, label)
        if self._teller.style != "items" or not label.server:
            return ()
        hosted.item = called_item(label, self._teller.mint())
        hosted.number = self._open_part(hosted.item)
        return (PartStarted(hosted.number, hosted.item), Progress("in_progress", hosted.number))

    def _run(self, hosted: _HostedCall, call: Call) -> Sequence[Event]:
        """It is complete: the model has nothing more to say of it, and its result is due."""
        hosted.call = call
        told: list[Event] = []
        if hosted.item is not None:
            arguments = {"arguments": Raw(dumps(call.input))}
            told.append(Progress(CALLING, hosted.number, Extra("responses", arguments)))
        self._running.append(hosted)
        for settled in self._early:
            if _is_same(hosted.call, settled.call):
                self._early.remove(settled)
                return [*told, *self._settle(settled)]
        return told

    def _settle(self, settled: CallSettled) -> list[Event]:
        hosted = self._settled_one(settled.call)
        if hosted is None:
            self._early.append(settled)
            return []
        self._running.remove(hosted)
        label = hosted.label
        self.calls.append(HostedCall(label.server, label.tool, settled.how))
        if hosted.item is not None:
            return self._end_item(hosted, hosted.item, settled.result)
        if self._teller.style == "note" and label.server:
            return self._note(label, is_error=settled.result.is_error)
        return []

    def _settled_one(self, call: Call) -> _HostedCall | None:
        """The call that runs and is meant. Its id may be another where the model has used one twice."""
        for hosted in self._running:
            if hosted.call.call_id == call.call_id:
                return hosted
        return next((hosted for hosted in self._running if _is_same(hosted.call, call)), None)

    def _end_item(self, hosted: _HostedCall, item: Call, result: Result) -> list[Event]:
        value = ended_item(item, hosted.call.input, result)
        del self._open[hosted.number]
        return [PartEnded(hosted.number, value)]

    def _note(self, label: Label, *, is_error: bool) -> list[Event]:
        line = f"[{label.server}: {label.tool}{' failed' if is_error else ''}]\n"
        text = f"\n{line}" if self._has_text else line
        self._has_text = True
        number = self._count
        self._count += 1
        self._texts[number] = text
        return [
            PartStarted(number, Text(status="in_progress")),
            TextDelta(number, text),
            PartEnded(number, Text(text=text)),
        ]

    # --- the end ---------------------------------------------------------------------------------------------------

    def _finish(self, finished: Finished, total: Usage) -> list[Event]:
        self.is_over = True
        told = [*self._close(is_failed=False), structs.replace(finished, choice=0)]
        if total != _NO_USAGE:
            told.append(UsageReported(total))
        extra = None if self._completed is None else _unechoed(self._completed.extra)
        return [*told, Completed(extra)]

    def _close(self, *, is_failed: bool = True) -> list[Event]:
        """The ends of what is open: cut, or, of a call whose result nobody waits for, failed."""
        told: list[Event] = []
        for number, (header, deltas) in self._open.items():
            value = join_part(header, deltas)
            if isinstance(value, Call) and value.executor == "gateway" and not is_failed:
                lost = Result(call_id=value.call_id, content=(Text(text="not run"),), is_error=True)
                value = ended_item(value, value.input, lost)
            elif not isinstance(value, Opaque):
                value = structs.replace(value, status="incomplete")
            if number in self._broken and isinstance(value, Text):
                value = structs.replace(value, text=_BREAK + value.text)
            told.append(PartEnded(number, value))
        self._open.clear()
        return told


def _is_same(one: Call, other: Call) -> bool:
    return one.call_id == other.call_id or (one.name, one.input) == (other.name, other.input)


def _unechoed(extra: Extra | None) -> Extra | None:
    if extra is None or extra.dialect != "responses":
        return extra
    kept = {name: value for name, value in extra.fields.items() if name not in _ECHOED}
    return Extra("responses", kept)
