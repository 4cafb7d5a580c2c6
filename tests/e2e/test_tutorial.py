"""The commands of docs/tutorial.md, run in their order. A scripted server stands in for Ollama, and a program that asks one question
for Claude Code; `clients/test_launch.py` launches the real one."""

import re
import shlex
import tomllib
from pathlib import Path

from commands import run_command
from dragoman.cli.init import configuration, find
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from launched import client_environment, install_client, said
from pty_command import answer
from served import serving

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
OLLAMA = "http://127.0.0.1:11434"
MODEL = "qwen3-coder"
WAIT = 60.0


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def model(request: ReceivedRequest) -> ScriptedReply:
    if request.path == "/v1/models":
        return json_reply({"object": "list", "data": [{"id": MODEL}]})
    return answer("Hello there.")


def test_every_command_of_the_tutorial_works_in_its_order(tmp_path: Path) -> None:
    install_client(tmp_path)
    env = client_environment(tmp_path)
    ran: list[str] = []
    with ScriptedUpstream.in_thread(model) as ollama:
        for command in "".join(blocks("sh")).replace(OLLAMA, ollama.url).splitlines():
            program, name, *options = shlex.split(command)
            assert program == "dragoman"
            ran.append(name)
            if name == "serve":
                break
            words = [name, *options, *(["--", "ask"] if command.endswith(" claude") else [])]
            done = run_command(*words, cwd=tmp_path, env=env, timeout=WAIT)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            if name == "launch":
                assert said(done.stdout)["environ"]["ANTHROPIC_MODEL"] == MODEL
                assert f"Claude Code uses {MODEL} at http://127.0.0.1:" in done.stderr
            if command.endswith(" claude"):
                assert said(done.stdout)["answer"]["content"][0]["text"] == "Hello there."
            if name == "init":
                # Ollama's own port may be in use on this machine, or not: the file is the one for the scripted server.
                [written] = blocks("toml")
                text = written.replace(OLLAMA, ollama.url)
                (tmp_path / "dragoman.toml").write_text(text, encoding="utf-8")
        assert ran == ["launch", "launch", "init", "check", "serve"]
        with serving(tmp_path, env) as gateway:
            done = run_command(
                "connect", "claude-code", "--url", gateway.url, cwd=tmp_path, env=env, timeout=WAIT
            )
            assert f"export ANTHROPIC_MODEL={MODEL}" in done.stdout, done.stderr
    assert "dragoman connect claude-code\n" in blocks("sh")


def test_init_writes_the_configuration_that_the_tutorial_shows(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread(model) as ollama:
        port = int(ollama.url.rpartition(":")[2])
        found = find(client_environment(tmp_path), {"ollama": ("Ollama", port)})
    [shown] = blocks("toml")
    written = tomllib.loads(configuration(found).replace(ollama.url, OLLAMA))
    assert tomllib.loads(shown) == {key: written[key] for key in ("upstreams", "routes")}
