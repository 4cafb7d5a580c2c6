"""What an operator says of a Codex upstream, and what is shown of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.cli.serve import start_message
from dragoman.config.check import check_surroundings, complete
from dragoman.config.read import Flags, load_settings
from dragoman.config.settings import Settings, UpstreamSettings
from dragoman.errors import ConfigError
from dragoman.gateway.route import default_models
from dragoman.server.catalog import known_models
from dragoman.upstream.base import Supervised
from dragoman.upstream.codex.upstream import CodexUpstream
from dragoman.upstream.http.upstream import HttpUpstream

CODEX = UpstreamSettings(kind="codex")


def with_codex(**keys: Any) -> Settings:
    return Settings(upstreams={"codex": replace(CODEX, **keys)})


@pytest.mark.parametrize("text", ["codex", "codex="])
def test_short_form_needs_no_address(text: str) -> None:
    environ = {"DRAGOMAN_UPSTREAM_KEY": "k", "OPENAI_API_KEY": "k"}
    settings = load_settings(None, environ, Flags(upstream=text))
    assert list(settings.upstreams) == ["codex"]
    assert settings.upstreams["codex"] == CODEX


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"base_url": "http://127.0.0.1:1/v1"}, "codex runs here and has no address"),
        ({"api_key": "k"}, "uses Codex's login"),
        ({"api_key_env": "K"}, "uses Codex's login"),
        ({"also": ("chat",)}, "speaks its own protocol only"),
        ({"command": ()}, "expected a program and its arguments"),
        ({"command": (" ",)}, "expected a program and its arguments"),
        ({"children": 0}, "upstreams.codex.children"),
        ({"held_ttl": 0.0}, "upstreams.codex.held_ttl"),
        ({"held_max": 0}, "upstreams.codex.held_max"),
    ],
)
def test_settings_that_cannot_work_are_refused(keys: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        complete(with_codex(**keys))


def test_program_that_is_not_there_is_reported_with_the_way_to_install_it() -> None:
    settings = complete(with_codex())
    with pytest.raises(ConfigError, match="npm install -g @openai/codex"):
        check_surroundings(settings, {"PATH": "/nowhere"})
    with pytest.raises(ConfigError, match=r"upstreams\.codex\.command"):
        check_surroundings(with_codex(command=()), {"PATH": "/nowhere"})
    check_surroundings(with_codex(command=("sh",)), {"PATH": "/bin:/usr/bin"})


def test_losses_of_codex_may_be_decided() -> None:
    complete(with_codex(losses={"temperature": "refuse"}))
    with pytest.raises(ConfigError, match="unknown kind of loss"):
        complete(with_codex(losses={"temprature": "refuse"}))


def test_banner_and_snippets_know_it() -> None:
    settings = complete(with_codex())
    shown = "\n".join("".join(span.text for span in line) for line in start_message(settings))
    assert "started here: codex app-server" in shown
    assert default_models(settings) == ("codex",)
    assert [model.name for model in known_models(settings)] == ["codex"]


def test_it_is_supervised_and_has_no_address_to_send_to() -> None:
    assert isinstance(CodexUpstream("codex", CODEX), Supervised)
    with pytest.raises(ConfigError, match="is not a plain HTTP upstream"):
        HttpUpstream("codex", CODEX, key=None)
