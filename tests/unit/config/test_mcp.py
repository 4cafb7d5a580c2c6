"""What may be said of an MCP server, in each of the forms it is said in; and what is answered to the rest."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.config.mcp import (
    check_names,
    check_settings,
    settings_from_file_text,
    settings_from_short_form,
    settings_from_values,
)
from dragoman.config.settings import McpServerSettings, OAuthSettings, RestartSettings
from dragoman.errors import ConfigError

URL = "http://127.0.0.1:8000/mcp"


def test_values_of_a_table_become_settings() -> None:
    values = {
        "name": "files",
        "command": ["uvx", "server"],
        "env": {"LEVEL": "1"},
        "env_from": ["TOKEN"],
        "cwd": "/srv",
        "allow": ["read_*"],
        "deny": ["read_secret"],
        "start_timeout": 5,
        "call_timeout": 7.5,
        "restart": {"first_delay": 1, "attempts": 2},
    }
    assert settings_from_values(values) == McpServerSettings(
        name="files",
        command=("uvx", "server"),
        env={"LEVEL": "1"},
        env_from=("TOKEN",),
        cwd="/srv",
        allow=("read_*",),
        deny=("read_secret",),
        start_timeout=5.0,
        call_timeout=7.5,
        restart=RestartSettings(first_delay=1.0, attempts=2),
    )


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"command": ["x"]}, "mcp.name: expected a string, it is missing"),
        ({"name": "a", "comand": ["x"]}, "mcp.comand: unknown key; did you mean `command`?"),
        ({"name": "a", "command": "x y"}, "mcp.command: expected a list, each entry a string"),
        ({"name": "a", "command": ["x", 5]}, "mcp.command[1]: expected a string"),
        ({"name": "a", "command": ["x"], "env": {"A": 1}}, "mcp.env.A: expected a string"),
        ({"name": "a", "command": ["x"], "env": []}, "mcp.env: expected a table"),
        ({"name": "a", "command": ["x"], "cwd": None}, "mcp.cwd: expected a string, got nothing"),
        ({"name": "a", "command": ["x"], "call_timeout": True}, "call_timeout: expected a number"),
        ({"name": "a", "command": ["x"], "call_timeout": 0}, "call_timeout: expected more than 0"),
        (
            {"name": "a", "command": ["x"], "start_timeout": float("nan")},
            "start_timeout: expected more than 0",
        ),
        ({"name": "a", "command": ["x"], "restart": {"often": 1}}, "mcp.restart.often: unknown"),
        ({"name": "a", "command": ["x"], "restart": {"attempts": 1.5}}, "expected an integer"),
        (
            {"name": "a", "command": ["x"], "restart": {"first_delay": -1}},
            "restart.first_delay: expected 0 or more",
        ),
        ({"name": "a"}, "expected `command` or `url` for the server 'a', got neither"),
        ({"name": "a", "command": ["x"], "url": URL}, "got both"),
        ({"name": "a", "command": [""]}, "expected a program"),
        ({"name": "a", "command": ["x\0"]}, "NUL"),
        ({"name": "a", "command": ["x"], "env": {"A=B": "1"}}, "names of environment variables"),
        ({"name": "a", "command": ["x"], "headers": {"a": "b"}}, "no meaning beside `command`"),
        ({"name": "a", "url": URL, "cwd": "/"}, "mcp.cwd: has no meaning beside `url`"),
        ({"name": "a", "url": "ftp://host/"}, "begins with http:// or https://"),
        ({"name": "a", "url": "http://host:port/"}, "begins with http:// or https://"),
        ({"name": "a", "url": "http:///path"}, "begins with http:// or https://"),
        ({"name": "a", "url": URL, "headers": {"a b": "c"}}, "the name of a header, got 'a b'"),
        ({"name": "a", "url": URL, "headers": {"a": "x\ny"}}, "not one line of ASCII"),
    ],
)
def test_what_cannot_work_is_said_with_its_place(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from_values(values)
    assert complaint in raised.value.message


@pytest.mark.parametrize("name", ["files", "my-files", "my_files", "9", "A" * 64])
def test_good_name_is_taken(name: str) -> None:
    assert check_settings(McpServerSettings(name=name, url=URL)).name == name


@pytest.mark.parametrize("name", ["", "mcp", "a__b", "a_", "a b", "a.b", "ä", "a\n", "A" * 65])
def test_name_that_could_not_begin_a_tools_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"mcp\.name: expected"):
        check_settings(McpServerSettings(name=name, url=URL))


def test_two_servers_of_one_name_are_refused() -> None:
    server = McpServerSettings(name="a", url=URL)
    with pytest.raises(ConfigError, match="'a' twice"):
        check_names([server, server])


def test_short_form_names_a_command_or_an_address() -> None:
    assert settings_from_short_form("time=uvx 'mcp server' --zone=UTC") == McpServerSettings(
        name="time", command=("uvx", "mcp server", "--zone=UTC")
    )
    assert settings_from_short_form(f"far={URL}?key=a=b") == McpServerSettings(
        name="far", url=f"{URL}?key=a=b"
    )


@pytest.mark.parametrize("text", ["", "name", "name=", "name=  ", "name='open", "=command", URL])
def test_other_short_forms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--mcp"):
        settings_from_short_form(text)


def test_file_of_other_programs_is_read() -> None:
    text = json.dumps(
        {
            "theme": "dark",
            "mcpServers": {
                "files": {
                    "type": "stdio",
                    "command": "npx",
                    "args": ["-y", "${PACKAGE:-files}", "${HOME}/x"],
                    "env": {"TOKEN": "${TOKEN}"},
                    "alwaysAllow": [],
                },
                "far": {
                    "type": "http",
                    "url": URL,
                    "headers": {"authorization": "Bearer ${TOKEN}"},
                },
                "off": {"command": "x", "disabled": True},
                "off2": {"command": "x", "enabled": False},
            },
        }
    )
    assert settings_from_file_text(text, {"HOME": "/home/me", "TOKEN": "t"}) == (
        McpServerSettings(
            name="files", command=("npx", "-y", "files", "/home/me/x"), env={"TOKEN": "t"}
        ),
        McpServerSettings(name="far", url=URL, headers={"authorization": "Bearer t"}),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a table"),
        ("{}", "mcpServers: expected a table, got nothing"),
        ('{"mcpServers": {"a": 5}}', "mcpServers.a: expected a table"),
        ('{"mcpServers": {"a": {}}}', "got neither"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://h/"}}}', "'sse' is not supported"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y", "env": 5}}}', "env: expected a table"),
        ('{"mcpServers": {"a": {"command": "${NO_SUCH}"}}}', "variable NO_SUCH is not set"),
    ],
)
def test_other_files_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from_file_text(text, {})
    assert complaint in raised.value.message


def test_secrets_are_not_shown() -> None:
    child = McpServerSettings(name="a", command=("server", "--key=hush"), env={"KEY": "hush"})
    far = McpServerSettings(
        name="b", url="https://hush:hush@host:8443/hush?key=hush", headers={"key": "hush"}
    )
    assert repr(child) == "McpServerSettings(name='a', command 'server')"
    assert repr(far) == "McpServerSettings(name='b', url 'https://host:8443')"
    for broken in ("http://[hush", "http://host:hush"):
        shown = repr(McpServerSettings(name="c", url=broken))
        assert shown == "McpServerSettings(name='c', a url that cannot be read)"


def test_settings_can_be_read_where_the_sdk_is_not_installed() -> None:
    program = (
        "import sys; import dragoman.engine.mcp.servers as servers;"
        "servers.McpServers([]); assert not {'mcp', 'pydantic', 'anyio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "key",
    [
        *McpServerSettings.__struct_fields__,
        *OAuthSettings.__struct_fields__,
        *RestartSettings.__struct_fields__,
    ],
)
def test_every_key_has_its_line_in_the_documentation(key: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "mcp.md"
    assert re.search(rf"\b{key}\b(` ?)? ?=|\[mcp\.{key}\]", page.read_text(encoding="utf-8"))


FAR = {"name": "far", "url": "https://tools.example/mcp"}
ROBOT = {
    "grant": "client_credentials",
    "client_id": "robot",
    "client_secret_from": "ROBOT_SECRET",
    "issuer": "https://login.example",
}


def test_oauth_is_read_from_a_table() -> None:
    read = settings_from_values({**FAR, "oauth": ROBOT}).oauth
    assert read == OAuthSettings(
        grant="client_credentials",
        client_id="robot",
        client_secret_from="ROBOT_SECRET",
        issuer="https://login.example",
    )
    assert settings_from_values({**FAR, "oauth": {}}).oauth == OAuthSettings()


@pytest.mark.parametrize(
    ("oauth", "complaint"),
    [
        (5, "oauth: expected a table"),
        ({"secret": "x"}, "oauth.secret: unknown key; known here: grant"),
        ({"grant": "password"}, 'oauth.grant: expected one of "authorization_code"'),
        ({"redirect_port": 70000}, "oauth.redirect_port: expected a port"),
        ({"redirect_port": "x"}, "oauth.redirect_port: expected an integer"),
        ({"scope": "a  b"}, "oauth.scope: expected scopes"),
        ({"issuer": "login.example"}, "oauth.issuer: expected an address"),
        (
            {"client_metadata_url": "http://a.example/c"},
            "client_metadata_url: expected an https://",
        ),
        (
            {"client_metadata_url": "https://a.example/"},
            "client_metadata_url: expected an https://",
        ),
        ({"client_secret_from": "X"}, "oauth.client_id: expected the client"),
        ({"private_key_from": "X"}, "private_key_from: has no meaning without"),
        ({**ROBOT, "client_id": ""}, "oauth.client_id: expected a string for client_credentials"),
        (
            {**ROBOT, "client_secret_from": ""},
            "or `private_key_from` for client_credentials, got neither",
        ),
        ({**ROBOT, "private_key_from": "X"}, "got both"),
        ({**ROBOT, "issuer": ""}, "oauth.issuer: expected the address of the authorization server"),
        ({**ROBOT, "redirect_port": 5}, "redirect_port: has no meaning with client_credentials"),
        (
            {**ROBOT, "signing_algorithm": "HS256"},
            'oauth.signing_algorithm: expected one of "ES256"',
        ),
    ],
)
def test_oauth_that_cannot_work_is_refused(oauth: object, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from_values({**FAR, "oauth": oauth})
    assert complaint in raised.value.message


def test_oauth_belongs_to_servers_behind_http_that_have_no_token_yet() -> None:
    with pytest.raises(ConfigError, match="oauth: has no meaning beside `command`"):
        settings_from_values({"name": "a", "command": ["x"], "oauth": {}})
    with pytest.raises(ConfigError, match="beside a header `authorization`"):
        settings_from_values({**FAR, "oauth": {}, "headers": {"Authorization": "Bearer hush"}})
