"""Irregular upstreams, and the settings for them: streams for bodies, silence, headers, losses, limits."""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anthropic
import openai
import pytest

from dragoman.config.settings import ModelLimits, Route, StoreSettings
from dragoman.testing import ScriptedReply, Wait, json_reply, sse
from gateway_harness import wait_until
from heard import hear
from plain_http import ask, fetch, plain_body
from sdk_clients import (
    CLIENT_KEY,
    DOORS,
    Offered,
    Unfinished,
    anthropic_client,
    conversation,
    openai_client,
)
from stage import Stage, running_stage
from vendor_errors import error_body
from vendor_wire import Answer, Said, Tool, body_bytes, stream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Offered("get_weather", SCHEMA)
ANSWER = Answer(
    (
        Said(("Let me ", "look.")),
        Tool("call_1", "get_weather", ('{"city":', '"Paris"}')),
        Tool("call_2", "get_weather", ('{"city":', '"Rome"}')),
    )
)
SHORT = Answer((Said(("ok",)),))

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, dict[str, Any]] = {}
    for kind in DOORS:
        upstreams[f"always-{kind}"] = {"kind": kind, "always_stream": True}
        upstreams[f"never-{kind}"] = {"kind": kind, "never_stream": True}
        upstreams[f"impatient-{kind}"] = {
            "kind": kind,
            "first_byte_timeout": 0.15,
            "idle_timeout": 0.15,
        }
        upstreams[f"passing-{kind}"] = {"kind": kind, "api_key": "client"}
        upstreams[f"dressed-{kind}"] = {
            "kind": kind,
            "headers": {"x-team": "blue", "user-agent": "our-agent"},
            "query": {"api-version": "7"},
        }
        upstreams[f"strict-{kind}"] = {
            "kind": kind,
            "losses": {"top_k": "refuse", "seed": "refuse", "logit_bias": "refuse"},
        }
        upstreams[f"narrow-{kind}"] = {
            "kind": kind,
            "drop_fields": ("temperature", "top_p", "seed"),
        }
    upstreams["limited"] = {
        "kind": "messages",
        "limits": ModelLimits(default_max_tokens=321),
        "models": {"limited/*": ModelLimits(max_name_length=20)},
    }
    routes = [
        Route(model=f"renamed-{kind}/*", upstream=kind, upstream_model=f"the-{kind}-model")
        for kind in DOORS
    ]
    # The scripted upstream gives all its responses one id, which a store would not leave to them.
    with running_stage(
        upstreams=upstreams, routes=routes, store=StoreSettings(policy="off")
    ) as running:
        yield running


# --- streams for bodies and bodies for streams ------------------------------------------------------------------------


