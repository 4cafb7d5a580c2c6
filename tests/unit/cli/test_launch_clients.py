"""What a client is given. The real clients show in `clients/test_launch.py` that they take it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.launch.clients import (
    DEFAULT_WINDOW,
    ClientPlan,
    LaunchEnvironment,
    LaunchGateway,
    codex_catalog,
    environment_of,
    plan_claude,
    plan_codex,
)
from dragoman.upstream.http.model_list import OfferedModel

KEY = "key-of-the-launch"
FOLDER = Path("/tmp/of-the-launch")
PLAIN = {
    "slug": "gpt-5.5",
    "display_name": "GPT-5.5",
    "context_window": 272000,
    "base_instructions": "You are Codex, a coding agent based on GPT-5. Be kind.",
    "model_messages": {"instructions_template": "…"},
    "supported_reasoning_levels": [{"effort": "low"}],
    "default_reasoning_level": "low",
    "shell_type": "unified_exec",
    "a_field_of_tomorrow": 7,
}
CODE_MODE = {**PLAIN, "slug": "gpt-6", "use_responses_lite": True, "tool_mode": "code_mode_only"}
OWN = json.dumps({"models": [CODE_MODE, PLAIN]}).encode()


def connection(*models: OfferedModel) -> LaunchGateway:
    return LaunchGateway(
        url="http://127.0.0.1:4000", key=KEY, models=models or (OfferedModel("m"),)
    )


def place(**fields: Any) -> LaunchEnvironment:
    return LaunchEnvironment(environ=fields.pop("environ", {}), folder=FOLDER, **fields)


def catalog(*models: OfferedModel) -> list[dict[str, Any]]:
    data = codex_catalog(models, OWN)
    assert data is not None
    entries: list[dict[str, Any]] = json.loads(data)["models"]
    return entries


def test_a_model_that_codex_does_not_know_gets_an_entry_like_a_plain_one() -> None:
    (entry,) = catalog(OfferedModel("qwen3", 32768))
    assert entry["slug"] == entry["display_name"] == "qwen3"
    assert entry["context_window"] == entry["max_context_window"] == 32768
    assert entry["apply_patch_tool_type"] == "freeform"
    assert entry["supported_reasoning_levels"] == []
    assert entry["base_instructions"] == "You are Codex, a coding agent. Be kind."
    assert entry["model_messages"] is None
    assert entry["a_field_of_tomorrow"] == 7
    assert "tool_mode" not in entry


@pytest.mark.parametrize(
    ("name", "window"), [("qwen3", DEFAULT_WINDOW), ("claude-sonnet-4-5", 200_000)]
)
def test_a_window_that_nobody_says_is_assumed(name: str, window: int) -> None:
    assert catalog(OfferedModel(name))[0]["context_window"] == window


def test_a_model_that_codex_knows_keeps_its_entry() -> None:
    assert codex_catalog((OfferedModel("gpt-6"),), OWN) is None
    first, second = catalog(OfferedModel("qwen3"), OfferedModel("gpt-6"))
    assert (first["slug"], second) == ("qwen3", CODE_MODE)
    (narrow,) = catalog(OfferedModel("gpt-6", 1000))
    assert narrow == CODE_MODE | {"context_window": 1000, "max_context_window": 1000}


@pytest.mark.parametrize("own", [b"", b"no JSON", b"[]", b'{"models": 7}', b'{"models": [7, {}]}'])
def test_without_a_catalog_of_codex_there_is_none(own: bytes) -> None:
    assert codex_catalog((OfferedModel("m"),), own) is None
    plan = plan_codex(connection(), place(own_catalog=own))
    assert not plan.files
    assert not any("model_catalog_json" in word for word in plan.arguments)


def overrides(plan: ClientPlan) -> dict[str, Any]:
    words = plan.arguments
    found: dict[str, Any] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        assert option == "-c"
        found |= tomllib.loads(value)
    return found


def test_codex_reads_the_overrides_as_toml_whatever_the_name_of_the_model() -> None:
    odd = 'odd "model\'s" \\ name = [é]'
    plan = plan_codex(connection(OfferedModel(odd)), place(own_catalog=OWN))
    read = overrides(plan)
    assert read["model"] == odd
    assert read["model_provider"] == "dragoman"
    assert read["model_providers"]["dragoman"] == {
        "name": "Dragoman",
        "base_url": "http://127.0.0.1:4000/v1",
        "env_key": "DRAGOMAN_API_KEY",
        "wire_api": "responses",
    }
    assert list(plan.files) == [Path(read["model_catalog_json"])]
    assert not any(KEY in word for word in plan.arguments)


def test_codex_uses_no_server_that_runs_already() -> None:
    assert plan_codex(connection(), place(options=b"  --no-daemon  ")).arguments[0] == "--no-daemon"
    assert "--no-daemon" not in plan_codex(connection(), place(options=b"")).arguments


def test_claude_code_gets_one_file_with_settings_unless_the_user_names_one() -> None:
    plan = plan_claude(connection(), place())
    assert plan.arguments == ("--settings", str(FOLDER / "settings.json"))
    (data,) = plan.files.values()
    assert json.loads(data)["env"] == plan.environ
    for words in (("--settings", "mine.json"), ("--settings=mine.json",)):
        users = plan_claude(connection(), place(arguments=words))
        assert (users.arguments, dict(users.files)) == ((), {})
        assert users.environ == plan.environ


def test_claude_code_asks_for_less_than_a_small_window() -> None:
    small = plan_claude(connection(OfferedModel("m", 16000)), place()).environ
    assert small["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "4000"
    large = plan_claude(connection(OfferedModel("m", 10**6)), place()).environ
    assert large["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "32000"
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" not in plan_claude(connection(), place()).environ


def test_without_a_proxy_the_environment_gets_no_exception_for_one() -> None:
    plan = plan_claude(connection(), place())
    assert "NO_PROXY" not in environment_of(plan, {}, {})
    env = environment_of(plan, {"https_proxy": "http://p", "no_proxy": "a,localhost"}, {})
    assert env["no_proxy"] == "a,localhost,127.0.0.1,::1"
    assert env["NO_PROXY"] == "127.0.0.1,localhost,::1"
