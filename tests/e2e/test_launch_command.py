"""`dragoman launch`: a process with a gateway of its own, a client in the foreground, and everything that can go wrong between them.

The client is a stand-in here; `clients/test_launch.py` launches the real ones.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from codex_app_server import alive, app_server, pids, text
from commands import Command, run_command
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from gateway_harness import wait_until
from launched import client_environment, install_client, said
from ports import free_port
from pty_command import answer, in_terminal
from served import serving

WAIT = 60.0


def model(*names: str, **fields: object) -> Any:
    """An upstream that speaks Chat, lists these models and says hello."""

    def reply(request: ReceivedRequest) -> ScriptedReply:
        if request.path == "/v1/models":
            return json_reply(
                {"object": "list", "data": [{"id": each, **fields} for each in names]}
            )
        if request.path == "/v1/chat/completions":
            return answer("Hello there.")
        return json_reply({"error": {"message": "no such path"}}, status=404)

    return ScriptedUpstream.in_thread(reply)


def launch(
    folder: Path, *arguments: str, client: str = "claude", **environ: str
) -> subprocess.CompletedProcess[str]:
    install_client(folder, client)
    env = client_environment(folder, environ)
    return run_command("launch", *arguments, cwd=folder, env=env, timeout=WAIT)


def test_the_only_model_of_an_upstream_answers_through_a_gateway_that_ends_with_the_client(
    tmp_path: Path,
) -> None:
    with model("qwen3-coder", max_model_len=32768) as upstream:
        done = launch(
            tmp_path, "--upstream", f"chat={upstream.url}/v1", "claude", "--", "ask", "code=7"
        )
    assert done.returncode == 7, done.stderr
    heard = said(done.stdout)
    environ = heard["environ"]
    assert heard["arguments"][2:] == ["ask", "code=7"]
    assert heard["answer"]["content"][0]["text"] == "Hello there."
    assert environ["ANTHROPIC_MODEL"] == "qwen3-coder"
    assert environ["ENABLE_TOOL_SEARCH"] == "true"
    assert environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "32768"
    assert environ["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    # The variables of the user's settings would win over the environment, and the file wins over both.
    (settings,) = heard["files"].values()
    assert json.loads(settings)["env"].items() <= environ.items()
    # Nothing is left: no port, no file with the key.
    url = environ["ANTHROPIC_BASE_URL"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5).close()
    assert not Path(heard["arguments"][1]).exists()
    assert (
        f"Claude Code uses qwen3-coder at {url}; its log: {tmp_path}/state/dragoman/launch.log"
        in done.stderr
    )
    log = (tmp_path / "state" / "dragoman" / "launch.log").read_text(encoding="utf-8")
    assert '"door":"messages"' in log
    assert environ["ANTHROPIC_AUTH_TOKEN"] not in log + done.stderr


def test_a_fresh_interpreter_launches_too(tmp_path: Path) -> None:
    install_client(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "launch", "claude", "--", "ask", "code=3"],
        cwd=tmp_path,
        env=client_environment(tmp_path),
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert said(done.stdout)["environ"]["ANTHROPIC_MODEL"] == "rehearsal"
    assert "the rehearsal answers" in done.stderr


def test_only_the_client_can_use_the_gateway(tmp_path: Path) -> None:
    done = launch(tmp_path, "claude", "--", "ask-without-key")
    assert said(done.stdout)["answer"]["status"] == 401
    key = tmp_path / "state" / "dragoman" / "launch.key"
    assert key.stat().st_mode & 0o077 == 0
    # What is stored belongs to the key: it is the same in the next launch.
    again = said(launch(tmp_path, "claude").stdout)
    assert again["environ"]["ANTHROPIC_AUTH_TOKEN"] == key.read_text(encoding="ascii")
    assert not any(key.read_text(encoding="ascii") in word for word in again["arguments"])


def test_the_client_has_a_folder_of_its_own_unless_the_users_is_shared(tmp_path: Path) -> None:
    mine = {"CLAUDE_CONFIG_DIR": str(tmp_path / "mine")}
    own = said(launch(tmp_path, "claude", **mine).stdout)["environ"]
    assert own["CLAUDE_CONFIG_DIR"] == str(tmp_path / "state" / "dragoman" / "clients" / "claude")
    shared = said(launch(tmp_path, "--share-home", "claude", **mine).stdout)["environ"]
    assert shared["CLAUDE_CONFIG_DIR"] == str(tmp_path / "mine")
    assert list((tmp_path / "home").iterdir()) == []


def test_variables_that_lead_elsewhere_do_not_reach_the_client(tmp_path: Path) -> None:
    elsewhere = {
        "ANTHROPIC_API_KEY": "sk-mine",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "CLAUDE_CODE_OAUTH_TOKEN": "mine",
        "ENABLE_TOOL_SEARCH": "auto",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "example.org",
    }
    done = launch(tmp_path, "--upstream", "rehearsal", "claude", "--", "ask", **elsewhere)
    environ = said(done.stdout)["environ"]
    assert not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_OAUTH_TOKEN"} & set(
        environ
    )
    assert environ["ENABLE_TOOL_SEARCH"] == "auto"
    assert environ["NO_PROXY"].startswith("example.org,127.0.0.1")
    assert said(done.stdout)["answer"]["role"] == "assistant"


def test_codex_gets_its_settings_as_overrides_and_its_key_by_a_variable(tmp_path: Path) -> None:
    done = launch(tmp_path, "--model", "some-model", "codex", "--", "exec", client="codex")
    assert done.returncode == 0, done.stderr
    heard = said(done.stdout)
    words = heard["arguments"]
    overrides = dict(word.split("=", 1) for word in words if "=" in word)
    assert overrides["model"] == '"some-model"'
    assert overrides["model_provider"] == '"dragoman"'
    assert 'env_key="DRAGOMAN_API_KEY"' in overrides["model_providers.dragoman"]
    assert words[-1] == "exec"
    key = heard["environ"]["DRAGOMAN_API_KEY"]
    assert not any(key in word for word in words)


# --- settings that stay -----------------------------------------------------------------------------------------------


def test_write_leaves_the_settings_that_connect_writes_and_launches(tmp_path: Path) -> None:
    with model("qwen3-coder") as upstream:
        chat = f"chat={upstream.url}/v1"
        done = launch(tmp_path, "--write", "--upstream", chat, "claude", "--", "ask", "code=7")
    assert done.returncode == 7, done.stderr
    heard = said(done.stdout)  # standard output is the client's alone
    assert heard["answer"]["content"][0]["text"] == "Hello there."
    file = tmp_path / "home" / ".claude" / "settings.json"
    written = json.loads(file.read_text(encoding="utf-8"))["env"]
    # The gateway of this launch ends with it, so the settings name the configured address.
    assert written["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert written["ANTHROPIC_MODEL"] == "qwen3-coder"
    assert written["ANTHROPIC_AUTH_TOKEN"] == "unused"
    assert heard["environ"]["ANTHROPIC_AUTH_TOKEN"] not in file.read_text(encoding="utf-8")
    assert f"dragoman: wrote {file}\n" in done.stderr
    assert "no gateway answers at http://127.0.0.1:1 yet; start it: " in done.stderr
    assert f"dragoman serve --upstream {chat}\n" in done.stderr


def test_write_names_the_gateway_that_runs_and_keeps_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".codex"
    folder.mkdir(parents=True)
    profile = folder / "dragoman.config.toml"
    profile.write_text("# before\n", encoding="utf-8")
    key = "a-key-of-the-gateway"
    with serving(tmp_path, {"DRAGOMAN_STORE_URL": "memory:", "DRAGOMAN_API_KEYS": key}) as served:
        done = launch(
            tmp_path, "--write", "--url", served.url, "codex", client="codex", DRAGOMAN_API_KEY=key
        )
        assert done.returncode == 0, done.stderr
        written = tomllib.loads(profile.read_text(encoding="utf-8"))
        assert written["model_providers"]["dragoman"]["base_url"] == f"{served.url}/v1"
        assert written["model_providers"]["dragoman"]["env_key"] == "DRAGOMAN_API_KEY"
    backup = Path(f"{profile}.backup-1")
    assert backup.read_text(encoding="utf-8") == "# before\n"
    assert key not in profile.read_text(encoding="utf-8")
    assert "yet; start it" not in done.stderr


def test_nothing_is_launched_if_the_settings_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".claude" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text("not JSON", encoding="utf-8")
    done = launch(tmp_path, "--write", "--upstream", "rehearsal", "claude")
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert done.stdout == ""
    assert file.read_text(encoding="utf-8") == "not JSON"
    assert "no upstream is configured" not in done.stderr  # the command line named the rehearsal


# --- the gateway that runs --------------------------------------------------------------------------------------------


def test_the_gateway_at_the_configured_address_is_used_and_goes_on(tmp_path: Path) -> None:
    install_client(tmp_path)
    with serving(tmp_path, {"DRAGOMAN_STORE_URL": "memory:"}) as served:
        env = client_environment(tmp_path, {"DRAGOMAN_PORT": str(served.port)})
        done = run_command("launch", "claude", "--", "ask", cwd=tmp_path, env=env, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        heard = said(done.stdout)
        assert heard["environ"]["ANTHROPIC_BASE_URL"] == served.url
        assert heard["environ"]["ANTHROPIC_MODEL"] == "rehearsal"
        assert heard["answer"]["role"] == "assistant"
        # `--url` names it, whatever is configured.
        env = client_environment(tmp_path)
        done = run_command("launch", "--url", f"{served.url}/v1", "claude", cwd=tmp_path, env=env)
        assert said(done.stdout)["environ"]["ANTHROPIC_BASE_URL"] == served.url
    assert not (tmp_path / "state" / "dragoman" / "launch.log").exists()


def test_an_upstream_on_the_command_line_gets_a_gateway_of_its_own(tmp_path: Path) -> None:
    install_client(tmp_path)
    with (
        serving(tmp_path, {"DRAGOMAN_STORE_URL": "memory:"}) as served,
        model("local-model") as upstream,
    ):
        env = client_environment(tmp_path, {"DRAGOMAN_PORT": str(served.port)})
        options = ("--upstream", f"chat={upstream.url}/v1")
        done = run_command("launch", *options, "claude", cwd=tmp_path, env=env, timeout=WAIT)
    environ = said(done.stdout)["environ"]
    assert environ["ANTHROPIC_BASE_URL"] != served.url
    assert environ["ANTHROPIC_MODEL"] == "local-model"


def test_a_gateway_with_other_settings_is_not_asked_for_models_of_ours(tmp_path: Path) -> None:
    """It was started with `--upstream`; this folder's configuration would say `rehearsal`."""
    install_client(tmp_path)
    with (
        model("local-model") as upstream,
        serving(
            tmp_path, {"DRAGOMAN_STORE_URL": "memory:"}, "--upstream", f"chat={upstream.url}/v1"
        ) as served,
    ):
        env = client_environment(tmp_path, {"DRAGOMAN_PORT": str(served.port)})
        done = run_command("launch", "claude", "--", "ask", cwd=tmp_path, env=env, timeout=WAIT)
        assert "Claude Code uses local-model" in done.stderr
    assert said(done.stdout)["answer"]["content"][0]["text"] == "Hello there."


