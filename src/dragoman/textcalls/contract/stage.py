"""The contract at work: the events of an answer in, in the client's own names, and the same under the policy out.

    a call of the client     told, unless there are enough, or (dedup) the same was told before
      its end                in `obsidian-xml`, a text part with its `<use_tool>` block follows
    text after a call        told, unless the tail is suppressed; where the turn is to stop, it ends it
    Failed after calls       where the policy says so: finished, because all that the client was told of is whole
    anything after the end   dropped

Grammatical sequences in, grammatical sequences out: parts are numbered anew, what is open at a cut is closed, and each
choice finishes once. The same code for streams and bodies, so what is told does not depend on how the answer came.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.calls import judge
from dragoman.core.losses import answer_book
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.outcome import Loss, LossAction, Problem
from dragoman.model.parts import Annotation, Call, Part, Refusal, Result, Text
from dragoman.model.request import Tool
from dragoman.textcalls.contract.blocks import render_block
from dragoman.textcalls.contract.losses import LOSSES
from dragoman.textcalls.contract.phantoms import is_phantom
from dragoman.textcalls.contract.policy import ContractPolicy
from dragoman.textcalls.contract.report import ContractReport
from dragoman.textcalls.contract.turn import Turn, key_of

__all__ = ("ContractStage",)

_NEW_TEXT = Text(status="in_progress")
_MAX_NAMED = 32  # calls a log line names; all are counted

_AboutPart = (
    TextDelta
    | InputDelta
    | ReasoningDelta
    | OutputDelta
    | MediaDelta
    | AnnotationAdded
    | SealAdded
    | PartEnded
)


class _Open(Struct, eq=False):
    """A part that has not ended. `number` is None while it is not told; `held`: what waits until it is whole."""

    turn: Turn
    header: Part
    number: int | None = None
    held: "tuple[PartStarted, list[_AboutPart]] | None" = None
    pieces: list[str] | None = None  # of a text, as told
    is_cut: bool = False  # the rest of a text is not told
    annotations: tuple[Annotation, ...] = ()

    @property
    def is_under_way(self) -> bool:
        """Whether the answer cannot end before it: all that is told or may be, but for text."""
        return self.pieces is None and (self.held is not None or self.number is not None)


class ContractStage:
    """One answer.

    tools: the client's, for the order of parameters. losses: the operator's actions. choices: how many it asked for.
    """

    def __init__(
        self,
        policy: ContractPolicy,
        tools: Iterable[Tool] = (),
        *,
        losses: Mapping[str, LossAction] | None = None,
        choices: int = 1,
    ) -> None:
        self.is_over = False
        self.problems: list[Problem] = []
        self._policy = policy
        self._schemas = {(tool.name, tool.namespace): tool.schema for tool in tools}
        self._book = answer_book(LOSSES, losses or {})
        self._choices = choices
        self._hears_end = False
        self.is_stopped = False
        self.is_cut = False  # it ended before the upstream's answer did
        self._cuts = policy.stop is True
        self._suppresses = self._cuts or policy.suppress_tail is True
        self._most = 1 if self._cuts and policy.stop_mode == "first" else policy.max_calls
        self._turns: dict[int, Turn] = {}
        self._open: dict[int, _Open] = {}
        self._count = 0  # parts told
        self._withheld = 0
        self._names: list[str] = []
        self._ids: list[str] = []

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._book.losses

    @property
    def is_lingering(self) -> bool:
        """Whether all calls so far are told and nothing but further ones is waited for."""
        turns = self._turns.values()
        return (
            self._cuts
            and not self.is_over
            and len(turns) >= self._choices
            and all(turn.complete and not turn.is_finished for turn in turns)
            and not any(part.is_under_way for part in self._open.values())
        )

    @property
    def told(self) -> int:
        """How many calls the client was told of."""
        return sum(turn.told for turn in self._turns.values())

    def report(self, *, withheld: bool = False) -> ContractReport:
        """What the answer amounts to so far. withheld: calls were withheld before they came here."""
        return ContractReport(
            output_mode=self._policy.mode,
            tool_call_count=sum(turn.complete for turn in self._turns.values()),
            tool_call_names=tuple(self._names),
            tool_call_ids=tuple(self._ids),
            tool_call_truncated=withheld or self._withheld > 0,
            stop_after_tools_mode=self._policy.stop_mode,
        )

    def hear_end(self) -> None:
        """The answer is there as a whole: what is not told is passed over, and its own end is the end."""
        self._hears_end = True

    def stop(self) -> None:
        """Nobody waits for the rest: the failure that ends it is none."""
        self.is_stopped = True

    def end_turns(self) -> None:
        """Nothing more of the choices so far is to be told, but how they ended."""
        for turn in self._turns.values():
            turn.is_done = True

    def feed(self, event: Event) -> tuple[Event, ...]:
        """What the client is to see of an event."""
        if self.is_over:
            return ()
        match event:
            case TextDelta():
                return self._say(event)
            case PartStarted():
                return self._start(event)
            case PartEnded():
                return self._end(event)
            case (
                InputDelta()
                | ReasoningDelta()
                | OutputDelta()
                | MediaDelta()
                | SealAdded()
                | AnnotationAdded()
            ):
                return self._pass(event)
            case Progress() | Noticed():
                return (self._mention(event),)
            case Finished():
                return (self._note_finish(event),)
            case Failed():
                return self._fail(event)
            case Completed():
                self.is_over = True
                return (event,)
            case _:
                return (event,)

    def cut(self) -> tuple[Event, ...]:
        """End the answer here: the upstream is not heard any more."""
        if self.is_over:
            return ()
        ended = [
            PartEnded(part.number, _text_of(part))
            for part in self._open.values()
            if part.number is not None
        ]
        self._open.clear()
        self.is_cut = True
        return (*ended, *self._finish())

    def _turn(self, choice: int) -> Turn:
        turn = self._turns.get(choice)
        if turn is None:
            turn = self._turns[choice] = Turn(choice)
        return turn

    # --- parts --------------------------------------------------------------------------------------------------------

    def _start(self, event: PartStarted) -> tuple[Event, ...]:
        turn = self._turn(event.choice)
        header = event.header
        part = self._open[event.part] = _Open(turn, header)
        if isinstance(header, Call) and header.executor == "client":
            return self._start_call(part, event)
        if isinstance(header, Text | Refusal):
            part.pieces = []
            if self._suppresses and turn.told:
                return ()
        elif isinstance(header, Result):
            part.held = (event, [])  # noise is known when it is whole
            return ()
        return (self._announce(part, event),)

    def _start_call(self, part: _Open, event: PartStarted) -> tuple[Event, ...]:
        turn = part.turn
        if turn.is_done or (self._most and turn.told >= self._most):
            self._withheld += 1
            turn.is_done = turn.is_done or self._cuts
            return self._cut_if_done()
        if self._policy.dedup:
            part.held = (event, [])
            return ()
        turn.told += 1
        return (self._announce(part, event),)

    def _announce(self, part: _Open, event: PartStarted) -> PartStarted:
        number = part.number = self._count
        self._count += 1
        return event if number == event.part else replace(event, part=number)

    def _say(self, event: TextDelta) -> tuple[Event, ...]:
        part = self._open[event.part]
        turn = part.turn
        if turn.told and self._suppresses:
            part.is_cut = True
            if self._cuts and event.text and not event.text.isspace():
                turn.is_done = True
                return self._cut_if_done()
            return ()
        if part.pieces is not None:
            part.pieces.append(event.text)
        turn.note_text(event.text)
        return self._pass(event)

    def _pass(self, event: _AboutPart) -> tuple[Event, ...]:
        part = self._open[event.part]
        if part.held is not None:
            part.held[1].append(event)
            return ()
        if part.number is None:
            return ()
        if isinstance(event, AnnotationAdded):
            part.annotations = (*part.annotations, event.annotation)
        return (event if part.number == event.part else replace(event, part=part.number),)

    def _mention(self, event: Progress | Noticed) -> Event:
        """A remark about a part; about none where that part is not told."""
        if event.part is None:
            return event
        part = self._open.get(event.part)
        number = None if part is None else part.number
        return event if number == event.part else replace(event, part=number)

    def _end(self, event: PartEnded) -> tuple[Event, ...]:
        part = self._open.pop(event.part)
        value = event.value
        if isinstance(value, Call) and value.executor == "client":
            return self._end_call(part, event, value)
        if part.held is not None:
            is_noise = isinstance(value, Result) and is_phantom(value)
            return () if is_noise else tuple(self._release(part, event))
        if part.number is None:
            return ()
        if part.is_cut:
            event = PartEnded(event.part, _text_of(part))
        return (event if part.number == event.part else replace(event, part=part.number),)

    def _end_call(self, part: _Open, event: PartEnded, call: Call) -> tuple[Event, ...]:
        turn = part.turn
        if part.held is not None:
            events = self._end_draft(part, event, call)
            if not events:
                return ()
        elif part.number is None:
            return ()
        else:
            events = [event if part.number == event.part else replace(event, part=part.number)]
        if call.status == "completed":
            turn.complete += 1
            if len(self._names) < _MAX_NAMED:
                self._names.append(call.name)
                self._ids.append(call.call_id)
            events += self._block(turn, call)
            turn.is_done = turn.is_done or (self._cuts and self._policy.stop_mode == "first")
        else:
            turn.broken += 1
        return (*events, *self._cut_if_done())

    def _end_draft(self, part: _Open, event: PartEnded, call: Call) -> list[Event]:
        """A call that was held until it is whole: told now, if it is another than those before and one more may be."""
        turn = part.turn
        key = key_of(call)
        if call.status == "completed" and key in turn.seen:
            return []
        if self._most and turn.told >= self._most:
            self._withheld += 1
            return []
        turn.seen.add(key)
        turn.told += 1
        return self._release(part, event)

    def _release(self, part: _Open, event: PartEnded) -> list[Event]:
        """Tell a part that was held, whole."""
        if part.held is None:
            raise AssertionError("expected a part that is held")
        started, rest = part.held
        part.held = None
        told: list[Event] = [self._announce(part, started)]
        told += [_numbered(each, part.number) for each in (*rest, event)]
        return told

    def _block(self, turn: Turn, call: Call) -> list[Event]:
        """The call as text, where the client reads its calls from text."""
        if self._policy.mode != "obsidian-xml":
            return []
        where = call.name
        if not judge(call).executable:
            self._book.note("use_tool_value", where, "its arguments are no JSON: there is no block")
            return []
        schema = self._schemas.get((call.name, call.namespace))
        rendered = render_block(call, schema=schema, escape=self._policy.xml_escape)
        actions = [self._book.note("use_tool_null", f"{where}.{key}") for key in rendered.nulls]
        if "carry" in actions:
            rendered = render_block(
                call, schema=schema, escape=self._policy.xml_escape, keep_null=True
            )
        actions = [self._book.note("use_tool_value", f"{where}.{key}") for key in rendered.misread]
        if "drop" in actions:
            return []
        text = turn.lead(self._policy.delimiter) + rendered.text
        turn.note_text(text)
        turn.follows_block = True
        number = self._count
        self._count += 1
        return [
            PartStarted(number, _NEW_TEXT, turn.index),
            TextDelta(number, text),
            PartEnded(number, Text(text=text)),
        ]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _cut_if_done(self) -> tuple[Event, ...]:
        """The end, if the policy has ended every choice and nothing is under way that was told."""
        turns = self._turns.values()
        is_done = len(turns) >= self._choices and all(
            turn.is_done or turn.is_finished for turn in turns
        )
        if self._hears_end or not (self._cuts and is_done):
            return ()
        if any(part.is_under_way for part in self._open.values()):
            return ()
        return self.cut()

    def _note_finish(self, event: Finished) -> Finished:
        turn = self._turn(event.choice)
        turn.is_finished = True
        if turn.is_done and turn.complete and not turn.broken:
            return replace(
                event, reason="tool_calls"
            )  # whatever became of the rest that is not told
        return event

    def _fail(self, event: Failed) -> tuple[Event, ...]:
        if self.is_stopped:
            return self.cut()
        turns = self._turns.values()
        is_whole = len(turns) >= self._choices and all(
            turn.complete and not turn.broken for turn in turns
        )
        if not (self._policy.finish_failed and is_whole):
            self.is_over = True
            return (event,)
        error = event.error
        self.problems.append(Problem(0, "error_after_calls", f"{error.kind}: {error.message}"))
        return self._finish()

    def _finish(self) -> tuple[Event, ...]:
        self.is_over = True
        finished = [
            Finished("tool_calls" if turn.complete else "stop", turn.index, inferred=True)
            for turn in self._turns.values()
            if not turn.is_finished
        ]
        return (*finished, Completed())


def _numbered(event: _AboutPart, number: int | None) -> Event:
    return event if number is None or number == event.part else replace(event, part=number)


def _text_of(part: _Open) -> Text | Refusal:
    text = "".join(part.pieces or ())
    header = part.header
    if isinstance(header, Refusal):
        return replace(header, text=text, status="completed")
    if isinstance(header, Text):
        return replace(header, text=text, annotations=part.annotations, status="completed")
    raise AssertionError("only a text has pieces")
