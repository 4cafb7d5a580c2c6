"""The inspector's page: its files, and the same page as one HTML file that has its data inside.

The page is plain HTML, CSS and ES modules, served as they are. They contain no data: `/v1/inspect/…` has it, and decides who
may read it. An exported page requests nothing: it contains style, modules and data, and its policy has the hashes of the first two.

This module needs neither HTTP nor the gateway, so the command line uses it too.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.inspection.exchange_form import (
    AnswerReport,
    CallRow,
    ErrorReport,
    ExchangeReport,
    InputReport,
)
from dragoman.inspection.exchange_report import to_json

FOLDER = "inspector"
"""Where the page looks for its files; relative, so that a proxy may serve it below a prefix."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; {sources}; base-uri 'none'; form-action 'none'; "
    # Nothing may turn a string into markup or code, not even by mistake.
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_OWN_FILES = "script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'"
PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": _POLICY.format(sources=_OWN_FILES),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_NO_EXPORT = re.compile(r"^export \{\};$", re.MULTILINE)


class PageFile(Struct, frozen=True):
    content_type: str
    data: bytes


@cache
def docs_files() -> dict[str, PageFile]:
    """The pages of docs/dialects, which notes link to, by name. In a wheel they are beside this module, else in the checkout."""
    here = Path(__file__).parent
    folders = (here / "dialects", here.parents[3] / "docs" / "dialects")
    folder = next((each for each in folders if each.is_dir()), None)
    found = () if folder is None else folder.glob("*.md")
    return {each.name: PageFile("text/plain; charset=utf-8", each.read_bytes()) for each in found}


@cache
def page_files() -> dict[str, PageFile]:
    """Every file of the page, by name."""
    return {
        each.name: PageFile(_TYPES[suffix], each.read_bytes())
        for each in files(__name__).iterdir()
        if (suffix := f".{each.name.rpartition('.')[2]}") in _TYPES
    }


def without_contents(report: ExchangeReport) -> ExchangeReport:
    """The exchange without what people, models and tools wrote, and without headers and messages, which may quote it.

    Sizes, times, types of events, ids, names of models and tools, counts and the hashes of inputs stay.
    """
    summary, client = report.summary, report.client
    error = None if summary.error is None else ErrorReport(summary.error.kind, "")
    return structs.replace(
        report,
        summary=structs.replace(summary, error=error),
        client=structs.replace(client, headers=(), body="", answer=_without_texts(client.answer)),
        attempts=tuple(
            structs.replace(
                attempt,
                headers=(),
                body="",
                answer=None if attempt.answer is None else _without_texts(attempt.answer),
                error=None if attempt.error is None else "failed",
            )
            for attempt in report.attempts
        ),
        events=tuple(
            structs.replace(event, text=None, upstream_range=None, client_ranges=())
            for event in report.events
        ),
        calls=tuple(map(_without_inputs, report.calls)),
        notes=tuple(structs.replace(note, message="", field=None) for note in report.notes),
        change=None if report.change is None else structs.replace(report.change, lines=()),
    )


def _without_texts(answer: AnswerReport) -> AnswerReport:
    frames = tuple(structs.replace(frame, text="") for frame in answer.frames)
    return structs.replace(answer, headers=(), frames=frames)


def _without_inputs(call: CallRow) -> CallRow:
    def emptied(side: InputReport | None) -> InputReport | None:
        return None if side is None else structs.replace(side, text="")

    both = call.input
    return structs.replace(
        call,
        input=structs.replace(both, upstream=emptied(both.upstream), client=emptied(both.client)),
    )


def export_page(title: str, exchanges: Sequence[ExchangeReport]) -> bytes:
    """The page with these exchanges as one file that needs no network and requests nothing. `source.js` reads them."""
    style, script = page_files()["style.css"].data.decode(), _joined_modules("main.js")
    # In JSON, `<` occurs only in strings. Without it, no text can end its element or begin a comment.
    listed = b",".join(map(to_json, exchanges))
    data = b'{"title":%b,"exchanges":[%b]}' % (dumps(title), listed)
    island = data.decode().replace("<", "\\u003c")
    # A name may have half a character.
    shown = escape(title.encode("utf-8", "replace").decode())
    sources = f"script-src {_source(script)}; style-src {_source(style)}"
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(sources=sources)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{shown}</title>
<style>{style}</style>
<script type="application/json" id="exported">{island}</script>
<script type="module">{script}</script>
</head>
<body></body>
</html>
""".encode()


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _joined_modules(main: str) -> str:
    """The modules as one, each in a scope of its own: a page in a file cannot import others."""
    joined: dict[str, str] = {}

    def add(name: str) -> None:
        if name in joined:
            return
        source = page_files()[name].data.decode()
        for _, needed in _IMPORT.findall(source):
            add(needed)
        exported = ", ".join(found for _, found in _EXPORT.findall(source))
        body = _IMPORT.sub(lambda found: f"const {found[1]} = {_scope(found[2])};", source)
        body = _NO_EXPORT.sub("", _EXPORT.sub(r"\1", body))
        joined[name] = f"const {_scope(name)} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"

    add(main)
    return "\n".join(joined.values())


def _scope(name: str) -> str:
    return "module_" + name.removesuffix(".js")
