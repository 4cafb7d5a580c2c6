"""The tools of a terminal agent: files below a root and a shell, behind a policy and, where there is one, in a sandbox.

rooted, walking, ignoring   files below a folder, and no others
read, glob, grep            look; may run beside one another
write, edit, apply_patch    change files, whole or not at all
shell, processes, sandbox   commands, with nothing of them left behind
guarding                    the gate before a tool
terminal                    all of them together: `terminal_tools`
"""

from dragoman.engine.builtin.apply_patch import apply_patch_tool, freeform_patch_tool
from dragoman.engine.builtin.edit import edit_tool
from dragoman.engine.builtin.glob import glob_tool
from dragoman.engine.builtin.grep import grep_tool
from dragoman.engine.builtin.guarding import Answer, Ask, Gate, GuardedTool, guarded, say_yes
from dragoman.engine.builtin.read import read_tool
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.sandbox import Sandbox, find_sandbox, without_sandbox
from dragoman.engine.builtin.shell import ShellTool
from dragoman.engine.builtin.terminal import (
    SandboxChoice,
    TerminalOptions,
    TerminalTools,
    terminal_tools,
)
from dragoman.engine.builtin.write import write_tool

__all__ = (
    "Answer",
    "Ask",
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