def test_a_gateway_with_keys_gets_the_configured_one(tmp_path: Path) -> None:
    install_client(tmp_path)
    keys = {"DRAGOMAN_STORE_URL": "memory:", "DRAGOMAN_API_KEYS": "a-key-of-the-gateway"}
    with serving(tmp_path, keys) as served:
        base = {"DRAGOMAN_PORT": str(served.port)}
        for more in (
            {"DRAGOMAN_API_KEYS": "a-key-of-the-gateway"},
            {"DRAGOMAN_API_KEY": "a-key-of-the-gateway"},
        ):
            env = client_environment(tmp_path, base | more)
            done = run_command("launch", "claude", "--", "ask", cwd=tmp_path, env=env)
            assert said(done.stdout)["answer"]["role"] == "assistant", done.stderr
        done = run_command("launch", "claude", cwd=tmp_path, env=client_environment(tmp_path, base))
    assert done.returncode == 2
    assert f"the gateway at {served.url} wants a key: set DRAGOMAN_API_KEY" in done.stderr


def test_a_port_that_something_else_holds_is_left_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = launch(tmp_path, "claude", "--", "ask", DRAGOMAN_PORT=str(port))
    assert done.returncode == 0, done.stderr
    heard = said(done.stdout)
    assert not heard["environ"]["ANTHROPIC_BASE_URL"].endswith(f":{port}")
    assert heard["answer"]["role"] == "assistant"


