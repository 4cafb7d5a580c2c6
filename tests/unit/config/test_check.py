"""Which settings can work."""

import sys
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.config.check import check_surroundings, complete, is_loopback, warnings_of
from dragoman.config.settings import (
    ModelLimits,
    OtelSettings,
    PeerSettings,
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman.errors import ConfigError

LOCAL = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:8000/v1")


def complaints(settings: Settings) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        complete(settings)
    return caught.value.message.split("\n")


def of_upstream(**fields: object) -> list[str]:
    return complaints(Settings(upstreams={"a": structs.replace(LOCAL, **fields)}))


def of_routes(*routes: Route) -> list[str]:
    return complaints(Settings(upstreams={"local": LOCAL, "other": LOCAL}, routes=routes))


def test_settings_of_a_program_are_completed_like_those_of_a_file() -> None:
    done = complete(Settings())
    assert done.upstreams == {"rehearsal": UpstreamSettings(kind="rehearsal")}
    assert done.routes == (Route(model="*", upstream="rehearsal"),)
    assert complete(done) == done
    assert complete(Settings(upstreams={"a": LOCAL})).routes == (Route(model="*", upstream="a"),)


PEER = PeerSettings(name="one", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("localhost.example.org", False),
        ("gateway", False),
    ],
)
def test_listening_where_others_can_reach_it_needs_keys(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    open_server = Settings(server=ServerSettings(host=host))
    if loopback:
        complete(open_server)
    else:
        (line,) = complaints(open_server)
        assert line.startswith(f"server.host: {host} can be reached from other machines")
        assert "set api_keys in [server] (or DRAGOMAN_API_KEYS)" in line
    complete(Settings(server=ServerSettings(host=host, api_keys=("a-key-of-some-length",))))


def test_keys_that_can_be_guessed_are_refused_where_others_can_try_them() -> None:
    keys = ("a-key-of-some-length", "short", "x" * 15)
    server = ServerSettings(host="0.0.0.0", api_keys=keys)
    lines = complaints(Settings(server=server))
    assert [line.partition(":")[0] for line in lines] == [
        "server.api_keys[1]",
        "server.api_keys[2]",
    ]
    assert all("at least 16 characters" in line for line in lines)
    assert not any(key in line for line in lines for key in keys)


def test_keys_that_can_be_guessed_are_warned_of_on_loopback() -> None:
    settings = complete(Settings(server=ServerSettings(api_keys=("a-key-of-some-length", "short"))))
    (line,) = warnings_of(settings)
    assert line.startswith("server.api_keys[1]: ")
    assert "at least 16 characters" in line
    assert "short" not in line.replace("shorter", "")
    assert not warnings_of(complete(Settings()))


@pytest.mark.parametrize("origin", ["*", "null", "https://*", "http://*:*", "*://*"])
def test_every_origin_without_keys_is_refused(origin: str) -> None:
    (line,) = complaints(Settings(server=ServerSettings(cors_origins=("app://a", origin))))
    assert line.startswith("server.cors_origins[1]: ")
    if origin != "*://*":
        assert "any web page" in line
        assert "api_keys" in line
        complete(Settings(server=ServerSettings(cors_origins=(origin,), api_keys=("k" * 16,))))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"host": " "}, "server.host: expected an address to listen on, got an empty string"),
        ({"port": 65536}, "server.port: expected a port from 0 to 65535, got 65536"),
        ({"port": -1}, "server.port: expected a port from 0 to 65535, got -1"),
        ({"workers": 0}, "server.workers: expected more than 0, got 0"),
        ({"max_tools": -2}, "server.max_tools: expected more than 0, got -2"),
        ({"max_values": 500_001}, "server.max_values: expected at most 500000, got 500001"),
        (
            {"keep_alive_interval": float("nan")},
            "server.keep_alive_interval: expected more than 0, got nan",
        ),
        (
            {"shutdown_grace": 4000.0},
            "server.shutdown_grace: expected seconds from 0 to 3600, got 4000.0",
        ),
        (
            {"api_keys": ("a", "b c")},
            "server.api_keys[1]: expected visible ASCII characters without spaces, got others or none",
        ),
        (
            {"allowed_hosts": ("gateway.lan", "http://other")},
            (
                'server.allowed_hosts[1]: expected a host\'s name such as "gateway.lan" or "*.example.org" '
                "(no scheme, no port), or \"*\"; got 'http://other'"
            ),
        ),
        ({"head_timeout": 0.0}, "server.head_timeout: expected more than 0, got 0.0"),
        ({"body_timeout": -1.0}, "server.body_timeout: expected more than 0, got -1.0"),
        (
            {"cors_origins": ("https://a.example/",)},
            (
                'server.cors_origins[0]: expected "*" or an origin such as "https://example.org" '
                "(no path, no slash at the end), got 'https://a.example/'"
            ),
        ),
    ],
)
def test_a_server_that_cannot_work_is_refused(fields: dict[str, object], line: str) -> None:
    assert complaints(Settings(server=structs.replace(ServerSettings(), **fields))) == [line]


def test_origins_of_browsers_and_desktop_clients_are_taken() -> None:
    origins = ("app://obsidian.md", "http://localhost:3000", "https://*.example.org")
    complete(Settings(server=ServerSettings(cors_origins=origins)))
    every = ServerSettings(cors_origins=("*", "null", *origins), api_keys=("a-key-of-some-length",))
    complete(Settings(server=every))


def test_hosts_are_names_and_globs() -> None:
    hosts = ("gateway.lan", "*.ts.net", "box", "192.168.1.4", "[fd00::1]", "*")
    complete(Settings(server=ServerSettings(allowed_hosts=hosts)))


@pytest.mark.parametrize(
    ("retry", "line"),
    [
        (RetrySettings(attempts=0), "retry.attempts: expected more than 0, got 0"),
        (RetrySettings(base_delay=-1.0), "retry.base_delay: expected 0 or more, got -1.0"),
        (RetrySettings(max_wait=float("inf")), "retry.max_wait: expected 0 or more, got inf"),
    ],
)
def test_a_retry_policy_that_cannot_work_is_refused(retry: RetrySettings, line: str) -> None:
    assert complaints(Settings(retry=retry)) == [line]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"base_url": ""},
            "upstreams.a.base_url: expected an http:// or https:// address, it is missing",
        ),
        (
            {"base_url": "ftp://a/v1"},
            "upstreams.a.base_url: expected an address such as http://127.0.0.1:8000/v1, got 'ftp://a/v1'",
        ),
        (
            {"base_url": "http://:80/v1"},
            "upstreams.a.base_url: expected an address such as http://127.0.0.1:8000/v1, got 'http://:80/v1'",
        ),
        (
            {"base_url": "http://a:99999/v1"},
            "upstreams.a.base_url: expected an address such as http://127.0.0.1:8000/v1, got 'http://a:99999/v1'",
        ),
        (
            {"base_url": "http://a/v1?key=secret"},
            (
                "upstreams.a.base_url: expected an address without `?` and `#`, got 'http://a/v1?key=***'; "
                "a query goes into `query`"
            ),
        ),
        (
            {"base_url": "http://me:secret@a/v1"},
            (
                "upstreams.a.base_url: expected an address without user and password, got "
                "'http://***@a/v1'; use api_key, api_key_env or headers"
            ),
        ),
        (
            {"kind": "rehearsal"},
            "upstreams.a.base_url: a rehearsal answers by itself and has no address; leave it out",
        ),
        (
            {"proxy": "socks5://me:secret@a"},
            "upstreams.a.proxy: expected an address such as http://127.0.0.1:8000/v1, got 'socks5://***@a'",
        ),
        (
            {"api_key": "k", "api_key_env": "K"},
            "upstreams.a: expected one of api_key, api_key_env and token_command, got api_key and api_key_env",
        ),
        (
            {"api_key": "k", "token_command": ("x",)},
            "upstreams.a: expected one of api_key, api_key_env and token_command, got api_key and token_command",
        ),
        (
            {"token_command": (" ",)},
            "upstreams.a.token_command: expected a program and its arguments",
        ),
        (
            {"kind": "chatgpt-codex", "token_command": ("x",)},
            (
                'upstreams.a.token_command: expected the kind "chat", "responses" or "messages", '
                'this is "chatgpt-codex"'
            ),
        ),
        (
            {"api_key_header": "api key"},
            "upstreams.a.api_key_header: expected a header's name and value, in ASCII and without line breaks",
        ),
        (
            {"api_key_header": "Host"},
            "upstreams.a.api_key_header: expected another header; the gateway sets this one for each connection",
        ),
        (
            {"path": "models"},
            "upstreams.a.path: expected a path such as \"/{model}:rawPredict\", got 'models'",
        ),
        (
            {"path": "/{name}"},
            "upstreams.a.path: expected a path such as \"/{model}:rawPredict\", got '/{name}'",
        ),
        (
            {"path": "/{model}", "stream_path": "/stream"},
            "upstreams.a.stream_path: expected {model} in both paths, or in neither",
        ),
        (
            {"stream_path": "/stream"},
            "upstreams.a.stream_path: expected `path` beside it, for answers that are not streamed",
        ),
        (
            {"path": "/x", "also": ("responses",)},
            "upstreams.a.path: expected an upstream with one dialect, without `also`",
        ),
        (
            {"kind": "responses", "path": "/x", "websocket": True},
            "upstreams.a.path: expected no `websocket` beside it",
        ),
        (
            {"add_fields": {"stream": "x"}},
            "upstreams.a.add_fields.stream: expected another member; the gateway sets this one",
        ),
        (
            {"peers": (PEER,)},
            "upstreams.a: expected base_url or peers, got both",
        ),
        (
            {"base_url": "", "peers": (PEER, PEER)},
            "upstreams.a.peers[1].name: expected a name of its own, 'one' is there already",
        ),
        (
            {"base_url": "", "peers": (structs.replace(PEER, name="a/b"),)},
            "upstreams.a.peers[0].name: expected letters, digits, `_`, `.` and `-`",
        ),
        (
            {"base_url": "", "peers": (structs.replace(PEER, weight=0.0),)},
            "upstreams.a.peers: expected a weight above 0 for at least one of them",
        ),
        (
            {"base_url": "", "peers": (structs.replace(PEER, weight=-1.0),)},
            "upstreams.a.peers[0].weight: expected 0 or more, got -1.0",
        ),
        (
            {"base_url": "", "peers": (structs.replace(PEER, base_url="http://me:pw@h"),)},
            (
                "upstreams.a.peers[0].base_url: expected an address without user and password, got "
                "'http://***@h'; use api_key, api_key_env or headers"
            ),
        ),
        (
            {"base_url": "", "peers": (structs.replace(PEER, api_key="$MY_KEY"),)},
            (
                "upstreams.a.peers[0].api_key: expected a key, got the name of a variable, which is not "
                'replaced here; write api_key_env = "MY_KEY"'
            ),
        ),
        (
            {"base_url": "", "peers": (PEER,), "keeps_responses": True},
            (
                "upstreams.a.keeps_responses: only one server knows the id of a response; "
                "leave it out beside peers"
            ),
        ),
        (
            {"kind": "rehearsal", "base_url": "", "peers": (PEER,)},
            'upstreams.a.peers: expected the kind "chat", "responses" or "messages", this is "rehearsal"',
        ),
        (
            {"api_key": ""},
            (
                "upstreams.a.api_key: expected a key (visible ASCII characters without spaces) or "
                '"client", got other characters or none'
            ),
        ),
        (
            {"api_key_env": " "},
            "upstreams.a.api_key_env: expected the name of an environment variable, got an empty string",
        ),
        (
            {"also": ("codex",)},
            'upstreams.a.also: expected any of "chat", "responses", "messages"; got "codex"',
        ),
        (
            {"headers": {"x-a": "one\r\nx-b: two"}},
            "upstreams.a.headers.x-a: expected a header's name and value, in ASCII and without line breaks",
        ),
        (
            {"headers": {"x a": "one"}},
            'upstreams.a.headers."x a": expected a header\'s name and value, in ASCII and without line breaks',
        ),
        (
            {"headers": {"x-a": "ü"}},
            "upstreams.a.headers.x-a: expected a header's name and value, in ASCII and without line breaks",
        ),
        (
            {"headers": {"Host": "a"}},
            "upstreams.a.headers.Host: expected another header; the gateway sets this one for each connection",
        ),
        ({"idle_timeout": 0.0}, "upstreams.a.idle_timeout: expected more than 0, got 0.0"),
        (
            {"websocket": True},
            'upstreams.a.websocket: only the kinds "responses" and "chatgpt-codex" speak it, this is "chat"',
        ),
        ({"max_connections": 0}, "upstreams.a.max_connections: expected more than 0, got 0"),
        (
            {"losses": {"namespaces": "drop"}},
            "upstreams.a.losses.namespaces: unknown kind of loss; did you mean `namespace`?",
        ),
        (
            {"limits": ModelLimits(max_id_length=0)},
            "upstreams.a.limits.max_id_length: expected more than 0, got 0",
        ),
        (
            {"models": {"g-*": ModelLimits(name_pattern="[a")}},
            (
                'upstreams.a.models."g-*".name_pattern: expected a regular expression for one character, '
                "got '[a': unterminated character set at position 0"
            ),
        ),
        (
            {"limits": ModelLimits(builtin_tools=("websearch",))},
            'upstreams.a.limits.builtin_tools[0]: unknown kind of tool "websearch"; did you mean `web_search`?',
        ),
    ],
)
def test_an_upstream_that_cannot_work_is_refused(fields: dict[str, object], line: str) -> None:
    assert of_upstream(**fields) == [line]


