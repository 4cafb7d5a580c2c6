"""A law: the value of a secret setting is in no output, whatever it looks like and whichever program quotes it.

A configuration has a distinct word in every secret setting, and everything that it names quotes all it was given: the
upstream in its errors, the programs on their standard error. The words look like no secret. Then the test searches
everything that a person or a client can read.
"""

import json
import os
import random
import sys
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commands import Command, run_command
from dragoman.config.read import load_settings
from dragoman.config.secrets import masked
from dragoman.config.values import to_toml
from http_servers import QuietHandler, running_server
from ports import free_port

WAIT = 120.0
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "count": "/v1/messages/count_tokens",
}
PAGES = ("/healthz", "/readyz", "/metrics", "/v1/models", "/v1/limits", "/v1/usage")
# Prints all it was given on its standard error, and ends.
TELLTALE = "import os, sys; print(sys.argv, dict(os.environ), file=sys.stderr); sys.exit(3)"


class Echo(QuietHandler):
    """Refuses everything, and quotes all of it."""

    heard: list[str]

    def respond(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.heard.append(f"{self.path} {self.headers}")
        body = json.dumps({"error": {"message": f"no: {self.path} {self.headers}"}}).encode()
        self.answer(401, body)


@pytest.fixture(scope="module")
def echo() -> Iterator[tuple[str, list[str]]]:
    heard: list[str] = []
    with running_server(type("Heard", (Echo,), {"heard": heard})) as address:
        yield address, heard


class Canaries:
    """Return words that occur nowhere else: twenty letters, which do not look like a key."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        assert place not in self.words
        letters = random.SystemRandom().choices("bcdfghjklmnpqrstvwxz", k=20)
        self.words[place] = "".join(letters)
        return self.words[place]

    def leaks(self, outputs: dict[str, str]) -> list[tuple[str, str]]:
        return [
            (output, place)
            for output, text in outputs.items()
            for place, word in self.words.items()
            if word in text
        ]


def _configuration(new: Canaries, address: str, *, hosted: bool) -> str:
    closed = free_port()
    codex = [sys.executable, "-c", TELLTALE, new("codex argument")]
    child = [sys.executable, "-c", TELLTALE, new("mcp argument"), f"--x={new('mcp option')}"]
    return f"""
[server]
api_keys = ["{new("server key")}"]
[log]
level = "debug"
[retry]
enabled = false
[dump]
path = "dump.jsonl"
[store]
url = "postgresql://{new("store user")}:{new("store password")}@127.0.0.1:{closed}/x?application_name={new("store query")}"
[hosted]
servers = {'["child", "far", "missing"]' if hosted else "[]"}

[upstreams.echo]
kind = "chat"
also = ["responses", "messages"]
base_url = "http://{address}/{new("base path")}/v1"
api_key = "{new("api_key")}"
headers = {{ x-one = "{new("header")}", authorization = "Token {new("authorization")}" }}
query = {{ one = "{new("query")}" }}

[upstreams.env]
kind = "messages"
base_url = "http://{address}"
api_key_env = "CANARY_KEY"

[upstreams.absent]
kind = "responses"
base_url = "http://127.0.0.1:{closed}/{new("absent path")}"
api_key = "{new("absent key")}"
proxy = "http://{new("proxy user")}:{new("proxy password")}@127.0.0.1:{closed}"

[upstreams.codex]
kind = "codex"
command = {json.dumps(codex)}
env = {{ FOO = "{new("codex env")}" }}

[[routes]]
model = "echo*"
upstream = "echo"
[[routes]]
model = "env*"
upstream = "env"
[[routes]]
model = "absent*"
upstream = "absent"
[[routes]]
model = "codex*"
upstream = "codex"

[[mcp]]
name = "child"
command = {json.dumps(child)}
env = {{ FOO = "{new("mcp env")}" }}
env_from = ["CANARY_FROM"]
[[mcp]]
name = "missing"
command = ["./text", "{new("missing argument")}"]
[[mcp]]
name = "far"
url = "http://{address}/{new("mcp path")}/mcp?token={new("mcp query")}"
headers = {{ x-two = "{new("mcp header")}" }}
headers_from = {{ x-three = "CANARY_HEADER" }}
"""


class Setting:
    """A folder with the configuration, and the environment that goes with it."""

    def __init__(self, folder: Path, address: str, *, hosted: bool = False) -> None:
        self.new = Canaries()
        self.folder = folder
        (folder / "text").write_text("no program", encoding="utf-8")
        (folder / "text").chmod(0o700)
        self.file = folder / "canaries.toml"
        self.file.write_text(_configuration(self.new, address, hosted=hosted), encoding="utf-8")
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "CANARY_KEY": self.new("api_key_env"),
            "CANARY_FROM": self.new("env_from"),
            "CANARY_HEADER": self.new("headers_from"),
        }

    def run(self, *arguments: str) -> str:
        named = (*arguments, "--config", str(self.file))
        done = run_command(*named, cwd=self.folder, env=self.environ, timeout=WAIT)
        return done.stdout + done.stderr

    def serve(self, log_format: str) -> dict[str, str]:
        """Return the gateway's output, its answers to clients, and its dump."""
        port = free_port()
        log = self.folder / f"{log_format}.log"
        outputs: dict[str, str] = {}
        command = ("serve", "--config", str(self.file), "--port", str(port))
        with (
            Path(os.devnull).open("rb") as nothing,
            log.open("wb") as stream,
            Command(
                (*command, "--log-format", log_format),
                cwd=self.folder,
                env=self.environ,
                files=(nothing.fileno(), stream.fileno(), stream.fileno()),
            ) as process,
        ):
            try:
                url = f"http://127.0.0.1:{port}"
                while _ask(f"{url}/healthz", "") == "":
                    assert process.poll() is None, log.read_text(encoding="utf-8")
                key = self.new.words["server key"]
                for name in (*PATHS, *PAGES):
                    outputs[f"{log_format} {name}"] = self._asked(url, name, key)
            finally:
                process.terminate()
                process.wait(WAIT)
        outputs[f"{log_format} log"] = log.read_text(encoding="utf-8")
        return outputs

    def _asked(self, url: str, name: str, key: str) -> str:
        if name in PAGES:
            return _ask(url + name, key)
        lines = [
            _ask(url + PATHS[name], key, _body(name, model, stream=stream))
            for model in ("echo", "env", "absent", "codex")
            for stream in (False, True)
        ]
        assert all(lines)
        return "\n".join(lines)


def _body(door: str, model: str, *, stream: bool) -> bytes:
    turn = {"input": "hi"} if door == "responses" else {"messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    return json.dumps({"model": model, "stream": stream, "max_tokens": 9, **turn}).encode()


def _ask(url: str, key: str, body: bytes | None = None) -> str:
    """The whole answer with its headers; nothing if nobody is there."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            return f"{answer.headers}\n{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.headers}\n{error.read().decode()}"
    except urllib.error.URLError:
        return ""


def _said(work: Callable[[], object]) -> str:
    try:
        return repr(work())
    except Exception:
        return traceback.format_exc()


def test_no_value_of_a_secret_place_is_in_any_output(
    tmp_path: Path, echo: tuple[str, list[str]]
) -> None:
    address, heard = echo
    there = Setting(tmp_path, address)
    outputs = {
        "check": there.run("check"),
        "check --offline": there.run("check", "--offline"),
        "connect": there.run("connect", "openai"),
    }
    for model in ("echo", "env", "absent", "codex"):
        outputs[f"run {model}"] = there.run("run", "hi", "--model", model, "--no-sandbox")
        outputs[f"run --json {model}"] = there.run("run", "hi", "--model", model, "--json")
    outputs |= there.serve("json")
    outputs |= there.serve("console")
    settings = load_settings(there.file, there.environ)
    outputs["repr"] = repr(settings)
    outputs["toml"] = to_toml(masked(settings))
    dump = tmp_path / "dump.jsonl"
    outputs["dump"] = dump.read_text(encoding="utf-8") if dump.exists() else ""
    leaks = there.new.leaks(outputs)
    print(f"{len(there.new.words)} canaries x {len(outputs)} outputs, {len(leaks)} leaks")
    assert leaks == []
    # All words were sent and quoted: the outputs could have leaked them.
    sent = "\n".join(heard)
    for place in ("api_key_env", "header", "authorization", "query", "mcp header", "headers_from", "mcp path"):  # fmt: skip
        assert there.new.words[place] in sent, place
    assert "[redacted]" in outputs["json log"]
    assert "[redacted]" in outputs["json chat"]
    assert "[redacted]" in outputs["check"]
    # Names are no secret.
    for name in ("x-one", "x-two", "FOO", "CANARY_KEY", "CANARY_FROM", "CANARY_HEADER", "token="):
        assert name in outputs["check --offline"]


def test_no_value_of_a_secret_place_is_in_an_answer_with_hosted_tools(
    tmp_path: Path, echo: tuple[str, list[str]]
) -> None:
    there = Setting(tmp_path, echo[0], hosted=True)
    outputs = there.serve("json")
    leaks = there.new.leaks(outputs)
    print(f"{len(there.new.words)} canaries x {len(outputs)} outputs, {len(leaks)} leaks")
    assert leaks == []


BROKEN = {
    "base_url port": '[upstreams.a]\nkind = "chat"\nbase_url = "http://u:{0}@h:{1}/{2}?q={3}#{4}"',
    "base_url scheme": '[upstreams.a]\nkind = "chat"\nbase_url = "ftp://u:{0}@h/{2}?q={3}#{4}"',
    "base_url query": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h/{2}?q={3}&{4}"',
    "base_url user": '[upstreams.a]\nkind = "chat"\nbase_url = "http://{0}@h/{2}"',
    "base_url bracket": '[upstreams.a]\nkind = "chat"\nbase_url = "http://{0}@[h/{2}"',
    "proxy": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\nproxy = "u:{0}@h/{1}?{2}"',
    "header": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\nheaders = {{ a = "{0}\\u0007" }}',
    "header name": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\nheaders = {{ "a b" = "{0}" }}',
    "key": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\napi_key = "{0} {1}"',
    "key type": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\napi_key = ["{0}"]',
    "both keys": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\napi_key = "{0}"\napi_key_env = "X"',
    "env type": '[upstreams.a]\nkind = "codex"\nenv = "{0}"',
    "command": '[upstreams.a]\nkind = "codex"\ncommand = "{0}"',
    "no program": '[upstreams.a]\nkind = "codex"\ncommand = ["no-such-program", "{0}"]',
    "query type": '[upstreams.a]\nkind = "chat"\nbase_url = "http://h"\nquery = {{ a = ["{0}"] }}',
    "server key": '[server]\napi_keys = ["{0} {1}"]',
    "store": '[store]\nurl = "mysql://u:{0}@h/{1}?x={2}"',
    "store port": '[store]\nurl = "postgresql://u:{0}@h:{1}/x?y={2}"',
    "store query": '[store]\nurl = "sqlite:x.db?key={0}"',
    "store host": '[store]\nurl = "sqlite://u:{0}@h/x.db#{1}"',
    "mcp both": '[[mcp]]\nname = "a"\ncommand = ["x", "{0}"]\nurl = "http://u:{1}@h/{2}?{3}"',
    "mcp url": '[[mcp]]\nname = "a"\nurl = "http://u:{0}@h:{1}/{2}?{3}"',
    "mcp scheme": '[[mcp]]\nname = "a"\nurl = "u:{0}@h/{1}?{2}"',
    "mcp header": '[[mcp]]\nname = "a"\nurl = "http://h"\nheaders = {{ a = "{0}\\n" }}',
    "mcp env": '[[mcp]]\nname = "a"\ncommand = ["x"]\nenv = {{ "a=b" = "{0}" }}',
    "mcp program": '[[mcp]]\nname = "a"\ncommand = ["no-such-program", "{0}"]\nenv = {{ A = "{1}" }}',
    "toml": '[upstreams.a]\nkind = "chat"\napi_key = "{0}\nbase_url = "{1}"',
    "toml twice": '[upstreams.a]\napi_key = "{0}"\napi_key = "{1}"',
}
"""Settings that cannot work, each wrong in a place for secrets."""


@pytest.mark.parametrize("fault", BROKEN)
def test_no_complaint_quotes_a_value_of_a_secret_place(tmp_path: Path, fault: str) -> None:
    new = Canaries()
    words = [new(f"{fault} {number}") for number in range(5)]
    file = tmp_path / "broken.toml"
    file.write_text(BROKEN[fault].format(*words), encoding="utf-8")
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = run_command("check", "--config", str(file), cwd=tmp_path, env=environ, timeout=WAIT)
    assert done.returncode in (1, 2), done.stdout
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert new.leaks({"check": said, "trace": _said(lambda: load_settings(file, {}))}) == []
