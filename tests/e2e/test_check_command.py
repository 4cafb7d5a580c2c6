"""`dragoman check`, and what surrounds it, as an operator runs them: real processes, upstreams on loopback."""

import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from check_command import environment, run, verdicts
from http_servers import QuietHandler, running_server
from ports import free_port

COMMAND = str(Path(sysconfig.get_path("scripts")) / "dragoman")
WAIT = 60
"""Seconds a run may take: far more than it needs, so that only a hang fails."""

KEY = "sk-right-key"


class Upstream(QuietHandler):
    """Lists models under `/v1` to those with the key; under `/bare/v1` it has no list, `/broken/v1` fails."""

    def respond(self) -> None:
        given = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = given or self.headers.get("x-api-key", "")
        if self.path.startswith("/bare/"):
            status, body = 404, b"{}"
        elif self.path.startswith("/broken/"):
            status, body = 500, b'{"error":"out of order"}'
        elif key != KEY:
            status, body = 401, b'{"error":"no such key: ' + key.encode() + b'"}'
        elif self.path == "/v1/models":
            status, body = 200, b'{"data":[]}'
        else:
            status, body = 400, b"{}"
        self.answer(status, body)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_server(Upstream) as there:
        yield f"http://{there}"


def run_bare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command where modules of the folder hide the gateway's dependencies."""
    return subprocess.run(
        (COMMAND, *arguments),
        cwd=folder,
        env={**environment(folder), "PYTHONPATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT,
        check=False,
    )


# --- check ------------------------------------------------------------------------------------------------------------


def test_without_a_configuration_the_rehearsal_is_in_order(tmp_path: Path) -> None:
    done = run(tmp_path, "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "# no file, environment and flags: what differs from the defaults"
    )
    found = verdicts(done.stdout)
    assert found.pop("rehearsal") == ("ok", "answers by itself")
    assert found["store"][0] == "ok"
    assert len(found) == 1


def test_each_upstream_is_tried_with_its_key(tmp_path: Path, address: str) -> None:
    (tmp_path / "dragoman.toml").write_text(
        f"""
[upstreams.right]
kind = "chat"
base_url = "{address}/v1"
api_key_env = "RIGHT_KEY"

[upstreams.anthropic-style]
kind = "messages"
base_url = "{address}"
api_key_env = "RIGHT_KEY"

[upstreams.wrong]
kind = "responses"
base_url = "{address}/v1"
api_key = "sk-wrong-key"

[upstreams.callers]
kind = "chat"
base_url = "{address}/v1"
api_key = "client"

[upstreams.bare]
kind = "chat"
base_url = "{address}/bare/v1"

[upstreams.broken]
kind = "chat"
base_url = "{address}/broken/v1"

[[routes]]
model = "*"
upstream = "right"
""",
        encoding="utf-8",
    )
    done = run(tmp_path, "check", "--no-ask", "--config", "dragoman.toml", RIGHT_KEY=KEY)
    assert done.returncode == 1
    found = verdicts(done.stdout)
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "right": "ok",
        "anthropic-style": "ok",
        "wrong": "FAILED",
        "callers": "ok",
        "bare": "ok",
        "broken": "FAILED",
        "store": "ok",
    }
    assert "refused" in found["wrong"][1]
    assert "500" in found["broken"][1]
    shown = done.stdout + done.stderr
    assert KEY not in shown
    assert "sk-wrong-key" not in shown
    assert 'api_key = "***"' in shown
    assert 'api_key_env = "RIGHT_KEY"' in shown


def test_an_upstream_that_is_not_there_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path, "check", "--upstream", f"chat=http://127.0.0.1:{free_port()}/v1")
    assert done.returncode == 1
    verdict, detail = verdicts(done.stdout)["chat"]
    assert verdict == "FAILED"
    assert detail


