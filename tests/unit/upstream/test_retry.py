"""Retries and fallbacks: every row of the table, the limits of waiting, and the reading of Retry-After."""

from typing import get_args

import pytest

from dragoman.config.settings import RetrySettings
from dragoman.core.failures import error_info
from dragoman.model.outcome import ErrorInfo, ErrorKind
from dragoman.upstream.errors import all_taken
from dragoman.upstream.retry import (
    Decision,
    Failure,
    Fallback,
    GiveUp,
    OtherPeer,
    Retry,
    decide,
    failure_of,
    failure_without_answer,
    retry_after,
)

SETTINGS = RetrySettings(attempts=3, base_delay=0.2, max_delay=5.0, max_wait=10.0)
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def decision(
    failure: Failure,
    *,
    settings: RetrySettings = SETTINGS,
    attempt: int = 1,
    forwarded: bool = False,
    has_fallback: bool = True,
    jitter: float = 1.0,
) -> Decision:
    return decide(
        settings,
        failure,
        attempt=attempt,
        forwarded=forwarded,
        otherwise=Fallback() if has_fallback else GiveUp(),
        jitter=jitter,
    )


def of_status(status: int, kind: ErrorKind = "server") -> Failure:
    return Failure(kind=kind, status=status)


@pytest.mark.parametrize(
    "status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]
)
def test_passing_troubles_are_tried_again(status: int) -> None:
    assert decision(of_status(status)) == Retry(0.2)


@pytest.mark.parametrize("status", [401, 402, 403, 404, 501, 505, 599])
def test_what_this_upstream_will_not_do_another_may(status: int) -> None:
    assert decision(of_status(status)) == Fallback()
    assert decision(of_status(status), has_fallback=False) == GiveUp()


@pytest.mark.parametrize("status", [400, 405, 407, 411, 413, 415, 422, 431, 451, 301, 204])
def test_a_request_at_fault_is_not_sent_anywhere_again(status: int) -> None:
    assert decision(of_status(status, "invalid_request")) == GiveUp()


@pytest.mark.parametrize("kind", ["upstream", "truncated", "overloaded", "rate_limit", "server"])
def test_no_answer_is_tried_again(kind: ErrorKind) -> None:
    assert decision(Failure(kind=kind)) == Retry(0.2)


def test_a_time_that_ran_out_is_not_waited_for_twice() -> None:
    assert decision(Failure(kind="timeout")) == Fallback()
    assert decision(Failure(kind="timeout"), has_fallback=False) == GiveUp()


def test_a_timeout_that_the_upstream_reports_is_tried_again() -> None:
    assert decision(of_status(504, "timeout")) == Retry(0.2)


@pytest.mark.parametrize("kind", ["protocol", "authentication", "permission", "not_found"])
def test_other_failures_without_a_status_go_elsewhere(kind: ErrorKind) -> None:
    assert decision(Failure(kind=kind)) == Fallback()


def test_every_kind_of_failure_has_a_decision() -> None:
    for kind in get_args(ErrorKind):
        assert isinstance(decision(Failure(kind=kind)), Retry | Fallback | GiveUp)
    assert decision(Failure(kind="cancelled")) == GiveUp()
    assert decision(Failure(kind="invalid_request")) == GiveUp()


def test_a_used_up_quota_is_never_waited_for() -> None:
    quota = Failure(kind="quota", status=429, retry_after=1.0, should_retry=True)
    assert decision(quota) == Fallback()
    assert decision(quota, has_fallback=False) == GiveUp()


@pytest.mark.parametrize("kind", ["context_length", "content_policy"])
@pytest.mark.parametrize("status", [400, 429, 500, None])
def test_a_conversation_that_is_refused_for_itself_is_final(
    kind: ErrorKind, status: int | None
) -> None:
    assert decision(Failure(kind=kind, status=status)) == GiveUp()


def test_nothing_is_repeated_after_a_byte_was_forwarded() -> None:
    assert decision(of_status(503), forwarded=True) == GiveUp()
    assert decision(of_status(404), forwarded=True) == GiveUp()


def test_switched_off_it_neither_repeats_nor_falls_back() -> None:
    off = RetrySettings(enabled=False)
    assert decision(of_status(503), settings=off) == GiveUp()
    assert decision(of_status(404), settings=off) == GiveUp()


