"""The tools of the agent: those of a terminal and those of MCP servers, all behind one gate."""

import os
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.cli.options import Options
from dragoman.cli.run.person import Person, TerminalHost, approval_from
from dragoman.config.environment import sqlite_place
from dragoman.config.mcp import check_names, settings_from_file_text, settings_from_short_form
from dragoman.config.policy import read_policy
from dragoman.config.read import CONFIG_FILE, find_file
from dragoman.config.settings import McpServerSettings, Settings
from dragoman.config.values import read_toml
from dragoman.core.aliases import flat_name
from dragoman.engine.approval import Policy
from dragoman.engine.builtin import TerminalOptions, TerminalTools, terminal_tools
from dragoman.engine.builtin.gate import Ask, Gate, guarded, say_yes
from dragoman.engine.builtin.sandbox import Sandbox
from dragoman.engine.builtin.shell import is_secret
from dragoman.engine.mcp.servers import McpServers
from dragoman.engine.tools import Tool, ToolSource
from dragoman.errors import ConfigError, MalformedJson
from dragoman.gateway.hosted.servers import tokens_folder

# A policy has a few lines, and some agents have instructions of fifty kilobytes; a larger file was named by mistake.
_MAX_FILE = 1024 * 1024


class Toolset(Struct, frozen=True):
    """The tools of a run."""

    terminal: TerminalTools
    servers: McpServers
    policy: Policy

    @property
    def sandbox(self) -> Sandbox:
        return self.terminal.sandbox

    def sources(self) -> tuple[Tool | ToolSource, ...]:
        return (*self.terminal, _GuardedSource(self.servers, self.terminal.gate))

    def names(self) -> tuple[str, ...]:
        """The names of the tools that are known now: servers may still be starting."""
        offered = [tool.offer.declaration for tool in (*self.terminal, *self.servers.tools())]
        return tuple(flat_name(each.name, each.namespace) for each in offered)

    def warnings(self) -> list[str]:
        """Warnings for the person before the run starts. The log reports servers that do not start."""
        if self.servers.problems:
            return []  # their tools are not known
        unused = self.policy.unused(self.names())
        return [f"the policy's rule {str(rule)!r} names no tool that exists" for rule in unused]


class _GuardedSource:
    """The tools of MCP servers behind the gate."""

    def __init__(self, servers: McpServers, gate: Gate) -> None:
        self._servers = servers
        self._gate = gate

    def tools(self) -> Sequence[Tool]:
        return [guarded(tool, self._gate) for tool in self._servers.tools()]


def policy_of(options: Options) -> Policy:
    """The policy that `--policy` names, or the default one.

    Raises:
        ConfigError: the policy cannot be read.
    """
    if options.policy is None:
        return Policy()
    return read_policy(read_text("--policy", options.policy), options.policy)


def _private_places(options: Options, settings: Settings, root: Path) -> Iterator[str]:
    """Files that this run reads or stores but its commands must not read, besides those that every sandbox hides.

    A configuration in the agent's folder is a file of the project: it is hidden only if it contains a secret.
    """
    files = [Path(word) for word in options.mcp or () if word.endswith(".json") and "=" not in word]
    config = find_file(options.config, os.environ)
    files += [root / CONFIG_FILE, *([] if config is None else [config])]
    for file in files:
        path = file.absolute()
        if not path.resolve().is_relative_to(root) or _holds_secrets(path):
            yield str(path)
    for upstream in settings.upstreams.values():
        for named in (upstream.auth_file, upstream.codex_home):
            if named is not None:
                yield str(Path(named).expanduser().absolute())
    store = "sqlite:" if settings.store is None else settings.store.url
    if store.startswith("sqlite:"):
        place = str(sqlite_place(store, os.environ)[0].absolute())
        yield from (place, f"{place}-wal", f"{place}-shm", f"{place}-journal")
    if settings.dump.path is not None:
        yield str(Path(settings.dump.path).expanduser().absolute())


def _holds_secrets(path: Path) -> bool:
    try:
        data = path.read_bytes()
        table: object = (
            loads(data.removeprefix(BOM_UTF8))
            if path.suffix == ".json"
            else read_toml(data, str(path))
        )
    except (OSError, ConfigError, MalformedJson):
        return True  # hide a file that cannot be checked
    return _is_secret_within("", table)


def _is_secret_within(name: str, value: object) -> bool:
    """Whether a value contains a secret. The name of a variable that holds a secret is not a secret."""
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value).items()
        return any(_is_secret_within(key, each) for key, each in entries)
    if isinstance(value, list):
        return any(_is_secret_within(name, each) for each in cast("list[object]", value))
    is_reference = name.endswith("_env") or (isinstance(value, str) and value.startswith("$"))
    return isinstance(value, str) and bool(value) and not is_reference and is_secret(name, value)


def servers_of(words: Sequence[str], settings: Settings) -> tuple[McpServerSettings, ...]:
    """The MCP servers of the configuration and of the command line; the command line wins if both have the same name.

    Raises:
        ConfigError: an option is invalid, or two options name the same server.
    """
    given: list[McpServerSettings] = []
    for word in words:
        if word.endswith(".json") and "=" not in word:
            given += settings_from_file_text(read_text("--mcp", word), os.environ, word)
        else:
            given.append(settings_from_short_form(word))
    check_names(given, "--mcp")
    names = {server.name for server in given}
    return (*(server for server in settings.mcp if server.name not in names), *given)


@asynccontextmanager
async def open_tools(
    root: Path,
    options: Options,
    policy: Policy,
    settings: Settings,
    servers: Sequence[McpServerSettings],
    person: Person | None,
) -> AsyncGenerator[Toolset]:
    """The tools, while the context lasts; leaving it ends the processes of MCP servers.

    person: is asked for approval and by MCP servers; None: calls that need approval are refused, questions declined.

    Raises:
        ConfigError: the root is not a folder, or the MCP SDK is not installed.
    """
    ask: Ask | None = say_yes if options.yes else None
    if ask is None and person is not None:
        ask = approval_from(person)
    hidden = tuple(_private_places(options, settings, root))
    terminal = terminal_tools(
        root,
        policy=policy,
        ask=ask,
        sandbox="off" if options.no_sandbox else "auto",
        options=TerminalOptions(network=options.network, hidden=hidden),
    )
    host = None if person is None else TerminalHost(person)
    async with McpServers(servers, host=host, tokens=tokens_folder(os.environ)) as started:
        yield Toolset(terminal, started, policy)


def read_text(option: str, path: str) -> str:
    """The text of a file that an option names.

    Raises:
        ConfigError: the file does not exist, or is not text.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise ConfigError(f"{option}: {path}: expected at most {_MAX_FILE:,} bytes, got more")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{option}: {path}: expected a readable file: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: expected UTF-8: {error.reason}") from error