def test_a_gateway_that_is_killed_while_the_client_runs_leaves_the_client_running(
    tmp_path: Path,
) -> None:
    install_client(tmp_path)
    with serving(tmp_path, {"DRAGOMAN_STORE_URL": "memory:"}) as served:
        env = {"DRAGOMAN_PORT": str(served.port), "XDG_STATE_HOME": str(tmp_path / "state")}
        env = client_environment(tmp_path, env)
        with in_terminal(
            tmp_path, "claude", "--", "wait", "code=4", env=env, command="launch"
        ) as running:
            running.until("waiting")
            running.type("ask\n")
            running.until('"role": "assistant"')
            served.kill()
            running.type("ask\n")
            running.until('"refused"')
            running.type("end\n")
            assert running.wait() == 4


def test_a_session_ends_with_the_command_that_continues_it(tmp_path: Path) -> None:
    with model("local-model") as upstream:
        install_client(tmp_path)
        env = client_environment(tmp_path)
        options = ("--upstream", f"chat={upstream.url}/v1")
        with in_terminal(tmp_path, *options, "claude", env=env, command="launch") as running:
            assert running.wait() == 0
    said_last = running.raw.strip().splitlines()[-1]
    assert said_last.startswith("dragoman: to continue this session: ")
    same = f"dragoman launch --upstream chat={upstream.url}/v1 claude -- --continue"
    assert said_last.endswith(same)


