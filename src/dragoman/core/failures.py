"""Errors as values: one function turns any exception of ours into `ErrorInfo`, one table pairs kinds and statuses.

How a dialect spells an error is its own affair (`errors.py` of the dialect); this module knows no vendor.
"""

from collections.abc import Mapping

from dragoman.errors import (
    GatewayError,
    RemoteProtocolError,
    RequestRefused,
    StreamTruncated,
    UpstreamError,
)
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.model.parts import Dialect

MAX_EXCERPT = (
    500  # characters of a body without a message: enough to recognise a proxy's error page
)

STATUS_OF_KIND: Mapping[ErrorKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    # Both vendors answer 400 to these two and distinguish them by code or message.
    "context_length": 400,
    "content_policy": 400,
    "rate_limit": 429,
    # OpenAI's `insufficient_quota` is a 429; a retry does not help, which `kind` says and the status cannot.
    "quota": 429,
    "overloaded": 503,
    "timeout": 504,
    "truncated": 502,
    "protocol": 502,
    # Nobody reads it, the client has gone; nginx writes 499 into its log for the same event.
    "cancelled": 499,
    "upstream": 502,
    "server": 500,
}

_KIND_OF_STATUS: Mapping[int, ErrorKind] = {
    401: "authentication",
    402: "quota",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    429: "rate_limit",
    499: "cancelled",
    502: "upstream",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",  # Anthropic's own number
}

# What an exception may call itself beyond the vocabulary: faults of this side, and a call that cannot be used.
_KIND_OF_NAME: Mapping[str, ErrorKind] = {
    **{kind: kind for kind in STATUS_OF_KIND},
    "config": "server",
    "store": "server",
    "tool": "invalid_request",
}


class ToldError(UpstreamError):
    """What an upstream sent in place of an answer; `info` is all of it, as its dialect has it."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info
        self.kind = info.kind
        self.status = status_of(info)


def error_info(error: GatewayError) -> ErrorInfo:
    """Any exception of this package as a value."""
    if isinstance(error, ToldError):
        return error.info
    code, param = (error.code, error.param) if isinstance(error, RequestRefused) else (None, None)
    return ErrorInfo(
        kind=_KIND_OF_NAME.get(error.kind, "server"),
        message=error.message,
        status=error.status,
        code=code,
        param=param,
    )


def exception_of(info: ErrorInfo) -> GatewayError:
    """An answer's error as an exception, for programs that would rather raise it: a cut stream is StreamTruncated."""
    match info.kind:
        case "truncated":
            return StreamTruncated(info.message)
        case "protocol":
            return RemoteProtocolError(info.message)
        case _:
            error = UpstreamError(info.message)
            error.kind = info.kind
            error.status = status_of(info)
            return error


def status_of(info: ErrorInfo) -> int:
    """The HTTP status for an error: the one it carries if that is an error status, else the one of its kind."""
    if info.status is not None and 400 <= info.status <= 599:
        return info.status
    return STATUS_OF_KIND[info.kind]


def error_of_text(data: bytes, status: int | None, dialect: Dialect) -> ErrorInfo:
    """An error whose body is no JSON: a proxy's page, a line of text, nothing."""
    text = data[:MAX_EXCERPT].decode("utf-8", "replace").strip()
    return ErrorInfo(
        kind="upstream" if status is None else kind_of_status(status),
        message=text or "the upstream answered with an error and no body",
        status=status,
        dialect=dialect,
    )


def kind_of_status(status: int) -> ErrorKind:
    """What an error status says when the body says nothing. A status that is no error is the upstream's fault."""
    known = _KIND_OF_STATUS.get(status)
    if known is not None:
        return known
    if 400 <= status <= 499:
        return "invalid_request"
    return "server" if 500 <= status <= 599 else "upstream"
