"""The project as files: nothing in them that belongs elsewhere, and nothing they point to that is missing.

Forbidden words have one letter in brackets here, so that this file does not find itself.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
NOT_OURS = frozenset(
    (
        *(".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "__pycache__"),
        *("build", "dist", "htmlcov", "node_modules", ".peers"),
    )
)  # fmt: skip

HOSTS = re.compile(r"py[p]i\.org|python[h]osted|npm[j]s\.|yarn[p]kg|debia[n]\.org")
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(?:wo[r]k|far[m]|roo[t])/|\.\./share[d]|\.pyen[v]|/opt/(?:wheel[s]|pyp[i])"
)
MARKERS = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b")
SKIPS = re.compile(r"pytest\.(?:mark\.)?(?:ski[p]|xfai[l]|importorski[p])")

CHANGELOG_SECTIONS = ["Incompatible", "Added", "Changed", "Fixed"]
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def files(folder: Path = PROJECT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in NOT_OURS or path.name.startswith(".coverage"):
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Name and text of every file; bytes that are no text (they occur in the corpus) are replaced."""
    for path in files():
        if not suffixes or path.suffix in suffixes:
            yield name_of(path), path.read_bytes().decode("utf-8", "replace")


def lines_with(pattern: re.Pattern[str], *suffixes: str) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts(*suffixes)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def anchors(markdown: str) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    titles = HEADING.findall(FENCE.sub("", markdown))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, markdown: str) -> list[str]:
    broken: list[str] = []
    for target in LINK.findall(FENCE.sub("", markdown)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        if (
            not path.is_relative_to(PROJECT)
            or not path.exists()
            or (
                anchor
                and anchor not in anchors(path.read_text(encoding="utf-8") if place else markdown)
            )
        ):
            broken.append(target)
    return broken


PAGES = [name_of(path) for path in files() if path.suffix == ".md"]
CASES = sorted(name_of(path.parent) for path in files() if path.name == "meta.toml")


def test_no_package_registry_is_named() -> None:
    assert lines_with(HOSTS) == []


def test_no_path_of_a_machine_is_named() -> None:
    assert lines_with(MACHINE_PATHS) == []


def test_no_marker_of_unfinished_work() -> None:
    assert lines_with(MARKERS, ".py", ".md", ".toml", "") == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    assert lines_with(SKIPS, ".py") == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (HOSTS, "see https://py{}pi.org/simple"),
        (HOSTS, '"resolved": "https://registry.npm{}js.org/pyright"'),
        (MACHINE_PATHS, "see /wo{}rk/main"),
        (MACHINE_PATHS, "see ../sha{}red/notes"),
        (MARKERS, "# TO{}DO: later"),
        (SKIPS, "@pytest.mark.ski{}pif(True)"),
        (SKIPS, "pytest.xfa{}il()"),
    ],
)
def test_what_must_not_be_there_would_be_found(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text.format(""))


@pytest.mark.parametrize(
    "lock",
    [
        *(f"requirements/{name}.txt" for name in ("dev", "serve", "image", "release", "docs")),
        "browser/requirements.txt",
    ],
)
def test_pins_are_names_versions_and_hashes_only(lock: str) -> None:
    pin = re.compile(
        r"#.*|[a-z0-9-]+==[0-9][0-9a-z.]*( ;.*)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?|    #.*"
    )
    lines = (PROJECT / lock).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not pin.fullmatch(line)] == []
    packages = [line for line in lines if "==" in line and not line.startswith((" ", "#"))]
    assert packages
    assert sum(line.startswith("    --hash") for line in lines) >= len(packages)


@pytest.mark.parametrize(
    ("folder", "package"), [("requirements/pyright", "pyright"), ("browser", "axe-core")]
)
def test_npm_pins_have_integrity_and_no_address(folder: str, package: str) -> None:
    lock = json.loads((PROJECT / folder / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert f"node_modules/{package}" in packages
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not any("resolved" in entry for entry in packages.values())


def test_every_development_dependency_is_pinned() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    release = extras.pop("release")
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(name for extra in extras.values() for name in extra),
    ]
    assert names_of(wanted) <= pins("dev.txt").keys()
    assert names_of(release) <= pins("release.txt").keys()


def names_of(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", name)[0].lower() for name in requirements}


def pins(lock: str) -> dict[str, str]:
    """The entry of each package in a lock: its version and its hashes."""
    text = (PROJECT / "requirements" / lock).read_text(encoding="utf-8")
    return {
        name: re.sub(r" ;[^\\\n]*(?= \\)|\s+#.*", "", entry)
        for name, entry in re.findall(
            r"^([a-z0-9-]+)(==.*?)(?=^[a-z]|\Z)", text, re.MULTILINE | re.DOTALL
        )
    }


def test_what_serves_is_pinned_as_in_the_lock_of_development_without_its_tools() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = {re.split(r"[\[<>=!~; ]", name)[0].lower() for name in extras["server"]}
    serving, developing = pins("serve.txt"), pins("dev.txt")
    assert wanted | {"msgspec", "hatchling", "editables"} <= serving.keys()
    assert serving.items() <= developing.items()
    assert not serving.keys() & {
        "mypy",
        "ruff",
        "pytest",
        "hypothesis",
        "openai",
        "anthropic",
        "coverage",
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_resolve(page: str) -> None:
    path = PROJECT / page
    assert broken_links(path, path.read_text(encoding="utf-8")) == []


def test_broken_link_and_broken_anchor_would_be_found() -> None:
    page = PROJECT / "docs" / "README.md"
    text = "# One title\n[a](no-such.md) [b](#one-title) [c](#two) [d](../README.md) [e](https://example.com)\n"
    assert broken_links(page, text) == ["no-such.md", "#two"]
    assert broken_links(page, "```\n[a](no-such.md)\n```\n") == []


def test_every_page_is_in_the_index() -> None:
    index = (PROJECT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in LINK.findall(index)}
    pages = {
        name.removeprefix("docs/") for name in PAGES if name.startswith("docs/") and name != "docs/README.md"
    }  # fmt: skip
    assert pages <= linked, sorted(pages - linked)


def test_changelog_begins_with_what_is_unreleased_in_four_sections() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert releases[0].startswith("Unreleased\n")
    for release in releases:
        titles = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert titles == CHANGELOG_SECTIONS


def test_changelog_entries_are_sentences() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- (.*?)(?=\n- |\n\n|\n#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert entries
    assert [entry for entry in entries if not entry.rstrip().endswith(".")] == []


@pytest.mark.parametrize("case", CASES)
def test_corpus_case_is_what_its_meta_says(case: str) -> None:
    folder = PROJECT / case
    meta = tomllib.loads((folder / "meta.toml").read_text(encoding="utf-8"))
    assert isinstance(meta["title"], str)
    assert isinstance(meta["origin"], str)
    contents = {path.name for path in folder.iterdir()}
    assert contents <= {"meta.toml", "stream.sse", "body.json", "request.json", "events.jsonl"}
    assert contents & {"stream.sse", "body.json", "request.json"}, "expected some wire bytes"
    for name in contents & {"body.json", "request.json"}:
        json.loads((folder / name).read_bytes())
    if "events.jsonl" in contents:
        lines = (folder / "events.jsonl").read_bytes().splitlines()
        assert lines
        assert all("event" in json.loads(line) for line in lines)
