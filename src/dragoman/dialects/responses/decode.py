"""Reads a Responses stream or body: turns each frame into events.

Nearly all frames are deltas of an announced part; a typed decoder reads them, and their text is emitted directly. Every
other frame, and every irregular delta, is read field by field and handed to the `OutputReader`.

The states of a stream:

    SILENT --any event--> SPEAKING --completed, incomplete, cancelled--> OVER
       '-------------------'--failed, error, end of the stream--> OVER, after ending open parts as incomplete
"""

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_text, raw
from dragoman.core.fields import (
    Fields,
    expect_list,
    expect_object,
    expect_text,
    read_int,
    read_object,
    read_text,
    without,
)
from dragoman.core.fold import settle_finish
from dragoman.core.open_parts import (
    OpenCall,
    OpenPart,
    OpenReasoning,
    OpenText,
    Parts,
    Problems,
)
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.responses.answer import (
    LIMITS_EVENT,
    check_end,
    read_end,
    read_finish,
    read_limits,
    read_started,
    read_usage,
)
from dragoman.dialects.responses.errors import decode_error, read_error
from dragoman.dialects.responses.events import HANDLERS, is_content
from dragoman.dialects.responses.items import check_item
from dragoman.dialects.responses.output import OutputReader
from dragoman.dialects.responses.wire import (
    ENVELOPE_FIELDS,
    KEEPALIVE_EVENTS,
    REASONING_DELTAS,
    TERMINAL_EVENTS,
    Delta,
    decode_delta,
)
from dragoman.dialects.stream_decoder import Step
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    Noticed,
    Progress,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Limits, Problem
from dragoman.model.parts import Extra, PartStatus
from dragoman.sse import Frame

_NO_CONTEXT = DecodeContext()


