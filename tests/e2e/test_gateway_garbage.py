"""An exchange that is over is forgotten at once: nothing of the gateway's own waits for the garbage collector."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from dragoman._json import dumps
from dragoman.config.settings import StoreSettings
from garbage import kept_by, left_by
from gateway_harness import DIALECTS, connection, wait_until
from plain_http import plain_body
from stage import PATHS, Stage, running_stage
from vendor_wire import Answer, Said, Tool

CALLING = Answer((Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"city":', '"A"}'))))
CALLERS = itertools.count(1)
# Of this test's own side.
OURS = ("dragoman.testing",)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage(store=StoreSettings(url="memory:")) as running:
        yield running


# Bounded on purpose: the inspector's list of the last requests, and what is known of the models that were asked for last.
BOUNDED = (
    "dragoman.server.observe.record.RequestRecord",
    "dragoman.gateway.targets.AttemptTarget",
)


def exchange(stage: Stage, dialect: str, door: str, *, stream: bool) -> None:
    """One request of a new caller, whole, and the end of its connection."""
    state = stage.gateway.server.server_state
    loop = stage.gateway.server.servers[0].get_loop()
    scene = stage.scene(dialect, CALLING)
    body = dumps(plain_body(door, scene.model, stream=stream))
    # The ids of a Responses upstream pass, and this one repeats its own: each is stored for somebody else.
    headers = {"content-type": "application/json", "authorization": f"Bearer {next(CALLERS)}"}
    with connection(stage.gateway) as client:
        client.request("POST", PATHS[door], body, headers)
        answer = client.getresponse()
        assert answer.status == 200
        assert b"get_weather" in answer.read()
    wait_until(lambda: not state.connections and not state.tasks)
    # Of what happens at the end of a connection, this comes last.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result()


def ours(kinds: Counter[str]) -> list[str]:
    names = [kind for kind in kinds if kind.startswith(("dragoman.", "uvloop.", "uvicorn."))]
    return [kind for kind in names if not kind.startswith(OURS)]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_an_exchange_and_its_connection_leave_no_cycles(
    stage: Stage, dialect: str, door: str, stream: bool
) -> None:
    assert ours(left_by(lambda: exchange(stage, dialect, door, stream=stream))) == []


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_an_exchange_leaves_nothing_alive(
    stage: Stage, dialect: str, door: str, stream: bool
) -> None:
    kept = kept_by(lambda: exchange(stage, dialect, door, stream=stream))
    assert [kind for kind in ours(kept) if kind not in BOUNDED] == []
