"""What happens in a run, for a person who watches: words as they come, a line per call, how it ended.

Told by the engine's events; everything that a model or a tool wrote is made safe before it is shown.
"""

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from dragoman.cli.run.describing import (
    call_in_words,
    cut_to,
    end_in_words,
    limits_in_words,
    mark_of,
    result_lines,
    seconds,
    usage_in_words,
)
from dragoman.cli.run.live import LiveScreen
from dragoman.cli.screen import complain
from dragoman.engine.events import (
    CallReported,
    CallSettled,
    CallStarted,
    Compacted,
    EngineEvent,
    ModelSpoke,
    Retried,
    RunEnded,
    TurnEnded,
    TurnStarted,
)
from dragoman.inspection.layout import Line, Span, Style
from dragoman.inspection.visible import visible, visible_line
from dragoman.model.events import (
    Event,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.outcome import Limits
from dragoman.model.parts import Call, Reasoning, Refusal, Text

__all__ = ("Display", "Watcher")

_WAITING = "model"
_INDENT = "    "


class Watcher(Protocol):
    """Whoever shows a run: to a person, or to a program."""

    async def observe(self, event: EngineEvent) -> None: ...

    def note(self, text: str, style: Style = "faint") -> None:
        """Something that is not the engine's to tell."""
        ...

    def warn(self, text: str) -> None:
        """A failure that is reported whatever else is: on standard error."""
        ...

    def end(self, ended: RunEnded, session_id: str) -> None:
        """After the last event."""
        ...

    def tick(self) -> None:
        """A moment has passed."""
        ...

    def close(self) -> None:
        """Nothing more will be told, whatever was going on."""
        ...


class _Run(Struct):
    """What has been seen of the run so far."""

    began: float
    calls: int = 0
    limits: Limits | None = None
    writing: dict[int, str] = field(
        default_factory=dict[int, str]
    )  # calls whose input arrives, by part
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    spoken: set[int] = field(default_factory=set[int])  # parts of which deltas were told
    half: str = ""  # a carriage return, which may be half of a line's end


class Display:
    """On a screen. `is_quiet`: the words of the model alone."""

    def __init__(
        self,
        screen: LiveScreen,
        *,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._is_quiet = is_quiet
        self._clock = clock
        self._run = _Run(clock())
        self._is_running = False
        is_plain = not screen.can_write("✓✗│")
        self._signs = {"good": "+", "bad": "x"} if is_plain else {"good": "✓", "bad": "✗"}
        self._edge = "|" if is_plain else "│"

    async def observe(self, event: EngineEvent) -> None:
        match event:
            case ModelSpoke():
                self._hear(event.event)
            case TurnStarted():
                self._begin_turn()
            case CallStarted():
                self._screen.set_row(f"call {event.call.call_id}", call_in_words(event.call))
            case CallReported():
                self._screen.set_detail(f"call {event.call_id}", visible_line(event.text))
            case CallSettled():
                self._settle(event)
            case TurnEnded():
                self._end_turn(event)
            case Retried():
                why = visible_line(event.error.message)
                self._screen.clear_rows()
                self.note(
                    f"the answer broke off ({why}); asking again in {seconds(event.after)}", "bad"
                )
            case Compacted():
                self.note(
                    f"the conversation was summed up: {event.turns_before} turns became {event.turns_after}"
                )
            case RunEnded():
                self._screen.clear_rows()
                self._is_running = False

    def note(self, text: str, style: Style = "faint") -> None:
        if not self._is_quiet or style == "bad":
            self._screen.show((Span(visible_line(text), style),))

    def warn(self, text: str) -> None:
        self._screen.aside(lambda: complain([text]))

    def end(self, ended: RunEnded, session_id: str) -> None:
        """Why it ended if that is not plain, then the counts."""
        why = end_in_words(ended)
        if why:
            self._screen.show((Span(why, "bad"),))
        run = self._run
        turns = f"{ended.turn_count} turn{'' if ended.turn_count == 1 else 's'}"
        calls = f"{run.calls} call{'' if run.calls == 1 else 's'}"
        facts = [f"{turns}, {calls}", usage_in_words(ended.total)]
        if run.limits is not None:
            facts.append(limits_in_words(run.limits))
        facts += [seconds(self._clock() - run.began), f"session {session_id}"]
        if self._is_quiet:
            self._screen.show()  # ends the line
        else:
            self._screen.show((Span(" · ".join(filter(None, facts)), "faint"),))

    def tick(self) -> None:
        self._screen.tick()

    def close(self) -> None:
        self._screen.clear_rows()
        self._screen.show()

    def _begin_turn(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._run = _Run(self._clock())
        run = self._run
        run.writing, run.sizes, run.spoken, run.half = {}, {}, set(), ""
        self._screen.set_row(_WAITING, "waiting for the model")

    def _end_turn(self, event: TurnEnded) -> None:
        self._run.limits = event.limits or self._run.limits
        self._screen.clear_rows()

    def _hear(self, event: Event) -> None:
        run = self._run
        match event:
            case TextDelta():
                run.spoken.add(event.part)
                self._speak(event.text)
            case ReasoningDelta():
                self._screen.set_row(_WAITING, "thinking")
            case PartStarted(part=part, header=Call() as call) if call.executor != "provider":
                run.writing[part] = visible_line(call.name)
                self._screen.drop_row(_WAITING)
                self._screen.set_row(f"part {part}", f"{run.writing[part]} …")
            case InputDelta(part=part) if part in run.writing:
                run.sizes[part] = run.sizes.get(part, 0) + len(event.text)
                self._screen.set_detail(f"part {part}", f"{run.sizes[part]:,} characters")
            case PartEnded(part=part):
                self._end_part(part, event)
            case _:
                pass

    def _end_part(self, part: int, event: PartEnded) -> None:
        run = self._run
        match event.value:
            case Text() | Refusal() if part not in run.spoken and event.value.text:
                self._speak(event.value.text)
            case Call() if part in run.writing:
                self._screen.drop_row(f"part {part}")
            case Call() if event.value.executor == "provider":
                label = f"{call_in_words(event.value)} (run by the provider)"
                self.note(label)
            case Reasoning():
                self._screen.drop_row(_WAITING)
            case _:
                pass

    def _speak(self, text: str) -> None:
        self._screen.drop_row(_WAITING)
        whole = self._run.half + text
        self._run.half = "\r" if whole.endswith("\r") else ""
        # Which column a tab stands in is not known here: all of them are four spaces.
        self._screen.say(visible(whole.removesuffix("\r").replace("\t", "    ")))

    def _settle(self, event: CallSettled) -> None:
        self._run.calls += 1
        if self._is_quiet:
            self._screen.drop_row(f"call {event.call.call_id}")
            return
        width = self._screen.width
        mark = mark_of(event)
        time_taken = seconds(event.elapsed)
        label = cut_to(call_in_words(event.call), width - len(time_taken) - 5)
        head: Line = (
            Span(f"{self._signs[mark]} ", mark),
            Span(label, "strong"),
            Span(f"  {time_taken}", "faint"),
        )
        rows = result_lines(event, width - len(_INDENT) - 1)
        below: list[Line] = [(Span(f"  {self._edge} {row}", "faint"),) for row in rows]
        self._screen.drop_row(f"call {event.call.call_id}")
        self._screen.show(head, *below)