@dialects
@doors
def test_an_upstream_that_is_always_asked_for_a_stream_gives_a_body(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, ANSWER, ANSWER, route=f"always-{dialect}")
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask("create")
    assert scene.heard["stream"] is True
    assert (got.text, [call.call_id for call in got.calls]) == (
        "Let me look.",
        ["call_1", "call_2"],
    )
    assert got.usage is not None
    assert got.usage[1] == ANSWER.usage["output"]
    if dialect == "chat":
        assert scene.heard["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("mode", ["stream", "helper"])
@dialects
@doors
def test_an_upstream_that_is_never_asked_for_a_stream_is_streamed(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    scene = stage.scene(dialect, ANSWER, route=f"never-{dialect}")
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    assert not scene.heard.get("stream")
    assert "stream_options" not in scene.heard
    assert (got.text, [call.call_id for call in got.calls]) == (
        "Let me look.",
        ["call_1", "call_2"],
    )
    assert got.usage is not None
    assert got.usage[1] == ANSWER.usage["output"]


@pytest.mark.parametrize("mode", ["stream", "helper"])
@dialects
@doors
def test_an_upstream_that_answers_a_stream_with_a_body_is_streamed(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    scene = stage.scene(dialect, json_reply(body_bytes(dialect, ANSWER)))
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    assert scene.heard["stream"] is True
    assert (got.text, [call.call_id for call in got.calls]) == (
        "Let me look.",
        ["call_1", "call_2"],
    )


@pytest.mark.parametrize(
    ("content_type", "mark"),
    [("text/event-stream", b""), ("text/plain", b""), (None, b""), (None, b"\xef\xbb\xbf")],
    ids=["declared", "plain", "undeclared", "undeclared-after-a-mark"],
)
@dialects
@doors
def test_an_upstream_that_answers_with_a_stream_nobody_asked_for_gives_a_body(
    stage: Stage, door: str, dialect: str, content_type: str | None, mark: bytes
) -> None:
    received = mark + stream(dialect, ANSWER)
    scene = stage.scene(dialect, ScriptedReply(content_type=content_type, chunks=[received]))
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask("create")
    assert scene.heard.get("stream", False) is False
    assert (got.text, [call.call_id for call in got.calls]) == (
        "Let me look.",
        ["call_1", "call_2"],
    )


# --- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["create", "helper"])
@dialects
@doors
def test_an_upstream_that_never_begins_is_a_timeout(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    never = threading.Event()
    scene = stage.scene(dialect, ScriptedReply(hold=Wait(never)), route=f"impatient-{dialect}")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.InternalServerError, anthropic.APIStatusError)) as caught:
        asking.ask(mode)
    never.set()
    error: Any = caught.value
    assert error.status_code == 504


@dialects
@doors
def test_an_upstream_that_falls_silent_ends_in_a_failure(
    stage: Stage, door: str, dialect: str
) -> None:
    never = threading.Event()
    whole = stream(dialect, ANSWER)
    begun = whole[: whole.index(b"\n\n", whole.index(b"look.")) + 2]
    reply = ScriptedReply(content_type="text/event-stream", chunks=[begun, Wait(never)])
    scene = stage.scene(dialect, reply, route=f"impatient-{dialect}")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.APIError, anthropic.APIError, Unfinished)) as caught:
        asking.ask("stream")
    never.set()
    assert not isinstance(caught.value, openai.APIConnectionError | anthropic.APIConnectionError)
    stage.upstream.wait_until(lambda: scene.requests[0].closed_at is not None)


# --- headers ----------------------------------------------------------------------------------------------------------


@dialects
@doors
def test_the_callers_key_is_passed_on_where_the_operator_says_so(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, SHORT, route=f"passing-{dialect}")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    asking.ask("create")
    headers = scene.requests[0].headers
    assert CLIENT_KEY in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )


@dialects
@doors
def test_configured_headers_and_query_reach_the_upstream(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, SHORT, route=f"dressed-{dialect}")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    asking.ask("stream")
    request = scene.requests[0]
    assert (request.headers["x-team"], request.headers["user-agent"]) == ("blue", "our-agent")
    assert request.query == "api-version=7"
    assert request.headers["accept"] == "text/event-stream"
    strangers = [name for name in request.headers if name.startswith(("x-stainless", "openai-"))]
    assert strangers == []


@doors
def test_a_messages_upstream_hears_a_version_and_the_betas_it_may_have(
    stage: Stage, door: str
) -> None:
    scene = stage.scene("messages", SHORT)
    headers = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "a-beta,message-threads-2026-08-12,b-beta",
    }
    ask(stage.url, door, plain_body(door, scene.model), headers if door == "messages" else None)
    heard = scene.requests[0].headers
    if door == "messages":
        assert heard["anthropic-version"] == "2026-10-21"
        assert heard["anthropic-beta"] == "a-beta,b-beta"
    else:
        assert heard["anthropic-version"] == "2023-06-01"
        assert "anthropic-beta" not in heard


OPENAI_LIMITS = {
    "x-ratelimit-limit-requests": "100",
    "x-ratelimit-remaining-requests": "99",
    "x-ratelimit-reset-requests": "1m30s",
    "x-ratelimit-limit-tokens": "5000",
    "x-ratelimit-remaining-tokens": "4000",
    "x-ratelimit-reset-tokens": "6ms",
}


