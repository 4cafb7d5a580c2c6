"""One recorded exchange: what the client and the upstreams sent, byte for byte and with times. Values only.

A gateway captures only bytes, times and the facts that are in no byte: which upstream was asked, the names and losses of the
plan, how the request ended. Everything else (frames, events, calls) is derived from the bytes when somebody asks for it
(`exchange_report`), so capturing costs little and the same code describes live exchanges and recordings.

Every `at` is in milliseconds since the exchange began, except `RecordedExchange.at`, which is in seconds since 1970.
"""

from msgspec import Struct, field

from dragoman.model.outcome import Loss, Problem, Repair
from dragoman.model.parts import Dialect
from dragoman.sse import begins_stream

HeaderPairs = tuple[tuple[str, str], ...]
"""Names in lower case, in their order."""


class TimedBytes(Struct, frozen=True, gc=False):
    """The bytes of one read or one write."""

    at: float
    data: bytes


class RecordedAnswer(Struct, frozen=True, kw_only=True):
    """An answer on one wire. `is_whole`: it has ended, perhaps because its sender broke off, and nothing that came is missing."""

    status: int | None = None
    headers: HeaderPairs = ()
    pieces: tuple[TimedBytes, ...] = ()
    is_whole: bool = True

    @property
    def data(self) -> bytes:
        return b"".join([piece.data for piece in self.pieces])

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream: by its first bytes, as some servers do not declare it."""
        first = next((piece.data for piece in self.pieces if piece.data.strip()), b"")
        return begins_stream(first)


class RecordedAttempt(Struct, frozen=True, kw_only=True):
    """One request to one upstream.

    model: the upstream's name for the model. names: the client's name of each tool that the upstream knows by another name.
    error: why there is no answer. answer: None if nothing came back.
    """

    upstream: str
    dialect: Dialect
    model: str = ""
    address: str = ""
    at: float = 0.0
    headers: HeaderPairs = ()
    body: bytes = b""
    answer: RecordedAnswer | None = None
    error: str | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether the client's answer was made from this attempt's answer."""
        status = None if self.answer is None else self.answer.status
        return self.error is None and status is not None and 200 <= status <= 299


class ExchangeFacts(Struct, frozen=True, kw_only=True):
    """How a request was served, as its log line reports it."""

    model: str = ""
    upstream: str | None = None
    upstream_dialect: str | None = None
    stream: bool = False
    status: int | None = None
    finish: str | None = None
    error_kind: str | None = None
    error: str | None = None
    first_byte_ms: float | None = None
    total_ms: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    calls: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()
    problems: tuple[Problem, ...] = ()


class RecordedExchange(Struct, frozen=True, kw_only=True):
    """A client's request, its answer, and the attempts in between. Several attempts may be answered: see `hosted-tools.md`.

    is_live: the answer has not ended. is_truncated: the capture left bytes out to stay within its limits.
    """

    id: str
    at: float
    dialect: Dialect
    method: str = "POST"
    path: str = ""
    headers: HeaderPairs = ()
    body: bytes = b""
    answer: RecordedAnswer = field(default_factory=RecordedAnswer)
    attempts: tuple[RecordedAttempt, ...] = ()
    facts: ExchangeFacts = field(default_factory=ExchangeFacts)
    is_live: bool = False
    is_truncated: bool = False
