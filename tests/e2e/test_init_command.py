"""`dragoman init`: what it finds, what it writes, and that the file works as it is."""

import json
import tomllib
from pathlib import Path

import pytest

from commands import run_command
from dragoman.cli.init import CHAT_VENDORS, configuration, find
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from ports import free_port
from pty_command import answer

WAIT = 60.0
SECRET = "sk-this-must-not-be-written"


def environment(folder: Path, **more: str) -> dict[str, str]:
    state = {"XDG_STATE_HOME": str(folder / "state")}
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "DRAGOMAN_STORE_URL": "memory:",
        **state,
        **more,
    }


def listing(*names: str) -> bytes:
    return json.dumps({"data": [{"id": name} for name in names]}).encode()


def model(request: ReceivedRequest) -> ScriptedReply:
    if request.path.endswith("/models"):
        return json_reply({"data": [{"id": "gpt-5.5"}]})
    return answer("Hello there.", "responses")


def test_what_is_written_passes_the_check_and_names_keys_by_their_variables(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread(model) as upstream:
        env = environment(
            tmp_path,
            OPENAI_API_KEY=SECRET,
            OPENAI_BASE_URL=f"{upstream.url}/v1",
            ANTHROPIC_API_KEY=SECRET,
        )
        done = run_command("init", cwd=tmp_path, env=env, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        assert "wrote dragoman.toml" in done.stdout
        assert "openai: OPENAI_API_KEY is set" in done.stdout
        text = (tmp_path / "dragoman.toml").read_text(encoding="utf-8")
        assert SECRET not in text + done.stdout
        written = tomllib.loads(text)
        assert written["upstreams"]["openai"]["api_key_env"] == "OPENAI_API_KEY"
        assert written["upstreams"]["openai"]["base_url"] == f"{upstream.url}/v1"
        assert [route["model"] for route in written["routes"]][:2] == ["gpt-*", "claude-*"]
        assert written["routes"][-1] == {"model": "*", "upstream": "openai"}
        checked = run_command("check", "--offline", cwd=tmp_path, env=env, timeout=WAIT)
        assert checked.returncode == 0, checked.stderr


def test_every_vendor_whose_key_is_there_is_an_upstream_that_passes_the_check(
    tmp_path: Path,
) -> None:
    keys = {variable: f"sk-{name}-secret" for name, (variable, _, _) in CHAT_VENDORS.items()}
    env = environment(tmp_path, **keys)
    done = run_command("init", cwd=tmp_path, env=env, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "dragoman.toml").read_text(encoding="utf-8")
    for name, (variable, url, _) in CHAT_VENDORS.items():
        assert f"[upstreams.{name}]" in text
        assert f'api_key_env = "{variable}"' in text
        assert f'base_url = "{url}"' in text
    assert "secret" not in text + done.stdout + done.stderr
    checked = run_command("check", "--offline", cwd=tmp_path, env=env, timeout=WAIT)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("name", ["azure", "bedrock", "vertex"])
def test_upstream_in_a_cloud_is_there_to_be_uncommented(tmp_path: Path, name: str) -> None:
    done = run_command("init", cwd=tmp_path, env=environment(tmp_path), timeout=WAIT)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "dragoman.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index(f"# [upstreams.{name}]")
    end = lines.index("#", start)
    section = tomllib.loads("\n".join(line.removeprefix("# ") for line in lines[start:end]))
    found = section["upstreams"][name]
    example = Path(__file__).parents[2] / "examples" / "upstreams" / f"{name}.toml"
    wanted = tomllib.loads(example.read_text(encoding="utf-8"))["upstreams"][name]
    assert found == wanted


def test_without_anything_the_rehearsal_answers_and_the_check_is_clean(tmp_path: Path) -> None:
    env = environment(tmp_path)
    text = configuration(find(env, {}))
    (tmp_path / "dragoman.toml").write_text(text, encoding="utf-8")
    checked = run_command("check", cwd=tmp_path, env=env, timeout=WAIT)
    assert checked.returncode == 0, checked.stderr
    assert 'kind = "rehearsal"' in checked.stdout


def test_servers_on_this_machine_are_found_with_their_models(tmp_path: Path) -> None:
    names = ("qwen3:8b", 'odd "name"', "with-*-in-it", "\x1b[2Jhostile")

    def reply(request: ReceivedRequest) -> ScriptedReply:
        assert request.path == "/v1/models"
        return ScriptedReply(content_type="application/json", body=listing(*names))

    with ScriptedUpstream.in_thread(reply) as upstream:
        port = int(upstream.url.rpartition(":")[2])
        servers = {"ollama": ("Ollama", port), "vllm": ("vLLM", free_port())}
        found = find(environment(tmp_path), servers)
        text = configuration(found)
        (tmp_path / "dragoman.toml").write_text(text, encoding="utf-8")
        env = environment(tmp_path)
        checked = run_command("check", "--no-ask", cwd=tmp_path, env=env, timeout=WAIT)
        assert checked.returncode == 0, checked.stderr + text
    written = tomllib.loads(text)
    assert list(written["upstreams"]) == ["ollama"]
    assert [route["model"] for route in written["routes"]] == ["qwen3:8b", 'odd "name"', "*"]
    assert found.upstreams[0].why == f"a server at port {port}, which Ollama uses, has 3 models"
    assert "\x1b" not in text


def test_one_model_is_one_model(tmp_path: Path) -> None:
    reply = ScriptedReply(content_type="application/json", body=listing("only"))
    with ScriptedUpstream.in_thread([reply]) as upstream:
        port = int(upstream.url.rpartition(":")[2])
        found = find(environment(tmp_path), {"vllm": ("vLLM", port)})
    assert found.upstreams[0].why.endswith("has 1 model")


@pytest.mark.parametrize("body", [b"<html>", b'{"data": []}', b'{"data": "x"}'])
def test_a_server_that_is_something_else_is_left_out(tmp_path: Path, body: bytes) -> None:
    with ScriptedUpstream.in_thread([ScriptedReply(body=body)]) as upstream:
        port = int(upstream.url.rpartition(":")[2])
        assert find(environment(tmp_path), {"vllm": ("vLLM", port)}).upstreams == ()


def test_a_password_in_an_address_of_the_environment_is_not_written(tmp_path: Path) -> None:
    address = "https://me:s3cret-of-mine@models.example/v1"
    found = find(environment(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_BASE_URL=address), {})
    text = configuration(found)
    assert found.upstreams == ()
    assert "the address models.example cannot be used as it is" in text
    assert "s3cret" not in text
    tomllib.loads(text)


def test_a_line_break_in_the_environment_cannot_add_keys(tmp_path: Path) -> None:
    address = 'https://models.example/v1"\n[[mcp]]\nname = "evil"\ncommand = ["sh"]\n#'
    text = configuration(
        find(environment(tmp_path, OPENAI_API_KEY="k", OPENAI_BASE_URL=address), {})
    )
    assert "mcp" not in tomllib.loads(text)


def test_codex_is_an_upstream_if_it_is_logged_in(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n", encoding="utf-8")
    (programs / "codex").chmod(0o755)
    env = environment(tmp_path, PATH=str(programs))
    assert "codex: on the PATH, but not logged in" in configuration(find(env, {}))
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text("{}", encoding="utf-8")
    env["CODEX_HOME"] = str(tmp_path / ".codex")
    written = tomllib.loads(configuration(find(env, {})))
    assert written["upstreams"] == {"codex": {"kind": "codex"}}
    assert written["routes"] == [
        {"model": "codex", "upstream": "codex"},
        {"model": "*", "upstream": "codex"},
    ]


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text("# mine\n", encoding="utf-8")
    env = environment(tmp_path)
    done = run_command("init", cwd=tmp_path, env=env, timeout=WAIT)
    assert done.returncode == 2
    assert "dragoman.toml is there already; --force replaces it" in done.stderr
    assert file.read_text(encoding="utf-8") == "# mine\n"
    printed = run_command("init", "--stdout", cwd=tmp_path, env=env, timeout=WAIT)
    assert printed.returncode == 0
    assert file.read_text(encoding="utf-8") == "# mine\n"
    done = run_command("init", "--force", cwd=tmp_path, env=env, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    assert file.read_text(encoding="utf-8") == printed.stdout


def test_a_link_to_nowhere_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "dragoman.toml").symlink_to(target)
    done = run_command("init", cwd=tmp_path, env=environment(tmp_path), timeout=WAIT)
    assert done.returncode == 2
    assert not target.exists()


def test_the_file_is_trusted_until_it_changes(tmp_path: Path) -> None:
    """The user has asked for it. Here it starts a program, which needs trust."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n", encoding="utf-8")
    (programs / "codex").chmod(0o755)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text("{}", encoding="utf-8")
    env = environment(
        tmp_path, PATH=f"{programs}:/usr/bin:/bin", CODEX_HOME=str(tmp_path / ".codex")
    )
    assert run_command("init", cwd=tmp_path, env=env, timeout=WAIT).returncode == 0
    shown = run_command("check", "--offline", cwd=tmp_path, env=env, timeout=WAIT)
    assert "before you trust it" not in shown.stdout
    file = tmp_path / "dragoman.toml"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    shown = run_command("check", "--offline", cwd=tmp_path, env=env, timeout=WAIT)
    assert "before you trust it" in shown.stdout


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").mkdir()
    done = run_command("init", "--force", cwd=tmp_path, env=environment(tmp_path), timeout=WAIT)
    assert done.returncode == 2
    assert "dragoman.toml: expected to write it: Is a directory" in done.stderr
