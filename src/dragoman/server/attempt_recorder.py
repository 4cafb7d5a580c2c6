"""Records the attempts and the answer of one request: in its record, in counters, and in headers of the answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from dragoman.config.secrets import mask_url
from dragoman.core.usage import Tally
from dragoman.errors import GatewayError
from dragoman.gateway.attempt import AttemptObserver
from dragoman.gateway.plan import PlannedRequest
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import ErrorInfo, Loss, Problem, Repair
from dragoman.server.client import Client
from dragoman.server.http.connection import Headers
from dragoman.server.http.headers import loss_header
from dragoman.server.observe.capture import ExchangeCapture
from dragoman.server.observe.logs import log_calls
from dragoman.server.observe.metrics import ACTIONS
from dragoman.server.observe.record import RequestRecord
from dragoman.server.rate_limits import limit_headers
from dragoman.upstream.base import Take, UpstreamReply
from dragoman.upstream.http.headers import response_headers_for
from dragoman.upstream.retry import Decision, GiveUp

if TYPE_CHECKING:
    from dragoman.gateway.answer import AnswerWriter
    from dragoman.server.gateway import Gateway
    from dragoman.server.hosted_answer import HostedAnswer

T = TypeVar("T")


class Tap(Protocol):
    """Takes a copy of the bytes of one reply. It must not raise."""

    def feed(self, data: bytes) -> None: ...

    def close(self, *, is_whole: bool) -> None:
        """No more bytes come. `is_whole`: the reply has ended, or its sender has cut it; else the gateway stopped reading."""
        ...


class TappedReply(UpstreamReply):
    """A reply whose bytes also go to taps. It behaves like the reply itself otherwise."""

    def __init__(self, reply: UpstreamReply, taps: Sequence[Tap]) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._taps = taps

    @property
    def is_over(self) -> bool:
        return self._reply.is_over

    def take_pieces(self) -> list[bytes]:
        pieces = self._reply.take_pieces()
        if pieces:
            self._feed(pieces)
            self._end()
        return pieces

    async def read(self) -> bytes:
        try:
            data = await self._reply.read()
        except GatewayError:
            self._end()
            raise
        if data:
            self._feed([data])
        else:
            self._end()
        return data

    async def forward(self, take: Take) -> bool:
        def tapped(pieces: list[bytes]) -> bool:
            self._feed(pieces)
            return take(pieces)

        try:
            is_ended = await self._reply.forward(tapped)
        except GatewayError:
            self._end()
            raise
        if is_ended:
            self._end()
        return is_ended

    def close(self) -> None:
        self._end(is_whole=self._reply.is_over)
        self._reply.close()

    def _feed(self, pieces: Sequence[bytes]) -> None:
        for tap in self._taps:
            for piece in pieces:
                tap.feed(piece)

    def _end(self, *, is_whole: bool = True) -> None:
        for tap in self._taps:
            tap.close(is_whole=is_whole)
        self._taps = ()


class AttemptRecorder(AttemptObserver, Struct, eq=False):
    """The recorder of one request.

    losses: those of the requests that were sent, except failed attempts that another attempt followed.
    problems: those of the answers. error_limits: the rate limits of the last error reply.
    headers: further headers of the answer. on_sent: called with each request that is sent.
    """

    _gateway: "Gateway"
    _record: RequestRecord
    _client: Client
    _capture: ExchangeCapture | None = None
    losses: tuple[Loss, ...] = ()
    problems: tuple[Problem, ...] = ()
    error_limits: Headers = ()
    headers: Headers = ()
    on_sent: Callable[[AttemptTarget, PlannedRequest], None] | None = None
    _has_failed: bool = False
    _before: tuple[tuple[Loss, ...], tuple[Repair, ...]] = ((), ())
    trace_headers: Mapping[str, str] | None = None

    def started(self, target: AttemptTarget) -> None:
        record = self._record
        record.attempts += 1
        record.upstream = target.upstream
        record.peer = "" if target.peer == target.upstream else target.peer
        record.upstream_model = target.model
        record.upstream_dialect = target.dialect
        if self._has_failed:
            self._has_failed = False
            self.losses, record.repairs = self._before
        elif self.losses or record.repairs:
            self._before = (self.losses, record.repairs)
        if self._capture is not None or record.trace is not None:
            upstream = self._gateway.upstreams.by_name[target.peer]
            url = upstream.url_of(target.dialect, "generate")
            if self._capture is not None:
                self._capture.attempt_started(target, mask_url(url))
            if record.trace is not None:
                record.trace.attempt_started(target, url)
                self.trace_headers = record.trace.headers()

    def sent(self, target: AttemptTarget, request: PlannedRequest) -> None:
        record = self._record
        # An answer may take several requests; each has the same losses, which count once.
        if request.encoded.repairs:
            record.repairs = (*record.repairs, *_new(request.encoded.repairs, record.repairs))
        if request.losses:
            self.losses = (*self.losses, *_new(request.losses, self.losses))
        if self.on_sent is not None:
            self.on_sent(target, request)
        if self._capture is not None:
            self._capture.attempt_sent(request)

    def replied(self, target: AttemptTarget, reply: UpstreamReply) -> UpstreamReply:
        gateway = self._gateway
        limits = limit_headers(
            self._record.door, target.dialect, reply.headers, gateway.wall_clock()
        )
        is_error = not 200 <= reply.status <= 299
        if limits or is_error:
            gateway.limits.note_headers(target.peer, reply.headers)
        if is_error:
            self.error_limits = limits
        elif not self._client.started:
            headers = response_headers_for(self._record.door, target.dialect, reply.headers)
            headers += limits
            if self.losses:
                headers.append(loss_header(self.losses))
            headers += self.headers
            self._client.reply_headers = headers
        if self._capture is None and gateway.dump is None and self._record.trace is None:
            return reply
        taps = self._taps(target, reply)
        return TappedReply(reply, taps) if taps else reply

    def _taps(self, target: AttemptTarget, reply: UpstreamReply) -> list[Tap]:
        taps: list[Tap] = []
        dump = self._gateway.dump
        # Some backends do not declare that they stream; a JSON body has no frames. Codex speaks JSON-RPC.
        is_dumped = dump is not None and target.dialect != "codex" and 200 <= reply.status <= 299
        if dump is not None and is_dumped and "json" not in reply.headers.get("content-type", ""):
            secrets = self._gateway.upstreams.by_name[target.peer].secrets
            taps.append(dump.begin(target, self._record.request_id, secrets))
        if self._capture is not None:
            taps.append(self._capture.attempt_replied(reply.status, reply.headers))
        trace = self._record.trace
        timed = None if trace is None else trace.attempt_replied(reply.status, reply.headers)
        if timed is not None:
            taps.append(timed)
        return taps

    def failed(self, target: AttemptTarget, error: ErrorInfo, decision: Decision) -> None:
        self._has_failed = True
        if not isinstance(decision, GiveUp):
            self._record.failed = (*self._record.failed, (target.peer, error.kind))
        action = ACTIONS[type(decision)]
        self._gateway.telemetry.attempt_failed(target.upstream, error.kind, action)
        if self._capture is not None:
            self._capture.attempt_failed(error.message)
        if self._record.trace is not None:
            self._record.trace.attempt_failed(error)

    def cooled(self, target: AttemptTarget, *, is_out: bool) -> None:
        self._gateway.telemetry.cooled(target.upstream, target.peer, is_out=is_out)

    def ended(self, target: AttemptTarget, problems: Sequence[Problem]) -> None:
        del target
        self.problems = (*self.problems, *problems)

    def finish(self, answer: "AnswerWriter | HostedAnswer | None", began: float) -> None:
        """The exchange has ended. Record what was written to the client and when, and the outcome of the answer."""
        record, client = self._record, self._client
        record.status = client.status
        record.bytes_out = client.bytes_out
        record.duration_s = self._gateway.clock() - began
        if client.first_write is not None:
            record.first_byte_s = client.first_write - began
        record.losses = self.losses
        if answer is None:
            return
        if answer.losses:
            record.losses = (*self.losses, *answer.losses)
        if answer.tally is not None:
            self._note_tally(answer.tally)
        unstored, problems, obsidian = answer.report()
        if unstored is not None:
            record.finish = "error"
            record.error_kind = unstored.kind
            record.error = unstored.message
        if problems:
            record.problems = problems
        if obsidian is not None:
            record.obsidian = obsidian.report()

    def _note_tally(self, tally: Tally) -> None:
        """Record the calls, the usage and the end of an answer."""
        record = self._record
        if tally.call_count:
            record.call_count = tally.call_count
            record.call_names = tuple(tally.names)
            log_calls(record, tally)
        if record.trace is not None:
            record.trace.answered(tally)
        record.finish = tally.finish
        usage = tally.usage
        if usage is not None:
            record.input_tokens = usage.input
            record.output_tokens = usage.output
            record.cached_tokens = usage.cached
            record.cache_write_tokens = usage.cache_write
        if tally.error is not None:
            record.error_kind = tally.error.kind
            record.error = tally.error.message
        if tally.limits is not None:
            self._gateway.limits.note(record.peer or record.upstream, tally.limits)


def _new(found: Sequence[T], known: Sequence[T]) -> list[T]:
    return [each for each in found if each not in known]
