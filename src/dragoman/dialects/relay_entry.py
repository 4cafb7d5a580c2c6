"""Where the frames of a stream enter a relay: a FrameReader around the dialect's own. See `relay`.

Plain deltas, which are nearly all frames, are seen to here and passed on together; every other frame is handed to the
passage when its turn has come: at once, or when the stage that reads the text has told what the frame says.
"""

from collections.abc import Callable, Mapping, Sequence

from dragoman._json import escape_separators
from dragoman.core.runs import STRETCH, Run, RunReader
from dragoman.dialects.base import FrameReader
from dragoman.dialects.relay_hold import Hold, Waiting
from dragoman.dialects.relay_passage import BLANK, Passage
from dragoman.dialects.staging import Stage
from dragoman.model.events import (
    Event,
    InputDelta,
    LimitsReported,
    Noticed,
    ReasoningDelta,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo
from dragoman.sse import Frame

__all__ = ("Entry",)

_LF = 0x0A
_NO_PART = -1
_SHORT = frozenset({TextDelta, InputDelta})  # what is passed on without being told at once


class Entry:
    """One stream. `stage`: what reads its text; see `staging`."""

    padding: bytes | None = None

    def __init__(self, reader: FrameReader, passage: Passage, stage: Stage | None) -> None:
        self.over = False
        self.frame = 0
        self.found = reader.found
        self._reader = reader
        self._read_plain = reader.quick
        self._runs = RunReader(reader)
        self._passage = passage
        self._watch = passage.watch
        self._out = passage.out
        self._hold = None if stage is None else Hold(stage)
        # While nothing begins in the text that is read, its deltas are put where the stage finds them.
        self._begins_in: Callable[[str], object] = _never if stage is None else stage.begins_in
        self._begins: Mapping[str, bool] = {} if stage is None else stage.begins
        self._lane: Callable[[str], None] = _forget
        self._lane_part = _NO_PART

    def quick(self, piece: bytes, data: bytes, /) -> tuple[Event, ...] | None:
        events = self._read_plain(piece, data)
        if events is None:
            return None
        passage = self._passage
        if (
            events
            and passage.is_passing
            and not passage.is_wary
            and data.startswith(self._watch.head)
            and data.isascii()
        ):
            event, hold = events[0], self._hold
            is_free = False
            if type(event) is TextDelta:
                if hold is None:
                    is_free = True
                elif event.part == self._lane_part and not self._begins[event.text]:
                    self._lane(event.text)
                    is_free = True
            elif type(event) is InputDelta:
                is_free = hold is None or not hold.frames
            if is_free:
                passage.latest = event
                passage.last = data
                self._out.append(piece if piece[-1] == _LF else _whole(piece, data))
                return events
        self._take(_whole(piece, data), data, events)
        return events

    def quick_many(self, _opening: bytes, _lines: list[bytes], _told: list[Event], /) -> int:
        """A relay's frames are passed on by `run`."""
        return 0

    def prolong(self, _last: TextDelta | InputDelta, _texts: list[str], /) -> bool:
        return False

    def quick_run(self, _lines: list[bytes], /) -> Run | None:
        return None

    def run(self, opening: bytes, lines: list[bytes], start: int, /) -> tuple[int, bool]:
        """See `relay_decoder.PassingReader`."""
        at, runs = start, self._runs
        runs.begin()
        while runs.goes_on and at < len(lines):
            stretch = lines[at : at + STRETCH]
            run = runs.next_run(opening, stretch)
            if run is not None:
                count = len(run.texts)
                self._pass_run(opening, stretch[:count], run)
            else:
                told: list[Event] = []
                count = runs.next_events(opening, stretch, told)
                self._pass_many(opening, stretch[:count], told)
            at += count
        return at, runs.is_stopped

    def read(self, frame: Frame) -> tuple[Event, ...]:
        """Raises MalformedJson, as every reader: the stream fails there."""
        self._runs.forget()
        data = frame.data
        if data is not None and self._passage.is_passing and _is_spelled_otherwise(frame, data):
            events = self._read_plain(frame.raw, data)
            if events is not None:
                self._take(frame.raw, data, events)
                return events
        self._reader.frame = self.frame
        try:
            events = self._reader.read(frame)
        finally:
            self.over = self._reader.over
        if self._passage.is_passing:
            self._admit(Waiting(frame.raw, data, frame, events, tuple(self.found)))
        else:
            self._speak(events)
        return events

    def end(self) -> tuple[Event, ...]:
        events = self._reader.end()
        self.over = True
        if self._settle(events):
            self._passage.end(events, self.found)
        return events

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        events = self._reader.fail(error)
        self.over = True
        if self._settle(events):
            self._passage.say_instead((events,), error.kind)
        return events

    # --- plain deltas -----------------------------------------------------------------------------------------------------

    def _take(self, raw: bytes, data: bytes, events: tuple[Event, ...]) -> None:
        """A plain delta that was read."""
        passage = self._passage
        if not passage.is_passing:
            self._speak(events)
        elif self.found or (
            self._hold is not None and not (events and self._need_not_feed(self._hold, events[0]))
        ):
            self._admit(Waiting(raw, data, None, events, tuple(self.found)))
        else:
            passage.pass_plain(raw, data, events)

    def _need_not_feed(self, hold: Hold, event: Event) -> bool:
        """Whether a plain delta may pass without being fed to the stage. It is then where the stage finds it."""
        if type(event) is TextDelta:
            if event.part != self._lane_part or self._begins[event.text]:
                return False
            self._lane(event.text)
            return True
        if hold.frames:
            return False
        return type(event) is not ReasoningDelta or not hold.stage.is_thinking

    def _pass_many(self, opening: bytes, lines: list[bytes], told: list[Event]) -> None:
        """Plain deltas that were read together. Of the last nothing may be told, or something found in it."""
        if self.found or len(told) < len(lines):
            found = self.found.copy()
            self.found.clear()
            self._pass_many(opening, lines[:-1], told[: len(lines) - 1])
            self.found.extend(found)
            self._take(opening + lines[-1] + BLANK, lines[-1], tuple(told[len(lines) - 1 :]))
            return
        first = 0
        while first < len(told) and not self._may_pass(lines[first], told[first]):
            self._take(opening + lines[first] + BLANK, lines[first], (told[first],))
            first += 1
        if first:
            lines, told = lines[first:], told[first:]
        if not told:
            return
        raw = opening + (BLANK + opening).join(lines) + BLANK
        if self._pass_texts(lines, told, raw):
            self._passage.pass_run(raw, lines[-1], told[-1])
            return
        for line, event in zip(lines, told, strict=True):
            self._take(opening + line + BLANK, line, (event,))

    def _pass_run(self, opening: bytes, lines: list[bytes], run: Run) -> None:
        """The same for those of which only the texts were read."""
        raw = opening + (BLANK + opening).join(lines) + BLANK
        last = run.kind(run.part, run.texts[-1])
        if self._may_pass_run(lines, last) and _is_passable(raw) and self._put(run):
            self._passage.pass_run(raw, lines[-1], last)
            return
        for line, event in zip(lines, run.events(), strict=True):
            self._take(opening + line + BLANK, line, (event,))

    def _may_pass_run(self, lines: list[bytes], event: Event) -> bool:
        mould, head = self._runs.mould, self._watch.head
        if mould is not None:
            return self._may_pass(mould.head, event)
        return self._may_pass(lines[-1], event) and all(line.startswith(head) for line in lines)

    def _put(self, run: Run) -> bool:
        """Whether nothing begins in the texts of a run. They are then where the stage finds them."""
        if self._hold is None or run.kind is not TextDelta:
            return True
        text = "".join(run.texts)
        if self._begins_in(text) is not None:
            return False
        self._lane(text)
        return True

    def _may_pass(self, line: bytes, event: Event) -> bool:
        """Whether a delta, and those behind it, may need no look but at their texts."""
        passage, hold = self._passage, self._hold
        is_calm = passage.is_passing and not passage.is_wary
        if (
            not is_calm
            or (hold is not None and hold.frames)
            or not line.startswith(self._watch.head)
        ):
            return False
        if type(event) is TextDelta:
            return hold is None or event.part == self._lane_part
        return type(event) is InputDelta

    def _pass_texts(self, lines: list[bytes], told: list[Event], raw: bytes) -> bool:
        """Whether these deltas pass as they are. Their text is then where the stage finds it."""
        head = self._watch.head
        if [line for line in lines if not line.startswith(head)] or not _is_passable(raw):
            return False
        part = self._lane_part
        if self._hold is None:
            return _SHORT.issuperset(map(type, told))
        if type(told[0]) is InputDelta:
            return {InputDelta}.issuperset(map(type, told))
        texts = [event.text for event in told if type(event) is TextDelta and event.part == part]
        text = "".join(texts)
        if len(texts) < len(told) or self._begins_in(text) is not None:
            return False
        self._lane(text)
        return True

    # --- a stage that reads the text --------------------------------------------------------------------------------------

    def _admit(self, frame: Waiting) -> None:
        """Give the stage what a frame says, and pass the frame on when that has been told."""
        hold = self._hold
        if hold is None:
            self._passage.deliver(frame)
            return
        self._lane_part = _NO_PART
        frame.told = hold.feed(frame.events)
        if hold.stage.has_changed:
            self._tell_instead(hold, frame.told, "text_call")
            return
        frame.debts = hold.debts(frame.events)
        if hold.frames or frame.debts:
            self._wait(hold, frame)
        else:
            hold.note(frame.events)
            self._passage.deliver(frame)
        if not hold.frames:
            self._find_lane(hold, frame.events)

    def _wait(self, hold: Hold, frame: Waiting) -> None:
        hold.put(frame)
        # What has nothing to do with a block of text must not wait for its end.
        is_other = not frame.debts and hold.stage.is_reading and any(map(_is_content, frame.events))
        if is_other or hold.is_full:
            self._tell_instead(hold, (), "text_held")
        else:
            self._pass_all(hold)

    def _find_lane(self, hold: Hold, events: tuple[Event, ...]) -> None:
        """After a piece of text, where the next is to be put."""
        event = events[-1] if events else None
        if isinstance(event, TextDelta):
            lane = hold.stage.lane(event.part)
            if lane is not None:
                self._lane, self._lane_part = lane, event.part

    def _pass_all(self, hold: Hold) -> bool:
        """The frames that have waited long enough. Whether frames are still passed on."""
        passage = self._passage
        for frame in hold.take_paid():
            hold.note(frame.events)
            if passage.is_passing:
                passage.deliver(frame)
            else:
                passage.say(frame.events)
        if not passage.is_passing:
            for told in hold.take_told():
                passage.say(hold.renumber(told))
        return passage.is_passing

    def _settle(self, events: tuple[Event, ...]) -> bool:
        """The answer ends with these events, which no frame says. Whether they are still to be told."""
        passage, hold = self._passage, self._hold
        if not passage.is_passing:
            self._speak(events)
            return False
        if hold is None:
            return True
        told = hold.feed(events)
        if hold.stage.has_changed:
            self._tell_instead(hold, told, "text_call")
            return False
        if self._pass_all(hold):
            return True
        passage.say(events)
        return False

    def _tell_instead(self, hold: Hold, told: Sequence[Event], reason: str) -> None:
        """From here on the encoder speaks, of what the stage tells."""
        waiting = [hold.renumber(each) for each in (*hold.take_told(), told)]
        self._passage.say_instead(waiting, reason)

    def _speak(self, events: tuple[Event, ...]) -> None:
        hold = self._hold
        self._passage.say(events if hold is None else hold.renumber(hold.feed(events)))


def _never(_text: str) -> None:
    """Stands for a stage's `begins_in` where there is none."""


def _forget(_text: str) -> None:
    """Stands for a lane where there is none."""


def _is_content(event: Event) -> bool:
    return not isinstance(event, Noticed | UsageReported | LimitsReported)


def _is_passable(raw: bytes) -> bool:
    """Whether no client splits a line of these frames."""
    return raw.isascii() or escape_separators(raw) is raw


def _is_spelled_otherwise(frame: Frame, data: bytes) -> bool:
    """Whether a frame of one data line has CRLF, or no space after its colon: then plain deltas are not told apart."""
    is_usual = frame.raw.startswith((b"data: ", b"event: ")) and not frame.raw.endswith(b"\r\n")
    return not is_usual and not frame.invalid_utf8 and _LF not in data


def _whole(piece: bytes, data: bytes) -> bytes:
    """A plain frame: `piece` is all of it, or lacks its blank line, or ends before its data."""
    if piece[-1] == _LF:
        return piece
    return piece + BLANK if piece.endswith(data) else piece + data + BLANK
