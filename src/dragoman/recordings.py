"""Folders of recorded exchanges on disk: written whole or not at all, and read with limits.

A recording is a folder that `inspection.exchange_files` describes. It is written under a name that begins with a dot and
renamed when it is complete, so a process that dies leaves nothing that looks like a recording. Only the owner can read it.

Recordings come from anywhere, so reading trusts nothing: no links are followed, only known names are opened, and sizes are
limited before anything is read.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from dragoman.errors import RequestRefused
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_files import (
    CLIENT,
    INDEX,
    MAX_ATTEMPTS,
    META,
    WIRE_FILES,
    from_files,
)

MAX_FILE_BYTES = 256 * 1024 * 1024
"""Of one file of a recording: the limit of an answer that passes through the gateway."""
MAX_RECORDINGS = 10_000
"""Recordings in one folder that are read: all of them are held in memory."""

_PARTIAL = ".partial-"
_PLAIN = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_ID = 64
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# On Windows there are no such links for files that a user may make.
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for a writer
_BINARY = getattr(os, "O_BINARY", 0)


def recording_name(exchange: RecordedExchange) -> str:
    """The name of an exchange's folder: names sort by time. A client's id becomes a plain word."""
    when = datetime.fromtimestamp(exchange.at, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    word = _PLAIN.sub("-", exchange.id)[:_LONGEST_ID].strip("-") or "exchange"
    return f"{when}-{word}"


def write_recording(root: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Write a recording, complete or not at all. A name that is taken gets a number.

    Raises:
        OSError: it cannot be written.
    """
    root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    partial = root / f"{_PARTIAL}{os.getpid()}-{name}"
    partial.mkdir(mode=_FOLDER_MODE)
    try:
        for path, data in files.items():
            place = partial / path
            place.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS | _BINARY
            with os.fdopen(os.open(place, flags, _FILE_MODE), "wb") as stream:
                stream.write(data)
        return _publish(partial, root, name)
    finally:
        if partial.exists():  # it could not be written whole
            shutil.rmtree(partial, ignore_errors=True)


def _publish(partial: Path, root: Path, name: str) -> Path:
    number = 1
    while True:
        place = root / (name if number == 1 else f"{name}.{number}")
        # Names have milliseconds and ids: two processes do not choose the same one between these lines.
        if not os.path.lexists(place):
            return partial.rename(place)
        number += 1


def used_bytes(root: Path) -> int:
    """How many bytes the recordings in a folder take."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(FileNotFoundError):  # another process has just renamed it
                total += os.lstat(Path(folder) / name).st_size
    return total


def read_recordings(root: Path) -> Iterator[tuple[str, RecordedExchange]]:
    """The recordings in a folder, each with its name, in the order of the names. The folder may be a recording itself.

    Raises:
        RequestRefused: the folder, or one of its recordings, cannot be read. The message names it.
    """
    if _is_recording(root):
        yield root.name, read_recording(root)
        return
    names = _folders(root)
    if not names:
        raise RequestRefused(
            f"{root}: expected recordings, folders with {INDEX} or {META}; got none"
        )
    if len(names) > MAX_RECORDINGS:
        raise RequestRefused(f"{root}: expected at most {MAX_RECORDINGS:,} recordings")
    for name in names:
        yield name, read_recording(root / name)


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and entry.is_dir(follow_symlinks=False)
                and _is_recording(root / entry.name)
            )
    except OSError as error:
        raise RequestRefused(f"{root}: expected a folder: {error.strerror or error}") from error


def _is_recording(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in (INDEX, META))


def read_recording(folder: Path) -> RecordedExchange:
    """Read one recording.

    Raises:
        RequestRefused: it cannot be read; the message names the file.
    """
    wanted = [INDEX]
    if not os.path.lexists(folder / INDEX):
        wanted = sorted(WIRE_FILES)
    else:
        wires = (CLIENT, *(f"upstream-{number}" for number in range(1, MAX_ATTEMPTS + 1)))
        for wire in wires:
            if _is_folder(folder / wire):
                wanted += [f"{wire}/{name}" for name in sorted(WIRE_FILES - {META})]
    files: dict[str, bytes] = {}
    for path in wanted:
        data = _read_file(folder / path)
        if data is not None:
            files[path] = data
    try:
        return from_files(files)
    except RequestRefused as error:
        raise RequestRefused(f"{folder}: {error.message}") from error


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _read_file(path: Path) -> bytes | None:
    """The bytes of a plain file; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINKS | _NO_WAITING | _BINARY)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "a link" if path.is_symlink() else error.strerror or str(error)
        raise RequestRefused(f"{path}: expected a plain file: {reason}") from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RequestRefused(f"{path}: expected a plain file, got something else")
        if status.st_size > MAX_FILE_BYTES:
            raise RequestRefused(f"{path}: expected at most {MAX_FILE_BYTES:,} bytes")
        return stream.read(MAX_FILE_BYTES)
