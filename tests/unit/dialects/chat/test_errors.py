"""Error bodies, both ways."""

import json

import pytest

from dragoman._json import Raw
from dragoman.core.failures import STATUS_OF_KIND
from dragoman.dialects.chat import decode_error, encode_error
from dragoman.model.outcome import ErrorInfo, ErrorKind


def decoded(error: object, status: int | None = None) -> ErrorInfo:
    return decode_error(json.dumps(error).encode(), status)


def test_openais_error_is_read_whole() -> None:
    error = {"message": "m", "type": "invalid_request_error", "param": "p", "code": "c"}
    info = decoded({"error": error}, 400)
    assert info == ErrorInfo(
        kind="invalid_request",
        message="m",
        status=400,
        code="c",
        param="p",
        dialect="chat",
        raw=Raw(json.dumps(error).encode()),
    )


def test_error_of_this_dialect_is_passed_on_as_it_came() -> None:
    body = {"error": {"message": "m", "type": "odd", "param": None, "code": "x", "more": [1]}}
    assert json.loads(encode_error(decoded(body, 400))) == body


@pytest.mark.parametrize("kind", STATUS_OF_KIND)
def test_every_kind_comes_back_as_itself(kind: ErrorKind) -> None:
    info = ErrorInfo(kind=kind, message="m")
    body = encode_error(info)
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert decode_error(body, STATUS_OF_KIND[kind]).kind == kind


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (
            {"code": "context_length_exceeded", "type": "invalid_request_error"},
            400,
            "context_length",
        ),
        ({"message": "maximum context length is 8192"}, 400, "context_length"),
        ({"code": "insufficient_quota"}, 429, "quota"),
        ({"type": "tokens"}, 429, "rate_limit"),
        ({"type": "invalid_request_error"}, 404, "not_found"),
        ({"type": "invalid_request_error"}, None, "invalid_request"),
        ({"type": "server_error"}, 503, "overloaded"),
        ({"type": "api_error"}, None, "server"),
        ({"code": 502, "message": "provider_unavailable"}, None, "upstream"),
        ({"code": "502", "message": "x"}, None, "upstream"),
        ({"message": "x"}, None, "upstream"),
        ({"type": "provider_broke"}, None, "upstream"),
        ({"type": "a_new_word"}, None, "invalid_request"),  # M107
        ({"status": 429}, None, "rate_limit"),
    ],
)
def test_kind_is_found_by_code_then_type_then_status(
    error: dict[str, object], status: int | None, kind: str
) -> None:
    assert decoded({"error": {"message": "m", **error}}, status).kind == kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"boom"}', "boom"),
        (b'{"error":""}', '{"error":""}'),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"message":"boom"}', "boom"),
        (b'{"error":{"error":{"message":"inner"}}}', "inner"),
        (b'{"base_resp":{"status_code":1002,"status_msg":"slow"}}', "slow"),
        (b"<html>502</html>", "<html>502</html>"),
        (b"", "an error without a body"),
        (b'{"error":{"message":""}}', '{"message":""}'),
        (b"\xff", "\ufffd"),
    ],
)
def test_message_is_found_wherever_it_is(body: bytes, message: str) -> None:
    assert decode_error(body, 500).message == message


def test_error_that_has_no_message_is_written_in_our_own_form() -> None:
    info = decode_error(b'{"base_resp":{"status_code":1008,"status_msg":"no money"}}')
    assert json.loads(encode_error(info))["error"] == {
        "message": "no money",
        "type": "insufficient_quota",
        "param": None,
        "code": "1008",
    }


def test_foreign_error_is_written_in_our_own_form() -> None:
    info = ErrorInfo(
        kind="overloaded", message="m", dialect="messages", raw=Raw(b'{"message":"x"}')
    )
    assert json.loads(encode_error(info))["error"]["message"] == "m"


def test_empty_string_error_still_says_something() -> None:
    assert decode_error(b'{"error":{"code":""}}', 500).message
    assert decoded({"error": " "}, 500).message == " "


def test_an_imitators_error_gets_the_fields_that_it_lacks() -> None:
    info = decode_error(b'{"error": {"message": "busy", "code": 502, "metadata": {"a": 1}}}')
    assert json.loads(encode_error(info))["error"] == {
        "message": "busy",
        "type": "server_error",
        "param": None,
        "code": "502",
        "metadata": {"a": 1},
    }
