"""The page about prompted tools lists every format and every loss."""

from pathlib import Path

from dragoman.textcalls.prompting import PROMPT_FORMATS
from dragoman.textcalls.prompting.prompt import LOSSES

PAGE = Path(__file__).parents[4] / "docs" / "prompted-tools.md"


def rows(title: str) -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_format_is_listed() -> None:
    assert sorted(row[0].strip("`") for row in rows("Which format")) == sorted(PROMPT_FORMATS)


def test_every_loss_is_listed_with_what_is_done_and_why() -> None:
    listed = {row[0].strip("`"): (row[1], row[2]) for row in rows("What a prompt cannot express")}
    assert listed == {code: (rule.action, rule.meaning) for code, rule in LOSSES.items()}
