"""A stage between a decoder and an encoder: reads the text of an answer, and may replace some of it, for example by calls.

A stage emits the events that it is given until it finds something; it holds text back while it has to see how the text
continues. This module does not know which stages exist or what they look for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol

from dragoman.core.restore import Restorer
from dragoman.model.events import Event, InputDelta, TextDelta

HeldText = tuple[int, int, bool]
"""A mark in a text that the stage holds: the part, how many characters had arrived, and whether the text had ended."""


class Stage(Protocol):
    """Reads one answer. `has_changed`: the stage has emitted other events than it got; from then on only its events count.

    is_thinking: the stage reads reasoning too. is_reading: the held text is most likely a call, not text.
    """

    has_changed: bool

    @property
    def is_thinking(self) -> bool: ...

    @property
    def is_reading(self) -> bool: ...

    @property
    def begins_in(self) -> Callable[[str], object]:
        """A function that returns None for a piece of text in which nothing but text may begin."""
        ...

    @property
    def begins(self) -> Mapping[str, bool]:
        """For a token of a stream: whether anything but text may begin in it. The mapping may cache tokens."""
        ...

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take an event, and return the events to emit now."""
        ...

    def text_sink(self, part: int) -> Callable[[str], None] | None:
        """Return a function for pieces of this text in which nothing begins, in place of `feed`; valid until the next `feed`."""
        ...

    def held_text(self, part: int) -> HeldText | None: ...

    def is_released(self, held: HeldText) -> bool: ...

    def number_of(self, part: int) -> int | None:
        """Return the number under which the stage emits a part; None if it has not emitted the part yet."""
        ...


_NO_PART = -1


def _no_part(_part: int) -> bool:
    """Stands for `Restorer.passes` where there is no Restorer."""
    return False


def _same(event: Event) -> tuple[Event]:
    return (event,)


class Scanning:
    """Runs a stage and the change after it over many events at a time: a delta in which nothing begins costs one lookup."""

    __slots__ = (
        "_begins",
        "_begins_in",
        "_input",
        "_passes",
        "_restore",
        "_sink",
        "_stage",
        "_text",
    )

    def __init__(
        self, stage: Stage, restore: Callable[[Event], Iterable[Event]] | None = None
    ) -> None:
        self._stage = stage
        # A Restorer knows by the part whether it changes a delta; any other function must see each event.
        self._passes = restore.passes if isinstance(restore, Restorer) else _no_part
        self._restore = restore.feed if isinstance(restore, Restorer) else restore or _same
        self._begins_in = stage.begins_in
        self._begins = stage.begins
        self._sink: Callable[[str], None] | None = None
        self._text = _NO_PART  # the text that the sink takes
        self._input = _NO_PART  # a call whose input passes as it comes

    def passes(self, event: Event) -> bool:
        """Give the stage a piece of the open text in which nothing begins. False: the event must go through `feed`."""
        if type(event) is TextDelta and event.part == self._text:
            text, sink = event.text, self._sink
            if sink is not None and not self._begins[text]:
                sink(text)
                return True
        return False

    def passes_all(
        self, kind: type[TextDelta] | type[InputDelta], part: int, texts: Sequence[str]
    ) -> bool:
        """As `passes`, for deltas of one part that came together; also for the input of a call."""
        if kind is not TextDelta:
            return part == self._input and self._passes(part)
        sink = self._sink
        if sink is None or part != self._text:
            return False
        text = "".join(texts)
        if self._begins_in(text) is not None:
            return False
        sink(text)
        return True

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events to emit in place of `events`."""
        has_tried = self._sink is not None
        index = self._pass(events, 0)
        if index == len(events):
            return events
        emitted: list[Event] = [*events[:index]]
        while index < len(events):
            event = events[index]
            index += 1
            if type(event) is InputDelta and event.part == self._input:
                end = end_of_run(events, index, InputDelta, event.part)
                pieces = events[index - 1 : end]
                if self._passes(event.part):
                    emitted += pieces
                else:
                    emitted.extend(chain.from_iterable(map(self._restore, pieces)))
                index = end
            elif self.passes(event):
                emitted.append(event)
            else:
                for one in self._stage.feed(event):
                    emitted.extend(self._restore(one))
                self._look_ahead(event)
                if not has_tried and self._sink is not None:
                    has_tried = True  # once in a read: joining all texts again would make the work quadratic
                    end = self._pass(events, index)
                    emitted += events[index:end]
                    index = end
        return emitted

    def _pass(self, events: Sequence[Event], start: int) -> int:
        """Take all pieces of the open text from `start` on, if nothing begins in them. Returns the index after the last taken."""
        sink, part = self._sink, self._text
        if sink is None:
            return start
        rest = events[start:] if start else events
        texts = [event.text for event in rest if type(event) is TextDelta and event.part == part]
        if len(texts) < len(rest):
            # Other events are among them: take only the texts before the first of these.
            del texts[end_of_run(rest, 0, TextDelta, part) :]
        end = start + len(texts)
        text = "".join(texts)
        if not text or self._begins_in(text) is not None:
            return start
        sink(text)
        return end

    def _look_ahead(self, event: Event) -> None:
        """Note whether the next deltas of this event's part may pass without `feed`."""
        self._sink, self._text, self._input = None, _NO_PART, _NO_PART
        if isinstance(event, (TextDelta, InputDelta)) and self._is_same(event.part):
            if isinstance(event, InputDelta):
                self._input = event.part
            else:
                self._sink, self._text = self._stage.text_sink(event.part), event.part

    def _is_same(self, part: int) -> bool:
        return self._stage.number_of(part) == part


def end_of_run(
    events: Sequence[Event], start: int, kind: type[TextDelta | InputDelta], part: int
) -> int:
    """Return the index of the first event from `start` on that is not a delta of this kind and part."""
    end = start
    for event in islice(events, start, None):
        if not isinstance(event, kind) or event.part != part:
            break
        end += 1
    return end
