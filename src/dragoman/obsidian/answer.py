"""Applies the Obsidian policy to one answer: events of the upstream in, events for the client out.

First the calls in the text are found, the text is cut at a stop sequence, and the client's names are restored. Then the
policy applies:

    a call of the client     sent, unless `max_calls` is reached, or (dedup) the same call was sent before
      its end                in `obsidian-xml`, a text part with its `<use_tool>` block follows
    text after a call        sent, unless the tail is suppressed; ends the turn if the policy stops after calls
    Failed after calls       with `finish_failed`, finished instead, because every call that was sent is complete
    anything after the end   dropped

By default a turn ends after calls that the model wrote as text, because such a model goes on and invents their results.
After such calls the answer is finished here, and `is_over` says that the rest of the upstream's answer is not needed.

Grammatical sequences in, grammatical sequences out: parts are renumbered, parts that are open at a cut are closed, and
each choice finishes once. Streams and bodies pass through the same code, so they get the same result.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman._json import dumps, dumps_canonical, loads
from dragoman.core.aliases import NameMap
from dragoman.core.call_input import judge
from dragoman.core.losses import LossRule, LossTable, answer_book
from dragoman.core.restore import Restorer
from dragoman.dialects.stop_sequences import StopStage
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Delta,
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
from dragoman.model.request import Request, Tool
from dragoman.obsidian.blocks import render_block
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.obsidian.settings import OutputMode, StopMode
from dragoman.textcalls.formats import USE_TOOL
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.stage import StageSettings, TextCallStage

LOSSES: LossTable = {
    "use_tool_value": LossRule(
        "Obsidian Copilot would read another value from the block; dropped: the block is left out",
        "carry",
    ),
    "use_tool_null": LossRule(
        "a block has no null; dropped: the parameter is left out, carried: it is the word `null`",
        "drop",
    ),
}
"""What a `<use_tool>` block cannot express for the client that reads it."""

_PATTERNS = (USE_TOOL,)  # one tuple for all answers, so that its openers are prepared once
_NEW_TEXT = Text(status="in_progress")
_MAX_NAMED = 32  # calls a log line names; all are counted

_AboutPart = Delta | PartEnded


class ObsidianReport(Struct, frozen=True, kw_only=True):
    """The result of an answer under the policy: the last comment of a stream, the headers of a body, and a log line.

    tool_call_count: calls that may be run. tool_call_truncated: whether calls of the model were withheld.
    """

    output_mode: OutputMode
    tool_call_count: int = 0
    tool_call_names: tuple[str, ...] = ()
    tool_call_ids: tuple[str, ...] = ()
    tool_call_truncated: bool = False
    stop_after_tools_mode: StopMode = "burst"

    @property
    def comment(self) -> str:
        facts = {
            "tool_call_count": self.tool_call_count,
            "tool_call_truncated": self.tool_call_truncated,
            "stop_after_tools_mode": self.stop_after_tools_mode,
        }
        return dumps(facts).decode()

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return (
            (b"x-codex-stop-after-tools-mode", self.stop_after_tools_mode.encode()),
            (b"x-codex-tool-call-count", b"%d" % self.tool_call_count),
            (b"x-codex-tool-call-truncated", b"true" if self.tool_call_truncated else b"false"),
        )

    @property
    def log_fields(self) -> dict[str, object]:
        return {
            "output_mode": self.output_mode,
            "has_tool_calls": self.tool_call_count > 0,
            "tool_call_count": self.tool_call_count,
            "tool_call_names": list(self.tool_call_names),
            "tool_call_ids": list(self.tool_call_ids),
            "tool_call_truncated": self.tool_call_truncated,
            "stop_after_tools_mode": self.stop_after_tools_mode,
        }


def formats_for(policy: ObsidianPolicy, formats: tuple[str, ...]) -> tuple[str, ...]:
    """The text formats to search for. If the client reads `<use_tool>` blocks, its model may write them too."""
    if policy.mode != "obsidian-xml" or formats == ("auto",) or USE_TOOL.name in formats:
        return formats
    return (*formats, USE_TOOL.name)


def stage_without_tools(
    policy: ObsidianPolicy, request: Request, seed: str
) -> TextCallStage | None:
    """The stage that finds `<use_tool>` blocks if the client declares no tools, but describes them in its prompt.

    Obsidian Copilot up to 3.1.5 does so. Every name is then accepted, and values have no types.
    """
    choice = request.tool_choice
    if policy.mode != "obsidian-xml" or (choice is not None and choice.mode == "none"):
        return None
    return TextCallStage(
        StageSettings(offers=Offers(None), patterns=_PATTERNS, policy=policy.tail), seed
    )


class _Choice(Struct, eq=False):
    """One choice of the answer: its calls so far, and the kind of text that was sent last."""

    index: int
    sent: int = 0  # calls that were begun for the client
    complete: int = 0  # of those, the calls that may be run
    broken: int = 0  # of those, the calls that may not be run
    seen: set[tuple[str, str, bytes]] = field(default_factory=set[tuple[str, str, bytes]])
    is_done: bool = False  # the policy has ended the choice: nothing more is sent
    is_finished: bool = False  # the upstream has ended the choice
    follows_block: bool = False  # a block was sent last
    needs_break: bool = False  # text was sent last, and its line has not ended

    def note_text(self, text: str) -> None:
        """Note that text was sent."""
        if text:
            self.follows_block = False
            self.needs_break = not text.endswith("\n")

    def lead(self, delimiter: str) -> str:
        """The text before the next block."""
        if self.follows_block:
            return delimiter
        return "\n" if self.needs_break else ""


class _Open(Struct, eq=False):
    """A part that has not ended. number: None until the part is sent. held: its events, if it is sent only when complete."""

    choice: _Choice
    header: Part
    number: int | None = None
    held: "tuple[PartStarted, list[_AboutPart]] | None" = None
    pieces: list[str] | None = None  # the pieces of a text that were sent
    is_cut: bool = False  # the rest of a text is dropped
    annotations: list[Annotation] = []

    @property
    def is_under_way(self) -> bool:
        """Whether the answer has to wait for the end of the part: it is sent or held, and is not text."""
        return self.pieces is None and (self.held is not None or self.number is not None)


class ObsidianAnswer:
    """One answer. `feed` takes an event of the upstream and returns the events for the client.

    tools: the client's, for the order of parameters. names: the client's names for the tools; None if the events have
    them already. text_calls: finds calls in the text, with the policy `policy.tail`; None: text is not searched.
    stops: cuts the text at a stop sequence.
    losses: the operator's actions. choices: how many the client requested.

    is_over: the answer has ended, and what the upstream still sends is dropped. is_stopped: the grace period ran out.
    is_cut: the answer ended before the upstream's did, so that the upstream is not read to its end.
    """

    def __init__(  # noqa: PLR0913 -- a policy, what the request offered, and the stages before it
        self,
        policy: ObsidianPolicy,
        *,
        tools: Iterable[Tool] = (),
        names: NameMap | None = None,
        text_calls: TextCallStage | None = None,
        stops: StopStage | None = None,
        losses: Mapping[str, LossAction] | None = None,
        choices: int = 1,
    ) -> None:
        self.is_over = self.is_stopped = self.is_cut = False
        self.grace = policy.grace  # seconds to wait for another call after the last one
        self._policy = policy
        self._chat = policy.chat
        self._text_calls = text_calls
        self._stops = stops
        self._restore: Callable[[Event], Iterable[Event]] | None = (
            None if names is None else Restorer(names).feed
        )
        tail = policy.tail
        # One of several choices may be over before another has begun, so with several the upstream is read to its end.
        self._cuts_text = tail.stop != "never" and tail.suppress_tail and choices == 1
        self._is_finishing = False
        self._is_complete = False
        self._problems: list[Problem] = []
        self._schemas = {(tool.name, tool.namespace): tool.schema for tool in tools}
        self._book = answer_book(LOSSES, losses or {})
        self._expected = choices
        self._cuts = self._chat.stop_after_tools is True
        self._suppresses = self._cuts or self._chat.suppress_tail_after_tools is True
        self._ends_at_first = self._cuts and self._chat.stop_after_tools_mode == "first"
        self._most = 1 if self._ends_at_first else self._chat.tool_block_max
        self._choices: dict[int, _Choice] = {}
        self._open: dict[int, _Open] = {}
        self._count = 0  # parts that were sent
        self._withheld = 0
        self._names: list[str] = []
        self._ids: list[str] = []

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._book.losses

    @property
    def problems(self) -> tuple[Problem, ...]:
        in_text = () if self._text_calls is None else self._text_calls.problems
        return (*in_text, *self._problems)

    @property
    def awaits_calls(self) -> bool:
        """Whether all calls so far are complete and the turn will be ended if no further call comes.

        The caller decides how long to wait for a further call.
        """
        choices = self._choices.values()
        has_held = self._text_calls is not None and self._text_calls.has_held_calls
        return (
            self._cuts
            and not self.is_over
            and len(choices) >= self._expected
            and all((choice.complete or has_held) and not choice.is_finished for choice in choices)
            and not any(part.is_under_way for part in self._open.values())
            and not (self._text_calls is not None and self._text_calls.is_holding)
        )

    @property
    def calls_begun(self) -> int:
        """A number that grows with each call, whether it was begun for the client or is held."""
        held = 0 if self._text_calls is None else self._text_calls.calls_held
        return held + sum(choice.sent for choice in self._choices.values())

    def report(self) -> ObsidianReport:
        """The result so far."""
        text_calls = self._text_calls
        is_truncated = text_calls is not None and text_calls.is_truncated
        return ObsidianReport(
            output_mode=self._policy.mode,
            tool_call_count=sum(choice.complete for choice in self._choices.values()),
            tool_call_names=tuple(self._names),
            tool_call_ids=tuple(self._ids),
            tool_call_truncated=is_truncated or self._withheld > 0,
            stop_after_tools_mode=self._chat.stop_after_tools_mode,
        )

    def comment(self) -> str:
        """The last comment of a stream."""
        return self.report().comment

    def expect_complete(self) -> None:
        """Read the answer to its end, which has the usage, and drop what the policy withholds: the whole body is available."""
        self._is_complete = True
        if self._stops is not None:
            self._stops.expect_complete()

    def stop(self) -> None:
        """End the answer with its calls: the grace period ran out. The failure that follows is not sent."""
        self.is_stopped = True

    def feed(self, event: Event) -> tuple[Event, ...]:
        """The events for the client."""
        if self.is_over:
            return ()
        text_calls = self._text_calls
        if text_calls is None:
            return self._send((event,))
        events = self._send(text_calls.feed(event))
        self._is_finishing = self._is_finishing or isinstance(event, Finished)
        if not self._cuts_text or self._is_finishing or self.is_over:
            return events
        if not (text_calls.calls and text_calls.is_done):
            return events
        if self._is_complete:
            events = (*events, *self._send(text_calls.release_calls()))
            # For these choices only the finish is still sent.
            for choice in self._choices.values():
                choice.is_done = True
            return events
        self.is_cut = True
        return (*events, *self._send(text_calls.finish_now()))

    def _send(self, events: Iterable[Event]) -> tuple[Event, ...]:
        stops = self._stops
        if stops is not None:
            events = [*chain.from_iterable(map(stops.feed, events))]
            self.is_cut = self.is_cut or stops.is_cut
        if self._restore is not None:
            events = chain.from_iterable(map(self._restore, events))
        return tuple(chain.from_iterable(map(self._apply, events)))

    def _apply(self, event: Event) -> tuple[Event, ...]:
        """The policy applied to one event, which has the client's names."""
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

    def _cut(self) -> tuple[Event, ...]:
        """End the answer here, before the upstream's end."""
        ended = [
            PartEnded(part.number, _text_of(part))
            for part in self._open.values()
            if part.number is not None
        ]
        self._open.clear()
        self.is_cut = True
        return (*ended, *self._finish())

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index)
        return choice

    # --- parts --------------------------------------------------------------------------------------------------------

    def _start(self, event: PartStarted) -> tuple[Event, ...]:
        choice = self._choice(event.choice)
        header = event.header
        part = self._open[event.part] = _Open(choice, header)
        if isinstance(header, Call) and header.executor == "client":
            return self._start_call(part, event)
        if isinstance(header, (Text, Refusal)):
            part.pieces = []
            if self._suppresses and choice.sent:
                return ()
        elif isinstance(header, Result):
            part.held = (event, [])  # only a complete result can be recognised as noise
            return ()
        return (self._number(part, event),)

    def _start_call(self, part: _Open, event: PartStarted) -> tuple[Event, ...]:
        choice = part.choice
        if choice.is_done or (self._most and choice.sent >= self._most):
            self._withheld += 1
            choice.is_done = choice.is_done or self._cuts
            return self._cut_if_done()
        if self._chat.tool_block_dedup:
            part.held = (event, [])
            return ()
        choice.sent += 1
        return (self._number(part, event),)

    def _number(self, part: _Open, event: PartStarted) -> PartStarted:
        number = part.number = self._count
        self._count += 1
        return event if number == event.part else replace(event, part=number)

    def _say(self, event: TextDelta) -> tuple[Event, ...]:
        part = self._open[event.part]
        choice = part.choice
        if choice.sent and self._suppresses:
            part.is_cut = True
            if self._cuts and event.text and not event.text.isspace():
                choice.is_done = True
                return self._cut_if_done()
            return ()
        if part.pieces is not None:
            part.pieces.append(event.text)
        choice.note_text(event.text)
        return self._pass(event)

    def _pass(self, event: _AboutPart) -> tuple[Event, ...]:
        part = self._open[event.part]
        if part.held is not None:
            part.held[1].append(event)
            return ()
        if part.number is None:
            return ()
        if isinstance(event, AnnotationAdded):
            part.annotations.append(event.annotation)
        return (event if part.number == event.part else replace(event, part=part.number),)

    def _mention(self, event: Progress | Noticed) -> Event:
        """The event without its part number if that part was not sent."""
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
            is_noise = isinstance(value, Result) and _is_phantom(value)
            return () if is_noise else tuple(self._release(part, event))
        if part.number is None:
            return ()
        if part.is_cut:
            event = PartEnded(event.part, _text_of(part))
        return (event if part.number == event.part else replace(event, part=part.number),)

    def _end_call(self, part: _Open, event: PartEnded, call: Call) -> tuple[Event, ...]:
        choice = part.choice
        if part.held is not None:
            events = self._end_draft(part, event, call)
            if not events:
                return ()
        elif part.number is None:
            return ()
        else:
            events = [event if part.number == event.part else replace(event, part=part.number)]
        if call.status == "completed":
            choice.complete += 1
            if len(self._names) < _MAX_NAMED:
                self._names.append(call.name)
                self._ids.append(call.call_id)
            events += self._block(choice, call)
            choice.is_done = choice.is_done or self._ends_at_first
        else:
            choice.broken += 1
        return (*events, *self._cut_if_done())

    def _end_draft(self, part: _Open, event: PartEnded, call: Call) -> list[Event]:
        """Send a call that was held until it was complete, unless it repeats another or `max_calls` is reached."""
        choice = part.choice
        key = _key_of(call)
        if call.status == "completed" and key in choice.seen:
            return []
        if self._most and choice.sent >= self._most:
            self._withheld += 1
            return []
        choice.seen.add(key)
        choice.sent += 1
        return self._release(part, event)

    def _release(self, part: _Open, event: PartEnded) -> list[Event]:
        """Send all events of a part that was held."""
        if part.held is None:
            raise AssertionError("expected a part that is held")
        started, rest = part.held
        part.held = None
        events: list[Event] = [self._number(part, started)]
        events += [_numbered(each, part.number) for each in (*rest, event)]
        return events

    def _block(self, choice: _Choice, call: Call) -> list[Event]:
        """The call as text, if the client reads its calls from text."""
        if self._policy.mode != "obsidian-xml":
            return []
        where = call.name
        if not judge(call).executable:
            self._book.note(
                "use_tool_value", where, "its arguments are not JSON: there is no block"
            )
            return []
        schema = self._schemas.get((call.name, call.namespace))
        rendered = render_block(call, schema=schema, escape=self._chat.xml_escape)
        actions = [self._book.note("use_tool_null", f"{where}.{key}") for key in rendered.nulls]
        if "carry" in actions:
            rendered = render_block(
                call, schema=schema, escape=self._chat.xml_escape, keep_null=True
            )
        actions = [self._book.note("use_tool_value", f"{where}.{key}") for key in rendered.misread]
        if "drop" in actions:
            return []
        text = choice.lead(self._chat.tool_block_delimiter) + rendered.text
        choice.note_text(text)
        choice.follows_block = True
        number = self._count
        self._count += 1
        return [
            PartStarted(number, _NEW_TEXT, choice.index),
            TextDelta(number, text),
            PartEnded(number, Text(text=text)),
        ]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _cut_if_done(self) -> tuple[Event, ...]:
        """The end of the answer, if the policy has ended every choice and every part that was sent is complete."""
        choices = self._choices.values()
        is_done = len(choices) >= self._expected and all(
            choice.is_done or choice.is_finished for choice in choices
        )
        if self._is_complete or not (self._cuts and is_done):
            return ()
        if any(part.is_under_way for part in self._open.values()):
            return ()
        return self._cut()

    def _note_finish(self, event: Finished) -> Finished:
        choice = self._choice(event.choice)
        choice.is_finished = True
        if choice.is_done and choice.complete and not choice.broken:
            # Another reason can only come from content that was dropped.
            return replace(event, reason="tool_calls")
        return event

    def _fail(self, event: Failed) -> tuple[Event, ...]:
        if self.is_stopped:
            return self._cut()
        choices = self._choices.values()
        is_whole = len(choices) >= self._expected and all(
            choice.complete and not choice.broken for choice in choices
        )
        if not (self._policy.finish_failed and is_whole):
            self.is_over = True
            return (event,)
        error = event.error
        self._problems.append(Problem(0, "error_after_calls", f"{error.kind}: {error.message}"))
        return self._finish()

    def _finish(self) -> tuple[Event, ...]:
        self.is_over = True
        finished = [
            Finished("tool_calls" if choice.complete else "stop", choice.index, inferred=True)
            for choice in self._choices.values()
            if not choice.is_finished
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
        return replace(header, text=text, annotations=tuple(part.annotations), status="completed")
    raise AssertionError("only a text has pieces")


def _is_phantom(result: Result) -> bool:
    """Whether a result only says that an MCP server is unknown.

    Codex asks for resources that no server has. Clients mistook the answer for a completed tool.
    """
    text = "".join(part.text for part in result.content if isinstance(part, Text)).lower()
    return "resources/list" in text and "unknown mcp server" in text


def _key_of(call: Call) -> tuple[str, str, bytes]:
    """Name and canonical arguments: calls with the same key are the same. Other input is compared as text."""
    name = f"{call.namespace or ''}/{call.name}"
    if call.kind == "function":
        try:
            value: object = loads(call.input or "{}")
        except MalformedJson:
            pass
        else:
            return name, "json", dumps_canonical(value)
    return name, "text", call.input.encode("utf-8", "surrogatepass")
