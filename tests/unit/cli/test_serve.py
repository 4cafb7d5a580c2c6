"""What the gateway says when it starts."""

import sysconfig
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.cli.serve import start_message
from dragoman.config.check import complete
from dragoman.config.settings import (
    InspectSettings,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
)
from dragoman.inspection.layout import plain
from dragoman.server.connect import CLIENTS

LOCAL = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:8000/v1", api_key="SECRET1")
OTHER = UpstreamSettings(
    kind="messages",
    base_url="https://me:SECRET2@other.example/v1",
    headers={"x-api-key": "SECRET3"},
)
SETTINGS = Settings(
    server=ServerSettings(host="0.0.0.0", port=9000, api_keys=("SECRET4",)),
    upstreams={"local": LOCAL, "other": OTHER},
    routes=(
        Route(
            model="claude-*",
            upstream="local",
            upstream_model="qwen3-coder",
            fallback=("other", "other=small"),
        ),
        Route(model="*", upstream="other"),
    ),
)


def shown(settings: Settings, url: str | None = None) -> list[str]:
    return plain(start_message(settings, url)).splitlines()


def test_it_says_where_the_gateway_is_and_where_requests_go() -> None:
    lines = shown(SETTINGS)
    assert lines[0].startswith("Dragoman ")
    assert lines[0].endswith("  http://127.0.0.1:9000  (listens on 0.0.0.0)")
    assert lines[2:7] == [
        "  upstreams  local  chat      127.0.0.1:8000",
        "             other  messages  other.example",
        "  routes     claude-*  -> local as qwen3-coder, then other as qwen3-coder, then other as small",
        "             *         -> other",
        "  keys       needed: Authorization: Bearer KEY, or x-api-key: KEY",
    ]


def test_it_says_where_data_is_stored_and_how_to_turn_that_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    text = "\n".join(shown(SETTINGS))
    assert (
        "  stores     responses, for 30 days, in /state/dragoman/store.db\n"
        "             DRAGOMAN_STORE_POLICY=off stores nothing\n"
    ) in text
    kept = StoreSettings(url="postgresql://me:SECRET5@db/x", policy="asked", ttl=86_400)
    text = "\n".join(shown(structs.replace(SETTINGS, store=kept)))
    assert "responses that ask for it, for 1 day, in PostgreSQL" in text
    assert "SECRET" not in text
    off = structs.replace(SETTINGS, store=StoreSettings(policy="off"))
    assert "  stores     nothing" in shown(off)


def test_it_shows_no_secret() -> None:
    assert "SECRET" not in "\n".join(shown(SETTINGS))


def test_it_says_what_goes_into_each_client() -> None:
    text = "\n".join(shown(complete(Settings())))
    for client in CLIENTS.values():
        assert client.title in text
    assert 'base_url = "http://127.0.0.1:8787/v1"' in text
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8787\n" in text
    assert "dragoman connect codex|claude-code|openai|anthropic|obsidian|vercel" in text
    assert "http://127.0.0.1:8787/metrics" in text


def test_the_rehearsal_is_introduced() -> None:
    text = "\n".join(shown(complete(Settings())))
    assert "rehearsal  rehearsal  answers by itself: no key, no network" in text
    assert "none needed: only this machine can connect" in text
    assert "listens on" not in text


def test_the_real_address_replaces_the_configured_one() -> None:
    settings = complete(Settings(server=ServerSettings(port=0)))
    lines = shown(settings, "http://127.0.0.1:45678")
    assert lines[0].endswith("  http://127.0.0.1:45678")
    assert "http://127.0.0.1:0" not in "\n".join(lines)


def test_the_page_of_the_inspector_is_shown_unless_it_is_off() -> None:
    page = "http://127.0.0.1:8787/  (the requests and their calls, in a browser)"
    assert page in "\n".join(shown(complete(Settings())))
    settings = complete(Settings(inspect=InspectSettings(capture="off")))
    assert page not in "\n".join(shown(settings))


def test_metrics_that_are_off_are_not_shown() -> None:
    settings = complete(Settings(server=ServerSettings(metrics=False)))
    assert "/metrics" not in "\n".join(shown(settings))


def test_commands_are_shown_as_they_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(scripts.parents[1])
    beside = scripts.relative_to(scripts.parents[1])
    assert f"{beside}/dragoman connect codex|" in "\n".join(shown(complete(Settings())))
    monkeypatch.chdir(tmp_path)
    assert f" {scripts}/dragoman connect codex|" in "\n".join(shown(complete(Settings())))
    monkeypatch.setenv("PATH", str(scripts))
    assert " dragoman connect codex|" in "\n".join(shown(complete(Settings())))


def test_many_routes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts"))
    routes = tuple(Route(model=f"m{number}", upstream="local") for number in range(100))
    lines = shown(structs.replace(SETTINGS, routes=routes))
    assert sum(" -> " in line for line in lines) == 11
    assert "             and 89 more: dragoman check --offline" in lines


def test_a_name_cannot_move_the_cursor() -> None:
    route = Route(model="\x1b[2J*", upstream="local")
    assert "\x1b" not in "\n".join(shown(structs.replace(SETTINGS, routes=(route,))))
