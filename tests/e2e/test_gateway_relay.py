"""The same dialect on both sides: bytes pass as they are, both ways, and only what must change is changed."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from dragoman.config.settings import Route, StoreSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply, sse
from heard import hear
from plain_http import ask, plain_body
from sdk_clients import DOORS, Offered, SeenCall, conversation
from stage import PATHS, Delivery, Stage, deliver, running_stage
from vendor_wire import Answer, Said, Thought, Tool, body_bytes, stream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Offered("get_weather", SCHEMA)

doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    routes = [
        Route(model=f"renamed-{kind}/*", upstream=kind, upstream_model=f"the-{kind}-model")
        for kind in DOORS
    ]
    upstreams: dict[str, dict[str, object]] = {
        f"exact-{kind}": {"kind": kind, "passthrough": "exact"} for kind in DOORS
    }
    upstreams["both"] = {"kind": "chat", "also": ("messages",)}
    # The scripted upstream gives all its responses one id, which a store would not leave to them.
    with running_stage(
        routes=routes, upstreams=upstreams, store=StoreSettings(policy="off")
    ) as running:
        yield running


def answer_for(model: str) -> Answer:
    return Answer(
        (
            Thought("Hm.", "c2VhbA=="),
            Said(("One é ", "two \U0001f600.")),
            Tool("call_1", "get_weather", ('{"city":', ' "Par', 'is"}')),
            Tool("call_2", "get_weather", ('{"city":"x"}',)),
        ),
        model=model,
    )


# --- requests ---------------------------------------------------------------------------------------------------------

STRANGE = {
    "chat": """{ "messages" : [ {"content":"h\\u00e9\\/llo","role":"user","x-mine":1e2} ],
        "temperature":0.70,"model":%s , "unknown":{"b":1.0,"a":[1E+3,12345678901234567890123]},
        "tools":[{"function":{"parameters":{"properties":{},"type":"object","$id":"q"},"name":"f"},"type":"function"}],
        "stream":%s}""",
    "responses": """{ "input" : [ {"content":[{"text":"h\\u00e9\\/llo","type":"input_text"}],"role":"user","x-mine":1e2} ],
        "temperature":0.70,"model":%s , "unknown":{"b":1.0,"a":[1E+3,12345678901234567890123]},
        "tools":[{"parameters":{"properties":{},"type":"object","$id":"q"},"name":"f","type":"function","strict":false}],
        "stream":%s}""",
    "messages": """{ "messages" : [ {"content":"h\\u00e9\\/llo","role":"user"} ],"max_tokens":1e3,
        "temperature":0.70,"model":%s , "unknown":{"b":1.0,"a":[1E+3,12345678901234567890123]},
        "tools":[{"input_schema":{"properties":{},"type":"object","$id":"q"},"name":"f"}],
        "stream":%s}""",
}
"""Requests with spellings, an order and members that no encoder would write."""


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@doors
def test_a_request_is_forwarded_as_it_came(stage: Stage, door: str, is_stream: bool) -> None:
    scene = stage.scene(door, Answer((Said(("ok",)),)))
    sent = (STRANGE[door] % (json.dumps(scene.model), json.dumps(is_stream))).encode()
    response = ask(stage.url, door, sent)
    assert response.status_code == 200, response.text
    assert scene.requests[0].body == sent
    assert scene.requests[0].path == PATHS[door]


@doors
def test_only_the_name_of_the_model_is_changed_where_a_route_renames_it(
    stage: Stage, door: str
) -> None:
    name = f"the-{door}-model"
    scene = stage.scene(
        door, Answer((Said(("ok",)),)), route=f"renamed-{door}", upstream_model=name
    )
    sent = (STRANGE[door] % (json.dumps(scene.model), "false")).encode()
    response = ask(stage.url, door, sent)
    assert scene.requests[0].body == (STRANGE[door] % (json.dumps(name), "false")).encode()
    assert response.json()["model"] == scene.model


def test_an_upstream_that_also_speaks_the_clients_dialect_is_asked_in_it(stage: Stage) -> None:
    def answer(request: ReceivedRequest) -> ScriptedReply:
        assert request.path == PATHS["messages"]
        return sse(stream("messages", answer_for(json.loads(request.body)["model"])))

    scene = stage.scene("messages", answer, route="both")
    sent = (STRANGE["messages"] % (json.dumps(scene.model), "true")).encode()
    response = ask(stage.url, "messages", sent)
    assert scene.requests[0].body == sent
    assert response.content == stream("messages", answer_for(scene.model))


def streaming(door: str, model: str) -> dict[str, Any]:
    """Chat has a usage chunk only for those who ask."""
    more = {"stream_options": {"include_usage": True}} if door == "chat" else {}
    return plain_body(door, model, stream=True, **more)


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["whole", "frames", "bytes"])
@doors
def test_a_regular_stream_is_forwarded_byte_for_byte(
    stage: Stage, door: str, delivery: Delivery
) -> None:
    scene = stage.scene(door, delivery=delivery)
    scene.parts.append(answer_for(scene.model))
    response = ask(stage.url, door, streaming(door, scene.model))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert response.content == stream(door, answer_for(scene.model))


@doors
def test_spellings_of_a_regular_stream_are_kept(stage: Stage, door: str) -> None:
    """Comments, line ends, fields beside the data, members nobody knows, other spaces and escapes."""
    scene = stage.scene(door)
    plain = stream(door, answer_for(scene.model))
    frames = plain.split(b"\n\n")[:-1]
    received = b": hello\n\n" + b"\n\n".join(
        frame.replace(b"data: {", b'data:{"x-new": [1.0, 1e5],  ', 1)
        + (b"\n: a comment inside" if at % 3 == 0 else b"")
        for at, frame in enumerate(frames)
    )
    received = (received + b"\n\n").replace(b"\n", b"\r\n")
    scene.parts.append(sse(received, cut_into=100))
    response = ask(stage.url, door, streaming(door, scene.model))
    assert response.content == received


@doors
def test_a_regular_body_is_forwarded_byte_for_byte(stage: Stage, door: str) -> None:
    scene = stage.scene(door)
    body = body_bytes(door, answer_for(scene.model)).replace(b'{"', b'{ "x-new":1.0 ,"', 1)
    scene.parts.append(ScriptedReply(content_type="application/json", body=body))
    response = ask(stage.url, door, plain_body(door, scene.model))
    assert response.headers["content-type"] == "application/json"
    assert response.content == body


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@doors
def test_of_a_renamed_model_only_the_name_is_changed(
    stage: Stage, door: str, is_stream: bool
) -> None:
    name = f"the-{door}-model"
    scene = stage.scene(door, answer_for(name), route=f"renamed-{door}", upstream_model=name)
    response = ask(
        stage.url,
        door,
        streaming(door, scene.model) if is_stream else plain_body(door, scene.model),
    )
    received = stream(door, answer_for(name)) if is_stream else body_bytes(door, answer_for(name))
    was, becomes = json.dumps(name).encode(), json.dumps(scene.model).encode()
    assert response.content == received.replace(was, becomes)


@doors
def test_an_exact_relay_changes_nothing_at_all(stage: Stage, door: str) -> None:
    broken = {
        "chat": b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"weird"}]}\n\ndata: [DONE]\n\n',
        "responses": b'data: {"type":"response.function_call_arguments.delta","delta":"{}"}\n\n'
        b'data: {"type":"response.completed","response":{"id":"r","output":[],"status":"completed"}}\n\n',
        "messages": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","role":"assistant","content":[]}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    }[door]
    scene = stage.scene(door, sse(broken), route=f"exact-{door}")
    response = ask(stage.url, door, streaming(door, scene.model))
    assert response.content == broken


def strict_anthropic(request: ReceivedRequest) -> ScriptedReply:
    """Refuse what Anthropic refuses, in its words."""
    asked = json.loads(request.body)
    objection = ""
    for message in asked["messages"]:
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        kinds = [block["type"] for block in blocks]
        if any(not block["text"].strip() for block in blocks if block["type"] == "text"):
            objection = "messages: text content blocks must be non-empty"
        elif "tool_use" in kinds and kinds[-1] != "tool_use":
            objection = "`tool_use` ids were found without `tool_result` blocks immediately after"
        elif (
            "tool_use" in kinds
            and kinds[0] != "thinking"
            and asked["thinking"]["type"] == "enabled"
        ):
            objection = "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
    if objection:
        error = {"type": "invalid_request_error", "message": objection}
        return json_reply({"type": "error", "error": error}, 400)
    return deliver("messages", Answer((Said(("Fine.",)),)), is_stream=bool(asked.get("stream")))


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize(
    ("blocks", "rule"),
    [
        ([{"type": "text", "text": ""}, "call"], "empty_text"),
        (["call", {"type": "text", "text": "Let me look."}], "text_before_calls"),
        (["call"], "thinking_off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_anthropic_refuses_is_repaired_and_reported(
    stage: Stage, blocks: list[Any], rule: str, mode: str
) -> None:
    scene = stage.scene("messages", strict_anthropic)
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2VhbA=="}
    call: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
    content: list[Any] = [call if block == "call" else block for block in blocks]
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    asking = conversation("messages", stage.url, scene.model, tools=(WEATHER,), more=more)
    asking.say("How is the weather?")
    first = [] if rule == "thinking_off" else [thought]
    asking.history.append({"role": "assistant", "content": [*first, *content]})
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
    asking.history.append({"role": "user", "content": [result]})
    assert asking.ask(mode).text == "Fine."
    assert len(scene.requests) == 1
    wanted = "disabled" if rule == "thinking_off" else "enabled"
    assert scene.heard["thinking"]["type"] == wanted
    metrics = httpx2.get(f"{stage.url}/metrics").text
    assert f'rule="{rule}"' in metrics


# --- what is irregular is repaired ------------------------------------------------------------------------------------


def chat_chunk(delta: dict[str, Any], finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def call_delta(text: str, **more: object) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": text}
    return {"tool_calls": [{"index": 0, "type": "function", "function": function, **more}]}


IRREGULAR = {
    "name in every delta": [
        chat_chunk({"role": "assistant", **call_delta('{"city":', id="call_1")}),
        chat_chunk(call_delta('"x"}', id="call_1")),
        chat_chunk({}, "tool_calls"),
    ],
    "no id": [
        chat_chunk({"role": "assistant", **call_delta('{"city":"x"}')}),
        chat_chunk({}, "tool_calls"),
    ],
    "stop beside calls": [
        chat_chunk({"role": "assistant", **call_delta('{"city":"x"}', id="call_1")}),
        chat_chunk({}, "stop"),
    ],
    "no end": [
        chat_chunk({"role": "assistant", **call_delta('{"city":"x"}', id="call_1")}),
        chat_chunk({}, "tool_calls"),
    ],
    "no role": [
        chat_chunk(call_delta('{"city":"x"}', id="call_1")),
        chat_chunk({}, "tool_calls"),
    ],
}


@pytest.mark.parametrize("mode", ["stream", "helper"])
@pytest.mark.parametrize("defect", IRREGULAR)
@doors
def test_an_irregular_stream_comes_out_usable_at_every_door(
    stage: Stage, door: str, defect: str, mode: str
) -> None:
    end = b"" if defect == "no end" else b"data: [DONE]\n\n"
    scene = stage.scene("chat", sse(b"".join(IRREGULAR[defect]) + end))
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    call: SeenCall = got.calls[0]
    assert len(got.calls) == 1
    assert (call.name, bool(call.call_id)) == ("get_weather", True)
    assert call.arguments in ('{"city":"x"}', {"city": "x"})
    assert got.finish in ("tool_calls", "completed", "tool_use")
    asking.answer(call, "sunny")
    scene.parts.append(Answer((Said(("ok",)),)))
    asking.ask(mode)
    assert hear("chat", scene.requests[1].body).results[0].text == "sunny"


def test_the_wire_of_a_repaired_stream_is_one_stream(stage: Stage) -> None:
    """From the first irregular frame on our encoder writes the answer, with the ids and the name of its beginning."""
    regular = [
        chat_chunk({"role": "assistant", "content": ""}),
        chat_chunk({"content": "Let me look. "}),
    ]
    frames = [*regular, *IRREGULAR["name in every delta"]]
    scene = stage.scene("chat", sse(b"".join(frames) + b"data: [DONE]\n\n"))
    response: httpx2.Response = ask(stage.url, "chat", plain_body("chat", scene.model, stream=True))
    payloads = [
        json.loads(line.removeprefix("data: "))
        for line in response.text.splitlines()
        if line.startswith("data: {")
    ]
    assert {payload["id"] for payload in payloads} == {"chatcmpl-1"}
    assert {payload["model"] for payload in payloads} == {"m"}
    names = [
        call["function"].get("name")
        for payload in payloads
        for choice in payload["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert [name for name in names if name] == ["get_weather"]
