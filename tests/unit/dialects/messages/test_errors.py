"""Errors, both ways."""

import json

import pytest
from anthropic.types import ErrorResponse
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.failures import STATUS_OF_KIND
from dragoman.dialects.messages import decode_error, encode_error
from dragoman.model.outcome import ErrorInfo, ErrorKind


def error(name: str, message: str = "m", **fields: object) -> bytes:
    return json.dumps(
        {"type": "error", "error": {"type": name, "message": message, **fields}, "request_id": "r"}
    ).encode()


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("invalid_request_error", "invalid_request", 400),
        ("authentication_error", "authentication", 401),
        ("billing_error", "quota", 402),
        ("permission_error", "permission", 403),
        ("not_found_error", "not_found", 404),
        ("conflict_error", "conflict", 409),
        ("request_too_large", "too_large", 413),
        ("rate_limit_error", "rate_limit", 429),
        ("api_error", "server", 500),
        ("timeout_error", "timeout", 504),
        ("overloaded_error", "overloaded", 529),
    ],
)
def test_types_have_kinds_and_statuses(name: str, kind: ErrorKind, status: int) -> None:
    info = decode_error(error(name))
    assert (info.kind, info.status, info.message) == (kind, status, "m")
    assert decode_error(error(name), 418).status == 418


def test_own_error_comes_back_whole() -> None:
    body = error("invalid_request_error", details={"error_code": "thread_unsupported_request"})
    info = decode_error(body, 400)
    assert info.code == "thread_unsupported_request"
    assert info.raw == Raw(body)
    assert json.loads(encode_error(info)) == json.loads(body)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_length"),
        ("input length and `max_tokens` exceed context limit: 1", "context_length"),
        ("Output blocked by content filtering policy", "content_policy"),
    ],
)
def test_message_gives_the_kind_that_the_type_does_not(message: str, kind: ErrorKind) -> None:
    assert decode_error(error("invalid_request_error", message), 400).kind == kind
    assert decode_error(error("api_error", message), 500).kind == "server"


def test_unknown_type_is_the_requests_fault_unless_the_status_says_otherwise() -> None:
    # M107
    assert decode_error(error("weird_error")).kind == "invalid_request"
    assert decode_error(error("weird_error"), 503).kind == "overloaded"


def test_errors_of_other_servers_are_understood() -> None:
    openai = b'{"error":{"message":"no","type":"server_error","code":"c","param":"p"}}'
    info = decode_error(openai, 500)
    assert (info.kind, info.message, info.code, info.param) == ("server", "no", "c", "p")
    assert info.raw is None
    assert decode_error(b'{"detail":"gone"}', 404).message == "gone"
    assert decode_error(b'{"error":"plain"}', 400).message == "plain"
    assert decode_error(b"{}", 400).message == "the upstream gave no message"


def test_bodies_that_are_no_json_are_quoted() -> None:
    info = decode_error(b"<html>502</html>", 502)
    assert (info.kind, info.message) == ("upstream", "<html>502</html>")
    assert decode_error(b"").kind == "upstream"
    assert decode_error(b"").message


@pytest.mark.parametrize("kind", list(STATUS_OF_KIND))
def test_every_kind_is_written_as_the_vendor_would(kind: ErrorKind) -> None:
    body = encode_error(ErrorInfo(kind=kind, message="m"))
    value = json.loads(body)
    assert value["type"] == "error"
    if kind != "too_large":  # documented by the vendor, missing from the types of its client
        ErrorResponse.model_validate_json(body, strict=True)
    back = decode_error(body)
    assert back.kind in (kind, "invalid_request", "server")


def test_context_errors_of_others_speak_the_vendors_words() -> None:
    body = encode_error(ErrorInfo(kind="context_length", message="too many tokens"))
    assert json.loads(body)["error"]["message"] == "prompt is too long: too many tokens"
    assert decode_error(body).kind == "context_length"
    kept = encode_error(ErrorInfo(kind="context_length", message="prompt is too long: 5"))
    assert json.loads(kept)["error"]["message"] == "prompt is too long: 5"


def test_code_is_a_detail() -> None:
    body = encode_error(ErrorInfo(kind="invalid_request", message="m", code="c"))
    assert json.loads(body)["error"]["details"] == {"error_code": "c"}


def test_raw_error_of_another_dialect_is_not_shown() -> None:
    info = ErrorInfo(kind="server", message="m", dialect="chat", raw=Raw(b'{"secret":1}'))
    assert b"secret" not in encode_error(info)


def test_own_error_without_the_id_of_a_request_gets_that_of_ours() -> None:
    body = b'{"type": "error", "error": {"type": "api_error", "message": "m"}}'
    info = replace(decode_error(body, 500), request_id="req_1")
    assert json.loads(encode_error(info)) == {**json.loads(body), "request_id": "req_1"}
