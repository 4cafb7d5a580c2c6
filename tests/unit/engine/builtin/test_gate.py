"""The gate before a tool, and all tools of the terminal together."""

import asyncio
from pathlib import Path

import pytest

from dragoman.config.policy import read_policy
from dragoman.engine.approval import Approval, Policy
from dragoman.engine.builtin import (
    Ask,
    Consent,
    Gate,
    GuardedTool,
    Root,
    ShellTool,
    TerminalOptions,
    guarded,
    say_yes,
    terminal_tools,
    without_sandbox,
    write_tool,
)
from dragoman.engine.builtin.gate import WAIT_SECONDS
from dragoman.engine.function_tool import tool
from dragoman.engine.tools import Invocation
from dragoman.errors import ConfigError, ToolError
from running_tools import call_of, error_of, run_tool, said


class Person:
    """Gives scripted answers, and records the questions."""

    def __init__(self, *answers: Consent) -> None:
        self.answers = list(answers)
        self.asked: list[Approval] = []

    async def ask(self, approval: Approval) -> Consent:
        self.asked.append(approval)
        await asyncio.sleep(0)
        return self.answers.pop(0)


def guarded_write(root: Path, policy: Policy, person: Person | None = None) -> GuardedTool:
    return guarded(write_tool(Root(root)), policy, person.ask if person else None)


def test_what_is_allowed_is_run_unasked(tmp_path: Path) -> None:
    person = Person()
    run_tool(
        guarded_write(tmp_path, read_policy('allow = ["write: src/**"]'), person),
        path="src/a",
        content="x",
    )
    assert (tmp_path / "src/a").exists()
    assert not person.asked


def test_what_is_denied_is_not_run_nor_asked(tmp_path: Path) -> None:
    person = Person()
    write = guarded_write(tmp_path, read_policy('deny = ["write: *.env"]'), person)
    assert "is denied here by the rule 'write: *.env'" in error_of(write, path=".env", content="x")
    assert not person.asked
    assert not list(tmp_path.iterdir())


