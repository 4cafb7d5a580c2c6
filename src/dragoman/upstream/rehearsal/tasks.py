"""What people try first with a coding agent, and the calls that do it. Pure.

    hello, what can you do?          no call: words that say what this is
    list the files here              the files
    read X                           the file
    what does this project do?       README.md; if there is none, the files
    create a file X with …           a look at X; if it is not there, the file is written
    anything else                    a look: at X if one file is named, else at the files

A task is done with the tool that is made for it, else with a shell, by `ls` or `cat`. The new file is the only change that the
rehearsal makes, because the user asks for it in so many words: below the folder of the client, with a name that hides
nothing, and never in place of a file that is there.
"""

import re
from collections.abc import Sequence
from shlex import quote, split
from typing import Literal, cast

from msgspec import Struct

from dragoman._json import dumps, loads
from dragoman.model.parts import Dialect
from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.schema import list_in, read_schema
from dragoman.upstream.rehearsal.strings import COMMAND, has_effects, is_path_name
from dragoman.upstream.rehearsal.tools import call_input
from dragoman.upstream.rehearsal.words import UserWords, split_name, vocabulary

NOTICE = "This is Dragoman's rehearsal: no model was asked."
GREETING = (
    f"Hello! {NOTICE} I stand in for one, without a key. Try “list the files here”, “read README.md” or “create a file "
    "hello.txt with some text”: I call the tools of your client for that. For a real model, give the gateway an upstream: "
    "`dragoman init` looks for one."
)

# A longer text is a task of its own, which merely begins with a greeting, or names a file.
_MAX_WORDS = 6
_MAX_TEXT = 400
_GREETINGS = vocabulary("afternoon day evening hallo hello help hey hi howdy moin morning who")
_ABOUT_US = vocabulary(
    "all are can do dragoman everyone folks friend good how me there today what you"
)
_LISTING = vocabulary("list ls show what which")
_PLACES = vocabulary("directory file folder")
_READING = vocabulary("cat display open print read show summarise summarize view what")
_PROJECTS = vocabulary("app application code codebase program project readme repo repository")
_EXPLAINING = vocabulary(
    "about describe explain overview read show summarise summarize tell understand what"
)

_FILE = r"[`'\"“]?(?P<path>[\w-][\w.-]{0,100}(?:/[\w-][\w.-]{0,100}){0,10})[`'\"”]?"
_FILLERS = r"(?:(?:me|us|a|an|the|new|empty|small|text|file|called|named)\s+){0,8}"
_CREATE = re.compile(
    rf"\b(?:create|make|write|add)\s+{_FILLERS}{_FILE}(?:\s*$|\s+(?:with|containing|saying|that\s+says)\s+"
    r"(?:(?:the|this)\s+)?(?:(?:text|content|contents|words?|line)\b\s*:?\s*)?(?P<content>.*))",
    re.IGNORECASE | re.DOTALL,
)
_WRITE = re.compile(
    rf"\b(?:write|put|save)\s+(?P<content>[`'\"“].{{1,300}}?[`'\"”])\s+(?:to|into|in)\s+{_FILLERS}{_FILE}",
    re.IGNORECASE,
)
_QUOTES = "`'\"“”"
_CONTENT = "Hello from Dragoman's rehearsal."

# Words of which the name of the right tool consists: `list_dir`, `read_file`, `Glob`, `Read`, `create_file`.
_LIST_NAMES = vocabulary("current dir directory file files folder glob list ls")
_LIST_MARKS = vocabulary("glob list ls")
_READ_NAMES = vocabulary("cat file open read text view")
_READ_MARKS = vocabulary("cat read view")
_WRITE_NAMES = vocabulary("create file new save text write")
_WRITE_MARKS = vocabulary("create save write")
_CONTENTS = vocabulary("body content contents data text")
_SHELLS = vocabulary("bash cmd command exec execute local run shell terminal")
_SHELL_KINDS = ("bash", "shell", "local_shell")

# How tools report that a file is not there, in one line: `cat`, Claude Code, `dragoman run` and others.
_ABSENT = re.compile(r"no such file|not exist|not found|cannot find", re.IGNORECASE)


