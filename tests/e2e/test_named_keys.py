"""Named keys at every door: which models they may use, their limits, what they have used, and who may read that."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from msgspec import structs

from dragoman.config.settings import (
    KeySettings,
    PriceSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)
from dragoman.state import managed_store
from dragoman.testing import ScriptedReply, Wait
from gateway_harness import running_gateway, wait_until
from plain_http import ask, fetch, plain_body, streaming
from sdk_clients import DOORS, anthropic_client, openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, stream
from websocket_client import socket_client

# 11 tokens of input, 3 of them cached, and 7 of output.
ANSWER = Answer((Said(("Here ", "I am.")),))
OPERATOR = "an-operator's-key"
DAY = 86_400

doors = pytest.mark.parametrize("door", DOORS)


def secret(name: str) -> str:
    return f"the-key-of-{name}"


def key(name: str, **limits: Any) -> KeySettings:
    return KeySettings(digest=f"sha256:{sha256(secret(name).encode()).hexdigest()}", **limits)


KEYS: dict[str, dict[str, Any]] = {
    "free": {},
    "other": {},
    "cut": {},
    "chats": {"models": ("chat/*",)},
    **{f"once-{door}": {"requests_per_day": 1} for door in DOORS},
    **{f"sdk-{door}": {"requests_per_day": 1} for door in DOORS},
    "burst": {"requests_per_day": 5},
    "stream": {"max_streams": 1},
    "tokens": {"tokens_per_day": 18},
    "money": {"cost_per_month": 0.000_04},
    "background": {"requests_per_day": 1},
    "socket": {"requests_per_day": 1},
    "counting": {"requests_per_day": 1, "models": ("chat/*",)},
    "inspector": {"inspect": True},
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    further: dict[str, object] = {
        "keys": {name: key(name, **limits) for name, limits in KEYS.items()},
        "prices": {"chat/*": PriceSettings(input=2.0, cached=1.0, output=3.0)},
    }
    server = ServerSettings(shutdown_grace=0.3, api_keys=(OPERATOR,))
    with running_stage(
        server=server, store=StoreSettings(url="memory:"), further=further
    ) as running:
        yield running


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret(name)}"}


def usage(stage: Stage, name: str) -> dict[str, Any]:
    """What the key itself is answered."""
    found: dict[str, Any] = fetch("GET", f"{stage.url}/v1/usage", bearer(name)).json()["key"]
    return found


def day(stage: Stage, name: str) -> dict[str, Any]:
    windows = {each["window"]: each for each in usage(stage, name)["windows"]}
    found: dict[str, Any] = windows["day"]
    return found


@doors
def test_named_key_is_served_and_its_usage_is_counted(stage: Stage, door: str) -> None:
    before = day(stage, "free")
    scene = stage.scene("chat", ANSWER)
    response = ask(stage.url, door, plain_body(door, scene.model), bearer("free"))
    assert response.status_code == 200, response.text
    wait_until(lambda: day(stage, "free")["requests"] == before["requests"] + 1)
    after = day(stage, "free")
    assert after["input_tokens"] == before["input_tokens"] + 11
    assert after["cached_tokens"] == before["cached_tokens"] + 3
    assert after["output_tokens"] == before["output_tokens"] + 7
    assert after["cost"] - before["cost"] == pytest.approx((8 * 2 + 3 * 1 + 7 * 3) / 1e6)
    assert secret("free") not in str(scene.requests)


@pytest.mark.parametrize(
    "header", [{}, {"authorization": "Bearer the-key-of-nobody"}, {"x-api-key": "sha256:00"}]
)
def test_no_key_or_an_unknown_one_is_refused(stage: Stage, header: dict[str, str]) -> None:
    assert ask(stage.url, "chat", plain_body("chat", "chat/x"), header).status_code == 401


def test_digest_is_not_a_key(stage: Stage) -> None:
    """Whoever reads the configuration cannot use what it holds."""
    digest = key("free").digest
    for shown in (digest, digest.removeprefix("sha256:")):
        headers = {"authorization": f"Bearer {shown}"}
        assert ask(stage.url, "chat", plain_body("chat", "chat/x"), headers).status_code == 401


def test_key_in_the_address_is_no_key(stage: Stage) -> None:
    for name in ("key", "api_key", "api-key", "x-api-key", "authorization"):
        address = f"{stage.url}/v1/models?{name}={secret('free')}"
        assert fetch("GET", address).status_code == 401


@doors
def test_model_that_is_not_allowed_is_refused_whether_or_not_it_exists(
    stage: Stage, door: str
) -> None:
    scene = stage.scene("messages", ANSWER)
    answers = [
        ask(stage.url, door, plain_body(door, model), bearer("chats"))
        for model in (scene.model, "no-such-model")
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert scene.requests == []
    assert "chat/*" in answers[0].json()["error"]["message"]
    assert ask(
        stage.url, door, plain_body(door, stage.scene("chat", ANSWER).model), bearer("chats")
    ).is_success


@pytest.mark.parametrize("name", ['"model"', '"mod\\u0065l"', '"\\u006Dodel"'])
@doors
def test_second_model_in_a_request_does_not_get_past_the_models_of_a_key(
    stage: Stage, door: str, name: str
) -> None:
    """An upstream that reads the first of two members would serve a model that was not checked."""
    scene = stage.scene(door, ANSWER)
    allowed = stage.scene("chat", ANSWER).model
    body = json.dumps(plain_body(door, scene.model)).removesuffix("}")
    answer = ask(
        stage.url, door, f"{body}, {name}: {json.dumps(allowed)}}}".encode(), bearer("chats")
    )
    assert (answer.status_code, "model" in answer.text) == (400, True)
    assert scene.requests == []


def test_second_model_in_a_continuation_does_not_get_past_the_models_of_a_key() -> None:
    """An upstream that keeps responses gets the body of a continuation as the client sent it."""
    with running_stage(
        upstreams={"keeping": {"kind": "responses", "keeps_responses": True}},
        server=ServerSettings(shutdown_grace=0.3, api_keys=(OPERATOR,)),
        store=StoreSettings(url="memory:"),
        further={"keys": {"keeping": key("keeping", models=("keeping/*",))}},
    ) as stage:
        scene = stage.scene("responses", ANSWER, ANSWER, route="keeping")
        body = plain_body("responses", scene.model)
        first = ask(stage.url, "responses", body, bearer("keeping")).json()["id"]
        more = json.dumps({**body, "previous_response_id": first}).removeprefix("{")
        other = f'{{"model": "dear", {more}'.encode()
        answer = ask(stage.url, "responses", other, bearer("keeping"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "repeated_member")
        assert len(scene.requests) == 1


@doors
def test_models_inside_a_request_are_no_second_model(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", ANSWER)
    more = {"metadata": {"model": "x", "note": "\\u006d"}}
    answer = ask(stage.url, door, plain_body(door, scene.model, **more), bearer("chats"))
    assert answer.status_code == 200, answer.text


def test_list_of_models_has_only_those_that_the_key_may_use() -> None:
    keys = {"some": key("some", models=("rehearsal-p*", "x")), "all": key("all")}
    with running_gateway(Settings(keys=keys)) as gateway:
        listed = {
            name: [
                model["id"]
                for model in fetch("GET", f"{gateway.url}/v1/models", bearer(name)).json()["data"]
            ]
            for name in keys
        }
    assert len(listed["all"]) > len(listed["some"]) > 0
    assert listed["some"] == [name for name in listed["all"] if name.startswith("rehearsal-p")]


def test_single_model_is_described_only_if_the_key_may_use_it(stage: Stage) -> None:
    address = f"{stage.url}/v1/models/chat/anything"
    assert fetch("GET", address, bearer("chats")).status_code == 200
    address = f"{stage.url}/v1/models/messages/anything"
    assert fetch("GET", address, bearer("free")).status_code == 200
    assert fetch("GET", address, bearer("chats")).status_code == 403


@doors
def test_request_over_the_limit_is_429_with_the_time_until_it_is_allowed(
    stage: Stage, door: str
) -> None:
    scene = stage.scene("chat", ANSWER, ANSWER)
    body = plain_body(door, scene.model)
    assert ask(stage.url, door, body, bearer(f"once-{door}")).status_code == 200
    left = DAY - time.time() % DAY
    refused = ask(stage.url, door, body, bearer(f"once-{door}"))
    assert refused.status_code == 429
    assert abs(int(refused.headers["retry-after"]) - left) < 30
    error = refused.json()["error"]
    assert "requests_per_day" in error["message"]
    assert error["type"] == ("rate_limit_error" if door == "messages" else error["type"])
    assert len(scene.requests) == 1
    assert ask(stage.url, door, body, bearer("other")).status_code == 200


@doors
def test_sdk_raises_its_rate_limit_error(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", ANSWER)
    name = f"sdk-{door}"
    first, second = (
        openai_client(stage.url, secret(name)),
        anthropic_client(stage.url, secret(name)),
    )
    create = {
        "chat": first.chat.completions.create,
        "responses": first.responses.create,
        "messages": second.messages.create,
    }[door]
    create(**plain_body(door, scene.model))
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
        create(**plain_body(door, scene.model))


def test_of_a_parallel_burst_as_many_pass_as_the_limit_says(stage: Stage) -> None:
    scene = stage.scene("chat", *[ANSWER] * 24)
    body = plain_body("chat", scene.model)

    def one(_number: int) -> int:
        with httpx2.Client(verify=False, trust_env=False, timeout=60) as client:
            url = f"{stage.url}/v1/chat/completions"
            return client.post(url, json=body, headers=bearer("burst")).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(one, range(24)))
    assert sorted(statuses) == [200] * 5 + [429] * 19
    assert len(scene.requests) == 5


def test_streams_of_a_key_are_bounded_and_a_client_that_leaves_makes_room(stage: Stage) -> None:
    rest = threading.Event()
    whole = stream("chat", ANSWER)
    at = whole.index(b"Here")
    at = whole.index(b"\n\n", at) + 2
    slow = ScriptedReply(
        content_type="text/event-stream", chunks=[whole[:at], Wait(rest), whole[at:]]
    )
    scene = stage.scene("chat", slow, ANSWER)
    body = plain_body("chat", scene.model, stream=True)
    try:
        with streaming(stage.url, "chat", body, bearer("stream")) as response:
            assert response.status_code == 200
            answer = response.iter_bytes()  # its end would close the connection
            next(answer)
            refused = ask(stage.url, "chat", body, bearer("stream"))
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert usage(stage, "stream")["running"] == 1
        wait_until(lambda: usage(stage, "stream")["running"] == 0)
        assert ask(stage.url, "chat", body, bearer("stream")).status_code == 200
    finally:
        rest.set()


def test_answer_that_is_cut_counts_what_was_reported(stage: Stage) -> None:
    """Messages report their input at the beginning."""
    rest = threading.Event()
    whole = stream("messages", ANSWER)
    at = whole.index(b"content_block_delta")
    slow = ScriptedReply(
        content_type="text/event-stream", chunks=[whole[:at], Wait(rest), whole[at:]]
    )
    scene = stage.scene("messages", slow)
    body = plain_body("messages", scene.model, stream=True)
    try:
        with streaming(stage.url, "messages", body, bearer("cut")) as response:
            next(response.iter_bytes())
        wait_until(lambda: day(stage, "cut")["requests"] == 1)
    finally:
        rest.set()
    assert day(stage, "cut")["input_tokens"] == 11


def test_tokens_that_are_used_up_are_a_spent_quota(stage: Stage) -> None:
    scene = stage.scene("chat", ANSWER, ANSWER)
    body = plain_body("chat", scene.model)
    assert ask(stage.url, "chat", body, bearer("tokens")).status_code == 200
    refused = ask(stage.url, "chat", body, bearer("tokens"))
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert int(refused.headers["retry-after"]) <= DAY
    (limit,) = usage(stage, "tokens")["limits"]
    assert (limit["used"], limit["remaining"]) == (18, 0)


def test_money_is_counted_by_the_prices_and_a_model_without_one_is_refused(stage: Stage) -> None:
    scene = stage.scene("chat", ANSWER, ANSWER)
    body = plain_body("chat", scene.model)
    unpriced = ask(stage.url, "chat", plain_body("chat", "messages/x"), bearer("money"))
    assert (unpriced.status_code, unpriced.json()["error"]["code"]) == (403, "model_without_price")
    assert ask(stage.url, "chat", body, bearer("money")).status_code == 200
    refused = ask(stage.url, "chat", body, bearer("money"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    assert usage(stage, "money")["limits"][0]["used"] == pytest.approx(0.000_04)


def test_background_response_over_the_limit_is_refused_before_it_is_stored(stage: Stage) -> None:
    scene = stage.scene("chat", ANSWER, ANSWER)
    client = openai_client(stage.url, secret("background"))
    client.responses.create(model=scene.model, input="hi", background=True)
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model=scene.model, input="hi", background=True)
    wait_until(lambda: day(stage, "background")["output_tokens"] == 7)
    assert len(scene.requests) == 1


def test_request_over_a_websocket_is_counted_and_refused_alone(stage: Stage) -> None:
    scene = stage.scene("chat", ANSWER, ANSWER)
    with socket_client(stage.url, scene.model, additional_headers=bearer("socket")) as client:
        client.answer(input="hi")
        frame = client.error(input="hi")
        assert frame["status"] == 429
        assert "retry-after" in frame["headers"]
        assert client.error(input="hi")["status"] == 429  # the connection stays open
    assert len(scene.requests) == 1


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_counting_of_tokens_is_a_request_of_the_key(stage: Stage, path: str) -> None:
    door = "messages" if "messages" in path else "responses"
    other = json.dumps(plain_body(door, "messages/x")).encode()
    headers = {"content-type": "application/json", **bearer("counting")}
    assert fetch("POST", stage.url + path, headers, other).status_code == 403
    body = plain_body(door, "chat/x")
    body.pop("max_tokens", None)
    statuses = [
        fetch("POST", stage.url + path, headers, json.dumps(body).encode()).status_code
        for _ in range(2)
    ]
    assert statuses[-1] == 429


def test_key_sees_its_own_usage_and_the_operator_sees_all(stage: Stage) -> None:
    own = fetch("GET", f"{stage.url}/v1/usage", bearer("other")).json()
    assert set(own) == {"object", "key"}
    assert own["key"]["name"] == "other"
    for headers in ({"authorization": f"Bearer {OPERATOR}"}, bearer("inspector")):
        page = fetch("GET", f"{stage.url}/v1/usage", headers).json()
        assert [each["name"] for each in page["keys"]] == list(KEYS)
        assert page["total"]["requests"] >= 0


def test_metrics_have_the_names_of_keys_and_are_the_operators(stage: Stage) -> None:
    scene = stage.scene("chat", ANSWER)
    assert ask(stage.url, "chat", plain_body("chat", scene.model), bearer("free")).is_success
    assert fetch("GET", f"{stage.url}/metrics", bearer("free")).status_code == 403
    page = fetch("GET", f"{stage.url}/metrics", {"authorization": f"Bearer {OPERATOR}"}).text
    assert 'dragoman_key_tokens_total{direction="output",key="free"}' in page
    assert ask(stage.url, "chat", plain_body("chat", "messages/x"), bearer("chats")).is_error
    page = fetch("GET", f"{stage.url}/metrics", bearer("inspector")).text
    assert 'dragoman_key_refused_total{key="chats",limit="models"}' in page
    assert "the-key-of" not in page


def test_right_to_inspect_belongs_to_the_key_that_has_it(stage: Stage) -> None:
    assert fetch("GET", f"{stage.url}/v1/inspect", bearer("inspector")).status_code == 200
    assert fetch("GET", f"{stage.url}/v1/inspect", bearer("free")).status_code == 403


@pytest.mark.parametrize(("policy", "status"), [("refuse", 503), ("serve", 200)])
def test_store_that_is_away_refuses_keys_with_limits_unless_the_operator_says_otherwise(
    tmp_path: Path, policy: Any, status: int
) -> None:
    file = tmp_path / "folder"
    file.mkdir()  # no file that SQLite could open
    server = ServerSettings(shutdown_grace=0.3, limits_without_store=policy)
    keys = {"limited": key("limited", requests_per_day=1), "free": key("free")}
    further: dict[str, object] = {"keys": keys}
    store = StoreSettings(url=f"sqlite://{file}", policy="off")
    with running_stage(server=server, store=store, further=further) as stage:
        scene = stage.scene("chat", ANSWER, ANSWER)
        body = plain_body("chat", scene.model)
        answer = ask(stage.url, "chat", body, bearer("limited"))
        assert answer.status_code == status, answer.text
        assert ("retry-after" in answer.headers) == (status == 503)
        assert str(tmp_path) not in answer.text
        assert ask(stage.url, "chat", body, bearer("free")).status_code == 200


def test_what_a_store_that_is_away_did_not_take_outlives_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_store, "AWAY_SECONDS", 0.2)
    file = tmp_path / "folder"
    file.mkdir()  # no file that SQLite could open
    store = StoreSettings(url=f"sqlite://{file}", policy="off")
    server = ServerSettings(shutdown_grace=0.3)
    with running_stage(
        server=server, store=store, further={"keys": {"free": key("free")}}
    ) as stage:
        scene = stage.scene("chat", ANSWER)
        body = plain_body("chat", scene.model)
        assert ask(stage.url, "chat", body, bearer("free")).status_code == 200
        gateway = stage.gateway.app.gateway
        sweeper = gateway._sweeper  # pyright: ignore[reportPrivateUsage] -- a task of the loop
        assert sweeper is not None
        reload = stage.gateway.app.reload(
            structs.replace(gateway.settings, server=structs.replace(server, max_tools=5))
        )
        asyncio.run_coroutine_threadsafe(reload, sweeper.get_loop()).result(10)
        wait_until(sweeper.done)
        file.rmdir()
        address = f"{stage.url}/v1/usage"
        wait_until(lambda: fetch("GET", address, bearer("free")).status_code == 200)
        wait_until(lambda: day(stage, "free")["requests"] == 1, 10)
        assert day(stage, "free")["output_tokens"] == 7
