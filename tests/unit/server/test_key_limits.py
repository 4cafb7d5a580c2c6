"""What the limits and prices of a key mean, as values."""

import pytest

from dragoman.config.settings import KeySettings, PriceSettings
from dragoman.server.key_limits import cost_of, counts_of, limit_error, limits_of
from dragoman.server.observe.record import RequestRecord
from dragoman.store.key_usage import MAX_COUNT, Counts, KeyLimit, LimitReached

PRICE = PriceSettings(input=3.0, output=15.0, cached=0.3, cache_write=3.75)


def test_limits_are_read_from_their_names_and_costs_are_millionths() -> None:
    settings = KeySettings(
        digest="", requests_per_minute=60, tokens_per_day=10**6, cost_per_month=2.5
    )
    assert list(limits_of(settings)) == [
        KeyLimit("requests_per_minute", "minute", "requests", 60),
        KeyLimit("tokens_per_day", "day", "tokens", 10**6),
        KeyLimit("cost_per_month", "month", "cost", 2_500_000),
    ]


def test_each_kind_of_token_has_its_price() -> None:
    used = Counts(input_tokens=1000, cached_tokens=600, output_tokens=10)
    assert cost_of(PRICE, used, cache_write=300) == 100 * 3 + 180 + 1125 + 150


def test_cached_tokens_cost_like_others_unless_there_is_a_price() -> None:
    used = Counts(input_tokens=10, cached_tokens=4)
    assert cost_of(PriceSettings(input=2.0, output=0.0), used, cache_write=3) == 20


def test_cost_is_rounded_up_and_bounded() -> None:
    assert cost_of(PriceSettings(input=0.1, output=0.0), Counts(input_tokens=1)) == 1
    huge = Counts(input_tokens=MAX_COUNT, output_tokens=MAX_COUNT)
    assert cost_of(PriceSettings(input=1e300, output=1e300), huge) == MAX_COUNT


@pytest.mark.parametrize("count", [-1, 10**30])
def test_count_that_an_upstream_made_up_stays_within_bounds(count: int) -> None:
    record = RequestRecord(door="chat", input_tokens=count, output_tokens=0)
    assert 0 <= counts_of(record, PRICE).input_tokens <= MAX_COUNT


def answered(**fields: object) -> RequestRecord:
    record = RequestRecord(door="chat", attempts=1, status=200, bytes_in=4000, bytes_out=64_000)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_stream_without_reported_usage_is_counted_by_its_size() -> None:
    """A client of a Chat upstream gets no usage unless it asks for it."""
    assert counts_of(answered(stream=True), None) == Counts(input_tokens=1000, output_tokens=1000)
    assert counts_of(answered(), None) == Counts(input_tokens=1000, output_tokens=16_000)


def test_client_that_leaves_before_the_usage_is_reported_pays_for_what_it_read() -> None:
    left = answered(stream=True, client_gone=True, input_tokens=5, output_tokens=1)
    assert counts_of(left, None) == Counts(input_tokens=5, output_tokens=1000)


def test_reported_usage_is_not_estimated() -> None:
    whole = answered(stream=True, input_tokens=5, output_tokens=0)
    assert counts_of(whole, None) == Counts(input_tokens=5)


@pytest.mark.parametrize("fields", [{"attempts": 0}, {"status": 502}, {"error_kind": "upstream"}])
def test_request_without_an_answer_uses_nothing(fields: dict[str, object]) -> None:
    assert counts_of(answered(**fields), PRICE) == Counts()


def test_wait_is_rounded_up_so_that_it_is_never_too_short() -> None:
    reached = LimitReached("requests_per_minute", 60, 12.2, "minute", "requests")
    error = limit_error("team", reached)
    assert (error.kind, error.retry_after) == ("rate_limit", 13.0)
    assert "requests_per_minute" in error.message
    assert "team" in error.message


def test_spent_budget_is_a_quota_that_clients_do_not_try_again() -> None:
    error = limit_error("team", LimitReached("cost_per_day", 40, 5.0, "day", "cost"))
    assert (error.kind, error.code) == ("quota", "insufficient_quota")
    assert "at most 0.00004 per day" in error.message