# What clients put around results for models: Codex before the output of a command, Claude Code behind a file; line numbers.
_ENVELOPE = re.compile(
    r"\A(?:(?:Chunk ID|Exit code|Wall time|Process exited|Original token count)[^\n]*\n)+Output:\n"
)
# Up to the next one only: a text of many that do not end would be searched to its end from each of them.
_REMINDER = re.compile(
    r"<system-reminder>(?:(?!<system-reminder>).)*?</system-reminder>", re.DOTALL
)
_NUMBERED = re.compile(r"^ *\d+(?:\t|→)")
_TICKS = re.compile(r"`+")
# A screen of a terminal.
_MAX_LINES = 24
_MAX_LINE = 200


class Task(Struct, frozen=True):
    """`path`: of the file to look at; empty for the folder. `content`: of the file to create."""

    kind: Literal["greeting", "list", "read", "project", "create", "look"]
    path: str = ""
    content: str = ""


class ToolResult(Struct, frozen=True):
    """A result, and the name of its tool."""

    tool: str
    text: str
    failed: bool = False


PlannedCall = tuple[Tool, str]
"""A tool, and the input as source text."""


def find_task(words: UserWords) -> Task:
    """The task in the user's words."""
    text = words.text.strip()
    said = split_name(text)
    mentioned = frozenset(said)
    is_talk = len(said) <= _MAX_WORDS and mentioned <= _GREETINGS | _ABOUT_US
    if is_talk and mentioned & (_GREETINGS | {"you"}):
        return Task("greeting")
    if len(text) > _MAX_TEXT:
        return Task("look")
    path = words.paths[0] if len(words.paths) == 1 else ""
    creation = _CREATE.search(text) or _WRITE.search(text)
    if creation is not None and creation["path"] in words.paths:
        content = (creation["content"] or "").strip().strip(_QUOTES) or _CONTENT
        return Task("create", creation["path"], f"{content}\n")
    if path:
        return Task("read" if mentioned & _READING else "look", path)
    if not words.paths and mentioned & _LISTING and mentioned & _PLACES:
        return Task("list")
    if not words.paths and mentioned & _PROJECTS and mentioned & _EXPLAINING:
        return Task("project", "README.md")
    return Task("look")


def first_call(task: Task, tools: Sequence[Tool], dialect: Dialect) -> PlannedCall | None:
    """The call that begins a task; None if no tool can do it."""
    if task.kind == "greeting":
        return None
    return _read(task.path, tools, dialect) if task.path else _list(tools, dialect)


def second_call(
    task: Task, seen: ToolResult, tools: Sequence[Tool], dialect: Dialect
) -> PlannedCall | None:
    """The call that follows the result of the first, if any."""
    if not _is_absent(seen, task.path):
        return None
    if task.kind == "project":
        return _list(tools, dialect)
    return _write(task, tools) if task.kind == "create" else None


def _is_absent(seen: ToolResult, path: str) -> bool:
    """Whether a result says that a file is not there. A file that has these words in it is no such result."""
    text = readable(seen.text)
    is_report = "\n" not in text and (seen.failed or path in text)
    return is_report and _ABSENT.search(text) is not None


def summary(task: Task, rounds: int, seen: Sequence[ToolResult]) -> str:
    """The end of a task: what this is, what was done, and what the tools returned. rounds: of calls, all done."""
    quoted = [
        f"{each.tool} {'failed' if each.failed else 'returned'}:{_quote(readable(each.text))}"
        for each in seen
    ]
    return "\n".join([f"{NOTICE} {_remark(task, rounds, seen)}", "", *quoted])


def _remark(task: Task, rounds: int, seen: Sequence[ToolResult]) -> str:
    if task.kind == "look":
        return "A model would now work on this; I only look around."
    if task.kind == "create" and rounds == 1:
        if _is_absent(seen[-1], task.path):
            return f"Your client offers me no tool that writes {task.path}."
        return f"{task.path} is there already, or I cannot see it: I write only new files."
    if any(each.failed for each in seen):
        return "This is what your client reported:"
    return "Your client ran the tool."


