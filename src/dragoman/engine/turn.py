"""One answer of the model and the calls in it: events and settled calls in, actions for the runner out.

    LISTENING --Completed, Failed--> SETTLING --all calls settled--> OVER
        |                               |
        '----------- Stopped -----------'--> STOPPING --all calls settled--> OVER

- A call may run as soon as its part has ended, while the answer goes on; `Schedule` decides when it starts.
- A call that cannot be run is settled at once, with a text for the model.
- An incomplete call is settled as refused when the answer ends by itself (the length ran out), and left out of the
  conversation when the answer is cut off as well.
- Stopped: the stream is closed, running calls are aborted, waiting calls are settled as not run. Only the first reason counts.
- A fatal error of a tool stops the turn.
- The turn is over when every call is settled: no call is left without a result. Calls of the caller's tools in an answer
  that ended by itself are the exception: the caller answers them.

The machine knows no clock, task or tool. The number of a call is the number of its part.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.usage import merge_limits, merge_usage
from dragoman.engine.events import CallSettled, RunEnd, Settlement
from dragoman.engine.results import Content, aborted_text, not_run_text
from dragoman.engine.schedule import Schedule
from dragoman.engine.toolbox import CallRouter, Entry, LeftToCaller, RefusedCall
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    PartStarted,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import Call, Media, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Turn


class TurnOutcome(Struct, frozen=True, kw_only=True):
    """One answer and all its calls.

    calls: every call of the model, whoever runs it, except those that the provider runs.
    end: why the run ends after this turn; None: the run goes on.
    """

    turns: tuple[Turn, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None
    limits: Limits | None = None
    end: RunEnd | None = None
    error: ErrorInfo | None = None


class RunCall(Struct, frozen=True):
    """Start the call: the schedule lets it run now."""

    number: int
    call: Call
    entry: Entry


class AbortCall(Struct, frozen=True):
    """Stop the call. When it has stopped, `settle` is called for it."""

    number: int


class CloseStream(Struct, frozen=True):
    """Stop reading the answer."""


class EndTurn(Struct, frozen=True):
    """Every call has its result."""

    outcome: TurnOutcome


Action = RunCall | CallSettled | AbortCall | CloseStream | EndTurn
"""`CallSettled`: inform the observer."""


class Settled(Struct, frozen=True, kw_only=True):
    """How a call that was run has ended. An aborted call has no content: the turn knows why it was aborted.

    is_stuck: the tool did not stop when it was cancelled. fatal: why nothing more can be done in this conversation.
    """

    number: int
    how: Settlement
    content: Content = ()
    is_error: bool = True
    elapsed: float = 0.0
    is_stuck: bool = False
    fatal: ErrorInfo | None = None


class Stopped(Struct, frozen=True):
    """End the turn now. `by`: the call that caused the stop; it has ended by itself."""

    reason: RunEnd
    error: ErrorInfo | None = None
    by: int | None = None


UNNAMED = "unnamed"
"""The name that a call without a name gets in the conversation: no wire format accepts an empty name."""


class _Drained(Struct, frozen=True):
    """Every call is settled."""


class TurnState(Enum):
    LISTENING = auto()  # the answer is arriving
    SETTLING = auto()  # the answer is over, but some calls are not settled
    STOPPING = auto()  # the turn was stopped; running calls are being aborted
    OVER = auto()


_Input = PartEnded | Completed | Failed | Settled | Stopped | _Drained

TRANSITIONS: Mapping[tuple[TurnState, type[_Input]], TurnState] = {
    (TurnState.LISTENING, PartEnded): TurnState.LISTENING,
    (TurnState.LISTENING, Settled): TurnState.LISTENING,
    (TurnState.LISTENING, Completed): TurnState.SETTLING,
    (TurnState.LISTENING, Failed): TurnState.SETTLING,
    (TurnState.LISTENING, Stopped): TurnState.STOPPING,
    (TurnState.SETTLING, Settled): TurnState.SETTLING,
    (TurnState.SETTLING, Stopped): TurnState.STOPPING,
    (TurnState.SETTLING, _Drained): TurnState.OVER,
    (TurnState.STOPPING, Settled): TurnState.STOPPING,
    (TurnState.STOPPING, _Drained): TurnState.OVER,
    # These events were read before the stream was closed.
    (TurnState.STOPPING, PartEnded): TurnState.STOPPING,
    (TurnState.STOPPING, Completed): TurnState.STOPPING,
    (TurnState.STOPPING, Failed): TurnState.STOPPING,
    # Several sources may stop a turn, even when it is over.
    (TurnState.STOPPING, Stopped): TurnState.STOPPING,
    (TurnState.OVER, Stopped): TurnState.OVER,
}

_IGNORING = frozenset((TurnState.STOPPING, TurnState.OVER))
_HANDLED: frozenset[type[Event]] = frozenset(
    (TextDelta, PartStarted, PartEnded, UsageReported, LimitsReported, Finished, Completed, Failed)
)


class _Slot(Struct):
    """A call that needs a result."""

    call: Call
    is_running: bool = False
    result: Result | None = None


class TurnMachine:
    """The state of one turn, one per request. `call_ids`: the ids of the conversation so far, which no new call may have."""

    def __init__(
        self,
        router: CallRouter,
        schedule: Schedule,
        *,
        turn: int = 1,
        call_ids: AbstractSet[str] = frozenset(),
    ) -> None:
        self._router = router
        self._schedule = schedule
        self._turn = turn
        self._old_ids = call_ids
        self._ids: set[str] = set()
        self._repeats: dict[str, int] = {}  # how often each id was wanted: no number is tried twice
        self._state = TurnState.LISTENING
        # A copy of what the state says: looking up members of an enum is slow, and there are many events.
        self._ignores_events = False
        self._parts: dict[int, Part] = {}
        self._drafts: dict[int, tuple[Text | Refusal, list[str]]] = {}
        self._slots: dict[int, _Slot] = {}
        self._entries: dict[int, Entry] = {}
        self._theirs: dict[int, Call] = {}
        self._cut_calls: dict[int, Call] = {}
        self._open = 0  # slots without a result
        self._is_cut = False
        self._has_acted = False
        self._stop: Stopped | None = None
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._limits: Limits | None = None
        self._error: ErrorInfo | None = None

    @property
    def is_over(self) -> bool:
        return self._state is TurnState.OVER

    @property
    def is_listening(self) -> bool:
        return self._state is TurnState.LISTENING

    @property
    def may_retry(self) -> bool:
        """Whether the request can be sent again: no call has been started or handed over."""
        return not self._has_acted and self._stop is None

    def hear(self, event: Event) -> Sequence[Action]:
        """Take the next event of the answer.

        Raises:
            LocalProtocolError: the answer was over.
        """
        if type(event) not in _HANDLED or self._ignores_events:
            return ()
        match event:
            case TextDelta():
                draft = self._drafts.get(event.part)
                if draft is not None:
                    draft[1].append(event.text)
            case PartStarted(header=Text() | Refusal() as header):
                self._drafts[event.part] = (header, [])
            case PartEnded() | Completed() | Failed():
                return self._step(event)
            case UsageReported():
                self._usage = merge_usage(self._usage, event.usage)
            case LimitsReported():
                self._limits = merge_limits(self._limits, event.limits)
            case Finished(choice=0):
                self._finish = event.reason
            case _:
                pass
        return ()

    def settle(self, settled: Settled) -> Sequence[Action]:
        """Take the end of a call that was run."""
        if settled.fatal is None:
            return self._step(settled)
        stop = Stopped("failed", settled.fatal, by=settled.number)
        return [*self._step(stop), *self._step(settled)]

    def stop(self, reason: RunEnd, error: ErrorInfo | None = None) -> Sequence[Action]:
        """End the turn now."""
        return self._step(Stopped(reason, error))

    def _step(self, given: _Input) -> list[Action]:
        state = TRANSITIONS.get((self._state, type(given)))
        if state is None:
            raise LocalProtocolError(
                f"{type(given).__name__} is not allowed while the turn is {self._state.name}"
            )
        is_handled = not self._ignores_events or isinstance(given, (Settled, _Drained))
        actions = self._act(given) if is_handled else []
        self._state = state
        self._ignores_events = state in _IGNORING
        if self._open == 0 and self._state in (TurnState.SETTLING, TurnState.STOPPING):
            actions += self._step(_Drained())
        return actions

    def _act(self, given: _Input) -> list[Action]:
        match given:
            case PartEnded():
                return self._take_part(given.part, given.value)
            case Completed():
                return self._end_answer()
            case Failed():
                self._break_off(given.error)
                return []
            case Settled():
                return self._take_settled(given)
            case Stopped():
                return self._stop_all(given)
            case _Drained():
                return self._conclude()
            case _:
                assert_never(given)

    def _take_part(self, number: int, part: Part) -> list[Action]:
        self._drafts.pop(number, None)
        if not isinstance(part, Call) or part.executor == "provider":
            self._parts[number] = part
            if isinstance(part, Call):
                self._ids.add(part.call_id)
            return []
        call = self._adopt(number, part)
        self._parts[number] = call
        if call.status != "completed":
            self._cut_calls[number] = call
            return []
        return self._route(number, call)

    def _adopt(self, number: int, call: Call) -> Call:
        """The call as it is recorded in the conversation: with a unique id, and with `client` as its executor."""
        # OpenAI's local shell call may have only an item id, which its result then names.
        wanted = call.call_id or call.item_id or f"call_{self._turn}_{number}"
        call_id = wanted
        count = self._repeats.get(wanted, 1)
        while call_id in self._ids or call_id in self._old_ids:
            count += 1
            call_id = f"{wanted}_{count}"
        self._repeats[wanted] = count
        self._ids.add(call_id)
        if call_id == call.call_id and call.executor == "client":
            return call
        return replace(call, call_id=call_id, executor="client")

    def _route(self, number: int, call: Call) -> list[Action]:
        route = self._router.route(call)
        match route:
            case Entry() as entry:
                self._add_slot(number, call)
                self._entries[number] = entry
                self._has_acted = True
                return self._start(
                    self._schedule.submit(number, is_parallel=entry.offer.is_parallel)
                )
            case LeftToCaller():
                self._theirs[number] = call
                self._has_acted = True
                return []
            case RefusedCall(text):
                return self._refuse(number, call, text)
            case _:
                assert_never(route)

    def _refuse(self, number: int, call: Call, text: str) -> list[Action]:
        # The conversation records the call as complete even if it was not: its result says what was missing.
        recorded = replace(call, name=call.name or UNNAMED, status="completed")
        self._parts[number] = recorded
        self._add_slot(number, recorded)
        return [self._close(number, (Text(text=text),), "refused")]

    def _add_slot(self, number: int, call: Call) -> None:
        self._slots[number] = _Slot(call)
        self._open += 1

    def _start(self, numbers: Sequence[int]) -> list[Action]:
        actions: list[Action] = []
        for number in numbers:
            slot = self._slots[number]
            slot.is_running = True
            actions.append(RunCall(number, slot.call, self._entries[number]))
        return actions

    def _end_answer(self) -> list[Action]:
        actions: list[Action] = []
        for number, call in self._cut_calls.items():
            actions += self._route(number, call)
        return actions

    def _break_off(self, error: ErrorInfo | None) -> None:
        """The answer was cut off: keep the text so far, drop calls that were not complete."""
        self._is_cut = True
        self._error = error
        for number, (header, pieces) in self._drafts.items():
            self._parts[number] = replace(header, text="".join(pieces), status="incomplete")

    def _take_settled(self, settled: Settled) -> list[Action]:
        slot = self._slots.get(settled.number)
        if slot is None or not slot.is_running:
            raise LocalProtocolError(f"expected a running call, got {settled.number}")
        slot.is_running = False
        content = settled.content
        if settled.how == "aborted" and not content:
            reason = self._stop.reason if self._stop is not None else "cancelled"
            text = aborted_text(reason, settled.elapsed, is_stuck=settled.is_stuck)
            content = (Text(text=text),)
        closed = self._close(
            settled.number, content, settled.how, is_error=settled.is_error, elapsed=settled.elapsed
        )
        return [closed, *self._start(self._schedule.release(settled.number))]

    def _stop_all(self, stop: Stopped) -> list[Action]:
        self._stop = stop
        actions: list[Action] = []
        if self._state is TurnState.LISTENING:
            self._break_off(None)
            actions.append(CloseStream())
        words = (Text(text=not_run_text(stop.reason)),)
        actions += [self._close(number, words, "aborted") for number in self._schedule.clear()]
        return actions + [
            AbortCall(number)
            for number, slot in self._slots.items()
            if slot.is_running and number != stop.by
        ]

    def _close(
        self,
        number: int,
        content: Content,
        how: Settlement,
        *,
        is_error: bool = True,
        elapsed: float = 0.0,
    ) -> CallSettled:
        slot = self._slots[number]
        call = slot.call
        slot.result = Result(
            call_id=call.call_id, content=content, is_error=is_error, kind=call.kind, name=call.name
        )
        self._open -= 1
        return CallSettled(self._turn, call, slot.result, how, elapsed)

    def _conclude(self) -> list[Action]:
        end, error = self._ending()
        actions: list[Action] = []
        if end is not None and end != "handed_over":
            actions += self._close_callers_calls(end)
        results = {
            number: slot.result for number, slot in self._slots.items() if slot.result is not None
        }
        answer = TurnOutcome(
            turns=compose_turns(self._parts, results, is_cut=self._is_cut),
            calls=tuple(slot.call for slot in self._slots.values()) + tuple(self._theirs.values()),
            finish=self._finish,
            usage=self._usage,
            limits=self._limits,
            end=end,
            error=error,
        )
        return [*actions, EndTurn(answer)]

    def _ending(self) -> tuple[RunEnd | None, ErrorInfo | None]:
        if self._stop is not None:
            return self._stop.reason, self._stop.error
        if self._error is not None:
            return "failed", self._error
        return ("handed_over" if self._theirs else None), None

    def _close_callers_calls(self, end: RunEnd) -> list[Action]:
        """Give the caller's calls results that say that the run ended: the caller can no longer answer them."""
        actions: list[Action] = []
        for number, call in self._theirs.items():
            self._add_slot(number, call)
            actions.append(self._close(number, (Text(text=not_run_text(end)),), "aborted"))
        self._theirs.clear()
        return actions


