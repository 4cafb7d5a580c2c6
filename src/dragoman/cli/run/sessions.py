"""Stores conversations of `dragoman run` as files, so that a later run can continue one.

    STATE/dragoman/sessions/<root>/<id>.json     <root>: a digest of the folder the agent worked in

Each file is one whole conversation as canonical JSON. Nothing here knows an engine or a terminal.
"""

import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct, field

from dragoman._json import as_object
from dragoman.config.environment import state_folder, write_private
from dragoman.errors import ConfigError, MalformedJson, StoreDamaged
from dragoman.model.outcome import Usage
from dragoman.model.request import Turn
from dragoman.store.codec import json_of, reader

VERSION = 1
# Conversations stored per folder; a file has some hundred kilobytes. Saving a new conversation deletes older ones.
MAX_KEPT = 200
# A conversation of a million tokens with images is smaller; Dragoman did not write a larger file.
MAX_BYTES = 256 * 1024 * 1024

_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


class StoredSession(Struct, frozen=True, kw_only=True):
    """One conversation. `turns` has no instructions: every run adds its own."""

    version: int = VERSION
    id: str
    root: str
    model: str = ""
    created: float = 0.0
    updated: float = 0.0
    title: str = ""
    turns: tuple[Turn, ...] = ()
    usage: Usage = field(default_factory=Usage)


_read = reader(StoredSession)


def is_session_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def new_session(root: Path, model: str, now: float) -> StoredSession:
    """A new, empty conversation."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return StoredSession(
        id=f"{stamp}-{secrets.token_hex(3)}",
        root=str(root),
        model=model,
        created=now,
        updated=now,
    )


class Sessions:
    """The stored conversations of one user. is_kept: whether `save` stores anything."""

    def __init__(self, environ: Mapping[str, str], *, is_kept: bool = True) -> None:
        self._folder = state_folder(environ) / "sessions"
        self.is_kept = is_kept

    def save(self, session: StoredSession) -> None:
        """Write the conversation, replacing its older state.

        Raises:
            OSError: the disk is full, or permission is missing.
        """
        if not self.is_kept:
            return
        folder = self._of_root(Path(session.root))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{session.id}.json"
        is_new = not path.exists()
        write_private(path, json_of(session))
        if is_new:
            self._forget_old(folder)

    def load(self, session_id: str) -> StoredSession:
        """The conversation with this id, from any folder.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        found = (
            sorted(self._folder.glob(f"*/{session_id}.json")) if is_session_id(session_id) else []
        )
        if not found:
            raise ConfigError(
                f"--resume: expected the id of a saved conversation, got {session_id!r}; "
                "--sessions lists those of this folder"
            )
        return _load(found[0])

    def latest(self, root: Path) -> StoredSession:
        """The conversation in this folder that was used last.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        files = self._files(self._of_root(root))
        if not files:
            raise ConfigError(f"--resume: expected a saved conversation in {root}, found none")
        return _load(files[0])

    def all_of(self, root: Path) -> list[StoredSession | str]:
        """All conversations in this folder, the newest first; for a file that cannot be read, the reason."""
        found: list[StoredSession | str] = []
        for file in self._files(self._of_root(root)):
            try:
                found.append(_load(file))
            except ConfigError as error:
                found.append(error.message)
        return found

    def _of_root(self, root: Path) -> Path:
        return self._folder / blake2b(os.fsencode(root), digest_size=8).hexdigest()

    def _files(self, folder: Path) -> list[Path]:
        """The files of a folder, the newest first."""
        found: list[tuple[int, str]] = []
        for path in folder.glob("*.json"):
            with suppress(FileNotFoundError):  # another run deletes old ones
                if is_session_id(path.stem):
                    found.append((path.stat().st_mtime_ns, path.name))
        return [folder / name for _, name in sorted(found, reverse=True)]

    def _forget_old(self, folder: Path) -> None:
        for file in self._files(folder)[MAX_KEPT:]:
            file.unlink(missing_ok=True)


def _load(path: Path) -> StoredSession:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: expected at most {MAX_BYTES:,} bytes, got more")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: expected a readable file: {error.strerror or error}") from error
    try:
        version = bytes(as_object(data).get("version", b"none")).decode("utf-8", "replace")
        if version != str(VERSION):
            raise ConfigError(
                f"{path}: expected a conversation of version {VERSION}, got version {version[:20]}: "
                "another version of dragoman wrote it"
            )
        return _read(data)
    except (MalformedJson, StoreDamaged) as error:
        raise ConfigError(
            f"{path}: expected a saved conversation, but the file is damaged: {error.message}"
        ) from error
