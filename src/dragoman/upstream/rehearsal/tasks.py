"""What people try first with an agent: a greeting, "list the files here", "read X". Each gets the answer a person expects. Pure.

A greeting is answered in words, although tools are offered. The other two are done with the tool for it if there is one, else
with a shell, by a command that only reads.
"""

from collections.abc import Sequence
from shlex import quote
from typing import Literal, cast

from msgspec import Struct

from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.strings import COMMAND, has_effects
from dragoman.upstream.rehearsal.words import UserWords, split_name, vocabulary

NOTICE = "This is Dragoman's rehearsal: no model was asked."
GREETING = (
    f"Hello! {NOTICE} I stand in for one, without a key. Try “list the files here” or “read README.md”: "
    "I call the tools of your client for that. `dragoman connect` shows how to use a real model."
)

# A longer text is a task of its own, which merely begins with a greeting.
_MAX_GREETING = 6
_GREETINGS = vocabulary("afternoon day evening hallo hello hey hi howdy moin morning")
_POLITE = vocabulary("all are dragoman everyone folks friend good how there today you")
_LISTING = vocabulary("list ls show what which")
_PLACES = vocabulary("directory file folder")
_READING = vocabulary("cat display open print read show summarise summarize view what")

# Words of which the name of the right tool consists: `list_dir`, `read_file`, `Glob`, `Read`.
_LIST_NAMES = vocabulary("current dir directory file files folder glob list ls")
_LIST_MARKS = vocabulary("glob list ls")
_READ_NAMES = vocabulary("cat file open read text view")
_READ_MARKS = vocabulary("cat read view")
_SHELLS = vocabulary("bash cmd command exec execute local run shell terminal")
_SHELL_KINDS = ("bash", "shell", "local_shell")


class Task(Struct, frozen=True):
    """`path`: of the file to read. `command`: what does the task in a shell."""

    kind: Literal["greeting", "list", "read"]
    path: str = ""
    command: str = ""


def find_task(words: UserWords) -> Task | None:
    """The task, if the user's words are one of those that people try first."""
    said = split_name(words.text)
    if not said or len(words.text) > 400:
        return None
    mentioned = frozenset(said)
    if len(said) <= _MAX_GREETING and mentioned & _GREETINGS and mentioned <= _GREETINGS | _POLITE:
        return Task("greeting")
    if len(words.paths) == 1 and mentioned & _READING:
        path = words.paths[0]
        return Task("read", path, f"cat {quote(path)}")
    if not words.paths and mentioned & _LISTING and mentioned & _PLACES:
        return Task("list", command="ls")
    return None


def tool_for(task: Task, tools: Sequence[Tool]) -> Tool | None:
    """The tool that does the task: one that is made for it, else a shell."""
    if task.kind == "greeting":
        return None
    names, marks = (_LIST_NAMES, _LIST_MARKS) if task.kind == "list" else (_READ_NAMES, _READ_MARKS)
    for tool in tools:
        words = frozenset(split_name(tool.name))
        if words & marks and words <= names and not has_effects(tool):
            return tool
    return next((tool for tool in tools if is_shell(tool)), None)


def is_shell(tool: Tool) -> bool:
    """Whether a tool runs commands."""
    words = frozenset(split_name(tool.name))
    return tool.kind in _SHELL_KINDS or (bool(words) and words <= _SHELLS)


def with_command(value: object, command: str) -> object:
    """The arguments of a shell with this command in place of the one without effect."""
    if value == COMMAND:
        return command
    if value == COMMAND.split():
        return ["sh", "-c", command]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: with_command(member, command) for name, member in members.items()}
    if isinstance(value, list):
        return [with_command(item, command) for item in cast("list[object]", value)]
    return value
