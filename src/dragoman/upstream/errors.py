"""Errors for a server that gives no answer: their messages, kinds and statuses in one place.

Messages use the operator's name of the upstream and say which timeout expired. Clients read them, so they quote no header and no
query. Only the message of a 404 has an address, without which nobody finds a wrong one. The system's error messages contain
addresses too, so they go into `detail`, for the operator's log.
"""

import os
import socket
import ssl
from urllib.parse import urlsplit, urlunsplit

from dragoman.core.failures import ReportedError, reworded
from dragoman.core.secrets import clean
from dragoman.errors import UpstreamError
from dragoman.model.outcome import ErrorInfo

CONNECTIONS_TAKEN = "connections_taken"
"""The code of an error when no connection was free."""

NOT_FOLLOWED = "redirect_not_followed"
"""The code of an error when the upstream redirects the request, or switches to another protocol."""

UNREACHABLE = "cannot be reached"
"""What the message says of an upstream to which no connection can be made."""

ADDRESS_HINT = "; check base_url and kind"
"""The end of a message if the address of the upstream is probably wrong."""
PROXY_REFUSED = "proxy_refused"
"""The code of an error when the proxy of an upstream does not connect."""
_PROXY_WANTS_USER = 407

# Characters of a location in a message: enough for any address that an operator would configure.
_MAX_LOCATION = 300

# Codes that name nothing: servers derive them from the status.
_VAGUE_CODES = frozenset(
    ("", "not_found", "not_found_error", "NotFoundError", "method_not_allowed", "unknown_url")
)

# When a client may retry after waiting for a free connection: connections become free one by one.
RETRY_AFTER_SECONDS = 1.0


def all_taken(name: str, count: int, seconds: float) -> UpstreamError:
    return ReportedError(
        ErrorInfo(
            kind="overloaded",
            message=(
                f"expected one of the {count} connections to upstream {name!r} (max_connections)"
                f" to be free within {seconds:g} s; each is taken"
            ),
            status=503,
            code=CONNECTIONS_TAKEN,
            retry_after=RETRY_AFTER_SECONDS,
        )
    )


def unreachable(name: str, cause: str | Exception) -> UpstreamError:
    return _caused("upstream", f"upstream {name!r} cannot be reached", cause)


def proxy_unreachable(name: str, proxy: str, cause: Exception) -> UpstreamError:
    """`proxy`: its host and port, for the operator's log."""
    return UpstreamError(
        f"upstream {name!r} cannot be reached: no connection to its proxy: {reason_of(cause)}",
        detail=f"proxy {proxy}: {cause}",
    )


def refused_by_proxy(name: str, proxy: str, status: int, *, has_user: bool) -> UpstreamError:
    """The proxy does not connect. `has_user`: a user and a password were sent. `proxy`: as in `proxy_unreachable`."""
    why = ""
    if status == _PROXY_WANTS_USER:
        why = (
            "; it refuses the user and password in its address"
            if has_user
            else "; it wants a user and a password: http://user:password@host:port"
        )
    error = ReportedError(
        ErrorInfo(
            kind="upstream",
            message=f"upstream {name!r} cannot be reached: its proxy answered {status}{why}",
            status=502,
            code=PROXY_REFUSED,
        )
    )
    error.detail = f"proxy {proxy}"
    return error


def no_connection(name: str, seconds: float) -> UpstreamError:
    return _timeout(f"upstream {name!r} gave no connection within {seconds:g} s")


def no_answer(name: str, seconds: float) -> UpstreamError:
    return _timeout(f"upstream {name!r} began no answer within {seconds:g} s")


def gone_silent(name: str, seconds: float) -> UpstreamError:
    return _timeout(f"upstream {name!r} sent nothing for {seconds:g} s")


def gone_without_answer(name: str) -> UpstreamError:
    return UpstreamError(f"upstream {name!r} closed the connection without an answer")


def cut_short(name: str, cause: str | Exception) -> UpstreamError:
    return _caused("truncated", f"upstream {name!r} cut its answer short", cause)


def not_http(name: str, cause: str) -> UpstreamError:
    return UpstreamError(f"upstream {name!r} did not answer in HTTP: {cause}", kind="protocol")


def not_readable(name: str, encoding: str) -> UpstreamError:
    message = (
        f"upstream {name!r} encoded its answer: expected none, gzip or deflate, got {encoding!r}"
    )
    return UpstreamError(message, kind="protocol")


def not_websocket(name: str, cause: str) -> UpstreamError:
    return UpstreamError(f"upstream {name!r} did not answer by WebSocket: {cause}", kind="protocol")


def not_followed(name: str, status: int, location: str) -> UpstreamError:
    """A status below 400 that is no answer. `location`: the header; its user, query and fragment are not quoted."""
    shown = _shown(location)
    where = f" to {shown}" if shown else ""
    return ReportedError(
        ErrorInfo(
            kind="upstream",
            message=(
                f"expected an answer of upstream {name!r}, got status {status}{where}; "
                "the gateway does not follow redirects: `base_url` must be the address that answers"
            ),
            status=502,
            code=NOT_FOLLOWED,
        )
    )


def _shown(location: str) -> str:
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    place = parts.netloc.rpartition("@")[2]
    return clean(urlunsplit((parts.scheme, place, parts.path, "", "")), _MAX_LOCATION)


def not_there(name: str, info: ErrorInfo, address: str, model: str) -> ErrorInfo:
    """The error of a 404 or 405, with the name of the upstream and its address, from which the caller has removed every secret.

    If the error has no code of its own and names neither the model nor anything else, the address is probably wrong.
    """
    if not address:
        return info
    is_named = info.code is not None and info.code not in _VAGUE_CODES and not info.code.isdecimal()
    is_named = is_named or bool(model and model in info.message)
    said = info.message.rstrip(". ") or "nothing more"
    place = clean(address, _MAX_LOCATION)
    message = (
        f"upstream {name!r} answered {info.status} at {place}: {said}; check base_url and kind"
    )
    return reworded(info, message.removesuffix(ADDRESS_HINT) if is_named else message)


def reason_of(error: Exception) -> str:
    """Why a connection failed, without the server's address and without the host name expected in its certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not accepted"
    if isinstance(error, ssl.SSLError):
        reason: object = getattr(error, "reason", None)  # not every SSLError has one
        return f"TLS failed ({reason})" if reason else "TLS failed"
    if not isinstance(error, OSError):
        return type(error).__name__
    if isinstance(error, socket.gaierror):
        return str(error.strerror)  # the system's message, without the name
    return os.strerror(error.errno) if error.errno else "no connection could be made"


def _caused(kind: str, what: str, cause: str | Exception) -> UpstreamError:
    if isinstance(cause, str):
        return UpstreamError(f"{what}: {cause}", kind=kind)
    detail = str(cause) or type(cause).__name__
    return UpstreamError(f"{what}: {reason_of(cause)}", kind=kind, detail=detail)


def _timeout(message: str) -> UpstreamError:
    return UpstreamError(message, kind="timeout", status=504)
