"""Prepare the pages of the documentation site, and check what was built: `scripts/docs` runs both.

    python scripts/docs_pages.py gather   copies docs/ to build/docs/pages and adds what the site has besides: pages of the API,
                                          and the files of the project that the pages link to
    python scripts/docs_pages.py check    reads build/docs/site as a browser would, and reports what is missing

Links that lead out of docs/ work in a repository browser, but a site holds docs/ alone. So each file that a page links to becomes a
page of the site below project/: Markdown as it is, anything else as highlighted text, a folder as the list of its files.

Only the standard library is used: the site generator has an environment of its own, without the project's packages.
"""

import ast
import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

PROJECT = Path(__file__).parents[1]
SETTINGS = PROJECT / "zensical.toml"
BUILD = PROJECT / "build" / "docs"
PAGES, SITE = BUILD / "pages", BUILD / "site"
API = "api/"
ADDED = "project"
"""The folder of the site with files from outside docs/."""

# A link or a picture of Markdown, or a picture of HTML, which has one for each colour scheme.
LINK = re.compile(r'(\]\(|\bsrc(?:set)?=")([^)"\s]+)(\)|")')
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".example": "sh"}
API_OPTIONS = """    options:
      heading_level: 2
      show_root_heading: false
      show_root_toc_entry: false
"""


Entry = str | list["Entry"] | dict[str, "Entry"]
"""Of a navigation: a page, a list of entries, or entries with their titles."""


def navigation(entry: Entry) -> Iterator[str]:
    """The pages that a navigation names, its sections included."""
    match entry:
        case str():
            yield entry
        case list():
            for each in entry:
                yield from navigation(each)
        case dict():
            for each in entry.values():
                yield from navigation(each)


def pages_of_navigation() -> list[str]:
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    return list(navigation(settings["project"]["nav"]))


