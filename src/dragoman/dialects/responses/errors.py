"""Errors, both ways: HTTP bodies, the `error` event and the error of a failed response.

A failed response has fewer codes than an HTTP body, and Codex decides by the code whether to retry. So `code` is one
that Codex knows, and the `type` beside it names the exact error.
"""

import re
from collections.abc import Mapping

from dragoman._json import Raw, as_object, dumps, raw
from dragoman.core.failures import MAX_EXCERPT, error_of_text, kind_of_status
from dragoman.core.fields import (
    Fields,
    is_present,
    read_int,
    read_object,
    read_text,
    source_text,
    without,
)
from dragoman.errors import MalformedJson
from dragoman.model.outcome import ErrorInfo, ErrorKind

_EVENT_FIELDS = frozenset({"type", "sequence_number", "event_id", "error"})
_WORDS: Mapping[ErrorKind, tuple[str, str | None]] = {
    # the type and the code of a body
    "invalid_request": ("invalid_request_error", None),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "not_found"),
    "conflict": ("invalid_request_error", "conflict"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "content_policy": ("invalid_request_error", "content_policy_violation"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", "timeout"),
    "truncated": ("server_error", "stream_truncated"),
    "protocol": ("server_error", "protocol_error"),
    "cancelled": ("server_error", "cancelled"),
    "upstream": ("server_error", "upstream_error"),
    "server": ("server_error", "server_error"),
}

_FAILED_CODES: Mapping[ErrorKind, str] = {
    # Codex gives up at once on these codes; it retries on any other code, which suits every other kind.
    "invalid_request": "invalid_prompt",
    "authentication": "invalid_prompt",
    "permission": "invalid_prompt",
    "not_found": "invalid_prompt",
    "too_large": "invalid_prompt",
    "content_policy": "invalid_prompt",
    "context_length": "context_length_exceeded",
    "quota": "insufficient_quota",
    "overloaded": "server_is_overloaded",
    # Codex obeys the delay in the message only with this code.
    "rate_limit": "rate_limit_exceeded",
}

# Clients decide by the code how to react to errors of these kinds.
_CODE_DECIDES = frozenset({"context_length", "quota", "overloaded", "rate_limit"})

_KIND_OF_WORD: Mapping[str, ErrorKind] = {
    **{code: kind for kind, (_, code) in _WORDS.items() if code is not None},
    "api_error": "server",
    "authentication_error": "authentication",
    "billing_hard_limit_reached": "quota",
    "bio_policy": "content_policy",
    "content_filter": "content_policy",
    "cyber_policy": "content_policy",
    "engine_overloaded": "overloaded",
    "image_content_policy_violation": "content_policy",
    "insufficient_permissions": "permission",
    "invalid_prompt": "invalid_request",
    "misalignment_policy_violation": "content_policy",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "overloaded_error": "overloaded",
    "permission_error": "permission",
    "rate_limit_error": "rate_limit",
    "requests": "rate_limit",
    "slow_down": "overloaded",
    "timeout_error": "timeout",
    "tokens": "rate_limit",
    "usage_limit_reached": "quota",
    "usage_not_included": "quota",
    "vector_store_timeout": "timeout",
}
_VAGUE: Mapping[str, ErrorKind] = {
    # Types that are less exact than a status or a code.
    "invalid_request_error": "invalid_request",
    "server_error": "server",
}
_PRECISE = (frozenset(code for _, code in _WORDS.values() if code) | {"permission_error"}) - {
    "server_error"
}

_DELAY = re.compile(r"try again in\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|seconds?)\b", re.IGNORECASE)


def decode_error(data: bytes, status: int | None = None) -> ErrorInfo:
    """Decode an error body. Never raises: a body that is not JSON becomes an error with its text."""
    try:
        fields = as_object(data)
    except MalformedJson:
        return error_of_text(data, status, "responses")
    return read_error(fields, status)


def read_error(fields: Fields, status: int | None = None) -> ErrorInfo:
    """Read an error from a body or an event, nested under `error` or flat."""
    nested = fields.get("error")
    inner = read_object(nested)
    error = inner or fields
    message = read_text(error.get("message")) or read_text(fields.get("error")) or _detail(error)
    code = read_text(error.get("code")) or _number(error, "code")
    kind_word = read_text(error.get("type")) if inner else None
    status = status or read_int(fields.get("status")) or read_int(error.get("status"))
    exact = nested if inner else raw(without(fields, _EVENT_FIELDS))
    return ErrorInfo(
        kind=_kind(code, kind_word, status),
        message=message,
        status=status,
        code=code,
        param=read_text(error.get("param")),
        retry_after=_delay(message),
        dialect="responses",
        raw=exact,
    )


def _kind(code: str | None, word: str | None, status: int | None) -> ErrorKind:
    if word in _PRECISE:
        return _KIND_OF_WORD[word]
    for known in (code, word):
        if known is not None and known in _KIND_OF_WORD and known not in _VAGUE:
            return _KIND_OF_WORD[known]
    if status is not None:
        return kind_of_status(status)
    for known in (code, word):
        if known is not None and known in _VAGUE:
            return _VAGUE[known]
    return "server"


def _number(fields: Fields, key: str) -> str | None:
    number = read_int(fields.get(key))
    return None if number is None else str(number)


def _detail(fields: Fields) -> str:
    detail = fields.get("detail")
    if detail is None or not is_present(detail):
        return "the upstream reported an error without a message"
    return read_text(detail) or source_text(detail)[:MAX_EXCERPT]


def _delay(message: str) -> float | None:
    found = _DELAY.search(message)
    if found is None:
        return None
    return float(found[1]) / (1000 if found[2].lower() == "ms" else 1)


def encode_error(info: ErrorInfo) -> bytes:
    """Return the body of an HTTP error."""
    kind, code = _WORDS[info.kind]
    error: dict[str, object] = {
        "message": info.message,
        "type": kind,
        "param": info.param,
        "code": info.code if _is_code_kept(info) else code,
    }
    return dumps({"error": {**error, **_own(info)}})


def _is_code_kept(info: ErrorInfo) -> bool:
    """Return whether the error's own code is sent.

    Chat's errors have the same form, and clients compare their codes; imitators of Chat send other text as codes.
    For the kinds in _CODE_DECIDES Codex needs this vendor's code.
    """
    if info.code is None or info.dialect in (None, "responses"):
        return info.code is not None
    is_word = info.code.isidentifier() and info.code.islower()
    return info.dialect == "chat" and is_word and info.kind not in _CODE_DECIDES


def failed_fields(info: ErrorInfo) -> dict[str, object]:
    """Return the `error` of a failed response."""
    kind, code = _WORDS[info.kind]
    message = info.message
    if info.kind == "rate_limit" and info.retry_after is not None and not _DELAY.search(message):
        message = f"{message} Please try again in {info.retry_after:g}s."
    error: dict[str, object] = {
        "code": _FAILED_CODES.get(info.kind, "server_error"),
        "message": message,
        "type": code or kind,
    }
    own = _own(info)
    known = {key: value for key, value in own.items() if key in ("code", "type", "misalignment")}
    return {**error, **known}


def _own(info: ErrorInfo) -> Mapping[str, Raw]:
    """Return the fields of an error that came in this dialect, to repeat them unchanged; nulls are left out."""
    if info.dialect != "responses":
        return {}
    return {key: value for key, value in read_object(info.raw).items() if is_present(value)}
