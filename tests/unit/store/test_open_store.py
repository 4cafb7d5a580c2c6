"""Stores by their URL."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.config.check import check_surroundings, complete
from dragoman.config.environment import default_store_path, sqlite_place, store_engine
from dragoman.config.settings import Settings, StoreSettings
from dragoman.errors import ConfigError
from dragoman.store.contract import owner_of
from dragoman.store.engine_store import open_store


@pytest.mark.parametrize(
    ("url", "engine"),
    [
        ("memory:", "memory"),
        ("sqlite:", "sqlite"),
        ("sqlite:///var/lib/store.db", "sqlite"),
        ("SQLite:store.db", "sqlite"),
        ("postgresql://user:word@host:5432/name?sslmode=require", "postgresql"),
        ("postgres:///name", "postgresql"),
    ],
)
def test_url_names_its_engine(url: str, engine: str) -> None:
    assert store_engine(url) == engine


@pytest.mark.parametrize(
    "url",
    ["", "memory", "memory:x", "sqlite", "sqlite://store.db", "sqlite:///a#b", "postgresql:name", "mysql://u:hush@h/d",
     "redis:", "u:hush@host", "sqlite:///a?synchronous=off", "sqlite:///a?mode=ro", "/a/path:hush", "sqlite://[hush"],
)  # fmt: skip
def test_url_that_names_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="expected") as caught:
        store_engine(url)
    assert "hush" not in caught.value.message


def test_file_is_where_the_url_says() -> None:
    assert sqlite_place("sqlite:///var/lib/my%20store.db", {}) == (
        Path("/var/lib/my store.db"),
        "full",
    )
    assert sqlite_place("sqlite:store.db?synchronous=normal", {}) == (Path("store.db"), "normal")
    assert sqlite_place("sqlite:?synchronous=full", {"XDG_STATE_HOME": "/state"}) == (
        Path("/state/dragoman/store.db"),
        "full",
    )
    assert sqlite_place("sqlite:~/x.db", {})[0] == Path.home() / "x.db"


def test_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    assert store_engine("sqlite:") == "sqlite"
    settings = complete(Settings(store=StoreSettings()))
    check_surroundings(settings, {"XDG_STATE_HOME": "/state"})
    with pytest.raises(ConfigError, match=r"store\.url: expected a home folder .* XDG_STATE_HOME"):
        check_surroundings(settings, {})
    check_surroundings(structs.replace(settings, store=StoreSettings(policy="off")), {})


@pytest.mark.parametrize("given", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}])
def test_state_directory_is_the_users(given: dict[str, str]) -> None:
    assert default_store_path(given) == Path.home() / ".local/state/dragoman/store.db"


def test_default_is_a_file_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def main() -> None:
        store = await open_store(StoreSettings())
        await store.ping()
        await store.close()

    asyncio.run(main())
    file = tmp_path / "dragoman" / "store.db"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dragoman.store.postgres.engine", None)
    with pytest.raises(ConfigError, match=r"install dragoman\[postgres\]"):
        asyncio.run(open_store(StoreSettings(url="postgresql://host/name")))


def test_opening_needs_no_extra() -> None:
    code = "import sys, dragoman.store.engine_store; print([m for m in sys.modules if m.startswith('psycopg')])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "[]"


def test_owners_differ_as_keys_do() -> None:
    assert owner_of(None) == owner_of("") == ""
    assert owner_of("sk-a") == owner_of("sk-a") != owner_of("sk-b")
    assert len(owner_of("sk-\ud83d")) == 32
    assert "sk-a" not in owner_of("sk-a")