def test_offline_no_upstream_is_tried(tmp_path: Path) -> None:
    asked = Event()

    class Watched(Upstream):
        def respond(self) -> None:
            asked.set()
            super().respond()

    with running_server(Watched) as there:
        upstream = f"chat=http://{there}/v1"
        offline = run(tmp_path, "check", "--offline", "--upstream", upstream)
        was_asked = asked.is_set()
        online = run(tmp_path, "check", "--upstream", upstream)
    assert (offline.returncode, was_asked) == (0, False)
    assert (online.returncode, asked.is_set()) == (1, True)


def test_what_is_shown_is_the_effective_configuration(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[server]\nport = 1\nworkers = 3", encoding="utf-8")
    done = run(
        tmp_path, "check", "--offline", "--config", "other.toml", "--port", "2", DRAGOMAN_PORT="4"
    )
    assert done.returncode == 0
    head, _, rest = done.stdout.partition("\n")
    assert head.startswith("# other.toml, environment and flags: ")
    shown = tomllib.loads(rest)
    assert (shown["server"]["port"], shown["server"]["workers"]) == (2, 3)
    assert shown == {
        "server": {"port": 2, "workers": 3},
        "upstreams": {"rehearsal": {"kind": "rehearsal"}},
        "routes": [{"model": "*", "upstream": "rehearsal"}],
    }
    every = run(tmp_path, "check", "--offline", "--all", "--config", "other.toml")
    everything = tomllib.loads(every.stdout)
    assert everything["server"]["host"] == "127.0.0.1"
    assert everything["retry"]["attempts"] == 3


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_bad_configuration_is_reported_line_by_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "dragoman.toml").write_text("[server]\nprot = 1\nhost = 2", encoding="utf-8")
    done = run(tmp_path, command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "dragoman: dragoman.toml:2: server.prot: unknown key; did you mean `port`?",
        "dragoman: dragoman.toml:3: server.host: expected a string, got an integer",
    ]


@pytest.mark.parametrize("command", [("check", "--offline"), ("serve",)])
def test_a_key_that_is_not_there_is_reported_before_anything_starts(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "dragoman.toml").write_text(
        '[upstreams.a]\nkind = "chat"\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "NO_KEY"',
        encoding="utf-8",
    )
    done = run(tmp_path, *command, "--config", "dragoman.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "dragoman: dragoman.toml:4: upstreams.a.api_key_env: expected a key in the environment variable NO_KEY, "
        "it is not set\n"
    )


def test_listening_for_others_without_keys_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "set api_keys in [server] (or DRAGOMAN_API_KEYS)" in done.stderr


# --- connect ----------------------------------------------------------------------------------------------------------


def test_weak_spots_are_warned_of_or_refused(tmp_path: Path) -> None:
    short = run(tmp_path, "check", "--offline", DRAGOMAN_API_KEYS="short-key")
    assert short.returncode == 0
    assert "# warning: server.api_keys[0]: expected at least 16 characters, got 9" in short.stdout
    assert "short-key" not in short.stdout
    tomllib.loads(short.stdout)
    for variables in (
        {"DRAGOMAN_API_KEYS": "short-key", "DRAGOMAN_HOST": "0.0.0.0"},
        {"DRAGOMAN_CORS_ORIGINS": "*"},
    ):
        for command in (("check", "--offline"), ("serve",)):
            refused = run(tmp_path, *command, **variables)
            assert refused.returncode == 2
            wanted = "at least 16 characters" if "DRAGOMAN_HOST" in variables else "any web page"
            assert wanted in refused.stderr
            assert "short-key" not in refused.stderr


