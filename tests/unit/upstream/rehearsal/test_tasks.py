"""What people try first gets the answer a person expects, with a tool that only reads."""

import json
from typing import cast

import pytest

from dragoman._json import Raw, dumps
from dragoman.model.parts import Call, Dialect, Result, Text
from dragoman.model.request import Request, Tool, ToolChoice, Turn
from dragoman.upstream.rehearsal.answer import AnswerInput, compose
from dragoman.upstream.rehearsal.scenarios import find_scenario
from dragoman.upstream.rehearsal.tasks import GREETING, NOTICE, find_task
from dragoman.upstream.rehearsal.words import read_words


def tool(name: str, **required: str) -> Tool:
    members = {key: {"type": kind} for key, kind in required.items()}
    schema = {"type": "object", "properties": members, "required": list(required)}
    return Tool(name=name, schema=Raw(dumps(schema)))


# The tools of Codex and Claude Code that compete, in their order, with the parameters they require.
CODEX = (
    tool("exec_command", cmd="string"),
    tool("write_stdin", session_id="number"),
    Tool(name="apply_patch", kind="custom"),
    tool("view_image", path="string"),
    tool("create_goal", objective="string"),
    tool("get_goal"),
)
CLAUDE_CODE = (
    tool("Agent", description="string", prompt="string"),
    tool("Bash", command="string"),
    tool("CronList"),
    tool("Edit", file_path="string", old_string="string", new_string="string"),
    tool("NotebookEdit", notebook_path="string", new_source="string"),
    tool("Read", file_path="string"),
    tool("TaskList"),
    tool("WebFetch", url="string", prompt="string"),
    tool("Write", file_path="string", content="string"),
)
WITH_GLOB = (*CLAUDE_CODE, tool("Glob", pattern="string"))
READERS = (
    tool("read_file", path="string"),
    tool("list_dir", path="string"),
    tool("shell", command="array"),
)


def play(
    said: str, tools: tuple[Tool, ...], dialect: Dialect = "responses", **more: object
) -> tuple[str, object]:
    """The tool that is called and its arguments; or an empty name and the text."""
    request = Request(turns=(Turn(role="user", parts=(Text(text=said),)),), tools=tools, **more)  # type: ignore[arg-type]
    outcome = compose(AnswerInput(request, dialect, find_scenario("rehearsal"), "seed"))
    (part,) = outcome.choices[0].parts
    if isinstance(part, Call):
        return part.name, json.loads(part.input)
    assert isinstance(part, Text)
    return "", part.text


@pytest.mark.parametrize(
    "said", ["hello", "Hi!", "Hey there", "Good morning", "hello, how are you?"]
)
@pytest.mark.parametrize("tools", [CODEX, CLAUDE_CODE, ()])
def test_greeting_is_answered_in_words_that_say_what_this_is(
    said: str, tools: tuple[Tool, ...]
) -> None:
    assert play(said, tools) == ("", GREETING)
    assert "rehearsal" in GREETING


@pytest.mark.parametrize(
    "said",
    [
        "list the files here",
        "List files",
        "What files are in this folder?",
        "show me the directory",
    ],
)
@pytest.mark.parametrize(
    ("tools", "call"),
    [
        (CODEX, ("exec_command", {"cmd": "ls"})),
        (CLAUDE_CODE, ("Bash", {"command": "ls"})),
        (WITH_GLOB, ("Glob", None)),
        (READERS, ("list_dir", None)),
        (READERS[2:], ("shell", {"command": ["sh", "-c", "ls"]})),
        ((Tool(name="local_shell", kind="local_shell"),), ("local_shell", None)),
    ],
)
def test_files_are_listed(said: str, tools: tuple[Tool, ...], call: tuple[str, object]) -> None:
    name, arguments = play(said, tools)
    assert name == call[0]
    if call[1] is not None:
        assert arguments == call[1]


@pytest.mark.parametrize(
    "said",
    ["read src/app.py", "show me src/app.py", "What is in src/app.py?", "please open `src/app.py`"],
)
@pytest.mark.parametrize(
    ("tools", "call"),
    [
        (CODEX, ("exec_command", {"cmd": "cat src/app.py"})),
        (CLAUDE_CODE, ("Read", {"file_path": "src/app.py"})),
        (READERS, ("read_file", {"path": "src/app.py"})),
    ],
)
def test_a_file_is_read(said: str, tools: tuple[Tool, ...], call: tuple[str, object]) -> None:
    assert play(said, tools) == call


@pytest.mark.parametrize(
    "said",
    [
        "read a.py; rm -rf /",
        "read $(reboot).md",
        "read `a.md; reboot`",
        "read '; reboot #.md'",
        "cat a.md && reboot",
        "read ../../etc/passwd",
    ],
)
def test_no_words_of_the_user_become_a_command(said: str) -> None:
    name, arguments = play(said, CODEX)
    assert name == "exec_command"
    command = str(cast("dict[str, object]", arguments)["cmd"])
    assert command == "echo rehearsal" or not set(command) & set(";&|$`<>()\n\\")
    assert command.split(maxsplit=1)[0] in ("cat", "echo", "ls")


@pytest.mark.parametrize(
    "said",
    [
        "What is the weather in Paris?",
        "hello, please book a flight to Rome",
        "compare a.md and b.md",
        "",
    ],
)
def test_other_words_are_no_such_task(said: str) -> None:
    assert find_task(read_words(said)) is None


def test_a_demanded_call_is_made_even_for_a_greeting() -> None:
    name, _ = play("hello", CODEX, tool_choice=ToolChoice(mode="required"))
    assert name


def test_result_is_quoted_with_a_notice() -> None:
    turns = (
        Turn(role="user", parts=(Text(text="list the files here"),)),
        Turn(role="assistant", parts=(Call(call_id="c", name="Bash", input="{}"),)),
        Turn(role="tool", parts=(Result(call_id="c", content=(Text(text="README.md"),)),)),
    )
    request = Request(turns=turns, tools=CLAUDE_CODE)
    outcome = compose(AnswerInput(request, "messages", find_scenario("rehearsal"), "seed"))
    (part,) = outcome.choices[0].parts
    assert isinstance(part, Text)
    assert part.text == f"{NOTICE} The tool was run.\nBash returned: README.md"