# --- signals ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_is_for_the_client(tmp_path: Path) -> None:
    install_client(tmp_path)
    env = client_environment(tmp_path)
    with in_terminal(
        tmp_path, "claude", "--", "listen", "code=5", env=env, command="launch"
    ) as running:
        running.until("waiting")
        running.press_ctrl_c()
        running.until("interrupted")
        running.type("ask\n")
        # Once, not twice: the terminal sends it to the client already.
        assert "interrupted" not in running.until('"role": "assistant"')
        running.type("end\n")
        assert running.wait() == 5


def test_ctrl_c_that_ends_the_client_ends_the_launch(tmp_path: Path) -> None:
    install_client(tmp_path)
    env = client_environment(tmp_path)
    with in_terminal(tmp_path, "claude", "--", "wait", env=env, command="launch") as running:
        running.until("waiting")
        running.press_ctrl_c()
        code = running.wait()
    # Python ends by its own exception, other programs by the signal.
    assert code in (1, 128 + signal.SIGINT)
    assert "dragoman: " not in running.raw.partition("waiting")[2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 9), (signal.SIGINT, None)])
def test_a_signal_for_the_launch_alone_is_passed_on(
    tmp_path: Path, number: signal.Signals, code: int | None
) -> None:
    install_client(tmp_path)
    ours, theirs = os.pipe()
    output = tmp_path / "output"
    with output.open("wb") as stream:
        files = (ours, stream.fileno(), stream.fileno())
        arguments = ("launch", "claude", "--", "listen")
        env = client_environment(tmp_path)
        with Command(arguments, cwd=tmp_path, env=env, files=files) as command:
            os.close(ours)
            wait_until(lambda: b"waiting" in output.read_bytes(), WAIT)
            command.send_signal(number)
            if code is None:
                wait_until(lambda: b"interrupted" in output.read_bytes(), WAIT)
                os.write(theirs, b"end\n")
            assert command.wait(WAIT) == (code or 0)
    os.close(theirs)


def test_a_client_that_is_killed_ends_the_launch_with_the_code_of_shells(tmp_path: Path) -> None:
    assert launch(tmp_path, "claude", "--", "die").returncode == 128 + signal.SIGKILL


