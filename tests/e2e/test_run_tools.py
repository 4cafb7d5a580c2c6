"""`dragoman run` and what it may do: MCP servers, policies, sandboxes, and files that merely lie in the folder."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply, sse
from pty_command import (
    answer,
    call,
    in_terminal,
    lines_of,
    messages,
    processes_with,
    run_piped,
)
from vendor_wire import Answer, Tool, stream

WORKSHOP = Path(__file__).parents[1] / "support" / "mcp_servers" / "workshop.py"


def options(upstream: ScriptedUpstream) -> tuple[str, ...]:
    return "--upstream", f"chat={upstream.url}/v1", "--model", "some-model"


def workshop_in(folder: Path) -> str:
    """Return the command of the server; a copy, so that its processes can be distinguished from others."""
    copy = folder / "workshop.py"
    copy.write_bytes(WORKSHOP.read_bytes())
    return shlex.join((sys.executable, str(copy)))


def tool_names(request: ReceivedRequest) -> list[str]:
    asked = json.loads(request.body)
    return [each["function"]["name"] for each in asked["tools"]]


def test_tools_of_an_mcp_server_are_offered_called_and_gone_at_the_end(tmp_path: Path) -> None:
    server = workshop_in(tmp_path)

    def script(request: ReceivedRequest) -> ScriptedReply:
        if len(upstream.requests) > 1:
            return answer("Done.")
        (name,) = [name for name in tool_names(request) if name.endswith("echo")]
        return call(name, {"text": "hello there"})

    with ScriptedUpstream.in_thread(script) as upstream:
        done = run_piped(
            tmp_path, "--json", "--yes", "use it", "--mcp", f"shop={server}", *options(upstream)
        )
    assert (done.returncode, done.stderr) == (0, "")
    lines = lines_of(done.stdout)
    assert {"shop__echo", "read", "shell"} <= set(lines[0]["tools"])
    (settled,) = [line for line in lines if line["type"] == "call_settled"]
    assert settled["how"] == "done"
    assert settled["result"]["content"][0]["text"] == "hello there"
    assert processes_with(str(tmp_path)) == []


@pytest.mark.parametrize("how", [(), ("--quiet",), ("--json",)])
def test_server_that_failed_is_in_the_exit_code_and_on_standard_error(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    with ScriptedUpstream.in_thread([answer("Fine.")]) as upstream:
        done = run_piped(tmp_path, "hello", *how, "--mcp", "broken=/bin/false", *options(upstream))
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("MCP server broken ended with exit status 1") == 1
    assert "MCP server broken" not in done.stdout
    assert "Fine." in done.stdout
    if how == ("--quiet",):
        assert done.stdout == "Fine.\n"


def test_server_that_ends_for_good_in_the_middle_is_in_the_exit_code_too(tmp_path: Path) -> None:
    once = "test -e started && exit 1; touch started; exec"
    server = f"{once} {sys.executable} -S {WORKSHOP.parent / 'rough.py'} crashes"
    entry = {"command": "sh", "args": ["-c", server], "cwd": str(tmp_path)}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"shop": entry}}), encoding="utf-8")
    script = [call("shop__crash", {}), answer("It broke.")]
    with ScriptedUpstream.in_thread(script) as upstream:
        done = run_piped(
            tmp_path, "try it", "--quiet", "--yes", "--mcp", str(file), *options(upstream)
        )
    assert (done.returncode, done.stdout) == (4, "It broke.\n")
    assert "MCP server shop ended with exit status 3" in done.stderr


def test_failure_of_the_model_counts_more_than_that_of_a_server(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread(
        [json_reply({"error": {"message": "no"}}, status=400)]
    ) as upstream:
        done = run_piped(tmp_path, "hello", "--mcp", "broken=/bin/false", *options(upstream))
    assert done.returncode == 1


def test_file_in_the_folder_starts_no_program_unless_it_is_named(tmp_path: Path) -> None:
    touch = 'command = ["/bin/sh", "-c", "touch started"]'
    config = tmp_path / "dragoman.toml"
    config.write_text(
        f'[[mcp]]\nname = "evil"\n{touch}\n[[routes]]\nmodel = "*"\nupstream = "r"\nmcp = ["evil"]\n'
        '[upstreams.r]\nkind = "rehearsal"\n',
        encoding="utf-8",
    )
    refused = run_piped(tmp_path, "hello")
    assert refused.returncode == 2
    assert "mcp[0].command: start /bin/sh" in refused.stderr
    assert not (tmp_path / "started").exists()
    # it is no MCP server, and has failed
    assert run_piped(tmp_path, "hello", "--config", "dragoman.toml").returncode == 4
    assert (tmp_path / "started").exists()


def test_policy_allows_and_denies_without_asking(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'allow = ["shell: touch *"]\ndeny = ["write: secret.txt"]\n', encoding="utf-8"
    )
    script = [
        call("shell", {"command": "touch made"}),
        call("write", {"path": "secret.txt", "content": "x"}, "call_2"),
        answer("Done."),
    ]
    with ScriptedUpstream.in_thread(script) as upstream:
        done = run_piped(tmp_path, "do it", "--yes", "--policy", "policy.toml", *options(upstream))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made").exists()
    assert not (tmp_path / "secret.txt").exists()
    assert "denied" in json.dumps(messages(upstream.requests[2])[-1])


def test_rule_that_names_no_tool_is_reported(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('deny = ["mail__*"]\n', encoding="utf-8")
    done = run_piped(tmp_path, "hello", "--policy", "policy.toml")
    assert done.returncode == 0
    assert "'mail__*' names no tool" in done.stdout


def test_agent_without_a_sandbox_says_so(tmp_path: Path) -> None:
    done = run_piped(tmp_path, "hello", "--no-sandbox")
    assert done.returncode == 0
    assert "without a sandbox" in done.stdout


def test_instructions_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "told.md").write_text("Speak in rhymes.\n", encoding="utf-8")
    with ScriptedUpstream.in_thread([answer("Fine."), answer("Fine.")]) as upstream:
        run_piped(tmp_path, "hello", "--instructions", "told.md", *options(upstream))
        run_piped(tmp_path, "hello", *options(upstream))
    assert messages(upstream.requests[0])[0] == {"role": "system", "content": "Speak in rhymes."}
    assert str(tmp_path) in messages(upstream.requests[1])[0]["content"]


def test_root_is_where_it_works(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("the inner one", encoding="utf-8")
    (tmp_path / "outside.txt").write_text("the secret", encoding="utf-8")
    script = [
        call("read", {"path": "a.txt"}),
        call("read", {"path": "../outside.txt"}, "call_2"),
        answer("Done."),
    ]
    with ScriptedUpstream.in_thread(script) as upstream:
        done = run_piped(tmp_path, "look", "--root", "inside", *options(upstream))
    assert done.returncode == 0, done.stderr
    assert "the inner one" in json.dumps(messages(upstream.requests[1])[-1])
    assert "the secret" not in upstream.requests[2].body.decode()


def test_interruption_settles_every_call_that_was_asked_for_and_ends_the_servers(
    tmp_path: Path,
) -> None:
    server = workshop_in(tmp_path)
    calls = tuple(
        Tool(f"call_{number}", "shop__slow", (json.dumps({"name": f"row-{number}"}),))
        for number in range(12)
    )
    with (
        ScriptedUpstream.in_thread([sse(stream("chat", Answer(calls)))]) as upstream,
        in_terminal(
            tmp_path, "wait", "--yes", "--mcp", f"shop={server}", *options(upstream)
        ) as running,
    ):
        running.until("row-0")
        running.press_ctrl_c()
        assert running.wait() == 130
        assert running.screen.count("│ stopped") == len(calls)
    assert processes_with(str(tmp_path)) == []


def test_commands_cannot_read_what_dragoman_keeps_nor_a_configuration_with_keys(
    tmp_path: Path,
) -> None:
    folder, beside = tmp_path / "project", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    secret = "sk-the-secret-of-this-test"
    named = beside / "named.toml"
    lying = folder / "dragoman.toml"
    mcp = folder / "servers.json"
    mcp.write_text(
        json.dumps({"mcpServers": {"shop": {"url": "http://127.0.0.1:9/", "headers": {"Authorization": secret}}}}),
        encoding="utf-8",
    )  # fmt: skip
    command = (
        f"cat {named} {lying} state/dragoman/sessions/*/* store.db; cat plain.toml; echo looked"
    )
    with_mcp = f"cat {mcp}; {command}"
    (folder / "plain.toml").write_text("a = 'plain words'\n", encoding="utf-8")
    script = [answer("First.")]
    for each in (with_mcp, command):
        script += [call("shell", {"command": each}), answer("Done.")]
    with ScriptedUpstream.in_thread(script) as upstream:
        text = (
            f'[store]\nurl = "sqlite:store.db"\n[upstreams.one]\nkind = "chat"\nbase_url = "{upstream.url}/v1"\n'
            f'api_key = "{secret}"\n'
        )
        for file in (named, lying):
            file.write_text(text, encoding="utf-8")
        (folder / "store.db").write_text(secret, encoding="utf-8")
        more = ("--model", "some-model", "--yes", "--json")
        trusting = ("--config", "dragoman.toml")
        done = run_piped(folder, f"remember {secret}", *more, *trusting)
        assert done.returncode == 0, done.stderr
        first = run_piped(folder, "look", *more, "--config", str(named), "--mcp", str(mcp))
        second = run_piped(folder, "look", *more, *trusting)
    for done in (first, second):
        lines = lines_of(done.stdout)
        (settled,) = [line for line in lines if line["type"] == "call_settled"]
        seen = settled["result"]["content"][0]["text"]
        if "in a sandbox" in lines[0]["sandbox"]:
            assert "plain words" in seen
            assert "looked" in seen
            assert secret not in seen
