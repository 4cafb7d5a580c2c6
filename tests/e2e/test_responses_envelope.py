"""The response object over HTTP: it repeats the client's request and has every field, however the answer ends and is read."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import Settings, StoreSettings
from dragoman.testing import ScriptedReply, Wait
from echoed_settings import SETTINGS, repeated
from gateway_harness import RunningGateway, running_gateway
from plain_http import ask, fetch, streaming
from stage import Stage, running_stage
from vendor_schemas import violations
from vendor_wire import Answer, Said, Tool, stream

Json = dict[str, Any]

CALL = Tool("call_1", "get.weather", ('{"city":', '"Paris"}'))
CALLING = Answer((Said(("Let me ", "look.")), CALL))
DONE = Answer((Said(("It is ", "sunny.")),))
CUT = Answer((Said(("It is ",)),), finish="length")
# What only OpenAI can do, or what the gateway must know.
ELSEWHERE = {"background", "model", "previous_response_id", "prompt", "store"}
ASKED: Json = {
    "input": "How is the weather?",
    **{name: value for name, value in SETTINGS.items() if name not in ELSEWHERE},
    "tool_choice": "auto",
}

streams = pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
dialects = pytest.mark.parametrize("dialect", ["chat", "messages"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


@pytest.fixture(scope="module")
def rehearsal() -> Iterator[RunningGateway]:
    with running_gateway(Settings(store=StoreSettings(url="memory:"))) as running:
        yield running


def snapshots(content: bytes) -> list[Json]:
    """The response objects of a body, or of every event of a stream that has one."""
    if content.startswith(b"{"):
        return [json.loads(content)]
    lines = [line for line in content.splitlines() if line.startswith(b"data: ")]
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    return [event["response"] for event in events if "response" in event]


def check(responses: list[Json], request: Json) -> Json:
    """Each repeats the request and has every field. Returns the last."""
    expected = repeated(request)
    for response in responses:
        assert {name: response[name] for name in expected} == expected
        assert violations("Open Responses", "ResponseResource", response) == set()
    return responses[-1]


def respond(stage: Stage | RunningGateway, request: Json) -> list[Json]:
    answer = ask(stage.url, "responses", request)
    assert answer.status_code == 200, answer.content
    return snapshots(answer.content)


def read_again(stage: Stage, response_id: str, query: str = "") -> list[Json]:
    answer = fetch("GET", f"{stage.url}/v1/responses/{response_id}{query}")
    assert answer.status_code == 200, answer.content
    return snapshots(answer.content)


@streams
@dialects
def test_every_upstreams_answer_repeats_the_request_and_so_does_what_was_stored(
    stage: Stage, dialect: str, is_stream: bool
) -> None:
    scene = stage.scene(dialect, CALLING)
    request = {**ASKED, "model": scene.model, "stream": is_stream}
    began = int(time.time())
    found = check(respond(stage, request), request)
    assert found["status"] == "completed"
    assert began <= found["completed_at"] <= time.time()
    assert found["usage"]["input_tokens_details"]["cache_write_tokens"] == 0
    assert read_again(stage, found["id"]) == [found]
    replayed = read_again(stage, found["id"], "?stream=true")
    assert check(replayed, request) == found
    assert [each["completed_at"] for each in replayed[:-1]] == [None] * (len(replayed) - 1)


@streams
@pytest.mark.parametrize("scenario", ["rehearsal", "rehearsal-reasoning", "rehearsal-refusal"])
def test_the_rehearsals_answer_repeats_the_request(
    rehearsal: RunningGateway, scenario: str, is_stream: bool
) -> None:
    # Its answers are relayed, and it knows tools by names that OpenAI allows.
    tools = [{**tool, "name": "get_weather"} for tool in ASKED["tools"]]
    request = {**ASKED, "tools": tools, "model": scenario, "stream": is_stream}
    check(respond(rehearsal, request), request)


@streams
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@pytest.mark.parametrize("store", [True, False])
def test_an_answer_that_continues_another_names_it(
    stage: Stage, dialect: str, store: bool, is_stream: bool
) -> None:
    scene = stage.scene(dialect, CALLING, DONE)
    first = respond(stage, {**ASKED, "model": scene.model})[-1]
    request = {
        **ASKED,
        "model": scene.model,
        "input": [{"type": "function_call_output", "call_id": "call_1", "output": "sun"}],
        "previous_response_id": first["id"],
        "stream": is_stream,
        "store": store,
    }
    check(respond(stage, request), request)


@dialects
def test_an_answer_that_is_cut_repeats_the_request(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, CUT, CUT)
    for is_stream in (False, True):
        request = {**ASKED, "model": scene.model, "stream": is_stream}
        found = check(respond(stage, request), request)
        assert (found["status"], found["completed_at"]) == ("incomplete", None)
        assert found["incomplete_details"] == {"reason": "max_output_tokens"}
        assert read_again(stage, found["id"]) == [found]


@dialects
def test_an_answer_that_fails_repeats_the_request(stage: Stage, dialect: str) -> None:
    sent = stream(dialect, DONE)
    broken = sent[: sent.index(b"\n\n", len(sent) // 2) + 2]
    scene = stage.scene(dialect, ScriptedReply(content_type="text/event-stream", chunks=[broken]))
    request = {**ASKED, "model": scene.model, "stream": True}
    failed = check(respond(stage, request), request)
    assert (failed["status"], failed["completed_at"]) == ("failed", None)
    assert failed["error"]["code"]
    assert read_again(stage, failed["id"]) == [failed]


@dialects
def test_an_answer_that_runs_or_was_cancelled_repeats_the_request(
    stage: Stage, dialect: str
) -> None:
    event = threading.Event()
    sent = stream(dialect, DONE)
    cut = sent.index(b"\n\n", len(sent) // 2) + 2
    held = ScriptedReply(
        content_type="text/event-stream", chunks=[sent[:cut], Wait(event), sent[cut:]]
    )
    scene = stage.scene(dialect, held)
    request = {**ASKED, "model": scene.model, "stream": True}
    with streaming(stage.url, "responses", request) as response:
        lines = response.iter_lines()
        created = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        path = f"{stage.url}/v1/responses/{created['response']['id']}"
        assert check(snapshots(fetch("GET", path).content), request)["status"] == "in_progress"
        cancelled = check(snapshots(fetch("POST", f"{path}/cancel").content), request)
        assert (cancelled["status"], cancelled["completed_at"]) == ("cancelled", None)
        event.set()
        rest = "\n".join(lines).encode()
    assert check(snapshots(rest), request)["status"] == "failed"
    assert check(snapshots(fetch("GET", path).content), request) == cancelled


def test_outputs_of_calls_are_answered_with_the_settings_of_the_first_request(stage: Stage) -> None:
    event = threading.Event()
    held = ScriptedReply(
        content_type="text/event-stream", chunks=[Wait(event), stream("chat", DONE)]
    )
    scene = stage.scene("chat", CALLING, held)
    request = {**ASKED, "model": scene.model}
    first = respond(stage, request)[-1]
    expected = {**request, "previous_response_id": first["id"]}
    body = json.dumps({"tool_outputs": [{"call_id": "call_1", "output": "sun"}], "stream": True})
    path = f"{stage.url}/v1/responses/{first['id']}/submit_tool_outputs"
    answers: list[bytes] = []

    def submit() -> None:
        headers = {"content-type": "application/json"}
        answers.append(fetch("POST", path, headers, body.encode()).content)

    thread = threading.Thread(target=submit)
    thread.start()
    event.set()
    thread.join(60)
    check(snapshots(answers[0]), expected)


def test_an_answer_that_is_not_stored_says_so_if_the_request_does_not(stage: Stage) -> None:
    with running_stage(store=StoreSettings(policy="off")) as bare:
        scene = bare.scene("chat", DONE, DONE)
        assert respond(bare, {"model": scene.model, "input": "hi"})[-1]["store"] is False
        request = {"model": scene.model, "input": "hi", "store": True}
        assert respond(bare, request)[-1]["store"] is True
    scene = stage.scene("chat", DONE)
    assert respond(stage, {"model": scene.model, "input": "hi"})[-1]["store"] is True


@pytest.mark.parametrize(
    ("request_body", "param"),
    [
        ({"input": "hi"}, "model"),
        ({"model": "rehearsal"}, "input"),
        ({"model": "rehearsal", "input": 7}, "input"),
        ({"model": "rehearsal", "input": "hi", "temperature": "hot"}, "temperature"),
        ({"model": "rehearsal", "input": "hi", "tools": {}}, "tools"),
        ({"model": "rehearsal", "input": "hi", "tools": [{"name": "f"}]}, "tools[0].type"),
        ({"model": "rehearsal", "input": "hi", "max_tool_calls": "1"}, "max_tool_calls"),
    ],
)
def test_a_wrong_request_is_refused_in_the_form_of_the_door(
    rehearsal: RunningGateway, request_body: Json, param: str
) -> None:
    answer = ask(rehearsal.url, "responses", request_body)
    assert answer.status_code == 400
    assert violations("OpenAI", "ErrorResponse", answer.json()) == set()
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
