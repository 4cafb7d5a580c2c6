"""The tools of a terminal agent: files below a root and a shell, behind a policy and, where one is available, in a sandbox.

root           files below a folder, and no others
file_tool      what the tools for files share
files          `read`, `write` and `edit`
search         `glob` and `grep`
apply_patch    several changes to several files, all or none
shell          commands, which leave no process behind
sandbox        bubblewrap around commands
gate           the policy's decision and the person's approval before a tool runs
terminal       all of them together: `terminal_tools`
"""

from dragoman.engine.builtin.apply_patch import apply_patch_tool, freeform_patch_tool
from dragoman.engine.builtin.files import edit_tool, read_tool, write_tool
from dragoman.engine.builtin.gate import Ask, Consent, Gate, GuardedTool, guarded, say_yes
from dragoman.engine.builtin.root import Root
from dragoman.engine.builtin.sandbox import Sandbox, find_sandbox, without_sandbox
from dragoman.engine.builtin.search import glob_tool, grep_tool
from dragoman.engine.builtin.shell import ShellTool
from dragoman.engine.builtin.terminal import (
    SandboxChoice,
    TerminalOptions,
    TerminalTools,
    terminal_tools,
)

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
