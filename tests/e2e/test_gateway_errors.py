"""Errors of an upstream are the door's own errors: the SDK raises the class it has for them, with the upstream's words."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from dragoman.config.settings import RetrySettings, ServerSettings, Settings
from dragoman.testing import ScriptedReply, json_reply, sse
from gateway_harness import running_gateway
from sdk_clients import DOORS, Offered, anthropic_client, conversation, openai_client
from stage import PATHS, UPSTREAM_KEY, Stage, running_stage
from vendor_errors import ANTHROPIC_TYPES, STATUSES, error_body, failure_frame
from vendor_wire import Answer, Said, Tool, body_bytes, stream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Offered("get_weather", SCHEMA, "the weather in a city")
ANSWER = Answer(
    (
        Said(("Let me ", "look.")),
        Tool("call_1", "get_weather", ('{"city":', '"Par', 'is"}')),
        Tool("call_2", "get_weather", ('{"city":', '"Ro', 'me"}')),
    )
)
MESSAGE = "something the upstream says"

OPENAI_CLASSES: dict[int, type[Exception]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    413: openai.APIStatusError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
    529: openai.InternalServerError,
}
ANTHROPIC_CLASSES: dict[int, type[Exception]] = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    413: anthropic.RequestTooLargeError,
    429: anthropic.RateLimitError,
    500: anthropic.InternalServerError,
    503: anthropic.ServiceUnavailableError,
    529: anthropic.OverloadedError,
}
CLASSES = {"chat": OPENAI_CLASSES, "responses": OPENAI_CLASSES, "messages": ANTHROPIC_CLASSES}

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
all_modes = pytest.mark.parametrize("mode", ["create", "parse", "stream", "helper"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    absent = {"kind": "chat", "base_url": address}
    with running_stage(upstreams={"absent": absent}) as running:
        yield running


@pytest.fixture(scope="module")
def retrying() -> Iterator[Stage]:
    """With a gateway that tries again soon."""
    with running_stage(retry=RetrySettings(base_delay=0.001)) as running:
        yield running


# --- before the first byte --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("mode", ["create", "helper"])
@dialects
@doors
def test_an_error_status_is_the_sdks_own_exception(
    stage: Stage, door: str, dialect: str, mode: str, status: int
) -> None:
    headers = {"retry-after": "17"} if status in (429, 503) else {}
    reply = json_reply(error_body(dialect, status, MESSAGE), status, headers=headers)
    scene = stage.scene(dialect, reply)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises(CLASSES[door][status]) as caught:
        asking.ask(mode)
    error: Any = caught.value
    assert type(caught.value) is CLASSES[door][status]
    assert error.status_code == status
    assert MESSAGE in error.message
    assert UPSTREAM_KEY not in error.response.text
    assert error.response.headers["x-request-id"]
    assert error.response.headers.get("retry-after") == headers.get("retry-after")
    answer = error.response.json()
    if door == "messages":
        assert error.request_id == error.response.headers["x-request-id"]
        assert answer["type"] == "error"
        assert answer["error"]["type"] == ANTHROPIC_TYPES[status]
    else:
        assert set(answer["error"]) >= {"message", "type", "param", "code"}
        wanted = error_body(dialect, status, "")["error"].get("code")
        assert answer["error"]["code"] == wanted or wanted is None, "one vendor's codes stay"
    assert len(scene.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
@dialects
@doors
def test_a_key_that_is_not_accepted_is_not_tried_again(
    stage: Stage, door: str, dialect: str, status: int
) -> None:
    scene = stage.scene(dialect, *[json_reply(error_body(dialect, status, MESSAGE), status)] * 3)
    error = refused_with_retries(stage, door, scene.model)
    assert error.status_code == status
    assert error.response.headers["x-should-retry"] == "false"
    assert len(scene.requests) == 1


@pytest.mark.parametrize(("advice", "count"), [({"x-should-retry": "false"}, 1), ({}, 3)])
@doors
def test_the_sdks_follow_the_advice_not_to_retry(
    stage: Stage, door: str, advice: dict[str, str], count: int
) -> None:
    """The control: an error that the SDKs repeat by themselves."""
    headers = {"retry-after-ms": "1", **advice}
    reply = json_reply(error_body("chat", 500, MESSAGE), 500, headers=headers)
    scene = stage.scene("chat", *[reply] * 4)
    assert refused_with_retries(stage, door, scene.model).status_code == 500
    assert len(scene.requests) == count


def refused_with_retries(stage: Stage, door: str, model: str) -> Any:
    """Ask by an SDK with its own retries, and return the error that it raises."""
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    ours, theirs = openai_client(stage.url), anthropic_client(stage.url)
    ours, theirs = ours.with_options(max_retries=2), theirs.with_options(max_retries=2)
    asking: dict[str, Callable[[], Any]] = {
        "chat": lambda: ours.chat.completions.create(model=model, messages=messages),
        "responses": lambda: ours.responses.create(model=model, input=messages),
        "messages": lambda: theirs.messages.create(model=model, max_tokens=9, messages=messages),
    }
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        asking[door]()
    return caught.value


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 101])
@dialects
@doors
def test_a_redirect_is_an_error_that_names_its_status_and_its_place(
    retrying: Stage, door: str, dialect: str, status: int
) -> None:
    place = "https://someone:hunter2@other.example:8443/v2/chat?token=abc123#part"
    headers = {"location": place, "retry-after-ms": "1"}
    body = b'{"error": {"message": "moved to hunter2"}}'
    reply = ScriptedReply(status=status, headers=headers, content_type="text/html", body=body)
    if status == 101:
        lines = "upgrade: websocket\r\nconnection: upgrade\r\nlocation: " + place
        head = f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n\r\n".encode()
        reply = ScriptedReply(chunks=[head, b"\x81\x02hi"], framing="raw")
    scene = retrying.scene(dialect, reply, ANSWER)
    error = refused_with_retries(retrying, door, scene.model)
    assert retrying.strangers == []
    assert len(scene.requests) == 1
    assert error.status_code == 502
    assert f"got status {status} to https://other.example:8443/v2/chat;" in error.message
    assert f"upstream '{dialect}'" in error.message
    assert error.response.headers["x-should-retry"] == "false"
    for secret in ("hunter2", "someone", "abc123", "part"):
        assert secret not in error.response.text


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, b"<html><body>Bad Gateway</body></html>"),
        (500, b""),
        (404, b'{"detail":"Not Found"}'),
        (400, b'{"object":"error","message":"too long","type":"BadRequestError","code":400}'),
    ],
    ids=["html", "empty", "fastapi", "vllm"],
)
@dialects
@doors
def test_an_error_that_is_not_the_vendors_own_is_reported_all_the_same(
    stage: Stage, door: str, dialect: str, status: int, body: bytes
) -> None:
    reply = ScriptedReply(status=status, content_type="text/html", body=body)
    scene = stage.scene(dialect, reply)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        asking.ask("create")
    error: Any = caught.value
    assert error.status_code == status
    answer = error.response.json()["error"]
    assert isinstance(answer["message"], str)
    assert answer["message"]


@dialects
@doors
def test_an_upstream_that_hangs_up_without_a_word_is_a_502(
    stage: Stage, door: str, dialect: str
) -> None:
    # A connection that was kept may have been closed by the time it is used: one more is tried then, and no third.
    silence = ScriptedReply(framing="raw", chunks=[], cut="reset")
    scene = stage.scene(dialect, silence, silence)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)) as caught:
        asking.ask("create")
    error: Any = caught.value
    assert error.status_code == 502


@doors
def test_an_upstream_that_is_not_there_is_a_502(stage: Stage, door: str) -> None:
    asking = conversation(door, stage.url, "absent/model")
    asking.say("hi")
    with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)) as caught:
        asking.ask("create")
    error: Any = caught.value
    assert error.status_code == 502


@doors
def test_an_unknown_model_is_not_found(stage: Stage, door: str) -> None:
    asking = conversation(door, stage.url, "nobody/has-this")
    asking.say("hi")
    with pytest.raises((openai.NotFoundError, anthropic.NotFoundError)) as caught:
        asking.ask("create")
    assert "nobody/has-this" in str(caught.value)


@doors
def test_a_request_that_cannot_be_read_is_a_bad_request(stage: Stage, door: str) -> None:
    scene = stage.scene("chat")
    tools = [{"type": "function", "function": {"name": 7}}]
    broken: Any = {"extra_body": {"tools": 5 if door != "chat" else tools}}
    asking = conversation(door, stage.url, scene.model, more=broken)
    asking.say("hi")
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as caught:
        asking.ask("create")
    assert "tools" in str(caught.value)
    assert scene.requests == []


# --- failures inside an answer ----------------------------------------------------------------------------------------


def cut_inside_second_call(dialect: str) -> bytes:
    """Everything up to and including half of the second call's arguments."""
    whole = stream(dialect, ANSWER)
    at = whole.index(b'\\"Ro')
    return whole[: whole.index(b"\n\n", at) + 2]


