"""The pages that list something list all of it, and say of it what the code says."""

import re
from pathlib import Path
from typing import get_args

import pytest

from dragoman import errors
from dragoman.core.failures import STATUS_OF_KIND
from dragoman.dialects.registry import UPSTREAM_CODECS
from dragoman.model.events import Event
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Part

DOCS = Path(__file__).parents[1] / "docs"
PACKAGE = Path(__file__).parents[1] / "src" / "dragoman"
MOST_WORDS = 40
"""A newcomer should not have to learn more of our own words than this before the first change."""


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title!r}"
    return found[1]


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of a section's first table, without its head, backquotes taken off."""
    lines = [line for line in section(page, title).splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(union: object) -> list[str]:
    return [member.__name__ for member in get_args(union)]


def test_every_event_is_listed() -> None:
    assert sorted(row[0] for row in rows("vocabulary.md", "Events")) == sorted(names(Event))


def test_every_part_is_listed() -> None:
    assert sorted(row[0] for row in rows("vocabulary.md", "Parts")) == sorted(names(Part))


def test_every_finish_reason_is_listed() -> None:
    listed = [row[0] for row in rows("vocabulary.md", "Finish reasons")]
    assert listed == list(get_args(FinishReason))


def test_every_kind_of_error_is_listed_with_its_status() -> None:
    listed = {row[0]: int(row[1]) for row in rows("errors.md", "Kinds")}
    assert listed == dict(STATUS_OF_KIND)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_exception_stands_in_the_tree_below_its_parent(name: str) -> None:
    tree = section("errors.md", "What can be raised")
    lines = [line for line in tree.splitlines() if re.match(r"\s*[A-Z]\w+(\s{2,}|$)", line)]
    depth = {line.split()[0]: len(line) - len(line.lstrip()) for line in lines}
    order = list(depth)
    parent = getattr(errors, name).__mro__[1].__name__
    if parent == "Exception":
        assert depth[name] == 0
    else:
        above = [other for other in order[: order.index(name)] if depth[other] == depth[name] - 2]
        assert above[-1] == parent


@pytest.mark.parametrize("dialect", sorted(UPSTREAM_CODECS))
def test_every_dialect_has_a_page_with_every_loss(dialect: str) -> None:
    text = (DOCS / "dialects" / f"{dialect}.md").read_text(encoding="utf-8")
    missing = [code for code in UPSTREAM_CODECS[dialect].losses if f"`{code}`" not in text]
    assert missing == []


def named_files(page: str) -> list[str]:
    """The files and folders of the package that a page names."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", text)
    return [name for name in found if not name.startswith(("src/", "tests/", "docs/"))]


@pytest.mark.parametrize("page", ["architecture.md", "glossary.md", "gateway.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    names = named_files(page)
    assert len(names) > 2
    assert [name for name in names if not (PACKAGE / name).exists()] == []


def test_the_glossary_is_short_and_its_words_are_used_where_it_says() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\| ([a-z ]+) \| .* \| `([\w/]+\.py)` \|$", text, re.MULTILINE)
    assert 20 < len(entries) <= MOST_WORDS
    assert len(entries) == text.count("\n|") - 2  # every row has this form
    missing = [
        (word, name)
        for word, name in entries
        if word.split()[0] not in (PACKAGE / name).read_text(encoding="utf-8").lower()
    ]
    assert missing == []