def anthropic_limits() -> dict[str, str]:
    reset = (datetime.now(UTC) + timedelta(seconds=90)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "anthropic-ratelimit-requests-limit": "100",
        "anthropic-ratelimit-requests-remaining": "99",
        "anthropic-ratelimit-requests-reset": reset,
        "anthropic-ratelimit-tokens-limit": "5000",
        "anthropic-ratelimit-tokens-remaining": "4000",
        "anthropic-ratelimit-tokens-reset": reset,
    }


@pytest.mark.parametrize("status", [200, 429])
@dialects
@doors
def test_rate_limits_are_reported_in_the_words_of_the_clients_vendor(
    stage: Stage, door: str, dialect: str, status: int
) -> None:
    sent = anthropic_limits() if dialect == "messages" else OPENAI_LIMITS
    if status == 200:
        reply = sse(stream(dialect, SHORT), headers=sent)
    else:
        reply = json_reply(error_body(dialect, 429, "slow down"), 429, headers=sent)
    scene = stage.scene(dialect, reply)
    texts = ask(stage.url, door, plain_body(door, scene.model, stream=True))
    assert texts.status_code == status
    if (door == "messages") == (dialect == "messages"):
        assert {name: texts.headers.get(name) for name in sent} == sent
    elif door == "messages":
        assert texts.headers["anthropic-ratelimit-requests-limit"] == "100"
        assert texts.headers["anthropic-ratelimit-tokens-remaining"] == "4000"
        reset = datetime.fromisoformat(texts.headers["anthropic-ratelimit-requests-reset"])
        assert 60 < (reset - datetime.now(UTC)).total_seconds() < 120
    else:
        assert texts.headers["x-ratelimit-limit-requests"] == "100"
        assert texts.headers["x-ratelimit-remaining-tokens"] == "4000"
        assert texts.headers["x-ratelimit-reset-requests"].startswith("1m")