def compose_turns(
    parts: Mapping[int, Part], results: Mapping[int, Result], *, is_cut: bool
) -> tuple[Turn, ...]:
    """The assistant's turn and the turn with the results, both in the order of the parts, which is that of the calls.

    The turns can always be sent again. An answer that ended by itself keeps all its parts. In an answer that was cut off

    - complete parts stay, and so does the text that was being written;
    - incomplete calls, reasoning and media are left out;
    - reasoning, and calls of the provider without their result, are left out if no part follows them: providers refuse
      a message that ends with them.
    """
    kept = [parts[number] for number in sorted(parts)]
    if is_cut:
        kept = _without_open_end([part for part in kept if _is_worth_keeping(part)])
    turns: list[Turn] = []
    if kept:
        turns.append(Turn(role="assistant", parts=tuple(kept)))
    if results:
        turns.append(Turn(role="tool", parts=tuple(results[number] for number in sorted(results))))
    return tuple(turns)


def _is_worth_keeping(part: Part) -> bool:
    match part:
        case Text(text=text) | Refusal(text=text):
            return bool(text)
        case (
            Reasoning(status=status)
            | Call(status=status)
            | Result(status=status)
            | Media(status=status)
        ):
            return status == "completed"
        case _:
            return True


def _without_open_end(parts: list[Part]) -> list[Part]:
    """The parts without those at the end that need a part after them."""
    kept = list(parts)
    while kept and (
        isinstance(kept[-1], Reasoning)
        or (isinstance(kept[-1], Call) and kept[-1].executor != "client")
    ):
        kept.pop()
    return kept
