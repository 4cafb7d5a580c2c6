"""The tools of a terminal agent: files below a root and a shell, behind a policy and, where one is available, in a sandbox.

root           files below a folder, and no others
files          `read`, `write` and `edit`, and what all tools for files share
search         `glob` and `grep`
apply_patch    several changes to several files, all or none
shell          commands, which leave no process behind
sandbox        bubblewrap around commands
gate           the policy's decision and the person's approval before a tool runs

`terminal_tools` returns all of them together.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from dragoman.engine.approval import Policy, Subject
from dragoman.engine.builtin.apply_patch import apply_patch_tool, freeform_patch_tool
from dragoman.engine.builtin.files import edit_tool, read_tool, write_tool
from dragoman.engine.builtin.gate import Ask, Consent, Gate, GuardedTool, guarded, say_yes
from dragoman.engine.builtin.root import Root
from dragoman.engine.builtin.sandbox import Sandbox, find_sandbox, without_sandbox
from dragoman.engine.builtin.search import glob_tool, grep_tool
from dragoman.engine.builtin.shell import ShellTool, command_environment
from dragoman.engine.tools import Tool
from dragoman.errors import ConfigError

__all__ = (
    "Ask",
    "Consent",
    "Gate",
    "GuardedTool",
    "Root",
    "Sandbox",
    "SandboxChoice",
    "ShellTool",
    "TerminalOptions",
    "TerminalTools",
    "apply_patch_tool",
    "edit_tool",
    "find_sandbox",
    "freeform_patch_tool",
    "glob_tool",
    "grep_tool",
    "guarded",
    "read_tool",
    "say_yes",
    "terminal_tools",
    "without_sandbox",
    "write_tool",
)

SandboxChoice = Literal["auto", "required", "off"]
"""`auto`: use a sandbox if one works here. `required`: fail if none works."""


class TerminalOptions(Struct, frozen=True, kw_only=True):
    """Further options.

    network: commands in the sandbox may use the network.
    freeform_patch: `apply_patch` takes the patch itself, not JSON with the patch in it.
    local_shell: also offer the built-in kind of some models.
    passed: environment variables that commands get although they look like secrets.
    hidden: files and folders that commands in the sandbox cannot read.
    """

    network: bool = False
    freeform_patch: bool = False
    local_shell: bool = False
    passed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class TerminalTools(tuple[GuardedTool, ...]):  # noqa: SLOT001 -- a tuple can have no slot with a value
    """The tools, the sandbox of their commands, and the gate before them."""

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
        policy: what is allowed, asked for and denied; None: reading is allowed, everything else is asked for
        ask: asks for approval; None: calls that need approval are refused
        sandbox: whether commands run in a sandbox
        options: further options

    Raises:
        ConfigError: the root is not a folder, or a sandbox is required but not available.
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
        raise ConfigError(f"a sandbox is required but not available: {found.reason}")
    return found
