"""Cuts an answer at a stop sequence, for upstreams that have no stop sequences. Events in, events out; no I/O.

    text        searched; the text before the first sequence to be complete is emitted, the sequence and what follows is not
    other parts tool input, reasoning and refusals are not searched; what began before the cut is emitted to its end
    the end     `stop_sequence` with the sequence; `tool_calls` if there are complete calls for the client (`core.fold`)

Text is held back only while it may be the beginning of a sequence. A sequence is found within one text part, wherever the
deltas are cut. It is found where it ends: of `ab` and `b` in `cab`, both end at the same character, and the longer one counts.

The stage comes after the one that finds calls in text (`textcalls.stage`), so the input of a written call is not searched
either, and neither is its markup.

A stream ends at the cut: `is_over` says that the caller can close the upstream's reply. The usage comes after it and is not
known then. A body is there already, so it is read to its end, which has the usage (`expect_complete`).

Upstreams without stop sequences give one choice, and the stage handles only one.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman.core.fold import settle_finish
from dragoman.errors import RequestRefused
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Loss, Problem
from dragoman.model.parts import Annotation, Call, Text

MAX_CHARACTERS = 16_384
"""All stop sequences together. The stage holds up to this many characters; real sequences have some dozens."""

_ABOUT_NO_PART = (Started, UsageReported, LimitsReported, Finished, Failed, Completed)


class SequenceFinder:
    """Finds the first place in a text where one of the sequences is complete: the automaton of Aho and Corasick.

    A state is the longest end of the text so far that is a beginning of a sequence; `depths` has its length. The work for
    each character does not depend on the number of sequences. State 0 is not a beginning of any.
    """

    def __init__(self, sequences: Iterable[str]) -> None:
        self.depths = [0]
        self._steps: list[dict[str, int]] = [{}]
        self._complete: list[str] = [""]  # the longest sequence that ends with this state
        for sequence in sequences:
            self._add(sequence)
        self._shorter = [0] * len(self._steps)  # the next shorter beginning
        self._link()
        firsts = "".join(map(re.escape, self._steps[0]))
        self._begins = re.compile(f"[{firsts}]").search

    def _add(self, sequence: str) -> None:
        state = 0
        for character in sequence:
            known = self._steps[state].get(character)
            if known is None:
                known = self._steps[state][character] = len(self._steps)
                self._steps.append({})
                self.depths.append(self.depths[state] + 1)
                self._complete.append("")
            state = known
        self._complete[state] = sequence

    def _link(self) -> None:
        """Link each state to the next shorter one, breadth first: shorter states are linked before longer ones."""
        steps, shorter, complete = self._steps, self._shorter, self._complete
        states = deque(steps[0].values())
        while states:
            state = states.popleft()
            for character, longer in steps[state].items():
                shorter[longer] = self._step(shorter[state], character)
                complete[longer] = complete[longer] or complete[shorter[longer]]
                states.append(longer)

    def _step(self, state: int, character: str) -> int:
        steps, shorter = self._steps, self._shorter
        while state and character not in steps[state]:
            state = shorter[state]
        return steps[state].get(character, 0)

    def is_plain(self, text: str) -> bool:
        """Whether no sequence begins in a piece of text."""
        return self._begins(text) is None

    def find(self, text: str, state: int = 0) -> tuple[int, int, str]:
        """Read a piece of text from this state: return the state and place after it, and "", or those after a sequence and it."""
        complete, at = self._complete, 0
        while at < len(text):
            if not state:
                begins = self._begins(text, at)
                if begins is None:
                    break
                at = begins.start()
            state = self._step(state, text[at])
            at += 1
            if complete[state]:
                return state, at, complete[state]
        return state, len(text), ""


class _OpenText(Struct, eq=False):
    """A text part. `held`: deltas, or the ends of them, that were not emitted; `size`: how many characters they have."""

    header: Text
    state: int = 0
    held: deque[TextDelta] = field(default_factory=deque[TextDelta])
    size: int = 0
    emitted: list[str] = []
    annotations: list[Annotation] = []

    def release(self, keep: int = 0, *, is_cut: bool = False) -> list[Event]:
        """Emit held text, but not the last `keep` characters. A delta with logprobs is split only by the cut."""
        events: list[Event] = []
        free = self.size - keep
        while self.held:
            delta = self.held[0]
            size = len(delta.text)
            if size > free:
                if not free or (delta.logprobs is not None and not is_cut):
                    break
                self.held[0] = TextDelta(delta.part, delta.text[free:])
                delta, size = TextDelta(delta.part, delta.text[:free]), free
            else:
                self.held.popleft()
            free -= size
            self.size -= size
            self.emitted.append(delta.text)
            events.append(delta)
        return events

    def value(self) -> Text:
        """The text that was emitted."""
        text, annotations = "".join(self.emitted), tuple(self.annotations)
        return replace(self.header, text=text, annotations=annotations, status="completed")


class StopStage:
    """Cuts one answer. `feed` takes an event of the upstream and returns the events for the client.

    is_over: the answer has ended, and what the upstream still sends is dropped. is_cut: it ended before the upstream's did.
    """

    is_stopped = False
    problems: Sequence[Problem] = ()
    losses: Sequence[Loss] = ()

    def __init__(self, sequences: Sequence[str]) -> None:
        self.is_over = self.is_cut = False
        self._finder = SequenceFinder(sequences)
        self._found = ""  # the sequence that ended the text
        self._is_complete = False
        self._texts: dict[int, _OpenText] = {}
        self._open: set[int] = set()  # other parts that have not ended
        self._calls = 0  # complete calls of the client
        self._is_broken = False  # a call that was open at the cut did not become complete
        self._is_finished = False

    def expect_complete(self) -> None:
        """Read the answer to its end, which has the usage, also behind the cut: the whole body is available."""
        self._is_complete = True

    def feed(self, event: Event) -> tuple[Event, ...]:
        if self._found:
            return self._feed_rest(event)
        match event:
            case TextDelta() if event.part in self._texts:
                return self._grow(self._texts[event.part], event)
            case PartStarted():
                if isinstance(event.header, Text):
                    self._texts[event.part] = _OpenText(event.header)
                else:
                    self._open.add(event.part)
            case AnnotationAdded() if event.part in self._texts:
                self._texts[event.part].annotations.append(event.annotation)
            case PartEnded():
                return self._end(event)
            case Failed() | Completed():
                self.is_over = True
            case _:
                pass
        return (event,)

    def _grow(self, text: _OpenText, event: TextDelta) -> tuple[Event, ...]:
        finder = self._finder
        if not text.state and not text.held and finder.is_plain(event.text):
            text.emitted.append(event.text)
            return (event,)
        text.state, end, found = finder.find(event.text, text.state)
        text.held.append(event)
        text.size += len(event.text)
        if not found:
            return tuple(text.release(finder.depths[text.state]))
        events = text.release(len(event.text) - end + len(found), is_cut=True)
        text.held.clear()
        return (*events, *self._cut(event.part, text.value(), found))

    def _end(self, event: PartEnded) -> tuple[Event, ...]:
        text, value = self._texts.get(event.part), event.value
        if text is None:
            self._note_end(event)
            return (event,)
        if event.amended and isinstance(value, Text):
            _, end, found = self._finder.find(value.text)
            if found:
                value = replace(value, text=value.text[: end - len(found)])
                return self._cut(event.part, value, found, amended=True)
        del self._texts[event.part]
        return (*text.release(), event)

    def _note_end(self, event: PartEnded) -> None:
        self._open.discard(event.part)
        value = event.value
        if isinstance(value, Call) and value.executor == "client":
            is_whole = value.status == "completed"
            self._calls += is_whole
            self._is_broken = bool(self._found) and (self._is_broken or not is_whole)

    def _cut(
        self, part: int, value: Text, found: str, *, amended: bool = False
    ) -> tuple[Event, ...]:
        """End the text at a sequence, and other open texts where they are; then the answer, unless other parts are open."""
        self._found = found
        events: list[Event] = [PartEnded(part, value, amended)]
        del self._texts[part]
        for number, text in self._texts.items():
            events += (*text.release(), PartEnded(number, text.value()))
        self._texts.clear()
        return (*events, *self._end_answer())

    # --- behind the cut -------------------------------------------------------------------------------------------------

    def _feed_rest(self, event: Event) -> tuple[Event, ...]:
        """Take an event behind the cut: only the parts that were open there, and the end, are still emitted."""
        if self.is_over:
            return ()
        match event:
            case Finished():
                self._is_finished = True
                return (event if self._is_broken else self._finished(),)
            case Failed():
                self.is_over = True
                if self._is_broken:
                    return (event,)
                return (Completed(),) if self._is_finished else (self._finished(), Completed())
            case Completed():
                self.is_over = True
                return (event,)
            case UsageReported() | LimitsReported():
                return (event,)
            case PartEnded() if event.part in self._open:
                self._note_end(event)
                return (event, *self._end_answer())
            case _:
                is_open = not isinstance(event, _ABOUT_NO_PART) and event.part in self._open
                return (event,) if is_open else ()

    def _end_answer(self) -> tuple[Event, ...]:
        """The end of a stream, once the parts that were open at the cut have ended."""
        if self._open or self._is_complete or self._is_broken:
            return ()
        self.is_over = self.is_cut = True
        return (self._finished(), Completed())

    def _finished(self) -> Finished:
        reason = settle_finish("stop_sequence", has_complete_client_calls=self._calls > 0)
        sequence = self._found if reason == "stop_sequence" else None
        return Finished(reason, stop_sequence=sequence, inferred=True)


def stop_stage(sequences: Sequence[str]) -> StopStage | None:
    """The stage that cuts an answer at these sequences; None if there are none. An empty sequence matches nothing.

    Raises:
        RequestRefused: the sequences are longer than `MAX_CHARACTERS`.
    """
    if not any(sequences):
        return None
    size = sum(map(len, sequences))
    if size > MAX_CHARACTERS:
        raise RequestRefused(
            f"expected stop sequences of at most {MAX_CHARACTERS:,} characters together, got {size:,}",
            param="stop",
        )
    return StopStage(tuple(filter(None, sequences)))
