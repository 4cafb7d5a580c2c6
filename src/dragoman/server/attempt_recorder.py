"""Records the attempts and the answer of one request: in its record, in counters, and in headers of the answer."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dragoman.gateway.attempt import AttemptObserver
from dragoman.gateway.plan import PlannedRequest
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.outcome import ErrorInfo, Loss, Problem, Repair
from dragoman.model.parts import Dialect
from dragoman.server.client import Client
from dragoman.server.http.connection import Headers
from dragoman.server.http.headers import loss_header
from dragoman.server.observe.logs import log_calls
from dragoman.server.observe.metrics import ACTIONS
from dragoman.server.observe.record import RequestRecord
from dragoman.server.rate_limits import limit_headers
from dragoman.upstream.base import Reply
from dragoman.upstream.http.headers import response_headers_for
from dragoman.upstream.retry import Decision, GiveUp

if TYPE_CHECKING:
    from dragoman.gateway.answer import AnswerWriter
    from dragoman.server.gateway import Gateway
    from dragoman.server.hosted_answer import HostedAnswer

T = TypeVar("T")


class AttemptRecorder(AttemptObserver):
    """The recorder of one request.

    losses: those of the requests that were sent, except failed attempts that another attempt followed.
    problems: those of the answers. error_limits: the rate limits of the last error reply.
    headers: further headers of the answer. on_sent: called with each request that is sent.
    """

    __slots__ = (
        "_before",
        "_client",
        "_dialect",
        "_gateway",
        "_has_failed",
        "_record",
        "error_limits",
        "headers",
        "losses",
        "on_sent",
        "problems",
    )

    def __init__(
        self, gateway: "Gateway", dialect: Dialect, record: RequestRecord, client: Client
    ) -> None:
        """`dialect`: the client's."""
        self.losses: tuple[Loss, ...] = ()
        self.problems: tuple[Problem, ...] = ()
        self.error_limits: Headers = ()
        self.headers: Headers = ()
        self.on_sent: Callable[[AttemptTarget, PlannedRequest], None] | None = None
        self._gateway = gateway
        self._dialect: Dialect = dialect
        self._record = record
        self._client = client
        self._has_failed = False
        self._before: tuple[tuple[Loss, ...], tuple[Repair, ...]] = ((), ())

    def started(self, target: AttemptTarget) -> None:
        record = self._record
        record.attempts += 1
        record.upstream = target.upstream
        record.upstream_model = target.model
        record.upstream_dialect = target.dialect
        if self._has_failed:
            self._has_failed = False
            self.losses, record.repairs = self._before
        else:
            self._before = (self.losses, record.repairs)

    def sent(self, target: AttemptTarget, request: PlannedRequest) -> None:
        record = self._record
        # An answer may take several requests; each has the same losses, which count once.
        if request.encoded.repairs:
            record.repairs = (*record.repairs, *_new(request.encoded.repairs, record.repairs))
        if request.losses:
            self.losses = (*self.losses, *_new(request.losses, self.losses))
        if self.on_sent is not None:
            self.on_sent(target, request)

    def replied(self, target: AttemptTarget, reply: Reply) -> None:
        gateway = self._gateway
        limits = limit_headers(self._dialect, target.dialect, reply.headers, gateway.wall_clock())
        is_error = not 200 <= reply.status <= 299
        if limits or is_error:
            gateway.limits.note_headers(target.upstream, reply.headers)
        if is_error:
            self.error_limits = limits
        elif not self._client.started:
            headers = response_headers_for(self._dialect, target.dialect, reply.headers)
            headers += limits
            if self.losses:
                headers.append(loss_header(self.losses))
            headers += self.headers
            self._client.reply_headers = headers

    def failed(self, target: AttemptTarget, error: ErrorInfo, decision: Decision) -> None:
        self._has_failed = True
        if not isinstance(decision, GiveUp):
            self._record.failed = (*self._record.failed, (target.upstream, error.kind))
        action = ACTIONS[type(decision)]
        self._gateway.telemetry.attempt_failed(target.upstream, error.kind, action)

    def ended(self, target: AttemptTarget, problems: Sequence[Problem]) -> None:
        del target
        self.problems = (*self.problems, *problems)


def note_client(record: RequestRecord, client: Client, *, began: float, now: float) -> None:
    """Record what was written to the client, and when."""
    record.status = client.status
    record.bytes_out = client.bytes_out
    record.duration_s = now - began
    if client.first_write is not None:
        record.first_byte_s = client.first_write - began


def note_answer(record: RequestRecord, answer: "AnswerWriter | HostedAnswer") -> None:
    """Record the calls, the usage and the outcome of an answer."""
    tally = answer.tally
    if tally.call_count:
        record.call_count = tally.call_count
        record.call_names = tuple(tally.names)
        log_calls(record, tally)
    record.finish = tally.finish
    if tally.usage is not None:
        record.input_tokens = tally.usage.input
        record.output_tokens = tally.usage.output
        record.cached_tokens = tally.usage.cached
        record.cache_write_tokens = tally.usage.cache_write
    error = answer.unstored
    if error is not None:
        record.finish = "error"
    error = error or tally.error
    if error is not None:
        record.error_kind = error.kind
        record.error = error.message
    record.problems = answer.all_problems()
    if answer.obsidian is not None:
        record.obsidian = answer.obsidian.report()


def _new(found: Sequence[T], known: Sequence[T]) -> list[T]:
    return [each for each in found if each not in known]
