"""Who is served and how much: keys, limits, encodings of bodies, CORS, and the endpoints beside the conversations."""

import gzip
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import anthropic
import httpx2
import openai
import pytest
import zstandard

from dragoman.config.settings import Route, ServerSettings
from dragoman.testing import ScriptedReply, Wait, json_reply
from gateway_harness import wait_until
from plain_http import ask, fetch, plain_body, streaming
from sdk_clients import DOORS, Offered, anthropic_client, conversation, openai_client
from stage import PATHS, Stage, running_stage
from vendor_errors import error_body
from vendor_wire import Answer, Said, stream

ANSWER = Answer((Said(("Here ", "I am.")),))
KEYS = ("key-one", "key-two")
ERRORS = (openai.APIStatusError, anthropic.APIStatusError)

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Open to this machine, with small limits and CORS for one application."""
    server = ServerSettings(
        shutdown_grace=0.3,
        max_body_bytes=20_000,
        max_tools=4,
        max_depth=30,
        max_header_bytes=5_000,
        cors_origins=("app://obsidian.md", "http://localhost:*"),
    )
    routes = [
        Route(model="a-model", upstream="chat"),
        Route(model="another-model", upstream="messages", upstream_model="claude-x"),
    ]
    with running_stage(server=server, routes=routes) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[Stage]:
    with running_stage(server=ServerSettings(shutdown_grace=0.3, api_keys=KEYS)) as running:
        yield running


def error_in(door: str, response: httpx2.Response) -> dict[str, Any]:
    """The error of a response, which must have the dialect's own shape."""
    answer = response.json()
    assert response.headers["content-type"] == "application/json"
    if door == "messages":
        assert answer["type"] == "error"
        assert set(answer["error"]) >= {"type", "message"}
    else:
        assert set(answer["error"]) >= {"message", "type", "param", "code"}
    error: dict[str, Any] = answer["error"]
    return error


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "wrong"])
@doors
def test_without_a_key_of_the_gateway_nobody_is_served(
    guarded: Stage, door: str, key: str | None
) -> None:
    scene = guarded.scene("chat", ANSWER)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    response = ask(guarded.url, door, plain_body(door, scene.model), headers)
    assert response.status_code == 401
    error = error_in(door, response)
    assert "API key" in error["message"]
    assert "wrong" not in response.text.replace("wrong key", "")
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"]
    assert scene.requests == []


@doors
def test_the_sdk_raises_its_authentication_error(guarded: Stage, door: str) -> None:
    first, second = openai_client(guarded.url, "wrong"), anthropic_client(guarded.url, "wrong")
    create = {
        "chat": first.chat.completions.create,
        "responses": first.responses.create,
        "messages": second.messages.create,
    }[door]
    with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
        create(**plain_body(door, "chat/x"))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "header", ["authorization: Bearer {}", "authorization: bearer {}", "x-api-key: {}"]
)
@doors
def test_a_key_is_taken_from_either_header(
    guarded: Stage, door: str, header: str, key: str
) -> None:
    scene = guarded.scene("messages", ANSWER)
    name, value = header.format(key).split(": ")
    response = ask(guarded.url, door, plain_body(door, scene.model), {name: value})
    assert response.status_code == 200
    assert key not in str(scene.requests[0].headers)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/chat%2Fx", "/metrics"])
def test_the_other_pages_ask_for_the_key_too(guarded: Stage, path: str) -> None:
    assert fetch("GET", f"{guarded.url}{path}").status_code == 401
    with_key = fetch("GET", f"{guarded.url}{path}", headers={"x-api-key": KEYS[0]})
    assert with_key.status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_key(guarded: Stage, path: str) -> None:
    assert fetch("GET", f"{guarded.url}{path}").status_code == 200


