"""An upstream's 404 and 405: the client learns which upstream and which address, and no secret of it."""

import json
from collections.abc import Iterator

import pytest

from dragoman.config.settings import Route, Settings, UpstreamSettings
from dragoman.testing import ScriptedReply, ScriptedUpstream, json_reply
from gateway_harness import running_gateway
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
def test_an_address_that_is_not_there_is_named(
    stage: Stage, door: str, dialect: str, status: int, stream: bool
) -> None:
    scene = stage.scene(dialect, page(status))
    got = ask(stage.url, door, plain_body(door, scene.model, stream=stream))
    assert json.loads(got.content)["error"]["message"] == (
        f"upstream {dialect!r} answered {status} at {stage.upstream.url}{PATHS[dialect]}: "
        "no such page; check base_url and kind"
    )
    assert got.status_code == status


@doors
@dialects
def test_a_model_that_is_not_there_is_missing_at_a_named_upstream(
    stage: Stage, door: str, dialect: str
) -> None:
    reply = json_reply(error_body(dialect, 404, "There is no model scenes-model"), 404)
    scene = stage.scene(dialect, reply)
    got = ask(stage.url, door, plain_body(door, scene.model))
    assert got.status_code == 404
    message = json.loads(got.content)["error"]["message"]
    where = f"upstream {dialect!r} answered 404 at {stage.upstream.url}{PATHS[dialect]}"
    assert message.startswith(f"{where}: There is no model scenes-model")


@doors
def test_the_named_address_holds_no_secret(door: str) -> None:
    with ScriptedUpstream.in_thread(lambda _request: page(404)) as upstream:
        own = UpstreamSettings(
            kind="chat",
            base_url=f"{upstream.url}/t/pathkey-1/v1",
            api_key="key-of-the-upstream",
            query={"key": "querykey-1"},
            headers={"x-team": "headerkey-1"},
        )
        settings = Settings(upstreams={"up": own}, routes=(Route(model="*", upstream="up"),))
        with running_gateway(settings) as gateway:
            got = ask(gateway.url, door, plain_body(door, "some-model"))
    message = json.loads(got.content)["error"]["message"]
    place = f"{upstream.url}/***/***/v1/chat/completions"
    assert message.startswith(f"upstream 'up' answered 404 at {place}: no such page")
    secrets = ("pathkey-1", "key-of-the-upstream", "querykey-1", "headerkey-1")
    assert [each for each in secrets if each in got.text] == []
