"""Prompt caching over every pair of dialects, with the vendors' SDKs: breakpoints, keys, settings and the tokens that were cached."""

import json
import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest

from dragoman.config.settings import StoreSettings
from gateway_harness import wait_until
from plain_http import ask, fetch
from sdk_clients import DOORS, Offered, anthropic_client, conversation, openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
COUNT = Offered("count", SCHEMA)
DONE = Answer((Said(("Done.",)),), usage={"input": 100, "output": 7, "cached": 60, "written": 30})
EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SESSION = "36b08826-3e67-4cdd-a5ce-1d2d83800af3"
USERS = {
    "object": json.dumps({"device_id": "d", "account_uuid": "", "session_id": SESSION}),
    "words": f"user_0123abcd_account__session_{SESSION}",
}

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
openai_doors = pytest.mark.parametrize("door", ["chat", "responses"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, Json] = {
        "always": {"kind": "messages", "cache": "always"},
        "off": {"kind": "messages", "cache": "off"},
        "hour": {"kind": "messages", "cache_ttl": "1h"},
        "keyed": {"kind": "chat", "cache": "auto"},
        "unkeyed": {"kind": "responses", "cache": "off"},
    }
    with running_stage(upstreams=upstreams, store=StoreSettings(url="memory:")) as running:
        yield running


def marks(body: Json) -> list[str]:
    """The places of the breakpoints, without the fields between them."""
    found = ["system" for block in body.get("system", ()) if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        said = message["content"]
        content = cast("list[Json]", said) if isinstance(said, list) else []
        found += [f"{message['role']} {number}" for block in content if "cache_control" in block]
    return found + [tool["name"] for tool in body.get("tools", ()) if "cache_control" in tool]


# --- breakpoints ------------------------------------------------------------------------------------------------------


@openai_doors
def test_a_tool_loop_of_four_turns_has_its_breakpoints_at_the_ends(stage: Stage, door: str) -> None:
    calls = [Answer((Tool(f"c{n}", "count", (f'{{"n":{n}}}',)),)) for n in range(3)]
    scene = stage.scene("messages", *calls, DONE)
    asking = conversation(door, stage.url, scene.model, tools=[COUNT], system="Count.")
    asking.say("Count to three.")
    for _ in calls:
        (call,) = asking.ask("stream").calls
        asking.answer(call, "counted")
    assert asking.ask("stream").text == "Done."
    bodies = [json.loads(request.body) for request in scene.requests]
    assert [marks(body) for body in bodies] == [
        ["system", "user 0"],
        ["system", "user 0", "user 2"],
        ["system", "user 2", "user 4"],
        ["system", "user 4", "user 6"],
    ]
    assert bodies[3]["messages"][6]["content"][-1]["cache_control"] == EPHEMERAL


@openai_doors
def test_the_operator_switches_breakpoints_off_or_lets_them_last_an_hour(
    stage: Stage, door: str
) -> None:
    for route, expected in (("off", None), ("hour", HOUR)):
        scene = stage.scene("messages", DONE, route=route)
        asking = conversation(door, stage.url, scene.model, system="Be brief.")
        asking.say("hi")
        asking.ask("create")
        content = scene.heard["messages"][0]["content"]
        if expected is None:
            assert (scene.heard["system"], content) == ("Be brief.", "hi")
        else:
            assert scene.heard["system"][0]["cache_control"] == expected
            assert content[0]["cache_control"] == expected


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_a_messages_client_is_relayed_byte_for_byte_whether_it_sets_breakpoints_or_not(
    stage: Stage, stream: bool
) -> None:
    for content in ("hi", [{"type": "text", "text": "hi", "cache_control": HOUR}]):
        scene = stage.scene("messages", DONE)
        fields = {"model": scene.model, "max_tokens": 9, "stream": stream}
        body = json.dumps({**fields, "messages": [{"role": "user", "content": content}]}, indent=1)
        ask(stage.url, "messages", body.encode())
        assert scene.requests[0].body == body.encode()


def test_a_messages_client_gets_breakpoints_only_where_the_operator_wants_them_always(
    stage: Stage,
) -> None:
    client = anthropic_client(stage.url)
    scene = stage.scene("messages", DONE, DONE, DONE, route="always")
    fields: Json = {"model": scene.model, "max_tokens": 9, "system": "Be brief."}
    asked = [{"role": "user", "content": "hi"}]
    client.messages.create(**fields, messages=asked)
    assert marks(scene.heard) == ["system", "user 0"]
    assert list(json.loads(scene.requests[0].body)) == ["max_tokens", "messages", "model", "system"]
    own = [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": HOUR}]}]
    client.messages.create(**fields, messages=own)
    assert marks(scene.heard) == ["user 0"]
    client.messages.create(**fields, messages=asked, cache_control=EPHEMERAL)
    assert marks(scene.heard) == []
    assert scene.heard["cache_control"] == EPHEMERAL


def chat_part(text: str, **more: Any) -> Json:
    return {"type": "text", "text": text, **more}


BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


@openai_doors
def test_explicit_breakpoints_are_the_only_ones(stage: Stage, door: str) -> None:
    scene = stage.scene("messages", DONE, DONE)
    for point in (BREAKPOINT, {}):
        kind = "input_text" if door == "responses" else "text"
        content = [{"type": kind, "text": "a document", **point}, {"type": kind, "text": "why?"}]
        more: Json = {"prompt_cache_options": {"mode": "explicit"}}
        asking = conversation(door, stage.url, scene.model, system="Be brief.", more=more)
        asking.history.append({"role": "user", "content": content})
        asking.ask("create")
    first, second = (json.loads(request.body) for request in scene.requests)
    assert marks(first) == ["user 0"]
    assert first["messages"][0]["content"][0]["cache_control"] == EPHEMERAL
    assert marks(second) == []


# --- OpenAI's fields --------------------------------------------------------------------------------------------------


SETTINGS: Json = {
    "prompt_cache_key": "key-1",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
}


@openai_doors
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_openais_fields_reach_openais_dialects_as_they_are(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, DONE)
    asking = conversation(door, stage.url, scene.model, more=dict(SETTINGS))
    kind = "input_text" if door == "responses" else "text"
    point = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}
    asking.history.append({"role": "user", "content": [{"type": kind, "text": "a", **point}]})
    asking.ask("create")
    assert {name: scene.heard[name] for name in SETTINGS} == SETTINGS
    (message,) = scene.heard["input" if dialect == "responses" else "messages"]
    (part,) = message["content"]
    written = "input_text" if dialect == "responses" else "text"
    assert part == {"type": written, "text": "a", **point}


@pytest.mark.parametrize("dialect", ["chat", "messages"])  # another Response is relayed as it came
@pytest.mark.parametrize("mode", ["create", "stream"])
def test_a_response_repeats_its_cache_settings(stage: Stage, dialect: str, mode: str) -> None:
    scene = stage.scene(dialect, DONE)
    asked = openai_client(stage.url).responses.create(
        model=scene.model, input="hi", stream=mode == "stream", **SETTINGS
    )
    found = (
        [event.response for event in asked if hasattr(event, "response")]
        if mode == "stream"
        else [asked]
    )
    assert found
    for response in found:
        repeated = response.to_dict()
        assert {name: repeated[name] for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("route", "dialect", "expected"),
    [
        ("responses", "responses", SESSION),
        ("keyed", "chat", SESSION),
        ("chat", "chat", None),  # a server that may refuse the field
        ("unkeyed", "responses", None),
    ],
)
def test_a_session_of_claude_code_is_the_key_of_an_openai_cache(
    stage: Stage, user: str, route: str, dialect: str, expected: str | None
) -> None:
    scene = stage.scene(dialect, DONE, route=route)
    answered = anthropic_client(stage.url).messages.with_raw_response.create(
        model=scene.model,
        max_tokens=20,
        metadata={"user_id": USERS[user]},
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2;"},
            {"type": "text", "text": "Be brief.", "cache_control": EPHEMERAL},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": HOUR}]}
        ],
        cache_control=EPHEMERAL,
    )
    assert scene.heard.get("prompt_cache_key") == expected
    assert b"cache_control" not in scene.requests[0].body
    assert "cache" not in answered.headers.get("x-dragoman-loss", "")


# --- tokens -----------------------------------------------------------------------------------------------------------


def usage_of(stage: Stage, door: str, model: str, *, stream: bool) -> Json:
    """The usage that the door's SDK read, as the client has it at the end."""
    if door == "messages":
        client = anthropic_client(stage.url)
        fields: Json = {"model": model, "max_tokens": 20}
        fields["messages"] = [{"role": "user", "content": "hi"}]
        if not stream:
            return cast("Json", client.messages.create(**fields).usage.to_dict())
        with client.messages.stream(**fields) as events:
            return cast("Json", events.get_final_message().usage.to_dict())
    client = openai_client(stage.url)
    if door == "responses":
        if not stream:
            return cast("Json", client.responses.create(model=model, input="hi").usage.to_dict())
        with client.responses.stream(model=model, input="hi") as events:
            return cast("Json", events.get_final_response().usage.to_dict())
    fields = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    if not stream:
        return cast("Json", client.chat.completions.create(**fields).usage.to_dict())
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options=options))
    return cast("Json", chunks[-1].usage.to_dict())


