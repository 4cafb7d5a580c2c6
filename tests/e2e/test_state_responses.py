"""Conversations that the gateway stores: the openai SDK sends only new items, and every upstream gets the whole conversation."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from dragoman.config.settings import ServerSettings, StoreSettings
from gateway_harness import DIALECTS, WAYS
from heard import HeardCall, HeardResult, Spoken, hear
from plain_http import ask, fetch
from sdk_clients import openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "name": "get_weather", "description": "d", "parameters": SCHEMA}]
CALL = Tool("call_1", "get_weather", ('{"city":', '"Paris"}'))
CALLING = Answer((Said(("Let me ", "look.")), CALL))
# Enough to be written many at a time, and to be packed in several pieces.
LONG = Answer((Said(tuple(f"{number} % of \u2028 it, " for number in range(3000))), CALL))
DONE = Answer((Said(("It is ", "sunny.")),))
THANKED = Answer((Said(("You are welcome.",)),))

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
streams = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


@pytest.fixture(scope="module", params=WAYS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with running_stage(way=request.param) as running:
        yield running


def respond(url: str, *, stream: bool = False, **given: Any) -> Any:
    """Return the response, from a stream or a body."""
    answer = openai_client(url).responses.create(stream=stream, **given)
    if not stream:
        return answer
    events = list(answer)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[0].response.id == events[-1].response.id
    return events[-1].response


def output_of(call: Any, text: str) -> list[dict[str, str]]:
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text}]


@streams
@dialects
def test_a_conversation_goes_on_by_the_id_of_its_last_response(
    stage: Stage, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, CALLING, DONE, THANKED)
    given: dict[str, Any] = {"model": scene.model, "tools": TOOLS, "stream": stream}
    first = respond(stage.url, input="How is the weather?", instructions="Be kind.", **given)
    call = next(item for item in first.output if item.type == "function_call")
    second = respond(
        stage.url, input=output_of(call, "sunny"), previous_response_id=first.id, **given
    )
    assert second.output_text == "It is sunny."
    assert second.previous_response_id == first.id
    third = respond(stage.url, input="Thanks!", previous_response_id=second.id, **given)
    assert third.output_text == "You are welcome."
    assert len({first.id, second.id, third.id}) == 3
    heard = hear(dialect, scene.requests[2].body)
    assert [turn for turn in heard.turns if not isinstance(turn, HeardCall)] == [
        Spoken("user", "How is the weather?"),
        Spoken("assistant", "Let me look."),
        HeardResult("call_1", "sunny"),
        Spoken("assistant", "It is sunny."),
        Spoken("user", "Thanks!"),
    ]
    assert [turn.call_id for turn in heard.turns if isinstance(turn, HeardCall)] == ["call_1"]
    # Instructions are for one request, as OpenAI has it.
    assert b"Be kind." in scene.requests[0].body
    assert b"Be kind." not in scene.requests[1].body
    assert b"previous_response_id" not in scene.requests[2].body


@streams
@dialects
def test_a_stored_response_is_what_was_sent(stage: Stage, dialect: str, stream: bool) -> None:
    scene = stage.scene(dialect, CALLING)
    client = openai_client(stage.url)
    lines = respond(stage.url, model=scene.model, tools=TOOLS, input="hi", stream=stream)
    assert client.responses.retrieve(lines.id) == lines


@pytest.mark.parametrize("answer", [CALLING, LONG], ids=["short", "long"])
@dialects
def test_a_stored_stream_is_replayed_byte_for_byte(
    stage: Stage, dialect: str, answer: Answer
) -> None:
    scene = stage.scene(dialect, answer)
    body = {"model": scene.model, "input": "hi", "tools": TOOLS, "stream": True}
    found = ask(stage.url, "responses", body, {"authorization": "Bearer key-of-the-client"})
    created = json.loads(found.content.partition(b"data: ")[2].partition(b"\n")[0])
    path = f"{stage.url}/v1/responses/{created['response']['id']}"
    headers = {"authorization": "Bearer key-of-the-client"}
    again = fetch("GET", f"{path}?stream=true", headers)
    assert again.headers["content-type"].startswith("text/event-stream")
    assert again.content == found.content
    later = fetch("GET", f"{path}?stream=true&starting_after=3", headers).content
    assert found.content.endswith(later)
    assert b'"sequence_number":4' in later.replace(b" ", b"")
    assert b'"sequence_number":3}' not in later.replace(b" ", b"")
    nothing = fetch("GET", f"{path}?stream=true&starting_after=9999", headers)
    assert nothing.content == b""


def test_a_stored_body_is_replayed_as_a_stream(stage: Stage) -> None:
    scene = stage.scene("chat", CALLING)
    found = respond(stage.url, model=scene.model, tools=TOOLS, input="hi")
    events = list(openai_client(stage.url).responses.retrieve(found.id, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert events[-1].response.id == found.id
    assert events[-1].response.output_text == found.output_text


def test_the_input_of_a_response_is_listed_in_pages(stage: Stage) -> None:
    scene = stage.scene("messages", CALLING, DONE)
    given: dict[str, Any] = {"model": scene.model, "tools": TOOLS}
    first = respond(stage.url, input="How is the weather?", **given)
    call = next(item for item in first.output if item.type == "function_call")
    second = respond(
        stage.url, input=output_of(call, "sunny"), previous_response_id=first.id, **given
    )
    items = openai_client(stage.url).responses.input_items
    whole = [item.type for item in items.list(second.id, order="asc", limit=100)]
    assert whole == ["message", "message", "function_call", "function_call_output"]
    pages = [list(page.data) for page in items.list(second.id, limit=1).iter_pages()]
    assert [page[0].type for page in pages if page] == whole[::-1]
    bad = fetch(
        "GET",
        f"{stage.url}/v1/responses/{second.id}/input_items?limit=0",
        {"authorization": "Bearer key-of-the-client"},
    )
    assert bad.status_code == 400
    assert bad.json()["error"]["param"] == "limit"


def test_several_branches_go_from_one_response(stage: Stage) -> None:
    scene = stage.scene("chat", DONE, THANKED, THANKED)
    first = respond(stage.url, model=scene.model, input="one")
    for text in ("left", "right"):
        branch = respond(
            stage.url, model=scene.model, input=text, previous_response_id=first.id, stream=True
        )
        assert branch.previous_response_id == first.id
        heard = hear("chat", scene.requests[-1].body)
        assert [turn for turn in heard.turns if isinstance(turn, Spoken)][-1].text == text
        assert len(heard.turns) == 3


def test_what_is_deleted_is_gone_and_so_is_what_continued_it(stage: Stage) -> None:
    scene = stage.scene("chat", DONE, THANKED)
    client = openai_client(stage.url)
    first = respond(stage.url, model=scene.model, input="one")
    second = respond(stage.url, model=scene.model, input="two", previous_response_id=first.id)
    client.responses.delete(first.id)
    asked = client.responses
    for question in (asked.retrieve, asked.delete, asked.cancel, asked.input_items.list):
        with pytest.raises(openai.NotFoundError):
            question(first.id)
    assert client.responses.retrieve(second.id).id == second.id
    with pytest.raises(openai.BadRequestError) as refused:
        respond(stage.url, model=scene.model, input="three", previous_response_id=second.id)
    assert refused.value.code == "previous_response_not_found"


@streams
def test_a_response_that_is_not_to_be_stored_is_not(stage: Stage, stream: bool) -> None:
    scene = stage.scene("messages", DONE)
    lines = respond(stage.url, model=scene.model, input="one", store=False, stream=stream)
    with pytest.raises(openai.NotFoundError):
        openai_client(stage.url).responses.retrieve(lines.id)


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_an_unknown_response_is_refused_where_no_upstream_could_know_it(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(dialect, DONE)
    with pytest.raises(openai.BadRequestError) as refused:
        respond(stage.url, model=scene.model, input="x", previous_response_id="resp_unknown")
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"
    assert scene.requests == []


def test_an_unknown_response_may_be_known_to_an_upstream_that_has_responses(stage: Stage) -> None:
    scene = stage.scene("responses", DONE)
    respond(stage.url, model=scene.model, input="x", previous_response_id="resp_of_theirs")
    assert scene.heard["previous_response_id"] == "resp_of_theirs"


@streams
def test_what_one_key_stored_another_cannot_continue_at_an_upstream_that_has_responses(
    stream: bool,
) -> None:
    server = ServerSettings(shutdown_grace=0.3, api_keys=("the-key-of-one-caller", "another-key"))
    with running_stage(server=server) as stage:
        scene = stage.scene("responses", CALLING, DONE)
        client = openai_client(stage.url, "the-key-of-one-caller")
        found = client.responses.create(model=scene.model, input="mine")
        call = next(item for item in found.output if item.type == "function_call")
        stranger = openai_client(stage.url, "another-key")
        for wanted, code in (
            ({"previous_response_id": found.id, "input": "x"}, "previous_response_not_found"),
            ({"conversation": "conv_of_theirs", "input": "x"}, "not_found"),
            ({"input": [{"type": "item_reference", "id": call.id}]}, "not_found"),
        ):
            with pytest.raises(openai.APIStatusError) as refused:
                stranger.responses.create(model=scene.model, stream=stream, **wanted)
            assert refused.value.code == code
        client.responses.create(model=scene.model, input="more", previous_response_id=found.id)
        assert len(scene.requests) == 2


def test_a_caller_with_its_own_key_of_the_upstream_may_name_what_only_that_knows() -> None:
    server = ServerSettings(shutdown_grace=0.3, api_keys=("the-key-of-one-caller", "another-key"))
    upstreams = {"theirs": {"kind": "responses", "api_key": "client"}}
    with running_stage(server=server, upstreams=upstreams) as stage:
        scene = stage.scene("responses", DONE, route="theirs")
        body = {"model": scene.model, "input": "x", "previous_response_id": "resp_of_theirs"}
        headers = {"authorization": "Bearer another-key", "x-api-key": "sk-of-the-caller"}
        answer = ask(stage.url, "responses", body, headers)
        assert answer.status_code == 200
        assert scene.heard["previous_response_id"] == "resp_of_theirs"


def test_what_one_key_stored_another_does_not_find(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    found = respond(stage.url, model=scene.model, input="mine")
    stranger = openai_client(stage.url, "another-key")
    with pytest.raises(openai.NotFoundError):
        stranger.responses.retrieve(found.id)
    with pytest.raises(openai.BadRequestError):
        stranger.responses.create(model=scene.model, input="x", previous_response_id=found.id)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/responses/resp_1", "GET, DELETE"),
        ("POST", "/responses/resp_1/input_items", "GET"),
        ("GET", "/v1/responses/resp_1/cancel", "POST"),
        ("GET", "/v1/responses/resp_1/submit_tool_outputs", "POST"),
    ],
)
def test_an_unsupported_method_is_refused(
    stage: Stage, method: str, path: str, allowed: str
) -> None:
    answer = fetch(method, stage.url + path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=yes", "stream"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("starting_after=1", "starting_after"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(stage: Stage, query: str, param: str) -> None:
    answer = fetch("GET", f"{stage.url}/v1/responses/resp_1?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_an_upstream_that_keeps_responses_is_asked_by_its_own_ids() -> None:
    with running_stage(
        upstreams={"keeping": {"kind": "responses", "keeps_responses": True}}
    ) as stage:
        scene = stage.scene("responses", DONE, THANKED, route="keeping")
        first = respond(stage.url, model=scene.model, input="one")
        respond(stage.url, model=scene.model, input="two", previous_response_id=first.id)
        assert scene.heard["previous_response_id"] == first.id
        assert "one" not in json.dumps(scene.heard["input"])
        # Another upstream does not know them, and hears all of it.
        other = stage.scene("chat", THANKED)
        respond(stage.url, model=other.model, input="three", previous_response_id=first.id)
        assert hear("chat", other.requests[0].body).turns[-1] == Spoken("user", "three")
        assert len(hear("chat", other.requests[0].body).turns) == 3


def test_only_what_is_asked_for_is_stored_by_that_policy() -> None:
    with running_stage(store=StoreSettings(url="memory:", policy="asked")) as stage:
        scene = stage.scene("chat", DONE, DONE)
        client = openai_client(stage.url)
        found = respond(stage.url, model=scene.model, input="x")
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(found.id)
        found = respond(stage.url, model=scene.model, input="x", store=True)
        assert client.responses.retrieve(found.id) == found


def test_with_the_store_off_nothing_is_kept_and_nothing_found() -> None:
    with running_stage(store=StoreSettings(url="memory:", policy="off")) as stage:
        scene = stage.scene("chat", DONE, DONE)
        found = respond(stage.url, model=scene.model, input="x", store=True)
        with pytest.raises(openai.NotFoundError):
            openai_client(stage.url).responses.retrieve(found.id)
        with pytest.raises(openai.BadRequestError) as refused:
            respond(stage.url, model=scene.model, input="x", previous_response_id=found.id)
        assert refused.value.code == "previous_response_not_found"
        assert stage.gateway.app.gateway.store._store is None  # pyright: ignore[reportPrivateUsage]
