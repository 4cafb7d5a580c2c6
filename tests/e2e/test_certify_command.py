"""`dragoman certify`: the screen, the JSON, the file, the exit codes; and that a gateway with the section works."""

import json
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from certified_model import CertifiedModel
from check_command import environment, run
from commands import run_command
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from ports import free_port
from served import serving
from vendor_errors import error_body

KEY = "sk-certify-must-not-be-shown"
WAIT = 120.0
Json = dict[str, Any]


def refuse_strict(body: Json) -> str | None:
    functions = [tool.get("function", tool) for tool in body.get("tools") or ()]
    return "strict is not supported" if any(each.get("strict") for each in functions) else None


def refuse_late_system(body: Json) -> str | None:
    roles = [message["role"] for message in body["messages"]]
    return "System message must be at the beginning." if "system" in roles[1:] else None


FAULTY = CertifiedModel(refuses=(refuse_strict, refuse_late_system))


def certify(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**environment(folder), **variables}
    done = run_command("certify", "--patience", "10", *arguments, cwd=folder, env=env, timeout=WAIT)
    assert KEY not in done.stdout + done.stderr
    return done


def test_a_good_upstream_is_clean_and_its_section_is_its_address(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread(CertifiedModel()) as upstream:
        done = certify(tmp_path, f"{upstream.url}/v1", UNUSED=KEY)
        asked = len(upstream.requests)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{upstream.url}/v1: chat, model small-model"
    assert "at most 160 requests" not in lines[2]
    assert "requests if nothing is wrong, at most 160; about " in lines[1]
    assert "ok           a tool call, streamed" in lines
    section = done.stdout[done.stdout.index("# Found by") :]
    assert tomllib.loads(section) == {
        "upstreams": {"local": {"kind": "chat", "base_url": f"{upstream.url}/v1"}}
    }
    assert asked < 45


@pytest.mark.parametrize(
    ("dialect", "path"), [("messages", ""), ("responses", "/v1"), ("chat", "")]
)
def test_the_kind_and_the_path_are_found_out(tmp_path: Path, dialect: str, path: str) -> None:
    with ScriptedUpstream.in_thread(CertifiedModel(dialect=dialect)) as upstream:
        done = certify(tmp_path, f"{upstream.url}{path}", "--json", "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["kind"] == dialect
    assert report["is_clean"] is True
    assert {each["name"] for each in report["findings"] if each["status"] == "not_tried"} == {
        "codex",
        "claude_code",
    }


def test_a_gateway_with_the_section_makes_up_for_the_faults(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread(FAULTY) as upstream:
        arguments = (f"{upstream.url}/v1", "--name", "faulty", "--key-env", "UP_KEY")
        done = certify(tmp_path, *arguments, "--write", "made.toml", UP_KEY=KEY)
        assert (done.returncode, done.stderr) == (1, "")
        assert "setting      a strict function\n" in done.stdout
        assert "limits.strict_tools = false; strict is not supported" in done.stdout
        assert done.stdout.endswith("\nwrote made.toml\n")
        made = (tmp_path / "made.toml").read_text(encoding="utf-8")
        assert tomllib.loads(made)["upstreams"]["faulty"] == {
            "kind": "chat",
            "base_url": f"{upstream.url}/v1",
            "api_key_env": "UP_KEY",
            "limits": {"strict_tools": False, "system_messages": False},
        }
        keys = {
            request.headers.get("authorization") or request.headers["x-api-key"]
            for request in upstream.requests
        }
        assert keys == {f"Bearer {KEY}", KEY}
        checked = run(tmp_path, "check", "--offline", "--config", "made.toml", UP_KEY=KEY)
        assert (checked.returncode, checked.stderr) == (0, "")

        named = certify(tmp_path, "faulty", "--config", "made.toml", "--json", UP_KEY=KEY)
        assert named.returncode == 0, named.stdout
        assert json.loads(named.stdout)["section"] == ""

        env = {"UP_KEY": KEY, "DRAGOMAN_STORE_URL": "memory:"}
        with serving(tmp_path, env, "--config", "made.toml") as gateway:
            through = certify(
                tmp_path, f"{gateway.url}/v1", "--kind", "chat", "--model", "small-model", "--json"
            )
        assert through.returncode == 0, through.stdout


def test_a_section_is_added_to_a_file_and_replaces_none(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    old = '[upstreams.other]\nkind = "chat"\nbase_url = "http://127.0.0.1:1/v1"\n[[routes]]\nmodel = "*"\nupstream = "other"\n'
    file.write_text(old, encoding="utf-8")
    file.chmod(0o644)
    with ScriptedUpstream.in_thread(CertifiedModel()) as upstream:
        url = f"{upstream.url}/v1"
        done = certify(tmp_path, url, "--quick", "--write", "dragoman.toml")
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        text = file.read_text(encoding="utf-8")
        assert text.startswith(old)
        assert set(tomllib.loads(text)["upstreams"]) == {"other", "local"}
        asked = len(upstream.requests)
        again = certify(tmp_path, url, "--write", "dragoman.toml")
        assert again.returncode == 2
        assert "upstreams.local is there already" in again.stderr
        assert len(upstream.requests) == asked
    assert file.read_text(encoding="utf-8") == text


def test_a_file_that_would_not_work_with_the_section_stays_as_it_is(tmp_path: Path) -> None:
    old = '[upstreams.other]\nkind = "chat"\nbase_url = "http://127.0.0.1:1/v1"\n'
    (tmp_path / "x.toml").write_text(old, encoding="utf-8")
    with ScriptedUpstream.in_thread(CertifiedModel()) as upstream:
        done = certify(tmp_path, f"{upstream.url}/v1", "--quick", "--write", "x.toml")
    assert done.returncode == 2
    assert "x.toml is unchanged, the section does not fit into it" in done.stderr
    assert "routes" in done.stderr
    assert "[upstreams.local]" in done.stdout
    assert (tmp_path / "x.toml").read_text(encoding="utf-8") == old


def test_of_several_models_the_user_chooses(tmp_path: Path) -> None:
    def reply(_request: ReceivedRequest) -> ScriptedReply:
        return json_reply({"data": [{"id": "one"}, {"id": "two"}, {"id": "text-embed-3"}]})

    with ScriptedUpstream.in_thread(reply) as upstream:
        done = certify(tmp_path, f"{upstream.url}/v1")
    assert done.returncode == 2
    assert "expected --model MODEL: the upstream has several models: one, two" in done.stderr


def test_a_model_that_is_not_there_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread(CertifiedModel()) as upstream:
        done = certify(tmp_path, f"{upstream.url}/v1", "--model", "smal-model")
    assert done.returncode == 2
    assert "it has no model 'smal-model'; did you mean `small-model`?" in done.stderr


def test_a_key_that_the_upstream_quotes_is_hidden(tmp_path: Path) -> None:
    def rule(body: Json) -> str | None:
        return f"the key {KEY} has no tools" if body.get("tools") else None

    with ScriptedUpstream.in_thread(CertifiedModel(refuses=(rule,))) as upstream:
        for flags in (("--json",), ()):
            done = certify(
                tmp_path, f"{upstream.url}/v1", "--quick", "--key-env", "UP_KEY", *flags, UP_KEY=KEY
            )
            assert done.returncode == 1
            assert "the key [redacted] has no tools" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("http://127.0.0.1:{port}/v1", "--model", "m"), "cannot be reached"),
        (("http://me:word@127.0.0.1:{port}/v1",), "without user, query and fragment"),
        (("http://127.0.0.1:{port}/v1?key=word",), "without user, query and fragment"),
        (("ftp://127.0.0.1/v1",), "expected an address such as"),
        (("http://127.0.0.1:{port}/v1", "--key-env", "NOT_SET"), "NOT_SET, it is not set"),
        (("http://127.0.0.1:{port}/v1", "--patience", "0"), "--patience: expected 1 to 3600"),
        (("nowhere",), "expected a URL, or an upstream of the configuration"),
        (("nowhere", "--write", "x.toml"), "--write: expected a URL beside it"),
        (("rehearsal",), "only upstreams over HTTP"),
    ],
)
def test_what_cannot_be_asked_is_said(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    port = str(free_port())
    done = certify(tmp_path, *(each.format(port=port) for each in arguments))
    assert done.returncode == 2
    assert said in done.stderr
    assert "word" not in done.stderr
    assert done.stdout == ""


def test_a_refused_key_ends_the_command(tmp_path: Path) -> None:
    def reply(_request: ReceivedRequest) -> ScriptedReply:
        return json_reply(error_body("chat", 401, f"bad key {KEY}"), 401)

    with ScriptedUpstream.in_thread(reply) as upstream:
        done = certify(
            tmp_path, f"{upstream.url}/v1", "--model", "m", "--key-env", "UP_KEY", UP_KEY=KEY
        )
        assert len(upstream.requests) < 15
    assert done.returncode == 2
    assert "bad key [redacted]" in done.stderr
