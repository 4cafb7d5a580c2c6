"""Conversations with the openai SDK: every endpoint, and tool loops that name nothing but the conversation, over every upstream."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from dragoman.config.settings import StoreSettings
from gateway_harness import DIALECTS, WAYS
from heard import HeardCall, HeardResult, Spoken, hear
from plain_http import ask, fetch, plain_body
from sdk_clients import openai_client
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Thought, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "name": "get_weather", "description": "d", "parameters": SCHEMA}]


def calling(number: int) -> Answer:
    call = Tool(f"call_{number}", "get_weather", ('{"city":', f'"City {number}"}}'))
    return Answer((Said((f"Look {number}.",)), call))


DONE = Answer((Said(("It is ", "sunny.")),))
THANKED = Answer((Said(("You are welcome.",)),))

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
streams = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


@pytest.fixture(scope="module", params=WAYS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with running_stage(way=request.param) as running:
        yield running


@pytest.fixture
def client(stage: Stage) -> Any:
    return openai_client(stage.url)


def respond(url: str, *, stream: bool = False, **given: Any) -> Any:
    answer = openai_client(url).responses.create(stream=stream, **given)
    if not stream:
        return answer
    events = list(answer)
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[0].response.conversation == events[-1].response.conversation
    return events[-1].response


def output_of(call_id: str, text: str) -> list[dict[str, str]]:
    return [{"type": "function_call_output", "call_id": call_id, "output": text}]


def listed(client: Any, name: str, **query: Any) -> list[Any]:
    return list(client.conversations.items.list(name, **{"order": "asc", **query}))


def spoken(scene: Scene) -> list[object]:
    """Return the turns of the last request to the upstream; arguments are compared as values."""
    heard = hear(scene.dialect, scene.requests[-1].body)
    return [_plain(turn) for turn in heard.turns]


def _plain(turn: object) -> object:
    if isinstance(turn, HeardCall):
        value: Any = turn.arguments
        return turn.call_id, json.loads(value) if isinstance(value, str) else value
    return turn


@streams
@dialects
def test_a_loop_of_four_turns_goes_on_by_the_conversation_alone(
    stage: Stage, client: Any, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, calling(1), calling(2), DONE, THANKED)
    conversation = client.conversations.create().id
    given: dict[str, Any] = {"model": scene.model, "tools": TOOLS, "stream": stream}
    first = respond(stage.url, conversation=conversation, input="How is the weather?", **given)
    assert first.conversation.id == conversation
    assert first.previous_response_id is None
    second = respond(
        stage.url, conversation={"id": conversation}, input=output_of("call_1", "sunny"), **given
    )
    third = respond(
        stage.url, conversation=conversation, input=output_of("call_2", "windy"), **given
    )
    last = respond(stage.url, conversation=conversation, input="Thanks!", **given)
    assert last.output_text == "You are welcome."
    said = [
        Spoken("user", "How is the weather?"),
        Spoken("assistant", "Look 1."),
        ("call_1", {"city": "City 1"}),
        HeardResult("call_1", "sunny"),
        Spoken("assistant", "Look 2."),
        ("call_2", {"city": "City 2"}),
        HeardResult("call_2", "windy"),
        Spoken("assistant", "It is sunny."),
        Spoken("user", "Thanks!"),
    ]
    assert spoken(scene) == said
    assert b"conv_" not in scene.requests[-1].body
    items = listed(client, conversation)
    assert [item.type for item in items] == [
        *("message", "message", "function_call", "function_call_output"),
        *("message", "function_call", "function_call_output", "message", "message", "message"),
    ]
    assert [item.status for item in items] == ["completed"] * 10
    ids = [item.id for item in items]
    assert len(set(ids)) == 10
    assert ids[0].startswith("msg_")
    assert ids[3].startswith("fco_")
    if dialect != "responses":  # this upstream gives every answer the same item ids
        made = [item.id for answer in (first, second, third, last) for item in answer.output]
        assert [item_id for item_id in ids if item_id in made] == made
    stored = client.responses.retrieve(last.id)
    assert stored == last
    seen = client.responses.input_items.list(last.id, order="asc", limit=100)
    assert [item.id for item in seen] == ids[:-1]


def test_a_conversation_is_made_read_changed_and_deleted(client: Any) -> None:
    hello: Any = {"type": "message", "role": "user", "content": "hi"}
    made = client.conversations.create(items=[hello], metadata={"a": "b"})
    assert made.id.startswith("conv_")
    assert (made.object, made.metadata) == ("conversation", {"a": "b"})
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"x": "y"})
    assert (changed.metadata, changed.created_at) == ({"x": "y"}, made.created_at)
    assert client.conversations.retrieve(made.id) == changed
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    for question in (
        client.conversations.retrieve,
        client.conversations.delete,
        client.conversations.items.list,
    ):
        with pytest.raises(
            openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"
        ):
            question(made.id)


def test_items_are_added_listed_read_and_deleted(client: Any) -> None:
    name = client.conversations.create().id
    empty = client.conversations.items.list(name)
    assert (empty.data, empty.has_more, empty.first_id, empty.last_id) == ([], False, None, None)
    sent: Any = [
        {"role": "user", "content": "one"},
        {"type": "message", "role": "assistant", "content": "two"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1.0}'},
        {"type": "function_call_output", "call_id": "c", "output": "three", "id": "fco_mine"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "vendor_thing", "anything": {"at": ["all"]}},
    ]
    added = client.conversations.items.create(
        name, items=sent, include=["file_search_call.results"]
    )
    assert (added.object, added.has_more) == ("list", False)
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id)
    raw = [item.model_dump(exclude_unset=True) for item in added.data]
    assert raw[0]["content"] == [{"type": "input_text", "text": "one"}]
    assert raw[1]["content"] == [{"type": "output_text", "text": "two", "annotations": []}]
    assert raw[2]["arguments"] == '{"a": 1.0}'
    assert raw[3]["id"] == "fco_mine"
    assert raw[4]["encrypted_content"] == "sealed"
    assert "status" not in raw[4]
    assert raw[5]["anything"] == {"at": ["all"]}
    prefixes = [item["id"].partition("_")[0] for item in raw]
    assert prefixes == ["msg", "msg", "fc", "fco", "rs", "item"]
    assert [item.model_dump(exclude_unset=True) for item in listed(client, name)] == raw
    one = client.conversations.items.retrieve("fco_mine", conversation_id=name)
    assert one.model_dump(exclude_unset=True) == raw[3]
    left = client.conversations.items.delete("fco_mine", conversation_id=name)
    assert left == client.conversations.retrieve(name)
    with pytest.raises(openai.NotFoundError, match="fco_mine"):
        client.conversations.items.retrieve("fco_mine", conversation_id=name)
    with pytest.raises(openai.NotFoundError, match="fco_mine"):
        client.conversations.items.delete("fco_mine", conversation_id=name)
    assert len(listed(client, name)) == 5


def test_items_come_in_pages(client: Any, stage: Stage) -> None:
    sent: Any = [{"role": "user", "content": f"{number}"} for number in range(20)]
    name = client.conversations.create(items=sent).id
    for start in (20, 40):
        more: Any = [{"role": "user", "content": f"{start + number}"} for number in range(20)]
        client.conversations.items.create(name, items=more)
    texts = [item.content[0].text for item in listed(client, name, limit=7)]
    assert texts == [str(number) for number in range(60)]
    default = client.conversations.items.list(name)
    assert [item.content[0].text for item in default.data] == [str(59 - at) for at in range(20)]
    assert default.has_more is True
    path = f"{stage.url}/conversations/{name}/items"
    headers = {"authorization": "Bearer key-of-the-client"}
    unknown = fetch("GET", f"{path}?after=msg_none", headers)
    assert unknown.status_code == 404
    assert unknown.json()["error"]["message"] == "No item found with id 'msg_none'"
    assert unknown.json()["error"]["param"] == "after"
    for query, param in (("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order")):
        refused = fetch("GET", f"{path}?{query}", headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_paths_work_with_and_without_v1_and_name_their_methods(stage: Stage) -> None:
    headers = {"content-type": "application/json", "origin": "http://localhost:3000"}
    for prefix in ("", "/v1"):
        made = fetch("POST", f"{stage.url}{prefix}/conversations", headers, b"")
        assert made.status_code == 200, made.content
        path = f"{stage.url}{prefix}/conversations/{made.json()['id']}"
        items = b'{"items": [{"role": "user", "content": "x"}]}'
        added = fetch("POST", f"{path}/items", headers, items).json()
        for address, allowed in (
            (f"{stage.url}{prefix}/conversations", "POST"),
            (path, "GET, POST, DELETE"),
            (f"{path}/items", "GET, POST"),
            (f"{path}/items/{added['first_id']}", "GET, DELETE"),
        ):
            refused = fetch("PUT", address, headers, b"{}")
            assert refused.status_code == 405
            assert refused.headers["allow"] == allowed
        assert fetch("GET", f"{path}/items/{added['first_id']}", headers).json() == added["data"][0]


@dialects
def test_a_response_that_is_not_stored_is_added_all_the_same(
    stage: Stage, client: Any, dialect: str
) -> None:
    scene = stage.scene(dialect, calling(1), DONE)
    name = client.conversations.create().id
    given: dict[str, Any] = {"model": scene.model, "tools": TOOLS, "store": False}
    for stream, sent in ((True, "hi"), (False, output_of("call_1", "sunny"))):
        answer = respond(stage.url, conversation=name, input=sent, stream=stream, **given)
        assert answer.conversation.id == name
        assert answer.store is False
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(answer.id)
    assert [item.type for item in listed(client, name)] == [
        *("message", "message", "function_call", "function_call_output", "message")
    ]


def test_a_branch_by_response_id_begins_with_the_conversation_of_that_time(
    stage: Stage, client: Any
) -> None:
    scene = stage.scene("chat", DONE, DONE, THANKED)
    hello: Any = {"role": "user", "content": "The word is SAPPHIRE."}
    name = client.conversations.create(items=[hello]).id
    first = respond(stage.url, model=scene.model, conversation=name, input="Remember.")
    later: Any = {"role": "user", "content": "The word is ORCHID."}
    client.conversations.items.create(name, items=[later])
    branch = respond(
        stage.url, model=scene.model, previous_response_id=first.id, input="Which word?"
    )
    assert branch.conversation is None
    said = [
        Spoken("user", "The word is SAPPHIRE."),
        Spoken("user", "Remember."),
        Spoken("assistant", "It is sunny."),
    ]
    assert spoken(scene) == [*said, Spoken("user", "Which word?")]
    again = respond(
        stage.url, model=scene.model, previous_response_id=branch.id, input="Sure?", stream=True
    )
    assert spoken(scene)[:3] == said
    seen = client.responses.input_items.list(again.id, order="asc", limit=100)
    assert len(list(seen)) == 6
    assert len(listed(client, name)) == 4
    client.conversations.delete(name)
    with pytest.raises(openai.BadRequestError) as refused:
        respond(stage.url, model=scene.model, previous_response_id=first.id, input="And now?")
    assert refused.value.code == "previous_response_not_found"
    assert client.responses.retrieve(first.id).id == first.id
    assert len(list(client.responses.input_items.list(first.id))) == 1


def test_items_of_a_conversation_are_used_by_reference(stage: Stage, client: Any) -> None:
    scene = stage.scene("messages", calling(1), DONE, DONE)
    name = client.conversations.create().id
    first = respond(
        stage.url, model=scene.model, conversation=name, input="hi", tools=TOOLS, store=False
    )
    ids = [item.id for item in listed(client, name)]
    references: Any = [{"type": "item_reference", "id": item_id} for item_id in ids]
    answer = respond(
        stage.url,
        model=scene.model,
        input=[*references, *output_of("call_1", "sunny")],
        tools=TOOLS,
    )
    assert answer.output_text == "It is sunny."
    assert spoken(scene) == [
        Spoken("user", "hi"),
        Spoken("assistant", "Look 1."),
        ("call_1", {"city": "City 1"}),
        HeardResult("call_1", "sunny"),
    ]
    other = client.conversations.create(items=references).id
    assert listed(client, other) == listed(client, name)
    stored = [{"type": "item_reference", "id": answer.output[0].id}]
    client.conversations.items.create(other, items=stored)
    assert listed(client, other)[-1].content[0].text == "It is sunny."
    unknown: Any = [{"type": "item_reference", "id": "msg_unknown"}]
    with pytest.raises(openai.NotFoundError, match="msg_unknown"):
        client.conversations.items.create(other, items=unknown)
    with pytest.raises(openai.NotFoundError, match="msg_unknown"):
        respond(stage.url, model=scene.model, conversation=other, input=unknown)
    with pytest.raises(openai.BadRequestError, match="Duplicate item"):
        respond(stage.url, model=scene.model, conversation=name, input=references[:1])
    assert first.id
    # the refusals have left nothing locked
    respond(stage.url, model=scene.model, conversation=other, input="go on", tools=TOOLS)


def test_an_item_is_in_a_conversation_once(stage: Stage, client: Any) -> None:
    one: Any = {"role": "user", "content": "x", "id": "msg_one", "type": "message"}
    name = client.conversations.create(items=[one]).id
    with pytest.raises(openai.BadRequestError) as refused:
        client.conversations.items.create(name, items=[one])
    assert refused.value.code == "item_already_in_conversation"
    with pytest.raises(openai.BadRequestError) as twice:
        client.conversations.create(items=[one, one])
    assert twice.value.code == "item_already_in_conversation"
    scene = stage.scene("chat", DONE)
    with pytest.raises(openai.BadRequestError, match="Duplicate item found with id msg_one"):
        respond(stage.url, model=scene.model, conversation=name, input=[one])
    assert scene.requests == []
    wrong: Any = {**one, "id": "thing_1"}
    with pytest.raises(openai.BadRequestError) as prefix:
        client.conversations.items.create(name, items=[wrong])
    assert (prefix.value.code, prefix.value.param) == ("invalid_value", "items[0].id")


def test_items_of_an_upstream_that_repeats_its_ids_get_others(stage: Stage, client: Any) -> None:
    scene = stage.scene("responses", DONE, THANKED)
    name = client.conversations.create().id
    for _ in range(2):
        respond(stage.url, model=scene.model, conversation=name, input="hi")
    items = listed(client, name)
    assert len({item.id for item in items}) == 4
    assert [item.content[0].text for item in items][1::2] == ["It is sunny.", "You are welcome."]


def test_reasoning_stays_in_the_conversation(stage: Stage, client: Any) -> None:
    thinking = Answer((Thought("hm", "sealed"), *calling(1).parts))
    scene = stage.scene("messages", thinking, DONE)
    name = client.conversations.create().id
    given: dict[str, Any] = {"model": scene.model, "tools": TOOLS, "conversation": name}
    given["reasoning"] = {"effort": "high"}
    respond(stage.url, input="hi", **given)
    assert [item.type for item in listed(client, name)][1] == "reasoning"
    respond(stage.url, input=output_of("call_1", "x"), **given)
    assert b"sealed" in scene.requests[1].body


def test_a_conversation_that_is_not_ours_is_the_upstreams(stage: Stage) -> None:
    scene = stage.scene("responses", DONE)
    answer = respond(stage.url, model=scene.model, conversation="conv_of_theirs", input="x")
    assert scene.heard["conversation"] == "conv_of_theirs"
    assert answer.output_text == "It is sunny."


@dialects
def test_a_conversation_that_is_unknown_is_refused(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, DONE)
    unknown = ["conv_dgm0000000000000000000"]
    if dialect != "responses":
        unknown.append("conv_of_theirs")
    for name in unknown:
        with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{name}' not found"):
            respond(stage.url, model=scene.model, conversation=name, input="x")
    assert scene.requests == []


def test_requests_that_do_not_fit_are_refused(stage: Stage, client: Any) -> None:
    scene = stage.scene("chat", DONE)
    name = client.conversations.create().id
    with pytest.raises(openai.BadRequestError) as both:
        respond(
            stage.url,
            model=scene.model,
            conversation=name,
            previous_response_id="resp_1",
            input="x",
        )
    assert both.value.code == "mutually_exclusive_parameters"
    given: list[Any] = [7, [], {}, {"id": 7}, ""]
    for wrong in given:
        body = plain_body("responses", scene.model, conversation=wrong)
        refused = ask(stage.url, "responses", body)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].startswith("conversation")
    assert scene.requests == []


def test_tokens_of_a_conversation_are_counted_and_it_is_compacted(
    stage: Stage, client: Any
) -> None:
    long: Any = {"role": "user", "content": "word " * 400}
    name = client.conversations.create(items=[long]).id
    scene = stage.scene("chat", DONE)
    alone = client.responses.input_tokens.count(model=scene.model, input="x")
    whole = client.responses.input_tokens.count(model=scene.model, input="x", conversation=name)
    assert whole.input_tokens > alone.input_tokens + 300
    body = plain_body("responses", scene.model, conversation=name)
    compacted = fetch(
        "POST",
        f"{stage.url}/v1/responses/compact",
        {"content-type": "application/json", "authorization": "Bearer key-of-the-client"},
        json.dumps(body).encode(),
    )
    assert compacted.status_code == 200, compacted.content
    assert b"word word" in scene.requests[-1].body
    assert len(listed(client, name)) == 1


def test_credentials_in_items_are_sent_and_not_stored(stage: Stage, client: Any) -> None:
    server = {
        "type": "mcp",
        "server_label": "x",
        "server_url": "https://x",
        "authorization": "s3cret",
    }
    tools: Any = {"type": "additional_tools", "role": "developer", "tools": [server]}
    scene = stage.scene("responses", DONE, DONE)
    name = client.conversations.create(items=[tools]).id
    respond(
        stage.url,
        model=scene.model,
        conversation=name,
        input=[tools, {"role": "user", "content": "x"}],
    )
    assert scene.requests[0].body.count(b"s3cret") == 1
    respond(stage.url, model=scene.model, conversation=name, input="y")
    assert b"s3cret" not in scene.requests[1].body
    assert b"https://x" in scene.requests[1].body
    page = fetch(
        "GET",
        f"{stage.url}/v1/conversations/{name}/items",
        {"authorization": "Bearer key-of-the-client"},
    )
    assert b"s3cret" not in page.content


def test_keys_have_conversations_of_their_own(stage: Stage, client: Any) -> None:
    hello: Any = {"role": "user", "content": "mine", "type": "message", "id": "msg_private"}
    name = client.conversations.create(items=[hello]).id
    other = openai_client(stage.url, "another-key")
    scene = stage.scene("chat", DONE)
    questions: list[Callable[[], Any]] = [
        lambda: other.conversations.retrieve(name),
        lambda: other.conversations.update(name, metadata={}),
        lambda: other.conversations.delete(name),
        lambda: other.conversations.items.list(name),
        lambda: other.conversations.items.create(name, items=[hello]),
        lambda: other.conversations.items.retrieve("msg_private", conversation_id=name),
        lambda: other.conversations.items.delete("msg_private", conversation_id=name),
        lambda: other.responses.create(model=scene.model, conversation=name, input="x"),
        lambda: other.conversations.create(items=[{"type": "item_reference", "id": "msg_private"}]),
    ]
    for question in questions:
        with pytest.raises(openai.NotFoundError):
            question()
    assert scene.requests == []
    assert len(listed(client, name)) == 1


def test_without_a_store_there_are_no_conversations() -> None:
    with running_stage(store=StoreSettings(policy="off")) as stage:
        client = openai_client(stage.url)
        with pytest.raises(openai.NotFoundError, match=r"store\.policy"):
            client.conversations.create()
        scene = stage.scene("chat", DONE)
        with pytest.raises(openai.BadRequestError, match="conversation"):
            respond(stage.url, model=scene.model, conversation="conv_1", input="x")
