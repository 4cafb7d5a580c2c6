"""What `dragoman connect` prints for the SDKs, run as it is: the request must arrive where the gateway's doors are. It is for the
gateway that runs, and for the model that fits the client."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import pytest

from commands import run_command
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from http_servers import QuietHandler, running_server
from ports import free_port
from served import serving

COMMAND = str(Path(sysconfig.get_path("scripts")) / "dragoman")
WAIT = 60

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello there.", "annotations": []}],
        }
    ],
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hello there."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ANSWERS = {"/v1/responses": RESPONSE, "/v1/messages": MESSAGE}


class Doors(QuietHandler):
    """Answers at two doors and remembers what came: path, key, model."""

    seen: ClassVar[list[tuple[str, str, str]]]

    def respond(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = bearer or self.headers.get("x-api-key", "")
        self.seen.append((self.path, key, body["model"]))
        answer = ANSWERS.get(self.path)
        self.answer(200 if answer else 404, json.dumps(answer or {}).encode())


@pytest.mark.parametrize(
    ("client", "path"), [("openai", "/v1/responses"), ("anthropic", "/v1/messages")]
)
def test_the_printed_program_reaches_its_door(client: str, path: str, tmp_path: Path) -> None:
    class Watched(Doors):
        seen: ClassVar[list[tuple[str, str, str]]] = []

    ours = ("DRAGOMAN_", "OPENAI_", "ANTHROPIC_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ["DRAGOMAN_API_KEYS"] = "some-key"

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            encoding="utf-8",
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with running_server(Watched) as address:
        url = f"http://{address}"
        program = run(COMMAND, "connect", client, "--url", url, "--model", "some-model")
        printed = run(sys.executable, "-c", program)
    assert "Hello there." in printed
    assert Watched.seen == [(path, "YOUR-GATEWAY-KEY", "some-model")]


# --- the gateway that runs --------------------------------------------------------------------------------------------


def environment(folder: Path, **more: str) -> dict[str, str]:
    state = str(folder / "state")
    base = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_STATE_HOME": state}
    return {**base, "DRAGOMAN_STORE_URL": "memory:", "DRAGOMAN_PORT": "1", **more}


def connect(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        "connect", *options, cwd=folder, env=environment(folder, **more), timeout=WAIT
    )


def codex_settings(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """The address and the model in what is printed for Codex."""
    assert done.returncode == 0, done.stderr
    written = tomllib.loads(done.stdout)
    return written["model_providers"]["dragoman"]["base_url"], written["model"]


def test_claude_code_may_be_called_as_its_program_is(tmp_path: Path) -> None:
    known = ("--url", "http://127.0.0.1:1", "--model", "m")
    short, whole = (
        run_command("connect", name, *known, cwd=tmp_path, env=environment(tmp_path))
        for name in ("claude", "claude-code")
    )
    assert short.stdout == whole.stdout != ""


def test_without_a_command_the_commands_are_listed(tmp_path: Path) -> None:
    done = run_command(cwd=tmp_path, env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "dragoman launch" in done.stderr
    assert "\n    connect   print what to paste" in done.stderr


def test_the_gateway_that_runs_is_printed_wherever_it_listens(tmp_path: Path) -> None:
    env = environment(tmp_path)
    with serving(tmp_path, env) as served:
        done = connect(tmp_path, "codex")
        assert codex_settings(done) == (f"{served.url}/v1", "rehearsal")
        assert done.stderr == ""
    # A record of a gateway that is gone is not believed.
    done = connect(tmp_path, "codex")
    assert codex_settings(done) == ("http://127.0.0.1:1/v1", "rehearsal")
    assert "no gateway answers at http://127.0.0.1:1; start one: " in done.stderr
    assert "dragoman serve\n" in done.stderr


def test_the_record_of_a_gateway_that_was_killed_is_not_believed(tmp_path: Path) -> None:
    with serving(tmp_path, environment(tmp_path)) as served:
        served.kill()
        assert codex_settings(connect(tmp_path, "codex"))[0] == "http://127.0.0.1:1/v1"


def test_a_gateway_that_forwards_every_name_has_no_model_of_the_configuration(
    tmp_path: Path,
) -> None:
    upstream = f"chat=http://127.0.0.1:{free_port()}/v1"
    with serving(tmp_path, environment(tmp_path), "--upstream", upstream) as served:
        done = connect(tmp_path, "codex")
        assert codex_settings(done) == (f"{served.url}/v1", "your-model")
        assert (
            "no model is known: put its name in place of your-model, or use --model" in done.stderr
        )
        given = connect(tmp_path, "codex", "--model", "qwen3")
        assert codex_settings(given) == (f"{served.url}/v1", "qwen3")


ROUTES = """
[upstreams.r]
kind = "rehearsal"
[[routes]]
model = "gpt-5.5"
upstream = "r"
upstream_model = "rehearsal"
[[routes]]
model = "claude-*"
upstream = "r"
upstream_model = "rehearsal"
"""


@pytest.mark.parametrize("runs", [True, False])
def test_a_client_gets_the_model_that_fits_it(tmp_path: Path, runs: bool) -> None:
    (tmp_path / "dragoman.toml").write_text(ROUTES, encoding="utf-8")

    def check() -> None:
        assert codex_settings(connect(tmp_path, "codex"))[1] == "gpt-5.5"
        claude = connect(tmp_path, "claude-code").stdout
        assert "export ANTHROPIC_MODEL=claude-sonnet-4-5\n" in claude

    if runs:
        with serving(tmp_path, environment(tmp_path)):
            check()
    else:
        check()


def test_a_gateway_that_wants_a_key_gets_a_place_for_it(tmp_path: Path) -> None:
    env = environment(tmp_path, DRAGOMAN_API_KEYS="a-key-of-the-gateway")
    with serving(tmp_path, env) as served:
        done = connect(tmp_path, "codex")
        assert 'env_key = "DRAGOMAN_API_KEY"' in done.stdout
        assert f"the gateway at {served.url} wants a key" in done.stderr
        known = connect(tmp_path, "codex", DRAGOMAN_API_KEYS="a-key-of-the-gateway")
        assert codex_settings(known) == (f"{served.url}/v1", "rehearsal")
        assert "a-key-of-the-gateway" not in known.stdout + known.stderr + done.stdout


def test_a_key_that_the_gateway_accepts_still_has_its_place(tmp_path: Path) -> None:
    key = "a-key-of-the-gateway"
    with serving(tmp_path, environment(tmp_path, DRAGOMAN_API_KEYS=key)) as served:
        done = connect(tmp_path, "codex", "--url", served.url, DRAGOMAN_API_KEY=key)
        assert codex_settings(done) == (f"{served.url}/v1", "rehearsal")
        assert 'env_key = "DRAGOMAN_API_KEY"' in done.stdout
        claude = connect(tmp_path, "claude-code", "--url", served.url, DRAGOMAN_API_KEY=key)
        assert "ANTHROPIC_AUTH_TOKEN=YOUR-GATEWAY-KEY" in claude.stdout
        assert key not in done.stdout + claude.stdout


def test_a_named_configuration_is_not_answered_with_a_gateway_of_other_settings(
    tmp_path: Path,
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(ROUTES, encoding="utf-8")
    with serving(tmp_path, environment(tmp_path)):
        done = connect(tmp_path, "codex", "--config", str(file))
        assert codex_settings(done) == ("http://127.0.0.1:1/v1", "gpt-5.5")
        assert "no gateway answers at http://127.0.0.1:1" in done.stderr
    with serving(tmp_path, environment(tmp_path), "--config", str(file)) as served:
        done = connect(tmp_path, "codex", "--config", str(file))
        assert codex_settings(done) == (f"{served.url}/v1", "gpt-5.5")


def test_a_key_of_the_configuration_does_not_go_to_a_given_address(tmp_path: Path) -> None:
    def reply(request: ReceivedRequest) -> ScriptedReply:
        return json_reply({})

    with ScriptedUpstream.in_thread(reply) as other:
        done = connect(
            tmp_path, "codex", "--url", other.url, DRAGOMAN_API_KEYS="a-key-of-the-gateway"
        )
        assert done.returncode == 0
        assert len(other.requests) == 2
        assert not any("authorization" in request.headers for request in other.requests)


@pytest.mark.parametrize("url", ["http://me:s3cret@127.0.0.1:9", "127.0.0.1:9", "http://a/?x=1"])
def test_an_address_that_cannot_be_used_is_refused(tmp_path: Path, url: str) -> None:
    done = connect(tmp_path, "codex", "--url", url)
    assert done.returncode == 2
    assert "--url: expected an address" in done.stderr
    assert "s3cret" not in done.stderr


# --- written ----------------------------------------------------------------------------------------------------------


def test_codex_gets_a_profile_and_nothing_of_the_user_changes(tmp_path: Path) -> None:
    folder = tmp_path / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text("# mine\n", encoding="utf-8")
    done = connect(tmp_path, "codex", "--write")
    profile = folder / "dragoman.config.toml"
    assert done.returncode == 0, done.stderr
    assert f"wrote {profile}\n" in done.stdout
    assert "codex -p dragoman" in done.stdout
    written = profile.read_text(encoding="utf-8")
    assert tomllib.loads(written)["model_provider"] == "dragoman"
    assert all(line.strip() in done.stdout for line in written.splitlines())
    again = connect(tmp_path, "codex", "--write", "--model", "other")
    assert f"(what was there: {profile}.backup-1)" in again.stdout
    assert Path(f"{profile}.backup-1").read_text(encoding="utf-8") == written
    assert (folder / "config.toml").read_text(encoding="utf-8") == "# mine\n"


def test_claude_code_gets_variables_and_keeps_its_other_settings(tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    before = '{"theme": "dark", "env": {"MINE": "1", "ANTHROPIC_MODEL": "old"}}'
    file.write_text(before, encoding="utf-8")
    done = connect(tmp_path, "claude-code", "--write")
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["theme"] == "dark"
    assert written["env"]["MINE"] == "1"
    assert written["env"]["ANTHROPIC_MODEL"] == "rehearsal"
    assert written["env"]["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert Path(f"{file}.backup-1").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("content", ["not JSON", "[]", '{"env": 7}'])
def test_settings_that_cannot_be_read_are_left_as_they_are(tmp_path: Path, content: str) -> None:
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(content, encoding="utf-8")
    done = connect(tmp_path, "claude-code", "--write")
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert [each.name for each in file.parent.iterdir()] == ["settings.json"]
    assert file.read_text(encoding="utf-8") == content


def test_no_key_is_written(tmp_path: Path) -> None:
    done = connect(tmp_path, "claude-code", "--write", DRAGOMAN_API_KEYS="a-key-of-the-gateway")
    text = (tmp_path / ".claude" / "settings.json").read_text(encoding="utf-8")
    assert "a-key-of-the-gateway" not in text + done.stdout
    assert "ANTHROPIC_AUTH_TOKEN" not in text
    assert "ANTHROPIC_AUTH_TOKEN" in done.stdout


def test_what_has_no_file_or_no_model_is_not_written(tmp_path: Path) -> None:
    assert (
        "--write: expected one of codex, claude-code"
        in connect(tmp_path, "openai", "--write").stderr
    )
    (tmp_path / "dragoman.toml").write_text(
        '[upstreams.a]\nkind = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n', encoding="utf-8"
    )
    done = connect(tmp_path, "codex", "--write")
    assert done.returncode == 2
    assert "--write: expected --model as well" in done.stderr
    assert not (tmp_path / ".codex").exists()
