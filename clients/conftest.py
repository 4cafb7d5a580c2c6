"""Fixtures of the client tests: the model, the gateway in front of it and the drivers, one of each per process."""

from collections.abc import Iterator

import pytest

from clients.gateway import serve_gateway
from clients.model import DIALECTS, Model, serve
from clients.stack import DIRECT, Stack
from clients.worker import COMMANDS, Worker


@pytest.fixture(scope="session")
def model_server() -> Iterator[tuple[Model, str]]:
    model = Model()
    with serve(model) as upstream:
        yield model, upstream.url
        assert upstream.failures == []


@pytest.fixture(scope="session")
def gateway_url(
    model_server: tuple[Model, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with serve_gateway(tmp_path_factory.mktemp("gateway"), model_server[1]) as url:
        yield url


@pytest.fixture(scope="session")
def workers() -> Iterator[dict[str, Worker]]:
    started = {name: Worker(command) for name, command in COMMANDS.items()}
    yield started
    for worker in started.values():
        worker.close()


@pytest.fixture(scope="session")
def node(workers: dict[str, Worker]) -> Worker:
    return workers["node"]


@pytest.fixture(params=DIALECTS)
def gateway(
    request: pytest.FixtureRequest, model_server: tuple[Model, str], gateway_url: str
) -> Stack:
    """The model behind the gateway, in each dialect."""
    return Stack(model_server[0], gateway_url, request.param)


@pytest.fixture(params=(DIRECT, *DIALECTS))
def stack(request: pytest.FixtureRequest, model_server: tuple[Model, str]) -> Stack:
    """The same, and the model alone: a failure there is one of the drivers or of the model, not of the gateway."""
    model, url = model_server
    if request.param != DIRECT:
        url = request.getfixturevalue("gateway_url")
    return Stack(model, url, request.param)
