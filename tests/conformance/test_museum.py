"""Every known defect of other gateways is a case here, or stands in a list with the reason why it cannot be."""

import json
import tomllib
from pathlib import Path

from corpus_cases import CORPUS

MUSEUM = Path(__file__).parents[3] / "shared" / "museum" / "museum.jsonl"


def cased() -> set[str]:
    found: set[str] = set()
    for meta in CORPUS.glob("*/*/meta.toml"):
        found.update(tomllib.loads(meta.read_text(encoding="utf-8")).get("museum", ()))
    return found


def elsewhere() -> dict[str, str]:
    text = (CORPUS / "museum_elsewhere.toml").read_text(encoding="utf-8")
    reasons: dict[str, str] = tomllib.loads(text)["reasons"]
    return reasons


def test_no_defect_is_both_a_case_and_excused() -> None:
    assert not cased() & set(elsewhere())
    assert all(reason for reason in elsewhere().values())


def test_every_case_says_where_its_bytes_come_from() -> None:
    for meta in CORPUS.glob("*/*/meta.toml"):
        values = tomllib.loads(meta.read_text(encoding="utf-8"))
        assert values["title"], meta
        assert values["origin"], meta


def test_every_known_defect_is_accounted_for() -> None:
    # The collection lies beside the project on the machines that have it; the count holds everywhere.
    if MUSEUM.exists():
        lines = MUSEUM.read_text(encoding="utf-8").splitlines()
        known = {json.loads(line)["id"] for line in lines}
        assert cased() | set(elsewhere()) == known
    assert len(cased() | set(elsewhere())) == 109
