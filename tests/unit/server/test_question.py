"""What is asked of an upstream, and what is tried if it does not answer."""

import pytest

from dragoman.config.settings import ModelLimits, Route, Settings, UpstreamSettings
from dragoman.server.question import alternatives, can_be_asked, models_to_ask


@pytest.mark.parametrize(
    ("base_url", "advice"),
    [
        ("http://h", 'base_url = "http://h/v1"'),
        ("http://h/", 'base_url = "http://h/v1"'),
        ("http://h/api", 'base_url = "http://h/api/v1"'),
        ("http://h/v1/chat/completions", 'base_url = "http://h/v1"'),
        ("http://h/v1/messages", 'kind = "messages" and base_url = "http://h/v1"'),
        ("http://h/v1", 'base_url = "http://h"'),
    ],
)
def test_the_likeliest_alternative_is_first(base_url: str, advice: str) -> None:
    found = alternatives(UpstreamSettings(kind="chat", base_url=base_url))
    assert found[0].advice == advice


@pytest.mark.parametrize("path", ["", "/v1", "/x/y", "/v1/responses", "/v1/v1"])
def test_alternatives_are_few_and_at_the_same_server(path: str) -> None:
    for settings in (
        UpstreamSettings(kind="chat", base_url=f"https://h:8443{path}"),
        UpstreamSettings(kind="messages", base_url=f"https://h:8443{path}"),
    ):
        found = alternatives(settings)
        assert 0 < len(found) <= 12
        assert all(each.settings.base_url.startswith("https://h:8443") for each in found)
        assert all(each.advice for each in found)


def test_models_that_routes_name_are_asked() -> None:
    up = UpstreamSettings(kind="chat", base_url="http://h/v1", models={"own": ModelLimits(), "g*": ModelLimits()})  # fmt: skip
    routes = (
        Route(model="a", upstream="up"),
        Route(model="b*", upstream="up", upstream_model="b"),
        Route(model="c", upstream="other", fallback=("up=d", "up")),
        Route(model="*", upstream="up"),
    )
    settings = Settings(upstreams={"up": up, "other": up}, routes=routes)
    assert models_to_ask(settings, "up") == ("a", "b", "d", "c", "own")


def test_upstreams_without_a_key_of_their_own_are_not_asked() -> None:
    assert can_be_asked(UpstreamSettings(kind="chat"))
    assert not can_be_asked(UpstreamSettings(kind="chat", api_key="client"))
    assert not can_be_asked(UpstreamSettings(kind="codex"))
    assert not can_be_asked(UpstreamSettings(kind="chatgpt-codex"))
