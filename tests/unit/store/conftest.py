"""The engines that every test of the contract runs on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import PostgresServer, run_postgres
from store_help import Bench


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process."""
    with run_postgres() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """A place for stores of each engine in turn."""
    return _bench(request, str(request.param), tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """The engines that survive their process."""
    return _bench(request, str(request.param), tmp_path)


def _bench(request: pytest.FixtureRequest, engine: str, folder: Path) -> Bench:
    if engine == "memory":
        return Bench("memory:")
    if engine == "sqlite":
        return Bench(f"sqlite://{folder / 'store.db'}")
    server: PostgresServer = request.getfixturevalue("postgres")
    return Bench(server.fresh())