FAILING: dict[str, Callable[[str], ScriptedReply]] = {
    "cut": lambda dialect: sse(cut_inside_second_call(dialect), cut=True),
    "reset": lambda dialect: ScriptedReply(
        content_type="text/event-stream", chunks=[cut_inside_second_call(dialect)], cut="reset"
    ),
    "ends": lambda dialect: sse(cut_inside_second_call(dialect)),
    "half a frame": lambda dialect: sse(cut_inside_second_call(dialect)[:-20]),
    "error": lambda dialect: sse(
        cut_inside_second_call(dialect)
        + failure_frame(dialect, MESSAGE, cut_inside_second_call(dialect).count(b"\n\n"))
    ),
}


@pytest.mark.parametrize("how", FAILING)
@dialects
@doors
def test_a_stream_that_breaks_never_looks_whole(
    stage: Stage, door: str, dialect: str, how: str
) -> None:
    scene = stage.scene(dialect, FAILING[how](dialect))
    words = "the upstream says" if how == "error" else ""
    CHECKS[door](stage.url, scene.model, words)


def check_chat(url: str, model: str, words: str) -> None:
    ended: list[str] = []
    arguments: dict[int, str] = {}

    def read() -> None:
        for chunk in openai_client(url).chat.completions.create(
            model=model, messages=[{"role": "user", "content": "hi"}], stream=True
        ):
            for choice in chunk.choices:
                ended.extend([choice.finish_reason] if choice.finish_reason else [])
                for call in choice.delta.tool_calls or ():
                    text = call.function.arguments if call.function else ""
                    arguments[call.index] = arguments.get(call.index, "") + (text or "")

    with pytest.raises(openai.APIError) as caught:
        read()
    assert not isinstance(caught.value, openai.APIConnectionError), "the end is told, not just had"
    assert ended == []
    error: Any = caught.value
    assert words in error.message
    if arguments:
        assert json.loads(arguments[0]) == {"city": "Paris"}
        assert arguments.get(1, "") in ('{"city":"Ro', '{"city":', "")


