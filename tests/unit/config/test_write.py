"""Settings written as TOML are the settings that were written."""

import tomllib
from pathlib import Path

import pytest

from dragoman.config.check import complete
from dragoman.config.read import load_settings
from dragoman.config.settings import (
    LogSettings,
    ModelLimits,
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman.config.values import to_toml

FULL = Settings(
    server=ServerSettings(api_keys=('q"uote', "back\\slash"), cors_origins=("*",), metrics=False),
    log=LogSettings(format="json"),
    retry=RetrySettings(enabled=False, base_delay=1e-05),
    upstreams={
        "a.b": UpstreamSettings(
            kind="chat",
            also=("messages", "responses"),
            base_url="http://127.0.0.1:8000/v1",
            api_key_env="KEY",
            headers={"x-team": "a\tb", "X-Y": "1"},
            query={"api version": "2025\x7f"},
            limits=ModelLimits(builtin_tools=("custom",), strict_tools=False),
            models={
                'odd "name*': ModelLimits(name_pattern="[\\x21-\\x7e]"),
                "back\\slash\n": ModelLimits(strict_tools=False),
                "b": ModelLimits(),
            },
            losses={"seal": "refuse"},
        ),
        "rehearsal": UpstreamSettings(kind="rehearsal"),
    },
    routes=(
        Route(model="ü*", upstream="a.b", upstream_model="m\n", fallback=("rehearsal", "a.b=x")),
        Route(model="*", upstream="rehearsal"),
    ),
)


@pytest.mark.parametrize("settings", [FULL, complete(Settings())], ids=["full", "default"])
def test_what_is_written_is_read_back(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(to_toml(settings), encoding="utf-8")
    read = load_settings(file, {})
    models = {
        name: {glob: each for glob, each in upstream.models.items() if each != ModelLimits()}
        for name, upstream in settings.upstreams.items()
    }
    assert {name: upstream.models for name, upstream in read.upstreams.items()} == models
    assert (read.server, read.log, read.retry, read.routes) == (
        settings.server,
        settings.log,
        settings.retry,
        settings.routes,
    )
    for name, upstream in settings.upstreams.items():
        assert read.upstreams[name].headers == upstream.headers
        assert read.upstreams[name].limits == upstream.limits


def test_what_is_not_set_is_left_out() -> None:
    text = to_toml(complete(Settings()))
    assert "api_keys" not in text
    assert tomllib.loads(text)["upstreams"]["rehearsal"]["kind"] == "rehearsal"
