"""Reads and writes error bodies: `{"error": {"message", "type", "param", "code"}}`, and the variants of imitators.

An error chunk of a stream has the same form. The kind of an error is found by its code, then its type, then the HTTP
status. An error of an unknown type is `invalid_request` unless its type names the server, so that one odd error does not
take a healthy upstream out of service.
"""

from collections.abc import Mapping

from dragoman._json import Raw, as_object, dumps
from dragoman.core.failures import MAX_EXCERPT, kind_of_status
from dragoman.core.fields import (
    NULL,
    first_text,
    present,
    read_fragment,
    read_int,
    read_object,
    read_present,
    without,
)
from dragoman.errors import MalformedJson
from dragoman.model.outcome import ErrorInfo, ErrorKind

_NO_ERROR = (b"{}", b"[]", b'""', b"0", b"false")

_SPELLINGS: Mapping[ErrorKind, tuple[str, str]] = {
    "invalid_request": ("invalid_request_error", "invalid_request"),
    "authentication": ("authentication_error", "invalid_api_key"),
    "permission": ("permission_error", "permission_denied"),
    "not_found": ("not_found_error", "not_found"),
    "conflict": ("conflict_error", "conflict"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "content_policy": ("invalid_request_error", "content_policy_violation"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "overloaded": ("server_error", "overloaded"),
    "timeout": ("server_error", "timeout"),
    "truncated": ("server_error", "stream_truncated"),
    "protocol": ("server_error", "protocol_error"),
    "cancelled": ("server_error", "cancelled"),
    "upstream": ("server_error", "upstream_error"),
    "server": ("server_error", "server_error"),
}
"""The type and the code that are written for each kind; an error's own code is kept."""

_KINDS: Mapping[str, ErrorKind] = {
    **{code: kind for kind, (_, code) in _SPELLINGS.items()},
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "conflict_error": "conflict",
    "content_filter": "content_policy",
    "rate_limit_error": "rate_limit",
    "requests": "rate_limit",
    "tokens": "rate_limit",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "overloaded_error": "overloaded",
    "service_unavailable": "overloaded",
    "timeout_error": "timeout",
    "internal_server_error": "server",
    "api_error": "server",
    # MiniMax answers with numbers in `base_resp`.
    "1001": "timeout",
    "1002": "rate_limit",
    "1004": "authentication",
    "1008": "quota",
    "1026": "content_policy",
    "1027": "content_policy",
    "1039": "rate_limit",
    "2013": "invalid_request",
}
"""The kinds by code and by type."""

_VAGUE = frozenset({"invalid_request_error", "server_error", "api_error", "invalid_request"})
"""Spellings that a more specific status overrides."""

_SERVER_SIDE = ("server", "internal", "unavailable", "upstream", "provider", "overload")


def encode_error(info: ErrorInfo) -> bytes:
    """Return the body (or the data of an error chunk) for an error.

    A Chat upstream's own error object is kept, with what imitators leave out: type, param, and a code that is a string.
    """
    kind, code = _SPELLINGS[info.kind]
    error: dict[str, object] = {
        "message": info.message,
        "type": kind,
        "param": info.param,
        "code": info.code or code,
    }
    own = read_object(info.raw) if info.dialect == "chat" else {}
    if read_fragment(own.get("message")):
        is_word = "code" in own and (own["code"] == NULL or read_fragment(own["code"]) is not None)
        error |= own if is_word else without(own, ("code",))
    return dumps({"error": error})


def decode_error(data: bytes, status: int | None = None) -> ErrorInfo:
    """Read the error of an answer with this status, whatever its body looks like."""
    text = data.decode("utf-8", "replace").strip()
    try:
        fields = present(as_object(text))
    except MalformedJson:
        return _info({}, text[:MAX_EXCERPT] or "an error without a body", status)
    return read_error(find_error(fields) or Raw(text.encode("utf-8")), status)


def find_error(fields: Mapping[str, Raw]) -> Raw | None:
    """Return the error in an object; None if it has none."""
    error = fields.get("error")
    if error is not None and bytes(error) not in _NO_ERROR:
        return error
    reply = fields.get("base_resp")
    if read_int(read_present(reply).get("status_code")) not in (None, 0):
        return reply
    return None


def read_error(error: Raw, status: int | None = None) -> ErrorInfo:
    """Read an error object, or an error that is a string."""
    text = read_fragment(error)
    if text is not None:
        return _info({}, text, status, error)
    fields = read_present(error)
    # Gateways wrap the upstream's error in their own.
    fields |= read_present(fields.get("error"))
    message = first_text(fields, ("message", "status_msg", "detail", "msg", "error"))
    return _info(fields, message or bytes(error).decode("utf-8")[:MAX_EXCERPT], status, error)


def _info(
    fields: Mapping[str, Raw], message: str, status: int | None, error: Raw | None = None
) -> ErrorInfo:
    # Servers send an HTTP status, or a number of their own, where OpenAI sends a word.
    numbers = [read_int(fields.get(name)) for name in ("code", "status", "status_code")]
    stated = next((number for number in numbers if number and 400 <= number <= 599), None)
    words = (read_fragment(fields.get("code")), *(str(number) for number in numbers if number))
    code = next((word for word in words if word), None)
    status = status or stated
    return ErrorInfo(
        kind=_kind(code or "", read_fragment(fields.get("type")) or "", message, status),
        message=message or "an error without a message",
        status=status,
        code=code,
        param=read_fragment(fields.get("param")),
        dialect="chat",
        raw=error,
    )


def _kind(code: str, kind: str, message: str, status: int | None) -> ErrorKind:
    for word in (code, kind):
        if word in _KINDS and word not in _VAGUE:
            return _KINDS[word]
    if "context length" in message or "context window" in message:
        return "context_length"
    if status is not None:
        return kind_of_status(status)
    for word in (code, kind):
        if word in _KINDS:
            return _KINDS[word]
    words = f"{code} {kind}".strip().lower()
    if not words or any(side in words for side in _SERVER_SIDE):
        return "upstream"
    return "invalid_request"