@pytest.mark.parametrize(
    "fields", [{"losses": {"zzzz": "drop"}}, {"limits": ModelLimits(builtin_tools=("zzzz",))}]
)
def test_a_word_like_none_of_the_known_is_answered_with_all_of_them(
    fields: dict[str, object],
) -> None:
    (line,) = of_upstream(**fields)
    assert "; known: " in line


def test_the_name_of_an_upstream_is_plain() -> None:
    assert complaints(Settings(upstreams={"a b": LOCAL})) == [
        'upstreams."a b": expected a name of letters, digits, `_`, `.` and `-`'
    ]


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8787/v1"),
        ("127.0.0.1", "http://localhost:8787"),
        ("localhost", "http://[::1]:8787/v1"),
        ("0.0.0.0", "http://127.0.0.1:8787/v1"),
        ("gateway.example", "http://Gateway.example:8787/v1"),
    ],
)
def test_an_upstream_that_is_the_gateway_itself_is_refused(host: str, base_url: str) -> None:
    settings = Settings(
        server=ServerSettings(host=host, api_keys=("a-key-of-some-length",)),
        upstreams={"a": structs.replace(LOCAL, base_url=base_url)},
    )
    assert complaints(settings) == [
        f"upstreams.a.base_url: {base_url} is this gateway's own address"
    ]


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:8788/v1", "http://other.example:8787/v1"])
def test_another_port_or_host_is_not_the_gateway_itself(base_url: str) -> None:
    complete(Settings(upstreams={"a": structs.replace(LOCAL, base_url=base_url)}))


@pytest.mark.parametrize(
    ("route", "line"),
    [
        (
            Route(model="*", upstream="locale"),
            'routes[0].upstream: there is no upstream "locale"; did you mean `local`?',
        ),
        (
            Route(model="*", upstream="zzz"),
            'routes[0].upstream: there is no upstream "zzz"; there are: local, other',
        ),
        (
            Route(model="*", upstream="local", fallback=("othr=m",)),
            'routes[0].fallback[0]: there is no upstream "othr"; did you mean `other`?',
        ),
        (
            Route(model="*", upstream="local", fallback=("other=",)),
            "routes[0].fallback[0]: expected `name` or `name=model`, got 'other='",
        ),
        (
            Route(model="*", upstream="local", fallback=("local",)),
            "routes[0].fallback[0]: 'local' is in this route already; name each upstream once",
        ),
        (
            Route(model=" ", upstream="local"),
            'routes[0].model: expected a model\'s name or a glob such as "gpt-*", got an empty string',
        ),
        (
            Route(model="*", upstream="local", upstream_model=""),
            "routes[0].upstream_model: expected a model's name, got an empty string",
        ),
    ],
)
def test_a_route_that_cannot_work_is_refused(route: Route, line: str) -> None:
    assert of_routes(route) == [line]


def test_a_route_that_is_never_reached_is_refused() -> None:
    for first, second in (("*", "gpt-*"), ("gpt-*", "gpt-*")):
        assert of_routes(
            Route(model=first, upstream="local"), Route(model=second, upstream="other")
        ) == ["routes[1].model: never reached, routes[0] takes `gpt-*` first"]


