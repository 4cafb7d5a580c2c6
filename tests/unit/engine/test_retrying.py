"""When an answer that broke off is asked for again."""

import pytest
from msgspec.structs import replace

from dragoman.engine.conversation import retry_after
from dragoman.engine.settings import EngineSettings
from dragoman.model.outcome import ErrorInfo, ErrorKind

SETTINGS = EngineSettings(retries=3, retry_delay=1.0, retry_max_delay=10.0)


def error(kind: ErrorKind, **more: object) -> ErrorInfo:
    return replace(ErrorInfo(kind=kind, message=""), **more)


@pytest.mark.parametrize(
    "kind", ["rate_limit", "overloaded", "timeout", "truncated", "upstream", "server", "protocol"]
)
def test_what_may_pass_is_tried_again(kind: ErrorKind) -> None:
    assert retry_after(SETTINGS, error(kind), attempt=1, jitter=0.0) == 0.5


@pytest.mark.parametrize("kind", ["invalid_request", "authentication", "quota", "context_length"])
def test_what_will_not_pass_is_not(kind: ErrorKind) -> None:
    assert retry_after(SETTINGS, error(kind), attempt=1, jitter=0.0) is None


def test_status_that_blames_the_request_decides() -> None:
    assert retry_after(SETTINGS, error("upstream", status=404), attempt=1, jitter=0.0) is None
    assert retry_after(SETTINGS, error("upstream", status=502), attempt=1, jitter=0.0) is not None


def test_wait_doubles_and_is_bounded_and_jitter_takes_up_to_half() -> None:
    waits = [
        retry_after(
            EngineSettings(retries=99, retry_delay=1.0, retry_max_delay=10.0),
            error("overloaded"),
            attempt=attempt,
            jitter=1.0,
        )
        for attempt in (1, 2, 3, 4, 5, 90)
    ]
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_tries_are_counted() -> None:
    assert retry_after(SETTINGS, error("overloaded"), attempt=3, jitter=0.0) is not None
    assert retry_after(SETTINGS, error("overloaded"), attempt=4, jitter=0.0) is None


def test_provider_s_own_wait_is_kept_if_it_is_not_too_long() -> None:
    assert retry_after(SETTINGS, error("rate_limit", retry_after=7.0), attempt=1, jitter=0) == 7.0
    assert retry_after(SETTINGS, error("rate_limit", retry_after=0.1), attempt=1, jitter=1) == 1.0
    assert retry_after(SETTINGS, error("rate_limit", retry_after=60.0), attempt=1, jitter=0) is None