def test_one_attempt_leaves_the_fallback() -> None:
    once = RetrySettings(attempts=1)
    assert decision(of_status(503), settings=once) == Fallback()
    assert decision(of_status(503), settings=once, has_fallback=False) == GiveUp()


def test_the_last_attempt_is_followed_by_the_next_upstream() -> None:
    assert decision(of_status(500), attempt=2) == Retry(0.4)
    assert decision(of_status(500), attempt=3) == Fallback()
    assert decision(of_status(500), attempt=3, has_fallback=False) == GiveUp()


@pytest.mark.parametrize(
    ("attempt", "jitter", "after"),
    [(1, 0.0, 0.1), (1, 0.5, 0.15), (2, 1.0, 0.4), (5, 1.0, 3.2), (6, 1.0, 5.0), (5000, 0.0, 2.5)],
)
def test_delays_double_up_to_a_bound_and_are_spread(
    attempt: int, jitter: float, after: float
) -> None:
    many = RetrySettings(attempts=10_000, base_delay=0.2, max_delay=5.0)
    found = decision(of_status(500), settings=many, attempt=attempt, jitter=jitter)
    assert isinstance(found, Retry)
    assert found.after == pytest.approx(after)


def test_the_time_asked_for_is_waited() -> None:
    assert decision(Failure(kind="rate_limit", status=429, retry_after=7.5)) == Retry(7.5)
    assert decision(Failure(kind="rate_limit", status=429, retry_after=10.0)) == Retry(10.0)


def test_a_shorter_time_than_our_own_delay_does_not_hurry_us() -> None:
    assert decision(Failure(kind="rate_limit", status=429, retry_after=0.0)) == Retry(0.2)


def test_a_longer_time_than_allowed_is_not_waited() -> None:
    limited = Failure(kind="rate_limit", status=429, retry_after=10.1)
    assert decision(limited) == Fallback()
    assert decision(limited, has_fallback=False) == GiveUp()


def test_the_upstreams_own_advice_is_followed() -> None:
    assert decision(Failure(kind="server", status=500, should_retry=False)) == Fallback()
    assert decision(Failure(kind="invalid_request", status=400, should_retry=True)) == Retry(0.2)
    assert decision(Failure(kind="invalid_request", status=400, should_retry=False)) == GiveUp()


def test_a_wait_for_a_free_connection_is_not_repeated_but_another_upstream_may_have_one() -> None:
    taken = failure_without_answer(error_info(all_taken("local", 1, 0.1)))
    assert decision(taken) == Fallback()
    assert decision(taken, has_fallback=False) == GiveUp()
    overloaded = failure_without_answer(ErrorInfo(kind="overloaded", message="told in the stream"))
    assert decision(overloaded) == Retry(0.2)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Tue, 14 Nov 99999 22:13:50 GMT"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1"}, 0.0),
    ],
)
def test_retry_after_is_read_in_all_its_spellings(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("value", "advice"), [("true", True), ("False", False), ("maybe", None), (None, None)]
)
def test_an_error_answer_becomes_a_failure(value: str | None, advice: bool | None) -> None:
    headers = {"retry-after": "2"} | ({"x-should-retry": value} if value is not None else {})
    assert failure_of(429, headers, kind="rate_limit", now=NOW) == Failure(
        kind="rate_limit", status=429, retry_after=2.0, should_retry=advice
    )


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
@pytest.mark.parametrize("attempt", [1, 3, 10])
def test_a_peer_that_was_not_tried_comes_before_a_wait(status: int, attempt: int) -> None:
    found = decide(
        SETTINGS,
        of_status(status),
        attempt=attempt,
        forwarded=False,
        otherwise=OtherPeer(),
        jitter=1.0,
    )
    assert found == OtherPeer()


@pytest.mark.parametrize(
    ("failure", "forwarded"), [(of_status(400), False), (of_status(503), True)]
)
def test_a_request_at_fault_or_begun_goes_to_no_peer(failure: Failure, *, forwarded: bool) -> None:
    found = decide(
        SETTINGS, failure, attempt=1, forwarded=forwarded, otherwise=OtherPeer(), jitter=1.0
    )
    assert found == GiveUp()
