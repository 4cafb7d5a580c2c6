"""Writes the configuration of a client into the client's own files. A file that was there is kept beside the new one.

    codex         `dragoman.config.toml` in Codex's folder, a profile: `codex -p dragoman`
    claude-code   `env` in `settings.json` in Claude Code's folder; everything else in it stays as it is

No key is written.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct

from dragoman._json import dumps_document, loads
from dragoman.config.environment import write_private
from dragoman.errors import ConfigError, MalformedJson
from dragoman.server.connect import UNKNOWN_MODEL, GatewayAccess, snippet

PROFILE = "dragoman"
# A settings file has kilobytes.
_MAX_BYTES = 4 * 1024 * 1024


class WrittenFile(Struct, frozen=True):
    """A file that was written. backup: a copy of the one before. shown: what was written. hint: how to use it."""

    path: Path
    backup: Path | None
    shown: str
    hint: str


def write_codex(access: GatewayAccess, environ: Mapping[str, str]) -> list[WrittenFile]:
    lines = snippet("codex", access).splitlines(keepends=True)
    text = "".join(lines[1:])  # the first says where to paste it
    path = _folder(environ, "CODEX_HOME", "~/.codex") / f"{PROFILE}.config.toml"
    backup = _write(path, text.encode())
    return [WrittenFile(path, backup, text, f"start Codex with it: codex -p {PROFILE}")]


def write_claude_code(access: GatewayAccess, environ: Mapping[str, str]) -> list[WrittenFile]:
    path = _folder(environ, "CLAUDE_CONFIG_DIR", "~/.claude") / "settings.json"
    settings = _read_object(path)
    env = settings.get("env", {})
    if not isinstance(env, dict):
        raise ConfigError(f"{path}: expected an object in `env`, got something else")
    added = {
        "ANTHROPIC_BASE_URL": access.url,
        "ANTHROPIC_MODEL": access.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": access.model,
        "ENABLE_TOOL_SEARCH": "true",
    }
    hint = "start Claude Code: claude; without ANTHROPIC_API_KEY in its environment"
    if access.key == "none":
        added["ANTHROPIC_AUTH_TOKEN"] = access.placeholder
    else:
        hint += ", and with ANTHROPIC_AUTH_TOKEN, the key"
    written = settings | {"env": cast("dict[str, object]", env) | added}
    backup = _write(path, dumps_document(written))
    return [WrittenFile(path, backup, dumps_document({"env": added}).decode(), hint)]


def write_client(client: str, access: GatewayAccess, environ: Mapping[str, str]) -> str:
    """Write the settings of a client of `WRITERS`. Returns what was written, and how to use it, for a person.

    Raises:
        ConfigError: no model is known, or a file cannot be read or written.
    """
    if access.model == UNKNOWN_MODEL:
        raise ConfigError("--write: expected --model as well, no model is known")
    return "".join(map(_report, WRITERS[client](access, environ)))


def _report(file: WrittenFile) -> str:
    kept = "" if file.backup is None else f" (what was there: {file.backup})"
    shown = "".join(f"  {line}\n" for line in file.shown.splitlines())
    return f"wrote {file.path}{kept}\n{shown}{file.hint}\n"


WRITERS: Mapping[str, Callable[[GatewayAccess, Mapping[str, str]], list[WrittenFile]]] = {
    "codex": write_codex,
    "claude-code": write_claude_code,
}
"""The clients of `server.connect.CLIENTS` that have a file for it."""


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    try:
        return Path(environ.get(variable) or usual).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"expected a home directory, or {variable}: {error}") from error


def _read_object(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        document: object = loads(data)
    except FileNotFoundError:
        return {}
    except (OSError, MalformedJson) as error:
        raise ConfigError(f"{path}: expected a readable JSON file: {error}") from error
    if not isinstance(document, dict) or len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: expected a JSON object of at most {_MAX_BYTES:,} bytes")
    return cast("dict[str, object]", document)


def _write(path: Path, data: bytes) -> Path | None:
    """Write a file, through a link to the file that it names. Returns the copy of what was there."""
    try:
        target = Path(os.path.realpath(path))
        backup = None
        if target.exists():
            before = target.read_bytes()
            backup = _free_name(target)
            write_private(backup, before)
        write_private(target, data)
    except OSError as error:
        raise ConfigError(f"{path}: expected to write it: {error.strerror or error}") from error
    return backup


def _free_name(path: Path) -> Path:
    number = 1
    while (name := path.with_name(f"{path.name}.backup-{number}")).exists():
        number += 1
    return name
