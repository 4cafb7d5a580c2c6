"""Relays an answer in the same dialect: passes the upstream's own bytes as long as every known client can use them.

    upstream bytes → StreamDecoder → steps ─┬─ the frame, as it came ────────────────────────→ client
                                            └─ from some frame on: its events → encoder ─────→ client

Frames pass until the reader reports a problem that clients object to, the dialect's `FrameCheck` finds that a frame lacks
what some client needs, parts overlap, a name has to be restored, or the stage finds a call in the text. From there on the
encoder writes. It first takes the events of the frames that the client has seen, so that it continues with the same ids,
indices and numbers.

A frame waits while the encoder could not continue after it: because the frame announces something whose event the reader
has not emitted yet (a call whose name may still grow, a finish that may be contradicted), or because the stage still holds
some of the frame's text. Later frames wait too, so that they keep their order.

    PASSING --a frame that must wait--> PASSING, with frames waiting --their events have come--> PASSING
       '-----------------------------------'--a problem, a call in the text, a cut--> ENCODING
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import dumps_text, escape_separators
from dragoman.core.aliases import NameMap
from dragoman.core.fields import replace_member
from dragoman.core.restore import Restorer
from dragoman.core.usage import NOTED, Tally, merge_usage
from dragoman.dialects.codec import DecodeContext, EncodeContext, FrameVerdict
from dragoman.dialects.registry import codec
from dragoman.dialects.staging import HeldText, Scanning, Stage
from dragoman.dialects.stream_decoder import OTHER_DIALECT, Deltas, FrameStep, Step
from dragoman.dialects.translate import (
    AnswerReader,
    SerialEncoder,
    TranslatedBody,
    read_answer,
    write_answer,
)
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    Noticed,
    PartEnded,
    PartStarted,
    ReasoningChannel,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Loss, Problem, Usage
from dragoman.model.parts import Call, Opaque
from dragoman.sse import Frame

MAX_WAITING_BYTES = 262_144
"""How many bytes of frames may wait. A call in the text reaches this with some thousand tokens, and is hidden anyway."""

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_BLANK = b"\n\n"
_BLANKS = (b"\n\n", b"\r\n\r\n", b"\r\r")  # the ends of a frame: ours first, then those of others
_PING = Noticed("ping")
_COMMENT = FrameVerdict()
_STRAY = FrameVerdict(is_stray=True)
_UNREAD = frozenset({"malformed_frame", "invalid_utf8", "frame_too_large"})
_STAGED = (TextDelta, PartStarted, PartEnded, AnnotationAdded)  # what a stage may emit late
_GROWING = (TextDelta, InputDelta)
_ABOUT_NO_PART = (Started, UsageReported, LimitsReported, Finished, Failed, Completed)


class _Waiting(Struct):
    """A frame that waits. `held`: the texts of the frame that the stage holds.

    is_ahead, choices: the values of the `codec.FrameCheck` after this frame.
    """

    raw: bytes
    events: Sequence[Event]
    held: tuple[HeldText, ...]
    is_ahead: bool
    choices: int


class _Seen:
    """The events that the client has seen, reduced to those that bring an encoder to the same state."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._later_usage: Usage | None = None
        self._has_usage = False
        # Of open parts. Encoders need to know that there was text or input, and need the whole reasoning.
        self.latest: dict[int, Event] = {}
        self._thoughts: dict[int, dict[tuple[ReasoningChannel, int], list[str]]] = {}

    def add(self, event: Event) -> None:
        match event:
            case TextDelta() | InputDelta():
                self.latest[event.part] = event
            case ReasoningDelta():
                entries = self._thoughts.setdefault(event.part, {})
                entries.setdefault((event.channel, event.index), []).append(event.text)
            case UsageReported() if self._has_usage:
                usage = event.usage
                known = self._later_usage
                self._later_usage = usage if known is None else merge_usage(known, usage)
            case Noticed():
                pass
            case _:
                self._has_usage = self._has_usage or isinstance(event, UsageReported)
                if isinstance(event, PartEnded):
                    self._events += self._deltas(event.part)
                self._events.append(event)

    def events(self) -> list[Event]:
        """Return the reduced events. Nothing may be added afterwards."""
        open_parts = dict.fromkeys([*self.latest, *self._thoughts])
        deltas = [delta for part in open_parts for delta in self._deltas(part)]
        usage = self._later_usage
        return [*self._events, *deltas, *([] if usage is None else [UsageReported(usage)])]

    def _deltas(self, part: int) -> list[Event]:
        latest = self.latest.pop(part, None)
        entries = self._thoughts.pop(part, {})
        thoughts: list[Event] = [
            ReasoningDelta(part, "".join(texts), *place) for place, texts in entries.items()
        ]
        return thoughts if latest is None else [latest, *thoughts]


