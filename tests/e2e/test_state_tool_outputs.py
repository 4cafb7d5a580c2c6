"""`submit_tool_outputs` continues a response, once; the `required_action` profile asks its client for the outputs."""

import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.store.contract import WAITING_SECONDS
from dragoman.store.engine import STEP
from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply
from gateway_harness import DIALECTS
from heard import ERROR_MARK, HeardCall, HeardResult, Spoken, hear
from plain_http import ask, fetch
from served import Served, serving
from stage import Stage, deliver, running_stage
from vendor_wire import Answer, Said, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "name": "get_weather", "description": "d", "parameters": SCHEMA}]
PARIS = Tool("call_1", "get_weather", ('{"city":', '"Paris"}'))
ROME = Tool("call_2", "get_weather", ('{"city":"Rome"}',))
CALLING = Answer((PARIS,))
BOTH = Answer((Said(("Two.",)), PARIS, ROME))
DONE = Answer((Said(("It is ", "sunny.")),))
REQUIRED = {"x-dragoman-profile": "required-action"}

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
streams = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
Json = dict[str, Any]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


def events_of(content: bytes) -> list[Json]:
    return [
        json.loads(line.removeprefix(b"data: "))
        for line in content.splitlines()
        if line.startswith(b"data: ")
    ]


def create(stage: Stage, model: str, headers: Json | None = None, **more: Any) -> Json:
    """Return a response, from a stream or a body."""
    body = {"model": model, "input": "How is the weather?", "tools": TOOLS, **more}
    answer = ask(stage.url, "responses", body, headers)
    assert answer.status_code == 200, answer.content
    return final(answer)


def final(answer: Any) -> Json:
    if answer.headers["content-type"].startswith("text/event-stream"):
        response: Json = events_of(answer.content)[-1]["response"]
        return response
    whole: Json = answer.json()
    return whole


def submit(
    stage: Stage, response_id: str, outputs: Any, headers: Json | None = None, **more: Any
) -> Any:
    body = json.dumps({"tool_outputs": outputs, **more}).encode()
    path = f"{stage.url}/v1/responses/{response_id}/submit_tool_outputs"
    return fetch("POST", path, {"content-type": "application/json", **(headers or {})}, body)


@pytest.mark.requirement("S004-36")
@streams
@dialects
def test_outputs_continue_a_response_with_all_it_was_asked_for(
    stage: Stage, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, BOTH, DONE)
    first = create(
        stage, scene.model, stream=stream, instructions="Be kind.", max_output_tokens=555
    )
    outputs = [
        {"call_id": "call_2", "output": [{"type": "input_text", "text": "rain"}]},
        {"tool_call_id": "call_1", "error": "no such city"},
    ]
    answer = submit(stage, first["id"], outputs, stream=stream)
    assert answer.status_code == 200, answer.content
    second = final(answer)
    assert second["status"] == "completed"
    assert second["output"][0]["content"][0]["text"] == "It is sunny."
    assert second["previous_response_id"] == first["id"]
    assert second["id"] != first["id"]
    heard = hear(dialect, scene.requests[1].body)
    assert Spoken("user", "How is the weather?") in heard.turns
    calls = [turn.call_id for turn in heard.turns if isinstance(turn, HeardCall)]
    assert calls == ["call_1", "call_2"]
    results = {turn.call_id: turn for turn in heard.turns if isinstance(turn, HeardResult)}
    assert results["call_2"].text == "rain"
    failed = results["call_1"]
    assert failed.is_error or failed.text.startswith(ERROR_MARK)
    # What the first was asked with counts for the second: it said nothing else.
    assert [tool.name for tool in heard.tools] == ["get_weather"]
    assert b"Be kind." in scene.requests[1].body
    assert b"555" in scene.requests[1].body
    # And the second is a response like any other.
    third = stage.scene("chat", DONE)
    create(stage, third.model, previous_response_id=second["id"], tools=[])
    assert len(hear("chat", third.requests[0].body).results) == 2


