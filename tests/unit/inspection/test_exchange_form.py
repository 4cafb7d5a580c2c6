"""The JSON form of the inspector is the one that `docs/inspector.md` describes."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.inspection.exchange_form import (
    AnswerReport,
    AttemptReport,
    CallRow,
    ChangeReport,
    ClientReport,
    EventReport,
    ExchangeReport,
    FrameReport,
    InputReport,
    Note,
    RequestSummary,
)
from dragoman.inspection.receipt import Receipt

PROJECT = Path(__file__).parents[3]
PAGE = (PROJECT / "docs" / "inspector.md").read_text(encoding="utf-8")
SAMPLES = sorted((PROJECT / "tests" / "e2e" / "samples" / "exchanges").glob("*.json"))


def example(title: str) -> Any:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(
    ("title", "kind"), [("A row of the list", RequestSummary), ("Receipts", Receipt)]
)
def test_an_example_has_every_member_and_no_other(title: str, kind: type[msgspec.Struct]) -> None:
    shown = example(title)
    read = msgspec.convert(shown, kind)
    assert json.loads(msgspec.json.encode(read)) == shown


@pytest.mark.parametrize(
    "kind",
    [
        ExchangeReport,
        AnswerReport,
        FrameReport,
        ClientReport,
        AttemptReport,
        EventReport,
        CallRow,
        InputReport,
        Note,
        ChangeReport,
    ],
)
def test_every_member_is_described(kind: type[msgspec.Struct]) -> None:
    missing = [name for name in kind.__struct_fields__ if f"`{name}`" not in PAGE]
    assert missing == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_of_a_real_exchange_has_this_form(path: Path) -> None:
    shown = json.loads(path.read_text(encoding="utf-8"))
    read = msgspec.convert(shown, ExchangeReport)
    assert json.loads(msgspec.json.encode(read)) == shown