def counts(door: str, usage: Json) -> Json:
    """The cells of one column: uncached, read, written, total input, output."""
    if door == "messages":
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        total = usage["input_tokens"] + read + written
        return {"read": read, "written": written, "input": total, "output": usage["output_tokens"]}
    name = {"chat": ("prompt", "completion"), "responses": ("input", "output")}[door]
    details = usage[f"{name[0]}_tokens_details"]
    return {
        "read": details["cached_tokens"],
        "written": details.get("cache_write_tokens"),
        "input": usage[f"{name[0]}_tokens"],
        "output": usage[f"{name[1]}_tokens"],
    }


@doors
@dialects
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_cached_tokens_keep_their_counts_over_every_pair(
    stage: Stage, door: str, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, DONE)
    usage = usage_of(stage, door, scene.model, stream=stream)
    assert counts(door, usage) == {"read": 60, "written": 30, "input": 100, "output": 7}
    if door == "messages":
        assert usage["input_tokens"] == 10
        if dialect != "messages":
            five, hour = "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"
            assert usage.get("cache_creation") in ({five: 30, hour: 0}, {five: 0, hour: 0})


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_tokens_of_which_nobody_says_that_they_were_written_were_not(
    stage: Stage, dialect: str, stream: bool
) -> None:
    silent = Answer((Said(("ok",)),), usage={"input": 11, "output": 7, "cached": 3})
    for door, written in (("messages", 0), ("responses", 0)):
        if door == dialect:
            continue  # relayed as it came
        scene = stage.scene(dialect, silent)
        usage = usage_of(stage, door, scene.model, stream=stream)
        assert counts(door, usage) == {"read": 3, "written": written, "input": 11, "output": 7}


def _is_logged(caplog: pytest.LogCaptureFixture, line: re.Pattern[str]) -> bool:
    return line.search(caplog.text) is not None


def test_cached_tokens_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="dragoman.requests")
    with running_stage() as stage:
        for door, dialect in (
            ("chat", "messages"),
            ("messages", "messages"),
            ("responses", "chat"),
        ):
            scene = stage.scene(dialect, DONE)
            usage_of(stage, door, scene.model, stream=door == "responses")
            # Lines of the gateway that this module shares may still come.
            line = re.compile(
                f"{door}→{dialect} +{re.escape(scene.model)} .*  60 cached$", re.MULTILINE
            )
            wait_until(partial(_is_logged, caplog, line))
        found = fetch("GET", f"{stage.url}/v1/usage").json()
        total = found["total"]
        assert (total["cached_tokens"], total["cache_write_tokens"]) == (180, 90)
        by_name = {each["upstream"]: each["cached_tokens"] for each in found["data"]}
        assert by_name == {"messages": 120, "chat": 60}
        page = fetch("GET", f"{stage.url}/metrics").text
        labels = 'kind="write",model="messages/*",upstream="messages"'
        assert f"dragoman_cached_tokens_total{{{labels}}} 60.0" in page
