"""Upstreams that are asked over WebSockets, behind a gateway on loopback: SDKs at every door, errors, keys, clients that leave."""

import http.client
import json
import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import anthropic
import openai
import pytest
from msgspec import Struct, structs

from codex_logins import chatgpt_login
from dragoman.config.settings import (
    DumpSettings,
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
)
from dragoman.testing import (
    WEBSOCKET,
    Handshake,
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
    sse,
)
from gateway_harness import RunningGateway, connection, running_gateway, wait_until
from sdk_clients import DOORS, MODES, Conversation, Got, Offered, conversation, openai_client
from socket_scene import AGAIN, FIRST, REST, answer_stream, error_frame, numbered, sent
from vendor_wire import Answer, Said, Thought, Tool
from websocket_client import socket_client

Json = dict[str, Any]

CALL = Tool("call_1", "get_weather", ('{"city":', ' "Paris"}'))
CALLS = Answer((Said(("Let me ", "look.")), CALL))
THINKS = Answer((Thought("Hm.", "sealed"), CALL))
HELLO = Answer((Said(("Hel", "lo.")),))
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Offered("get_weather", SCHEMA, strict=True)
TOOL: Json = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
FAST = RetrySettings(base_delay=0.0)
STORES = {"stored": StoreSettings(url="memory:"), "off": StoreSettings(policy="off")}
ASKING: dict[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"input": "Hi", "store": False},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50},
}
REASONING: dict[str, Json] = {
    "chat": {"reasoning_effort": "low"},
    "responses": {"store": False, "include": ["reasoning.encrypted_content"]},
    "messages": {"max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
MODE_OF = [(door, mode) for door in DOORS for mode in MODES[door]]


class Place(Struct, frozen=True):
    """A gateway and its upstream."""

    gateway: RunningGateway
    upstream: ScriptedUpstream

    @property
    def url(self) -> str:
        return self.gateway.url

    def previous(self) -> list[Any]:
        """The response that each message continues."""
        return [previous for _, previous, _ in sent(self.upstream)]


@contextmanager
def place(
    script: Script,
    *,
    websocket: bool | Handshake = True,
    upstream: Json | None = None,
    **more: object,
) -> Generator[Place]:
    """`upstream`: settings of the upstream; `more`: of the gateway."""
    with ScriptedUpstream.in_thread(script, websocket=websocket) as server:
        made = UpstreamSettings(
            kind="responses", base_url=f"{server.url}/v1", api_key="upstream-key", websocket=True
        )
        settings = Settings(
            server=ServerSettings(shutdown_grace=0.3),
            retry=RetrySettings(enabled=False),
            upstreams={"socket": structs.replace(made, **(upstream or {}))},
        )
        with running_gateway(structs.replace(settings, **more)) as gateway:
            yield Place(gateway, server)
    assert not server.failures


def in_front_of(inner: Place) -> Settings:
    """The settings of a gateway whose upstream is the gateway of this place."""
    second = UpstreamSettings(
        kind="responses", base_url=f"{inner.url}/v1", api_key="k", websocket=True
    )
    server = ServerSettings(shutdown_grace=0.3)
    return Settings(server=server, upstreams={"inner": second}, store=STORES["off"])


def ask(url: str, door: str = "responses", **fields: object) -> tuple[int, bytes, dict[str, str]]:
    body: Json = {"model": "m", "stream": True, **ASKING[door], **fields}
    client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    client.request("POST", PATHS[door], json.dumps(body))
    response = client.getresponse()
    read = (response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
    client.close()
    return read


def four_turns(talk: Conversation, mode: str) -> Got:
    """A tool call, its result, and two more questions."""
    talk.say("Weather in Paris?")
    got = talk.ask(mode)
    [call] = got.calls
    assert (call.call_id, call.name) == ("call_1", "get_weather")
    talk.answer(call, "sunny")
    for text in ("And tomorrow?", "And then?"):
        assert talk.ask(mode).text == "Hello."
        talk.say(text)
    return talk.ask(mode)


# --- turns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("door", "mode"), MODE_OF)
def test_four_turns_of_each_sdk_send_only_what_is_new(door: str, mode: str, store: str) -> None:
    with place(numbered(CALLS, HELLO), store=STORES[store]) as running:
        more: Json = {"max_tokens": 100} if door == "messages" else {}
        if door == "responses":
            more = {"store": False}
        talk = conversation(door, running.url, "m", tools=[WEATHER], system="Be brief.", more=more)
        last = four_turns(talk, mode)
        assert last.text == "Hello."
        requests = running.upstream.requests
        assert running.previous() == [None, "resp_1", "resp_2", "resp_3"]
        assert {request.connection for request in requests} == {0}
        assert running.upstream.connections == 1
        outputs = [item["type"] for item in requests[1].json()["input"]]  # type: ignore[attr-defined]
        assert outputs == ["function_call_output"]
        assert [len(request.json()["input"]) for request in requests[1:]] == [1, 1, 1]  # type: ignore[arg-type]
        assert all(request.json()["tools"] for request in requests)


@pytest.mark.parametrize("door", DOORS)
def test_reasoning_does_not_hinder_a_continuation(door: str) -> None:
    with place(numbered(THINKS, HELLO)) as running:
        talk = conversation(door, running.url, "m", tools=[WEATHER], more=REASONING[door])
        four_turns(talk, "stream")
        assert running.previous() == [None, "resp_1", "resp_2", "resp_3"]


def test_the_websocket_door_over_a_websocket_upstream() -> None:
    with (
        place(numbered(CALLS, HELLO), store=STORES["off"]) as running,
        socket_client(running.url, "m") as client,
    ):
        response = client.answer(input="Weather?", tools=[TOOL])
        output: Json = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
        for new in (
            output,
            {"role": "user", "content": "And?"},
            {"role": "user", "content": "So?"},
        ):
            previous = response["id"]
            response = client.answer(input=[new], tools=[TOOL], previous_response_id=previous)
            assert response["previous_response_id"] == previous
        assert running.previous() == [None, "resp_1", "resp_2", "resp_3"]
        assert [len(request.at("input")) for request in running.upstream.requests[1:]] == [1, 1, 1]  # type: ignore[arg-type]
        assert running.upstream.connections == 1


def test_stored_responses_of_the_gateway_are_continued_too() -> None:
    with place(numbered(CALLS, HELLO)) as running:
        client = openai_client(running.url)
        response = client.responses.create(model="m", input="Weather?", tools=[TOOL])
        output: Json = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
        for new in (output, {"role": "user", "content": "And?"}):
            previous = response.id
            response = client.responses.create(
                model="m", input=[new], tools=[TOOL], previous_response_id=previous
            )
            assert response.previous_response_id == previous
        assert running.previous() == [None, "resp_1", "resp_2"]


def test_a_gateway_in_front_of_a_gateway() -> None:
    """Real on both sides: the first asks the second over a WebSocket, which asks its upstream over another."""
    with place(numbered(CALLS, HELLO), store=STORES["off"]) as inner:
        with running_gateway(in_front_of(inner)) as gateway:
            for door in DOORS:
                inner.upstream.requests.clear()
                more: Json = {"max_tokens": 100} if door == "messages" else {}
                talk = conversation(door, gateway.url, "m", tools=[WEATHER], more=more)
                if door == "chat":
                    four_turns(talk, "stream")
                else:
                    talk.say("Hi")
                    for _ in range(3):
                        assert talk.ask("stream").text == "Hello."
                        talk.say("And?")
                first, *others = inner.previous()
                assert first is None
                assert None not in others
        wait_until(lambda: not inner.gateway.app.gateway.sessions)


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def test_a_gateway_whose_connections_are_too_old_is_asked_anew() -> None:
    age = 3600.0
    aged = ServerSettings(shutdown_grace=0.3, websocket_max_age=age)
    with place(numbered(HELLO), store=STORES["off"], server=aged) as inner:
        with running_gateway(in_front_of(inner)) as gateway:
            talk = conversation("chat", gateway.url, "m")
            for number in range(3):
                inner.gateway.app.gateway.clock = partial(later, age * number)
                talk.say("And?")
                assert talk.ask("stream").text == "Hello."
        # The inner gateway refused the second and the third message on the old connection; no client noticed.
        assert [count for _, _, count in sent(inner.upstream)] == [1, 1, 1]


def test_a_gateway_without_websockets_is_asked_over_http(caplog: pytest.LogCaptureFixture) -> None:
    closed = ServerSettings(shutdown_grace=0.3, websocket=False)
    with (
        place(numbered(HELLO), store=STORES["off"], server=closed) as inner,
        running_gateway(in_front_of(inner)) as gateway,
        caplog.at_level(logging.WARNING),
    ):
        for door in DOORS:
            assert ask(gateway.url, door)[0] == 200
    warnings = [record.getMessage() for record in caplog.records if "over HTTP" in record.message]
    assert len(warnings) == 1
    assert "upstream 'inner'" in warnings[0]
    assert "426" in warnings[0]


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_wants_a_body_gets_one(door: str) -> None:
    with place(numbered(CALLS)) as running:
        status, body, headers = ask(running.url, door, stream=False)
        assert status == 200
        assert headers["content-type"].startswith("application/json")
        assert "get_weather" in json.dumps(json.loads(body))
        [request] = running.upstream.requests
        assert request.method == WEBSOCKET
        assert "stream" not in request.json()


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_an_error_frame_reaches_the_client_as_over_http(door: str) -> None:
    limited = error_frame(429, "rate_limit_exceeded", headers={"retry-after": "17"})
    over_http = json_reply(json.loads(limited.body), 429, headers={"retry-after": "17"})
    seen: list[tuple[int, Any, Any]] = []
    for websocket, reply in ((True, limited), (False, over_http)):
        with place([reply], upstream={"websocket": websocket}) as running:
            status, body, headers = ask(running.url, door)
            error = json.loads(body)
            error.pop("request_id", None)
            error["error"].pop("request_id", None)
            seen.append((status, error, headers.get("retry-after")))
    assert seen[0] == seen[1]
    assert seen[0][0] == 429
    assert seen[0][2] == "17"


def test_an_error_frame_is_retried_and_then_a_fallback_is_asked() -> None:
    overloaded = error_frame(503, "server_is_overloaded")
    with ScriptedUpstream.in_thread([sse(AGAIN)]) as other:
        spare = UpstreamSettings(kind="responses", base_url=f"{other.url}/v1", api_key="k")
        with place([overloaded] * 3, retry=FAST) as running:
            upstreams = {**running.gateway.app.gateway.settings.upstreams, "spare": spare}
            routes = (Route(model="*", upstream="socket", fallback=("spare",)),)
            settings = structs.replace(
                running.gateway.app.gateway.settings, upstreams=upstreams, routes=routes
            )
            with running_gateway(settings) as gateway:
                status, body, _ = ask(gateway.url, "chat")
            assert status == 200
            assert b"[DONE]" in body
            assert len(running.upstream.requests) == 3
        assert len(other.requests) == 1


@pytest.mark.parametrize(
    "handshake", [json_reply({"error": {"message": "no key upstream-key"}}, 401)]
)
def test_a_refused_handshake_hides_the_key(handshake: ScriptedReply) -> None:
    with place([], websocket=lambda _: handshake) as running:
        status, body, _ = ask(running.url, "chat")
        assert status == 401
        assert b"upstream-key" not in body


def test_secrets_in_error_frames_are_hidden() -> None:
    said = json.dumps(
        {"type": "error", "status": 400, "error": {"code": "x", "message": "upstream-key is bad"}}
    )
    late = FIRST + b"data: " + said.encode() + b"\n\n"
    with place([ScriptedReply(body=said.encode()), sse(late)]) as running:
        status, body, _ = ask(running.url, "chat")
        assert status == 400
        assert b"upstream-key" not in body
        _, body, _ = ask(running.url, "responses")
        assert b"is bad" in body
        assert b"upstream-key" not in body


@pytest.mark.parametrize("door", DOORS)
def test_a_cut_answer_is_a_failure_of_the_door(door: str) -> None:
    begun = AGAIN[: AGAIN.index(b"event: response.output_text.done")]
    with place([sse(begun, cut=True)]) as running:
        _, body, _ = ask(running.url, door)
        assert b"cut its answer short" in body


@pytest.mark.parametrize("door", DOORS)
def test_a_lost_conversation_costs_the_client_nothing(door: str) -> None:
    lost = error_frame(400, "previous_response_not_found")
    answers = [sse(answer_stream(CALLS, "resp_1")), lost, *[sse(AGAIN)] * 3]
    with place(answers) as running:
        more: Json = {"max_tokens": 100} if door == "messages" else {}
        talk = conversation(door, running.url, "m", tools=[WEATHER], more=more)
        assert four_turns(talk, "stream").text == "Hello."
        assert running.previous() == [None, "resp_1", None, "resp_again", "resp_again"]
        assert [request.connection for request in running.upstream.requests] == [0, 0, 1, 1, 1]


def test_an_upstream_that_stops_between_turns_costs_the_client_nothing() -> None:
    first = structs.replace(sse(answer_stream(CALLS, "resp_1")), keep_alive=False)
    with place([first, *[sse(AGAIN)] * 3]) as running:
        talk = conversation("chat", running.url, "m", tools=[WEATHER])
        assert four_turns(talk, "stream").text == "Hello."
        assert running.previous() == [None, None, "resp_again", "resp_again"]


# --- callers ------------------------------------------------------------------------------------------------------


def test_two_callers_keys_never_share_a_connection() -> None:
    with place(numbered(HELLO), upstream={"api_key": "client"}) as running:
        turns: dict[str, list[Json]] = {"key-a": [], "key-b": []}
        for _ in range(3):
            for key, messages in turns.items():
                messages.append({"role": "user", "content": "The same words"})
                client = openai.OpenAI(api_key=key, base_url=f"{running.url}/v1", max_retries=0)
                answer = client.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]
                messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        keys = {
            shaken.connection: shaken.headers["authorization"]
            for shaken in running.upstream.handshakes
        }
        assert keys == {0: "Bearer key-a", 1: "Bearer key-b"}
        assert [connection for connection, _, _ in sent(running.upstream)] == [0, 1] * 3
        assert running.previous() == [None, None, "resp_1", "resp_2", "resp_3", "resp_4"]


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_leaves_closes_its_websocket_and_no_other(door: str) -> None:
    gate = Event()
    slow = ScriptedReply(content_type="text/event-stream", chunks=[FIRST, Wait(gate), REST])
    with place([slow, slow]) as running:
        upstream = running.upstream
        body = json.dumps({"model": "m", "stream": True, **ASKING[door]})
        with connection(running.gateway) as staying:
            staying.request("POST", PATHS[door], body)
            wait_until(lambda: len(upstream.requests) == 1)
            with connection(running.gateway) as leaving:
                leaving.request("POST", PATHS[door], body)
                wait_until(lambda: len(upstream.requests) == 2)
            wait_until(lambda: upstream.requests[1].was_abandoned)
            assert upstream.open_connections == 1
            gate.set()
            assert b"Hel" in staying.getresponse().read()


def test_a_gateway_that_stops_closes_every_websocket() -> None:
    with ScriptedUpstream.in_thread(numbered(HELLO), websocket=True) as upstream:
        made = UpstreamSettings(
            kind="responses", base_url=f"{upstream.url}/v1", api_key="k", websocket=True
        )
        settings = Settings(server=ServerSettings(shutdown_grace=0.3), upstreams={"it": made})
        with running_gateway(settings) as gateway:
            for number in range(3):
                ask(gateway.url, "chat", messages=[{"role": "user", "content": str(number)}])
            assert upstream.open_connections == 3
        upstream.wait_until(lambda: upstream.open_connections == 0)


# --- observation, other kinds -------------------------------------------------------------------------------------


def test_the_dump_has_the_events(tmp_path: Path) -> None:
    file = tmp_path / "dump.jsonl"
    with place(numbered(CALLS), dump=DumpSettings(path=str(file))) as running:
        assert ask(running.url, "chat")[0] == 200
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert {line["upstream"] for line in lines} == {"socket"}
    assert "get_weather" in json.dumps(lines)
    assert "upstream-key" not in file.read_text(encoding="utf-8")


def test_the_chatgpt_backend_over_a_websocket(tmp_path: Path) -> None:
    auth = tmp_path / "auth.json"
    auth.write_bytes(chatgpt_login())
    script: Callable[[ReceivedRequest], ScriptedReply] = numbered(CALLS, HELLO)
    with ScriptedUpstream.in_thread(script, websocket=True) as upstream:
        made = UpstreamSettings(
            kind="chatgpt-codex", base_url=upstream.url, auth_file=str(auth), websocket=True
        )
        settings = Settings(server=ServerSettings(shutdown_grace=0.3), upstreams={"it": made})
        with running_gateway(settings) as gateway:
            talk = conversation("chat", gateway.url, "m", tools=[WEATHER])
            four_turns(talk, "stream")
        [shaken] = upstream.handshakes
        assert shaken.path == "/responses"
        assert shaken.headers["openai-beta"] == "responses_websockets=2026-02-06"
        assert shaken.headers["authorization"].startswith("Bearer ")
        assert shaken.headers["originator"] == "dragoman"
        assert [p for _, p, _ in sent(upstream)] == [None, "resp_1", "resp_2", "resp_3"]
        messages: Sequence[ReceivedRequest] = upstream.requests
        assert all(message.json()["store"] is False for message in messages)


def test_errors_of_the_anthropic_sdk_are_its_own() -> None:
    with place([error_frame(401, "invalid_api_key")]) as running:
        client = anthropic.Anthropic(api_key="k", base_url=running.url, max_retries=0)
        with pytest.raises(anthropic.AuthenticationError):
            client.messages.create(
                model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}]
            )