class _Numbers:
    """Finds gaps in the `sequence_number` of events.

    Some servers omit the numbers, omit them in deltas, or count differently. So a gap counts only if the numbers went up by
    one before, and never after the numbers have fallen behind the frames.
    """

    __slots__ = ("_ahead", "_is_known", "_is_odd", "_unnumbered")

    def __init__(self) -> None:
        self._ahead: int | None = None  # how far the numbers are ahead of the frames
        self._is_known = False  # the numbers have gone up by one
        self._is_odd = False
        self._unnumbered = 0  # frames without a number

    def skip_before(self, number: int | None, frame: int) -> bool:
        """Take the number of a frame and return whether numbers were skipped before it."""
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

    def __init__(self, context: DecodeContext = _NO_CONTEXT) -> None:
        self.over = False
        self.frame = 0
        self.problems: Problems = []
        self._parts = Parts(
            self.problems,
            tools=context.tools,
            name_rule=context.name_fallback,
            seed=context.seed,
        )
        self._output = OutputReader(self._parts)
        self._streaming = self._output.items.streaming
        self._numbers = _Numbers()
        self._started = False
        self._extra: Extra | None = None
        self._limits: Limits | None = None  # reported before the answer began

    def find_delta(self, _opening: bytes, data: bytes, /) -> tuple[OpenPart, str] | None:
        """See `stream_decoder.FrameReader`. Reads the frame with the typed decoder only."""
        try:
            delta = decode_delta(data)
        except FAST_FAILURES:
            return None
        known = self._streaming.get(delta.item_id)
        if known is None:
            return None
        wire, part, index = known
        if wire != delta.type or not part.is_plain or delta.output_index is None:
            return None
        text = delta.delta
        if type(part) is OpenCall:
            return part, text
        if type(part) is OpenText:
            is_plain = index == delta.content_index and not delta.logprobs
        else:
            is_plain = _goes_on(part, delta)
        return (part, text) if is_plain and text else None

    def read(self, frame: Frame) -> tuple[Event, ...]:
        """Return the events of a frame.

        Raises:
            MalformedJson: the frame's data is not a JSON object.
        """
        data = frame.data
        if data is None or not data.strip():
            return self._read_empty(frame)
        return self._read_event(frame, data)

    def end(self) -> tuple[Event, ...]:
        """Fail, because the stream ended without a terminal event."""
        self.problems.append(
            ("cut_stream", "expected response.completed, got the end of the stream")
        )
        message = "the stream ended before response.completed"
        return self.fail(ErrorInfo(kind="truncated", message=message))

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        """End the open parts as incomplete, then fail."""
        self._output.close("incomplete", is_failure=True)
        self._fail(error)
        return self._parts.take()

    # --- frames ------------------------------------------------------------------------------------------------------

    def _read_empty(self, frame: Frame) -> tuple[Event, ...]:
        """Read a frame without data: a comment, a keep-alive, or an event that lost its data."""
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
        if self._numbers.skip_before(read_int(fields.get("sequence_number")), self.frame):
            self._output.calls.gaps += 1
        name = read_text(fields.get("type")) or ""
        if not is_content(name):
            called = frame.name.decode("utf-8", "replace")
            if is_content(called):
                name = ""  # only the event line has the type of a content event: use it
        if not name:
            name = frame.name.decode("utf-8", "replace")
            if not name:
                expect_text(fields.get("type"), "type")
            self.problems.append(
                ("missing_type", f"expected a type in the data, took {name!r} from the event line")
            )
            if not name and "error" in fields:
                name = "error"
        self._take(name, fields, data)
        return self._parts.take()

    def _read_done(self) -> tuple[Event, ...]:
        """Handle `[DONE]` instead of `response.completed`: the answer is complete if no call's input is open."""
        if not self._started or self._output.has_open_input:
            return self.end()
        self.problems.append(("inferred_end", "expected response.completed, got [DONE]"))
        self._finish({}, "response.completed", is_inferred=True)
        return self._parts.take()

    def _take(self, name: str, fields: Fields, data: bytes) -> None:
        if name in KEEPALIVE_EVENTS:
            if name != "keepalive":
                self.problems.append(
                    ("unknown_event", f"expected the event keepalive, got {name!r}")
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
        """Read an event between the beginning and the end of the answer."""
        handler = HANDLERS.get(name)
        if handler is None:
            self.problems.append(
                ("unknown_event", f"expected an event of the protocol, got {name!r}")
            )
        else:
            if not self._started:
                self._start({}, is_regular=False)
            is_placed = handler(self._output, fields)
            if self._fail_if_faulty():
                return
            if is_placed:
                if not ENVELOPE_FIELDS.issuperset(fields):
                    unknown = without(fields, ENVELOPE_FIELDS)
                    self._emit(Noticed("fields", "responses", name, raw(unknown)))
                return
            self.problems.append(("unplaced_event", f"expected {name} for a known item"))
        self._emit(Noticed("unknown", "responses", name, Raw(data)))

    def take(self) -> tuple[Event, ...]:
        """Return the events that have not been returned yet."""
        return self._parts.take()

    def _emit(self, event: Event) -> None:
        self._parts.events.append(event)

    # --- the beginning -----------------------------------------------------------------------------------------------

    def _created(self, fields: Fields) -> None:
        response = read_object(fields.get("response"))
        if self._started:
            self.problems.append(("repeated_start", "expected one response.created, got another"))
            self._emit(Noticed("fields", "responses", "response.created", fields.get("response")))
            return
        if "output" not in response:
            self.problems.append(("missing_output", "expected output in response.created"))
        self._start(response, is_regular=True)

    def _start(self, response: Fields, *, is_regular: bool) -> None:
        """Emit Started, unless that has happened."""
        if self._started:
            return
        if not is_regular:
            self._output.items.report_in_stream("missing_start", "expected response.created first")
        self._started = True
        started = read_started(response)
        self._extra = started.extra
        self._parts.seed = self._parts.seed or started.response_id
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
            self._output.close("incomplete", is_failure=True)
            self._fail(read_error(fields))
        elif name == "response.failed" or read_text(response.get("status")) == "failed":
            self._take_failure(response)
        else:
            check_end(response, name)
            self._start(response, is_regular=False)
            self._finish(response, name)

    def take_body(self, response: Fields) -> None:
        """Read a whole response object."""
        self._output.items.is_body = True
        self._start(response, is_regular=True)
        if read_text(response.get("status")) == "failed":
            self._output.settle(_output(response), "incomplete")
            self._take_failure(response)
        else:
            self._finish(response, "")

    def fail_body(self, error: MalformedJson) -> None:
        """Fail, because a field of the response cannot be read."""
        self._output.close("incomplete", is_failure=True)
        self._fail(ErrorInfo(kind="protocol", message=error.message))

    def _take_failure(self, response: Fields) -> None:
        self._output.close("incomplete", is_failure=True)
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
            self._output.settle(output, status)
        self._output.close(status)
        if self._fail_if_faulty():
            return
        has_calls = self._output.calls.has_waiting
        reason = settle_finish(finish.reason, has_complete_client_calls=has_calls)
        self._emit(Finished(reason, inferred=is_inferred, native=finish.native, extra=finish.extra))
        usage = read_usage(response.get("usage"))
        if usage is not None:
            if usage.input is None or usage.output is None or usage.total is None:
                self.problems.append(
                    ("partial_usage", "expected input, output and total tokens in usage")
                )
            self._emit(UsageReported(usage))
        self._emit(Completed(read_end(response, self._extra)))
        self.over = True

    def _fail_if_faulty(self) -> bool:
        """Fail if a call cannot be emitted as it was sent."""
        fault = self._parts.fault
        if fault:
            self._output.close("incomplete", is_failure=True)
            self._fail(ErrorInfo(kind="protocol", message=fault))
        return bool(fault)

    def _inspect_end(self, response: Fields, name: str) -> None:
        status = read_text(response.get("status"))
        if name == "response.completed" and status not in (None, "completed"):
            self.problems.append(
                ("wrong_finish", f"expected status completed at the end, got {status!r}")
            )
        if name == "response.incomplete" and not read_object(response.get("incomplete_details")):
            self.problems.append(("missing_finish", "expected the reason in incomplete_details"))

    def _fail(self, error: ErrorInfo) -> None:
        self._emit(Failed(error))
        self.over = True


def read_body(data: bytes, context: DecodeContext = _NO_CONTEXT) -> Step:
    """Read a whole body into the events that its stream would give. Never raises: a body that is not a response fails."""
    reader = ResponsesReader(context)
    try:
        fields = as_object(data)
    except MalformedJson as error:
        return _failed_body(
            data, ErrorInfo(kind="protocol", message=error.message), "malformed_body"
        )
    if read_text(fields.get("object")) != "response" and "output" not in fields:
        if read_object(fields.get("error")) or read_text(fields.get("error")):
            return Step(data, (Failed(decode_error(data)),))
        message = "expected a response object, got JSON of another shape"
        return _failed_body(data, ErrorInfo(kind="protocol", message=message), "foreign_body")
    try:
        reader.take_body(fields)
    except MalformedJson as error:
        reader.problems.append(("malformed_body", error.message))
        reader.fail_body(error)
    problems = tuple(Problem(1, kind, message) for kind, message in reader.problems)
    return Step(data, reader.take(), problems)


def _output(response: Fields) -> list[Raw]:
    """Return the final output. Raises MalformedJson if the output or one of its items cannot be read."""
    output = expect_list(response.get("output"), "output")
    for item in output:
        check_item(read_object(item) or expect_object(item, "an item"))
    return output


def _failed_body(data: bytes, error: ErrorInfo, kind: str) -> Step:
    return Step(data, (Failed(error),), (Problem(1, kind, error.message),))


def _goes_on(reasoning: OpenReasoning, delta: Delta) -> bool:
    """Return whether a delta belongs to the reasoning entry that grew last."""
    if delta.type == REASONING_DELTAS["content"]:
        return reasoning.channel == "content" and reasoning.index == delta.content_index
    return reasoning.channel == "summary" and reasoning.index == delta.summary_index
