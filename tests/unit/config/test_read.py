"""Where settings come from: file, environment, flags, and which of them wins."""

from pathlib import Path
from typing import get_args

import pytest

from dragoman.config.read import Flags, find_file, load_settings
from dragoman.config.settings import (
    ModelLimits,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamKind,
    UpstreamSettings,
)
from dragoman.config.values import words
from dragoman.errors import ConfigError
from dragoman.gateway.route import Candidate, Router

FULL = """
[server]
host = "127.0.0.1"
port = 9000
api_keys = ["one", "two"]
keep_alive_interval = 5

[log]
format = "json"

[retry]
enabled = false

[upstreams.local]
kind = "chat"
also = ["responses"]
base_url = "http://127.0.0.1:8000/v1"
api_key = "client"
headers = { x-team = "a" }
models = { "qwen*" = { max_id_length = 9 } }
losses = { seal = "refuse" }

[upstreams.local.limits]
drop_schema_keywords = ["format"]

[upstreams.other]
kind = "messages"
base_url = "https://example.org"

[[routes]]
model = "claude-*"
upstream = "local"
upstream_model = "qwen3-coder"
fallback = ["other", "local=small"]

[[routes]]
model = "*"
upstream = "other"
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "dragoman.toml") -> Path:
    file = Path(name)
    file.write_text(text, encoding="utf-8")
    return file


def complaint(text: str | None = None, flags: Flags | None = None, **environ: str) -> str:
    if text is not None:
        write(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(None, environ, flags or Flags())
    return caught.value.message


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_is_read_whole() -> None:
    settings = load_settings(write(FULL), {})
    assert settings.server == ServerSettings(
        port=9000,
        api_keys=("one", "two"),
        keep_alive_interval=5.0,
    )
    assert (settings.log.format, settings.log.level) == ("json", "info")
    assert not settings.retry.enabled
    assert settings.upstreams["local"] == UpstreamSettings(
        kind="chat",
        also=("responses",),
        base_url="http://127.0.0.1:8000/v1",
        api_key="client",
        headers={"x-team": "a"},
        limits=ModelLimits(drop_schema_keywords=("format",)),
        models={"qwen*": ModelLimits(max_id_length=9)},
        losses={"seal": "refuse"},
    )
    assert settings.routes == (
        Route(
            model="claude-*",
            upstream="local",
            upstream_model="qwen3-coder",
            fallback=("other", "local=small"),
        ),
        Route(model="*", upstream="other"),
    )


def test_the_file_in_the_folder_is_read_unless_another_is_named() -> None:
    assert find_file(None, {}) is None
    here = write("[server]\nport = 1")
    other = write("[server]\nport = 2", "other.toml")
    third = write("[server]\nport = 3", "third.toml")
    assert load_settings(None, {}).server.port == 1
    assert load_settings(None, {"DRAGOMAN_CONFIG": str(other)}).server.port == 2
    assert load_settings(third, {"DRAGOMAN_CONFIG": str(other)}).server.port == 3
    assert (find_file(None, {}), find_file(third, {})) == (here, third)


@pytest.mark.parametrize("named", ["flag", "variable"])
def test_a_named_file_must_be_there(named: str) -> None:
    path, environ = ("no.toml", {}) if named == "flag" else (None, {"DRAGOMAN_CONFIG": "no.toml"})
    with pytest.raises(ConfigError, match=r"^no\.toml: expected a readable file: No such file"):
        load_settings(path, environ)


def test_bad_toml_is_reported_with_its_line() -> None:
    assert complaint("[server]\nport 8787") == (
        "dragoman.toml: expected TOML: Expected '=' after a key in a key/value pair (at line 2, column 6)"
    )


def test_number_of_more_digits_than_python_reads_is_reported() -> None:
    digits = "1" * 5000
    assert complaint(f"[server]\nport = {digits}").startswith("dragoman.toml: expected TOML: ")
    Path("dragoman.toml").unlink()
    assert complaint(DRAGOMAN_PORT=digits) == "DRAGOMAN_PORT: expected an integer, got a string"


def test_bytes_that_are_no_utf8_are_reported_with_their_line() -> None:
    Path("dragoman.toml").write_bytes(b'[server]\nhost = "\xff"')
    assert complaint() == "dragoman.toml: expected UTF-8, got other bytes in line 2"


def test_a_file_of_another_system_is_read() -> None:
    Path("dragoman.toml").write_bytes(b"\xef\xbb\xbf[server]\r\nport = 7\r\n")
    assert load_settings(None, {}).server.port == 7


def test_a_huge_file_is_refused() -> None:
    assert "at most" in complaint("#" * (4 * 1024 * 1024 + 1))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[server]\nprot = 1", "server.prot: unknown key; did you mean `port`?"),
        ("port = 1", "port: unknown key; did you mean `server.port`?"),
        ("[sever]", "sever: unknown key; did you mean `server`?"),
        (
            "[zzz]",
            (
                "zzz: unknown key; known here: server, log, chat, dump, inspect, otel, retry, store, upstreams, routes, mcp, hosted, "
                "keys, prices"
            ),
        ),
        (
            '[upstreams.a]\nkind = "chat"\nbaseUrl = "x"',
            "upstreams.a.baseUrl: unknown key; did you mean `base_url`?",
        ),
        (
            '[upstreams.a]\nkind = "chat"\nbase_url = "http://127.0.0.1:1"\nmodels = {"g*" = {strict = true}}',
            'upstreams.a.models."g*".strict: unknown key; did you mean `strict_tools`?',
        ),
        (
            '[upstreams.a]\nkind = "rehearsal"\nupstream_model = "x"',
            "upstreams.a.upstream_model: unknown key; it belongs in [[routes]]",
        ),
        (
            '[upstreams.a]\nkind = "rehearsal"\nzzz = "x"',
            "upstreams.a.zzz: unknown key; remove it; `dragoman check --all` shows every key",
        ),
        ('[server]\nport = "1"', "server.port: expected an integer, got a string"),
        ("[server]\nport = true", "server.port: expected an integer, got true or false"),
        ("[server]\nport = 1.5", "server.port: expected an integer, got a number"),
        ("[server]\nhost = 1", "server.host: expected a string, got an integer"),
        ("[server]\nmetrics = 1", "server.metrics: expected true or false, got an integer"),
        (
            "[server]\nkeep_alive_interval = []",
            "server.keep_alive_interval: expected a number, got a list",
        ),
        (
            '[server]\napi_keys = "sk-secret"',
            "server.api_keys: expected a list, each entry a string, got a string",
        ),
        ("[server]\napi_keys = [1]", "server.api_keys[0]: expected a string, got an integer"),
        ("[server]\nhost = 2020-01-01", "server.host: expected a string, got a date or time"),
        ("server = 1", "server: expected a table, got an integer"),
        ("upstreams = []", "upstreams: expected a table, got a list"),
        ("upstreams = {a = 1}", "upstreams.a: expected a table, got an integer"),
        (
            "[routes]\nmodel = 1",
            "routes: expected a list, each entry a table, got a table",
        ),
        ('[[routes]]\nmodel = "*"', "routes[0].upstream: expected a string, it is missing"),
        (
            "[upstreams.a]",
            f"upstreams.a.kind: expected one of {words(get_args(UpstreamKind))}, it is missing",
        ),
        (
            '[upstreams.a]\nkind = "rehersal"',
            (
                f"upstreams.a.kind: expected one of {words(get_args(UpstreamKind))}, "
                'got "rehersal"; did you mean `rehearsal`?'
            ),
        ),
        (
            "[log]\nlevel = 1",
            'log.level: expected one of "debug", "info", "warning", "error", got an integer',
        ),
    ],
)
def test_a_key_that_does_not_fit_is_reported_with_its_path(text: str, line: str) -> None:
    number = text.count("\n") + 1
    wheres = (f"dragoman.toml:{number}", f"dragoman.toml: near line {number}")
    near = ("[[routes]]\nmodel", "[upstreams.a]")
    is_near = text.startswith(near[0]) or text == near[1]
    where = wheres[is_near].replace("line 2", "line 1")
    if text.startswith("[routes]"):
        where = "dragoman.toml:1"
    assert complaint(text) == f"{where}: {line}"


def test_all_faults_of_a_file_are_reported_at_once() -> None:
    lines = complaint("port = 1\n[server]\nhost = 1\nprot = 1").split("\n")
    assert [line.split(": ")[:2] for line in lines] == [
        ["dragoman.toml:1", "port"],
        ["dragoman.toml:3", "server.host"],
        ["dragoman.toml:4", "server.prot"],
    ]


def test_faults_of_reading_and_of_checking_are_reported_at_once() -> None:
    text = """[server]
