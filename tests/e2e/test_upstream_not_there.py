"""An upstream's 404 and 405: the client learns which upstream and which path, the operator's log the address."""

import json
import logging
from collections.abc import Iterator

import pytest

from dragoman.testing import ScriptedReply, json_reply
from plain_http import ask, plain_body
from sdk_clients import DOORS
from stage import PATHS, Stage, running_stage
from vendor_errors import error_body

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


def page(status: int) -> ScriptedReply:
    """What a web server sends for a path that it does not have."""
    return ScriptedReply(status=status, content_type="text/plain", body=b"no such page")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [404, 405])
@doors
@dialects
def test_a_path_that_is_not_there_is_named(
    stage: Stage,
    door: str,
    dialect: str,
    status: int,
    stream: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = stage.scene(dialect, page(status))
    with caplog.at_level(logging.WARNING, "dragoman.gateway.attempt"):
        got = ask(stage.url, door, plain_body(door, scene.model, stream=stream))
    message = json.loads(got.content)["error"]["message"]
    path = PATHS[dialect]
    assert message == (
        f"upstream {dialect!r} answered {status} at {path}: no such page; check base_url and kind"
    )
    assert got.status_code == status
    address = stage.upstream.url.removeprefix("http://")
    assert address not in got.content.decode()
    attempts = [each for each in caplog.records if each.name == "dragoman.gateway.attempt"]
    [line] = [each.getMessage() for each in attempts]
    assert f"upstream {dialect!r} answered {status} at http://{address}{path}: " in line


@doors
def test_a_model_that_is_not_there_is_the_upstreams_own_error(stage: Stage, door: str) -> None:
    scene = stage.scene(
        "chat", json_reply(error_body("chat", 404, "The model does not exist"), 404)
    )
    got = ask(stage.url, door, plain_body(door, scene.model))
    assert got.status_code == 404
    assert json.loads(got.content)["error"]["message"] == "The model does not exist"
