"""An upstream that gives the same id to several responses: what was stored first stays, and the others get ids of ours."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply, sse
from sdk_clients import openai_client
from served import Served, serving
from stage import running_stage
from vendor_wire import Answer, Said, body_bytes, stream

FIRST = Answer((Said(("The ", "first.")),))
SECOND = Answer((Said(("The ", "second.")),))
THIRD = Answer((Said(("The ", "third.")),))

CONFIG = """
[upstreams.local]
kind = "responses"
base_url = "{url}/v1"
api_key = "x"

[[routes]]
model = "*"
upstream = "local"
"""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    url = "memory:" if request.param == "memory" else f"sqlite://{tmp_path / 'store.db'}"
    return StoreSettings(url=url)


def test_responses_of_several_callers_may_have_one_id(store: StoreSettings) -> None:
    with running_stage(store=store) as stage:
        scene = stage.scene("responses", FIRST, SECOND)
        own, other = openai_client(stage.url), openai_client(stage.url, "another")
        first = own.responses.create(model=scene.model, input="one")
        second = other.responses.create(model=scene.model, input="two")
        assert second.id == first.id
        assert other.responses.retrieve(first.id).output_text == "The second."
        assert own.responses.retrieve(first.id).output_text == "The first."


def test_bodies_with_one_id_are_all_kept(store: StoreSettings) -> None:
    with running_stage(store=store) as stage:
        scene = stage.scene("responses", FIRST, SECOND, THIRD)
        client = openai_client(stage.url)
        answers = [client.responses.create(model=scene.model, input=name) for name in "abc"]
        assert len({answer.id for answer in answers}) == 3
        for answer in answers:
            found = client.responses.retrieve(answer.id)
            assert (found.id, found.output_text) == (answer.id, answer.output_text)
            (item,) = client.responses.input_items.list(answer.id).data
            assert item.content[0].text in "abc"


def test_streams_with_one_id_are_all_kept(store: StoreSettings) -> None:
    with running_stage(store=store) as stage:
        scene = stage.scene("responses", FIRST, SECOND, THIRD)
        client = openai_client(stage.url)
        ends: list[Any] = []
        for name in "abc":
            events = list(client.responses.create(model=scene.model, input=name, stream=True))
            assert events[0].response.id == events[-1].response.id
            assert events[-1].type == "response.completed"
            ends.append(events[-1].response)
        assert len({end.id for end in ends}) == 3
        for end in ends:
            assert client.responses.retrieve(end.id) == end
            assert list(client.responses.retrieve(end.id, stream=True))[-1].response == end


def test_a_conversation_keeps_its_beginning_when_its_id_is_given_again(
    store: StoreSettings,
) -> None:
    with running_stage(store=store) as stage:
        scene = stage.scene("responses", FIRST, SECOND, THIRD)
        client = openai_client(stage.url)
        first = client.responses.create(model=scene.model, input="my name is Ada")
        client.responses.create(model=scene.model, input="my name is Bob")
        client.responses.create(model=scene.model, input="who?", previous_response_id=first.id)
        assert "Ada" in json.dumps(scene.heard)
        assert "Bob" not in json.dumps(scene.heard)


class Repeating:
    """Always one id: to each request the answer says what was asked."""

    def __call__(self, request: ReceivedRequest) -> ScriptedReply:
        asked = json.loads(request.body)
        answer = Answer((Said((json.dumps(asked["input"]),)),))
        if asked.get("stream"):
            return sse(stream("responses", answer))
        return json_reply(body_bytes("responses", answer))


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[Served]]:
    with ExitStack() as stack:
        upstream = stack.enter_context(ScriptedUpstream.in_thread(Repeating()))
        (tmp_path / "dragoman.toml").write_text(CONFIG.format(url=upstream.url), encoding="utf-8")
        environment = {"DRAGOMAN_STORE_URL": f"sqlite://{tmp_path / 'store.db'}"}
        yield [stack.enter_context(serving(tmp_path, environment)) for _ in range(2)]


def test_of_several_gateways_none_replaces_what_another_has_acknowledged(
    gateways: list[Served],
) -> None:
    """A stream whose id another process has stored meanwhile cannot be renamed any more: it fails, and only the first."""
    acknowledged: dict[str, Any] = {}
    failed = 0
    for number in range(12):
        body = {"model": "m", "input": f"turn {number}", "stream": number % 3 > 0}
        status, answer = gateways[number % 2].receive("/v1/responses", body)
        assert status == 200
        event = json.loads(answer.rpartition(b"data: ")[2] if body["stream"] else answer)
        if event.get("type") == "response.failed":
            failed += 1
            assert "stored already" in event["response"]["error"]["message"]
            continue
        response = event.get("response", event)
        assert response["id"] not in acknowledged
        acknowledged[response["id"]] = response
    assert failed <= 1
    for response_id, response in acknowledged.items():
        for gateway in gateways:
            status, found = gateway.ask(f"/v1/responses/{response_id}")
            assert (status, json.loads(found)) == (200, response)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    environment = {"DRAGOMAN_STORE_URL": f"sqlite://{tmp_path / 'store.db'}"}
    with serving(tmp_path, environment) as served:
        yield served


def test_the_same_answer_to_the_same_request_is_stored_once(gateway: Served) -> None:
    """The rehearsal gives it the same id too, also after a restart."""
    ends: list[Any] = []
    for _ in range(2):
        for _ in range(2):
            body = {"model": "rehearsal", "input": "hello", "stream": True}
            status, answer = gateway.receive("/v1/responses", body)
            assert status == 200
            ends.append(json.loads(answer.rpartition(b"data: ")[2]))
        gateway.stop()
        gateway.start()
    assert [end["type"] for end in ends] == ["response.completed"] * 4
    assert len({end["response"]["id"] for end in ends}) == 1
    status, found = gateway.ask(f"/v1/responses/{ends[0]['response']['id']}")
    assert (status, json.loads(found)) == (200, ends[0]["response"])
