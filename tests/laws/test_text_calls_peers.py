"""Other engines' recorded cases, where they lie beside the project. See `text_peers`."""

import random
from collections.abc import Callable
from typing import cast

import pytest

from text_peers import Row, judge, listed, load_rows, read_row

ROWS = load_rows()
ENOUGH = 0.97


def whole(text: str) -> list[str]:
    return [text]


def randomly(text: str) -> list[str]:
    chance = random.Random(len(text))
    pieces: list[str] = []
    while text:
        size = chance.randint(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def test_cases_are_read_where_they_lie_beside_the_project() -> None:
    """Without them the other tests here prove nothing, and this one says so by the empty list."""
    assert ROWS == [] or len(ROWS) == 511


@pytest.mark.parametrize("cut", [whole, list, randomly])
def test_peers_and_we_agree_but_for_the_listed_cases(cut: Callable[[str], list[str]]) -> None:
    verdicts = {
        str(row["id"]): judge(row, read_row(row, cut(str(row["input_text"])))) for row in ROWS
    }
    kept = {key for key, verdict in verdicts.items() if verdict == "kept"}
    faults = {key for key, verdict in verdicts.items() if verdict in ("calls", "content")}
    assert faults == (listed("disagreements").keys() if ROWS else set())
    assert kept == (listed("kept").keys() if ROWS else set())
    assert len(faults) <= (1 - ENOUGH) * len(ROWS)


@pytest.mark.parametrize("cut", [list, randomly])
def test_cuts_change_nothing_in_recorded_cases(cut: Callable[[str], list[str]]) -> None:
    def differs(row: Row) -> bool:
        text = str(row["input_text"])
        return read_row(row, cut(text)) != read_row(row, whole(text))

    assert [row["id"] for row in ROWS if differs(row)] == []


def test_pieces_as_the_peers_recorded_them_give_the_same() -> None:
    chunked = [row for row in ROWS if isinstance(row.get("sample_chunks"), list)]
    for row in chunked:
        pieces = [str(chunk) for chunk in cast("list[object]", row["sample_chunks"])]
        if "".join(pieces) == row["input_text"]:
            assert read_row(row, pieces) == read_row(row, whole(str(row["input_text"])))
