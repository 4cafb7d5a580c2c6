"""Errors both ways: bodies, events, failed responses; which kind each word is."""

import json
from typing import get_args

import pytest

from dragoman._json import Raw, raw
from dragoman.dialects.responses import decode_error, encode_error
from dragoman.dialects.responses.errors import failed_fields, read_error
from dragoman.model.outcome import ErrorInfo, ErrorKind

KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_from_a_body(kind: ErrorKind) -> None:
    info = decode_error(encode_error(ErrorInfo(kind=kind, message="m", param="p")))
    assert (info.kind, info.message, info.param) == (kind, "m", "p")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_from_a_failed_response(kind: ErrorKind) -> None:
    error = failed_fields(ErrorInfo(kind=kind, message="m"))
    info = read_error({"error": raw(error)})
    assert (info.kind, info.message) == (kind, "m")


TERMINAL = {
    "context_length_exceeded",
    "insufficient_quota",
    "invalid_prompt",
    "server_is_overloaded",
}


@pytest.mark.parametrize("kind", KINDS)
def test_codex_tries_again_only_where_that_helps(kind: ErrorKind) -> None:
    code = failed_fields(ErrorInfo(kind=kind, message="m"))["code"]
    hopeless = {
        "invalid_request",
        "authentication",
        "permission",
        "not_found",
        "too_large",
        "context_length",
        "content_policy",
        "quota",
        "overloaded",
    }
    assert (code in TERMINAL) == (kind in hopeless)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"code": "model_not_found"}, None, "not_found"),
        ({"code": "usage_limit_reached", "type": "rate_limit_error"}, 429, "quota"),
        ({"type": "tokens", "code": "rate_limit_exceeded"}, 429, "rate_limit"),
        ({"type": "requests"}, None, "rate_limit"),
        ({"type": "invalid_request_error", "code": "weird"}, None, "invalid_request"),
        ({"type": "invalid_request_error"}, 401, "authentication"),
        ({"type": "server_error"}, None, "server"),
        ({"type": "server_error", "code": "server_error"}, 503, "overloaded"),
        ({"code": "bio_policy"}, None, "content_policy"),
        ({"code": 404}, None, "server"),
        ({}, 413, "too_large"),
    ],
)
def test_words_say_more_than_statuses_and_statuses_more_than_vague_words(
    error: dict[str, object], status: int | None, kind: str
) -> None:
    body = json.dumps({"error": {"message": "m", **error}}).encode()
    assert decode_error(body, status).kind == kind


def test_status_inside_an_event_counts() -> None:
    info = read_error({"status": Raw(b"429"), "error": raw({"message": "m"})})
    assert (info.kind, info.status) == ("rate_limit", 429)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"message": "flat", "code": "x"}', "flat"),
        (b'{"error": "text"}', "text"),
        (b'{"detail": "not found"}', "not found"),
        (b'{"detail": [{"loc": 1}]}', '[{"loc": 1}]'),
        (b"{}", "the upstream reported an error without a message"),
        (b"<html>502</html>", "<html>502</html>"),
        (b"", "the upstream answered with an error and no body"),
    ],
)
def test_anything_is_some_error(data: bytes, message: str) -> None:
    assert decode_error(data).message == message


def test_body_that_is_no_json_goes_by_its_status() -> None:
    assert decode_error(b"oops", 503).kind == "overloaded"
    assert decode_error(b"oops").kind == "upstream"


@pytest.mark.parametrize(
    ("message", "delay"),
    [
        ("Please try again in 2.5s.", 2.5),
        ("try again in 250ms", 0.25),
        ("Try again in 3 seconds", 3.0),
        ("try again later", None),
    ],
)
def test_delay_is_read_from_the_message(message: str, delay: float | None) -> None:
    assert decode_error(json.dumps({"error": {"message": message}}).encode()).retry_after == delay


def test_own_error_is_written_back_word_for_word() -> None:
    error = {"message": "m", "type": "weird", "param": None, "code": "odd", "inner": {"a": 1}}
    info = decode_error(json.dumps({"error": error}).encode(), 400)
    assert json.loads(encode_error(info)) == {"error": error}
    found = failed_fields(info)
    assert (found["code"], found["type"]) == (Raw(b'"odd"'), Raw(b'"weird"'))


def test_flat_event_is_no_type_of_error() -> None:
    info = read_error(
        {"type": Raw(b'"error"'), "message": Raw(b'"m"'), "sequence_number": Raw(b"3")}
    )
    assert json.loads(encode_error(info))["error"]["type"] == "server_error"


def test_code_of_another_dialect_is_not_ours() -> None:
    ours = encode_error(
        ErrorInfo(kind="overloaded", message="m", code="overloaded_error", dialect="messages")
    )
    assert json.loads(ours)["error"]["code"] == "server_is_overloaded"
    refused = encode_error(ErrorInfo(kind="invalid_request", message="m", code="stop_sequences"))
    assert json.loads(refused)["error"]["code"] == "stop_sequences"


def test_delay_is_reported_in_words_that_codex_reads() -> None:
    found = failed_fields(ErrorInfo(kind="rate_limit", message="slow", retry_after=2.0))
    assert found["message"] == "slow Please try again in 2s."
    said = failed_fields(ErrorInfo(kind="rate_limit", message="try again in 5s", retry_after=5))
    assert said["message"] == "try again in 5s"
