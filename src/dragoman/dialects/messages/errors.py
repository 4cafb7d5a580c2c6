"""Reads and writes errors: `{"type": "error", "error": {"type", "message"}, "request_id"}`, as a body and as an event.

The reader accepts what gateways in front of the vendor send instead: OpenAI's shape, a bare message, HTML. The vendor's
own object is kept whole in `raw` and written unchanged for clients of this dialect.
"""

from collections.abc import Mapping

from dragoman._json import Raw, as_object, dumps
from dragoman.core.failures import error_of_text, kind_of_status
from dragoman.core.fields import Fields, is_object, read_object, read_text
from dragoman.errors import MalformedJson
from dragoman.model.outcome import ErrorInfo, ErrorKind

_KINDS: Mapping[str, tuple[ErrorKind, int]] = {
    "invalid_request_error": ("invalid_request", 400),
    "authentication_error": ("authentication", 401),
    "billing_error": ("quota", 402),
    "permission_error": ("permission", 403),
    "not_found_error": ("not_found", 404),
    "conflict_error": ("conflict", 409),
    "request_too_large": ("too_large", 413),
    "rate_limit_error": ("rate_limit", 429),
    "api_error": ("server", 500),
    "timeout_error": ("timeout", 504),
    "overloaded_error": ("overloaded", 529),
}

_TYPES: Mapping[ErrorKind, str] = {
    **{kind: name for name, (kind, _) in _KINDS.items()},
    # Only other endpoints have `conflict_error`; the SDK's types of this endpoint do not allow it.
    "conflict": "invalid_request_error",
    "context_length": "invalid_request_error",
    "content_policy": "invalid_request_error",
    "truncated": "api_error",
    "protocol": "api_error",
    "cancelled": "api_error",
    "upstream": "api_error",
}

# The vendor has one type for every bad request and distinguishes these two kinds by their messages; clients look for the
# same words (Claude Code compacts its history when it reads the first).
_TOO_LONG = "prompt is too long"
_WORDS: Mapping[str, ErrorKind] = {
    _TOO_LONG: "context_length",
    "exceed context limit": "context_length",
    "content filtering policy": "content_policy",
}


def decode_error(data: bytes, status: int | None = None) -> ErrorInfo:
    """Read an upstream's error, whatever its form. Never raises."""
    try:
        fields = as_object(data)
    except MalformedJson:
        return error_of_text(data, status, "messages")
    return error_from_fields(fields, status, Raw(data))


def error_from_fields(fields: Fields, status: int | None, body: Raw) -> ErrorInfo:
    """Read an error body that was already parsed."""
    error = read_object(fields["error"]) if is_object(fields.get("error")) else None
    found = fields if error is None else error
    name = read_text(found.get("type")) or ""
    message = _message(found) or read_text(fields.get("error")) or "the upstream gave no message"
    known = _KINDS.get(name)
    kind = _kind(known[0] if known else None, message, status)
    details = read_object(found.get("details"))
    code = read_text(details.get("error_code")) or read_text(found.get("code"))
    return ErrorInfo(
        kind=kind,
        message=message,
        status=status if status is not None or known is None else known[1],
        code=code,
        param=read_text(found.get("param")),
        dialect="messages",
        raw=body if _is_native(fields, error) else None,
    )


def encode_error(info: ErrorInfo) -> bytes:
    """Write an error as a body, which is also the data of an `error` event."""
    if info.dialect == "messages" and info.raw is not None:
        own = read_object(info.raw)
        # Servers that imitate the vendor leave it out.
        return dumps(info.raw if "request_id" in own else {**own, "request_id": info.request_id})
    message = info.message
    if info.kind == "context_length" and _TOO_LONG not in message:
        message = f"{_TOO_LONG}: {message}"
    error: dict[str, object] = {"type": _TYPES[info.kind], "message": message}
    if info.code is not None:
        error["details"] = {"error_code": info.code}
    return dumps({"type": "error", "error": error, "request_id": info.request_id})


def threads_unsupported(request_id: str) -> bytes:
    """Write the error on which the tool runners of Anthropic's SDKs fall back to sending the whole history."""
    message = "thread: message threads are not kept by this gateway; send the whole conversation"
    details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    error = {"type": "invalid_request_error", "message": message, "details": details}
    return dumps({"type": "error", "error": error, "request_id": request_id})


def _kind(known: ErrorKind | None, message: str, status: int | None) -> ErrorKind:
    if known == "invalid_request" or known is None:
        lowered = message.lower()
        for words, kind in _WORDS.items():
            if words in lowered:
                return kind
    if known is not None:
        return known
    # An unknown type without a status must not look like a broken server: routers would take it out of service.
    return kind_of_status(status) if status is not None else "invalid_request"


def _message(fields: Fields) -> str | None:
    for key in ("message", "detail", "error_description"):
        text = read_text(fields.get(key))
        if text:
            return text
    return None


def _is_native(fields: Fields, error: Fields | None) -> bool:
    """Whether this dialect's clients may get the body unchanged."""
    return error is not None and read_text(fields.get("type")) == "error"
