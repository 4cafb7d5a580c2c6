"""Gateways on one file that start, stop and are killed lose nothing they acknowledged. `make crash` does the same at length."""

from pathlib import Path

from crash import run_rounds

# Each leaves the file to others that go on: whoever closes it must not believe to be the last.
EVENTS = ("check", "stop", "end worker", "check", "kill")


def test_three_gateways_under_load_fail_no_response(tmp_path: Path) -> None:
    """Nothing happens to them but `dragoman check`: every refusal would be a conflict of their own making."""
    outcome = run_rounds(tmp_path, ("check",) * 6, seed=11, gateways=3)
    assert outcome.refused == {}
    assert (outcome.lost, outcome.cut) == ({}, 0)
    assert len(outcome.responses) > 100


def test_every_response_that_was_acknowledged_is_there_on_every_gateway(tmp_path: Path) -> None:
    outcome = run_rounds(tmp_path, EVENTS, seed=7, gateways=2)
    assert outcome.lost == {}
    assert len(outcome.responses) > 100
    assert len(outcome.queued) > 10
    assert set(outcome.queued.values()) <= {"completed", "failed"}
    unstored = [why for why in outcome.refused if "could not be stored" in why]
    assert unstored == []
