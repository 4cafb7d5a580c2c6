"""What of the settings may be shown."""

import pytest
from msgspec import structs

from dragoman.config.secrets import mask_url, masked
from dragoman.config.settings import OtelSettings, ServerSettings, Settings, UpstreamSettings
from dragoman.config.values import to_toml

LOCAL = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:8000/v1")


def masked_upstream(**fields: object) -> UpstreamSettings:
    return masked(Settings(upstreams={"a": structs.replace(LOCAL, **fields)})).upstreams["a"]


def test_no_secret_of_any_field_survives() -> None:
    settings = Settings(
        server=ServerSettings(api_keys=("SECRET1", "SECRET2")),
        otel=OtelSettings(endpoint="https://collector.example/SECRET11/otlp"),
        upstreams={
            "a": structs.replace(
                LOCAL,
                api_key="SECRET3",
                base_url="https://me:SECRET4@example.org/v1",
                proxy="http://SECRET5:SECRET6@proxy.example:3128",
                headers={"x-api-key": "SECRET7", "Authorization": "SECRET8"},
                query={"api-key": "SECRET9", "sig": "SECRET10"},
            )
        },
    )
    shown = masked(settings)
    assert "SECRET" not in to_toml(shown)
    assert "SECRET" not in repr(settings)
    assert shown.server.api_keys == ("***", "***")
    upstream = shown.upstreams["a"]
    assert upstream.base_url == "https://***@example.org/v1"
    assert upstream.proxy == "http://***@proxy.example:3128"


def test_values_are_masked_by_their_place_and_names_are_shown() -> None:
    shown = masked_upstream(
        api_key="client",
        api_key_env="LOCAL_KEY",
        headers={"x-team": "search", "x-empty": ""},
        query={"api-version": "2025-04-01-preview"},
        command=("codex", "app-server", "-c", "model=x"),
        env={"FOO": "bar"},
    )
    assert (shown.api_key, shown.api_key_env) == ("client", "LOCAL_KEY")
    assert shown.headers == {"x-team": "***", "x-empty": ""}
    assert shown.query == {"api-version": "***"}
    assert shown.command == ("codex", "***", "***", "***")
    assert shown.env == {"FOO": "***"}
    assert masked(Settings()) == Settings()
    assert masked_upstream() == LOCAL


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""),
        ("http://a:80/v1", "http://a:80/v1"),
        ("http://u@a/v1", "http://***@a/v1"),
        ("http://u:p@ss@a/v1", "http://***@a/v1"),
        ("http://a/v1?b=c%20d", "http://a/v1?b=***"),
        ("http://a/v1?token=x&b=c%20d&b=", "http://a/v1?token=***&b=***&b="),
        ("http://a/v1?secret", "http://a/v1?***"),
        ("http://a/v1#secret", "http://a/v1#***"),
        ("https://a/s/k3y/mcp", "https://a/***/***/mcp"),
        ("https://a/openai/deployments/mine/", "https://a/openai/deployments/***/"),
        ("http://[::1", "http://[::1"),
        ("u:p@a", "***@a"),
        ("http://u:p/w?#@a", "http://***@a"),
        ("http://a/?%74oken=x", "http://a/?%74oken=***"),
    ],
)
def test_an_address_keeps_all_but_its_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown
