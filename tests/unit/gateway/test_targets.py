"""What an upstream accepts, from its dialect, its host and the operator."""

from typing import Literal

import pytest
from msgspec import structs

from dragoman.config.settings import ModelLimits, UpstreamSettings
from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.dialects.registry import CODECS
from dragoman.errors import ConfigError
from dragoman.gateway.targets import target_of
from dragoman.model.parts import Dialect

LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_an_upstream_without_limits_has_its_dialects_target(dialect: Dialect) -> None:
    settings = UpstreamSettings(kind="chat", base_url=LOCAL)
    assert target_of(settings, dialect, "m", dialect) is CODECS[dialect].target


def test_every_limit_reaches_the_target() -> None:
    limits = ModelLimits(
        max_name_length=32,
        name_pattern="[a-z]",
        max_id_length=9,
        id_pattern="[a-zA-Z0-9]",
        drop_schema_keywords=("format",),
        inline_schema_refs=True,
        strict_tools=False,
        default_max_tokens=100,
        max_tokens_field="max_completion_tokens",
        builtin_tools=("custom",),
        user_first=True,
    )
    target = target_of(
        UpstreamSettings(kind="chat", base_url=LOCAL, limits=limits), "chat", "m", "chat"
    )
    assert target.names == NameLimits(pattern="[a-z]", max_length=32)
    assert target.ids == IdLimits(pattern="[a-zA-Z0-9]", max_length=9)
    assert target.schemas.drop == {"format"}
    assert target.schemas.inline_refs
    assert target.schemas.require_object == CODECS["chat"].target.schemas.require_object
    assert (target.strict, target.user_first, target.default_max_tokens) == (False, True, 100)
    assert target.max_tokens_field == "max_completion_tokens"
    assert target.builtin == {"custom"}


def test_the_first_glob_of_the_models_table_overrides_the_upstreams_limits() -> None:
    settings = UpstreamSettings(
        kind="messages",
        base_url=LOCAL,
        limits=ModelLimits(default_max_tokens=1, max_id_length=20),
        models={
            "big-*": ModelLimits(default_max_tokens=2),
            "*": ModelLimits(default_max_tokens=3, builtin_tools=()),
        },
    )
    big, small = (
        target_of(settings, "messages", model, "messages") for model in ("big-1", "small")
    )
    assert (big.default_max_tokens, big.ids.max_length) == (2, 20)
    assert big.builtin == CODECS["messages"].target.builtin
    assert (small.default_max_tokens, small.ids.max_length, small.builtin) == (3, 20, frozenset())


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://API.OpenAI.com:443/v1", "max_completion_tokens"),
        ("https://api.openai.com.example.org/v1", "max_tokens"),
        (LOCAL, "max_tokens"),
    ],
)
def test_openai_itself_is_given_the_newer_name_of_the_limit(base_url: str, field: str) -> None:
    settings = UpstreamSettings(kind="responses", also=("chat",), base_url=base_url)
    assert target_of(settings, "chat", "gpt-5", "chat").max_tokens_field == field
    other = structs.replace(target_of(settings, "responses", "gpt-5", "responses"), compacts=False)
    assert other == CODECS["responses"].target


def test_the_operator_may_choose_the_older_name_for_openai_too() -> None:
    settings = UpstreamSettings(
        kind="chat",
        base_url="https://api.openai.com/v1",
        limits=ModelLimits(max_tokens_field="max_tokens"),
    )
    assert target_of(settings, "chat", "gpt-4", "chat").max_tokens_field == "max_tokens"


def test_the_same_limits_give_the_same_target() -> None:
    first, second = (
        UpstreamSettings(kind="chat", base_url=LOCAL, limits=ModelLimits(max_id_length=7))
        for _ in range(2)
    )
    assert target_of(first, "chat", "a", "chat") is target_of(second, "chat", "b", "chat")


def test_an_unknown_kind_of_tool_is_refused() -> None:
    settings = UpstreamSettings(kind="chat", limits=ModelLimits(builtin_tools=("wings",)))
    with pytest.raises(ConfigError, match="'wings'"):
        target_of(settings, "chat", "m", "chat")


HOSTS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "other": LOCAL,
}


@pytest.mark.parametrize(
    ("host", "dialect", "client", "cache", "expected"),
    [
        ("anthropic", "messages", "chat", None, True),
        ("other", "messages", "responses", None, True),
        ("other", "messages", "chat", "off", False),
        ("anthropic", "messages", "messages", None, False),
        ("anthropic", "messages", "messages", "auto", False),
        ("anthropic", "messages", "messages", "always", True),
        ("openai", "chat", "messages", None, True),
        ("other", "chat", "messages", None, False),
        ("other", "chat", "messages", "auto", True),
        ("other", "responses", "messages", None, True),
        ("other", "responses", "messages", "off", False),
        ("openai", "chat", "chat", "always", False),
    ],
)
def test_an_upstream_is_helped_to_cache_where_its_client_cannot_do_it(
    host: str,
    dialect: Dialect,
    client: Dialect,
    cache: Literal["auto", "always", "off"] | None,
    expected: bool,
) -> None:
    settings = UpstreamSettings(kind="chat", base_url=HOSTS[host], cache=cache)
    target = target_of(settings, dialect, "m", client)
    assert target.cache is expected
    if expected:
        assert target.cached_tools is (host == "anthropic")


def test_how_long_breakpoints_last_reaches_the_target() -> None:
    settings = UpstreamSettings(kind="messages", base_url=LOCAL, cache="off", cache_ttl="1h")
    target = target_of(settings, "messages", "m", "chat")
    assert (target.cache, target.cache_ttl) == (False, "1h")