def public_names(module: str) -> list[str]:
    """What a module exports by `__all__`, read without importing it."""
    place = PROJECT.joinpath("src", *module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case _:
                pass
    raise SystemExit(f"docs: expected __all__ in {path.relative_to(PROJECT)}, found none")


def api_modules() -> list[str]:
    """The modules that have a page: api/dragoman.agent.md is the page of dragoman.agent."""
    pages = (page for page in pages_of_navigation() if page.startswith(API))
    return [page.removeprefix(API).removesuffix(".md") for page in pages]


def api_page(module: str) -> str:
    return f"# `{module}`\n\n::: {module}\n{API_OPTIONS}"


# Gathering.


def page_of(path: Path) -> str:
    """Where the site has a file or folder of the project."""
    name = path.relative_to(PROJECT).as_posix()
    if path.is_relative_to(PROJECT / "docs"):
        return name.removeprefix("docs/") or "README.md"
    if path.is_dir():
        return f"{ADDED}/{name}/README.md"
    # Without a dot in front: the generator leaves hidden files out.
    return f"{ADDED}/{name}" if path.suffix == ".md" else f"{ADDED}/{name.lstrip('.')}.md"


def with_links(markdown: str, path: Path, page: str, linked: list[Path]) -> str:
    """The text of a page with its links changed to pages of the site; `linked` gets the files that they name."""

    def lead(found: re.Match[str]) -> str:
        target, hash_mark, anchor = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        goal = (path.parent / target).resolve()
        if not goal.is_relative_to(PROJECT) or not goal.exists():
            return found[0]  # left for the strict build to report
        linked.append(goal)
        place = posixpath.relpath(page_of(goal), posixpath.dirname(page) or ".")
        return f"{found[1]}{place}{hash_mark}{anchor}{found[3]}"

    pieces: list[str] = []
    at = 0
    for fence in FENCE.finditer(markdown):
        pieces += [LINK.sub(lead, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*pieces, LINK.sub(lead, markdown[at:])])


def added_page(path: Path) -> str:
    """A page for a file or folder that is no Markdown."""
    name = path.relative_to(PROJECT).as_posix()
    if path.is_dir():
        files = sorted(child.name for child in path.iterdir() if child.is_file())
        return f"# `{name}`\n\n" + "".join(f"- [{file}]({file})\n" for file in files)
    text = path.read_text(encoding="utf-8")
    return f"# `{name}`\n\n~~~~{LANGUAGES.get(path.suffix, 'text')}\n{text}~~~~\n"


def gather() -> None:
    """Write build/docs/pages again."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(PROJECT / "docs", PAGES)
    waiting = sorted((PROJECT / "docs").rglob("*.md"))
    written: set[Path] = set()
    while waiting:
        path = waiting.pop()
        inside = path.is_relative_to(PROJECT / "docs")
        if path in written or (inside and path.suffix != ".md"):
            continue
        written.add(path)
        page = page_of(path)
        text = path.read_text(encoding="utf-8") if path.suffix == ".md" else added_page(path)
        place = PAGES / page
        place.parent.mkdir(parents=True, exist_ok=True)
        # A folder's page lists what is in the folder: its links start there.
        base = path / "README.md" if path.is_dir() else path
        place.write_text(with_links(text, base, page, waiting), encoding="utf-8")
    (PAGES / API).mkdir(exist_ok=True)
    for module in api_modules():
        (PAGES / API / f"{module}.md").write_text(api_page(module), encoding="utf-8")
    if missing := [page for page in pages_of_navigation() if not (PAGES / page).is_file()]:
        raise SystemExit(
            f"docs: nav of {SETTINGS.name} names pages that are not there: {', '.join(missing)}"
        )


# Checking.


class Reader(HTMLParser):
    """The anchors and addresses of a page, which of the addresses a browser fetches by itself, and the names of the API with a text."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []
        self.fetched: list[str] = []
        self.described: set[str] = set()
        self._name = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        if "doc-heading" in attributes.get("class", ""):
            self._name = attributes.get("id", "")
        elif tag == "p" and "class" not in attributes:  # other paragraphs list base classes
            self.described.add(self._name)
        for name in ("href", "src", "srcset", "data", "poster", "action"):
            if address := attributes.get(name):
                self.addresses.append(address)
                if tag != "a" and attributes.get("rel") not in ("canonical", "license"):
                    self.fetched.append(address)


def read_site() -> dict[str, Reader]:
    """Every page of the site by its path."""
    readers: dict[str, Reader] = {}
    for path in sorted(SITE.rglob("*.html")):
        reader = readers[path.relative_to(SITE).as_posix()] = Reader()
        reader.feed(path.read_text(encoding="utf-8"))
    return readers


def broken_addresses(readers: dict[str, Reader]) -> Iterator[str]:
    for page, reader in readers.items():
        if page == "404.html":
            continue  # it is served at any depth, so its addresses are those of the server's root
        for address in reader.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            goal = posixpath.normpath(
                posixpath.join(posixpath.dirname(page), unquote(parts.path)) if parts.path else page
            )
            if (SITE / goal).is_dir():
                goal = posixpath.join(goal, "index.html").removeprefix("./")
            if not (SITE / goal).is_file():
                yield f"{page}: {address} leads nowhere"
            elif (
                goal in readers
                and parts.fragment
                and unquote(parts.fragment) not in readers[goal].anchors
            ):
                yield f"{page}: {address} names no heading of {goal}"


def outside_requests(readers: dict[str, Reader]) -> Iterator[str]:
    """What a browser would fetch from elsewhere: nobody but the site's own server should see who reads it."""
    for page, reader in readers.items():
        for address in reader.fetched:
            if urlsplit(address).netloc:
                yield f"{page}: fetches {address}"
    for path in sorted(SITE.rglob("*.css")):
        for address in re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text(encoding="utf-8")
        ):
            yield f"{path.relative_to(SITE)}: fetches {address}"


def missing_pages(readers: dict[str, Reader]) -> Iterator[str]:
    listed = set(pages_of_navigation())
    for path in sorted(PAGES.rglob("*.md")):
        page = path.relative_to(PAGES).as_posix()
        if page not in listed and not page.startswith(f"{ADDED}/"):
            yield f"{page}: not in nav of {SETTINGS.name}"
    for module in api_modules():
        page = f"{API}{module}.html"
        for name in public_names(module):
            if page not in readers or f"{module}.{name}" not in readers[page].described:
                yield f"{page}: {module}.{name} has no docstring"


def check() -> None:
    """Report everything that is wrong with the site that was built."""
    readers = read_site()
    if not readers:
        raise SystemExit(f"docs: expected pages in {SITE.relative_to(PROJECT)}, found none")
    problems = [
        *broken_addresses(readers),
        *outside_requests(readers),
        *missing_pages(readers),
    ]
    if problems:
        raise SystemExit("\n".join(f"docs: {problem}" for problem in problems))
    print(f"docs: {len(readers)} pages in {SITE.relative_to(PROJECT)}, every link leads somewhere")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gather"]:
            gather()
        case ["check"]:
            check()
        case other:
            raise SystemExit(f"docs: expected gather or check, got {' '.join(other) or 'nothing'}")