workers = 0
hots = "127.0.0.1"
[log]
levle = "info"
[upstreams.a]
kind = "openai"
base_url = "127.0.0.1:8000"
api_key = "$OPENAI_API_KEY"
[upstreams.b]
kind = "chat"
baseurl = "http://127.0.0.1:1/v1"
[[routes]]
model = "*"
upstream = "c"
[[routes]]
modle = "x"
upstream = "d"
"""
    lines = complaint(text).split("\n")
    assert [line.split(": ")[:2] for line in lines] == [
        ["dragoman.toml:2", "server.workers"],
        ["dragoman.toml:3", "server.hots"],
        ["dragoman.toml:5", "log.levle"],
        ["dragoman.toml:7", "upstreams.a.kind"],
        ["dragoman.toml:8", "upstreams.a.base_url"],
        ["dragoman.toml:9", "upstreams.a.api_key"],
        ["dragoman.toml:12", "upstreams.b.baseurl"],
        ["dragoman.toml:15", "routes[0].upstream"],
        ["dragoman.toml", "near line 16"],
        ["dragoman.toml:17", "routes[1].modle"],
    ]
    assert 'write api_key_env = "OPENAI_API_KEY"' in lines[5]


def test_a_problem_of_a_variable_or_flag_has_no_line_of_the_file() -> None:
    text = '[server]\nhost = "127.0.0.1"\nport = 1'
    assert complaint(text, DRAGOMAN_HOST="0.0.0.0").startswith("server.host: 0.0.0.0 can be")
    assert complaint(text, Flags(port=-1)).startswith("server.port: expected")
    assert complaint(text, DRAGOMAN_STORE_TTL="0").startswith("store.ttl: expected")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("openai", 'OpenAI itself is `kind = "responses"`'),
        ("Anthropic", '`kind = "messages"`'),
        ("ollama", '`kind = "chat"`'),
        ("vllm", '`kind = "chat"`'),
        ("chatgpt", '`kind = "chatgpt-codex"`'),
    ],
)
def test_the_name_of_a_vendor_as_kind_gets_a_hint(word: str, hint: str) -> None:
    text = f'[upstreams.a]\nkind = "{word}"\nbase_url = "http://127.0.0.1:1/v1"'
    said = complaint(text)
    assert said.startswith("dragoman.toml:2: upstreams.a.kind: expected one of ")
    assert f'got "{word}"; ' in said
    assert hint in said
    short = complaint("", Flags(upstream=f"{word}=http://127.0.0.1:1/v1"))
    assert hint in short


@pytest.mark.parametrize("value", ["$OPENAI_API_KEY", "${OPENAI_API_KEY}"])
def test_a_key_that_is_the_name_of_a_variable_is_refused(value: str) -> None:
    base = '[upstreams.a]\nkind = "chat"\nbase_url = "http://127.0.0.1:1/v1"\n'
    said = complaint(f'{base}api_key = "{value}"')
    assert said.startswith("dragoman.toml:4: upstreams.a.api_key: expected a key, got the name of")
    assert said.endswith('write api_key_env = "OPENAI_API_KEY"')
    said = complaint(f'{base}api_key_env = "{value}"')
    assert said.endswith('write api_key_env = "OPENAI_API_KEY"')


# --- environment and flags --------------------------------------------------------------------------------------------


def test_flags_beat_the_environment_and_the_environment_the_file() -> None:
    write('[server]\nport = 1\nworkers = 2\nhost = "::1"\n[log]\nlevel = "error"')
    environ = {"DRAGOMAN_PORT": "3", "DRAGOMAN_WORKERS": "4", "DRAGOMAN_LOG_LEVEL": "debug"}
    settings = load_settings(None, environ, Flags(port=5, log_format="console"))
    assert settings.server == ServerSettings(port=5, workers=4, host="::1")
    assert (settings.log.level, settings.log.format) == ("debug", "console")


def test_every_variable_is_read() -> None:
    environ = {
        "DRAGOMAN_HOST": "0.0.0.0",
        "DRAGOMAN_PORT": "80",
        "DRAGOMAN_WORKERS": "2",
        "DRAGOMAN_API_KEYS": "the-first-key-of-all, the-second-one-of-all,,",
        "DRAGOMAN_CORS_ORIGINS": "https://a.example,app://obsidian.md",
        "DRAGOMAN_ALLOWED_HOSTS": "gateway.lan, *.example.org",
        "DRAGOMAN_LOG_FORMAT": "json",
        "DRAGOMAN_LOG_LEVEL": "warning",
    }
    settings = load_settings(None, environ)
    assert settings.server == ServerSettings(
        host="0.0.0.0",
        port=80,
        workers=2,
        api_keys=("the-first-key-of-all", "the-second-one-of-all"),
        cors_origins=("https://a.example", "app://obsidian.md"),
        allowed_hosts=("gateway.lan", "*.example.org"),
    )
    assert (settings.log.format, settings.log.level) == ("json", "warning")


def test_an_empty_variable_counts_as_unset() -> None:
    environ: dict[str, str] = dict.fromkeys(
        ("DRAGOMAN_CONFIG", "DRAGOMAN_PORT", "DRAGOMAN_API_KEYS", "OPENAI_API_KEY"), ""
    )
    assert load_settings(None, environ) == load_settings(None, {})


def test_every_flag_is_taken() -> None:
    flags = Flags(host="localhost", port=1, workers=2, log_format="json", log_level="debug")
    settings = load_settings(None, {}, flags)
    assert settings.server == ServerSettings(host="localhost", port=1, workers=2)
    assert (settings.log.format, settings.log.level) == ("json", "debug")


def test_a_bad_variable_or_flag_is_called_by_its_name() -> None:
    flags = Flags(log_format="xml", upstream="chta=http://127.0.0.1:1/v1")
    lines = complaint(None, flags, DRAGOMAN_PORT="http", DRAGOMAN_LOG_LEVEL="warn").split("\n")
    assert lines == [
        "DRAGOMAN_PORT: expected an integer, got a string",
        (
            'DRAGOMAN_LOG_LEVEL: expected one of "debug", "info", "warning", "error", got "warn"; '
            "did you mean `warning`?"
        ),
        '--log-format: expected one of "auto", "console", "json", got "xml"',
        (
            '--upstream: expected kind=URL with a kind of "chat", "responses", "messages", such as '
            'chat=http://127.0.0.1:8000/v1, or one of "rehearsal", "codex", "chatgpt-codex" alone; '
            "got 'chta=http://127.0.0.1:1/v1'; did you mean `chat`?"
        ),
    ]


# --- where upstreams come from ----------------------------------------------------------------------------------------


def test_with_nothing_at_all_there_is_the_rehearsal() -> None:
    settings = load_settings(None, {})
    assert settings == Settings(
        upstreams={"rehearsal": UpstreamSettings(kind="rehearsal")},
        routes=(Route(model="*", upstream="rehearsal"),),
        store=StoreSettings(),
    )


def test_an_openai_key_makes_the_upstream_openai() -> None:
    settings = load_settings(None, {"OPENAI_API_KEY": "sk-x"})
    assert settings.upstreams == {
        "openai": UpstreamSettings(
            kind="responses",
            also=("chat",),
            base_url="https://api.openai.com/v1",
            api_key_env="OPENAI_API_KEY",
            keeps_responses=True,
        )
    }
    assert Router(settings).candidates("anything") == (Candidate("openai", "anything"),)


def test_an_anthropic_key_makes_the_upstream_anthropic() -> None:
    settings = load_settings(None, {"ANTHROPIC_API_KEY": "sk-x"})
    assert settings.upstreams == {
        "anthropic": UpstreamSettings(
            kind="messages",
            base_url="https://api.anthropic.com/v1",
            api_key_env="ANTHROPIC_API_KEY",
        )
    }
    assert Router(settings).candidates("anything") == (Candidate("anthropic", "anything"),)


def test_with_both_keys_claude_goes_to_anthropic_and_the_rest_to_openai() -> None:
    settings = load_settings(None, {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"})
    assert Router(settings).candidates("claude-opus")[0].upstream == "anthropic"
    assert Router(settings).candidates("gpt-5")[0].upstream == "openai"


def test_the_vendors_base_urls_may_be_others() -> None:
    environ = {
        "OPENAI_API_KEY": "a",
        "OPENAI_BASE_URL": "https://openai.example/v1",
        "ANTHROPIC_API_KEY": "b",
        "ANTHROPIC_BASE_URL": "https://anthropic.example",
    }
    settings = load_settings(None, environ)
    assert settings.upstreams["openai"].base_url == "https://openai.example/v1"
    assert settings.upstreams["anthropic"].base_url == "https://anthropic.example"


ONE = '[upstreams.local]\nkind = "chat"\nbase_url = "http://127.0.0.1:8000/v1"\n'
KEYS = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}


def test_the_only_upstream_of_a_file_gets_everything_whatever_keys_there_are() -> None:
    write(ONE)
    settings = load_settings(None, KEYS)
    assert list(settings.upstreams) == ["local"]
    assert Router(settings).candidates("claude-opus")[0].upstream == "local"


def test_routes_of_a_file_may_use_the_upstreams_of_the_environment() -> None:
    write(ONE + '[[routes]]\nmodel = "*"\nupstream = "local"\nfallback = ["openai"]')
    settings = load_settings(None, KEYS)
    assert Router(settings).candidates("m") == (Candidate("local", "m"), Candidate("openai", "m"))


def test_an_upstream_of_the_file_replaces_the_environments_of_the_same_name() -> None:
    write(ONE.replace("local", "openai") + '[[routes]]\nmodel = "*"\nupstream = "openai"')
    assert load_settings(None, KEYS).upstreams["openai"].kind == "chat"


def test_several_upstreams_in_a_file_need_routes() -> None:
    assert complaint(ONE + ONE.replace("local", "other")) == (
        "routes: expected at least one, there are 2 upstreams (local, other); "
        'add for example [[routes]] model = "*" upstream = "local"'
    )


def test_the_short_form_is_the_only_upstream() -> None:
    write(FULL)
    flags = Flags(upstream="messages=http://127.0.0.1:8000/anthropic")
    settings = load_settings("dragoman.toml", KEYS, flags)
    assert settings.upstreams == {
        "messages": UpstreamSettings(kind="messages", base_url="http://127.0.0.1:8000/anthropic")
    }
    assert Router(settings).candidates("claude-x") == (Candidate("messages", "claude-x"),)
    assert settings.server.port == 9000


def test_the_rehearsal_has_a_short_form_without_an_address() -> None:
    settings = load_settings(None, KEYS, Flags(upstream="rehearsal"))
    assert settings.upstreams == {"rehearsal": UpstreamSettings(kind="rehearsal")}


@pytest.mark.parametrize(
    ("url", "environ", "variable"),
    [
        ("http://127.0.0.1:8000/v1", KEYS, None),
        ("https://api.openai.com/v1", KEYS, "OPENAI_API_KEY"),
        ("https://api.anthropic.com", KEYS, "ANTHROPIC_API_KEY"),
        ("https://api.openai.com.example.org/v1", KEYS, None),
        ("https://api.openai.com/v1", {}, None),
        (
            "https://api.openai.com/v1",
            {**KEYS, "DRAGOMAN_UPSTREAM_KEY": "k"},
            "DRAGOMAN_UPSTREAM_KEY",
        ),
    ],
)
def test_a_vendors_key_goes_to_the_vendor_only(
    url: str, environ: dict[str, str], variable: str | None
) -> None:
    upstream = load_settings(None, environ, Flags(upstream=f"chat={url}")).upstreams["chat"]
    assert (upstream.api_key_env, upstream.api_key) == (variable, None)


def test_the_short_form_may_pass_the_callers_key_on() -> None:
    flags = Flags(upstream="chat=http://127.0.0.1:1/v1")
    upstream = load_settings(None, {"DRAGOMAN_UPSTREAM_KEY": "client"}, flags).upstreams["chat"]
    assert (upstream.api_key_env, upstream.api_key) == (None, "client")


@pytest.mark.parametrize("text", ["", "chat", "chat=", "=http://a/v1", "http://a/v1"])
def test_a_short_form_that_is_none_is_explained(text: str) -> None:
    assert complaint(None, Flags(upstream=text)).startswith("--upstream: expected kind=URL")


@pytest.mark.parametrize("url", ["ftp://a", "127.0.0.1:8000", "http://[::1"])
def test_a_short_form_with_a_bad_address_is_refused(url: str) -> None:
    assert "upstreams.chat.base_url: expected an address such as" in complaint(
        None, Flags(upstream=f"chat={url}")
    )


def test_passwords_in_a_bad_short_form_are_not_repeated() -> None:
    text = complaint(None, Flags(upstream="chta=http://me:hunter2@host/v1"))
    assert "hunter2" not in text


def test_an_upstream_over_websockets_always_streams(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    text = '[upstreams.it]\nkind = "responses"\nbase_url = "http://127.0.0.1:1/v1"\nwebsocket = '
    for word in ("true", "false"):
        file.write_text(text + word, encoding="utf-8")
        upstream = load_settings(file, {}).upstreams["it"]
        assert upstream.websocket is upstream.always_stream is (word == "true")


@pytest.mark.parametrize("other", ["websocket", "always_stream"])
def test_an_upstream_cannot_stream_always_and_never(other: str) -> None:
    text = '[upstreams.it]\nkind = "responses"\nbase_url = "http://127.0.0.1:1/v1"\n'
    found = complaint(f"{text}never_stream = true\n{other} = true\n")
    assert "upstreams.it.never_stream: contradicts always_stream" in found


# --- the ChatGPT Codex backend and the dump ---------------------------------------------------------------------------


def test_the_chatgpt_codex_backend_has_its_own_address_and_always_streams(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[upstreams.codex]\nkind = "chatgpt-codex"', encoding="utf-8")
    for settings in (
        load_settings(file, {}),
        load_settings(None, {"DRAGOMAN_UPSTREAM_KEY": "k"}, Flags(upstream="chatgpt-codex")),
    ):
        [upstream] = settings.upstreams.values()
        assert upstream.base_url == "https://chatgpt.com/backend-api/codex"
        assert upstream.always_stream
        assert (upstream.api_key, upstream.api_key_env) == (None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('api_key = "k"', "uses Codex's login; leave api_key and api_key_env out"),
        ('also = ["chat"]', "speaks Responses only"),
        ('base_url = "chatgpt.com"', "expected an address"),
        ("losses = { unsupported = 'drop' }", "unknown kind of loss"),
    ],
)
def test_what_the_chatgpt_codex_backend_cannot_have_is_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(f'[upstreams.codex]\nkind = "chatgpt-codex"\n{text}', encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        load_settings(file, {})


def test_a_login_file_is_for_the_chatgpt_codex_backend_only(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    text = '[upstreams.a]\nkind = "chat"\nbase_url = "http://x/v1"\nauth_file = "auth.json"'
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="auth_file: only the kind"):
        load_settings(file, {})


@pytest.mark.requirement("S000-27", "S000-29")
@pytest.mark.parametrize(
    ("variable", "in_file", "path"),
    [
        (None, None, None),
        (None, "a.jsonl", "a.jsonl"),
        ("", "a.jsonl", "a.jsonl"),
        ("1", None, "dump_sse.jsonl"),
        ("TRUE", None, "dump_sse.jsonl"),
        ("1", "a.jsonl", "a.jsonl"),
        ("0", "a.jsonl", None),
        ("false", None, None),
    ],
)
def test_the_dump_is_switched_by_its_variable(
    variable: str | None, in_file: str | None, path: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "dragoman.toml"
    text = "" if in_file is None else f'[dump]\npath = "{in_file}"'
    file.write_text(text, encoding="utf-8")
    environ = {} if variable is None else {"CODEX_DUMP_SSE": variable}
    assert load_settings(file, environ).dump.path == path


def test_a_switch_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text('[dump]\npath = " "\nfiles = 0\nmax_bytes = -1', encoding="utf-8")
    with pytest.raises(ConfigError, match="CODEX_DUMP_SSE: expected 1 or true"):
        load_settings(file, {"CODEX_DUMP_SSE": "perhaps"})
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {})
    for line in ("dump.path: ", "dump.files: expected more than 0", "dump.max_bytes: "):
        assert line in caught.value.message
