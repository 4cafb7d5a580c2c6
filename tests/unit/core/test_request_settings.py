"""Words and budgets for how much to think."""

import pytest

from dragoman.core.request_settings import budget_from_effort, effort_from_budget


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_the_three_common_words_survive_the_way_there_and_back(effort: str) -> None:
    budget = budget_from_effort(effort)
    assert budget is not None
    assert effort_from_budget(budget) == effort


def test_more_effort_is_more_budget() -> None:
    words = ("minimal", "low", "medium", "high", "xhigh", "max")
    budgets = [budget_from_effort(word) or 0 for word in words]
    assert budgets == sorted(set(budgets))
    assert budgets[0] >= 1024


def test_none_is_no_budget_and_no_budget_is_none() -> None:
    assert budget_from_effort("none") is None
    assert effort_from_budget(0) == "none"


def test_word_nobody_knows_yet_counts_as_medium() -> None:
    assert budget_from_effort("ludicrous") == budget_from_effort("medium")


@pytest.mark.parametrize(
    ("budget", "effort"), [(1024, "low"), (4000, "low"), (10_000, "medium"), (31_999, "high")]
)
def test_budgets_of_claude_code_have_words(budget: int, effort: str) -> None:
    assert effort_from_budget(budget) == effort