# --- bodies -----------------------------------------------------------------------------------------------------------

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": import_module("brotli").compress,  # which has no types
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("encoding", ENCODERS)
@doors
def test_a_compressed_request_is_read(stage: Stage, door: str, encoding: str) -> None:
    scene = stage.scene(door, ANSWER)
    plain = json.dumps(plain_body(door, scene.model)).encode()
    data = ENCODERS[encoding](plain)
    response = ask(stage.url, door, data, {"content-encoding": encoding})
    assert response.status_code == 200
    request = scene.requests[0]
    assert request.body == plain
    assert "content-encoding" not in request.headers


@pytest.mark.parametrize("encoding", ENCODERS)
@doors
def test_a_bomb_is_too_large(stage: Stage, door: str, encoding: str) -> None:
    bomb = ENCODERS[encoding](b'{"a":"' + b" " * 5_000_000 + b'"}')
    response = ask(stage.url, door, bomb, {"content-encoding": encoding})
    assert response.status_code == 413
    assert "20000" in error_in(door, response)["message"].replace(",", "")


@doors
def test_an_unknown_encoding_is_reported(stage: Stage, door: str) -> None:
    response = ask(stage.url, door, b"x", {"content-encoding": "lzma"})
    assert response.status_code == 415
    assert "lzma" in error_in(door, response)["message"]


@doors
def test_a_body_beyond_the_limit_is_too_large(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", ANSWER)
    response = ask(stage.url, door, plain_body(door, scene.model, user="x" * 20_000))
    assert response.status_code == 413
    error_in(door, response)
    assert scene.requests == []


@doors
def test_too_many_tools_are_refused(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", ANSWER, ANSWER)
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools = [Offered(f"tool_{number}", schema) for number in range(5)]
    asking = conversation(door, stage.url, scene.model, tools=tools)
    asking.say("hi")
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as caught:
        asking.ask("create")
    assert "at most 4 tools" in str(caught.value)
    asking.tools.pop()
    assert asking.ask("create").text == "Here I am."


@doors
def test_too_deep_a_body_is_refused(stage: Stage, door: str) -> None:
    scene = stage.scene(door, ANSWER)
    deep = json.dumps(plain_body(door, scene.model))[:-1] + ', "metadata": ' + "[" * 40
    response = ask(stage.url, door, (deep + "]" * 40 + "}").encode())
    assert response.status_code == 400
    assert "30 deep" in error_in(door, response)["message"]
    assert scene.requests == []


@doors
def test_too_large_headers_are_refused(stage: Stage, door: str) -> None:
    response = ask(stage.url, door, plain_body(door, "chat/x"), {"x-padding": "x" * 6_000})
    assert response.status_code == 431


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b'{"model": 5}'])
@doors
def test_what_is_no_request_is_a_bad_request(stage: Stage, door: str, body: bytes) -> None:
    response = ask(stage.url, door, body)
    assert response.status_code == 400
    assert error_in(door, response)["message"]


@doors
def test_one_stream_too_many_gets_a_retry_after(door: str) -> None:
    server = ServerSettings(shutdown_grace=0.3, max_streams=1)
    with running_stage(server=server) as stage:
        rest = threading.Event()
        whole = stream(door, ANSWER)
        at = whole.index(b"\n\n") + 2
        slow = ScriptedReply(
            content_type="text/event-stream", chunks=[whole[:at], Wait(rest), whole[at:]]
        )
        scene = stage.scene(door, slow, ANSWER)
        body = plain_body(door, scene.model, stream=True)
        with streaming(stage.url, door, body) as first:
            assert first.status_code == 200
            second = ask(stage.url, door, body)
            assert second.status_code == 429
            assert int(second.headers["retry-after"]) >= 1
            assert "max_streams" in error_in(door, second)["message"]
            rest.set()
            assert first.read()
        # The slot is given back when the upstream has ended too, a moment after the client has everything.
        stage.upstream.wait_until(lambda: stage.gateway.app.gateway.slots.open == 0)
        third = ask(stage.url, door, body)
        assert third.status_code == 200


