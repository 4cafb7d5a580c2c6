"""All tools of a terminal agent together, behind one gate."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from dragoman.engine.approval import Policy, Subject
from dragoman.engine.builtin.apply_patch import apply_patch_tool, freeform_patch_tool
from dragoman.engine.builtin.edit import edit_tool
from dragoman.engine.builtin.environment import command_environment
from dragoman.engine.builtin.glob import glob_tool
from dragoman.engine.builtin.grep import grep_tool
from dragoman.engine.builtin.guarding import Ask, Gate, GuardedTool, guarded
from dragoman.engine.builtin.read import read_tool
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.sandbox import Sandbox, find_sandbox, without_sandbox
from dragoman.engine.builtin.shell import ShellTool
from dragoman.engine.builtin.write import write_tool
from dragoman.engine.tools import Tool
from dragoman.errors import ConfigError

__all__ = ("SandboxChoice", "TerminalOptions", "TerminalTools", "terminal_tools")

SandboxChoice = Literal["auto", "required", "off"]
"""`auto`: where it works. `required`: or there is no agent."""


class TerminalOptions(Struct, frozen=True, kw_only=True):
    """What else may be chosen.

    network: commands in the sandbox have a network.
    freeform_patch: `apply_patch` takes the patch itself, not JSON with the patch in it.
    local_shell: the built-in kind of some models besides `shell`.
    passed: variables of the environment that commands are given although they look like secrets.
    hidden: files and folders that commands in the sandbox cannot read.
    """

    network: bool = False
    freeform_patch: bool = False
    local_shell: bool = False
    passed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class TerminalTools(tuple[GuardedTool, ...]):  # noqa: SLOT001 -- a tuple can have no slot with a value
    """The tools; `sandbox` is what surrounds their commands, `gate` what they pass through."""

    sandbox: Sandbox
    gate: Gate

    def __new__(cls, tools: Iterable[GuardedTool], sandbox: Sandbox, gate: Gate) -> Self:
        made = super().__new__(cls, tools)
        made.sandbox = sandbox
        made.gate = gate
        return made


def terminal_tools(
    root: Path,
    *,
    policy: Policy | None = None,
    ask: Ask | None = None,
    sandbox: SandboxChoice = "auto",
    options: TerminalOptions = TerminalOptions(),  # noqa: B008 -- frozen
) -> TerminalTools:
    """The tools of a terminal agent below a root.

    Args:
        root: the folder that file tools do not leave and commands start in
        policy: what is allowed, asked for and denied; none: reading is allowed, all else asked for
        ask: whoever is asked; nobody: what would be asked for is denied
        sandbox: whether commands run in one
        options: what else may be chosen

    Raises:
        ConfigError: the root is no folder, or a sandbox is required and there is none.
    """
    place = Root(root)
    rules = Policy() if policy is None else policy
    around = _sandbox(place.path, sandbox, options)
    gate = Gate(rules, ask)
    tools = _tools(place, rules, around, options)
    return TerminalTools((guarded(tool, gate) for tool in tools), around, gate)


def _tools(root: Root, policy: Policy, sandbox: Sandbox, options: TerminalOptions) -> list[Tool]:
    def may_read(path: str) -> bool:
        return policy.judge("read", [Subject("path", path)]).verdict == "allow"

    environment = command_environment(os.environ, options.passed)
    tools: list[Tool] = [
        read_tool(root),
        glob_tool(root),
        grep_tool(root, may_read),
        write_tool(root),
        edit_tool(root),
        freeform_patch_tool(root) if options.freeform_patch else apply_patch_tool(root),
        ShellTool(root, sandbox=sandbox, environment=environment),
    ]
    if options.local_shell:
        tools.append(ShellTool(root, sandbox=sandbox, environment=environment, kind="local_shell"))
    return tools


def _sandbox(root: Path, choice: SandboxChoice, options: TerminalOptions) -> Sandbox:
    if choice == "off":
        return without_sandbox(root)
    found = find_sandbox(root, network=options.network, hidden=options.hidden)
    if choice == "required" and not found.is_on:
        raise ConfigError(f"a sandbox is required, and there is none: {found.reason}")
    return found