def check_responses(url: str, model: str, words: str) -> None:
    client = openai_client(url)
    events = list(client.responses.create(model=model, input="hi", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert words in last.response.error.message
    whole = [
        event.item.call_id
        for event in events
        if event.type == "response.output_item.done" and event.item.type == "function_call"
    ]
    assert whole in ([], ["call_1"])
    assert [event.sequence_number for event in events] == list(range(len(events)))


def check_messages(url: str, model: str, words: str) -> None:
    stopped: list[int] = []
    started: dict[int, str] = {}
    kinds: list[str] = []

    def read() -> None:
        for event in anthropic_client(url).messages.create(
            model=model,
            max_tokens=99,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
        ):
            kinds.append(event.type)
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                started[event.index] = event.content_block.id
            elif event.type == "content_block_stop":
                stopped.append(event.index)

    with pytest.raises(anthropic.APIStatusError) as caught:
        read()
    error: Any = caught.value
    assert words in error.message
    assert "message_stop" not in kinds
    assert "call_2" not in [started.get(index) for index in stopped]


CHECKS = {"chat": check_chat, "responses": check_responses, "messages": check_messages}


@pytest.mark.parametrize("how", FAILING)
@dialects
@doors
def test_the_stream_helpers_notice_a_stream_that_breaks(
    stage: Stage, door: str, dialect: str, how: str
) -> None:
    scene = stage.scene(dialect, FAILING[how](dialect))
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    if door == "responses":
        # This helper reports the failure as an event, and has no final response.
        with openai_client(stage.url).responses.stream(model=scene.model, input="hi") as stream:
            assert [event.type for event in stream][-1] == "response.failed"
            with pytest.raises(RuntimeError):
                stream.get_final_response()
        return
    with pytest.raises((openai.APIError, anthropic.APIError)):
        asking.ask("helper")


@pytest.mark.parametrize("mode", ["create", "helper"])
@dialects
@doors
def test_an_answer_that_fails_before_it_begins_has_an_error_status(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    reply = sse(failure_frame(dialect, MESSAGE))
    if mode == "create":
        reply = json_reply(error_body(dialect, 500, MESSAGE))  # under status 200
    scene = stage.scene(dialect, reply)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        asking.ask(mode)
    error: Any = caught.value
    assert error.status_code >= 500
    assert MESSAGE in error.message


@dialects
@doors
def test_a_body_that_is_cut_is_an_error(stage: Stage, door: str, dialect: str) -> None:
    body = body_bytes(dialect, ANSWER)
    scene = stage.scene(
        dialect,
        ScriptedReply(
            content_type="application/json",
            chunks=[body[: len(body) // 2]],
            framing="length",
            declared_length=len(body),
            cut=True,
        ),
    )
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)) as caught:
        asking.ask("create")
    error: Any = caught.value
    assert error.status_code == 502


# --- requests that the vendors refuse ---------------------------------------------------------------------------------

SAID = [{"role": "user", "content": "hi"}]
CALL = {"type": "function", "function": {"name": "f"}}
GOOD: dict[str, dict[str, Any]] = {
    "chat": {"model": "rehearsal", "messages": SAID},
    "messages": {"model": "rehearsal", "messages": SAID, "max_tokens": 10},
}
MISSING = object()
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "chat": [
        ({"model": MISSING}, "model"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"messages": MISSING}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"tools": [CALL], "tool_choice": "some"}, "tool_choice"),
        ({"metadata": 5}, "metadata"),
    ],
    "messages": [
        ({"model": MISSING}, "model"),
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"max_tokens": MISSING}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": MISSING}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0"),
        ({"system": 5}, "system"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tool_choice": "auto"}, "tool_choice"),
    ],
}