# --- CORS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS.values(), "/v1/models", "/v1/messages/count_tokens"])
def test_a_preflight_of_a_known_origin_is_allowed(stage: Stage, path: str) -> None:
    headers = {
        "origin": "app://obsidian.md",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os",
    }
    response = fetch("OPTIONS", f"{stage.url}{path}", headers=headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "app://obsidian.md"
    assert "x-stainless-os" in response.headers["access-control-allow-headers"]
    assert "POST" in response.headers["access-control-allow-methods"]


@doors
def test_a_page_may_read_answers_and_errors(stage: Stage, door: str) -> None:
    scene = stage.scene(door, ANSWER, json_reply(error_body(door, 500, "no"), 500))
    for _ in range(2):
        response = ask(
            stage.url, door, plain_body(door, scene.model), {"origin": "http://localhost:5173"}
        )
        assert response.headers["access-control-allow-origin"] == "http://localhost:5173"
        assert "x-request-id" in response.headers["access-control-expose-headers"]


@doors
def test_a_page_of_another_site_is_not_served(stage: Stage, door: str) -> None:
    scene = stage.scene(door, ANSWER)
    headers = {"origin": "https://evil.example"}
    response = ask(stage.url, door, plain_body(door, scene.model), headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
    assert scene.requests == []
    preflight = fetch("OPTIONS", f"{stage.url}{PATHS[door]}", headers=headers)
    assert "access-control-allow-origin" not in preflight.headers


# --- pages that reach this machine under a name of their own ------------------------------------------------------------

PAGES = (
    "/v1/models",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/limits",
    "/v1/usage",
    "/nothing",
    "/v1/responses/x",
)


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
@pytest.mark.parametrize("path", PAGES)
def test_pages_are_not_shown_to_other_sites(
    stage: Stage, path: str, headers: dict[str, str]
) -> None:
    """A name that an attacker points at 127.0.0.1 makes his page one of the same origin, for the browser."""
    response = fetch("GET", f"{stage.url}{path}", headers=headers)
    assert response.status_code == 403
    wanted = "server.allowed_hosts" if "host" in headers else "server.cors_origins"
    assert wanted in response.text


@doors
def test_request_under_another_name_is_not_served(stage: Stage, door: str) -> None:
    scene = stage.scene(door, ANSWER)
    headers = {"host": f"evil.example:{stage.url.rpartition(':')[2]}"}
    response = ask(stage.url, door, plain_body(door, scene.model), headers)
    assert response.status_code == 403
    assert "server.allowed_hosts" in error_in(door, response)["message"]
    assert scene.requests == []


@pytest.mark.parametrize(
    "origin", ["app://obsidian.md", "capacitor://localhost", "http://localhost:1"]
)
def test_applications_and_pages_of_this_machine_are_served(stage: Stage, origin: str) -> None:
    scene = stage.scene("chat", ANSWER)
    body = plain_body("chat", scene.model)
    assert ask(stage.url, "chat", body, {"origin": origin}).status_code == 200
    assert fetch("GET", f"{stage.url}/v1/models", headers={"origin": origin}).status_code == 200


def test_configured_names_are_served_and_with_keys_every_name() -> None:
    named = ServerSettings(shutdown_grace=0.3, allowed_hosts=("gateway.lan",))
    with running_stage(server=named) as stage:
        for host, status in (("gateway.lan:8787", 200), ("localhost", 200), ("other.lan", 403)):
            page = fetch("GET", f"{stage.url}/v1/models", headers={"host": host})
            assert page.status_code == status
    # A page has no key, whatever name it comes under; behind a proxy the name is the proxy's.
    keyed = ServerSettings(shutdown_grace=0.3, api_keys=("a-key-of-some-length",))
    with running_stage(server=keyed) as stage:
        headers = {"host": "gateway.example", "x-api-key": "a-key-of-some-length"}
        assert fetch("GET", f"{stage.url}/v1/models", headers=headers).status_code == 200
        assert fetch("GET", f"{stage.url}/v1/models", headers={"host": "x"}).status_code == 401


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_head_of_a_page_that_is_too_large_is_refused(stage: Stage, path: str) -> None:
    for address, padding in ((path, "x" * 5_000), (f"{path}?{'x' * 5_000}", "")):
        response = fetch("GET", f"{stage.url}{address}", headers={"x-padding": padding})
        assert response.status_code == 431


@doors
def test_all_of_a_head_counts(stage: Stage, door: str) -> None:
    """Names, values, and what stands between them: 900 headers of two letters are 5,400 bytes."""
    many = {
        f"{one}{other}": ""
        for one in "abcdefghijklmnopqrstuvwxyz0123"
        for other in "abcdefghijklmnopqrstuvwxyz0123"
    }
    assert ask(stage.url, door, plain_body(door, "chat/x"), many).status_code == 431


# --- models, counts, and what else there is ---------------------------------------------------------------------------


def test_the_openai_sdk_lists_and_finds_models(stage: Stage) -> None:
    client = openai_client(stage.url)
    listed = list(client.models.list())
    assert {model.id for model in listed} >= {"a-model", "another-model"}
    assert all(model.object == "model" and model.owned_by for model in listed)
    assert client.models.retrieve("a-model").id == "a-model"
    assert client.models.retrieve("chat/anything").id == "chat/anything"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody-has-this")


def test_the_anthropic_sdk_lists_and_finds_models(stage: Stage) -> None:
    client = anthropic_client(stage.url)
    listed = list(client.models.list(limit=1))
    assert {model.id for model in listed} >= {"a-model", "another-model"}
    assert all(model.type == "model" and model.display_name for model in listed)
    assert client.models.retrieve("another-model").id == "another-model"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nobody-has-this")


def test_tokens_are_counted_by_a_messages_upstream(stage: Stage) -> None:
    scene = stage.scene("messages", json_reply({"input_tokens": 2095}))
    counted = anthropic_client(stage.url).messages.count_tokens(
        model=scene.model,
        messages=[{"role": "user", "content": "hi"}],
        tools=[{"name": "f", "input_schema": {"type": "object"}}],
    )
    assert counted.input_tokens == 2095
    request = scene.requests[0]
    assert (request.path, scene.heard["model"]) == ("/v1/messages/count_tokens", scene.model)
    assert scene.heard["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert "max_tokens" not in scene.heard


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_tokens_are_estimated_where_no_upstream_counts(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect)
    client = anthropic_client(stage.url)

    def count(text: str) -> int:
        counted: int = client.messages.count_tokens(
            model=scene.model, messages=[{"role": "user", "content": text}]
        ).input_tokens
        return counted

    assert 0 < count("one") < count("many words " * 100) < 1000
    raw = client.messages.with_raw_response.count_tokens(
        model=scene.model, messages=[{"role": "user", "content": "hi"}]
    )
    assert raw.headers["x-dragoman-estimate"] == "true"
    assert scene.requests == []


def test_tokens_of_a_repaired_conversation_are_counted(stage: Stage) -> None:
    scene = stage.scene("messages", json_reply({"input_tokens": 7}))
    empty = {"type": "text", "text": ""}
    content: list[Any] = [{"type": "text", "text": "hi"}, empty]
    counted = anthropic_client(stage.url).messages.count_tokens(
        model=scene.model, messages=[{"role": "user", "content": content}]
    )
    assert counted.input_tokens == 7
    # Anthropic refuses all fields of a request that it does not count.
    assert scene.heard == {
        "model": scene.model,
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_a_count_that_is_redirected_is_an_error(stage: Stage) -> None:
    moved = ScriptedReply(status=308, headers={"location": "https://key@other.example/v1"})
    scene = stage.scene("messages", moved)
    with pytest.raises(anthropic.APIStatusError) as caught:
        anthropic_client(stage.url).messages.count_tokens(
            model=scene.model, messages=[{"role": "user", "content": "hi"}]
        )
    error: Any = caught.value
    assert error.status_code == 502
    assert "got status 308 to https://other.example/v1;" in error.message
    assert error.response.headers["x-should-retry"] == "false"


def test_a_count_that_fails_is_the_sdks_own_exception(stage: Stage) -> None:
    reply = json_reply(error_body("messages", 429, "slow down"), 429, headers={"retry-after": "3"})
    scene = stage.scene("messages", reply)
    with pytest.raises(anthropic.RateLimitError) as caught:
        anthropic_client(stage.url).messages.count_tokens(
            model=scene.model, messages=[{"role": "user", "content": "hi"}]
        )
    error: Any = caught.value
    assert "slow down" in error.message
    assert error.response.headers["retry-after"] == "3"


@pytest.mark.parametrize(
    "path", [*PATHS.values(), "/chat/completions", "/responses/", "/messages", "/v1/messages/"]
)
def test_doors_are_found_by_every_spelling_of_their_path(stage: Stage, path: str) -> None:
    door = next(name for name, own in PATHS.items() if own.strip("/").endswith(path.strip("/")))
    scene = stage.scene(door, ANSWER)
    body = json.dumps(plain_body(door, scene.model)).encode()
    response = fetch("POST", f"{stage.url}{path}", content=body)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"sec-websocket-key": "short"},
        {"sec-websocket-key": ""},
        {"sec-websocket-version": "12"},
        {"upgrade": "h2c"},
    ],
)
def test_a_websocket_that_is_asked_for_wrongly_is_answered_426_at_once(
    stage: Stage, wrong: dict[str, str]
) -> None:
    headers = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
    }
    response = fetch("GET", f"{stage.url}/v1/responses", headers={**headers, **wrong})
    assert response.status_code == 426


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/nothing", "/v1/v1/messages", "/v1/responses/x/y"]
)
def test_what_is_not_there_says_what_is(stage: Stage, path: str) -> None:
    response = fetch("POST", f"{stage.url}{path}", content=b"{}")
    assert response.status_code == 404
    assert "/v1/chat/completions" in response.text
    assert response.headers["x-request-id"]