# --- what cannot work -------------------------------------------------------------------------------------------------


def test_a_client_that_is_not_installed_is_named_with_the_way_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    done = run_command("launch", "codex", cwd=tmp_path, env=client_environment(tmp_path))
    assert done.returncode == 2
    assert "expected Codex CLI as 'codex' on the PATH, found none" in done.stderr
    assert "npm install -g @openai/codex" in done.stderr


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    program = install_client(tmp_path) / "claude"
    program.write_text("#!/nowhere/at/all\n", encoding="utf-8")
    done = run_command("launch", "claude", cwd=tmp_path, env=client_environment(tmp_path))
    assert done.returncode == 2
    assert f"expected to start {program}: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_several_models_are_the_users_choice(tmp_path: Path) -> None:
    with model("one", "two", "three") as upstream:
        done = launch(tmp_path, "--upstream", f"chat={upstream.url}/v1", "claude")
    assert done.returncode == 2
    assert "expected --model: the upstream has several models: one, two, three" in done.stderr


def test_a_model_that_the_upstream_does_not_list_is_noted(tmp_path: Path) -> None:
    with model("one", "two") as upstream:
        address = ("--upstream", f"chat={upstream.url}/v1")
        done = launch(tmp_path, *address, "--model", "three", "claude", "--", "ask")
    assert "--model: no upstream lists three; listed: one, two" in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("named", [(), ("--model", "local-model")])
def test_an_upstream_that_does_not_answer_is_reported_and_the_client_is_not_started(
    tmp_path: Path, named: tuple[str, ...]
) -> None:
    port = free_port()
    done = launch(tmp_path, "--upstream", f"chat=http://127.0.0.1:{port}/v1", *named, "claude")
    assert done.returncode == 2
    assert "upstreams.chat: upstream 'chat' cannot be reached: Connection refused" in done.stderr
    assert str(port) in done.stderr
    assert "start the server first, or correct --upstream" in done.stderr
    assert done.stdout == ""