DOTTED = "files.read:all"
LONG = "n" * 70
NAMED = [
    {"type": "function", "name": DOTTED, "parameters": {"type": "object"}},
    {
        "type": "namespace",
        "name": "mcp__maps",
        "description": "d",
        "tools": [{"type": "function", "name": LONG, "parameters": {"type": "object"}}],
    },
]


@pytest.mark.parametrize("way", ["submit_tool_outputs", "previous_response_id"])
@streams
@dialects
def test_names_and_ids_that_need_aliases_are_continued_after_a_restart(
    dialect: str, stream: bool, way: str, tmp_path: Path
) -> None:
    ids = ["functions.read:0", "call|" + "x" * 90]

    def call_both(request: ReceivedRequest) -> ScriptedReply:
        names = [(tool.name, tool.namespace) for tool in hear(dialect, request.body).tools]
        calls = [
            Tool(call_id, name, ("{}",), namespace=namespace)
            for call_id, (name, namespace) in zip(ids, names, strict=True)
        ]
        return deliver(dialect, Answer(tuple(calls)), is_stream=stream)

    store = StoreSettings(url=f"sqlite://{tmp_path / 'store.db'}")
    with running_stage(store=store) as stage:
        scene = stage.scene(dialect, call_both)
        first = create(stage, scene.model, stream=stream, tools=NAMED)
    calls = [(item["call_id"], item["name"], item.get("namespace")) for item in first["output"]]
    assert calls == [(ids[0], DOTTED, None), (ids[1], LONG, "mcp__maps")]
    with running_stage(store=store) as stage:
        again = stage.scene(dialect, DONE)
        outputs = [{"call_id": call_id, "output": call_id[:4]} for call_id in ids]
        if way == "submit_tool_outputs":
            # It repeats the model of the first request.
            assert again.model == scene.model
            answer = submit(stage, first["id"], outputs, stream=stream)
            assert answer.status_code == 200, answer.content
        else:
            create(
                stage,
                again.model,
                stream=stream,
                tools=NAMED,
                previous_response_id=first["id"],
                input=[{"type": "function_call_output", **output} for output in outputs],
            )
    offered = [(tool.name, tool.namespace) for tool in hear(dialect, again.requests[0].body).tools]
    heard = hear(dialect, again.requests[0].body)
    assert [(call.name, call.namespace) for call in heard.calls] == offered
    sent = [call.call_id for call in heard.calls]
    assert heard.results == [HeardResult(sent[0], "func"), HeardResult(sent[1], "call")]


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        ([{"tool_call_id": "call_9", "output": "x"}], "call_9"),
        ([{"tool_call_id": "call_1", "output": "x"}], "call_2"),
        ([], "call_1"),
        (
            [
                {"tool_call_id": "call_1", "output": "x"},
                {"tool_call_id": "call_1", "output": "y"},
                {"tool_call_id": "call_2", "output": "z"},
            ],
            "call_1",
        ),
        ([{"output": "x"}], "tool_call_id"),
        ("call_1", "tool_outputs"),
    ],
    ids=["unknown", "missing", "none", "twice", "nameless", "no list"],
)
def test_outputs_that_do_not_fit_the_calls_are_refused_and_named(
    stage: Stage, outputs: Any, named: str
) -> None:
    scene = stage.scene("messages", BOTH, DONE)
    first = create(stage, scene.model)
    refused = submit(stage, first["id"], outputs)
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]
    # Nothing was spoilt by it.
    right = [{"call_id": name, "output": "x"} for name in ("call_1", "call_2")]
    assert submit(stage, first["id"], right).status_code == 200


def test_a_response_that_is_not_known_has_no_outputs(stage: Stage) -> None:
    refused = submit(stage, "resp_unknown", [])
    assert refused.status_code == 404
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert refused.headers["x-request-id"]