@doors
def test_a_door_takes_post_only(stage: Stage, door: str) -> None:
    response = fetch("GET", f"{stage.url}{PATHS[door]}")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


def test_metrics_count_what_was_served(stage: Stage) -> None:
    scene = stage.scene("messages", ANSWER)
    assert ask(stage.url, "chat", plain_body("chat", scene.model)).status_code == 200

    def is_counted() -> bool:
        lines = fetch("GET", f"{stage.url}/metrics").text.splitlines()
        words = ("dragoman_requests_total{", 'upstream="messages"', 'door="chat"', 'status="200"')
        return any(all(word in line for word in words) for line in lines)

    wait_until(is_counted)


# --- request ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "my-own-id-1"])
@dialects
@doors
def test_every_answer_has_a_request_id_and_the_upstream_hears_it(
    stage: Stage, door: str, dialect: str, given: str | None
) -> None:
    scene = stage.scene(dialect, ANSWER, json_reply(error_body(dialect, 400, "no"), 400))
    headers = {} if given is None else {"x-request-id": given}
    for status in (200, 400):
        response = ask(stage.url, door, plain_body(door, scene.model, stream=True), headers)
        assert response.status_code == status
        own = response.headers["x-request-id"]
        assert own == given or (given is None and own.startswith("req_"))
        assert response.headers.get("request-id") == (own if door == "messages" else None)
        assert scene.requests[-1].headers["x-request-id"] == own


def test_request_id_that_looks_like_a_key_is_replaced(stage: Stage) -> None:
    # It would be the name of a recording, and reach upstreams and the collector of traces.
    for given in ("sk-proj-abcdefgh12345678", "dgk_abcdefgh12345678"):
        scene = stage.scene("chat", ANSWER)
        body = plain_body("chat", scene.model, stream=True)
        response = ask(stage.url, "chat", body, {"x-request-id": given})
        assert response.headers["x-request-id"].startswith("req_")
        assert given not in str(scene.requests[-1].headers)


def test_pages_have_request_ids_too(stage: Stage) -> None:
    for path in ("/v1/models", "/healthz", "/v1/models/a-model", "/nothing"):
        assert fetch("GET", f"{stage.url}{path}").headers["x-request-id"]
