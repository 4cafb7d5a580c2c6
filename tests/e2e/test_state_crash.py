"""Gateways on one file that start, stop and are killed lose nothing they acknowledged. `make crash` does the same at length."""

from pathlib import Path

from crash import run_rounds

# Each leaves the file to others that go on: whoever closes it must not believe to be the last.
EVENTS = ("check", "stop", "end worker", "check", "kill")


def test_every_response_that_was_acknowledged_is_there_on_every_gateway(tmp_path: Path) -> None:
    outcome = run_rounds(tmp_path, EVENTS, seed=7, gateways=2)
    assert outcome.lost == {}
    assert len(outcome.responses) > 100
    unstored = [why for why in outcome.refused if "could not be stored" in why]
    assert unstored == []
