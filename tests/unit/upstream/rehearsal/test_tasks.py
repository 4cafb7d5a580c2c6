"""What people try first gets the answer a person expects, with tools that only read, but for a new file."""

import json
import time
from typing import cast

import pytest
from msgspec.structs import replace

from dragoman._json import Raw, dumps
from dragoman.model.parts import Call, Dialect, Result, Text
from dragoman.model.request import Request, Tool, ToolChoice, Turn
from dragoman.upstream.rehearsal.answer import compose
from dragoman.upstream.rehearsal.scenarios import find_scenario
from dragoman.upstream.rehearsal.tasks import GREETING, NOTICE, find_task, readable
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
    outcome = compose(request, dialect, find_scenario("rehearsal"), "seed")
    (part,) = outcome.choices[0].parts
    if isinstance(part, Call):
        return part.name, json.loads(part.input)
    assert isinstance(part, Text)
    return "", part.text


@pytest.mark.parametrize(
    "said",
    [
        "hello",
        "Hi!",
        "Hey there",
        "Good morning",
        "hello, how are you?",
        "What can you do?",
        "help",
    ],
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
        (WITH_GLOB, ("Glob", {"pattern": "*"})),
        (READERS, ("list_dir", {"path": "."})),
        (READERS[2:], ("shell", {"command": ["ls"]})),
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
    ("said", "call"),
    [
        ("run the tests", "ls"),
        ("delete everything", "ls"),
        ("hello, please book a flight to Rome", "ls"),
        ("compare a.md and b.md", "ls"),
        ("fix the bug in src/app.py", "cat src/app.py"),
        ("delete src/app.py", "cat src/app.py"),
        ("write a test for src/app.py", "cat src/app.py"),
    ],
)
def test_other_words_to_a_coding_agent_get_a_look(said: str, call: str) -> None:
    assert play(said, CODEX) == ("exec_command", {"cmd": call})


def test_tool_whose_name_is_mentioned_is_called_and_no_look_is_taken() -> None:
    weather = tool("get_weather", city="string")
    assert play("What is the weather in Paris?", (*CODEX, weather)) == (
        "get_weather",
        {"city": "Paris"},
    )
    assert play("Please use Bash.", CLAUDE_CODE) == ("Bash", {"command": "echo rehearsal"})


def test_without_tools_of_a_coding_agent_the_words_find_the_tool() -> None:
    name, _ = play("Is it raining?", (tool("get_weather", city="string"),))
    assert name == "get_weather"


def test_a_demanded_call_is_made_even_for_a_greeting() -> None:
    name, _ = play("hello", CODEX, tool_choice=ToolChoice(mode="required"))
    assert name


# --- several turns ----------------------------------------------------------------------------------------------------

ENVELOPE = "Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code 0\nOriginal token count: 4\nOutput:\n"


def perform(
    said: str, tools: tuple[Tool, ...], *results: str | Result, model: str = "rehearsal"
) -> tuple[list[tuple[str, str]], str]:
    """The calls with their inputs, and the text at the end. results: what the tools return, in their order."""
    turns = [Turn(role="user", parts=(Text(text=said),))]
    made: list[tuple[str, str]] = []
    left = list(results)
    while True:
        request = Request(turns=tuple(turns), tools=tools)
        outcome = compose(request, "responses", find_scenario(model), "seed")
        (part,) = outcome.choices[0].parts
        if isinstance(part, Text):
            assert left == []
            return made, part.text
        assert isinstance(part, Call)
        made.append((part.name, part.input))
        given = left.pop(0)
        result = (
            given if isinstance(given, Result) else Result(call_id="", content=(Text(text=given),))
        )
        turns.append(Turn(role="assistant", parts=(part,)))
        turns.append(Turn(role="tool", parts=(replace(result, call_id=part.call_id),)))


def failed(text: str) -> Result:
    return Result(call_id="", content=(Text(text=text),), is_error=True)


def test_result_is_quoted_with_a_notice_and_without_what_the_client_adds() -> None:
    calls, end = perform("list the files here", CODEX, f"{ENVELOPE}README.md\nsrc\n")
    assert calls == [("exec_command", '{"cmd":"ls"}')]
    assert end == (
        f"{NOTICE} Your client ran the tool.\n\nexec_command returned:\n```\nREADME.md\nsrc\n```"
    )


def test_file_is_quoted_without_line_numbers_and_reminders() -> None:
    shown = "1\t# Title\n2\t```\n3\tx\n4\t\n<system-reminder>\nno malware\n</system-reminder>\n"
    _, end = perform("read README.md", CLAUDE_CODE, shown)
    assert end.endswith("Read returned:\n````\n# Title\n```\nx\n````")


def test_long_result_is_quoted_in_part() -> None:
    _, end = perform("read README.md", CLAUDE_CODE, "\n".join(map(str, range(100))))
    assert end.endswith("23\n```\n… 100 lines in all")


@pytest.mark.parametrize(
    "said",
    [
        "what does this project do?",
        "Explain this codebase",
        "read the readme",
        "what is this repo about",
    ],
)
def test_project_is_explained_by_its_readme(said: str) -> None:
    calls, end = perform(said, CLAUDE_CODE, "1\t# Pomodoro\n2\tA timer.")
    assert calls == [("Read", '{"file_path":"README.md"}')]
    assert "A timer." in end


