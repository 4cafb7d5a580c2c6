"""Errors as values: `error_info` turns any exception of this package into `ErrorInfo`; tables pair kinds and statuses.

This module knows no vendor. Each dialect writes errors in its own `errors.py`.
"""

from collections.abc import Mapping

from msgspec import structs

from dragoman._json import raw
from dragoman.core.fields import read_object
from dragoman.errors import (
    GatewayError,
    RemoteProtocolError,
    RequestRefused,
    StreamTruncated,
    UpstreamError,
)
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.model.parts import Dialect

# Characters of a body without a message: enough to recognise a proxy's error page.
MAX_EXCERPT = 500

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
    # OpenAI's `insufficient_quota` is a 429. A retry does not help: only `kind` can say that.
    "quota": 429,
    "overloaded": 503,
    "timeout": 504,
    "truncated": 502,
    "protocol": 502,
    # For the log only: the client has disconnected. nginx logs 499 for it.
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

# Kinds of exceptions, with those that `ErrorKind` lacks: errors of the gateway itself, and an unusable call.
_KIND_OF_NAME: Mapping[str, ErrorKind] = {
    **{kind: kind for kind in STATUS_OF_KIND},
    "config": "server",
    "store": "server",
    "tool": "invalid_request",
}


class ReportedError(UpstreamError):
    """An error that an upstream sent in place of an answer; `info` is the whole error as its dialect decoded it."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, kind=info.kind, status=status_of(info))
        self.info = info


def error_info(error: GatewayError) -> ErrorInfo:
    """Turn any exception of this package into a value."""
    if isinstance(error, ReportedError):
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
    """Turn the error of an answer into an exception, for programs that raise it. A cut stream is StreamTruncated.

    Examples:
        >>> exception_of(ErrorInfo(kind="truncated", message="expected [DONE], the stream ended"))
        StreamTruncated('expected [DONE], the stream ended')
    """
    match info.kind:
        case "truncated":
            return StreamTruncated(info.message)
        case "protocol":
            return RemoteProtocolError(info.message)
        case _:
            return UpstreamError(info.message, kind=info.kind, status=status_of(info))


def reworded(info: ErrorInfo, message: str) -> ErrorInfo:
    """The error with another message, which also replaces the one in `raw`. Every vendor calls it `message`, at most one level down."""
    own = read_object(info.raw)
    inner = read_object(own.get("error"))
    if "message" in own:
        changed = own | {"message": raw(message)}
    elif "message" in inner:
        changed = own | {"error": raw(inner | {"message": raw(message)})}
    else:
        return structs.replace(info, message=message, raw=None)
    return structs.replace(info, message=message, raw=raw(changed))


def status_of(info: ErrorInfo) -> int:
    """The HTTP status for an error: its own status if that is an error status, else the status of its kind."""
    if info.status is not None and 400 <= info.status <= 599:
        return info.status
    return STATUS_OF_KIND[info.kind]


def error_of_text(data: bytes, status: int | None, dialect: Dialect) -> ErrorInfo:
    """An error whose body is not JSON: a proxy's page, a line of text, or empty."""
    text = data[:MAX_EXCERPT].decode("utf-8", "replace").strip()
    return ErrorInfo(
        kind="upstream" if status is None else kind_of_status(status),
        message=text or "the upstream answered with an error and no body",
        status=status,
        dialect=dialect,
    )


def kind_of_status(status: int) -> ErrorKind:
    """The kind of an error whose body does not state one. A status that is not an error status gives `upstream`."""
    known = _KIND_OF_STATUS.get(status)
    if known is not None:
        return known
    if 400 <= status <= 499:
        return "invalid_request"
    return "server" if 500 <= status <= 599 else "upstream"
