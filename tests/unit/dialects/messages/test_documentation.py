"""The page of this dialect says what its code says."""

from pathlib import Path

from dragoman.dialects.messages import LOSSES

PAGE = (Path(__file__).parents[4] / "docs" / "dialects" / "messages.md").read_text(encoding="utf-8")


def test_every_loss_stands_on_the_page_with_its_meaning_and_default() -> None:
    for code, rule in LOSSES.items():
        assert f"| `{code}` | {rule.meaning} | {rule.action} |" in PAGE
