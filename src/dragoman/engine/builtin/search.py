"""`glob`: the files whose paths match a pattern. `grep`: the lines of files that match a regular expression.

Python cannot interrupt a match of a regular expression, so `grep` matches in a process, which it can end: `_grep_worker`.
"""

import os
import re
import select
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Annotated, Literal, Self, cast

from msgspec import Struct

from dragoman.engine.builtin.files import FileTool, file_tool, is_binary
from dragoman.engine.builtin.root import FOLDER_FLAGS, MAX_DEPTH, Location, Root
from dragoman.engine.globs import PathGlob, path_glob
from dragoman.engine.tools import Output, text_output
from dragoman.errors import ToolError

MAX_IGNORE_LINES = 5_000


class _IgnoreRule(Struct, frozen=True):
    glob: PathGlob
    is_folder: bool
    is_kept: bool


class IgnoreRules(Struct, frozen=True):
    """The rules of one folder and of the folders above. `depth`: how many folders below the root the folder is.

    The rules are git's, with two differences: tracked files are excluded too if a rule matches them, and only `.gitignore`
    is read, not the user's own excludes.
    """

    rules: tuple[_IgnoreRule, ...] = ()
    depth: int = 0
    above: "IgnoreRules | None" = None

    def excludes(self, names: Sequence[str], *, is_folder: bool) -> bool:
        """Whether a path (its names from the root) is excluded. The last matching rule counts, deeper files first."""
        here: IgnoreRules | None = self
        while here is not None:
            path = "/".join(names[here.depth :])
            for rule in reversed(here.rules):
                if (is_folder or not rule.is_folder) and rule.glob.matches(path):
                    return not rule.is_kept
            here = here.above
        return False


def read_ignore_rules(text: str, depth: int, above: IgnoreRules | None) -> IgnoreRules:
    """Read the `.gitignore` of a folder that is `depth` folders below the root."""
    rules = [_ignore_rule(line) for line in text.splitlines()[:MAX_IGNORE_LINES]]
    return IgnoreRules(tuple(rule for rule in rules if rule is not None), depth, above)


def _ignore_rule(line: str) -> _IgnoreRule | None:
    pattern = line.rstrip() if not line.endswith("\\ ") else line.rstrip("\n")
    if not pattern or pattern.startswith("#"):
        return None
    is_kept = pattern.startswith("!")
    pattern = pattern[1:] if is_kept else pattern
    is_folder = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    # A pattern with a slash before its end applies to this folder, any other to all folders below.
    anchored = pattern.lstrip("/") if "/" in pattern else f"**/{pattern}"
    # Braces are literal in git.
    literal = anchored.replace("{", "\\{").replace("}", "\\}")
    try:
        return _IgnoreRule(path_glob(literal), is_folder, is_kept) if pattern.strip("/") else None
    except ValueError:
        return None


# Entries of one walk, which take some seconds: a large repository has a tenth of this.
MAX_VISITED = 500_000
MAX_IGNORE_FILE = 262_144

_Level = tuple[int, tuple[str, ...], IgnoreRules | None, Iterator[str]]