@pytest.mark.parametrize(
    ("tools", "absent", "first", "second"),
    [
        (
            CODEX,
            f"{ENVELOPE}cat: README.md: No such file or directory\n",
            ("exec_command", '{"cmd":"cat README.md"}'),
            ("exec_command", '{"cmd":"ls"}'),
        ),
        (
            CLAUDE_CODE,
            failed("File does not exist. Note: your current working directory is /work."),
            ("Read", '{"file_path":"README.md"}'),
            ("Bash", '{"command":"ls"}'),
        ),
    ],
)
def test_project_without_a_readme_is_listed(
    tools: tuple[Tool, ...], absent: str | Result, first: object, second: object
) -> None:
    calls, end = perform("what does this project do?", tools, absent, "main.c\nMakefile")
    assert calls == [first, second]
    assert "main.c\nMakefile" in end


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("create a file hello.txt with hi there", "hi there"),
        ("Create a new file called `hello.txt` with the text: hi there", "hi there"),
        ("make hello.txt containing “hi there”", "hi there"),
        ("write 'hi there' to hello.txt", "hi there"),
        ("create hello.txt", "Hello from Dragoman's rehearsal."),
    ],
)
def test_new_file_is_created_after_a_look(said: str, content: str) -> None:
    absent = failed("File does not exist.")
    calls, end = perform(said, CLAUDE_CODE, absent, "created hello.txt")
    assert [name for name, _ in calls] == ["Read", "Write"]
    assert json.loads(calls[1][1]) == {"file_path": "hello.txt", "content": f"{content}\n"}
    assert end == f"{NOTICE} Your client ran the tool.\n\nWrite returned: created hello.txt"


def test_new_file_is_created_by_a_patch_where_there_is_no_other_tool() -> None:
    absent = f"{ENVELOPE}cat: notes/a.md: No such file or directory\n"
    calls, _ = perform("create a file notes/a.md with one\ntwo", CODEX, absent, "Done!")
    patch = "*** Begin Patch\n*** Add File: notes/a.md\n+one\n+two\n*** End Patch\n"
    assert calls[1] == ("apply_patch", patch)


@pytest.mark.parametrize(
    "seen",
    [
        "1\thi there",
        "(hello.txt is empty)",
        "",
        # Files with the words of an error in them, and an error in another language.
        "Error 404: page not found",
        "hello.txt does not exist\nsecond line",
        failed("Datei oder Verzeichnis nicht gefunden"),
        failed("permission denied"),
    ],
)
def test_no_file_is_written_unless_the_look_says_that_there_is_none(seen: str | Result) -> None:
    calls, end = perform("create a file hello.txt with hi", CLAUDE_CODE, seen)
    assert [name for name, _ in calls] == ["Read"]
    assert "I write only new files" in end


def test_client_without_a_tool_that_writes_is_not_made_to_write_by_a_command() -> None:
    absent = "cat: hello.txt: No such file or directory"
    calls, end = perform("create a file hello.txt with hi", CODEX[:1], absent)
    assert [name for name, _ in calls] == ["exec_command"]
    assert "no tool that writes hello.txt" in end


@pytest.mark.parametrize(
    "path",
    [
        "/etc/motd.txt",
        "../up.txt",
        "~/x.txt",
        ".bashrc",
        ".git/hooks/x.sh",
        "a/../../b.txt",
        "a/.env",
    ],
)
def test_no_file_is_created_outside_the_folder_or_hidden(path: str) -> None:
    task = find_task(read_words(f"create a file {path} with hi"))
    assert task.kind != "create"


def test_writing_tool_that_wants_more_than_path_and_content_is_not_used() -> None:
    odd = (CLAUDE_CODE[5], tool("write_file", path="string", content="string", mode="string"))
    calls, end = perform("create a file a.txt with hi", odd, failed("not found"))
    assert [name for name, _ in calls] == ["Read"]
    assert "no tool that writes a.txt" in end


@pytest.mark.parametrize(
    "said", ["what does this project do?", "create a file a.txt with hi", "go on"]
)
@pytest.mark.parametrize("tools", [CODEX, CLAUDE_CODE, WITH_GLOB])
def test_every_task_ends_after_two_rounds_whatever_comes_back(
    said: str, tools: tuple[Tool, ...]
) -> None:
    turns = [Turn(role="user", parts=(Text(text=said),))]
    for rounds in range(4):
        request = Request(turns=tuple(turns), tools=tools)
        outcome = compose(request, "responses", find_scenario("rehearsal"), "seed")
        (part,) = outcome.choices[0].parts
        if isinstance(part, Text):
            assert rounds <= 2
            return
        assert isinstance(part, Call)
        absent = Text(text="a.txt README.md: No such file or directory")
        turns.append(Turn(role="assistant", parts=(part,)))
        turns.append(Turn(role="tool", parts=(Result(call_id=part.call_id, content=(absent,)),)))
    pytest.fail("the task does not end")


def test_a_result_of_many_reminders_that_do_not_end_takes_no_time() -> None:
    start = time.process_time()
    assert readable("<system-reminder>" * 20_000) == "<system-reminder>" * 20_000
    assert readable("a<system-reminder>b\n</system-reminder>c") == "ac"
    assert time.process_time() - start < 2
