"""`grep`: lines of files that match a regular expression."""

import os
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Annotated, Literal

from msgspec import Struct

from dragoman.engine.builtin.glob import pattern_below
from dragoman.engine.builtin.matcher import Matcher
from dragoman.engine.builtin.paths import path_subjects
from dragoman.engine.builtin.rooted import Found, Root
from dragoman.engine.builtin.texts import is_binary
from dragoman.engine.builtin.tooling import BuiltinTool, Spec
from dragoman.engine.builtin.walking import Walk
from dragoman.engine.tools import Output, text_output
from dragoman.errors import ToolError

__all__ = ("GrepArguments", "grep_tool")

MAX_RESULTS = 500
MAX_SHOWN = 60_000
# Of one line.
MAX_LINE = 500
MAX_CONTEXT = 20
# Larger files are logs and data; the shell is for those.
MAX_FILE = 4_194_304
# Texts that go to the process together: each trip costs as much as matching some ten kilobytes.
BATCH_BYTES = 524_288
BATCH_FILES = 200
SECONDS = 30.0

DESCRIPTION = (
    "Search files for a regular expression (Python's), line by line. .git, binary files and what .gitignore leaves out are "
    "passed over. `mode`: lines with their numbers, only the files, or how many lines in each."
)

_Batch = list[tuple[str, bytes]]


class GrepArguments(Struct, forbid_unknown_fields=True):
    pattern: Annotated[str, "The regular expression"]
    path: Annotated[str, "The file or folder to look in"] = "."
    glob: Annotated[str | None, "Only files that match this pattern, such as *.py"] = None
    ignore_case: Annotated[bool, "Take upper and lower case for the same"] = False
    context: Annotated[int, "Lines to show before and after each"] = 0
    mode: Annotated[Literal["lines", "files", "count"], "What to show"] = "lines"
    ignored: Annotated[bool, "Also what .gitignore leaves out"] = False


def grep_tool(
    root: Root, may_read: Callable[[str], bool] = lambda _: True
) -> BuiltinTool[GrepArguments]:
    """The tool `grep` below a root. Files that `may_read` says no to are passed over."""

    def work(arguments: GrepArguments, stop: threading.Event) -> Output:
        return _Search(root, arguments, may_read).run(stop)

    return BuiltinTool(
        Spec(
            name="grep",
            description=DESCRIPTION,
            arguments=GrepArguments,
            work=work,
            subjects=lambda arguments: path_subjects(root, [arguments.path]),
            is_parallel=True,
        )
    )


class _Search:
    """One search: files in batches to the matcher, what it finds into lines to be shown."""

    def __init__(
        self, root: Root, arguments: GrepArguments, may_read: Callable[[str], bool]
    ) -> None:
        if not 0 <= arguments.context <= MAX_CONTEXT:
            raise ToolError(f"expected context to be 0 to {MAX_CONTEXT}, got {arguments.context}")
        self._root = root
        self._arguments = arguments
        self._may_read = may_read
        self._glob = pattern_below(root, arguments.glob) if arguments.glob else None
        self._shown: list[str] = []
        self._size = 0
        self._large = 0

    def run(self, stop: threading.Event) -> Output:
        arguments = self._arguments
        walk = Walk(self._root, stop, with_ignored=arguments.ignored)
        with (
            Matcher(
                arguments.pattern, stop, seconds=SECONDS, ignore_case=arguments.ignore_case
            ) as matcher,
            closing(self._batches(walk)) as batches,
        ):
            self._match(matcher, batches)
        if walk.was_cut:
            self._shown.append("(not everything was looked at; name a folder)")
        if self._large:
            self._shown.append(
                f"({self._large} files larger than {MAX_FILE:,} bytes were passed over)"
            )
        return text_output("\n".join(self._shown) or f"no line matches {arguments.pattern}")

    def _match(self, matcher: Matcher, batches: Iterable[_Batch]) -> None:
        for batch in batches:
            answers = matcher.lines([data for _, data in batch])
            for (path, data), found in zip(batch, answers, strict=True):
                if found:
                    self._show(path, data, found)
            if self._is_full():
                self._shown.append("(and perhaps more; narrow the search)")
                return

    def _batches(self, walk: Walk) -> Generator[_Batch]:
        batch: _Batch = []
        size = 0
        with closing(walk.files(self._arguments.path)) as files:
            for file, status in files:
                data = self._data(file, status)
                if data is None:
                    continue
                batch.append((file.path, data))
                size += len(data)
                if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _data(self, file: Found, status: os.stat_result) -> bytes | None:
        if self._glob is not None and not self._glob.matches(file.path):
            return None
        if not self._may_read(file.path):
            return None
        if status.st_size > MAX_FILE:
            self._large += 1
            return None
        try:
            data, _ = self._root.read_found(file, file.path, MAX_FILE)
        except (ToolError, OSError):
            return None
        return None if not data or is_binary(data) else data

    def _show(self, path: str, data: bytes, found: list[int]) -> None:
        match self._arguments.mode:
            case "files":
                self._add(path)
            case "count":
                self._add(f"{path}:{len(found)}")
            case "lines":
                text = data.decode("utf-8", "replace").removesuffix("\n")
                self._show_lines(path, text.split("\n"), found)

    def _show_lines(self, path: str, lines: list[str], found: list[int]) -> None:
        around = self._arguments.context
        matching = frozenset(found)
        last = 0
        for number in found:
            first = max(last + 1, number - around)
            if around and last and first > last + 1:
                self._add("--")
            for at in range(first, min(number + around, len(lines)) + 1):
                sign = ":" if at in matching else "-"
                text = lines[at - 1].removesuffix("\r")
                cut = text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"
                self._add(f"{path}{sign}{at}{sign}{cut}")
                last = at
            if self._is_full():
                return

    def _add(self, line: str) -> None:
        if not self._is_full():
            self._shown.append(line)
            self._size += len(line) + 1

    def _is_full(self) -> bool:
        return len(self._shown) >= MAX_RESULTS or self._size > MAX_SHOWN
