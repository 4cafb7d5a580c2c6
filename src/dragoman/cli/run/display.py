"""Shows a run as it happens: to a person on a screen (`Display`), or to a program as JSON lines (`EventLines`).

Everything that a model or a tool wrote is made safe before a person sees it: no control character reaches the terminal.

`--json` prints one JSON object per line on standard output: a description of the run, then the engine's events
(`engine.events`).
Everything else, such as questions and notes, goes to standard error.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Literal, cast

from msgspec import Struct, field

from dragoman._json import dumps, loads
from dragoman.cli.run.live_screen import TICK_SECONDS, LiveScreen, seconds
from dragoman.cli.run.markdown import MarkdownText
from dragoman.cli.screen import complain, counted, write
from dragoman.engine.events import (
    CallReported,
    CallSettled,
    CallStarted,
    Compacted,
    EngineEvent,
    ModelSpoke,
    Retried,
    RunEnded,
    Settlement,
    TurnEnded,
    TurnStarted,
)
from dragoman.errors import MalformedJson
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.terminal_text import Style, cut_to, excerpt, visible, visible_line, wrapped
from dragoman.model.events import (
    Event,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.outcome import Limits, LimitWindow, Usage
from dragoman.model.parts import Call, Media, Opaque, Reasoning, Refusal, Result, Text

Mark = Literal["good", "bad"]

_RESULT_LINES = 4  # enough to recognise a result; --json has all of it
_MAX_PARSED = 1_000_000  # characters of a call's input, which may contain a whole file
_SHOWN = 1000
_VALUE = 60
_MOST_VALUES = 4

_ENDS: dict[str, str] = {
    "max_turns": "stopped: the limit of turns is reached",
    "max_tokens": "stopped: the limit of tokens is reached",
    "max_time": "stopped: the limit of time is reached",
    "no_progress": "stopped: the same call was repeated without progress",
    "cancelled": "interrupted: running calls were stopped, the conversation so far is saved",
    "handed_over": "stopped: the model called a tool that is not run here",
}
_SETTLEMENTS: dict[Settlement, str] = {
    "done": "",
    "failed": "failed",
    "refused": "not run",
    "timed_out": "timed out",
    "aborted": "stopped",
}


def call_in_words(call: Call) -> str:
    """The tool and its input on one line of any length: `read README.md`."""
    name = call.name if call.namespace is None else f"{call.namespace}.{call.name}"
    shown = visible_line(" ".join(_input_in_words(call.input)[:_SHOWN].split("\n")))
    return f"{visible_line(name)} {shown}".rstrip()


def _input_in_words(text: str) -> str:
    if len(text) > _MAX_PARSED:
        return text
    try:
        value = cast("object", loads(text))
    except MalformedJson:
        return text
    if not isinstance(value, dict):
        return text
    words: list[str] = []
    for name, each in cast("dict[str, object]", value).items():
        shown = each if isinstance(each, str) else str(each)
        shown = shown if len(shown) <= _VALUE else f"{shown[:_VALUE]}…"
        words.append(shown if not words else f"{name}={shown}")
    more = "" if len(words) <= _MOST_VALUES else " …"
    return " ".join(words[:_MOST_VALUES]) + more


def mark_of(settled: CallSettled) -> Mark:
    return "good" if settled.how == "done" and not settled.result.is_error else "bad"


def result_lines(settled: CallSettled, width: int, more: str = "") -> Iterator[str]:
    """The first lines of a result, each of at most `width` cells, and a note on how long it is. `more`: how to see the rest."""
    word = _SETTLEMENTS[settled.how]
    text = _result_text(settled.result).strip("\n")
    if word:
        text = f"{word}: {text}" if text else word
    if not text:
        return
    shown = excerpt(text, width, _RESULT_LINES)
    yield from shown.lines
    if shown.is_cut:
        yield f"… {text.count(chr(10)) + 1:,} lines, {len(text):,} characters in all{more}"


def _result_text(result: Result) -> str:
    return "\n".join(map(_content, result.content))


def _content(part: Text | Media | Opaque) -> str:
    match part:
        case Text():
            return part.text
        case Media():
            return f"[{part.kind} {part.media_type or ''}]".replace(" ]", "]")
        case Opaque():
            return f"[{part.type}]"


def usage_in_words(usage: Usage) -> str:
    """`1,234 tokens in (800 cached), 56 out`; empty if nothing was counted."""
    if usage.input is None and usage.output is None:
        return ""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    return f"{usage.input or 0:,} tokens in{cached}, {usage.output or 0:,} out"


def limits_in_words(limits: Limits) -> str:
    return ", ".join(filter(None, map(_window, limits.windows)))


def _window(window: LimitWindow) -> str:
    name = visible_line(window.name)
    if window.used_percent is not None:
        return f"{name} {window.used_percent:.0f}% used"
    if window.remaining is not None:
        of = "" if window.limit is None else f" of {window.limit:,.0f}"
        return f"{name} {window.remaining:,.0f}{of} left"
    return ""


def end_in_words(ended: RunEnded) -> str:
    """Why the run ended, with the error; empty if the model answered."""
    error = "" if ended.error is None else visible_line(ended.error.message)
    if ended.reason == "failed":
        return f"failed: {error}" if error else "failed"
    reason = _ENDS.get(ended.reason, "")
    return f"{reason} ({error})" if reason and error else reason


# JSON allows these control characters without an escape, and a terminal may act on them.
_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class SessionStarted(Struct, frozen=True, kw_only=True, tag_field="type", tag="session_started"):
    """The first line of `--json`.

    turns: the number of turns from earlier runs. sandbox: a sentence on how commands are run.
    approval: what happens to calls that need approval: `asked`, `granted`, `refused`.
    """

    session: str
    root: str
    model: str
    upstreams: Sequence[str]
    tools: Sequence[str]
    turns: int = 0
    sandbox: str = ""
    approval: str = ""


class EventLines:
    """Shows a run to a program, as JSON lines. It has the methods of `Display`."""

    def start(self, started: SessionStarted) -> None:
        _write_line(started)

    async def observe(self, event: EngineEvent) -> None:
        _write_line(event)

    def note(self, text: str, style: Style = "faint") -> None:
        del style
        complain([text])

    def warn(self, text: str) -> None:
        complain([text])

    def end(self, ended: RunEnded, session_id: str) -> None:
        del ended, session_id  # the last event contains them

    def waiting(self, what: str) -> AbstractContextManager[None]:
        del what
        return nullcontext()

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


def _write_line(value: Struct) -> None:
    data = dumps(value)
    if not data.isascii():
        # Only strings contain such characters, and in a string an escape means the same character.
        data = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()
    write(data + b"\n")


_WAITING = "model"
_STARTING = "starting"
# Results that `/expand` can show, each of at most the engine's limit for one result.
_MAX_RESULTS = 200
_INDENT = "    "


class _RunState(Struct):
    """The state of the run so far."""

    began: float
    waited: float = 0.0  # how long the person had been asked before
    # The same when a call began, by its id: time in which the person decides is not the call's.
    asked: dict[str, float] = field(default_factory=dict[str, float])
    calls: int = 0
    limits: Limits | None = None
    # Calls whose input is arriving, by part.
    writing: dict[int, str] = field(default_factory=dict[int, str])
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    shown_parts: set[int] = field(default_factory=set[int])  # parts whose deltas were shown
    half: str = ""  # a carriage return, which may be the first half of a line end


class Display:
    """Shows a run on a screen. `is_quiet`: only the text of the model. `can_expand`: a person can type `/expand`."""

    def __init__(
        self,
        screen: LiveScreen,
        *,
        is_quiet: bool = False,
        can_expand: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._is_quiet = is_quiet
        self._can_expand = can_expand
        self._clock = clock
        self._run = _RunState(clock())
        self._is_running = False
        self._count = 0
        self._results: dict[int, CallSettled] = {}
        is_plain = not screen.can_write("✓✗│")
        self._signs = {"good": "+", "bad": "x"} if is_plain else {"good": "✓", "bad": "✗"}
        self._edge = "|" if is_plain else "│"
        self._dot = " - " if is_plain else " · "
        marks = {"bullet": "-", "edge": "|", "rule": "-"} if is_plain else {}
        self._markdown = MarkdownText(**marks) if screen.shows_styles else None

    async def observe(self, event: EngineEvent) -> None:
        match event:
            case ModelSpoke():
                self._hear(event.event)
            case TurnStarted():
                self._begin_turn()
            case CallStarted():
                self._run.asked[event.call.call_id] = self._screen.waited
                self._screen.set_row(f"call {event.call.call_id}", call_in_words(event.call))
            case CallReported():
                self._screen.set_detail(f"call {event.call_id}", visible_line(event.text))
            case CallSettled():
                self._settle(event)
            case TurnEnded():
                self._end_turn(event)
            case Retried():
                why = visible_line(event.error.message)
                self._finish_text()
                self._screen.clear_rows()
                self.note(f"{why}; asking again in {seconds(event.after)}", "bad")
            case Compacted():
                self.note(
                    f"the conversation was summarised: {event.turns_before} turns became {event.turns_after}"
                )
            case RunEnded():
                self._finish_text()
                self._screen.clear_rows()
                self._is_running = False

    def note(self, text: str, style: Style = "faint") -> None:
        """Show a message that is not an event of the engine."""
        if not self._is_quiet or style == "bad":
            self._show_text(visible_line(text), style)

    def _show_text(self, text: str, style: Style) -> None:
        """Show a line, or as many as a terminal needs for it."""
        lines = wrapped(text, self._screen.width) if self._screen.is_live else [text]
        self._screen.show(*((Span(line.rstrip() if line else "", style),) for line in lines))

    def warn(self, text: str) -> None:
        """Report a failure on standard error, even with `--quiet`."""
        self._screen.aside(lambda: complain([text]))

    def end(self, ended: RunEnded, session_id: str) -> None:
        """Show the counts after the last event, and before them why the run ended, unless the model answered.

        session_id: empty if the conversation is not kept.
        """
        why = end_in_words(ended)
        if why:
            self._show_text(why, "bad")
        run = self._run
        done = f"{counted(ended.turn_count, 'turn')}, {counted(run.calls, 'call')}"
        facts = [done, usage_in_words(ended.total)]
        if run.limits is not None:
            facts.append(limits_in_words(run.limits))
        facts += [
            seconds(self._clock() - run.began - (self._screen.waited - run.waited)),
            f"session {session_id}" if session_id else "not kept",
        ]
        if self._is_quiet:
            self._screen.show()  # ends the line
        else:
            self._show_text(self._dot.join(filter(None, facts)), "faint")

    @contextmanager
    def waiting(self, what: str) -> Generator[None]:
        """Show on a terminal what is being waited for, while the context lasts."""
        self._screen.set_row(_STARTING, visible_line(what))
        try:
            yield
        finally:
            self._screen.drop_row(_STARTING)

    def expand(self, number: int | None) -> None:
        """Show the whole result of a call; None: of the last one."""
        number = max(self._results, default=0) if number is None else number
        settled = self._results.get(number)
        if settled is None:
            known = f"{min(self._results)} to {max(self._results)}" if self._results else "none yet"
            self.note(f"expected the number of a call ({known}), got {number}", "bad")
            return
        self._screen.show((Span(f"{number}  {call_in_words(settled.call)}", "strong"),))
        text = visible(_result_text(settled.result).strip("\n"))
        self._screen.show(*((Span(f"  {self._edge} {line}"),) for line in text.split("\n")))

    def tick(self) -> None:
        """Update the rows that show the time; called regularly."""
        self._screen.tick()

    def close(self) -> None:
        """End the display: nothing more will be shown."""
        self._screen.clear_rows()
        self._screen.show()

    def _begin_turn(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._run = _RunState(self._clock(), self._screen.waited)
        run = self._run
        run.writing, run.sizes, run.shown_parts, run.half = {}, {}, set(), ""
        self._screen.set_row(_WAITING, "waiting for the model")

    def _end_turn(self, event: TurnEnded) -> None:
        self._run.limits = event.limits or self._run.limits
        self._finish_text()
        self._screen.clear_rows()

    def _hear(self, event: Event) -> None:
        run = self._run
        match event:
            case TextDelta():
                run.shown_parts.add(event.part)
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
            case Text() | Refusal():
                if part not in run.shown_parts:
                    self._speak(event.value.text)
                self._finish_text()
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
        # The column of a tab is not known here, so every tab becomes four spaces.
        shown = visible(whole.removesuffix("\r").replace("\t", "    "))
        if self._markdown is None:
            self._screen.say(shown)
        else:
            self._screen.say(tuple(self._markdown.feed(shown, self._screen.width)))

    def _finish_text(self) -> None:
        """Show what of the text was held back because it might have been markup."""
        if self._markdown is not None:
            self._screen.say(tuple(self._markdown.close(self._screen.width)))

    def _settle(self, event: CallSettled) -> None:
        self._run.calls += 1
        if self._is_quiet:
            self._screen.drop_row(f"call {event.call.call_id}")
            return
        width = self._screen.width
        mark = mark_of(event)
        asked = self._screen.waited - self._run.asked.pop(event.call.call_id, self._screen.waited)
        time_taken = seconds(max(event.elapsed - asked, 0.0))
        label = cut_to(call_in_words(event.call), width - len(time_taken) - 5)
        head: Line = (
            Span(f"{self._signs[mark]} ", mark),
            Span(label, "strong"),
            Span(f"  {time_taken}", "faint"),
        )
        more = ""
        if self._can_expand:
            self._count += 1
            self._results[self._count] = event
            self._results.pop(self._count - _MAX_RESULTS, None)
            more = f" (/expand {self._count})"
        rows = result_lines(event, width - len(_INDENT) - 1, more)
        below: list[Line] = [(Span(f"  {self._edge} {row}", "faint"),) for row in rows]
        self._screen.drop_row(f"call {event.call.call_id}")
        self._screen.show(head, *below)


Watcher = Display | EventLines
"""Shows a run, to a person or to a program."""


@asynccontextmanager
async def ticking(watcher: Watcher) -> AsyncGenerator[None]:
    """Update what shows the time, while the context lasts."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            watcher.tick()

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()
