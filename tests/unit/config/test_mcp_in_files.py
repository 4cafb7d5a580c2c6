"""MCP servers in the configuration: what is read, refused, masked, and tried."""

import asyncio
import sys
import tomllib
from pathlib import Path

import pytest

from dragoman.config.check import check_surroundings, complete
from dragoman.config.read import load_settings
from dragoman.config.secrets import masked
from dragoman.config.settings import (
    HostedSettings,
    McpServerSettings,
    Route,
    Settings,
    UpstreamSettings,
)
from dragoman.config.values import read_struct, to_toml
from dragoman.errors import ConfigError
from dragoman.gateway.route import Router
from dragoman.server.reachability import check_mcp

WORKSHOP = Path(__file__).parents[2] / "support" / "mcp_servers" / "workshop.py"
FILES = McpServerSettings(name="files", command=("server",))
REHEARSAL = {"rehearsal": UpstreamSettings(kind="rehearsal")}
FILE = """
[upstreams.rehearsal]
kind = "rehearsal"

[[routes]]
model = "bare-*"
upstream = "rehearsal"
mcp = []

[[routes]]
model = "web-*"
upstream = "rehearsal"
mcp = ["web"]

[[routes]]
model = "*"
upstream = "rehearsal"

[[mcp]]
name = "files"
command = ["files-server", "--root", "/srv"]
deny = ["write_*"]

[mcp.restart]
attempts = 2

[[mcp]]
name = "web"
url = "https://tools.example/mcp"
headers = { x-team = "red" }

[hosted]
servers = ["files"]
calls = "note"
max_turns = 5
"""


def loaded(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "dragoman.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, {})


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    return caught.value.message


def complaints(settings: Settings) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        complete(settings)
    return caught.value.message.split("\n")


def test_servers_and_routes_are_read(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FILE)
    files, web = settings.mcp
    assert files.command == ("files-server", "--root", "/srv")
    assert files.restart.attempts == 2
    assert web.headers == {"x-team": "red"}
    assert settings.hosted == HostedSettings(servers=("files",), calls="note", max_turns=5)
    router = Router(settings)
    assert router.servers("bare-1") == ()
    assert router.servers("web-1") == ("web",)
    assert router.servers("gpt-5") == ("files",)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('[[mcp]]\nname = "a"\ncomand = ["x"]\n', "mcp[0].comand: unknown key; did you mean `command`?"),
        ('[[mcp]]\ncommand = ["x"]\n', "mcp[0].name: expected a string, it is missing"),
        ('[[mcp]]\nname = "a"\n[mcp.restart]\nattempt = 1\n', "did you mean `attempts`?"),
        ("[hosted]\nmax_turn = 1\n", "hosted.max_turn: unknown key; did you mean `max_turns`?"),
        ('[hosted]\ncalls = "notes"\n', "did you mean `note`?"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_reported_with_what_was_meant(
    tmp_path: Path, text: str, lines: str
) -> None:
    assert lines in refused(tmp_path, text)


def test_what_cannot_work_is_reported_at_once() -> None:
    routes = (Route(model="*", upstream="rehearsal", mcp=("fils",)),)
    lines = complaints(
        Settings(
            upstreams=REHEARSAL,
            routes=routes,
            mcp=(FILES, FILES, McpServerSettings(name="both", command=("x",), url="http://x")),
            hosted=HostedSettings(servers=("nobody",), max_turns=0),
        )
    )
    assert any(line.startswith("mcp[2]: expected `command` or `url`") for line in lines)
    assert any("got 'files' twice" in line for line in lines)
    assert 'routes[0].mcp[0]: there is no MCP server "fils"; did you mean `files`?' in lines
    assert any(line.startswith("hosted.servers[0]: there is no MCP server") for line in lines)
    assert any(line.startswith("hosted.max_turns: expected") for line in lines)


def test_a_route_that_names_a_server_where_there_is_none_is_reported() -> None:
    routes = (Route(model="*", upstream="rehearsal", mcp=("files",)),)
    (line,) = complaints(Settings(upstreams=REHEARSAL, routes=routes))
    assert line == 'routes[0].mcp[0]: there is no MCP server "files"; there is no [[mcp]]'


def test_programs_and_variables_must_be_there() -> None:
    servers = (
        McpServerSettings(name="gone", command=("no-such-program",), env_from=("NOT_SET",)),
        McpServerSettings(name="web", url="http://x", headers_from={"authorization": "NO_KEY"}),
        McpServerSettings(name="here", command=(sys.executable,)),
    )
    with pytest.raises(ConfigError) as caught:
        check_surroundings(Settings(mcp=servers), {"PATH": "/usr/bin"})
    result = caught.value.message.split("\n")
    assert [line.partition(":")[0] for line in result] == [
        "mcp[0].command",
        "mcp[0].env_from",
        "mcp[1].headers_from.authorization",
    ]


def test_no_secret_of_a_server_is_shown() -> None:
    secret = "hunter2"
    server = McpServerSettings(
        name="files",
        command=("server", "--token", secret, f"--key={secret}", "--root", "/srv", "-v"),
        env={"API_KEY": secret, "LOG_LEVEL": "error"},
    )
    far = McpServerSettings(
        name="far",
        url=f"https://me:{secret}@tools.example/mcp?token={secret}",
        headers={"authorization": secret, "x-team": "red"},
    )
    shown = to_toml(masked(Settings(upstreams=REHEARSAL, mcp=(server, far))))
    assert secret not in shown
    # By place, not by look: nobody knows what an argument or a variable holds.
    for word in ("--root", "/srv", '"-v"', '"error"', '"red"'):
        assert word not in shown
    for word in ('"server"', "API_KEY", "LOG_LEVEL", "x-team", "tools.example/mcp", "token="):
        assert word in shown


def test_what_is_shown_can_be_read_back(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FILE)
    found: list[str] = []
    assert read_struct(Settings, tomllib.loads(to_toml(settings)), "", found) == settings
    assert not found


def test_servers_are_tried() -> None:
    servers = (
        McpServerSettings(name="workshop", command=(sys.executable, str(WORKSHOP)), allow=("ec*",)),
        McpServerSettings(name="absent", command=(sys.executable, "-c", "raise SystemExit(3)")),
    )
    there, absent = asyncio.run(check_mcp(servers))
    assert (there.upstream, there.is_ok, there.detail) == ("mcp workshop", True, "1 tool: echo")
    assert not absent.is_ok
    assert absent.detail
    assert asyncio.run(check_mcp(())) == []
