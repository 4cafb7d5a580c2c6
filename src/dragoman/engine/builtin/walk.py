"""The files below a folder of a root, in order, without following links, without `.git` and what `.gitignore` excludes.

Every folder is opened in the one above it, as in `root`. A walk ends after a number of entries or when it is stopped, and
`was_cut` says so; what it meets on the way never makes it raise.

The rules of `.gitignore` are git's but for two: tracked files that a rule excludes are excluded, and only `.gitignore` is
read, not the user's own excludes.
"""

import os
import stat
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, suppress

from msgspec import Struct

from dragoman.engine.builtin.root import MAX_DEPTH, Location, Root
from dragoman.engine.globs import PathGlob, path_glob
from dragoman.errors import ToolError

MAX_LINES = 5_000


class _Rule(Struct, frozen=True):
    glob: PathGlob
    is_folder: bool
    is_kept: bool


class IgnoreRules(Struct, frozen=True):
    """The rules of one folder and of those above it. `depth` is the number of folders between the root and this one."""

    rules: tuple[_Rule, ...] = ()
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
    rules = [_rule(line) for line in text.splitlines()[:MAX_LINES]]
    return IgnoreRules(tuple(rule for rule in rules if rule is not None), depth, above)


def _rule(line: str) -> _Rule | None:
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
        return _Rule(path_glob(literal), is_folder, is_kept) if pattern.strip("/") else None
    except ValueError:
        return None


# Entries of one walk, which take some seconds: a large repository has a tenth of this.
MAX_VISITED = 500_000
MAX_IGNORE_FILE = 262_144
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_Level = tuple[int, tuple[str, ...], IgnoreRules | None, Iterator[str]]


class Walk:
    """One walk. Afterwards `was_cut` says whether it ended early."""

    def __init__(self, root: Root, stop: threading.Event, *, with_ignored: bool = False) -> None:
        self._root = root
        self._stop = stop
        self._with_ignored = with_ignored
        self._visited = 0
        self.was_cut = False

    def files(self, path: str) -> Generator[tuple[Location, os.stat_result]]:
        """Each plain file at or below a path, with its status. Valid until the next one is requested.

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
                opened = os.open(start.name, _FOLDER, dir_fd=start.folder)
                yield from self._below(opened, start.names)
            else:
                raise ToolError(f"{path} is neither a file nor a folder")

    def _below(self, top: int, names: tuple[str, ...]) -> Iterator[tuple[Location, os.stat_result]]:
        """Walk with a stack of open folders instead of recursion; they are closed however the walk ends."""
        with ExitStack() as whole:
            levels: list[_Level] = []

            def enter(folder: int, names: tuple[str, ...], above: IgnoreRules | None) -> None:
                ignored = above if self._with_ignored else self._rules(folder, names, above)
                levels.append((folder, names, ignored, iter(_entries(folder))))

            whole.callback(_close_all, levels)
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
                        enter(os.open(name, _FOLDER, dir_fd=folder), found.names, ignored)

    def _is_over(self) -> bool:
        self._visited += 1
        if self._stop.is_set() or self._visited > MAX_VISITED:
            self.was_cut = True
        return self.was_cut

    def _is_left_out(
        self, found: Location, status: os.stat_result, ignored: IgnoreRules | None
    ) -> bool:
        is_folder = stat.S_ISDIR(status.st_mode)
        if found.name == ".git":
            return True
        return ignored is not None and ignored.excludes(found.names, is_folder=is_folder)

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


def _close_all(levels: list[_Level]) -> None:
    for level in levels:
        os.close(level[0])


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