def test_all_faults_are_reported_at_once() -> None:
    found = complaints(
        Settings(
            server=ServerSettings(port=-1),
            upstreams={"a": structs.replace(LOCAL, base_url="", idle_timeout=-1.0)},
            routes=(Route(model="*", upstream="b"),),
        )
    )
    assert [line.split(":")[0] for line in found] == [
        "server.port",
        "upstreams.a.idle_timeout",
        "upstreams.a.base_url",
        "routes[0].upstream",
    ]


# --- what settings refer to -------------------------------------------------------------------------------------------


def test_a_key_named_by_a_variable_must_be_there() -> None:
    settings = Settings(upstreams={"a": structs.replace(LOCAL, api_key_env="LOCAL_KEY")})
    check_surroundings(settings, {"LOCAL_KEY": "k"})
    for environ in ({}, {"LOCAL_KEY": ""}):
        with pytest.raises(ConfigError) as caught:
            check_surroundings(settings, environ)
        assert caught.value.message == (
            "upstreams.a.api_key_env: expected a key in the environment variable LOCAL_KEY, it is not set"
        )


def test_a_ca_file_must_be_readable(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    settings = Settings(upstreams={"a": structs.replace(LOCAL, ca_file=str(file))})
    with pytest.raises(ConfigError, match=r"upstreams\.a\.ca_file: expected a readable file"):
        check_surroundings(settings, {})
    file.write_text("", encoding="ascii")
    check_surroundings(settings, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text_calls": ("hermse",)}, "upstreams.u.text_calls"),
        ({"prompted_tools": "hermse"}, "upstreams.u.prompted_tools: no format is called 'hermse'"),
    ],
)
def test_format_of_text_calls_that_does_not_exist_is_refused_by_name(
    changes: dict[str, object], words: str
) -> None:
    upstream = structs.replace(
        UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1"), **changes
    )
    with pytest.raises(ConfigError, match=words):
        complete(Settings(upstreams={"u": upstream}))


# --- telemetry ---------------------------------------------------------------------------------------------------------

COLLECTOR = OtelSettings(endpoint="http://127.0.0.1:4318")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"endpoint": "127.0.0.1:4318"},
            "otel.endpoint: expected an address such as http://127.0.0.1:4318, got '127.0.0.1:4318'",
        ),
        (
            {"endpoint": "http://user:secret@collector.example"},
            (
                "otel.endpoint: expected an address without user and password, got 'http://***@collector.example'; "
                "put credentials into OTEL_EXPORTER_OTLP_HEADERS"
            ),
        ),
        (
            {"endpoint": "http://collector.example?key=secret"},
            "otel.endpoint: expected an address without `?` and `#`, got 'http://collector.example?key=***'",
        ),
        (
            {"traces": False, "metrics": False},
            "otel: expected traces or metrics to be sent, both are off; leave the endpoint out",
        ),
        ({"service_name": " "}, "otel.service_name: expected a name, got an empty string"),
        (
            {"traces": False, "forward": True},
            "otel.forward: expected `traces = true` beside it: without traces there is nothing to forward",
        ),
        ({"sample_ratio": 1.5}, "otel.sample_ratio: expected a share from 0 to 1, got 1.5"),
    ],
)
def test_telemetry_that_cannot_work_is_refused(changes: dict[str, object], complaint: str) -> None:
    assert complaints(Settings(otel=structs.replace(COLLECTOR, **changes))) == [complaint]


def test_telemetry_without_its_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = complete(Settings(otel=COLLECTOR))
    check_surroundings(settings, {})
    # As if they were not installed; the first is a package above those that are looked for.
    for missing in ("opentelemetry.exporter", "opentelemetry.sdk"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            for name in [each for each in sys.modules if each.startswith(f"{missing}.")]:
                patch.delitem(sys.modules, name)
            with pytest.raises(ConfigError, match=r"install dragoman\[otel\]"):
                check_surroundings(settings, {})
    check_surroundings(complete(Settings()), {})
