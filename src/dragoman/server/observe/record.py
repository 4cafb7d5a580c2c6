"""The record of one finished request, from which the log line, the metrics and the trace are made."""

from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.gateway.hosted.merge import HostedCall
from dragoman.inspection.receipt import Receipt
from dragoman.model.outcome import ErrorKind, FinishReason, Loss, Problem, Repair
from dragoman.model.parts import Dialect
from dragoman.obsidian.answer import ObsidianReport
from dragoman.store.key_usage import Counts

if TYPE_CHECKING:
    from dragoman.server.observe.tracing import RequestTrace


class RequestRecord(Struct, kw_only=True, eq=False):
    """Filled while a request is served, read once at its end. Contains no content and no credentials.

    peer: the one that was asked last, if the upstream has peers.
    model: the name that the client asked for, as received; upstream_model: the name that the upstream was asked for.
    status: the HTTP status that the client got; 0 if it left before that.
    first_byte_s, duration_s: seconds from the request's head to the first and to the last byte of the answer.
    cached_tokens, cache_write_tokens: how many of the input tokens the upstream read from its cache, and wrote to it.
    attempts: how often an upstream was asked. failed: the upstream and the kind of error of each attempt that another one followed.
    error: the message that the client got, for the log.
    key: the name of the caller's key, if it has one. used: what the request was counted with under its limits, once it was admitted.
    upstream_dialect: the dialect in which the upstream was asked.
    hosted: the calls that the gateway ran, each as server, tool and outcome.
    obsidian: the report of an answer under the Obsidian policy.
    receipt: the receipt, if one was asked for.
    trace: the trace of the request until its spans have ended. trace_id: for the log; empty if there is no trace.
    """

    door: Dialect
    request_id: str = ""
    upstream: str = ""
    peer: str = ""
    model: str = ""
    upstream_model: str = ""
    upstream_dialect: str = ""
    status: int = 0
    stream: bool = False
    call_count: int = 0
    call_names: tuple[str, ...] = ()
    finish: FinishReason | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    first_byte_s: float | None = None
    duration_s: float = 0.0
    losses: tuple[Loss, ...] = ()
    repairs: tuple[Repair, ...] = ()
    problems: tuple[Problem, ...] = ()
    error_kind: ErrorKind | None = None
    error: str = ""
    attempts: int = 0
    failed: tuple[tuple[str, ErrorKind], ...] = ()
    client_gone: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    caller: str = ""
    key: str = ""
    used: Counts | None = None
    hosted: tuple[HostedCall, ...] = ()
    obsidian: ObsidianReport | None = None
    receipt: Receipt | None = None
    trace: "RequestTrace | None" = None
    trace_id: str = ""
