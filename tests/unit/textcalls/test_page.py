"""The page on text calls: its examples run, and its tables are the registry."""

import re
from pathlib import Path

import pytest

from dragoman import textcalls
from dragoman.textcalls import PATTERNS, Limits

PAGES = Path(__file__).parents[3] / "docs"


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def tables(text: str) -> list[list[list[str]]]:
    """The rows of each table, as the names in backquotes of their first cells."""
    found: list[list[list[str]]] = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = table.splitlines()[2:]
        found.append([re.findall(r"`([^`]+)`", row.split("|")[1]) for row in rows])
    return found


def listed(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in row]


@pytest.mark.parametrize("name", ["text-calls.md", "tool-calls.md"])
def test_examples_about_calls_in_text_run(name: str) -> None:
    text = page(name)
    if name == "tool-calls.md":
        text = text[text.index("### Calls written as text") : text.index("## Parsed calls")]
    examples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    scope: dict[str, object] = {}
    for example in examples:
        exec(compile(example, name, "exec"), scope)
    assert examples
    unregister = scope.get("unregister")
    assert callable(unregister)
    unregister()


def test_tables_of_formats_are_the_registry() -> None:
    text = page("text-calls.md")
    sentinel, other = tables(text[text.index("## Formats") : text.index("## After the calls")])
    patterns = PATTERNS.snapshot()
    names = [one.name for one in patterns if one.is_sentinel]
    assert sorted(listed(sentinel)) == sorted(names)
    bare = [one.name for one in patterns if not one.is_sentinel and not one.is_mark]
    assert sorted(listed(other)) == sorted(bare)


def test_number_of_formats_is_the_same_everywhere() -> None:
    patterns = [one for one in PATTERNS.snapshot() if not one.is_mark]
    sentinels = sum(one.is_sentinel for one in patterns)
    assert f"There are {len(patterns)} formats. {sentinels} have a sentinel" in page(
        "text-calls.md"
    )
    assert f"{len(patterns)} formats in all" in page("../README.md")
    assert f"in {len(patterns)} formats." in (textcalls.__doc__ or "")
    project = Path(__file__).parents[3]
    pages = [project / "README.md", project / "CHANGELOG.md", *(project / "docs").rglob("*.md")]
    texts = [one.read_text(encoding="utf-8") for one in pages]
    numbers = {int(number) for text in texts for number in re.findall(r"(\d+) formats\b", text)}
    assert numbers == {len(patterns)}


def test_every_limit_is_listed_with_its_default() -> None:
    text = page("text-calls.md")
    rows = next(one for one in tables(text) if one and "max_block" in one[0])
    assert sorted(listed(rows)) == sorted(Limits.__struct_fields__)
    for number in (str(Limits().max_depth), str(Limits().max_calls), str(Limits().confirm)):
        assert number in text