def test_connect_prints_what_to_paste(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    port = url.rpartition(":")[2]
    (tmp_path / "dragoman.toml").write_text(f"[server]\nport = {port}", encoding="utf-8")
    done = run(tmp_path, "connect", "codex")
    assert done.returncode == 0
    assert done.stderr.startswith(f"dragoman: no gateway answers at {url}; start one: ")
    assert done.stderr.endswith("dragoman serve\n")
    provider = tomllib.loads(done.stdout)["model_providers"]["dragoman"]
    assert provider["base_url"] == f"{url}/v1"
    done = run(tmp_path, "connect", "codex", "--url", "https://gw.example/v1", "--model", "m")
    pasted = tomllib.loads(done.stdout)
    assert pasted["model"] == "m"
    assert pasted["model_providers"]["dragoman"]["base_url"] == "https://gw.example/v1"


def test_connect_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    unknown = run(tmp_path, "connect", "emacs")
    assert unknown.returncode == 2
    assert "'codex', 'claude-code', 'openai', 'anthropic', 'obsidian', 'vercel'" in unknown.stderr
    bad = run(tmp_path, "connect", "codex", "--url", "127.0.0.1:8787")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == (
        "dragoman: --url: expected an address such as http://127.0.0.1:8787, got '127.0.0.1:8787'\n"
    )


# --- without the gateway's dependencies -------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder that hides what `pip install dragoman` alone does not bring."""
    extra = (
        "brotli",
        "httptools",
        "prometheus_client",
        "starlette",
        "uvicorn",
        "zstandard",
    )
    for name in extra:
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('hidden by a test', name={name!r})",
            encoding="utf-8",
        )
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("serve",),
        ("check",),
        ("launch", "claude"),
        ("run", "hello", "--upstream", "chat=http://127.0.0.1:9/v1", "--model", "m"),
    ],
)
def test_a_missing_extra_is_reported_with_the_remedy(bare: Path, command: tuple[str, ...]) -> None:
    done = run_bare(bare, *command)
    assert done.returncode == 2
    assert done.stderr.startswith(f"dragoman: dragoman {command[0]} needs ")
    extra = "cli" if command[0] == "run" else "server"
    assert done.stderr.endswith(f": pip install 'dragoman[{extra}]'\n")


def test_the_other_commands_work_without_the_extra(bare: Path) -> None:
    sample = Path(__file__).parent / "samples" / "chat" / "parallel.sse"
    for command in (
        ("inspect", str(sample)),
        ("connect", "openai", "--url", "http://127.0.0.1:8787", "--model", "m"),
        ("check", "--offline"),
        ("init", "--stdout"),
        ("completion", "bash"),
        ("--version",),
    ):
        done = run_bare(bare, *command)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("url", "code", "lines"),
    [
        ("memory:", 0, "ok      memory"),
        ("sqlite:kept.db", 0, "ok      sqlite"),
        ("sqlite:", 0, "created when it is first needed"),
        ("postgresql://x:secret@127.0.0.1:1/x", 1, "FAILED"),
    ],
)
def test_the_store_is_tried_too(tmp_path: Path, url: str, code: int, lines: str) -> None:
    done = run(tmp_path, "check", DRAGOMAN_STORE_URL=url)
    assert done.returncode == code, done.stdout + done.stderr
    line = next(each for each in done.stdout.splitlines() if each.startswith("store "))
    assert lines in line
    assert "secret" not in done.stdout
    assert not (tmp_path / "state").exists()


def test_a_store_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    done = run(tmp_path, "check", XDG_STATE_HOME=str(tmp_path / "file" / "state"))
    assert done.returncode == 1
    line = next(each for each in done.stdout.splitlines() if each.startswith("store "))
    assert "FAILED" in line
    assert f"{tmp_path / 'file'} is not a folder that can be written" in line


def test_a_store_that_is_off_is_not_tried(tmp_path: Path) -> None:
    done = run(tmp_path, "check", DRAGOMAN_STORE_POLICY="off")
    assert done.returncode == 0
    assert not any(line.startswith("store ") for line in done.stdout.splitlines())


def test_an_unusable_store_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path, "check", DRAGOMAN_STORE_URL="mysql://x", DRAGOMAN_STORE_TTL="0")
    assert done.returncode == 2
    assert "store.url: expected memory:, sqlite:" in done.stderr
    assert "store.ttl: expected more than 0" in done.stderr
