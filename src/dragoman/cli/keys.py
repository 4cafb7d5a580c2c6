"""`dragoman keys`: makes, lists and revokes the named keys of a configuration file.

A key is shown once, when it is made: the file holds its SHA-256. The key has 256 random bits, so the digest reveals nothing
about it. Only the key's own section of the file changes.
"""

import argparse
import os
import re
import secrets
import sys
from hashlib import sha256
from pathlib import Path
from typing import cast

from msgspec import structs

from dragoman.cli.options import Options, add_config_option
from dragoman.cli.screen import CLEAN, show, write
from dragoman.config.check import complete
from dragoman.config.read import find_file, read_config_file
from dragoman.config.settings import KeySettings, Settings
from dragoman.config.toml_text import with_section, without_section
from dragoman.config.trust import change_file, only_changer
from dragoman.config.values import key_path, read_struct, read_toml, toml_value
from dragoman.errors import ConfigError
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.terminal_text import visible_line

SUMMARY = "make, list and revoke named keys of the gateway, each with its models and limits"

# Unlike the keys of vendors, and not that of call ids (`core.aliases`): `core.secrets` hides what begins with it.
_PREFIX = "dgk_"
_KEY_BYTES = 32
_WHOLE = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?")
_LIMITS = tuple(
    name for name in KeySettings.__struct_fields__ if "_per_" in name or name == "max_streams"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "add prints the new key once; the file holds only its digest. A running gateway uses the change after it has reloaded its configuration (dragoman reload). "
        f"Limits: {', '.join(_LIMITS)}. Exit code: 0 done, 2 the file cannot be used, or has no such key."
    )
    parser.add_argument("action", choices=("add", "list", "revoke"), help="what to do")
    parser.add_argument("key_name", nargs="?", metavar="NAME", help="the name of the key")
    add_config_option(parser)
    parser.add_argument(
        "--allow",
        action="append",
        metavar="MODEL",
        help="add: a model, or a glob, that the key may use; may be repeated (default: all)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="NAME=NUMBER",
        help="add: a limit, such as requests_per_minute=60; may be repeated (default: none)",
    )
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="add: the key may inspect the requests of everyone, and read the usage of all keys",
    )
    parser.set_defaults(run=_run)


def _run(options: Options) -> int:
    file = find_file(options.config, os.environ)
    if file is None:
        raise ConfigError(
            "expected a configuration: name it with --config, or make one with `dragoman init`"
        )
    if options.action == "list":
        show(tuple(_listed(_settings(file, read_config_file(file)))))
        return CLEAN
    name = options.key_name
    if not name:
        raise ConfigError(f"expected a NAME: dragoman keys {options.action} NAME")
    with only_changer(file):
        _change(file, name, options)
    print(
        "A running gateway uses the change after it has reloaded its configuration (dragoman reload).",
        file=sys.stderr,
    )
    return CLEAN


def _change(file: Path, name: str, options: Options) -> None:
    """Add or revoke a key, and print what came of it. Raises ConfigError: nothing was changed."""
    data = read_config_file(file)
    if options.action == "add":
        key = _PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        changed = with_section(data, "keys", name, _section(name, key, options))
        _check(file, changed)
        change_file(file, data, changed, os.environ)
        write(f"{key}\n".encode())
        print(f"This is the key {name}. It is not shown again.", file=sys.stderr)
    else:
        changed = without_section(data, "keys", name)
        change_file(file, data, changed, os.environ)
        print(f"The key {visible_line(name)} is revoked.", file=sys.stderr)
        if not _settings(file, changed):
            print(
                "No named key is left. If server.api_keys is empty too, every program on this machine may use the gateway.",
                file=sys.stderr,
            )


def _settings(file: Path, data: bytes) -> dict[str, KeySettings]:
    """The keys of a file. What else is in it need not work here: variables may be set where the gateway runs.

    Raises:
        ConfigError: a key cannot work.
    """
    problems: list[str] = []
    values = read_toml(data, str(file))
    asked = {name: values[name] for name in ("keys", "prices") if name in values}
    settings = read_struct(Settings, asked, "", problems)
    if settings is None:
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    return complete(settings).keys


def _check(file: Path, changed: bytes) -> None:
    """Raises ConfigError: the new key cannot work."""
    try:
        _settings(file, changed)
    except ConfigError as error:
        raise ConfigError(
            "\n".join(f"{line} (nothing was changed)" for line in error.message.split("\n"))
        ) from error


def _section(name: str, key: str, options: Options) -> str:
    """The section of a key. Raises ConfigError: a limit cannot be read."""
    values: dict[str, object] = {"digest": f"sha256:{sha256(key.encode()).hexdigest()}"}
    if options.allow:
        values["models"] = tuple(options.allow)
    if options.inspect:
        values["inspect"] = True
    for each in options.limit or ():
        limit, _, number = each.partition("=")
        if limit not in _LIMITS:
            raise ConfigError(f"--limit: expected one of {', '.join(_LIMITS)}; got {limit!r}")
        values[limit] = _number(limit, number)
    lines = [f"{field} = {toml_value(value)}\n" for field, value in values.items()]
    return "".join([f"[{key_path('keys', name)}]\n", *lines])


def _number(limit: str, text: str) -> float:
    """Raises ConfigError: the text is no number that TOML could hold."""
    if not limit.startswith("cost_") and _WHOLE.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        raise ConfigError(f"--limit: expected a number for {limit}, got {text[:40]!r}")
    return float(text)


def _listed(keys: dict[str, KeySettings]) -> list[Line]:
    if not keys:
        return [(Span("no named keys; make one with `dragoman keys add NAME`"),)]
    return [
        (Span(visible_line(name), "strong"), Span(f"  {visible_line(_described(key))}"))
        for name, key in keys.items()
    ]


def _described(key: KeySettings) -> str:
    set_ = {name: cast("object", value) for name, value in structs.asdict(key).items()}
    limits = [f"{name}={set_[name]}" for name in _LIMITS if set_[name] is not None]
    right = ["may inspect"] if key.inspect else []
    return "; ".join([f"models {', '.join(key.models)}", *(limits or ["no limits"]), *right])
