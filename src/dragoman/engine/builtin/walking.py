"""The files below a folder of a root, in order, links not followed, `.git` and what `.gitignore` leaves out passed over.

Every folder is opened in the one above it, as in `rooted`. A walk ends after so many entries or when it is told to stop, and
says so; it never raises for what it meets on the way.
"""

import os
import stat
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress

from dragoman.engine.builtin.ignoring import Ignored, rules_of
from dragoman.engine.builtin.rooted import MAX_DEPTH, Found, Root
from dragoman.errors import ToolError

__all__ = ("MAX_VISITED", "Walk")

# Entries looked at in one walk, some seconds' work: a large repository has a tenth of it.
MAX_VISITED = 500_000
MAX_IGNORE_FILE = 262_144
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_Level = tuple[int, tuple[str, ...], Ignored | None, Iterator[str]]


class Walk:
    """One walk. `was_cut` says afterwards whether there was more."""

    def __init__(self, root: Root, stop: threading.Event, *, with_ignored: bool = False) -> None:
        self._root = root
        self._stop = stop
        self._with_ignored = with_ignored
        self._visited = 0
        self.was_cut = False

    def files(self, path: str) -> Generator[tuple[Found, os.stat_result]]:
        """Each plain file at or below a path, with its status, valid until the next is asked for.

        Raises:
            ToolError: the path is nowhere, or out of the root.
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

    def _below(self, top: int, names: tuple[str, ...]) -> Iterator[tuple[Found, os.stat_result]]:
        """A stack of open folders rather than recursion; closed however the walk ends."""
        with ExitStack() as whole:
            levels: list[_Level] = []

            def enter(folder: int, names: tuple[str, ...], above: Ignored | None) -> None:
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
                found = Found(folder, (*names, name))
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

    def _is_left_out(self, found: Found, status: os.stat_result, ignored: Ignored | None) -> bool:
        is_folder = stat.S_ISDIR(status.st_mode)
        if found.name == ".git":
            return True
        return ignored is not None and ignored.leaves_out(found.names, is_folder=is_folder)

    def _rules(self, folder: int, names: tuple[str, ...], above: Ignored | None) -> Ignored | None:
        found = Found(folder, (*names, ".gitignore"))
        status = _status(found)
        if status is None or not stat.S_ISREG(status.st_mode):
            return above
        try:
            data, _ = self._root.read_found(found, found.path, MAX_IGNORE_FILE)
        except (OSError, ToolError):
            return above
        return rules_of(data.decode("utf-8", "replace"), len(names), above)


def _close_all(levels: list[_Level]) -> None:
    for level in levels:
        os.close(level[0])


def _entries(folder: int) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _status(found: Found) -> os.stat_result | None:
    try:
        return found.status()
    except OSError:
        return None
