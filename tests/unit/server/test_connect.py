"""What is to be pasted into clients is valid where it is pasted, and says the right things."""

import ast
import shlex
import tomllib

import pytest

from dragoman.config.check import complete
from dragoman.config.settings import Route, ServerSettings, Settings, UpstreamSettings
from dragoman.gateway.route import default_models
from dragoman.server.connect import (
    CLIENTS,
    GatewayAccess,
    access_of,
    fitting_model,
    gateway_url,
    snippet,
)

LOCAL = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:8000/v1")
ODD = 'odd "model\'s" \\ name'
OPEN = GatewayAccess(url="http://127.0.0.1:8787", model="m")
LOCKED = GatewayAccess(url="https://gateway.example", model=ODD, key="gateway")


def of_upstream(upstream: UpstreamSettings, **fields: str) -> GatewayAccess:
    return access_of(complete(Settings(upstreams={"a": upstream})), **fields)


# --- how to reach the gateway -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:9000"),
        ("::", "http://[::1]:9000"),
        ("[::1]", "http://[::1]:9000"),
        ("gateway.example", "http://gateway.example:9000"),
    ],
)
def test_the_address_is_one_a_client_can_connect_to(host: str, url: str) -> None:
    assert gateway_url(ServerSettings(host=host, port=9000)) == url


@pytest.mark.parametrize(
    "given", ["https://a.example", "https://a.example/", "https://a.example/v1/"]
)
def test_a_given_address_may_end_as_it_likes(given: str) -> None:
    assert of_upstream(LOCAL, url=given).url == "https://a.example"


def test_the_key_is_the_gateways_or_the_upstreams_or_nobodys() -> None:
    passing = UpstreamSettings(kind="chat", base_url=LOCAL.base_url, api_key="client")
    assert (of_upstream(LOCAL).key, of_upstream(passing).key) == ("none", "upstream")
    locked = Settings(server=ServerSettings(api_keys=("k",)), upstreams={"a": passing})
    assert access_of(complete(locked)).key == "gateway"


