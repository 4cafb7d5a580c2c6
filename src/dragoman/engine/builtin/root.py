"""Files below one folder, and no others: the only module through which the tools touch the file system.

A path is walked name by name. Each name is opened in the folder before it and never through a link (`openat` with
`O_NOFOLLOW`), so the file that was checked is the file that is used: a link that is swapped in has no effect. A link is read and
its target walked by the same rules, from the folder of the link. A link that leads out of the root is refused, and so are
devices, pipes and sockets.

Writing is atomic: a new file replaces the old one and keeps its permissions. All sizes have limits.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragoman.errors import ConfigError, ToolError

# The largest file that a tool reads or writes: larger than any source file, small enough to be in memory several times.
MAX_FILE = 16_777_216
# The kernel's limit.
MAX_LINKS = 40
MAX_PATH = 4_096
# Folders below folders; deeper trees exist only to break programs.
MAX_DEPTH = 128
_READ_PIECE = 1_048_576

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe or a terminal must neither wait nor take it over.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Location:
    """The place that a path leads to: an open folder, and a name in it that need not exist. `names` is the path without links."""

    __slots__ = ("folder", "name", "names")

    def __init__(self, folder: int, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.names = names
        self.name = names[-1] if names else "."

    @property
    def path(self) -> str:
        return "/".join(self.names) or "."

    def status(self) -> os.stat_result | None:
        """The status of the file; None if it does not exist. The path was resolved, so the file is not a link."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


