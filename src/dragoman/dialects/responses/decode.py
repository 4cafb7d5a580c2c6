"""Reading a Responses stream or body: what one frame means.

Nearly all frames are deltas of a part that was announced; they are read by a typed decoder and told without further
thought. Everything else, and every delta that is not quite regular, is read field by field and handed to the ledger.

The states of a stream:

    SILENT --any event--> SPEAKING --completed, incomplete, cancelled--> OVER
       '-------------------'--failed, error, the wire's end--> OVER, after ending what was open as incomplete
"""

from itertools import takewhile

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_text, raw
from dragoman.core.fields import expect_list, expect_object, expect_text
from dragoman.core.finish import settle_finish
from dragoman.core.runs import Run
from dragoman.dialects.base import DecodeContext, Step
from dragoman.dialects.responses.answer import (
    read_end,
    read_finish,
    read_started,
    read_usage,
)
from dragoman.dialects.responses.call_track import CallTrack
from dragoman.dialects.responses.errors import decode_error, read_error
from dragoman.dialects.responses.events import HANDLERS, is_content
from dragoman.dialects.responses.fields import (
    Fields,
    read_int,
    read_object,
    read_text,
    without,
)
from dragoman.dialects.responses.items import check_item
from dragoman.dialects.responses.ledger import Ledger
from dragoman.dialects.responses.limits import LIMITS_EVENT, read_limits
from dragoman.dialects.responses.tracks import Found, ReasoningTrack, TextTrack
from dragoman.dialects.responses.wire import (
    ENVELOPE_FIELDS,
    KEEPALIVE_EVENTS,
    TERMINAL_EVENTS,
    Delta,
    ReasoningTextDelta,
    decode_delta,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    Noticed,
    Progress,
    ReasoningDelta,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Limits, Problem
from dragoman.model.parts import Extra, PartStatus
from dragoman.sse import Frame

__all__ = ("ResponsesReader", "read_body")

_NO_CONTEXT = DecodeContext()
_LF = 0x0A


class _Numbers:
    """The `sequence_number` of events: whether events are missing before one.

    Servers leave it out, leave it out of deltas, or count otherwise. So a gap shows something only where numbers went up by
    one before, and where they ever fell behind the frames they show nothing.
    """

    __slots__ = ("_ahead", "_is_known", "_is_odd", "_unnumbered")

    def __init__(self) -> None:
        self._ahead: int | None = None  # how far the numbers are ahead of the frames
        self._is_known = False  # they went up by one
        self._is_odd = False
        self._unnumbered = 0  # frames without a number

    def skip_before(self, number: int | None, frame: int) -> bool:
        """Take the number of a frame; whether numbers were skipped before it."""
        if number is None:
            self._unnumbered += 1
            return False
        ahead = number - (frame - self._unnumbered)
        before, self._ahead = self._ahead, ahead
        if before is None:
            return False
        self._is_odd = self._is_odd or ahead < before
        is_skipped = ahead > before and self._is_known and not self._is_odd
        self._is_known = self._is_known or ahead == before
        return is_skipped


class ResponsesReader:
    """Reads one stream, frame by frame."""

    padding: bytes | None = None  # every event has its number

    def __init__(self, context: DecodeContext = _NO_CONTEXT) -> None:
        self.over = False
        self.frame = 0
        self.found: Found = []
        self._ledger = Ledger(context, self.found)
        self._telling = self._ledger.telling
        self._live = self._telling.live
        self._numbers = _Numbers()
        self._started = False
        self._extra: Extra | None = None
        self._limits: Limits | None = None  # told before the answer began

    def quick(self, _piece: bytes, data: bytes, /) -> tuple[Event, ...] | None:
        """A delta of a part that was announced, read by its type alone. See `base.FrameReader`."""
        try:
            delta = decode_delta(data)
        except FAST_FAILURES:
            return None
        return self._tell_plain(delta)

    def quick_many(self, _opening: bytes, lines: list[bytes], told: list[Event], /) -> int:
        """See `base.FrameReader`. Nearly all of a run are pieces of one text, or of one call's input."""
        item, live, found, tell = None, self._live, self.found, told.append
        track: TextTrack | CallTrack | ReasoningTrack | None = None
        for count, line in enumerate(lines):
            if _LF in line:
                return count
            try:
                delta = decode_delta(line)
            except FAST_FAILURES:
                return count
            if delta.item_id != item:
                item = delta.item_id
                track = live.get(item)
            text = delta.delta
            if track is not None and text and track.wire is type(delta):
                if type(track) is TextTrack:
                    if track.index == delta.content_index and not delta.logprobs:
                        track.pieces.append(text)
                        tell(TextDelta(track.part, text))
                        continue
                elif type(track) is CallTrack and track.buffer.keep(text):
                    tell(InputDelta(track.part, text))
                    continue
            events = self._tell_plain(delta)
            if events is None:
                return count
            if not events or found:
                told.extend(events)
                return count + 1
            tell(events[0])
        return len(lines)

    def prolong(self, _last: TextDelta | InputDelta, _texts: list[str], /) -> bool:
        """No two deltas are written alike."""
        return False

    def quick_run(self, lines: list[bytes], /) -> Run | None:
        """See `base.FrameReader`."""
        if _LF in b"".join(lines):
            lines = [*takewhile(_is_one_line, lines)]
        try:
            deltas = [decode_delta(line) for line in lines]
        except FAST_FAILURES:
            return None
        first = deltas[0] if deltas else None
        track = None if first is None else self._live.get(first.item_id)
        if first is None or track is None or track.wire is not type(first):
            return None
        kind, item, index = type(first), first.item_id, first.content_index
        texts = [
            delta.delta
            for delta in deltas
            if type(delta) is kind
            and delta.item_id == item
            and delta.content_index == index
            and delta.delta
            and not delta.logprobs
        ]
        if len(texts) < len(deltas):
            return None
        if type(track) is TextTrack and track.index == index:
            track.pieces += texts
            return Run(TextDelta, track.part, texts)
        if type(track) is CallTrack and track.buffer.keep_all(texts):
            return Run(InputDelta, track.part, texts)
        return None

    def _tell_plain(self, delta: Delta) -> tuple[Event, ...] | None:
        """What a delta says; None if it must be read field by field."""
        track = self._live.get(delta.item_id)
        if track is None or track.wire is not type(delta):
            return None
        text = delta.delta
        if type(track) is TextTrack:
            if not text or delta.logprobs or track.index != delta.content_index:
                return None
            track.pieces.append(text)
            return (TextDelta(track.part, text),)
        if type(track) is CallTrack:
            text = track.push_plain(text)
            return (InputDelta(track.part, text),) if text else ()
        is_content = type(delta) is ReasoningTextDelta
        if not text or track.index != (delta.content_index if is_content else delta.summary_index):
            return None
        track.pieces.append(text)
        return (ReasoningDelta(track.part, text, track.channel, track.index),)

    def read(self, frame: Frame) -> tuple[Event, ...]:
        """What the frame means.

        Raises:
            MalformedJson: its data is no JSON object.
        """
        data = frame.data
        if data is None or not data.strip():
            return self._read_empty(frame)
        return self._read_event(frame, data)

    def end(self) -> tuple[Event, ...]:
        """The wire has ended, before its protocol did."""
        self.found.append(("cut_stream", "expected response.completed, got the end of the stream"))
        message = "the stream ended before response.completed"
        return self.fail(ErrorInfo(kind="truncated", message=message))

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        """Close what is open as incomplete, then fail."""
        self._ledger.close("incomplete", is_failure=True)
        self._fail(error)
        return self.told()

    # --- frames ------------------------------------------------------------------------------------------------------

    def _read_empty(self, frame: Frame) -> tuple[Event, ...]:
        """A frame without data: a comment, something that keeps the connection open, or an event that lost its data."""
        self._numbers.skip_before(None, self.frame)
        name = frame.name.decode("utf-8", "replace")
        if is_content(name):
            raise MalformedJson(f"expected data with the event {name}, got none")
        comment = frame.comment
        if comment is None:
            return ()
        text = comment.decode("utf-8", "replace")
        return (Noticed("comment", "responses", "", Raw(dumps_text(text))),)

    def _read_event(self, frame: Frame, data: bytes) -> tuple[Event, ...]:
        try:
            fields = as_object(data, is_utf8=True)
        except MalformedJson:
            if frame.is_done:
                return self._read_done()
            raise
        if self._numbers.skip_before(read_int(fields, "sequence_number"), self.frame):
            self._ledger.note_gap()
        name = read_text(fields, "type") or ""
        if not is_content(name):
            called = frame.name.decode("utf-8", "replace")
            if is_content(called):
                name = ""  # what it is called on its event line is all that can be read of it
        if not name:
            name = frame.name.decode("utf-8", "replace")
            if not name:
                expect_text(fields.get("type"), "type")
            self.found.append(
                ("missing_type", f"expected a type in the data, took {name!r} from the event line")
            )
            if not name and "error" in fields:
                name = "error"
        self._take(name, fields, data)
        return self.told()

    def _read_done(self) -> tuple[Event, ...]:
        """`[DONE]` where the response should have been completed: an end, if nothing is left open."""
        if not self._started or self._ledger.has_open_input:
            return self.end()
        self.found.append(("inferred_end", "expected response.completed, got [DONE]"))
        self._finish({}, "response.completed", is_inferred=True)
        return self.told()

    def _take(self, name: str, fields: Fields, data: bytes) -> None:
        if name in KEEPALIVE_EVENTS:
            if name != "keepalive":
                self.found.append(
                    ("unknown_event", f"expected keepalive to keep alive, got {name!r}")
                )
            self._emit(Noticed("ping", "responses", name))
        elif name in TERMINAL_EVENTS:
            self._take_end(name, fields)
        elif name == "response.created":
            self._created(fields)
        elif name in ("response.in_progress", "response.queued"):
            self._start(read_object(fields.get("response")), is_regular=False)
            self._emit(Progress(name.removeprefix("response.")))
        elif name == LIMITS_EVENT:
            self._report_limits(read_limits(fields))
        else:
            self._take_content(name, fields, data)

    def _take_content(self, name: str, fields: Fields, data: bytes) -> None:
        """An event between the beginning and the end."""
        handler = HANDLERS.get(name)
        if handler is None:
            self.found.append(("unknown_event", f"expected an event of the protocol, got {name!r}"))
        else:
            if not self._started:
                self._start({}, is_regular=False)
            is_placed = handler(self._ledger, fields)
            if self._fail_if_faulty():
                return
            if is_placed:
                if not ENVELOPE_FIELDS.issuperset(fields):
                    unknown = without(fields, ENVELOPE_FIELDS)
                    self._emit(Noticed("fields", "responses", name, raw(unknown)))
                return
            self.found.append(("unplaced_event", f"expected {name} to be about a known item"))
        self._emit(Noticed("unknown", "responses", name, Raw(data)))

    def told(self) -> tuple[Event, ...]:
        told = tuple(self._telling.out)
        self._telling.out.clear()
        return told

    def _emit(self, event: Event) -> None:
        self._telling.out.append(event)

    # --- the beginning -----------------------------------------------------------------------------------------------

    def _created(self, fields: Fields) -> None:
        response = read_object(fields.get("response"))
        if self._started:
            self.found.append(("repeated_start", "expected one response.created, got another"))
            self._emit(Noticed("fields", "responses", "response.created", fields.get("response")))
            return
        if "output" not in response:
            self.found.append(("missing_output", "expected output in response.created"))
        self._start(response, is_regular=True)

    def _start(self, response: Fields, *, is_regular: bool) -> None:
        """Begin, unless that is done."""
        if self._started:
            return
        if not is_regular:
            self._telling.irregular("missing_start", "expected response.created first")
        self._started = True
        started = read_started(response)
        self._extra = started.extra
        self._telling.seed = self._telling.seed or started.response_id
        self._emit(started)
        self._report_limits(self._limits)

    def _report_limits(self, limits: Limits | None) -> None:
        if limits is None:
            return
        if self._started:
            self._emit(LimitsReported(limits))
        else:
            self._limits = limits

    # --- the end -----------------------------------------------------------------------------------------------------

    def _take_end(self, name: str, fields: Fields) -> None:
        response = expect_object(fields.get("response"), "response")
        if name == "error":
            self._ledger.close("incomplete", is_failure=True)
            self._fail(read_error(fields))
        elif name == "response.failed" or read_text(response, "status") == "failed":
            self._take_failure(response)
        else:
            self._start(response, is_regular=False)
            self._finish(response, name)

    def take_body(self, response: Fields) -> None:
        """A whole response object."""
        self._telling.is_body = True
        self._start(response, is_regular=True)
        if read_text(response, "status") == "failed":
            self._ledger.settle(_output(response), "incomplete")
            self._take_failure(response)
        else:
            self._finish(response, "")

    def fail_body(self, error: MalformedJson) -> None:
        """A field of the response cannot be read."""
        self._ledger.close("incomplete", is_failure=True)
        self._fail(ErrorInfo(kind="protocol", message=error.message))

    def _take_failure(self, response: Fields) -> None:
        self._ledger.close("incomplete", is_failure=True)
        usage = read_usage(response.get("usage"))
        if usage is not None and self._started:
            self._emit(UsageReported(usage))
        self._fail(read_error({"error": response.get("error", Raw(b"null"))}))

    def _finish(self, response: Fields, name: str, *, is_inferred: bool = False) -> None:
        expect_text(response.get("status"), "the status of a response")
        output = _output(response)
        finish = read_finish(response, name)
        self._inspect_end(response, name)
        status: PartStatus = "completed" if finish.reason is None else "incomplete"
        if not is_inferred:
            self._ledger.settle(output, status)
        is_named = self._ledger.close(status)
        if self._fail_if_faulty():
            return
        if not is_named:
            message = "a call's name never came, and the tools offered do not tell it"
            self._fail(ErrorInfo(kind="protocol", message=message))
            return
        has_calls = self._ledger.calls.has_waiting
        reason = settle_finish(finish.reason, has_complete_client_calls=has_calls)
        self._emit(Finished(reason, inferred=is_inferred, native=finish.native, extra=finish.extra))
        usage = read_usage(response.get("usage"))
        if usage is not None:
            if usage.input is None or usage.output is None or usage.total is None:
                self.found.append(
                    ("partial_usage", "expected input, output and total tokens in usage")
                )
            self._emit(UsageReported(usage))
        self._emit(Completed(read_end(response, self._extra)))
        self.over = True

    def _fail_if_faulty(self) -> bool:
        """Fail if the input of a call is not what was sent."""
        fault = self._ledger.calls.fault
        if fault:
            self._ledger.close("incomplete", is_failure=True)
            self._fail(ErrorInfo(kind="protocol", message=fault))
        return bool(fault)

    def _inspect_end(self, response: Fields, name: str) -> None:
        status = read_text(response, "status")
        if name == "response.completed" and status not in (None, "completed"):
            self.found.append(
                ("wrong_finish", f"expected status completed at the end, got {status!r}")
            )
        if name == "response.incomplete" and not read_object(response.get("incomplete_details")):
            self.found.append(("missing_finish", "expected incomplete_details to say why"))

    def _fail(self, error: ErrorInfo) -> None:
        self._emit(Failed(error))
        self.over = True


def read_body(data: bytes, context: DecodeContext = _NO_CONTEXT) -> Step:
    """The same meaning for a whole body. Never raises: what is no response becomes Failed."""
    reader = ResponsesReader(context)
    try:
        fields = as_object(data)
    except MalformedJson as error:
        return _failed_body(
            data, ErrorInfo(kind="protocol", message=error.message), "malformed_body"
        )
    if read_text(fields, "object") != "response" and "output" not in fields:
        if read_object(fields.get("error")) or read_text(fields, "error"):
            return Step(data, (Failed(decode_error(data)),))
        message = "expected a response object, got JSON of another shape"
        return _failed_body(data, ErrorInfo(kind="protocol", message=message), "foreign_body")
    try:
        reader.take_body(fields)
    except MalformedJson as error:
        reader.found.append(("malformed_body", error.message))
        reader.fail_body(error)
    problems = tuple(Problem(1, kind, message) for kind, message in reader.found)
    return Step(data, reader.told(), problems)


def _output(response: Fields) -> list[Raw]:
    """The final output. Raises MalformedJson if it, or an item of it, cannot be read."""
    output = expect_list(response.get("output"), "output")
    for item in output:
        check_item(read_object(item) or expect_object(item, "an item"))
    return output


def _failed_body(data: bytes, error: ErrorInfo, kind: str) -> Step:
    return Step(data, (Failed(error),), (Problem(1, kind, error.message),))


def _is_one_line(data: bytes) -> bool:
    return _LF not in data