def test_a_response_without_calls_waits_for_nothing(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    first = create(stage, scene.model)
    refused = submit(stage, first["id"], [{"call_id": "call_1", "output": "x"}])
    assert refused.status_code == 400
    assert "waits for none" in refused.json()["error"]["message"]


def test_a_response_is_continued_once(stage: Stage) -> None:
    scene = stage.scene("chat", CALLING, DONE)
    first = create(stage, scene.model)
    outputs = [{"call_id": "call_1", "output": "x"}]
    assert submit(stage, first["id"], outputs).status_code == 200
    again = submit(stage, first["id"], outputs)
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "response_already_continued"
    assert len(scene.requests) == 2


def test_of_many_at_once_exactly_one_continues(stage: Stage) -> None:
    scene = stage.scene("chat", CALLING, DONE)
    first = create(stage, scene.model, stream=True)
    outputs = [{"call_id": "call_1", "output": "x"}]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(submit, stage, first["id"], outputs) for _ in range(16)]
        answers = [each.result() for each in asked]
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    assert len(scene.requests) == 2


def test_outputs_may_be_sent_again_if_the_upstream_failed(stage: Stage) -> None:
    error = json_reply({"error": {"message": "broken", "type": "server_error"}}, 500)
    scene = stage.scene("chat", CALLING, error, DONE)
    first = create(stage, scene.model)
    outputs = [{"call_id": "call_1", "output": "x"}]
    assert submit(stage, first["id"], outputs).status_code == 500
    assert submit(stage, first["id"], outputs).status_code == 200
    assert len(scene.requests) == 3


def check_list(events: list[Json], name: str = "get_weather") -> None:
    """The seed's list of what a stream with a call must be."""
    assert all(event["type"] for event in events)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    added = events[kinds.index("response.output_item.added")]
    deltas = [e for e in events if e["type"] == "response.function_call_arguments.delta"]
    done = events[kinds.index("response.function_call_arguments.done")]
    item = events[kinds.index("response.output_item.done")]
    last = events[-1]
    output = last["response"]["output"][0]
    assert {e["item_id"] for e in (*deltas, done)} == {added["item"]["id"]}
    assert {added["item"]["id"], item["item"]["id"], output["id"]} == {added["item"]["id"]}
    calls = {added["item"]["call_id"], item["item"]["call_id"], output["call_id"]}
    assert len(calls) == 1
    for found in (added["item"], item["item"], output):
        assert found["type"] == "function_call"
        assert found["name"] == name
    assert added["item"]["status"] == "in_progress"
    assert item["item"]["status"] == output["status"] == "completed"
    assert added["item"]["arguments"] == ""
    whole = "".join(event["delta"] for event in deltas)
    assert whole == done["arguments"] == item["item"]["arguments"] == output["arguments"]
    assert json.loads(whole) == {"city": "Paris"}
    responses = [event["response"] for event in events if "response" in event]
    assert len({response["id"] for response in responses}) == 1
    assert all("reasoning" in response for response in responses)
    assert events[0]["type"] == "response.created"
    assert events[0]["response"]["status"] == "in_progress"
    assert last["type"] == "response.completed"


@dialects
def test_the_default_profile_is_the_vendors_own_sequence(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, CALLING)
    body = {"model": scene.model, "input": "hi", "tools": TOOLS, "stream": True}
    events = events_of(ask(stage.url, "responses", body).content)
    check_list(events)
    assert events[-1]["response"]["status"] == "completed"
    assert not any("required_action" in json.dumps(event) for event in events)