def test_a_missing_version_in_the_address_is_added(tmp_path: Path) -> None:
    with model("local-model") as upstream:
        done = launch(tmp_path, "--upstream", f"chat={upstream.url}", "claude", "--", "ask")
        assert said(done.stdout)["answer"]["content"][0]["text"] == "Hello there.", done.stderr
        assert f"{upstream.url}/v1 has one and is used" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--upstream", "chat=http://me:s3cret@127.0.0.1:9/v1"),
        ("--url", "http://me:s3cret@127.0.0.1:9"),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(
    tmp_path: Path, options: tuple[str, str]
) -> None:
    done = launch(tmp_path, *options, "claude")
    assert done.returncode == 2
    assert "without user and password" in done.stderr
    assert "s3cret" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--key-env", "KEY", "claude"), "--key-env: expected --upstream beside it"),
        (("--upstream", "chat=http://127.0.0.1:9/v1", "--key-env", "KEY", "claude"), "variable KEY, it is not set"),
        (("--context-window", "0", "claude"), "--context-window: expected a number of tokens, got 0"),
        (("--url", "http://127.0.0.1:1", "claude"), "none answers there"),
        (("--url", "nowhere", "claude"), "--url: expected an address such as"),
        (("--url", "http://127.0.0.1:1", "--upstream", "rehearsal", "claude"), "leave --upstream and --config out"),
        (("--config", "none.toml", "claude"), "none.toml: expected a readable file"),
    ],
)  # fmt: skip
def test_options_that_cannot_work_are_explained(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = launch(tmp_path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_the_key_of_the_upstream_comes_from_the_named_variable(tmp_path: Path) -> None:
    with model("m") as upstream:
        options = ("--upstream", f"chat={upstream.url}/v1", "--key-env", "MY_KEY")
        done = launch(tmp_path, *options, "claude", "--", "ask", MY_KEY="sk-of-the-upstream")
        assert done.returncode == 0, done.stderr
        keys = {request.headers.get("authorization") for request in upstream.requests}
    assert keys == {"Bearer sk-of-the-upstream"}


def test_a_configuration_of_the_folder_is_not_used_before_it_is_trusted(tmp_path: Path) -> None:
    with model("m") as upstream:
        (tmp_path / "dragoman.toml").write_text(
            f"""
[upstreams.theirs]
kind = "chat"
base_url = "{upstream.url}/v1"
api_key_env = "MINE"
[[mcp]]
name = "evil"
command = ["/bin/sh", "-c", "touch started"]
[hosted]
servers = ["evil"]
""",
            encoding="utf-8",
        )
        done = launch(tmp_path, "claude", "--", "ask", MINE="secret-of-mine")
        assert (done.returncode, done.stdout) == (2, "")
        assert "it is not used before you trust it" in done.stderr
        assert upstream.requests == []
    assert not (tmp_path / "started").exists()


def test_a_model_that_no_route_takes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[upstreams.r]\nkind = "rehearsal"\n[[routes]]\nmodel = "rehearsal*"\nupstream = "r"\n',
        encoding="utf-8",
    )
    done = launch(tmp_path, "--config", "c.toml", "--model", "gpt-9", "claude")
    assert done.returncode == 2
    assert "--model: no route takes 'gpt-9'; the routes take: rehearsal*" in done.stderr


def test_programs_that_the_gateway_starts_end_with_it(tmp_path: Path) -> None:
    """The gateway runs in a thread, and starts and ends children there."""
    settings = app_server(tmp_path, [[text("From the app-server.")]])
    command = json.dumps(list(settings.command))
    (tmp_path / "c.toml").write_text(
        f'[upstreams.codex]\nkind = "codex"\ncommand = {command}\n', encoding="utf-8"
    )
    done = launch(tmp_path, "--config", "c.toml", "claude", "--", "ask")
    assert done.returncode == 0, done.stderr
    heard = said(done.stdout)
    assert heard["environ"]["ANTHROPIC_MODEL"] == "codex"
    assert heard["answer"]["content"][0]["text"] == "From the app-server."
    assert pids(tmp_path)
    assert alive(tmp_path) == []


def test_an_upstream_that_wants_the_clients_key_gets_one_of_the_environment(tmp_path: Path) -> None:
    with model("m") as upstream:
        (tmp_path / "c.toml").write_text(
            f'[upstreams.a]\nkind = "chat"\nbase_url = "{upstream.url}/v1"\napi_key = "client"\n',
            encoding="utf-8",
        )
        done = launch(tmp_path, "--config", "c.toml", "claude")
        assert done.returncode == 2
        assert "upstreams.a.api_key: the client must send the key" in done.stderr
        done = launch(
            tmp_path, "--config", "c.toml", "claude", "--", "ask", DRAGOMAN_UPSTREAM_KEY="sk-mine"
        )
        assert said(done.stdout)["answer"]["content"][0]["text"] == "Hello there.", done.stderr
        assert upstream.requests[-1].headers["authorization"] == "Bearer sk-mine"


def test_a_state_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be", encoding="utf-8")
    done = launch(tmp_path, "claude")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected to write" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_log_begins_anew_when_it_is_large_and_follows_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "dragoman"
    folder.mkdir(parents=True)
    (folder / "launch.log").write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    assert launch(tmp_path, "claude", "--", "ask").returncode == 0
    assert (folder / "launch.log").stat().st_size < 10_000
    assert (folder / "launch.log.1").stat().st_size > 4_000_000
    (folder / "launch.log").unlink()
    (folder / "launch.log").symlink_to(tmp_path / "elsewhere")
    done = launch(tmp_path, "claude")
    assert done.returncode == 2
    assert "expected to write the log" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_two_launches_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    install_client(tmp_path)
    env = client_environment(tmp_path)
    with (
        in_terminal(tmp_path, "claude", "--", "wait", "code=3", env=env, command="launch") as one,
        in_terminal(tmp_path, "claude", "--", "wait", "code=4", env=env, command="launch") as two,
    ):
        for running in (one, two):
            running.until("waiting")
        one.type("end\n")
        assert one.wait() == 3
        two.type("ask\n")
        two.until('"role": "assistant"')
        two.type("end\n")
        assert two.wait() == 4