class StreamRelay(AnswerReader):
    """Relays one answer. See `translate.Interpreter`.

    names: as for `StreamTranslator`; the encoder writes a call that has to be renamed.
    stage: reads the text, and may find calls in it.
    exact: pass every frame unchanged, usable or not; only a stream that is cut or cannot be read gets a failure appended.

    `is_passing` is true until the encoder takes over; `reason` says why it did: the kind of a problem or of the error.
    `tally` counts what the client sees.
    """

    def __init__(
        self,
        dialect: str,
        *,
        decode: DecodeContext,
        encode: EncodeContext,
        names: NameMap | None = None,
        stage: Stage | None = None,
        exact: bool = False,
    ) -> None:
        super().__init__(dialect, decode)
        own = codec(dialect)
        self.is_passing = True
        self.reason = ""
        self._codec = own
        self._context = encode
        self._check = own.check(encode)
        self._plain = self._check.plain
        self._encoder: SerialEncoder | None = None
        self._restore = Restorer(names).feed if names is not None else None
        self._stage = stage
        self._scanning = None if stage is None else Scanning(stage)
        self._is_exact = exact
        self._has_ended = False  # the terminal was sent, or waits to be sent
        self._is_forwarding = not exact  # until the answer has ended or the encoder has taken over
        self._decode = self._decoder.decode
        self._count = 0  # frames
        self._out: list[bytes] = []
        self._last = b""  # the last frame that was passed on
        self._choices = 0  # how many the client has seen begin
        self._seen = _Seen()
        self._see = self._seen.add
        self._latest = self._seen.latest
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._looked_at = 0  # how many of the waiting frames are known to wait for the check only
        # The events that the encoder would write in place of the waiting frames.
        self._pending: list[Event] = []
        self._numbers: dict[int, int] = {}  # part -> the stage's number of it, where they differ
        self._open: dict[int, int] = {}  # choice -> its open part
        self._opaque: set[int] = set()
        self._client_calls: set[int] = set()

    @property
    def losses(self) -> Sequence[Loss]:
        """What the encoder could not write."""
        return () if self._encoder is None else self._encoder.losses

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that the client gets for this read: whole frames."""
        for one in self._decode(data):
            if type(one) is Deltas:
                self._take_deltas(one)
            else:
                self._take_step(one)
        out = self._out
        return out.pop() if len(out) == 1 else self._take_out()

    def close(self) -> bytes:
        """The upstream has ended: return the remaining bytes, so that the client always gets a terminal."""
        steps = self._decoder.decode_rest()
        is_cut = bool(steps) and not steps[-1].raw and bool(steps[-1].events)
        for step in steps[:-1] if is_cut else steps:
            self._take_step(step)
        if is_cut:
            self._end(steps[-1])
        elif self._encoder is not None and not self._is_exact:
            self._out.append(self._encoder.close())
        return self._take_out()

    def fail(self, error: ErrorInfo) -> bytes:
        """End the answer: return bytes that close the open parts and report the error. Nothing if it was over."""
        events = self._decoder.fail(error)
        if events:
            self._fail(events, error.kind)
        return self._take_out()

    def keep_alive(self) -> bytes:
        """Return bytes that keep a silent connection open at this point."""
        if self.is_over:
            return b""
        return self._check.keep_alive() if self._encoder is None else self._encoder.encode(_PING)

    def _take_out(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    # --- steps ------------------------------------------------------------------------------------------------------------

    def _take_deltas(self, deltas: Deltas) -> None:
        """Take plain deltas of one part: pass them in one piece if no frame needs to be checked by itself."""
        if self._passes_all(deltas):
            self._latest[deltas.part] = deltas.kind(deltas.part, deltas.texts[-1])
            self._last = deltas.opening + deltas.lines[-1] + _BLANK
        elif self.is_passing:
            for step in deltas.steps():
                self._take_step(step)
            return
        elif not self._is_exact:
            self._write(self._restored(self._staged(deltas.events)))
        self._count += len(deltas.lines)

    def _passes_all(self, deltas: Deltas) -> bool:
        if not self._is_forwarding or self._waiting or self._numbers:
            return False
        raw = self._plain(deltas.raw, len(deltas.lines))
        if raw is None:
            return False
        scanning, kind = self._scanning, deltas.kind
        if kind is TextDelta and scanning is not None:
            is_text = scanning.passes_all(kind, deltas.part, deltas.texts)
        else:
            is_text = True
        if is_text:
            self._out.append(raw if raw.isascii() else escape_separators(raw))
        return is_text

    def _take_step(self, step: FrameStep) -> None:
        self._count += 1
        is_plain = step.frame is None and not step.problems
        if is_plain and self._is_forwarding and not self._waiting and self._passes(step):
            return
        if self._is_exact:
            self._pass_exactly(step)
        elif not self.is_passing:
            self._write(self._changed(step))
        elif self._has_ended or (is_plain and not step.events):
            pass  # frames after the end are dropped
        elif is_plain:
            self._take_plain(step)
        else:
            self._take(step)

    def _passes(self, step: Step) -> bool:
        """Pass a plain delta, as nearly every frame is, if it needs no closer look. Returns whether it passed."""
        raw, events = step.raw, step.events
        sent = self._plain(raw, 1) if events else None
        if sent is None or self._numbers:
            return False
        event, scanning = events[0], self._scanning
        if isinstance(event, _GROWING):
            if scanning is not None and type(event) is TextDelta and not scanning.passes(event):
                return False
            self._latest[event.part] = event
        else:
            if self._stage is not None and self._stage.is_thinking:
                return False
            self._see(event)
        self._last = raw
        self._out.append(sent if sent.isascii() else escape_separators(sent))
        return True

    def _take_plain(self, step: Step) -> None:
        """Take a plain delta while frames wait or the stage holds its text."""
        events = step.events
        raw = self._plain(step.raw, 1)
        if raw is None:
            self._refuse(
                "expected the fields that clients need in each delta, got a delta without", step
            )
            return
        if self._waiting:
            self._check.take(events)
        self._admit(raw if raw.isascii() else escape_separators(raw), events, self._staged(events))

    def _take(self, step: FrameStep) -> None:
        """Take any other step. Its frame is None if the frame was too large."""
        if any(problem.kind == OTHER_DIALECT for problem in step.problems):
            self._take_over(OTHER_DIALECT, self._changed(step))
            return
        frame, events = step.frame, step.events
        look = _COMMENT if frame is None else self._look(frame, events)
        is_opaque = self._is_about_opaque(events)
        has_failed = bool(events) and isinstance(events[-1], Failed)
        if not is_opaque and not has_failed and (look.is_stray or _is_unknown(events)):
            events = tuple([event for event in events if not isinstance(event, Noticed)])
            if events or not self._waiting:  # what sends nothing and means nothing need not wait
                self._admit(b"", events, self._staged(events))
            return
        raw = step.raw if frame is None else self._prepared(frame, look)
        if look.is_error and not self._waiting and not step.problems:
            self._note(events)
            self._send(step.raw if raw is None else raw, events)
            return
        reason = self._objection(step, is_opaque=is_opaque)
        if not reason and (look.problem or raw is None):
            self._refuse(look.problem or "expected a model name that can be replaced", step)
            return
        self._note_parts(events)
        if not reason and look.input_size != self._input_size(events):
            reason = "cumulative_input"
        emitted = self._changed(step) if reason else self._staged(events)
        if reason or raw is None:
            self._take_over(reason, emitted)
        else:
            self._admit(raw, events, emitted)

    def _look(self, frame: Frame, events: Sequence[Event]) -> FrameVerdict:
        data = frame.data
        if data is None:
            # Any other frame without data is left out: some clients try to parse the missing data.
            is_comment = frame.comment is not None or not frame.raw.strip()
            return _COMMENT if is_comment else _STRAY
        if not data.strip():
            return _STRAY
        if _LF in data:
            return FrameVerdict(problem="expected data on one line")
        return self._check.look(frame, data, events)

    def _objection(self, step: Step, *, is_opaque: bool) -> str:
        """Return why the encoder has to write this frame, whatever the `FrameCheck` finds; "" if it need not."""
        for problem in step.problems:
            is_fine = problem.kind in self._check.harmless
            if not is_fine and not (problem.kind == "unknown_delta" and is_opaque):
                return problem.kind
        for event in step.events:
            if isinstance(event, Failed):
                return event.error.kind
            if isinstance(event, PartEnded) and event.amended:
                return "amended_part"
        return ""

    def _end(self, step: Step) -> None:
        """End the answer: the input has ended, and these events belong to no frame."""
        if self._is_exact:
            self._end_exactly(step)
            return
        if not self.is_passing:
            self._write(self._changed(step))
            return
        events = step.events
        self._check.take(events)
        problems = [each.kind for each in step.problems if each.kind != "missing_end"]
        ending = self._check.ending
        is_whole = isinstance(events[-1], Completed) and not problems and not self._check.is_ahead
        emitted = self._staged(events)
        if ending and is_whole and self.is_passing:
            self._admit(ending, events, emitted)
            return
        reason = problems[0] if problems else "unusable_frame"
        if self.is_passing:
            self._take_over(reason, emitted)

    # --- frames that pass, and those that wait ---------------------------------------------------------------------------------

    def _admit(self, raw: bytes, events: Sequence[Event], emitted: Sequence[Event]) -> None:
        """Pass a frame as soon as it may pass. `emitted`: the events that the stage emitted for `events`."""
        restored = self._restored(emitted)
        stage = self._stage
        if stage is not None and stage.has_changed:
            self._take_over("text_call", restored)
        elif self._overlaps(events):
            self._take_over("overlapping_parts", restored)
        elif restored != list(emitted):
            self._take_over("restored_name", restored)
        else:
            held = () if stage is None else _held_texts(stage, events)
            if not self._waiting and not held and not self._check.is_ahead:
                self._pass(raw, events, self._check.choices)
            else:
                check = self._check
                self._wait(_Waiting(raw, events, held, check.is_ahead, check.choices), emitted)

    def _wait(self, frame: _Waiting, emitted: Sequence[Event]) -> None:
        stage = self._stage
        self._waiting.append(frame)
        self._waiting_bytes += len(frame.raw)
        self._pending += emitted
        # Events that do not belong to the held text must not wait for its end.
        is_other = not frame.held and any(map(_is_content, frame.events))
        if (stage is not None and stage.is_reading and is_other) or (
            self._waiting_bytes > MAX_WAITING_BYTES
        ):
            self._take_over("text_held", ())
        else:
            self._release()

    def _release(self) -> None:
        """Pass the frames that need not wait any longer."""
        ready = 0
        while self._looked_at < len(self._waiting):
            frame = self._waiting[self._looked_at]
            if self._stage is not None and not all(map(self._stage.is_released, frame.held)):
                break
            self._looked_at += 1
            if not frame.is_ahead:
                ready = self._looked_at
        released = self._waiting[:ready]
        del self._waiting[:ready]
        self._looked_at -= ready
        for frame in released:
            self._waiting_bytes -= len(frame.raw)
            self._pass(frame.raw, frame.events, frame.choices)
        if not self._waiting:
            self._pending.clear()
        elif released:
            passed = [self._numbered(event) for frame in released for event in frame.events]
            self._pending = _without(self._pending, passed)

    def _pass(self, raw: bytes, events: Sequence[Event], choices: int) -> None:
        self._note(events)
        self._choices = choices
        for event in events:
            if isinstance(event, PartStarted) and self._stage is not None:
                number = self._stage.number_of(event.part)
                if number is not None and number != event.part:
                    self._numbers[event.part] = number
            self._see(self._numbered(event))
        if raw:
            self._last = raw
        self._send(raw, events)

    def _send(self, raw: bytes, events: Sequence[Event]) -> None:
        """Send a frame of the upstream to the client, and note it for the store."""
        if raw:
            self._out.append(raw)
        if self._context.notes is not None:
            self._context.notes.take_frame(raw, events)

    def _prepared(self, frame: Frame, look: FrameVerdict) -> bytes | None:
        """Return the frame as the client gets it; None if the model's name cannot be replaced in it."""
        raw = frame.raw.removeprefix(_BOM) if frame.is_first else frame.raw
        if not raw.endswith(_BLANKS):
            raw = raw.rstrip(b"\r\n") + _BLANK
        data, model = frame.data, self._context.model
        if data is None:
            return raw
        if model is not None and look.model not in (None, model):
            line = replace_member(data, self._check.model_path, dumps_text(model))
            if line is None:
                return None
            raw = raw.replace(data, line, 1)
        return raw if raw.isascii() else escape_separators(raw)

    # --- events -----------------------------------------------------------------------------------------------------------

    def _staged(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events that the stage emits for these events."""
        return events if self._scanning is None else self._scanning.feed(events)

    def _restored(self, events: Sequence[Event]) -> list[Event]:
        """Return the events with the client's names."""
        restore = self._restore
        if restore is None:
            return [*events]
        return [emitted for event in events for emitted in restore(event)]

    def _changed(self, step: Step) -> list[Event]:
        """Return the events that the encoder writes for a step."""
        events = step.events
        if not self._is_about_opaque(events) and _is_unknown(events):
            return []
        if any(problem.kind == "unknown_finish" for problem in step.problems):
            events = tuple([_without_word(event) for event in events])
        return self._restored(self._staged(events))

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if type(event) in NOTED:
                self.tally.note(event)
            if isinstance(event, (Completed, Failed)):
                self._has_ended = True
                self._is_forwarding = False

    def _note_parts(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, PartStarted):
                header = event.header
                if isinstance(header, Opaque):
                    self._opaque.add(event.part)
                elif isinstance(header, Call) and header.executor == "client":
                    self._client_calls.add(event.part)

    def _overlaps(self, events: Sequence[Event]) -> bool:
        """Whether a part begins while another of its choice is open."""
        parts = self._open
        for event in events:
            if isinstance(event, PartStarted):
                if event.choice in parts:
                    return True
                parts[event.choice] = event.part
            elif isinstance(event, PartEnded):
                for choice in [choice for choice, part in parts.items() if part == event.part]:
                    del parts[choice]
        return False

    def _input_size(self, events: Sequence[Event]) -> int:
        """Return how many characters of input for client calls the events have, without a `{}` that stands for no input."""
        size = 0
        for number, event in enumerate(events):
            if isinstance(event, InputDelta) and event.part in self._client_calls:
                is_end = any(
                    isinstance(each, PartEnded) for each in events[number + 1 : number + 2]
                )
                is_default = event.text == "{}" and is_end and self._check.has_default_input
                size += 0 if is_default else len(event.text)
        return size

    def _is_about_opaque(self, events: Sequence[Event]) -> bool:
        opaque = self._opaque
        return bool(opaque) and any(
            isinstance(event, Noticed) and event.part in opaque for event in events
        )

    def _numbered(self, event: Event) -> Event:
        """The event with the stage's number of its part."""
        if not self._numbers or isinstance(event, _ABOUT_NO_PART) or event.part is None:
            return event
        number = self._numbers.get(event.part)
        return event if number is None else replace(event, part=number)

    # --- the encoder ------------------------------------------------------------------------------------------------------

    def _refuse(self, problem: str, step: Step) -> None:
        """Report a frame that some client cannot use; the encoder takes over."""
        self._decoder.problems.append(Problem(self._count, "unusable_frame", problem))
        self._take_over("unusable_frame", self._changed(step))

    def _take_over(self, reason: str, events: Sequence[Event]) -> None:
        """Let the encoder write from here on: first the waiting frames, then these events."""
        self.is_passing = False
        self._is_forwarding = False
        self.reason = reason
        self._encoder = SerialEncoder(self._codec.encoder(self._context))
        self._encoder.resume(self._seen.events(), self._last, self._choices)
        pending = [*self._pending, *events]
        self._waiting.clear()
        self._looked_at = 0
        self._pending.clear()
        self._write(pending)

    def _write(self, events: Sequence[Event]) -> None:
        self._note(events)
        if self._encoder is not None and events:
            self._out.append(self._encoder.encode_all(events))

    def _fail(self, events: Sequence[Event], reason: str) -> None:
        if self._is_exact:
            self._note(events)
            self._fail_exactly(events[-1])
        elif self.is_passing:
            self._take_over(reason, self._restored(self._staged(events)))
        else:
            self._write(self._restored(self._staged(events)))

    # --- everything as it comes -------------------------------------------------------------------------------------------

    def _pass_exactly(self, step: Step) -> None:
        if not self.is_passing:
            return
        for event in step.events:
            if isinstance(event, Started):
                self._see(event)
        self._note(step.events)
        self._send(step.raw, step.events)
        failed = step.events[-1] if step.events else None
        if isinstance(failed, Failed) and any(each.kind in _UNREAD for each in step.problems):
            # A client that skips such a frame must not take later frames for the rest of a call.
            self._fail_exactly(failed)
        self._last = step.raw or self._last

    def _end_exactly(self, step: Step) -> None:
        self._note(step.events)
        if self.is_passing and isinstance(step.events[-1], Failed):
            self._fail_exactly(step.events[-1])

    def _fail_exactly(self, failed: Event) -> None:
        if self._out and not self._out[-1].endswith(_BLANKS):
            self._out.append(_BLANK)  # an incomplete frame must not swallow the failure
        self._take_over("", (failed,))


def relay_body(  # noqa: PLR0913 -- a body and its context
    data: bytes,
    dialect: str,
    *,
    decode: DecodeContext,
    encode: EncodeContext,
    names: NameMap | None = None,
    stage: Stage | None = None,
    exact: bool = False,
) -> tuple[TranslatedBody, Tally]:
    """Return the body to send and its tally: the same bytes if every client can use them, else written anew.

    exact: return the bytes unchanged, usable or not. stage: reads the text; the bytes stay if it finds nothing.
    """
    answer = read_answer(data, dialect, decode, names, scan=stage)
    tally = answer.tally
    same: bytes | None = data
    if not exact:
        is_same = (
            not answer.is_changed
            and not answer.problems
            and tally.error is None
            and codec(dialect).is_usable_body(data, encode, answer.is_typed)
        )
        same = _renamed(data, tally.model, encode.model) if is_same else None
    if same is not None:
        if encode.notes is not None:
            encode.notes.take_body(answer.outcome)
        return TranslatedBody(same, answer.problems, tally.error), tally
    return write_answer(answer, dialect, encode), tally


def _renamed(data: bytes, model: str, wanted: str | None) -> bytes | None:
    if wanted is None or wanted == model:
        return data
    return replace_member(data, ("model",), dumps_text(wanted))


def _is_content(event: Event) -> bool:
    return not isinstance(event, (Noticed, UsageReported, LimitsReported))


def _is_unknown(events: Sequence[Event]) -> bool:
    """Whether a frame has only events of an unknown kind: they are not part of the answer, and some client fails on them."""
    return bool(events) and all(
        isinstance(event, Noticed) and event.kind == "unknown" for event in events
    )


def _without_word(event: Event) -> Event:
    """Return the end of a choice without the upstream's own finish reason, which no client knows."""
    return replace(event, extra=None) if isinstance(event, Finished) else event


def _held_texts(stage: Stage, events: Sequence[Event]) -> tuple[HeldText, ...]:
    """Return the texts of these events that the stage still holds."""
    parts = dict.fromkeys([event.part for event in events if isinstance(event, _STAGED)])
    return tuple([held for held in map(stage.held_text, parts) if held is not None])


def _without(pending: Sequence[Event], passed: Iterable[Event]) -> list[Event]:
    """Return `pending` without the events that were passed, whose text may have been cut into other pieces."""
    counts: Counter[tuple[type[Event], int | None]] = Counter()
    for event in passed:
        counts[_place(event)] += len(event.text) if isinstance(event, TextDelta) else 1
    left: list[Event] = []
    for event in pending:
        place = _place(event)
        count = counts[place]
        if isinstance(event, TextDelta):
            counts[place] -= min(count, len(event.text))
            if len(event.text) > count:
                left.append(TextDelta(event.part, event.text[count:]) if count else event)
        elif count:
            counts[place] -= 1
        else:
            left.append(event)
    return left


def _place(event: Event) -> tuple[type[Event], int | None]:
    part = None if isinstance(event, _ABOUT_NO_PART) else event.part
    return type(event), part