@dialects
def test_the_required_action_profile_keeps_the_list_of_its_document(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(dialect, CALLING, DONE)
    body = {"model": scene.model, "input": "hi", "tools": TOOLS, "stream": True}
    events = events_of(ask(stage.url, "responses", body, REQUIRED).content)
    check_list(events)
    kinds = [event["type"] for event in events]
    assert kinds[-3:] == [
        "response.output_item.done",
        "response.required_action",
        "response.completed",
    ]
    waiting, last = events[-2], events[-1]["response"]
    assert waiting["required_action"] == {
        "type": "submit_tool_outputs",
        "submit_tool_outputs": {
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
                }
            ]
        },
    }
    assert waiting["response"]["status"] == last["status"] == "incomplete"
    assert last["required_action"] == waiting["required_action"]
    path = f"{stage.url}/v1/responses/{last['id']}"
    assert fetch("GET", path).json() == last
    outputs = [{"tool_call_id": "call_1", "output": "sunny"}]
    resumed = final(submit(stage, last["id"], outputs, REQUIRED, stream=True))
    assert resumed["status"] == "completed"
    assert "required_action" not in resumed
    # Once resumed, it waits no more.
    stored = fetch("GET", path).json()
    assert stored["status"] == "completed"
    assert "required_action" not in stored


@pytest.mark.requirement("S004-36")
def test_a_body_waits_as_a_stream_does(stage: Stage) -> None:
    scene = stage.scene("messages", CALLING, CALLING, DONE)
    first = create(stage, scene.model, REQUIRED)
    assert first["status"] == "incomplete"
    assert first["required_action"]["submit_tool_outputs"]["tool_calls"][0]["id"] == "call_1"
    # It may wait again, with the same call id.
    outputs = [{"tool_call_id": "call_1", "output": "sunny"}]
    second = final(submit(stage, first["id"], outputs, REQUIRED))
    assert second["status"] == "incomplete"
    third = final(submit(stage, second["id"], outputs, REQUIRED))
    assert third["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_calls_waits_for_nothing_in_any_profile(
    stage: Stage, stream: bool
) -> None:
    scene = stage.scene("chat", DONE)
    lines = create(stage, scene.model, REQUIRED, stream=stream)
    assert lines["status"] == "completed"
    assert "required_action" not in lines


OUTPUTS = [{"tool_call_id": "call_1", "output": "sunny"}]


@streams
@dialects
@pytest.mark.requirement("S004-37")
def test_a_client_that_wants_nothing_stored_may_submit_what_it_was_asked_for(
    stage: Stage, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, CALLING, CALLING, DONE)
    first = create(
        stage, scene.model, REQUIRED, store=False, stream=stream, instructions="Be kind."
    )
    assert first["required_action"]["submit_tool_outputs"]["tool_calls"][0]["id"] == "call_1"
    second = final(submit(stage, first["id"], OUTPUTS, REQUIRED, stream=stream))
    assert second["status"] == "incomplete"
    assert submit(stage, first["id"], OUTPUTS, REQUIRED).status_code == 409
    third = final(submit(stage, second["id"], OUTPUTS, REQUIRED, stream=stream))
    assert third["status"] == "completed"
    assert len(hear(dialect, scene.requests[2].body).results) == 2
    assert b"Be kind." in scene.requests[2].body
    assert submit(stage, second["id"], OUTPUTS, REQUIRED).status_code == 409
    assert submit(stage, third["id"], OUTPUTS, REQUIRED).status_code in (400, 404)


@pytest.mark.requirement("S004-37")
@streams
def test_what_is_stored_only_for_its_outputs_cannot_be_read_continued_or_referred_to(
    stage: Stage, stream: bool
) -> None:
    scene = stage.scene("chat", CALLING, CALLING, DONE)
    first = create(stage, scene.model, REQUIRED, store=False, stream=stream)
    second = final(submit(stage, first["id"], OUTPUTS, REQUIRED, stream=stream))
    third = final(submit(stage, second["id"], OUTPUTS, REQUIRED, stream=stream))
    for response in (first, second, third):
        path = f"{stage.url}/v1/responses/{response['id']}"
        assert fetch("GET", path).status_code == 404
        assert fetch("GET", f"{path}/input_items").status_code == 404
        assert fetch("POST", f"{path}/cancel").status_code == 404
        assert fetch("DELETE", path).status_code == 404
        body = {"model": scene.model, "input": "go on", "previous_response_id": response["id"]}
        assert ask(stage.url, "responses", body).status_code == 400
    item = {"type": "item_reference", "id": first["output"][0]["id"]}
    referring = ask(stage.url, "responses", {"model": scene.model, "input": [item]})
    assert referring.status_code == 404