class Walk:
    """A walk over the files below a folder, in order. It follows no links, and skips `.git` and what `.gitignore` excludes.

    Every folder is opened in the one above it, as in `root`. A walk ends after `MAX_VISITED` entries or when it is stopped;
    `was_cut` is then true. Files and folders that cannot be read are skipped.
    """

    def __init__(self, root: Root, stop: threading.Event, *, with_ignored: bool = False) -> None:
        self._root = root
        self._stop = stop
        self._with_ignored = with_ignored
        self._visited = 0
        self.was_cut = False

    def files(self, path: str) -> Generator[tuple[Location, os.stat_result]]:
        """Each plain file at or below a path, with its status. A location is valid until the next one is requested.

        Raises:
            ToolError: the path does not exist, or is outside the root.
        """
        with self._root.located(path) as start:
            status = start.status()
            if status is None:
                raise ToolError(f"{path} does not exist")
            if stat.S_ISREG(status.st_mode):
                yield start, status
            elif stat.S_ISDIR(status.st_mode):
                opened = os.open(start.name, FOLDER_FLAGS, dir_fd=start.folder)
                yield from self._below(opened, start.names)
            else:
                raise ToolError(f"{path} is neither a file nor a folder")

    def _below(self, top: int, names: tuple[str, ...]) -> Iterator[tuple[Location, os.stat_result]]:
        """Walk with a stack of open folders instead of recursion; the folders are closed however the walk ends."""
        levels: list[_Level] = []

        def enter(folder: int, names: tuple[str, ...], above: IgnoreRules | None) -> None:
            ignored = above if self._with_ignored else self._rules(folder, names, above)
            levels.append((folder, names, ignored, iter(_entries(folder))))

        try:
            enter(top, names, None)
            while levels:
                folder, names, ignored, entries = levels[-1]
                name = next(entries, None)
                if name is None:
                    os.close(levels.pop()[0])
                    continue
                if self._is_over():
                    return
                found = Location(folder, (*names, name))
                status = _status(found)
                if status is None or self._is_left_out(found, status, ignored):
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield found, status
                elif stat.S_ISDIR(status.st_mode) and len(found.names) < MAX_DEPTH:
                    with suppress(OSError):
                        enter(os.open(name, FOLDER_FLAGS, dir_fd=folder), found.names, ignored)
        finally:
            for folder, *_ in levels:
                os.close(folder)

    def _is_over(self) -> bool:
        self._visited += 1
        if self._stop.is_set() or self._visited > MAX_VISITED:
            self.was_cut = True
        return self.was_cut

    def _is_left_out(
        self, found: Location, status: os.stat_result, ignored: IgnoreRules | None
    ) -> bool:
        is_folder = stat.S_ISDIR(status.st_mode)
        is_ignored = ignored is not None and ignored.excludes(found.names, is_folder=is_folder)
        return found.name == ".git" or is_ignored

    def _rules(
        self, folder: int, names: tuple[str, ...], above: IgnoreRules | None
    ) -> IgnoreRules | None:
        found = Location(folder, (*names, ".gitignore"))
        status = _status(found)
        if status is None or not stat.S_ISREG(status.st_mode):
            return above
        try:
            data, _ = self._root.read_found(found, found.path, MAX_IGNORE_FILE)
        except (OSError, ToolError):
            return above
        return read_ignore_rules(data.decode("utf-8", "replace"), len(names), above)


def _entries(folder: int) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _status(found: Location) -> os.stat_result | None:
    try:
        return found.status()
    except OSError:
        return None


MAX_PATTERN = 1_000
# Characters of one line that are searched.
MAX_SEARCHED_LINE = 20_000
# Matching lines of one file.
MAX_PER_FILE = 1_000
# How often a stop is noticed.
_LOOK_SECONDS = 0.05
_PROGRAM = Path(__file__).with_name("_grep_worker.py")


