"""The order in which calls may run, decided without a lock to wait on."""

from dragoman.engine.schedule import Schedule


def test_parallel_calls_share_up_to_the_cap() -> None:
    schedule = Schedule(2)
    assert schedule.submit(0, is_parallel=True) == [0]
    assert schedule.submit(1, is_parallel=True) == [1]
    assert schedule.submit(2, is_parallel=True) == []
    assert schedule.release(1) == [2]


def test_exclusive_call_runs_alone() -> None:
    schedule = Schedule(8)
    assert schedule.submit(0, is_parallel=False) == [0]
    assert schedule.submit(1, is_parallel=False) == []
    assert schedule.submit(2, is_parallel=True) == []
    assert schedule.release(0) == [1]
    assert schedule.release(1) == [2]


def test_nobody_overtakes_an_exclusive_call_that_waits() -> None:
    schedule = Schedule(8)
    schedule.submit(0, is_parallel=True)
    assert schedule.submit(1, is_parallel=False) == []
    assert schedule.submit(2, is_parallel=True) == []
    assert schedule.submit(3, is_parallel=True) == []
    assert schedule.release(0) == [1]
    assert schedule.release(1) == [2, 3]


def test_cleared_schedule_starts_nothing_more() -> None:
    schedule = Schedule(1)
    schedule.submit(0, is_parallel=True)
    schedule.submit(1, is_parallel=True)
    schedule.submit(2, is_parallel=False)
    assert schedule.clear() == [1, 2]
    assert schedule.release(0) == []