# --- names of models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["create", "stream", "helper"])
@dialects
@doors
def test_a_renamed_model_has_the_clients_name_at_the_client(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    name = f"the-{dialect}-model"
    scene = stage.scene(dialect, ANSWER, route=f"renamed-{dialect}", upstream_model=name)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    assert scene.heard["model"] == name
    assert got.model == scene.model


# --- losses and limits ------------------------------------------------------------------------------------------------

LOSSES: list[tuple[str, str, dict[str, Any], str]] = [
    ("messages", "chat", {"top_k": 5}, "top_k"),
    ("chat", "responses", {"seed": 7}, "seed"),
    ("chat", "messages", {"seed": 7}, "seed"),
    ("chat", "messages", {"logit_bias": {"50256": -100}}, "logit_bias"),
    ("responses", "chat", {"include": ["message.output_text.logprobs"]}, "include"),
    ("responses", "messages", {"prompt_cache_key": "k"}, "cache_key"),
    ("responses", "chat", {"truncation": "auto"}, "truncation"),
    ("responses", "messages", {"max_tool_calls": 3}, "max_tool_calls"),
    ("chat", "messages", {"response_format": {"type": "json_object"}}, "response_format"),
    ("messages", "responses", {"a_new_field": {"a": 1}}, "unknown_field"),
    ("responses", "chat", {"tools": [{"type": "web_search"}]}, "builtin_tool"),
    ("responses", "messages", {"tools": [{"type": "file_search"}]}, "builtin_tool"),
    (
        "messages",
        "chat",
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "builtin_tool",
    ),
]


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize(("door", "dialect", "more", "code"), LOSSES)
def test_what_is_lost_is_declared(
    stage: Stage, door: str, dialect: str, more: dict[str, Any], code: str, is_stream: bool
) -> None:
    scene = stage.scene(dialect, SHORT)
    response = ask(stage.url, door, plain_body(door, scene.model, stream=is_stream, **more))
    assert response.status_code == 200
    codes = [
        entry.strip().split(";")[0] for entry in response.headers["x-dragoman-loss"].split(",")
    ]
    assert code in codes


@pytest.mark.parametrize(
    ("door", "dialect", "more", "code"),
    [
        ("responses", "chat", {"truncation": "auto"}, "truncation"),
        ("messages", "chat", {"a_new_field": {"a": 1}}, "unknown_field"),
    ],
)
def test_a_field_that_is_lost_is_named_in_the_header_the_log_and_the_metrics(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    door: str,
    dialect: str,
    more: dict[str, Any],
    code: str,
) -> None:
    field = next(iter(more))
    words = ("dragoman_losses_total{", f'code="{code}"', f'door="{door}"', f'upstream="{dialect}"')

    def count() -> float:
        lines = fetch("GET", f"{stage.url}/metrics").text.splitlines()
        found = [line for line in lines if all(word in line for word in words)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    before = count()
    scene = stage.scene(dialect, SHORT)
    with caplog.at_level(logging.INFO, logger="dragoman.requests"):
        response = ask(stage.url, door, plain_body(door, scene.model, **more))
        wait_until(lambda: f"{code} drop {field}" in caplog.text)
    assert f"{code};at={field};drop" in response.headers["x-dragoman-loss"]
    wait_until(lambda: count() == before + 1)
    assert field not in scene.heard


SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    *(
        (door, dialect, more, param)
        for door, more, param in (
            ("responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
            ("messages", {"inference_geo": "us"}, "inference_geo"),
            ("chat", {"n": 2}, "n"),
            ("chat", {"messages": [{"role": "user", "content": [SOUND]}]}, "turns[0]"),
        )
        for dialect in DOORS
        if dialect != door
    )
]


@pytest.mark.parametrize(("door", "dialect", "more", "param"), REFUSED)
def test_what_would_make_it_another_request_is_refused_over_every_other_dialect(
    stage: Stage, door: str, dialect: str, more: dict[str, Any], param: str
) -> None:
    scene = stage.scene(dialect, SHORT)
    response = ask(stage.url, door, plain_body(door, scene.model, **more))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"].startswith(param)
    if door != "messages":  # whose errors have no param
        assert error["param"].startswith(param)
    assert scene.requests == []


@pytest.mark.parametrize(
    ("door", "more"),
    [
        ("responses", {"conversation": "conv_1", "truncation": "auto", "max_tool_calls": 3}),
        ("messages", {"inference_geo": "us", "context_management": {"edits": []}}),
        ("chat", {"n": 2, "moderation": {"model": "m", "policy": {"input": {"mode": "block"}}}}),
    ],
)
def test_an_upstream_of_the_clients_dialect_is_asked_for_all_of_it(
    stage: Stage, door: str, more: dict[str, Any]
) -> None:
    scene = stage.scene(door, SHORT)
    response = ask(stage.url, door, plain_body(door, scene.model, **more))
    assert response.status_code == 200
    assert "x-dragoman-loss" not in response.headers
    assert {name: scene.heard[name] for name in more} == more


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_fields_that_say_nothing_are_no_loss(stage: Stage, dialect: str) -> None:
    idle = {"truncation": "disabled", "background": False, "conversation": None, "prompt": None}
    scene = stage.scene(dialect, SHORT)
    response = ask(stage.url, "responses", plain_body("responses", scene.model, **idle))
    assert response.status_code == 200
    assert "x-dragoman-loss" not in response.headers


@dialects
@doors
def test_nothing_is_declared_where_nothing_is_lost(stage: Stage, door: str, dialect: str) -> None:
    scene = stage.scene(dialect, ANSWER)
    response = ask(stage.url, door, plain_body(door, scene.model, stream=True))
    assert response.status_code == 200
    assert "x-dragoman-loss" not in response.headers


@pytest.mark.parametrize(
    ("door", "dialect", "more"),
    [
        ("messages", "chat", {"top_k": 5}),
        ("chat", "messages", {"seed": 7}),
        ("chat", "responses", {"logit_bias": {"1": 1}}),
    ],
)
def test_a_loss_that_the_operator_refuses_is_a_bad_request(
    stage: Stage, door: str, dialect: str, more: dict[str, Any]
) -> None:
    scene = stage.scene(dialect, SHORT, route=f"strict-{dialect}")
    response = ask(stage.url, door, plain_body(door, scene.model, **more))
    assert response.status_code == 400
    assert next(iter(more)) in response.json()["error"]["message"]
    assert scene.requests == []


@dialects
@doors
def test_fields_that_the_operator_leaves_out_are_lost_and_reported(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, SHORT, route=f"narrow-{dialect}")
    response = ask(stage.url, door, plain_body(door, scene.model, temperature=0.5, top_p=0.5))
    assert response.status_code == 200
    assert not {"temperature", "top_p", "seed"} & scene.heard.keys()
    assert "unknown_field" in response.headers["x-dragoman-loss"]


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_response_that_is_not_kept_cannot_be_continued(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, SHORT)
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client(stage.url).responses.create(
            model=scene.model, input="and then?", previous_response_id="resp_1"
        )
    error: Any = caught.value
    assert error.param == "previous_response_id"


@pytest.mark.parametrize("door", ["chat", "responses"])
def test_limits_of_an_upstream_and_its_models_hold(stage: Stage, door: str) -> None:
    scene = stage.scene("messages", SHORT, route="limited")
    name = "a_name_that_is_longer_than_twenty"
    asking = conversation(door, stage.url, scene.model, tools=(Offered(name, SCHEMA),))
    asking.say("hi")
    asking.ask("create")
    heard = hear("messages", scene.requests[0].body)
    assert scene.heard["max_tokens"] == 321
    assert len(heard.tools[0].name) <= 20


# --- the required-action profile --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def storing_stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


@dialects
def test_the_required_action_profile_is_chosen_by_a_header(
    storing_stage: Stage, dialect: str
) -> None:
    stage = storing_stage
    scene = stage.scene(dialect, ANSWER, ANSWER)
    body = plain_body("responses", scene.model, stream=True)
    headers = {"x-dragoman-profile": "required-action"}
    sent = ask(stage.url, "responses", body, headers).text
    payloads = [
        json.loads(line.removeprefix("data: "))
        for line in sent.splitlines()
        if line.startswith("data: {")
    ]
    assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))
    kinds = [payload["type"] for payload in payloads]
    assert kinds.count("response.required_action") == 1
    action = payloads[kinds.index("response.required_action")]
    assert "call_1" in json.dumps(action)
    assert "call_2" in json.dumps(action)
    assert payloads[-1]["response"]["status"] == "incomplete"
    plain = ask(stage.url, "responses", body).text
    assert "required_action" not in plain
    assert '"status":"completed"' in plain.replace(" ", "")


