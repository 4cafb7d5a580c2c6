"""A configuration that merely lies in the folder starts nothing, sends nothing and lets nobody in before it is trusted."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import Struct

from dragoman.config.read import Flags, load_settings
from dragoman.config.settings import (
    DumpSettings,
    InspectSettings,
    McpServerSettings,
    OtelSettings,
    PeerSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
)
from dragoman.config.trust import FoundFile, Trusted, plain_http
from dragoman.errors import ConfigError

MCP = '[[mcp]]\nname = "own"\ncommand = ["/bin/true", "an-argument"]\n'


def upstream(kind: str, *lines: str) -> str:
    return "\n".join(["[upstreams.it]", f'kind = "{kind}"', *lines, ""])


OPENAI = 'base_url = "https://api.openai.com/v1"'
LOCAL = 'base_url = "http://127.0.0.1:8000/v1"'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def write(folder: Path, text: str) -> None:
    (folder / "dragoman.toml").write_text(text, encoding="utf-8")


def found(environ: dict[str, str], flags: Flags | None = None) -> FoundFile:
    seen: list[FoundFile] = []
    load_settings(None, environ, flags or Flags(), lambda file, _: seen.append(file))
    return seen[0]


NEEDS_TRUST = [
    (MCP, "mcp[0].command: start /bin/true ***"),
    (MCP + 'env_from = ["HOME"]\n', "mcp[0]: give it the environment variable HOME"),
    (MCP + 'env = {LD_PRELOAD = "x.so"}\n', "mcp[0].env: with the variables LD_PRELOAD"),
    (
        '[[mcp]]\nname = "far"\nurl = "http://127.0.0.1:9/mcp"\nheaders_from = {a = "HOME"}\n',
        "mcp[0]: give it the environment variable HOME",
    ),
    (
        '[[mcp]]\nname = "far"\nurl = "https://tools.example/k3y/mcp"\n',
        "mcp[0].url: offer the tools of https://tools.example/***/mcp, and send calls there",
    ),
    (upstream("codex"), "upstreams.it.command: start codex app-server"),
    (upstream("codex", 'command = ["./codex"]'), "upstreams.it.command: start ./codex"),
    (
        upstream("codex", 'codex_home = "."'),
        "upstreams.it.codex_home: with the configuration in .",
    ),
    (
        upstream("chat", 'base_url = "https://elsewhere.example/v1"'),
        "upstreams.it.base_url: send requests to https://elsewhere.example/v1",
    ),
    (
        upstream("chat", 'base_url = "https://api.openai.com.elsewhere.example/v1"'),
        "upstreams.it.base_url: send requests to https://api.openai.com.elsewhere.example/v1",
    ),
    (
        upstream("chat", 'base_url = "http://10.0.3.7:8000/v1"', 'api_key = "k"'),
        "upstreams.it.base_url: send requests and a key over plain http to http://10.0.3.7:8000/v1",
    ),
    (
        upstream("chat", 'base_url = "http://api.openai.com/v1"', 'api_key_env = "OPENAI_API_KEY"'),
        "upstreams.it.api_key_env: send the environment variable OPENAI_API_KEY to http://api.openai.com/v1",
    ),
    (
        upstream("chat", OPENAI, 'api_key_env = "AWS_SECRET"'),
        "upstreams.it.api_key_env: send the environment variable AWS_SECRET to https://api.openai.com/v1",
    ),
    (
        upstream("chat", LOCAL, 'api_key_env = "OPENAI_API_KEY"'),
        "upstreams.it.api_key_env: send the environment variable OPENAI_API_KEY to http://127.0.0.1:8000/v1",
    ),
    (
        upstream("chat", OPENAI, 'proxy = "http://me:pw@127.0.0.1:1"'),
        "upstreams.it.proxy: send everything through http://***@127.0.0.1:1",
    ),
    (
        upstream("chat", OPENAI, 'ca_file = "ca.pem"'),
        "upstreams.it.ca_file: trust servers that ca.pem vouches for",
    ),
    (
        upstream("chat", OPENAI, 'token_command = ["steal", "everything"]'),
        "upstreams.it.token_command: start steal ***",
    ),
    (
        upstream(
            "chat",
            '[[upstreams.it.peers]]\nname = "a"\nbase_url = "https://api.openai.com/v1"',
            '[[upstreams.it.peers]]\nname = "b"\nbase_url = "https://elsewhere.example/v1"',
        ),
        "upstreams.it.peers[1].base_url: send requests to https://elsewhere.example/v1",
    ),
    (
        upstream(
            "chat",
            '[[upstreams.it.peers]]\nname = "a"\nbase_url = "https://api.openai.com/v1"',
            'token_command = ["steal"]',
        ),
        "upstreams.it.peers[0].token_command: start steal",
    ),
    (
        upstream("chatgpt-codex", 'auth_file = "auth.json"'),
        "upstreams.it.auth_file: send the login in auth.json to https://chatgpt.com/",
    ),
    (
        upstream("chatgpt-codex", 'base_url = "https://elsewhere.example"'),
        "upstreams.it.base_url: send requests and the ChatGPT login to https://elsewhere.example",
    ),
    (
        upstream("chatgpt-codex", LOCAL),
        "upstreams.it.base_url: send requests and the ChatGPT login to http://127.0.0.1:8000/v1",
    ),
    (
        '[server]\nhost = "0.0.0.0"\napi_keys = ["known-to-the-author"]\n',
        "server.host: listen on 0.0.0.0, where other machines can reach it",
    ),
    (
        '[server]\ncors_origins = ["https://elsewhere.example"]\n',
        "server.cors_origins: let web pages of https://elsewhere.example use the gateway",
    ),
    (
        '[server]\napi_keys = ["known-to-the-author"]\n',
        "server.api_keys: let in everyone who knows the keys in this file",
    ),
    (
        f'[keys.guest]\ndigest = "sha256:{"0" * 64}"\n',
        "keys: let in everyone who has the keys guest",
    ),
    ('[dump]\npath = "x.jsonl"\n', "dump.path: write what upstreams send into x.jsonl"),
    (
        '[otel]\nendpoint = "https://collector.example/k3y"\n',
        "otel.endpoint: send traces of all requests, without their contents, to https://collector.example/***",
    ),
    ('[inspect]\nrecord = "r"\n', "inspect.record: write all requests and answers into r"),
    ('[store]\nurl = "sqlite:x.db"\n', "store.url: keep conversations in sqlite:x.db"),
    (
        '[store]\nurl = "postgresql://me:pw@db.example/x?password=y"\n',
        "store.url: keep conversations in postgresql://***@db.example/x?password=***",
    ),
]


@pytest.mark.parametrize(("text", "line"), NEEDS_TRUST)
def test_what_a_found_file_may_not_do_is_refused_and_said(
    folder: Path, environ: dict[str, str], text: str, line: str
) -> None:
    write(folder, text)
    with pytest.raises(ConfigError) as refused:
        load_settings(None, environ)
    message = refused.value.message
    assert f"\n  {line}" in message
    assert message.startswith("dragoman.toml was found in this folder; it is not used")
    assert message.endswith("dragoman trust; or name it: --config dragoman.toml")


@pytest.mark.parametrize(("text", "line"), NEEDS_TRUST)
def test_a_file_that_is_named_is_trusted_with_that(
    folder: Path, environ: dict[str, str], text: str, line: str
) -> None:
    del line
    write(folder, text)
    named = load_settings("dragoman.toml", environ)
    assert load_settings(None, {**environ, "DRAGOMAN_CONFIG": "dragoman.toml"}) == named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[server]\nport = 9000\nmax_streams = 3\n",
        upstream("rehearsal"),
        upstream("chat", LOCAL, 'api_key = "local"'),
        upstream("chat", 'base_url = "http://localhost:8000/v1"', 'headers = {a = "b"}'),
        upstream("chat", 'base_url = "https://[::1]/v1"'),
        upstream("chat", OPENAI, 'api_key_env = "OPENAI_API_KEY"'),
        upstream("messages", 'base_url = "https://api.anthropic.com"'),
        upstream("chat", 'base_url = "https://mine.example/v1"', 'api_key_env = "OPENAI_API_KEY"'),
        upstream("chatgpt-codex"),
        upstream("chatgpt-codex", 'base_url = "https://chatgpt.com/backend-api/codex"'),
        '[store]\nurl = "memory:"\n',
    ],
)
def test_what_harms_nobody_needs_no_trust(folder: Path, environ: dict[str, str], text: str) -> None:
    write(folder, text)
    load_settings(None, {**environ, "OPENAI_BASE_URL": "https://mine.example/v1"})


def test_what_the_person_says_takes_the_place_of_what_the_file_says(
    folder: Path, environ: dict[str, str]
) -> None:
    write(folder, upstream("chat", 'base_url = "https://elsewhere.example/v1"'))
    load_settings(None, environ, Flags(upstream="rehearsal"))
    write(
        folder,
        '[server]\nhost = "0.0.0.0"\napi_keys = ["a-key-of-this-test"]\n[store]\nurl = "sqlite:x.db"\n',
    )
    own = {"DRAGOMAN_STORE_URL": "memory:", "DRAGOMAN_API_KEYS": "a-key-of-this-person"}
    load_settings(None, {**environ, **own}, Flags(host="127.0.0.1"))
    with pytest.raises(ConfigError, match=r"server\.host"):
        load_settings(None, {**environ, **own})
    # Not the other way round: what the person chose is no claim of the file.
    write(folder, "[server]\nport = 9000\n")
    load_settings(
        None, {**environ, "DRAGOMAN_API_KEYS": "a-key-of-this-test"}, Flags(host="0.0.0.0")
    )
    # A program is not set aside by another upstream.
    write(folder, MCP)
    with pytest.raises(ConfigError, match=r"mcp\[0\]\.command"):
        load_settings(None, environ, Flags(upstream="rehearsal"))


def test_trust_lasts_until_the_file_changes_and_counts_in_its_folder_alone(
    folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, MCP)
    trusted = Trusted(environ)
    trusted.add(found(environ))
    assert [server.name for server in load_settings(None, environ).mcp] == ["own"]
    write(folder, MCP + "\n")
    with pytest.raises(ConfigError, match="has changed since you trusted it"):
        load_settings(None, environ)
    write(folder, MCP)
    load_settings(None, environ)
    # The same file elsewhere, or a link to it: its programs are others there.
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dragoman.toml").symlink_to(folder / "dragoman.toml")
    monkeypatch.chdir(elsewhere)
    with pytest.raises(ConfigError, match="was found in this folder"):
        load_settings(None, environ)
    # By another name the folder is the same.
    (folder.parent / "alias").symlink_to(folder)
    monkeypatch.chdir(folder.parent / "alias")
    load_settings(None, environ)
    trusted.remove(found(environ))
    with pytest.raises(ConfigError, match="was found in this folder"):
        load_settings(None, environ)


def test_what_was_hashed_is_what_is_used(
    folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, MCP)

    def swap(file: FoundFile, environ: object) -> None:
        del environ
        assert b"own" in file.data
        write(folder, MCP.replace("own", "other"))

    assert [server.name for server in load_settings(None, environ, on_found=swap).mcp] == ["own"]


def test_the_record_is_the_users_alone_and_lies_in_the_state_directory(
    folder: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    write(folder, MCP)
    file = found(environ)
    Trusted(environ).add(file)
    record = tmp_path / "state" / "dragoman" / "trusted.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in record.parent.iterdir()) == ["trusted.json", "trusted.lock"]
    assert [path.name for path in folder.iterdir()] == ["dragoman.toml"]
    assert Trusted(environ).has(file)


def test_files_that_are_trusted_at_the_same_time_are_all_trusted(
    folder: Path, environ: dict[str, str]
) -> None:
    files = [FoundFile(folder / f"{number}.toml", b"") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Trusted(environ).add, files))
    assert all(Trusted(environ).has(file) for file in files)


@pytest.mark.parametrize("spoil", ["writable", "link", "nonsense", "list"])
def test_a_record_that_others_could_have_written_says_nothing(
    folder: Path, environ: dict[str, str], tmp_path: Path, spoil: str
) -> None:
    write(folder, MCP)
    file = found(environ)
    trusted = Trusted(environ)
    trusted.add(file)
    record = tmp_path / "state" / "dragoman" / "trusted.json"
    match spoil:
        case "writable":
            record.chmod(0o666)
        case "link":
            record.rename(tmp_path / "real.json")
            record.symlink_to(tmp_path / "real.json")
        case "nonsense":
            record.write_bytes(b"{")
        case _:
            record.write_bytes(b"[]")
    assert not trusted.has(file)
    assert not trusted.has_changed(file)
    trusted.add(file)
    assert trusted.has(file)
    assert not record.is_symlink()
    assert record.stat().st_mode & 0o077 == 0


def test_a_record_that_cannot_be_written_is_said(folder: Path, tmp_path: Path) -> None:
    write(folder, MCP)
    (tmp_path / "file").write_text("", encoding="utf-8")
    environ = {"XDG_STATE_HOME": str(tmp_path / "file")}
    with pytest.raises(ConfigError, match="expected to write the record of trusted files"):
        Trusted(environ).add(found(environ))


# What a found file may say unasked. A key that is new is put here, or into `trust.py`: somebody has to decide.
HARMLESS: dict[type[Struct], set[str]] = {
    Settings: {"log", "chat", "retry", "routes", "hosted", "prices"},
    ServerSettings: {
        *("port", "workers", "max_body_bytes", "max_header_bytes", "max_tools", "max_depth"),
        *("max_values", "max_streams", "head_timeout", "body_timeout", "idle_timeout", "send_timeout"),
        *("keep_alive_interval", "shutdown_grace", "metrics", "responses_profile", "limits_without_store"),
        *("websocket", "websocket_max_age", "websocket_memory", "max_background", "background_max_seconds"),
    },
    DumpSettings: {"max_bytes", "files"},
    InspectSettings: {
        *("capture", "max_bytes", "max_exchange_bytes", "api_keys", "receipts", "record_max_bytes"),
    },
    OtelSettings: {"service_name", "traces", "metrics", "sample_ratio", "forward"},
    StoreSettings: {"policy", "ttl", "max_bytes", "max_record_bytes", "pool_size", "lease"},
    UpstreamSettings: {
        *("kind", "also", "api_key", "children", "held_ttl", "held_max", "headers", "query"),
        "limits_interval",
        *("connect_timeout", "first_byte_timeout", "idle_timeout", "max_connections", "always_stream"),
        *("never_stream", "websocket", "drop_fields"),
        *("passthrough", "name_fallback", "anthropic_version", "text_calls", "prompted_tools"),
        *("output_mode", "compaction", "count_tokens", "keeps_responses", "limits", "models", "losses"),
        *("cache", "cache_ttl", "match", "speed", "ignore"),
        *("api_key_header", "path", "stream_path", "add_fields"),
    },
    PeerSettings: {"name", "weight", "api_key"},
    McpServerSettings: {
        *("name", "allow", "deny", "start_timeout", "call_timeout", "restart", "headers"),
    },
}  # fmt: skip
JUDGED: dict[type[Struct], set[str]] = {
    Settings: {"server", "dump", "inspect", "otel", "store", "upstreams", "mcp", "keys"},
    ServerSettings: {"host", "cors_origins", "allowed_hosts", "api_keys"},
    DumpSettings: {"path"},
    InspectSettings: {"record"},
    OtelSettings: {"endpoint"},
    StoreSettings: {"url"},
    UpstreamSettings: {
        *("base_url", "api_key_env", "auth_file", "command", "env", "codex_home", "ca_file", "proxy"),
        *("recordings", "peers", "token_command"),
    },
    PeerSettings: {"base_url", "api_key_env", "token_command"},
    McpServerSettings: {"command", "env", "env_from", "cwd", "url", "headers_from", "oauth"},
}  # fmt: skip


@pytest.mark.parametrize("kind", HARMLESS, ids=lambda kind: kind.__name__)
def test_of_every_key_somebody_has_decided_whether_it_needs_trust(kind: type[Struct]) -> None:
    assert {*kind.__struct_fields__} == HARMLESS[kind] | JUDGED[kind]
    assert not HARMLESS[kind] & JUDGED[kind]


def test_a_key_over_plain_http_is_warned_of(folder: Path) -> None:
    write(
        folder,
        upstream("chat", 'base_url = "http://10.0.3.7/v1"', 'api_key = "k"')
        + '[[mcp]]\nname = "far"\nurl = "http://tools.example/mcp"\nheaders = {a = "b"}\n'
        + '[[mcp]]\nname = "near"\nurl = "http://127.0.0.1/mcp"\nheaders = {a = "b"}\n'
        + '[[mcp]]\nname = "bare"\nurl = "http://tools.example/mcp"\n',
    )
    assert plain_http(load_settings("dragoman.toml", {})) == [
        "upstreams.it: its key goes over plain http to 10.0.3.7",
        "mcp[0]: its headers go over plain http to tools.example",
    ]
