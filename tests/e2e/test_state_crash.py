"""A gateway that is killed loses nothing that it told of. `make crash` does the same two hundred times."""

from pathlib import Path

from crash import run_rounds


def test_every_response_that_was_told_is_there_after_kills(tmp_path: Path) -> None:
    told, lost = run_rounds(tmp_path, kills=12, seed=7)
    assert lost == []
    assert len(told.responses) > 12
    assert told.cut > 0
