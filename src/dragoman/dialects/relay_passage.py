"""The frames of a stream on their way out, in order: each passed on, held, left out or told anew. See `relay`."""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise

from msgspec.structs import replace

from dragoman._json import dumps_text, escape_separators
from dragoman.core.aliases import NameMap
from dragoman.core.members import replace_member
from dragoman.core.restore import Restorer
from dragoman.core.tally import NOTED, Tally
from dragoman.dialects.base import Look, Mark
from dragoman.dialects.relay_hold import Fault, Waiting
from dragoman.dialects.translate import SerialEncoder
from dragoman.dialects.watching import Watch
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Call, Opaque
from dragoman.sse import Frame

__all__ = ("BLANK", "BLANKS", "Passage")

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
BLANK = b"\n\n"
BLANKS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""What ends a frame: as we write it, and as others do."""
_PING = Noticed("ping")

_NAMED = frozenset({PartStarted, InputDelta, PartEnded, Finished})  # what `core.restore` may change
_UNNAMED = frozenset({TextDelta, ReasoningDelta})  # no name to restore, nothing to note

_TELLING_FRAGMENTS = 3
"""A wire that resends everything shows it by the third fragment of a call (`core.calls.InputBuffer`)."""

_MANY = 512
"""Thoughts the encoder may be behind by. Telling it of many at once is cheaper; keeping all would hold each twice."""


# What clients gather from deltas alone.
_TELLING = (TextDelta, ReasoningDelta, InputDelta)


class _Verdict(Enum):
    REGULAR = auto()
    EARLY = auto()  # ahead of what the encoder knows: to be held
    IRREGULAR = auto()


class Passage:
    """`is_passing` until the encoder had to speak, for the `reason` given then. `tally` counts what the client sees."""

    def __init__(self, watch: Watch, *, model: str | None, names: NameMap | None) -> None:
        self.is_passing = True
        self.reason = ""
        self.tally = Tally()
        self.encoder = SerialEncoder(watch.encoder)
        self.watch = watch
        self._model = model
        self._restore = Restorer(names).feed if names is not None else None
        self.out: list[bytes] = []  # what the client gets; `take` it
        self._held: list[tuple[bytes, bytes]] = []  # frames, and what the encoder says instead
        self._ahead: dict[object, list[Mark]] = {}  # lane -> marks the encoder has not made yet
        self._owed = 0  # characters of input that frames brought and no event has told
        # Of plain deltas the encoder is told later, and only what it keeps: that there was one, and what was thought.
        self.latest: Event | None = None
        self._thoughts: list[ReasoningDelta] = []
        self._fragments = 0  # of the open call, still to be compared with what is told of them
        self.is_wary = False  # fragments are to be compared, or frames are held
        self.last = b""  # the data of the last frame that was passed on
        self._opaque: set[int] = set()
        self._streamed: set[int] = set()  # calls for the client, whose input comes as text
        self._faults: Sequence[Fault] = ()  # what the reader found in the frame at hand

    def take(self) -> bytes:
        """What the client gets by now."""
        out = self.out
        if len(out) == 1:
            return out.pop()
        data = b"".join(out)
        out.clear()
        return data

    def keep_alive(self) -> bytes:
        return self.watch.keep_alive() if self.is_passing else self.encoder.encode(_PING)

    # --- frames whose turn has come -------------------------------------------------------------------------------------

    def deliver(self, frame: Waiting) -> None:
        """Pass a frame on, hold it, leave it out, or give up passing frames on."""
        data = frame.data
        self._faults = frame.found
        if frame.frame is None:
            if data is not None:
                self.pass_plain(frame.raw, data, frame.events)
        elif data is None:
            if frame.frame.comment is not None or not frame.raw.strip():
                self._pass_comment(frame.raw)
            # Any other frame without data is left out: there are clients that try to parse what is not there.
        elif data.strip():
            self._judge(frame.frame, data, frame.events)
        self._faults = ()

    def pass_run(self, raw: bytes, last: bytes, latest: Event) -> None:
        """Plain deltas that need no look: all begin with the watch's `head`. `last`: the data of the last of them."""
        self.last = last
        self.latest = latest
        self.out.append(raw)

    def end(self, events: tuple[Event, ...], faults: Sequence[Fault]) -> None:
        """The wire has ended, with these events that no frame says."""
        self._faults = faults
        ending = self.watch.ending
        restored = self._restored(events)
        shadow = self._encode(restored)
        reason = self._problem(but="missing_end")
        is_whole = isinstance(events[-1], Completed) and not reason
        look = Look(tuple(self.watch.outline(ending)))
        if (
            ending
            and is_whole
            and restored == events
            and self._compare(look, shadow, restored) is _Verdict.REGULAR
        ):
            self._release(ending)
        else:
            self._turn(shadow, reason or "out_of_step")

    def say_instead(self, told: Iterable[Sequence[Event]], reason: str) -> None:
        """From here on the encoder speaks; first of these events, as frames had them."""
        said = [event for frame in told if not self._is_stray(None, frame) for event in frame]
        self._turn(self._encode(self._restored(said)), reason)

    def say(self, events: Sequence[Event]) -> None:
        """What the encoder says of a frame."""
        if len(events) == 1 and self.encoder.serializer.is_idle:
            kind = type(events[0])
            if kind in _UNNAMED or (kind is InputDelta and self._restore is None):
                self.out.append(self.encoder.dialect.encode(events[0]))
                return
        told = self._restored(events)
        self._note(told)
        if not self._is_stray(None, told):
            self.out.append(self.encoder.encode_all(told))

    # --- plain deltas -----------------------------------------------------------------------------------------------------

    def pass_plain(self, raw: bytes, data: bytes, events: tuple[Event, ...]) -> None:
        """A plain delta where something may be to be looked at, or to be changed."""
        line = self.watch.plain(data)
        reason = self._problem() if self._faults else ""
        if self._fragments and self._is_misread(data, events):
            reason = reason or "cumulative_input"
        if line is None or reason:
            self._turn(self._encode(events), reason or "unusable_frame")
            return
        if not line.isascii():
            line = escape_separators(line)
        if line is not data:
            raw = _replaced(raw, data, line)
        if self._held:
            self._held.append((raw, self._encode(events)))
            return
        self.last = data
        for event in events:
            if type(event) is ReasoningDelta:
                self._keep_thought(event)
            else:
                self.latest = event
        self.out.append(raw)

    def _is_misread(self, data: bytes, events: tuple[Event, ...]) -> bool:
        """Whether a fragment of input was not told as it came: the wire resends everything, or may be doing so."""
        event = events[0] if events else None
        if event is not None and not isinstance(event, InputDelta):
            return False
        said = self.watch.input_size(data)
        if said:
            self._fragments -= 1
            self.is_wary = self._fragments > 0 or bool(self._held)
        return said != (0 if event is None else len(event.text))

    def _keep_thought(self, event: ReasoningDelta) -> None:
        self._thoughts.append(event)
        if len(self._thoughts) >= _MANY:
            self._tell_plain()

    def _tell_plain(self) -> None:
        """Tell the encoder of the deltas that were passed on without it. Thoughts it repeats at their end."""
        if self._thoughts:
            first, text = self._thoughts[0], "".join([event.text for event in self._thoughts])
            self._thoughts.clear()
            self.encoder.encode(replace(first, text=text))
        if self.latest is not None:
            self.encoder.encode(self.latest)
            self.latest = None

    # --- all other frames ---------------------------------------------------------------------------------------------------

    def _judge(self, frame: Frame, data: bytes, events: tuple[Event, ...]) -> None:
        restored = self._restored(events)
        look = None if _LF in data else self.watch.look(frame, data)
        if self._is_stray(look, restored):
            self._encode([event for event in restored if not isinstance(event, Noticed)])
            return
        if look is not None and look.is_error and not self._held and not frame.invalid_utf8:
            self._note(restored)
            self.out.append(self._raw(frame, data, look) or frame.raw)
            return
        shadow = self._encode(restored)
        raw = None if look is None else self._raw(frame, data, look)
        reason = self._objection(frame, events, restored)
        if look is None or raw is None or reason:
            self._turn(shadow, reason or "unusable_frame")
            return
        if look.is_settled:
            shadow += self.watch.catch_up()
        verdict = self._compare(look, shadow, restored)
        if verdict is _Verdict.REGULAR:
            self.last = data
            self._release(raw)
        elif verdict is _Verdict.EARLY and not _is_end(restored):
            self._held.append((raw, shadow))
            self.is_wary = True
        else:
            self._turn(shadow, "out_of_step")

    def _objection(
        self, frame: Frame, events: tuple[Event, ...], restored: tuple[Event, ...]
    ) -> str:
        """What speaks against a frame besides its own look; "" for nothing."""
        problem = self._problem(but="unknown_delta" if self._is_about_opaque(events) else "")
        if problem:
            return problem
        if frame.invalid_utf8:
            return "invalid_utf8"
        if restored != events:
            return "restored_name"
        if self.watch.is_repetition and any(isinstance(event, _TELLING) for event in events):
            return "untold_content"
        is_amended = any(isinstance(event, PartEnded) and event.amended for event in events)
        return "amended_part" if is_amended else ""

    def _is_stray(self, look: Look | None, events: Sequence[Event]) -> bool:
        """Whether a frame is left out: it says nothing that an answer consists of, and some client stumbles over it."""
        if look is not None and look.is_stray:
            return not self._is_about_opaque(events)
        if not events or not isinstance(events[0], Noticed):
            return False
        is_unknown = [isinstance(event, Noticed) and event.kind == "unknown" for event in events]
        return all(is_unknown) and not self._is_about_opaque(events)

    def _is_about_opaque(self, events: Sequence[Event]) -> bool:
        opaque = self._opaque
        return bool(opaque) and any(
            isinstance(event, Noticed) and event.part in opaque for event in events
        )

    def _raw(self, frame: Frame, data: bytes, look: Look) -> bytes | None:
        """The frame as it is passed on; None if the model's name cannot be replaced in it."""
        raw = frame.raw.removeprefix(_BOM) if frame.is_first else frame.raw
        if not raw.endswith(BLANKS):
            raw = raw.rstrip(b"\r\n") + BLANK
        line: bytes | None = data
        if self._model is not None and look.model not in (None, self._model):
            line = replace_member(data, self.watch.model_path, dumps_text(self._model))
        if line is not None and not line.isascii():
            line = escape_separators(line)
        return line if line is None else _replaced(raw, data, line)

    def _compare(self, look: Look, shadow: bytes, events: Sequence[Event]) -> _Verdict:
        """Whether the client, who sees the frame, then stands where the encoder stands."""
        ahead = self._ahead
        for mark in look.marks:
            ahead.setdefault(mark[0], []).append(mark)
        for mark in self.watch.outline(shadow) if shadow else ():
            lane = ahead.get(mark[0])
            if not lane or lane.pop(0) != mark:
                return _Verdict.IRREGULAR
        self._owed += look.said - sum(map(len, self._told(events)))
        if not self.encoder.serializer.is_idle:
            return _Verdict.IRREGULAR
        if any(ahead.values()):
            return _Verdict.EARLY
        return _Verdict.IRREGULAR if self._owed else _Verdict.REGULAR

    def _told(self, events: Sequence[Event]) -> Iterator[str]:
        """The input of the client's calls that events tell, but for a `{}` that stands for no input at all."""
        for event, after in pairwise([*events, None]):
            if isinstance(event, InputDelta) and event.part in self._streamed:
                is_default = event.text == "{}" and isinstance(after, PartEnded)
                if not (is_default and self.watch.has_default_input):
                    yield event.text

    def _problem(self, but: str = "") -> str:
        """The kind of the first problem of this frame that some client minds."""
        harmless = self.watch.harmless
        return next(
            (kind for kind, _ in self._faults if kind not in harmless and kind != but),
            "",
        )

    # --- the way out ------------------------------------------------------------------------------------------------------

    def _pass_comment(self, raw: bytes) -> None:
        raw = raw if raw.endswith(BLANKS) else raw + BLANK
        if self._held:
            self._held.append((raw, raw))
        else:
            self.out.append(raw)

    def _release(self, raw: bytes) -> None:
        if self._held:
            self.out.extend(held for held, _ in self._held)
            self._held.clear()
            self.is_wary = self._fragments > 0
        self.out.append(raw)

    def _turn(self, shadow: bytes, reason: str) -> None:
        """From here on the encoder speaks: also of the frames that were held."""
        self.is_passing = False
        self.reason = reason
        self.out.extend(instead for _, instead in self._held)
        self._held.clear()
        self.out.append(shadow)

    def _encode(self, events: Sequence[Event]) -> bytes:
        """What the encoder says of a frame. It numbers its events after the last frame that was passed on."""
        self._note(events)
        self._tell_plain()
        if not self._held and self.last:
            self.watch.follow(self.last)
            self.last = b""
        return self.encoder.encode_all(events)

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            kind = type(event)
            if kind in NOTED:
                self.tally.note(event)
            if isinstance(event, PartStarted):
                self._note_start(event)
            elif kind is PartEnded:
                self._fragments = 0
                self.is_wary = bool(self._held)

    def _note_start(self, event: PartStarted) -> None:
        header = event.header
        if isinstance(header, Opaque):
            self._opaque.add(event.part)
        elif isinstance(header, Call):
            self._fragments = _TELLING_FRAGMENTS
            self.is_wary = True
            if header.executor == "client":
                self._streamed.add(event.part)

    def _restored(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """The events in the client's terms."""
        restore = self._restore
        told: list[Event] = []
        for event in events:
            if type(event) is Finished:
                event = self.watch.mend(event)  # noqa: PLW2901 -- the same event, without a word that no client knows
            if restore is None or type(event) not in _NAMED:
                told.append(event)
            else:
                told.extend(restore(event))
        return tuple(told)


def _is_end(events: Sequence[Event]) -> bool:
    """Nothing follows that a frame could wait for."""
    return bool(events) and isinstance(events[-1], Completed | Failed)


def _replaced(raw: bytes, data: bytes, line: bytes) -> bytes:
    """The frame with another data line."""
    if line is data:
        return raw
    start = raw.index(data)
    return raw[:start] + line + raw[start + len(data) :]
