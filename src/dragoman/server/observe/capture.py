"""Captures one exchange: the bytes of both wires, with times. Nothing here parses anything.

A captured exchange writes to its client over a `CapturedConnection`, and the attempt recorder passes each reply to the capture. An
exchange that is not captured has neither, so the capture costs it nothing.

The bytes of one exchange are limited. The capture leaves out the rest and marks the exchange as truncated.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from time import monotonic

from msgspec import structs

from dragoman.core.secrets import HIDDEN, header_credentials, is_secret_header
from dragoman.gateway.answer import Pending, settle
from dragoman.gateway.plan import PlannedRequest
from dragoman.gateway.targets import AttemptTarget
from dragoman.inspection.exchange import (
    ExchangeFacts,
    HeaderPairs,
    RecordedAnswer,
    RecordedAttempt,
    RecordedExchange,
    TimedBytes,
)
from dragoman.inspection.receipt import Receipt
from dragoman.model.parts import Dialect
from dragoman.server.http.connection import ClientConnection, Headers
from dragoman.server.observe.record import RequestRecord

# Bytes that a piece takes besides its data: the object, the tuple's slot, the time. They matter for a stream of one-byte reads.
_PIECE_BYTES = 160
_ATTEMPT_BYTES = 1024
_EXCHANGE_BYTES = 4096


class _CapturedAnswer:
    """The answer on one wire, while it comes."""

    __slots__ = ("_capture", "_is_cut", "_pieces", "headers", "is_ended", "status")

    def __init__(
        self,
        capture: "ExchangeCapture",
        status: int | None = None,
        headers: HeaderPairs = (),
    ) -> None:
        self._capture = capture
        self.status = status
        self.headers = headers
        self.is_ended = False
        self._pieces: list[TimedBytes] = []
        self._is_cut = False  # by the capture

    def feed(self, data: bytes) -> None:
        if not data or self._is_cut:
            return
        if self._capture.take_room(len(data) + _PIECE_BYTES):
            self._pieces.append(TimedBytes(self._capture.now(), data))
        else:
            self._is_cut = True

    def close(self, *, is_whole: bool = True) -> None:
        """No more bytes come. `is_whole`: the answer has ended, or its sender has cut it."""
        self.is_ended = is_whole

    def clear(self) -> None:
        self._pieces.clear()
        self._is_cut = True

    def recorded(self) -> RecordedAnswer:
        return RecordedAnswer(
            status=self.status,
            headers=self.headers,
            pieces=tuple(self._pieces),
            is_whole=self.is_ended and not self._is_cut,
        )


class ExchangeCapture:
    """One captured exchange, live or ended.

    exchange: without the answers, which `recorded` adds. Its id is unique in the ring.
    size: the bytes it takes. owner: of the caller; see `server.access.Caller`.
    keys: the caller's keys, to be hidden where the exchange is shown.
    previous: the id of the request before it in the conversation, known when the exchange has ended.
    is_settled: what is derived at the end of an exchange is there. is_dropped: there was no room for it any more.
    is_shown: the inspector shows the exchange; otherwise only its receipt was asked for, and only that is kept at its end.
    wants_receipt: the client, or the operator, asked for a receipt. receipt: the receipt, when the exchange has ended.
    """

    def __init__(
        self,
        *,
        dialect: Dialect,
        path: str,
        method: str,
        headers: Headers,
        at: float,
        limit: int,
    ) -> None:
        shown, self.keys = _shown_headers(headers)
        self.exchange = RecordedExchange(
            id="", at=at, dialect=dialect, method=method, path=path, headers=shown, is_live=True
        )
        self.client = _CapturedAnswer(self)
        self.owner = ""
        self.size = _EXCHANGE_BYTES
        self.previous: str | None = None
        self.is_settled = False
        self.is_shown = True
        self.is_dropped = False
        self.wants_receipt = False
        self.receipt: Receipt | None = None
        self._answers: dict[int, _CapturedAnswer] = {}  # of the upstreams, by attempt
        self._began = monotonic()
        self._limit = limit
        self._on_growth: Callable[[int], None] | None = None

    @property
    def id(self) -> str:
        return self.exchange.id

    def now(self) -> float:
        return (monotonic() - self._began) * 1000

    def take_room(self, size: int) -> bool:
        """Whether this many more bytes may be kept."""
        if self.size + size > self._limit:
            self._change(is_truncated=True)
            return False
        self.size += size
        if self._on_growth is not None:
            self._on_growth(size)  # which may drop this exchange
        return not self.is_dropped

    def admit(self, id_: str, owner: str, on_growth: Callable[[int], None]) -> None:
        """The exchange is in the ring. `on_growth`: called with the number of bytes each time it grows."""
        self._change(id=id_)
        self.owner = owner
        self._on_growth = on_growth

    def drop(self) -> None:
        """Forget all bytes: there is no room for this exchange any more."""
        self._on_growth = None
        self._limit = 0
        self.size = _EXCHANGE_BYTES
        self.is_dropped = True
        for answer in (self.client, *self._answers.values()):
            answer.clear()
        attempts = [structs.replace(each, body=b"") for each in self.exchange.attempts]
        self._change(body=b"", attempts=tuple(attempts), is_truncated=True)

    def take_request(self, body: bytes) -> None:
        if self.take_room(len(body)):
            self._change(body=body)

    # --- the upstreams' wires -------------------------------------------------------------------------------------------

    def attempt_started(self, target: AttemptTarget, address: str) -> None:
        # There is always room for this: the settings limit how many attempts there are.
        self.take_room(_ATTEMPT_BYTES)
        attempt = RecordedAttempt(
            upstream=target.upstream,
            dialect=target.dialect,
            model=target.model,
            address=address,
            at=self.now(),
        )
        self._change(attempts=(*self.exchange.attempts, attempt))

    def attempt_sent(self, request: PlannedRequest) -> None:
        body = request.encoded.body
        names = {
            wire: name if space is None else f"{space}.{name}"
            for (space, name), wire in request.names.wires.items()
            if wire != name or space is not None
        }
        self._change_attempt(
            body=body if self.take_room(len(body)) else b"",
            names=names,
            losses=request.losses,
            repairs=request.encoded.repairs,
        )

    def attempt_replied(self, status: int, headers: Mapping[str, str]) -> _CapturedAnswer:
        """Return the object that takes the bytes of the reply."""
        answer = _CapturedAnswer(self, status, _shown_pairs(headers.items()))
        self._answers[len(self.exchange.attempts) - 1] = answer
        return answer

    def attempt_failed(self, message: str) -> None:
        self._change_attempt(error=message)

    # --- the result -----------------------------------------------------------------------------------------------------

    def end(self, record: RequestRecord) -> None:
        self._on_growth = None
        self._change(is_live=False, facts=facts_of(record))

    def recorded(self) -> RecordedExchange:
        """Everything that has been captured so far."""
        attempts = [
            structs.replace(attempt, answer=self._answers[index].recorded())
            if index in self._answers
            else attempt
            for index, attempt in enumerate(self.exchange.attempts)
        ]
        return structs.replace(
            self.exchange, answer=self.client.recorded(), attempts=tuple(attempts)
        )

    def _change(self, **changes: object) -> None:
        self.exchange = structs.replace(self.exchange, **changes)

    def _change_attempt(self, **changes: object) -> None:
        *before, last = self.exchange.attempts
        self._change(attempts=(*before, structs.replace(last, **changes)))


def facts_of(record: RequestRecord) -> ExchangeFacts:
    """The facts of a finished request."""
    first = record.first_byte_s
    return ExchangeFacts(
        model=record.model,
        upstream=record.upstream or None,
        upstream_dialect=record.upstream_dialect or None,
        stream=record.stream,
        status=record.status or None,
        finish=record.finish,
        error_kind=record.error_kind,
        error=record.error or None,
        first_byte_ms=None if first is None else round(first * 1000, 3),
        total_ms=round(record.duration_s * 1000, 3),
        input_tokens=record.input_tokens,
        cached_tokens=record.cached_tokens,
        output_tokens=record.output_tokens,
        calls=record.call_names,
        losses=record.losses,
        repairs=record.repairs,
        problems=record.problems,
    )


def _shown_headers(headers: Headers) -> tuple[HeaderPairs, tuple[str, ...]]:
    """The headers without credentials, and the credentials."""
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    values = [value for name, value in pairs if is_secret_header(name)]
    keys = [key for value in values for key in (value, *header_credentials(value))]
    return _shown_pairs(pairs), tuple(dict.fromkeys(keys))


def _shown_pairs(pairs: Iterable[tuple[str, str]]) -> HeaderPairs:
    return tuple((name, HIDDEN if is_secret_header(name) else value) for name, value in pairs)


MakeReceipt = Callable[[], Awaitable[bytes]]
"""Returns the receipt of an exchange that is about to end, as JSON in ASCII; empty if there is none."""

# Many servers and clients refuse headers of more than 8 KB together; the answer has others too.
_MAX_RECEIPT_HEADER = 4096
RECEIPT_HEADER = b"x-dragoman-receipt"


class CapturedConnection:
    """A client's connection whose answer is captured. It behaves like the connection itself otherwise.

    make_receipt: if it is set, the answer carries its receipt: a body in a header, a stream in a comment before its last frames.
    Clients ignore both; a receipt that is too long for a header, and that of an error, is only at `/v1/inspect`.
    """

    def __init__(self, connection: ClientConnection, capture: ExchangeCapture) -> None:
        self._connection = connection
        self._answer = capture.client
        self.make_receipt: MakeReceipt | None = None
        # The reading side is that of the connection.
        self.line_bytes = connection.line_bytes
        self.task = connection.task
        self.take_headers = connection.take_headers
        self.take_body = connection.take_body
        self.receive = connection.receive
        self.on_leave = connection.on_leave

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        self._begin(status, headers)
        self._answer.feed(body)
        self._answer.close()
        if self.make_receipt is not None and status == 200:
            return partial(self._respond, self.make_receipt, headers, body)
        return self._connection.respond(status, headers, body)

    def begin(self, headers: Headers, data: bytes) -> Pending:
        self._begin(200, headers)
        self._answer.feed(data)
        return self._connection.begin(headers, data)

    def write(self, data: bytes) -> Pending:
        self._answer.feed(data)
        return self._connection.write(data)

    def finish(self, data: bytes) -> Pending:
        self._answer.feed(data)
        self._answer.close()
        if self.make_receipt is not None:
            return partial(self._finish, self.make_receipt, data)
        return self._connection.finish(data)

    async def _respond(self, make: MakeReceipt, headers: Headers, body: bytes) -> None:
        receipt = await make()
        if 0 < len(receipt) <= _MAX_RECEIPT_HEADER:
            headers = [*headers, (RECEIPT_HEADER, receipt)]
        await settle(self._connection.respond(200, headers, body))

    async def _finish(self, make: MakeReceipt, data: bytes) -> None:
        receipt = await make()
        comment = b": " + RECEIPT_HEADER + b" " + receipt + b"\n\n" if receipt else b""
        await settle(self._connection.finish(comment + data))

    def _begin(self, status: int, headers: Headers) -> None:
        self._answer.status = status
        self._answer.headers = _shown_headers(headers)[0]