class Root:
    """A folder, and access to the files below it.

    Raises:
        ConfigError: there is no such folder.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve(strict=True)
            status = self.path.stat()
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"expected the root {path} to be a folder: {error}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"expected the root {path} to be a folder")
        self._identity = (status.st_dev, status.st_ino)
        # An absolute path may begin with the root as the operator wrote it, or with the resolved root.
        self._spellings = tuple(dict.fromkeys((str(self.path), str(path.absolute()))))

    def names(self, path: str) -> list[str]:
        """The names of a path, relative to the root; `..` is still among them.

        Raises:
            ToolError: the text cannot be a path, or is an absolute path outside the root.
        """
        if not path or "\0" in path:
            raise ToolError(f"expected a path, got {path[:60]!r}")
        try:
            length = len(os.fsencode(path))
        except UnicodeEncodeError as error:
            raise ToolError(f"expected a path, got {path[:60]!r}") from error
        if length > MAX_PATH:
            raise ToolError(f"expected a path of at most {MAX_PATH} bytes, got {length}")
        if path.startswith("/"):
            for spelling in self._spellings:
                start = spelling.rstrip("/")
                if path == start or path.startswith(f"{start}/"):
                    return _split(path[len(start) :])
            raise ToolError(f"{path} is outside of {self.path}; only files below it can be used")
        return _split(path)

    @contextmanager
    def located(
        self,
        path: str,
        *,
        make_folders: bool = False,
        follow: bool = True,
        may_miss: bool = False,
    ) -> Generator[Location]:
        """The place that a path leads to; all folders on the way stay open in the context.

        follow: also follow a link at the end. may_miss: from the first missing folder on, names are taken as written.

        Raises:
            ToolError: the path does not exist, or leads out of the root.
        """
        walk = _PathWalk(self, path, make_folders=make_folders)
        try:
            yield walk.run(self.names(path), follow=follow, may_miss=may_miss)
        except OSError as error:
            raise ToolError(f"{path}: {_reason(error)}") from error
        finally:
            walk.close()

    def open_root(self) -> int:
        """Open the root, which must still be the same folder."""
        opened = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(opened)
        if (status.st_dev, status.st_ino) != self._identity:
            os.close(opened)
            raise ToolError(f"{self.path} is no longer the folder that it was at the start")
        return opened

    def written(self, path: str) -> str:
        """The path as it is written, relative to the root, without resolving links.

        Raises:
            ToolError: the path leads out of the root.
        """
        return "/".join(_lexical(self.names(path), path)) or "."

    def resolved(self, path: str) -> str:
        """The path with links resolved, relative to the root; a part that does not exist yet stays as it is written.

        Raises:
            ToolError: the path leads out of the root.
        """
        with self.located(path, may_miss=True) as found:
            return found.path

    def status(self, path: str) -> os.stat_result | None:
        """The status of the file at a path; None if there is no file.

        Raises:
            ToolError: the path leads out of the root.
        """
        try:
            with self.located(path) as found:
                return found.status()
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def read(self, path: str, limit: int = MAX_FILE) -> tuple[bytes, os.stat_result]:
        """A file's whole content.

        Raises:
            ToolError: the file does not exist, is not a plain file, or is larger than the limit.
        """
        with self.located(path) as found:
            return self.read_found(found, path, limit)

    def read_found(
        self, found: Location, path: str, limit: int = MAX_FILE
    ) -> tuple[bytes, os.stat_result]:
        """Read a file that was located."""
        with _opened_file(found, path) as opened:
            status = os.fstat(opened)
            if status.st_size > limit:
                raise ToolError(f"{path} has {status.st_size:,} bytes; expected at most {limit:,}")
            pieces: list[bytes] = []
            size = 0
            # Kernel files report size 0, and a file may grow while it is read: the limit applies to the bytes that were read.
            while piece := os.read(opened, _READ_PIECE):
                size += len(piece)
                if size > limit:
                    raise ToolError(f"{path} has more than {limit:,} bytes")
                pieces.append(piece)
            return b"".join(pieces), status

    def write(
        self,
        path: str,
        data: bytes,
        *,
        expected: os.stat_result | None = None,
        like: os.stat_result | None = None,
    ) -> bool:
        """Write a file completely or not at all, and create missing folders. Returns whether the file existed before.

        `expected` is the status of the file that the data was made from: a file that has changed since is not overwritten.
        `like` is the status of the file whose permissions a new file gets.

        Raises:
            ToolError: the file cannot be written; the old file is unchanged.
        """
        if len(data) > MAX_FILE:
            raise ToolError(f"{path}: expected at most {MAX_FILE:,} bytes, got {len(data):,}")
        with self.located(path, make_folders=True) as found:
            before = _writable(found, path)
            if expected is not None and not _is_same(before, expected):
                raise ToolError(f"{path} has changed since it was read; read it again")
            _replace(found, data, before or like)
            return before is not None

    def delete(self, path: str) -> None:
        """Delete a file. A link is deleted itself, not its target.

        Raises:
            ToolError: the file does not exist, or is a folder.
        """
        with self.located(path, follow=False) as found:
            status = found.status()
            if status is None:
                raise ToolError(f"{path} does not exist")
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{path} is a folder; only files can be deleted")
            os.unlink(found.name, dir_fd=found.folder)


class _PathWalk:
    """The walk along one path. `_trail` holds the open folders from the root on, so that `..` opens nothing."""

    def __init__(self, root: Root, path: str, *, make_folders: bool) -> None:
        self._root = root
        self._path = path
        self._make_folders = make_folders
        self._trail: list[tuple[str, int]] = []
        self._links = 0
        self._top = root.open_root()

    def close(self) -> None:
        self._leave(len(self._trail))
        os.close(self._top)

    def run(self, names: list[str], *, follow: bool, may_miss: bool) -> Location:
        """The place that the names lead to."""
        waiting = list(reversed(names))
        while waiting:
            name = waiting.pop()
            if name == "..":
                if not self._trail:
                    raise ToolError(f"{self._path} leads out of {self._root.path}")
                self._leave(1)
                continue
            is_last = not waiting
            target = self._link(name) if follow or not is_last else None
            if target is not None:
                waiting.extend(reversed(self._names_of(target)))
            elif is_last:
                return Location(self._here(), (*(step for step, _ in self._trail), name))
            elif may_miss and not self._exists(name):
                rest = _lexical([name, *reversed(waiting)], self._path)
                return Location(self._here(), (*(step for step, _ in self._trail), *rest))
            else:
                self._enter(name)
        return self._current()

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._here(), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _current(self) -> Location:
        """The place of a path that ends in a folder that was entered: the root, or after `..` or a link."""
        if not self._trail:
            return Location(self._top, ())
        names = tuple(step for step, _ in self._trail)
        above = self._trail[-2][1] if len(self._trail) > 1 else self._top
        return Location(above, names)

    def _here(self) -> int:
        return self._trail[-1][1] if self._trail else self._top

    def _link(self, name: str) -> str | None:
        """The target of a link; None if the name is not a link."""
        try:
            return os.readlink(name, dir_fd=self._here())
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _names_of(self, target: str) -> list[str]:
        self._links += 1
        if self._links > MAX_LINKS:
            raise ToolError(f"{self._path} leads through more than {MAX_LINKS} links")
        if not target.startswith("/"):
            return _split(target)
        try:
            names = self._root.names(target)
        except ToolError as error:
            raise ToolError(f"{self._path} leads out of {self._root.path} by a link") from error
        self._leave(len(self._trail))
        return names

    def _enter(self, name: str) -> None:
        if len(self._trail) >= MAX_DEPTH:
            raise ToolError(f"{self._path} is more than {MAX_DEPTH} folders deep")
        here = self._here()
        if self._make_folders:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
        self._trail.append((name, os.open(name, FOLDER_FLAGS, dir_fd=here)))

    def _leave(self, count: int) -> None:
        """Close the innermost folders: a path may enter and leave thousands."""
        for _ in range(count):
            os.close(self._trail.pop()[1])


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _lexical(names: list[str], path: str) -> list[str]:
    out: list[str] = []
    for name in names:
        if name != "..":
            out.append(name)
        elif out:
            out.pop()
        else:
            raise ToolError(f"{path} leads out of the root")
    return out


@contextmanager
def _opened_file(found: Location, path: str) -> Generator[int]:
    status = found.status()
    if status is None:
        raise ToolError(f"{path} does not exist")
    _refuse_unplain(status, path)
    opened = os.open(found.name, _FILE, dir_fd=found.folder)
    try:
        # Check the file that was opened: it may have replaced the one that was checked before.
        _refuse_unplain(os.fstat(opened), path)
        yield opened
    finally:
        os.close(opened)


def _refuse_unplain(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((word for test, word in _KINDS if test(status.st_mode)), "no file")
        raise ToolError(f"{path} is {kind}, expected a file")


def _writable(found: Location, path: str) -> os.stat_result | None:
    if not found.names:
        raise ToolError(f"{path} is a folder, expected a file")
    before = found.status()
    if before is not None:
        _refuse_unplain(before, path)
        if not os.access(found.name, os.W_OK, dir_fd=found.folder):
            raise ToolError(f"{path} is read-only")
    return before


def _is_same(one: os.stat_result | None, other: os.stat_result) -> bool:
    return one is not None and (one.st_ino, one.st_dev, one.st_size, one.st_mtime_ns) == (
        other.st_ino, other.st_dev, other.st_size, other.st_mtime_ns,
    )  # fmt: skip


def _replace(found: Location, data: bytes, like: os.stat_result | None) -> None:
    # A random name: the file's own name may already have the greatest length that the file system allows.
    temporary = f".dragoman-{secrets.token_hex(8)}.tmp"
    # The umask applies to a new file as usual.
    opened = os.open(temporary, _NEW, 0o666 if like is None else 0o600, dir_fd=found.folder)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(opened, view) :]
            if like is not None:
                _keep_permissions(opened, like)
        finally:
            os.close(opened)
        os.replace(temporary, found.name, src_dir_fd=found.folder, dst_dir_fd=found.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=found.folder)
        raise


def _keep_permissions(opened: int, like: os.stat_result) -> None:
    if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
        # Not every user may change the owner; the content matters more.
        with suppress(PermissionError):
            os.fchown(opened, like.st_uid, like.st_gid)
    os.fchmod(opened, stat.S_IMODE(like.st_mode))


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist"
        case errno.ENOTDIR:
            return "a part of the path is not a folder"
        case errno.ELOOP:
            return "a part of the path was replaced by a link"
        case errno.EISDIR:
            return "is a folder, expected a file"
        case _:
            return os.strerror(error.errno or 0)
