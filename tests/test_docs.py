"""The pages that list something list all of it, and say of it what the code says."""

import ast
import re
import runpy
import tomllib
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from dragoman import errors
from dragoman.cli import main
from dragoman.core.failures import STATUS_OF_KIND
from dragoman.dialects.registry import UPSTREAM_CODECS
from dragoman.model.events import Event
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Part

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
PACKAGE = Path(__file__).parents[1] / "src" / "dragoman"
PERFORMANCE = "gateway-performance.md"
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


def readme() -> str:
    return (PROJECT / "README.md").read_text(encoding="utf-8")


def test_every_command_of_the_readme_exists() -> None:
    blocks = "".join(re.findall(r"^```\n(.*?)^```", readme(), re.MULTILINE | re.DOTALL))
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE)
    assert targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
    commands = re.findall(r"^\.venv/bin/dragoman (.+?)(?:  .*)?$", blocks, re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["connect", "launch", "init", "certify"]
    assert main(commands[0].split()) == 0
    for line in commands[1:]:
        with pytest.raises(SystemExit, match=r"^0$"):
            main([line.split()[0], "--help"])
    # It is on no path before the installation.
    assert not re.search(r"^dragoman ", blocks, re.MULTILINE)
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = {
        extra for group in re.findall(r"\.\[([a-z,]+)\]", blocks) for extra in group.split(",")
    }
    assert extras <= project["project"]["optional-dependencies"].keys()


def test_figures_of_the_readme_are_those_that_were_measured() -> None:
    measured = (DOCS / PERFORMANCE).read_text(encoding="utf-8")
    for peer in ("Portkey", "LiteLLM"):
        [ours] = re.findall(rf"^\| {peer}.*\|$", readme(), re.MULTILINE)
        [theirs] = re.findall(rf"^\| {peer}.*\|$", measured, re.MULTILINE)
        cells = [cell.strip() for cell in theirs.strip("|").split("|")]
        shown = [cell.strip().partition(" (")[0] for cell in ours.strip("|").split("|")]
        assert shown == [cells[0], *cells[2::2]]
    pairs = re.findall(
        r"^\| \w+ → \w+ \|(.*)\|$", section(PERFORMANCE, "What it costs"), re.MULTILINE
    )
    ratios = [[float(cell) for cell in pair.split("|")[1::2]] for pair in pairs[:4]]
    paced, small = sorted(each[1] for each in ratios), sorted(each[2] for each in ratios)
    words = (
        f"a paced event costs Dragoman {paced[0]:g} to {paced[-1]:g} times as much, "
        f"a small request {small[0]:g} to {small[-1]:g} times"
    )
    for page in (readme(), (DOCS / "comparison.md").read_text(encoding="utf-8")):
        assert words in " ".join(page.split())
    lock = (PROJECT / "requirements" / "serve.txt").read_text(encoding="utf-8")
    packages = len(re.findall(r"^[a-z]", lock, re.MULTILINE))
    assert f"the {packages} pinned packages that serving needs" in readme()
    rows_of_clients = (PROJECT / "clients" / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| ", rows_of_clients, re.MULTILINE)) - 1 == 13
    assert "[Thirteen real clients]" in readme()


def test_pictures_show_what_the_code_does_now() -> None:
    place = PROJECT / "scripts" / "pictures.py"
    drawn = runpy.run_path(str(place))
    scaling = (DOCS / "scaling.md").read_text(encoding="utf-8")
    for name, page in (("call", readme()), ("terminal", readme()), ("curve", scaling)):
        text = drawn[f"{name}_picture"]()
        ET.fromstring(text)
        assert (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == text, (
            "after a deliberate change: .venv/bin/python scripts/pictures.py"
        )
        assert f"pictures/{name}.svg" in page


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


def test_every_file_that_a_docstring_names_exists() -> None:
    files = [str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*.py")]
    missing: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [
            ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, nodes)
        ]
        missing += [
            f"{path.relative_to(PACKAGE)}: {name}"
            for name in re.findall(r"[\w/]+\.py\b", "\n".join(texts))
            if not name.startswith(("src/", "tests/"))
            and not any(file.endswith(f"/{name}") for file in files)
        ]
    assert missing == []


def source_strings() -> list[str]:
    """The texts in the code, with `…` where a value is put in."""
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.JoinedStr(values=values):
                    pieces = [
                        str(value.value) if isinstance(value, ast.Constant) else "…"
                        for value in values
                    ]
                    found.append("".join(pieces))
                case ast.Constant(value=str() as text):
                    found.append(text)
                case _:
                    pass
    return found


def test_every_message_of_the_troubleshooting_page_is_in_the_code() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| message \|.*?\n\n", text, re.MULTILINE | re.DOTALL)
    messages = re.findall(r"^\| `(.+?)` \|", "".join(tables), re.MULTILINE)
    assert len(messages) > 30
    strings = source_strings()
    assert [each for each in messages if not any(each in string for string in strings)] == []


def test_no_message_points_to_a_page_that_an_installed_package_lacks() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # Docstrings are for readers of the code.
        notes = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{path.name}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in notes
            and re.search(r"\bdocs/[\w/-]+\.md", node.value)
        ]
    assert found == []


def test_upgrade_notes_name_everything_that_is_incompatible() -> None:
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    [entries] = re.findall(
        r"^## Unreleased\n\n### Incompatible\n(.*?)^### ", changelog, re.MULTILINE | re.DOTALL
    )
    notes = (DOCS / "upgrading.md").read_text(encoding="utf-8")
    assert [word for word in re.findall(r"`([^`]+)`", entries) if word not in notes] == []


def test_drawn_diagrams_show_what_their_source_says() -> None:
    sources = sorted(DOCS.rglob("*.dot"))
    assert len(sources) > 2
    for source in sources:
        drawn = "".join(ET.parse(source.with_suffix(".svg")).getroot().itertext())
        labels = re.findall(r'label="([^"]*)"', source.read_text(encoding="utf-8"))
        lines = [line for label in labels for line in label.split(r"\n")]
        assert [line for line in lines if line not in drawn] == [], f"draw {source.name} again"


def test_figures_of_the_comparison_are_those_of_the_readme() -> None:
    comparison = (DOCS / "comparison.md").read_text(encoding="utf-8")
    for peer in ("Portkey", "LiteLLM"):
        row = rf"^\| {peer}.*\|$"
        assert re.findall(row, comparison, re.MULTILINE) == re.findall(row, readme(), re.MULTILINE)
