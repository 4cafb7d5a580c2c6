"""Tool calls in one text: `scan_text` for a whole text, `TextScanner` for a text that streams.

    scanner = TextScanner(tools)
    for piece in pieces:
        events += scanner.feed(piece)
    events += scanner.finish("stop")

The scanner emits the events of parts (`PartStarted`, `TextDelta`, `InputDelta`, `PartEnded` …), numbered from 0. The
caller decides how the choice finishes, with `core.fold.settle_finish` and `scanner.calls`.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, loads
from dragoman.core.ids import Minter
from dragoman.errors import ConfigError
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.outcome import FinishReason, Problem
from dragoman.model.parts import Annotation, Call, PartStatus, Reasoning, Text
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import (
    CallBroken,
    CallEnded,
    CallFound,
    Found,
    InputFound,
    ProblemFound,
    TextFound,
    TextScan,
    ThoughtFound,
    gather,
)
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import openers_of
from dragoman.textcalls.registry import PatternRegistry, choose_patterns


def scan_text(
    text: str,
    tools: Iterable[object] | Offers | None,
    *,
    formats: str | Iterable[str] = "auto",
    model: str | None = None,
    finish: FinishReason = "stop",
    registry: PatternRegistry | None = None,
) -> TextScan:
    """Return the tool calls in a whole text.

    Examples:
        >>> text = 'Let me look.<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
        >>> scan = scan_text(text, [{"name": "weather", "input_schema": {"type": "object"}}])
        >>> scan.text, [(call.name, call.arguments) for call in scan.calls]
        ('Let me look.', [('weather', '{"city": "Oslo"}')])

    tools: those that the client offered, in any dialect's shape; a call of another tool is text. None: accept every name.
    finish: why the text ended; a truncated text has no call at its end.

    Raises:
        ConfigError: `formats` has an unknown name, `text` is not a string, or `tools` is not a list of tools.
    """
    _check_text(text)
    offers = _offers(tools)
    if not offers:
        return TextScan(text=text)
    patterns = choose_patterns(formats, model, registry)
    finder = Finder(openers_of(patterns, offers), offers)
    return gather([*finder.feed(text), *finder.finish(finish)])


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise ConfigError(f"expected the text as a string, got {type(text).__name__}")


def _offers(tools: object) -> Offers:
    if isinstance(tools, Offers):
        return tools
    kind = type(tools).__name__
    # Text and mappings can be iterated too, and no tool would be found in them: every call would stay text in silence.
    if tools is not None and (
        isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable)
    ):
        raise ConfigError(f"expected a list of tools, or None to accept every name; got {kind}")
    return Offers(cast("Iterable[object] | None", tools))


_NEW_TEXT = Text(status="in_progress")
_FREE_TEXT = "input"  # the parameter that carries the text of a free-text tool in a format that only has JSON


class CallIds:
    """The ids of one choice's calls: the model's own id the first time it occurs, otherwise a new one.

    used: the ids that are taken, if others give out ids too.
    """

    __slots__ = ("_mint", "_used")

    def __init__(self, seed: str = "", used: set[str] | None = None) -> None:
        self._mint = Minter(seed)
        self._used: set[str] = set() if used is None else used

    def __call__(self, call_id: str) -> str:
        if not call_id or call_id in self._used:
            call_id = self._mint("call_")
        self._used.add(call_id)
        return call_id


class _OpenCall(Struct, eq=False):
    """A call that has begun. The input of a free-text tool is emitted when its JSON is complete."""

    part: int
    call: Call
    is_free: bool
    pieces: list[str] = []


class FindingWriter:
    """Turns findings into events: a text between two calls, a call, and reasoning are one part each.

    The caller supplies part numbers, because other parts of the same answer count too. `header` begins the next text part.
    """

    def __init__(
        self, number: Callable[[], int], offers: Offers, identify: CallIds, *, choice: int = 0
    ) -> None:
        self.calls = 0  # complete calls
        self.problems: list[Problem] = []
        self.header: Text = _NEW_TEXT
        self.text_part: int | None = None
        self.is_fresh = True  # nothing was emitted yet
        self._number = number
        self.offers = offers
        self._identify = identify
        self._choice = choice
        self._texts: list[str] = []
        self._annotations: list[Annotation] = []
        self._thought: int | None = None
        self._thoughts: list[str] = []
        self._open: dict[int, _OpenCall] = {}

    def write(self, found: Iterable[Found]) -> list[Event]:
        """Return the events of the findings."""
        events: list[Event] = []
        for one in found:
            match one:
                case TextFound():
                    self.add_text(one.text, events)
                case ThoughtFound():
                    self._think(one.text, events)
                case CallFound():
                    self._begin(one, events)
                case InputFound():
                    self._grow(one, events)
                case CallEnded():
                    self._end(self._open.pop(one.index), "completed", events)
                case CallBroken():
                    self._end(self._open.pop(one.index), "incomplete", events)
                case ProblemFound():
                    self.problems.append(Problem(one.offset + 1, one.kind, one.message))
                case _:
                    assert_never(one)
        return events

    def add_text(self, text: str, events: list[Event], logprobs: Raw | None = None) -> None:
        """Add text for the reader to the open text part or a new one."""
        part = self.open_text(events)
        self._texts.append(text)
        events.append(TextDelta(part, text, logprobs))

    def open_text(self, events: list[Event]) -> int:
        """Return the number of the open text part; begin one if none is open."""
        if self.text_part is None:
            self._end_thought(events)
            self.text_part = self._number()
            self.is_fresh = False
            events.append(PartStarted(self.text_part, self.header, self._choice))
            events.extend(AnnotationAdded(self.text_part, one) for one in self._annotations)
        return self.text_part

    def note(self, text: str) -> None:
        """Add text that the caller has emitted itself to the open text part."""
        self._texts.append(text)

    def annotate(self, annotation: Annotation, events: list[Event]) -> None:
        """Add a citation to the open text part or the next one."""
        self._annotations.append(annotation)
        if self.text_part is not None:
            events.append(AnnotationAdded(self.text_part, annotation))

    def end_text(self, events: list[Event], status: PartStatus = "completed") -> None:
        """End the text part, if one is open."""
        if self.text_part is not None:
            text, annotations = "".join(self._texts), tuple(self._annotations)
            value = replace(self.header, text=text, annotations=annotations, status=status)
            events.append(PartEnded(self.text_part, value))
            self.text_part = None
            self.header = _NEW_TEXT
            self._texts.clear()
            self._annotations.clear()

    def end_all(self, events: list[Event], status: PartStatus = "completed") -> None:
        """End every open part."""
        self.end_text(events, status)
        self._end_thought(events)
        while self._open:
            _, call = self._open.popitem()
            self._end(call, "incomplete", events)

    def _think(self, text: str, events: list[Event]) -> None:
        if self._thought is None:
            self.end_text(events)
            self._thought = self._number()
            header = Reasoning(status="in_progress")
            events.append(PartStarted(self._thought, header, self._choice))
        self._thoughts.append(text)
        events.append(ReasoningDelta(self._thought, text, "content"))

    def _end_thought(self, events: list[Event]) -> None:
        if self._thought is not None:
            value = Reasoning(content=("".join(self._thoughts),))
            events.append(PartEnded(self._thought, value))
            self._thought = None
            self._thoughts.clear()

    def _begin(self, found: CallFound, events: list[Event]) -> None:
        self.end_text(events)
        self._end_thought(events)
        self.is_fresh = False
        name, namespace, is_free = self.offers.origin(found.name)
        call = Call(
            call_id=self._identify(found.call_id),
            name=name,
            namespace=namespace,
            kind="custom" if is_free else "function",
            status="in_progress",
        )
        part = self._number()
        self._open[found.index] = _OpenCall(part, call, is_free)
        events.append(PartStarted(part, call, self._choice))

    def _grow(self, found: InputFound, events: list[Event]) -> None:
        call = self._open[found.index]
        call.pieces.append(found.text)
        if not call.is_free:
            events.append(InputDelta(call.part, found.text))

    def _end(self, call: _OpenCall, status: PartStatus, events: list[Event]) -> None:
        text = "".join(call.pieces)
        if call.is_free:
            text = _free_text(text) if status == "completed" else ""
            if text:
                events.append(InputDelta(call.part, text))
        self.calls += status == "completed"
        events.append(PartEnded(call.part, replace(call.call, input=text, status=status)))


def _free_text(source: str) -> str:
    """Return the input of a free-text tool from the JSON of its call."""
    value = cast("dict[str, object]", loads(source))
    text = value.get(_FREE_TEXT, next(iter(value.values()), "")) if len(value) <= 1 else source
    return text if isinstance(text, str) else source


class TextScanner:
    """Scans one text while it streams.

    Examples:
        >>> scanner = TextScanner(None)
        >>> pieces = ("Hm.<tool", '_call>{"name":"f","arguments":{}}', "</tool_call>")
        >>> events = [event for piece in pieces for event in scanner.feed(piece)] + list(scanner.finish())
        >>> [type(event).__name__ for event in events if "Part" in type(event).__name__]
        ['PartStarted', 'PartEnded', 'PartStarted', 'PartEnded']
        >>> scanner.calls
        1

    tools: those that were offered, in any dialect's shape. With none, everything is text; None accepts every name.
    formats: `auto`, a format's name, or several. model: the model's name, whose profile adds formats to `auto`.
    stream: the formats whose arguments are emitted as they come; the others' arguments are emitted with the complete call.
    seed: makes the ids of the calls differ from those of other scanners.

    Raises:
        ConfigError: `formats` or `stream` has an unknown name, or `tools` is not a list of tools.
    """

    def __init__(
        self,
        tools: Iterable[object] | None,
        *,
        formats: str | Iterable[str] = "auto",
        model: str | None = None,
        stream: Iterable[str] = (),
        seed: str = "",
        registry: PatternRegistry | None = None,
    ) -> None:
        offers = _offers(tools)
        patterns = choose_patterns(formats, model, registry, stream=stream) if offers else ()
        self._finder = Finder(openers_of(patterns, offers), offers)
        self._writer = FindingWriter(count().__next__, offers, CallIds(seed))
        self._is_finished = False

    @property
    def calls(self) -> int:
        """How many complete calls were emitted."""
        return self._writer.calls

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems so far; `frame` is the position in characters, counted from 1."""
        return tuple(self._writer.problems)

    @property
    def held(self) -> str:
        """The text that is not emitted yet."""
        return self._finder.held

    def feed(self, text: str) -> tuple[Event, ...]:
        """Take a piece of the text.

        Raises:
            ConfigError: `text` is not a string.
            LocalProtocolError: the text is already finished.
        """
        _check_text(text)
        return tuple(self._writer.write(self._finder.feed(text)))

    def finish(self, reason: FinishReason = "stop") -> tuple[Event, ...]:
        """End the text. The end replaces a missing closer only if the reason means a complete answer."""
        if self._is_finished:
            return ()
        self._is_finished = True
        events = self._writer.write(self._finder.finish(reason))
        self._writer.end_all(events)
        return tuple(events)