def posted(url: str, door: str, fields: dict[str, Any]) -> tuple[int, Any]:
    known = {name: value for name, value in fields.items() if value is not MISSING}
    request = urllib.request.Request(
        f"{url}{PATHS[door]}", json.dumps(known).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {**json.loads(error.read()), "header": error.headers["request-id"]}


@pytest.fixture(scope="module")
def rehearsing() -> Iterator[str]:
    with running_gateway(Settings(server=ServerSettings(shutdown_grace=0.3))) as gateway:
        yield gateway.url


@pytest.mark.parametrize(
    ("door", "wrong", "param"),
    [(door, wrong, param) for door, cases in WRONG.items() for wrong, param in cases],
)
def test_a_wrong_request_is_refused_in_the_words_of_the_door(
    rehearsing: str, door: str, wrong: dict[str, Any], param: str
) -> None:
    status, body = posted(rehearsing, door, {**GOOD[door], **wrong})
    assert status == 400
    error = body["error"]
    assert error["message"].startswith(param)
    assert "expected" in error["message"]
    if door == "messages":
        assert (body["type"], error["type"]) == ("error", "invalid_request_error")
        assert body["request_id"] == body["header"]
    else:
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["type"], error["param"]) == ("invalid_request_error", param)


# Claude Code offers no tools with `[]`; others send options that they leave open as null.
REAL: dict[str, list[dict[str, Any]]] = {
    "chat": [{"tools": []}, {"temperature": None, "tools": None}, {"max_tokens": -1}],
    "messages": [{"tools": []}, {"system": [], "metadata": None}, {"max_tokens": 0}],
}


@pytest.mark.parametrize(
    ("door", "more"), [(door, more) for door, cases in REAL.items() for more in cases]
)
def test_what_real_clients_send_is_not_refused(
    rehearsing: str, door: str, more: dict[str, Any]
) -> None:
    assert posted(rehearsing, door, {**GOOD[door], **more})[0] == 200


def test_tokens_are_counted_without_a_limit(rehearsing: str) -> None:
    fields = {"model": "rehearsal", "messages": SAID}
    request = urllib.request.Request(
        f"{rehearsing}/v1/messages/count_tokens",
        json.dumps(fields).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert json.loads(response.read())["input_tokens"] > 0
