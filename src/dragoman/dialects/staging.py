"""What may stand between a decoder and an encoder: something that reads an answer, and may find it to be another.

A stage emits the events that it is given, later where it has to see how a text continues, until it finds something. Which stage
that is, and what it looks for, is not known here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol

from dragoman.core.restore import Restorer
from dragoman.model.events import Event, InputDelta, TextDelta

HeldText = tuple[int, int, bool]
"""What of a text the stage holds: its part, how much of it had come, and whether it had ended."""


class Stage(Protocol):
    """One answer on its way. `has_changed`: the stage has emitted something else than came; from then on only what it emits counts.

    is_thinking: reasoning is read too. is_reading: what is held is most likely no text.
    """

    has_changed: bool
    is_thinking: bool

    @property
    def is_reading(self) -> bool: ...

    @property
    def begins_in(self) -> Callable[[str], object]:
        """Says of a piece of text whether anything but text may begin in it: None if not."""
        ...

    @property
    def begins(self) -> Mapping[str, bool]:
        """The same for a token of a stream, which it may remember."""
        ...

    def feed(self, event: Event) -> tuple[Event, ...]:
        """What is emitted now."""
        ...

    def text_sink(self, part: int) -> Callable[[str], None] | None:
        """Where to put pieces of this text in which nothing begins, instead of feeding them, until something is fed."""
        ...

    def held_text(self, part: int) -> HeldText | None: ...

    def is_released(self, held: HeldText) -> bool: ...

    def number_of(self, part: int) -> int | None:
        """The number under which it emits a part, once it does."""
        ...


_NO_PART = -1


def _no_part(_part: int) -> bool:
    """Stands for `Restorer.passes` where there is no Restorer."""
    return False


class Scanning:
    """A stage and what follows it, for many events at a time: deltas of which nothing is to be made cost one look each."""

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

    def __init__(self, stage: Stage, restore: Callable[[Event], Iterable[Event]]) -> None:
        self._stage = stage
        # What is restored of a delta is known by its part; anything else must see each event.
        self._passes = restore.passes if isinstance(restore, Restorer) else _no_part
        self._restore = restore.feed if isinstance(restore, Restorer) else restore
        self._begins_in = stage.begins_in
        self._begins = stage.begins
        self._sink: Callable[[str], None] | None = None
        self._text = _NO_PART  # the text that the sink takes
        self._input = _NO_PART  # a call whose input passes as it comes

    def passes(self, event: Event) -> bool:
        """Whether an event is a piece of the open text in which nothing begins: then the stage has it, and it passes unchanged."""
        if type(event) is TextDelta and event.part == self._text:
            text, sink = event.text, self._sink
            if sink is not None and not self._begins[text]:
                sink(text)
                return True
        return False

    def passes_all(
        self, kind: type[TextDelta] | type[InputDelta], part: int, texts: Sequence[str]
    ) -> bool:
        """The same for deltas that came together."""
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
        """What becomes of them."""
        has_tried = self._sink is not None
        index = self._pass(events, 0)
        if index == len(events):
            return events
        emitted: list[Event] = [*events[:index]]
        while index < len(events):
            event = events[index]
            index += 1
            if type(event) is InputDelta and event.part == self._input:
                end = self._end_of_input(events, index)
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
                    has_tried = True  # once in a read: what was joined in vain is not joined again
                    end = self._pass(events, index)
                    emitted += events[index:end]
                    index = end
        return emitted

    def _pass(self, events: Sequence[Event], start: int) -> int:
        """Take all pieces of the open text from `start` on, if nothing begins in them; gives the first event not taken."""
        sink, part = self._sink, self._text
        if sink is None:
            return start
        rest = events[start:] if start else events
        texts = [event.text for event in rest if type(event) is TextDelta and event.part == part]
        if len(texts) < len(rest):
            # Something else is among them: only what stands before it.
            del texts[self._end_of_text(rest) :]
        end = start + len(texts)
        text = "".join(texts)
        if not text or self._begins_in(text) is not None:
            return start
        sink(text)
        return end

    def _end_of_text(self, events: Sequence[Event]) -> int:
        """Where the pieces of the open text end."""
        part, end = self._text, 0
        for event in events:
            if type(event) is not TextDelta or event.part != part:
                break
            end += 1
        return end

    def _end_of_input(self, events: Sequence[Event], start: int) -> int:
        """Where the input ends that passes as it comes."""
        part, end = self._input, start
        for event in islice(events, start, None):
            if type(event) is not InputDelta or event.part != part:
                break
            end += 1
        return end

    def _look_ahead(self, event: Event) -> None:
        """Whether the next deltas of the same part may pass without being fed."""
        self._sink, self._text, self._input = None, _NO_PART, _NO_PART
        if isinstance(event, TextDelta | InputDelta) and self._is_same(event.part):
            if isinstance(event, InputDelta):
                self._input = event.part
            else:
                self._sink, self._text = self._stage.text_sink(event.part), event.part

    def _is_same(self, part: int) -> bool:
        return self._stage.number_of(part) == part
