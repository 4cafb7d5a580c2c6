"""A small round of `make faults`: broken links, a full disk, a killed gateway, a clock that jumps, a database that goes away.

Real gateways in processes of their own, on SQLite and on PostgreSQL. `make faults` does the same at length.
"""

import pytest
from fault_plan import scene_of
from faults import Report, run_campaign

# None of them has a fault that lasts until a gateway stops waiting: this round should be short on a machine that is slow.
ON_SQLITE = (0, 51, 72, 84, 88, 97)
ON_POSTGRES = (92,)
LIMIT = 20.0


@pytest.fixture(scope="module")
def report() -> Report:
    return run_campaign([scene_of(seed) for seed in (*ON_SQLITE, *ON_POSTGRES)], limit=LIMIT)


def test_no_promise_is_broken_by_any_fault(report: Report) -> None:
    assert report.broken == []
    assert report.acknowledged > 30


def test_round_has_every_kind_of_fault_and_of_end(report: Report) -> None:
    faults = {result.fault for result in report.results}
    events = {"kill", "disk full", "clock", "database stopped"}
    links = {"upstream: reset after a frame", "client: garbage", "client: leave", "client: slow"}
    assert events | links <= faults
    ends = {result.received.end for result in report.results}
    assert {"success", "error", "left"} <= ends


def test_nothing_fails_where_there_is_no_fault(report: Report) -> None:
    untouched = [result for result in report.results if result.fault == "no fault"]
    assert untouched
    assert {result.received.end for result in untouched} <= {"success", "incomplete"}
