"""The scenarios and the page that lists them."""

from pathlib import Path

import pytest

from dragoman.errors import RequestRefused
from dragoman.upstream.rehearsal import SCENARIOS
from dragoman.upstream.rehearsal.scenarios import ORDINARY, find_scenario

PAGE = Path(__file__).parents[4] / "docs" / "rehearsal.md"


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_is_found_by_its_name(name: str) -> None:
    found = find_scenario(name)
    assert (found.name, found.about) == (name, SCENARIOS[name])


@pytest.mark.parametrize(
    "model", ["", "gpt-5.5", "rehearsal", "Rehearsal-x", "rehearsals", "my/rehearsal-cut"]
)
def test_any_other_name_is_the_ordinary_one(model: str) -> None:
    assert find_scenario(model) is ORDINARY


def test_unknown_scenario_is_not_found() -> None:
    with pytest.raises(RequestRefused, match=r"rehearsal-parallel.*got 'rehearsal-x'") as caught:
        find_scenario("rehearsal-x")
    assert (caught.value.status, caught.value.kind, caught.value.param) == (
        404,
        "not_found",
        "model",
    )


def test_page_lists_every_scenario_with_what_it_does() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = [line.strip("|").split("|") for line in lines if line.startswith("| `rehearsal")]
    texts = {cells[0].strip().strip("`"): cells[1].strip() for cells in listed}
    assert texts == dict(SCENARIOS)
