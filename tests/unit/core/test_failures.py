"""Errors as values: kinds, statuses, and what an exception carries."""

from typing import get_args

import pytest

from dragoman import errors
from dragoman.core.failures import (
    STATUS_OF_KIND,
    error_info,
    exception_of,
    kind_of_status,
    status_of,
)
from dragoman.core.fold import fold
from dragoman.dialects.translate import make_decoder
from dragoman.errors import (
    ConfigError,
    FrameTooLarge,
    GatewayError,
    RemoteProtocolError,
    RequestRefused,
    StoreError,
    StreamTruncated,
    ToolError,
    UpstreamError,
)
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.model.parts import Text

CLASSES: list[type[GatewayError]] = [getattr(errors, name) for name in errors.__all__]


def test_every_kind_has_an_error_status() -> None:
    assert set(STATUS_OF_KIND) == set(get_args(ErrorKind))
    assert all(400 <= status <= 599 for status in STATUS_OF_KIND.values())


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_exception_becomes_a_value_with_its_own_message_and_status(
    error_class: type[GatewayError],
) -> None:
    error = error_class("what came")
    info = error_info(error)
    assert info.message == "what came"
    assert status_of(info) == error.status
    assert info.kind in get_args(ErrorKind)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StreamTruncated("m"), "truncated"),
        (FrameTooLarge("m"), "protocol"),
        (UpstreamError("m"), "upstream"),
        (RequestRefused("m"), "invalid_request"),
        (ToolError("m"), "invalid_request"),
        (ConfigError("m"), "server"),
        (StoreError("m"), "server"),
        (GatewayError("m"), "server"),
    ],
)
def test_an_exception_keeps_its_kind_in_the_common_vocabulary(
    error: GatewayError, kind: ErrorKind
) -> None:
    assert error_info(error).kind == kind


def test_a_kind_of_its_own_invention_is_a_fault_of_this_side() -> None:
    error = GatewayError("m")
    error.kind = "unheard of"
    assert error_info(error).kind == "server"


def test_a_refusal_says_where_and_why() -> None:
    info = error_info(RequestRefused("m", param="tools[0].name", code="bad_name"))
    assert (info.param, info.code, info.status) == ("tools[0].name", "bad_name", 400)


@pytest.mark.parametrize(
    ("status", "expected"), [(529, 529), (None, 503), (200, 503), (0, 503), (600, 503)]
)
def test_an_error_has_the_status_it_carries_or_that_of_its_kind(
    status: int | None, expected: int
) -> None:
    assert status_of(ErrorInfo(kind="overloaded", message="m", status=status)) == expected


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request"),
        (401, "authentication"),
        (402, "quota"),
        (403, "permission"),
        (404, "not_found"),
        (408, "timeout"),
        (409, "conflict"),
        (413, "too_large"),
        (422, "invalid_request"),
        (429, "rate_limit"),
        (499, "cancelled"),
        (500, "server"),
        (502, "upstream"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
        (599, "server"),
        (200, "upstream"),
        (0, "upstream"),
        (302, "upstream"),
    ],
)
def test_a_bare_status_has_a_kind(status: int, kind: ErrorKind) -> None:
    assert kind_of_status(status) == kind


def test_the_error_of_an_answer_can_be_raised_as_what_it_is() -> None:
    kinds = {
        "truncated": StreamTruncated,
        "protocol": RemoteProtocolError,
    }
    for kind, expected in kinds.items():
        error = exception_of(error_info(expected("why")))
        assert type(error) is expected
        assert (error.kind, error.message) == (kind, "why")
    limited = exception_of(ErrorInfo(kind="rate_limit", message="slow down", status=429))
    assert isinstance(limited, UpstreamError)
    assert (limited.kind, limited.status) == ("rate_limit", 429)


def test_a_stream_that_ends_early_is_stream_truncated_and_keeps_what_was_complete() -> None:
    decoder = make_decoder("chat")
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"half an ans"}}]}\n\n'
    steps = decoder.feed(chunk) + decoder.close()
    outcome = fold(event for step in steps for event in step.events)
    assert [part.text for part in outcome.choices[0].parts if isinstance(part, Text)] == [
        "half an ans"
    ]
    assert outcome.error is not None
    with pytest.raises(StreamTruncated):
        raise exception_of(outcome.error)