def readable(text: str) -> str:
    """The text of a result without what clients put around it for models."""
    text = _REMINDER.sub("", _ENVELOPE.sub("", text, count=1)).strip("\n")
    lines = text.split("\n")
    if all(map(_NUMBERED.match, lines)):
        text = "\n".join(_NUMBERED.sub("", line) for line in lines).strip("\n")
    return text


def _quote(text: str) -> str:
    """A short text as it is; several lines in a block of Markdown, the first of them."""
    if "\n" not in text and len(text) <= _MAX_LINE:
        return f" {text}"
    lines = text.split("\n")
    shown = [line[:_MAX_LINE] for line in lines[:_MAX_LINES]]
    more = f"\n… {len(lines)} lines in all" if len(lines) > _MAX_LINES else ""
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return "\n".join(["", fence, *shown, fence]) + more


def _list(tools: Sequence[Tool], dialect: Dialect) -> PlannedCall | None:
    tool = _made_for(tools, _LIST_MARKS, _LIST_NAMES)
    if tool is None:
        return _run("ls", tools, dialect)
    return tool, call_input(tool, UserWords(paths=(".",)), dialect)


def _read(path: str, tools: Sequence[Tool], dialect: Dialect) -> PlannedCall | None:
    tool = _made_for(tools, _READ_MARKS, _READ_NAMES)
    if tool is None:
        return _run(f"cat {quote(path)}", tools, dialect)
    return tool, call_input(tool, UserWords(paths=(path,)), dialect)


def _made_for(tools: Sequence[Tool], marks: frozenset[str], names: frozenset[str]) -> Tool | None:
    for tool in tools:
        words = frozenset(split_name(tool.name))
        if tool.kind == "function" and words & marks and words <= names and not has_effects(tool):
            return tool
    return None


def _run(command: str, tools: Sequence[Tool], dialect: Dialect) -> PlannedCall | None:
    for tool in filter(_is_shell, tools):
        usual: object = loads(call_input(tool, UserWords(), dialect).encode())
        value = _with_command(usual, command)
        if value != usual:
            return tool, dumps(value).decode()
    return None


def _is_shell(tool: Tool) -> bool:
    words = frozenset(split_name(tool.name))
    is_named = tool.kind == "function" and bool(words) and words <= _SHELLS
    return tool.kind in _SHELL_KINDS or is_named


def _with_command(value: object, command: str) -> object:
    """The arguments of a shell with this command in place of the one without effect."""
    if value == COMMAND:
        return command
    if value == COMMAND.split():
        return split(command)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _with_command(member, command) for name, member in members.items()}
    if isinstance(value, list):
        return [_with_command(item, command) for item in cast("list[object]", value)]
    return value


def _write(task: Task, tools: Sequence[Tool]) -> PlannedCall | None:
    """The call that writes a new file: by a tool that writes files, else by a patch."""
    for tool in tools:
        words = frozenset(split_name(tool.name))
        if tool.kind == "function" and words & _WRITE_MARKS and words <= _WRITE_NAMES:
            arguments = _file_arguments(task, tool)
            if arguments is not None:
                return tool, dumps(arguments).decode()
    added = "".join(f"+{line}\n" for line in task.content.splitlines())
    patch = f"*** Begin Patch\n*** Add File: {task.path}\n{added}*** End Patch\n"
    patcher = next((each for each in tools if each.name == "apply_patch"), None)
    return None if patcher is None or patcher.kind != "custom" else (patcher, patch)


def _file_arguments(task: Task, tool: Tool) -> dict[str, str] | None:
    """Arguments for a tool that requires a path and a content, and nothing else."""
    schema = read_schema(tool.schema)
    arguments: dict[str, str] = {}
    for name in list_in(schema.get("required")):
        if not isinstance(name, str):
            return None
        if is_path_name(name):
            arguments[name] = task.path
        elif frozenset(split_name(name)) <= _CONTENTS:
            arguments[name] = task.content
    is_whole = {task.path, task.content} == set(arguments.values())
    return arguments if is_whole and len(arguments) == len(list_in(schema["required"])) else None
