"""What a stand-in may ask for without doing harm. Pure.

Real agents carry out what the rehearsal calls: Codex runs commands, Claude Code edits files. So

- a command is always `echo rehearsal`, code is a string, SQL is `SELECT 1`, a formula is `1 + 1`;
- a tool whose name says that it changes something, or runs something, never gets the user's words or paths: its
  strings are placeholders, and its paths lie below a device, where nothing can be made, changed or removed;
- without being named by the user such a tool is called only if there is no other.

A name is all there is to go by: a tool called `lookup` that deletes things is taken for what it says.
"""

from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.words import split_name, vocabulary

__all__ = (
    "COMMAND",
    "NOWHERE",
    "PLACEHOLDER",
    "has_effects",
    "is_harmless_word",
    "is_path_name",
    "needs_care",
    "safe_argv",
    "safe_text",
)

COMMAND = "echo rehearsal"
PLACEHOLDER = "rehearsal"
NOWHERE = "/dev/null/rehearsal"
"""A path that can be neither read nor made nor removed on any Unix: its parent is no directory."""

_EFFECTS = vocabulary(
    "agent append apply approve ask buy cancel change chmod clear commit copy create cron delete deploy destroy "
    "disable drop edit enable enter exit fork grant insert install kill merge mkdir modify move notify overwrite patch "
    "pay post publish purge push put remove rename replace reset restart revoke rm rmdir save schedule send set "
    "shutdown spawn stop submit task terminate todo transfer truncate uninstall unlink update upload worktree "
    "write"
)
_RUNNERS = vocabulary(
    "bash cmd code command eval exec execute execution javascript js powershell python repl run script shell sql stdin "
    "terminal"
)

_COMMAND_NAMES = vocabulary("argv bash cmd command powershell script shell")
_CODE_NAMES = vocabulary("code javascript js program python snippet")
_SQL_NAMES = vocabulary("sql statement")
_FORMULA_NAMES = vocabulary("expression formula")
# `command_line` and `python_code_to_run` are commands and code; `country_code` is neither.
_FILLERS = vocabulary("body exec execute input line raw run source string text to")
_DATABASE = vocabulary("database db postgre postgres query sql sqlite warehouse")
_PATH_NAMES = vocabulary(
    "cwd dir directory file filename filepath folder notebook path root workdir"
)


def has_effects(tool: Tool) -> bool:
    """Whether a tool's name says that it changes something."""
    return tool.kind == "apply_patch" or not _EFFECTS.isdisjoint(split_name(tool.name))


def needs_care(tool: Tool) -> bool:
    """Whether a tool must not be given the user's words: it changes something, or runs what it is given."""
    return has_effects(tool) or not _RUNNERS.isdisjoint(split_name(tool.name))


def is_harmless_word(value: object) -> bool:
    """Whether one of a list of choices names no change: `read` of `read | write`, `GET` of HTTP's methods."""
    return not isinstance(value, str) or _EFFECTS.isdisjoint(split_name(value))


def is_path_name(name: str) -> bool:
    """Whether a parameter of this name takes a path."""
    return not _PATH_NAMES.isdisjoint(split_name(name))


def safe_text(name: str, tool_name: str) -> str | None:
    """What a parameter that is carried out is given; None for any other."""
    words = set(split_name(name))
    kinds = (
        (_COMMAND_NAMES, COMMAND),
        (_CODE_NAMES, f'"{PLACEHOLDER}"'),
        (_SQL_NAMES, "SELECT 1"),
        (_FORMULA_NAMES, "1 + 1"),
    )
    for telling, text in kinds:
        if words & telling and words <= telling | _FILLERS | _COMMAND_NAMES | _CODE_NAMES:
            return text
    if words == {"query"} and not _DATABASE.isdisjoint(set(split_name(tool_name)) - {"query"}):
        return "SELECT 1"
    return None


def safe_argv(name: str) -> list[object]:
    """What a parameter that is a command in pieces is given; nothing for any other."""
    return [*COMMAND.split()] if safe_text(name, "") == COMMAND else []