def test_yes_runs_it_and_no_does_not(tmp_path: Path) -> None:
    person = Person(True, False)
    write = guarded_write(tmp_path, Policy(), person)
    run_tool(write, path="a", content="x")
    assert "the user refused this call of write" in error_of(write, path="b", content="x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [[subject.text for subject in each.subjects] for each in person.asked] == [["a"], ["b"]]
    assert person.asked[0].call.name == "write"


def test_with_nobody_to_ask_it_is_not_run(tmp_path: Path) -> None:
    write = guarded_write(tmp_path, Policy())
    assert "nobody can be asked" in error_of(write, path="a", content="x")
    assert not list(tmp_path.iterdir())


def test_always_is_for_the_same_thing_and_tool_for_the_whole_tool(tmp_path: Path) -> None:
    person = Person("always", "tool")
    write = guarded_write(tmp_path, read_policy('deny = ["write: .env"]'), person)
    run_tool(write, path="a", content="1")
    run_tool(write, path="a", content="2")
    assert len(person.asked) == 1
    run_tool(write, path="b", content="1")
    run_tool(write, path="c", content="1")
    assert len(person.asked) == 2
    assert "denied" in error_of(write, path=".env", content="x")


def test_yes_to_all_does_not_reach_what_is_denied(tmp_path: Path) -> None:
    write = guarded(write_tool(Root(tmp_path)), read_policy('deny = ["write: .env"]'), say_yes)
    run_tool(write, path="a", content="1")
    assert "denied" in error_of(write, path=".env", content="x")


def shell_behind(root: Path, source: str, ask: Ask | None) -> GuardedTool:
    tool = ShellTool(
        Root(root), sandbox=without_sandbox(root), environment={"PATH": "/usr/bin:/bin"}
    )
    return guarded(tool, read_policy(source), ask)


def test_yes_to_all_does_not_reach_what_may_be_denied_and_cannot_be_seen(tmp_path: Path) -> None:
    shell = shell_behind(tmp_path, 'deny = ["shell: touch *"]', say_yes)
    assert "denied" in error_of(shell, command="touch a")
    words = error_of(shell, command="x=touch; $x a")
    assert "the name of a command is put together when it runs: $x" in words
    assert "Write the command so that all of it can be seen" in words
    assert not list(tmp_path.iterdir())
    # Nothing is denied there: what cannot be seen is as good as anything else.
    run_tool(shell_behind(tmp_path, 'ask = ["shell: touch *"]', say_yes), command="x=touch; $x a")
    assert (tmp_path / "a").exists()


def test_yes_to_a_tool_does_not_reach_what_may_be_denied_and_cannot_be_seen(tmp_path: Path) -> None:
    person = Person("tool", False, "always")
    shell = shell_behind(tmp_path, 'deny = ["shell: touch *"]', person.ask)
    run_tool(shell, command="echo one")
    run_tool(shell, command="echo two")
    assert "refused" in error_of(shell, command="x=touch; $x a")
    assert [asked.may_be_denied for asked in person.asked] == [False, True]
    # The person has seen it, and said yes to this very command: that stands.
    run_tool(shell, command="x=touch; $x b")
    run_tool(shell, command="x=touch; $x b")
    assert len(person.asked) == 3


def test_always_is_for_a_command_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    person = Person("always", False)
    shell = shell_behind(tmp_path, "", person.ask)
    run_tool(shell, command="touch a")
    run_tool(shell, command="touch a")
    assert "refused" in error_of(shell, command="touch a", workdir="other")
    assert len(person.asked) == 2


def test_with_nobody_to_ask_the_reason_is_what_cannot_be_seen(tmp_path: Path) -> None:
    shell = shell_behind(tmp_path, 'default = "allow"\ndeny = ["shell: touch *"]', None)
    words = error_of(shell, command="eval $x")
    assert "needs approval because it evaluates a text" in words


def test_a_link_does_not_lead_around_a_rule(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src/link").symlink_to("../secret")
    write = guarded_write(
        tmp_path, read_policy('allow = ["write: src/**"]\ndeny = ["write: secret/x/**"]')
    )
    assert "needs approval" in error_of(write, path="src/link/a", content="x")
    assert "needs approval" in error_of(write, path="src/link/new/a", content="x")
    assert "is denied" in error_of(write, path="src/link/x/a", content="x")
    assert "is denied" in error_of(write, path="src/../secret/x/a", content="x")
    assert not list((tmp_path / "secret").iterdir())


def test_a_link_that_is_changed_while_a_person_is_asked_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "link").symlink_to("open")

    async def ask(approval: Approval) -> Consent:
        assert [subject.text for subject in approval.subjects] == ["link/a", "open/a"]
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("secrets")
        return True

    write = guarded(write_tool(Root(tmp_path)), read_policy('deny = ["write: secrets/**"]'), ask)
    assert "leads elsewhere now" in error_of(write, path="link/a", content="x")
    assert not list((tmp_path / "secrets").iterdir())


def test_arguments_that_do_not_fit_are_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    person = Person()
    write = guarded_write(tmp_path, Policy(), person)
    assert "cannot take" in error_of(write, path="a")
    assert "leads out" in error_of(write, path="../a", content="x")
    assert not person.asked


def test_questions_come_one_at_a_time(tmp_path: Path) -> None:
    at_once = 0
    most = 0

    async def ask(_: Approval) -> Consent:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return "tool"

    write = guarded(write_tool(Root(tmp_path)), Policy(), ask)

    async def go() -> None:
        calls = [call_of(write, f'{{"path":"f{n}","content":""}}') for n in range(4)]
        await asyncio.gather(*(write.run(Invocation(call, lambda _: None)) for call in calls))

    asyncio.run(go())
    assert most == 1
    assert len(list(tmp_path.iterdir())) == 4


def test_a_question_that_is_cancelled_runs_nothing(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def ask(_: Approval) -> Consent:
        asked.set()
        await asyncio.Event().wait()
        return True

    write = guarded(write_tool(Root(tmp_path)), Policy(), ask)

    async def go() -> None:
        call = call_of(write, '{"path":"a","content":""}')
        task = asyncio.ensure_future(write.run(Invocation(call, lambda _: None)))
        await asyncio.wait_for(asked.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert not list(tmp_path.iterdir())


def test_the_time_of_a_tool_begins_after_the_answer() -> None:
    @tool(timeout=1.5)
    async def slow(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "done"

    async def ask(_: Approval) -> Consent:
        await asyncio.sleep(2.0)
        return True

    gate = guarded(slow, Policy(), ask)
    assert gate.offer.timeout == WAIT_SECONDS
    assert said(run_tool(gate, seconds=0)) == "done"
    assert "took more than 1.5 s" in error_of(gate, seconds=600)


def test_a_time_limit_of_the_tools_own_is_not_the_gates() -> None:
    @tool
    async def broken() -> str:
        """Break."""
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run_tool(guarded(broken, Policy(), say_yes))


def test_any_tool_can_be_guarded() -> None:
    @tool(parallel=True)
    def fetch(url: str) -> str:
        """Fetch."""
        return url

    gate = Gate(read_policy("""allow = ['fetch: {"url":"https://a/*']"""), None)
    made = guarded(fetch, gate)
    assert made.offer.is_parallel
    assert made.offer.declaration is fetch.offer.declaration
    assert made.inner is fetch
    assert said(run_tool(made, url="https://a/b")) == "https://a/b"
    with pytest.raises(ToolError):
        run_tool(made, url="https://b/")


def test_all_tools_of_the_terminal_are_there(tmp_path: Path) -> None:
    tools = terminal_tools(tmp_path)
    names = [each.offer.declaration.name for each in tools]
    assert names == ["read", "glob", "grep", "write", "edit", "apply_patch", "shell"]
    assert [each.offer.is_parallel for each in tools] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert tools.sandbox.summary in (tools[-1].offer.declaration.description or "")


def test_by_default_reading_is_allowed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n", encoding="utf-8")
    tools = {each.offer.declaration.name: each for each in terminal_tools(tmp_path)}
    assert "x" in said(run_tool(tools["read"], path="a"))
    assert "a" in said(run_tool(tools["glob"], pattern="*"))
    assert "a:1:x" in said(run_tool(tools["grep"], pattern="x"))
    for name, arguments in {
        "write": {"path": "b", "content": ""},
        "edit": {"path": "a", "old_string": "x", "new_string": "y"},
        "apply_patch": {"input": "*** Begin Patch\n*** Delete File: a\n*** End Patch"},
        "shell": {"command": "true"},
    }.items():
        assert "nobody can be asked" in error_of(tools[name], **arguments)


def test_what_may_not_be_read_is_not_found_by_searching(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("word\n", encoding="utf-8")
    (tmp_path / "a").write_text("word\n", encoding="utf-8")
    for verdict in ("deny", "ask"):
        policy = read_policy(f'{verdict} = ["read: .env"]')
        tools = {
            each.offer.declaration.name: each for each in terminal_tools(tmp_path, policy=policy)
        }
        assert said(run_tool(tools["grep"], pattern="word")) == "a:1:word"


def test_options_choose_the_kinds(tmp_path: Path) -> None:
    options = TerminalOptions(freeform_patch=True, local_shell=True)
    tools = terminal_tools(tmp_path, sandbox="off", options=options)
    kinds = {each.offer.declaration.name: each.offer.declaration.kind for each in tools}
    assert kinds["apply_patch"] == "custom"
    assert kinds["local_shell"] == "local_shell"
    assert not tools.sandbox.is_on


def test_a_root_that_is_no_folder_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="to be a folder"):
        terminal_tools(tmp_path / "none")
