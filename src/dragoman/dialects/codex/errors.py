"""Reads the errors of Codex app-server as `ErrorInfo`."""

from collections.abc import Mapping

from msgspec import structs

from dragoman._json import as_object
from dragoman.core.failures import kind_of_status
from dragoman.core.fields import Fields, read_int, read_json, read_object, read_text
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codex.wire import raw_of
from dragoman.errors import MalformedJson
from dragoman.model.outcome import ErrorInfo, ErrorKind

# The names of `codexErrorInfo`, plain or as the key of an object that carries the provider's HTTP status.
_KINDS: Mapping[str, ErrorKind] = {
    "contextWindowExceeded": "context_length",
    "usageLimitExceeded": "quota",
    "sessionBudgetExceeded": "quota",
    "rateLimitExceeded": "rate_limit",
    "serverOverloaded": "overloaded",
    "unauthorized": "authentication",
    "badRequest": "invalid_request",
    "internalServerError": "server",
    "cyberPolicy": "content_policy",
    "misalignmentPolicyViolation": "content_policy",
    "responseStreamDisconnected": "truncated",
}


def error_from_wire(holder: Fields) -> ErrorInfo:
    """Return the error in `holder`: an `error` notification, or a failed turn."""
    error = read_object(holder.get("error"))
    code, status = _classify(error)
    kind = _KINDS.get(code)
    if kind is None:
        kind = "upstream" if status is None else kind_of_status(status)
    message = read_text(error.get("message")) or "the turn failed without saying why"
    if code == "unauthorized":
        message += " (Codex's login: run `codex login`)"
    return ErrorInfo(
        kind=kind,
        message=message,
        status=status,
        code=code or None,
        dialect="codex",
        raw=raw_of(holder, "error"),
    )


def decode_error(data: bytes, status: int | None) -> ErrorInfo:
    """Decode the body of a reply: `{"error": {…}}`, as in a failed turn. `status` is the reply's status."""
    try:
        fields = as_object(data)
    except MalformedJson:
        fields = {}
    info = error_from_wire(fields)
    if status is None:
        return info
    kind = info.kind if info.code is not None else kind_of_status(status)
    return structs.replace(info, kind=kind, status=info.status or status)


def _classify(error: Fields) -> tuple[str, int | None]:
    """Return the name of the error, and its HTTP status if it has one."""
    name = read_json(error.get("codexErrorInfo"))
    if isinstance(name, str):
        return replace_lone(name), None
    for code in (info := read_object(error.get("codexErrorInfo"))):
        return code, read_int(read_object(info.get(code)).get("httpStatusCode"))
    return "", None
