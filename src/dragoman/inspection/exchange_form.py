"""The JSON form of the inspector: the types of the answers of `/v1/inspect/…`. `docs/inspector.md` describes it.

Every `at` of a frame or an event is in milliseconds since the exchange began.
"""

from typing import Literal

from msgspec import Struct

from dragoman.inspection.exchange import HeaderPairs

Side = Literal["client", "upstream"]


class ErrorReport(Struct, frozen=True):
    kind: str
    message: str


class UsageReport(Struct, frozen=True):
    input: int | None
    cached: int | None
    output: int | None


class RequestSummary(Struct, frozen=True, kw_only=True):
    """One row of the list. `previous`: the request before it in the conversation."""

    id: str
    at: float
    door: str
    model: str
    upstream: str | None = None
    upstream_dialect: str | None = None
    stream: bool = False
    live: bool = False
    captured: bool = True
    status: int | None = None
    finish: str | None = None
    error: ErrorReport | None = None
    first_byte_ms: float | None = None
    total_ms: float | None = None
    usage: UsageReport | None = None
    calls: tuple[str, ...] = ()
    losses: int = 0
    repairs: int = 0
    problems: int = 0
    previous: str | None = None


class FrameReport(Struct, frozen=True):
    """A frame; `n` counts from 1. A body that is not a stream is one frame."""

    n: int
    at: float
    bytes: int
    text: str


class AnswerReport(Struct, frozen=True, kw_only=True):
    status: int | None
    headers: HeaderPairs
    stream: bool
    frames: tuple[FrameReport, ...]


class ClientReport(Struct, frozen=True, kw_only=True):
    dialect: str
    method: str
    path: str
    headers: HeaderPairs
    body: str
    answer: AnswerReport


class AttemptReport(Struct, frozen=True, kw_only=True):
    upstream: str
    dialect: str
    model: str
    address: str
    at: float
    headers: HeaderPairs
    body: str
    answer: AnswerReport | None
    error: str | None


class EventReport(Struct, frozen=True, kw_only=True):
    """A canonical event between the wires. `attempt`: the index of the attempt that `upstream_frame` belongs to.

    upstream_range, client_ranges: the place of the delta's text in the frames' texts, in characters (code points).
    """

    n: int
    at: float
    type: str
    part: int | None = None
    choice: int = 0
    text: str | None = None
    attempt: int | None = None
    upstream_frame: int | None = None
    client_frames: tuple[int, ...] = ()
    upstream_range: tuple[int, int] | None = None
    client_ranges: tuple[tuple[int, int, int], ...] = ()


class BothSides(Struct, frozen=True):
    """A value on each wire; None where the call is not there, or not yet."""

    upstream: str | None
    client: str | None


class InputReport(Struct, frozen=True):
    """The source text of a call's input on one wire. `sha256` is of its UTF-8 bytes."""

    bytes: int
    sha256: str
    text: str


class InputsReport(Struct, frozen=True):
    """`equal`: whether both texts have the same bytes; None if the call is on one wire only."""

    upstream: InputReport | None
    client: InputReport | None
    equal: bool | None


class ResultReport(Struct, frozen=True):
    """`waiting`: no later request has the result. `paired`: `request` has it. `none`: the client need not send one."""

    state: Literal["waiting", "paired", "none"]
    request: str | None = None


class CallRow(Struct, frozen=True, kw_only=True):
    """A call of the answer, or (`place` is `request`) of the conversation that the client sent back."""

    part: int | None
    kind: str
    id: BothSides
    name: BothSides
    executor: str
    executable: bool
    why: str | None
    status: str
    input: InputsReport
    result: ResultReport
    place: Literal["answer", "request"] = "answer"


class Note(Struct, frozen=True, kw_only=True):
    """A loss, a repair or a problem, and the field or the frame that caused it. `docs`: a page and a heading of docs/."""

    type: Literal["loss", "repair", "problem"]
    code: str
    message: str
    side: Side
    docs: str
    field: str | None = None
    frame: int | None = None


class ChangedLine(Struct, frozen=True):
    op: Literal["=", "+", "-"]
    text: str


class ChangeReport(Struct, frozen=True, kw_only=True):
    """What differs between this request and the one before it, both as the upstream got them.

    common_prefix_bytes: how many bytes are the same from the beginning; a provider's cache can cover no more.
    """

    previous: str
    common_prefix_bytes: int
    lines: tuple[ChangedLine, ...]
    cached_tokens: int | None


class ExchangeReport(Struct, frozen=True, kw_only=True):
    summary: RequestSummary
    client: ClientReport
    attempts: tuple[AttemptReport, ...]
    events: tuple[EventReport, ...]
    calls: tuple[CallRow, ...]
    notes: tuple[Note, ...]
    change: ChangeReport | None
    truncated: bool