class Matcher:
    """A process that matches lines while the context is open. It belongs to one thread.

    Raises:
        ToolError: the pattern is not a regular expression.
    """

    def __init__(
        self, pattern: str, stop: threading.Event, *, seconds: float, ignore_case: bool = False
    ) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        if not pattern or len(pattern) > MAX_PATTERN:
            raise ToolError(
                f"expected a pattern of 1 to {MAX_PATTERN} characters, got {len(pattern)}"
            )
        try:
            re.compile(pattern, flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(
                f"expected a regular expression, got {pattern[:200]!r}: {error}"
            ) from error
        self._process = subprocess.Popen(  # noqa: S603 -- our own program; what it is asked is data
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={},
            cwd="/",
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        numbers = " ".join(str(ord(char)) for char in pattern)
        self._waiting = f"{int(flags)} {MAX_PER_FILE} {MAX_SEARCHED_LINE}\n{numbers}\n".encode(
            "ascii"
        )
        self._came = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):  # the process may not have read everything
            self._input.close()
        self._output.close()

    def lines(self, texts: Sequence[bytes]) -> list[list[int]]:
        """The numbers of the matching lines of each text, from 1.

        Raises:
            ToolError: the search takes too long, or was stopped.
        """
        sizes = " ".join(str(len(text)) for text in texts)
        self._send(b"".join((self._waiting, f"{sizes}\n".encode("ascii"), *texts)))
        self._waiting = b""
        return [[int(number) for number in self._line().split()] for _ in texts]

    def _send(self, data: bytes) -> None:
        try:
            self._input.write(data)
            self._input.flush()
        except BrokenPipeError as error:
            raise ToolError("the search ended early: the pattern needs too much memory") from error

    def _line(self) -> bytes:
        while b"\n" not in self._came:
            self._wait()
            data = os.read(self._output.fileno(), 65_536)
            if not data:
                raise ToolError("the search ended early: the pattern needs too much memory")
            self._came += data
        line, _, self._came = self._came.partition(b"\n")
        return line

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        while not poll.poll(_LOOK_SECONDS * 1000):
            if self._stop.is_set():
                raise ToolError("the search was stopped")
            if time.monotonic() > self._deadline:
                raise ToolError(
                    f"the search took more than {self._seconds:g} s: use a simpler pattern, or name a folder"
                )


# A longer list means that the pattern is too broad.
MAX_RESULTS = 500
MAX_SHOWN = 60_000

GLOB_DESCRIPTION = (
    "Find files by a pattern such as **/*.py or src/{a,b}/*.json. A pattern without a slash matches in every "
    "folder. Skips .git and what .gitignore excludes."
)


class GlobArguments(Struct, forbid_unknown_fields=True):
    pattern: Annotated[str, "The pattern, relative to `path`"]
    path: Annotated[str, "The folder to look in"] = "."
    ignored: Annotated[bool, "Include what .gitignore excludes"] = False


def glob_tool(root: Root) -> FileTool[GlobArguments]:
    """The tool `glob` below a root."""
    return file_tool(
        root, "glob", GLOB_DESCRIPTION, GlobArguments, _glob, lambda arguments: [arguments.path]
    )


def _pattern_below(root: Root, pattern: str) -> PathGlob:
    """A pattern for paths below a folder; a pattern without a slash matches in every folder."""
    text = pattern.removeprefix(f"{root.path}/")
    if text.startswith("/") or ".." in text.split("/"):
        raise ToolError(
            f"expected a pattern for paths below the working folder, got {pattern[:200]!r}"
        )
    try:
        return path_glob(text if "/" in text else f"**/{text}")
    except ValueError as error:
        raise ToolError(str(error)) from error


def _glob(root: Root, arguments: GlobArguments, stop: threading.Event) -> Output:
    if not arguments.pattern:
        raise ToolError("expected a pattern such as **/*.py, got nothing")
    glob = _pattern_below(root, arguments.pattern)
    walk = Walk(root, stop, with_ignored=arguments.ignored)
    base = root.resolved(arguments.path)
    depth = 0 if base == "." else base.count("/") + 1
    found: list[str] = []
    size = 0
    with closing(walk.files(arguments.path)) as files:
        for file, _ in files:
            if glob.matches("/".join(file.names[depth:]) or file.name):
                found.append(file.path)
                size += len(file.path) + 1
                if len(found) >= MAX_RESULTS or size > MAX_SHOWN:
                    found.append("(and perhaps more; narrow the pattern)")
                    break
    if walk.was_cut:
        found.append("(not everything was searched; name a folder)")
    return text_output("\n".join(found) or f"no file matches {arguments.pattern}")


# Characters of one line.
MAX_SHOWN_LINE = 500
MAX_CONTEXT = 20
# Larger files are logs and data, for which the model can use the shell.
MAX_FILE = 4_194_304
# Files that are sent to the process together: each exchange costs as much as matching some ten kilobytes.
BATCH_BYTES = 524_288
BATCH_FILES = 200
SECONDS = 30.0

GREP_DESCRIPTION = (
    "Search files for a regular expression (Python's), line by line. Skips .git, binary files and what .gitignore "
    "excludes. `mode`: lines with their numbers, only the files, or the number of lines in each."
)

_Batch = list[tuple[str, bytes]]


class GrepArguments(Struct, forbid_unknown_fields=True):
    pattern: Annotated[str, "The regular expression"]
    path: Annotated[str, "The file or folder to look in"] = "."
    glob: Annotated[str | None, "Only files that match this pattern, such as *.py"] = None
    ignore_case: Annotated[bool, "Ignore the difference between upper and lower case"] = False
    context: Annotated[int, "Lines to show before and after each"] = 0
    mode: Annotated[Literal["lines", "files", "count"], "What to show"] = "lines"
    ignored: Annotated[bool, "Include what .gitignore excludes"] = False


def grep_tool(
    root: Root, may_read: Callable[[str], bool] = lambda _: True
) -> FileTool[GrepArguments]:
    """The tool `grep` below a root. Files for which `may_read` is false are skipped."""

    def work(root: Root, arguments: GrepArguments, stop: threading.Event) -> Output:
        return _Search(root, arguments, may_read).run(stop)

    return file_tool(
        root, "grep", GREP_DESCRIPTION, GrepArguments, work, lambda arguments: [arguments.path]
    )


class _Search:
    """One search: it sends files to the matcher in batches, and turns the matches into lines of output."""

    def __init__(
        self, root: Root, arguments: GrepArguments, may_read: Callable[[str], bool]
    ) -> None:
        if not 0 <= arguments.context <= MAX_CONTEXT:
            raise ToolError(f"expected context to be 0 to {MAX_CONTEXT}, got {arguments.context}")
        self._root = root
        self._arguments = arguments
        self._may_read = may_read
        self._glob = _pattern_below(root, arguments.glob) if arguments.glob else None
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
            self._shown.append("(not everything was searched; name a folder)")
        if self._large:
            self._shown.append(f"({self._large} files larger than {MAX_FILE:,} bytes were skipped)")
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

    def _data(self, file: Location, status: os.stat_result) -> bytes | None:
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
                cut = text if len(text) <= MAX_SHOWN_LINE else f"{text[:MAX_SHOWN_LINE]}…"
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