@pytest.mark.parametrize(
    ("upstream", "model"),
    [
        (LOCAL, None),
        (UpstreamSettings(kind="rehearsal"), "rehearsal"),
        (UpstreamSettings(kind="chat", base_url="https://api.openai.com/v1"), "gpt-5.5"),
        (
            UpstreamSettings(kind="messages", base_url="https://api.anthropic.com"),
            "claude-sonnet-4-5",
        ),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_model_is_one_the_upstream_knows(
    upstream: UpstreamSettings, model: str | None, client: str
) -> None:
    settings = complete(Settings(upstreams={"a": upstream}))
    assert fitting_model(client, default_models(settings)) == model


def test_a_model_that_is_routed_by_its_name_is_preferred() -> None:
    routes = (Route(model="x-*", upstream="a"), Route(model="coder", upstream="a"))
    assert default_models(Settings(upstreams={"a": LOCAL}, routes=routes)) == ("coder",)
    assert default_models(Settings(upstreams={"a": LOCAL}, routes=routes[:1])) == ()


VENDORS = {
    "openai": UpstreamSettings(kind="responses", base_url="https://api.openai.com/v1"),
    "anthropic": UpstreamSettings(kind="messages", base_url="https://api.anthropic.com/v1"),
}
BOTH = (Route(model="claude-*", upstream="anthropic"), Route(model="*", upstream="openai"))


@pytest.mark.parametrize(
    ("client", "model"),
    [
        ("codex", "gpt-5.5"),
        ("openai", "gpt-5.5"),
        ("claude-code", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-5"),
    ],
)
def test_a_client_gets_the_model_of_its_vendor(client: str, model: str) -> None:
    settings = complete(Settings(upstreams=VENDORS, routes=BOTH))
    assert fitting_model(client, default_models(settings)) == model


def test_a_route_that_renames_a_family_makes_its_names_usable() -> None:
    """`claude-*` is sent to a local model: Claude Code gets a name that the route takes."""
    routes = (
        Route(model="claude-*", upstream="local", upstream_model="qwen3"),
        Route(model="*", upstream="openai"),
    )
    settings = complete(Settings(upstreams={**VENDORS, "local": LOCAL}, routes=routes))
    names = default_models(settings)
    assert fitting_model("claude-code", names) == "claude-sonnet-4-5"
    assert fitting_model("codex", names) == "gpt-5.5"


def test_a_route_that_renames_everything_gives_the_name_of_the_model() -> None:
    routes = (Route(model="*", upstream="a", upstream_model="qwen3"),)
    settings = complete(Settings(upstreams={"a": LOCAL}, routes=routes))
    assert default_models(settings) == ("qwen3",)


def test_without_a_model_the_text_has_a_placeholder() -> None:
    assert of_upstream(LOCAL).model == "your-model"
    assert of_upstream(LOCAL, model="chosen").model == "chosen"


# --- the texts --------------------------------------------------------------------------------------------------------


def test_codex_gets_a_provider() -> None:
    assert tomllib.loads(snippet("codex", OPEN)) == {
        "model": "m",
        "model_provider": "dragoman",
        "model_providers": {
            "dragoman": {
                "name": "Dragoman",
                "base_url": "http://127.0.0.1:8787/v1",
                "wire_api": "responses",
            }
        },
    }
    locked = tomllib.loads(snippet("codex", LOCKED))
    assert locked["model"] == ODD
    assert locked["model_providers"]["dragoman"]["env_key"] == "DRAGOMAN_API_KEY"
    assert "export DRAGOMAN_API_KEY=YOUR-GATEWAY-KEY" in snippet("codex", LOCKED)


@pytest.mark.parametrize(("connection", "token"), [(OPEN, "unused"), (LOCKED, "YOUR-GATEWAY-KEY")])
def test_claude_code_gets_its_variables(connection: GatewayAccess, token: str) -> None:
    lines = [
        shlex.split(line, comments=True) for line in snippet("claude-code", connection).splitlines()
    ]
    assert [line for line in lines if line] == [
        ["unset", "ANTHROPIC_API_KEY"],
        ["export", f"ANTHROPIC_BASE_URL={connection.url}"],
        ["export", f"ANTHROPIC_AUTH_TOKEN={token}"],
        ["export", f"ANTHROPIC_MODEL={connection.model}"],
        ["export", f"ANTHROPIC_DEFAULT_HAIKU_MODEL={connection.model}"],
    ]


@pytest.mark.parametrize(
    ("client", "path"), [("openai", "/v1"), ("anthropic", "")], ids=["openai", "anthropic"]
)
@pytest.mark.parametrize("connection", [OPEN, LOCKED])
def test_the_sdks_get_python(client: str, path: str, connection: GatewayAccess) -> None:
    given = {
        keyword.arg: keyword.value.value
        for node in ast.walk(ast.parse(snippet(client, connection)))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if isinstance(keyword.value, ast.Constant)
    }
    assert given["base_url"] == connection.url + path
    assert given["api_key"] == connection.placeholder
    assert given["model"] == connection.model


def test_obsidian_gets_a_hint_about_cors() -> None:
    closed = snippet("obsidian", OPEN)
    assert "Base URL     http://127.0.0.1:8787/v1\n" in closed
    assert "Provider     OpenAI Format\n" in closed
    assert "Enable CORS  on" in closed
    assert 'cors_origins = ["app://obsidian.md"]' in closed
    for origin in ("*", "app://obsidian.md"):
        server = ServerSettings(cors_origins=(origin,), api_keys=("a-key-of-some-length",))
        settings = complete(Settings(server=server))
        assert "Enable CORS  off" in snippet("obsidian", access_of(settings))


def test_vercel_gets_typescript() -> None:
    text = snippet("vercel", LOCKED)
    assert 'baseURL: "https://gateway.example/v1",' in text
    assert 'apiKey: "YOUR-GATEWAY-KEY",' in text
    assert 'dragoman("odd \\"model\'s\\" \\\\ name")' in text


@pytest.mark.parametrize("client", CLIENTS)
def test_no_text_holds_a_key_of_the_gateway(client: str) -> None:
    settings = Settings(
        server=ServerSettings(api_keys=("SECRET",)),
        upstreams={"a": UpstreamSettings(kind="chat", base_url=LOCAL.base_url, api_key="SECRET")},
    )
    assert "SECRET" not in snippet(client, access_of(complete(settings)))
