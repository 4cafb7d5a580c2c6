"""The pages about configuration and clients name everything there is, and show what is printed."""

import argparse
import inspect
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from msgspec import Struct, structs

from dragoman.cli.options import add_serving_options
from dragoman.cli.run import start
from dragoman.config import environment, read
from dragoman.config.check import complete
from dragoman.config.read import load_settings
from dragoman.config.settings import (
    DumpSettings,
    HostedSettings,
    InspectSettings,
    KeySettings,
    LogSettings,
    McpServerSettings,
    ModelLimits,
    OtelSettings,
    PriceSettings,
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamKind,
    UpstreamSettings,
)
from dragoman.config.values import read_struct
from dragoman.obsidian.settings import PROXY_VARIABLES, ChatSettings
from dragoman.server.connect import CLIENTS, access_of, snippet

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "configuration.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[Struct]] = {
    "## Server": ServerSettings,
    "## Log": LogSettings,
    "## Dump": DumpSettings,
    "## Inspect": InspectSettings,
    "## OpenTelemetry": OtelSettings,
    "## Chat": ChatSettings,
    "## Retries": RetrySettings,
    "## Store": StoreSettings,
    "## Upstreams": UpstreamSettings,
    "### Limits": ModelLimits,
    "## Routes": Route,
    "## MCP servers": McpServerSettings,
    "## Hosted tools": HostedSettings,
    "## Keys": KeySettings,
    "## Prices": PriceSettings,
}


def table(title: str) -> dict[str, str]:
    """The first table below a heading: its first column, without backquotes, and its second."""
    below = PAGE.partition(f"\n{title}\n")[2]
    found = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert found
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", found[0], re.MULTILINE))


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_is_described_and_no_other(title: str) -> None:
    assert sorted(table(title)) == sorted(SECTIONS[title].__struct_fields__)


@pytest.mark.parametrize(
    "title",
    [
        "## Server",
        "## Log",
        "## Dump",
        "## OpenTelemetry",
        "## Chat",
        "## Retries",
        "## Store",
        "## Upstreams",
        "## Routes",
        "## Hosted tools",
    ],
)
def test_the_defaults_are_those_of_the_code(title: str) -> None:
    result = table(title)
    sizes = {"64 MiB": 64 * 1024**2, "16 MiB": 16 * 1024**2, "64 KiB": 64 * 1024}
    for info in structs.fields(SECTIONS[title]):
        text = result[info.name].strip()
        if not text.startswith("`"):
            assert text in ("required", "none", "the client's name") or sizes[text] == info.default
            continue
        value = tomllib.loads(f"x = {text.strip('`')}")["x"]
        found: list[str] = []
        required = {
            each.name: "rehearsal" for each in structs.fields(SECTIONS[title]) if each.required
        }
        read = read_struct(SECTIONS[title], {**required, info.name: value}, "", found)
        plain = read_struct(SECTIONS[title], required, "", found)
        assert found == []
        assert read == plain


def test_every_kind_of_upstream_is_described() -> None:
    for kind in get_args(UpstreamKind):
        assert f'`"{kind}"`' in PAGE


def test_every_variable_is_described() -> None:
    modules = (environment, read, start)
    source = "".join(map(inspect.getsource, modules))
    variables = set(re.findall(r'"((?:DRAGOMAN|OPENAI|ANTHROPIC)_[A-Z_]+)"', source))
    assert len(variables) >= 12
    section = PAGE.partition("\n## Environment\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`((?:DRAGOMAN|OPENAI|ANTHROPIC)_[A-Z_]+)`", section)) == variables


def test_every_flag_is_described() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_serving_options(parser)
    section = PAGE.partition("\n## Flags\n")[2].partition("\n## ")[0]
    flags = re.findall(r"--[a-z-]+", parser.format_help())
    assert len(set(flags)) == 10
    assert all(f"`{flag}" in section for flag in flags)


def test_the_example_can_be_loaded(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    file = tmp_path / "dragoman.toml"
    file.write_text(example[1], encoding="utf-8")
    assert set(load_settings(file, {}).upstreams) == {"local", "anthropic"}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_page_about_clients_shows_what_is_printed(client: str) -> None:
    page = (DOCS / "connect.md").read_text(encoding="utf-8")
    text = snippet(client, access_of(complete(Settings()), model="rehearsal"))
    assert f"\n## {CLIENTS[client].title}\n\n```{CLIENTS[client].language}\n{text}```\n" in page


EXAMPLE = (DOCS.parent / ".env.example").read_text(encoding="utf-8")
ENTRY = re.compile(r"^# (?P<words>.+)\n(?P<name>[A-Z_]+)=(?P<value>.*)$", re.MULTILINE)
# Names in capitals that are no variables of the gateway: constants of Python, and variables that it sets for others.
NOT_READ = frozenset(
    (
        *("OPENAI_HOST", "ANTHROPIC_HOST", "CODEX_INSTALL_HINT"),
        *(
            "DRAGOMAN_CALL",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
        ),
        *("ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    )
)


def variables_in_the_source() -> set[str]:
    """All names of variables in the code, by the prefixes that the gateway's variables have."""
    prefixes = "DRAGOMAN|PROXY|CODEX|OPENAI|ANTHROPIC|XDG_STATE|PROMETHEUS"
    others = "(?:HTTPS?|NO)_PROXY|SSL_CERT_[A-Z]+"
    name = re.compile(rf'"((?:{prefixes})_[A-Z_]+|{others})"')
    source = DOCS.parent / "src" / "dragoman"
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    return {found for text in texts for found in name.findall(text)} - NOT_READ


@pytest.mark.requirement("S003-68")
def test_the_example_of_an_environment_has_every_variable_with_a_sentence() -> None:
    entries = list(ENTRY.finditer(EXAMPLE))
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)) == len(re.findall(r"^[A-Z_]+=", EXAMPLE, re.MULTILINE))
    assert set(names) == variables_in_the_source()
    assert set(names) >= {*PROXY_VARIABLES}
    for entry in entries:
        assert entry["words"].endswith(".")
        is_secret = re.search(r"KEY", entry["name"])
        assert not (is_secret and entry["value"])


@pytest.mark.requirement("S003-68")
def test_the_example_of_an_environment_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {entry["name"]: entry["value"] for entry in ENTRY.finditer(EXAMPLE)}
    assert load_settings(None, environ) == load_settings(None, {})
    keys = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
    assert load_settings(None, {**environ, **keys}) == load_settings(None, keys)
