"""A configuration that merely lies in the folder starts no program and chooses no place of its own."""

from pathlib import Path

import pytest

from dragoman.cli.options import Options
from dragoman.cli.run.trusting import load_trusted
from dragoman.errors import ConfigError

MCP = '[[mcp]]\nname = "own"\ncommand = ["/bin/true"]\n[hosted]\nservers = ["own"]\n'


def upstream(kind: str, *lines: str) -> str:
    return "\n".join(["[upstreams.it]", f'kind = "{kind}"', *lines, ""])


def options(config: str | None = None, upstream: str | None = None) -> Options:
    made = Options()
    made.config = config
    made.upstream = upstream
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text("", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (upstream("chat", 'base_url = "https://elsewhere.example/v1"'), "base_url"),
        (upstream("chat", 'base_url = "https://api.openai.com.elsewhere.example/v1"'), "base_url"),
        (
            upstream("chat", 'base_url = "https://api.openai.com/v1"', 'proxy = "http://127.0.0.1:1"'),
            "proxy",
        ),
        (upstream("chat", 'base_url = "https://127.0.0.1/v1"', 'ca_file = "ca.pem"'), "ca_file"),
        (upstream("codex", 'command = ["/bin/true"]'), "command"),
        (upstream("codex", 'env = {PATH = "."}'), "env"),
    ],
)  # fmt: skip
def test_upstream_that_nobody_has_named_is_refused(folder: Path, text: str, key: str) -> None:
    (folder / "dragoman.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"upstreams\.it\.{key}: .*--config dragoman\.toml"):
        load_trusted(options(), {"PATH": "/bin:/usr/bin"})
    # What the person says counts.
    assert load_trusted(options(upstream="rehearsal"), {}).upstreams.keys() == {"rehearsal"}


@pytest.mark.parametrize(
    "text",
    [
        upstream("rehearsal"),
        upstream("chat", 'base_url = "http://localhost:8000/v1"'),
        upstream("messages", 'base_url = "https://api.anthropic.com/v1"', 'api_key_env = "KEY"'),
        upstream("chat", 'base_url = "https://mine.example/v1"'),
    ],
)
def test_upstream_on_this_machine_or_known_is_used(folder: Path, text: str) -> None:
    (folder / "dragoman.toml").write_text(text, encoding="utf-8")
    environ = {"KEY": "k", "OPENAI_BASE_URL": "https://mine.example/v1"}
    assert load_trusted(options(), environ).upstreams.keys() == {"it"}


def test_servers_are_started_only_for_a_file_that_is_named(folder: Path) -> None:
    text = MCP + upstream("chat", 'base_url = "https://elsewhere.example/v1"')
    (folder / "some.toml").write_text(text, encoding="utf-8")
    environ = {"PATH": "/bin:/usr/bin"}
    named = load_trusted(options(config="some.toml"), environ)
    assert [server.name for server in named.mcp] == ["own"]
    assert load_trusted(options(), {**environ, "DRAGOMAN_CONFIG": "some.toml"}) == named
    (folder / "dragoman.toml").write_text(MCP, encoding="utf-8")
    assert load_trusted(options(), environ).mcp == ()


def test_nothing_at_all_is_the_rehearsal(folder: Path) -> None:
    assert list(load_trusted(options(), {}).upstreams) == ["rehearsal"]
