"""The rules of a key's limits, as values: windows of the clock, counts, requests that run."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman._json import dumps
from dragoman.errors import StoreDamaged
from dragoman.store.key_usage import (
    MAX_COUNT,
    Counts,
    KeyChange,
    KeyLimit,
    KeyRequest,
    KeyState,
    LimitReached,
    Window,
    admit,
    read_state,
    report,
    usage_of,
    window_end,
    window_start,
)

NOON = datetime(2024, 2, 28, 12, 0, 30, tzinfo=UTC).timestamp()
PER_MINUTE = KeyLimit("requests_per_minute", "minute", "requests", 2)
TOKENS_PER_DAY = KeyLimit("tokens_per_day", "day", "tokens", 100)
LEASE = 60.0


def ask(
    state: KeyState, now: float, *limits: KeyLimit, name: str = "a", streams: int | None = None
) -> LimitReached | None:
    return admit(state, KeyRequest(name, limits, streams), now, now + LEASE)


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        ("minute", "2024-02-28T12:00:00+00:00", "2024-02-28T12:01:00+00:00"),
        ("day", "2024-02-28T00:00:00+00:00", "2024-02-29T00:00:00+00:00"),
        ("month", "2024-02-01T00:00:00+00:00", "2024-03-01T00:00:00+00:00"),
    ],
)
def test_windows_are_those_of_utc(window: Window, start: str, end: str) -> None:
    assert window_start(window, NOON) == datetime.fromisoformat(start).timestamp()
    assert window_end(window, NOON) == datetime.fromisoformat(end).timestamp()


@given(
    now=st.floats(min_value=0, max_value=4e9), window=st.sampled_from(["minute", "day", "month"])
)
def test_every_moment_is_in_one_window_and_the_next_begins_where_it_ends(
    now: float, window: Window
) -> None:
    start, end = window_start(window, now), window_end(window, now)
    assert start <= now < end
    assert window_start(window, end) == end
    assert window_start(window, end - 0.001) == start


def test_request_over_the_limit_waits_until_the_window_ends_and_is_then_allowed() -> None:
    state = KeyState()
    assert [ask(state, NOON, PER_MINUTE) for _ in range(2)] == [None, None]
    reached = ask(state, NOON, PER_MINUTE)
    assert reached is not None
    assert reached == LimitReached("requests_per_minute", 2, 30.0, "minute", "requests")
    assert ask(state, NOON + reached.wait - 0.01, PER_MINUTE) is not None
    assert ask(state, NOON + reached.wait, PER_MINUTE) is None


def test_refused_request_is_not_counted() -> None:
    state = KeyState()
    for _ in range(5):
        ask(state, NOON, PER_MINUTE)
    assert usage_of(state, NOON).windows["day"].requests == 2


def test_of_several_limits_the_longest_wait_is_the_true_one() -> None:
    state = KeyState()
    ask(state, NOON)
    ask(state, NOON)
    report(state, KeyChange(Counts(input_tokens=90, output_tokens=10)), NOON, NOON)
    reached = ask(state, NOON, PER_MINUTE, TOKENS_PER_DAY)
    assert reached is not None
    assert (reached.setting, reached.wait) == ("tokens_per_day", 12 * 3600 - 30.0)


def test_token_limit_counts_input_and_output_of_answers_that_have_ended() -> None:
    state = KeyState()
    used = KeyChange(Counts(input_tokens=60, cached_tokens=50, output_tokens=39))
    report(state, used, NOON, NOON)
    assert ask(state, NOON, TOKENS_PER_DAY) is None
    report(state, KeyChange(Counts(output_tokens=1)), NOON, NOON)
    assert ask(state, NOON, TOKENS_PER_DAY) is not None


def test_streams_that_run_are_bounded_and_an_ended_one_makes_room() -> None:
    state = KeyState()
    assert ask(state, NOON, name="a", streams=1) is None
    assert ask(state, NOON, name="b", streams=1) == LimitReached("max_streams", 1, 1.0)
    report(state, KeyChange(ended=("a",)), NOON, NOON)
    assert ask(state, NOON, name="b", streams=1) is None


def test_stream_of_a_worker_that_died_counts_until_its_lease_lapses() -> None:
    state = KeyState()
    ask(state, NOON, name="a", streams=1)
    report(state, KeyChange(renewed=("a",)), NOON + 50, NOON + 50 + LEASE)
    assert ask(state, NOON + LEASE + 1, name="b", streams=1) is not None
    assert ask(state, NOON + 50 + LEASE, name="b", streams=1) is None


def test_clock_that_steps_back_finds_the_window_as_it_was() -> None:
    state = KeyState()
    admitted = [ask(state, NOON, PER_MINUTE) for _ in range(3)].count(None)
    ask(state, NOON + 60, PER_MINUTE)
    admitted += [ask(state, NOON, PER_MINUTE) for _ in range(3)].count(None)
    assert admitted == 2


@given(steps=st.lists(st.floats(min_value=-300, max_value=300), max_size=40))
@example(steps=[-271.0, 270.0, -271.0, -271.0])
def test_no_window_admits_more_than_its_limit_however_the_clock_jumps(steps: list[float]) -> None:
    """Within the minutes that are remembered: clocks of nodes differ by less."""
    state = KeyState()
    admitted: dict[float, int] = {}
    for step in steps:
        now = NOON + step
        if ask(state, now, PER_MINUTE) is None:
            minute = window_start("minute", now)
            admitted[minute] = admitted.get(minute, 0) + 1
    assert all(count <= PER_MINUTE.most for count in admitted.values())


def test_numbers_that_no_reader_takes_stay_within_bounds() -> None:
    state = KeyState()
    for _ in range(3):
        report(state, KeyChange(Counts(input_tokens=10**30, output_tokens=-5)), NOON, NOON)

    assert ask(state, NOON, TOKENS_PER_DAY) is not None
    assert usage_of(state, NOON).windows["day"] == Counts(input_tokens=MAX_COUNT)
    assert usage_of(read_state(dumps(state)), NOON).windows["month"].input_tokens == MAX_COUNT


def test_state_is_small_however_long_a_key_is_used() -> None:
    state = KeyState()
    for minute in range(0, 90 * 24 * 60, 61):
        ask(state, NOON + minute * 60, name=str(minute), streams=3)
    assert len(state.windows) <= 20
    assert len(state.running) <= 3
    assert len(dumps(KeyState())) < 100


def test_bytes_that_are_no_state_are_reported() -> None:
    with pytest.raises(StoreDamaged):
        read_state(b'{"windows": 3}')