# --- Anthropic's message threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@dialects
def test_the_tool_runner_falls_back_to_full_history_and_completes(
    stage: Stage, dialect: str, is_stream: bool
) -> None:
    asked: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: where
        """
        asked.append(city)
        return f"sunny in {city}"

    scene = stage.scene(dialect, ANSWER, Answer((Said(("Sunny ", "in both.")),)))
    runner: Any = anthropic_client(stage.url).beta.messages.tool_runner(
        model=scene.model,
        max_tokens=99,
        tools=[get_weather],
        messages=[{"role": "user", "content": "How is the weather?"}],
        stream=is_stream,
    )
    final = runner.until_done()
    assert asked == ["Paris", "Rome"]
    assert final.content[0].text == "Sunny in both."
    assert len(scene.requests) == 2
    heard = hear(dialect, scene.requests[1].body)
    assert [(result.call_id, result.text) for result in heard.results] == [
        ("call_1", "sunny in Paris"),
        ("call_2", "sunny in Rome"),
    ]
    assert heard.said("user") == ["How is the weather?"]
    assert b"thread" not in scene.requests[1].body


@dialects
def test_without_a_store_a_thread_is_refused_in_the_words_that_make_sdks_fall_back(
    dialect: str,
) -> None:
    with running_stage(store=StoreSettings(policy="off")) as stage:
        scene = stage.scene(dialect, SHORT)
        body = plain_body("messages", scene.model, thread={"type": "create"})
        response = ask(stage.url, "messages", body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"]["error_code"] == "thread_unsupported_request"
    assert scene.requests == []