def test_a_branch_that_is_not_stored_is_submitted_with_all_that_it_continues(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((Said(("Hello.",)),)), CALLING, DONE)
    stored = create(stage, scene.model, input="My name is Ada.")
    branch = create(
        stage, scene.model, REQUIRED, store=False, previous_response_id=stored["id"], stream=True
    )
    answer = submit(stage, branch["id"], OUTPUTS, REQUIRED)
    assert answer.status_code == 200, answer.content
    turns = hear("messages", scene.requests[2].body).turns
    assert Spoken("user", "My name is Ada.") in turns
    assert Spoken("user", "How is the weather?") in turns


def test_with_the_store_off_nobody_is_asked_for_outputs() -> None:
    with running_stage(store=StoreSettings(url="memory:", policy="off")) as stage:
        scene = stage.scene("chat", CALLING, CALLING)
        for stream in (False, True):
            response = create(stage, scene.model, REQUIRED, stream=stream)
            assert response["status"] == "completed"
            assert "required_action" not in response


def test_an_answer_that_waits_for_nothing_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with running_stage(store=StoreSettings(url=f"sqlite:{path}")) as stage:
        scene = stage.scene("chat", DONE, DONE, CALLING, DONE)
        create(stage, scene.model, REQUIRED, store=False)
        create(stage, scene.model, REQUIRED, store=False, stream=True)
        assert stored_rows(path) == []
        waiting = create(stage, scene.model, REQUIRED, store=False, stream=True)
        final(submit(stage, waiting["id"], OUTPUTS, REQUIRED, stream=True))
        now = time.time()
        expiries = [expires for expires, _ in stored_rows(path)]
        assert len(expiries) == 2
        # No longer than a client may need, not for the thirty days of a stored response; a row lives one step longer at most.
        assert max(expiries) < now + WAITING_SECONDS * (1 + 2 * STEP)
        assert [stream for _, stream in stored_rows(path)] == [None, None]


def stored_rows(path: Path) -> list[tuple[float, bytes | None]]:
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        if ("responses",) not in tables:
            return []
        rows = "SELECT r.expires, a.stream FROM responses r JOIN answers a ON a.n = r.n"
        return database.execute(rows).fetchall()


@pytest.mark.requirement("S004-37")
@streams
def test_outputs_are_submitted_to_another_process_and_after_a_restart(
    tmp_path: Path, stream: bool
) -> None:
    environment = {"DRAGOMAN_STORE_URL": f"sqlite:{tmp_path / 'store.db'}"}
    asked = {
        "model": "rehearsal",
        "input": "weather in Oslo, please",
        "tools": TOOLS,
        "store": False,
        "stream": stream,
    }
    with serving(tmp_path, environment) as one:
        with serving(tmp_path, environment) as two:
            first = asked_of(one, "/v1/responses", asked)
            other = asked_of(one, "/v1/responses", asked | {"input": "weather in Rome, please"})
            assert "required_action" in first
            assert submitted_to(two, first)["status"] == "completed"
        # Whoever began it may be gone.
        one.kill()
    with serving(tmp_path, environment) as three:
        assert submitted_to(three, other)["status"] == "completed"
        assert fetch("GET", f"{three.url}/v1/responses/{other['id']}").status_code == 404


def asked_of(node: Served, path: str, body: Json) -> Json:
    headers = {"content-type": "application/json", **REQUIRED}
    answer = fetch("POST", node.url + path, headers, json.dumps(body).encode())
    assert answer.status_code == 200, answer.content
    return final(answer)


def submitted_to(node: Served, response: Json) -> Json:
    calls = response["required_action"]["submit_tool_outputs"]["tool_calls"]
    outputs = [{"tool_call_id": call["id"], "output": "cold"} for call in calls]
    path = f"/v1/responses/{response['id']}/submit_tool_outputs"
    return asked_of(node, path, {"tool_outputs": outputs})
