"""Calls that a model writes as text reach every client as calls, streamed and not; what only looks like one is text."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, sse
from gateway_harness import DIALECTS, wait_until
from plain_http import ask as plain_ask
from plain_http import fetch, plain_body
from sdk_clients import DOORS, MODES, Got, Offered, conversation
from stage import Delivery, Stage, running_stage
from text_forms import ARGUMENTS, CALL_FORMATS, FORMS, WORDS, Form
from vendor_wire import Answer, Said, Tool, body_bytes, stream

WEATHER = Offered(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "parts": {"type": "array"},
        },
    },
    "the weather in a city",
)
TIME = Offered("get_time", {"type": "object", "properties": {}}, "the time")
TOOLS = (WEATHER, TIME)
NOT_SENTINEL = tuple(name for name, pattern in CALL_FORMATS.items() if not pattern.is_sentinel)
CALLED = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}
STOPPED = {"chat": "stop", "responses": "completed", "messages": "end_turn"}
CUT = {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"}
HERMES = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, dict[str, object]] = {kind: {"kind": kind} for kind in DIALECTS}
    upstreams |= {name: {"kind": "chat", "text_calls": (name,)} for name in NOT_SENTINEL}
    upstreams["off"] = {"kind": "chat", "text_calls": ()}
    upstreams |= {f"exact-{kind}": {"kind": kind, "passthrough": "exact"} for kind in DIALECTS}
    # The scripted upstream gives all its responses one id, which a store would not leave to them.
    with running_stage(upstreams=upstreams, store=StoreSettings(policy="off")) as running:
        yield running


def pieces(text: str, size: int = 5) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size))


def ask(
    stage: Stage,
    door: str,
    mode: str,
    answer: Answer,
    *,
    dialect: str = "chat",
    route: str | None = None,
    delivery: Delivery = "whole",
    tools: tuple[Offered, ...] = TOOLS,
    more: dict[str, Any] | None = None,
) -> Got:
    scene = stage.scene(dialect, answer, route=route, delivery=delivery)
    asking = conversation(door, stage.url, scene.model, tools=tools, more=more)
    asking.say("What is the weather?")
    return asking.ask(mode)


def called(got: Got) -> list[tuple[str, object]]:
    return [
        (
            call.name,
            json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments,
        )
        for call in got.calls
    ]


def wanted(form: Form) -> list[tuple[str, object]]:
    both: list[tuple[str, object]] = [("get_weather", ARGUMENTS), ("get_time", {})]
    return both[: form.calls]


def check_calls(got: Got, form: Form, door: str) -> None:
    assert called(got) == wanted(form)
    assert got.text.strip() == WORDS
    assert got.finish == CALLED[door]
    ids = [call.call_id for call in got.calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def every_mode() -> list[tuple[str, str]]:
    return [(door, mode) for door in DOORS for mode in MODES[door]]


def test_every_format_of_the_scanner_is_tried_here() -> None:
    assert set(FORMS) == set(CALL_FORMATS)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("door", DOORS)
def test_a_written_call_is_a_call_streamed_and_not(stage: Stage, door: str, name: str) -> None:
    form = FORMS[name]
    route = name if name in NOT_SENTINEL else None
    answer = Answer((Said(pieces(form.text)),))
    lines = {mode: ask(stage, door, mode, answer, route=route) for mode in ("create", "stream")}
    for got in lines.values():
        check_calls(got, form, door)
    assert lines["create"].text == lines["stream"].text
    if door != "messages":  # whose SDK keeps no text of arguments that came in a body
        written = [[call.arguments for call in got.calls] for got in lines.values()]
        assert written[0] == written[1]
    assert lines["create"].usage == lines["stream"].usage


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "use_tool", "deepseek_v31", "gemma4"])
@pytest.mark.parametrize(("door", "mode"), every_mode())
def test_every_mode_of_the_sdks_understands_them(
    stage: Stage, door: str, mode: str, name: str
) -> None:
    # `parse` and `helper` of the Chat SDK refuse tools that are not strict.
    tools = TOOLS if door != "chat" or mode in ("create", "stream") else strict_tools()
    form = FORMS[name] if tools is TOOLS else Form(f"{WORDS}\n{HERMES}", 1)
    got = ask(stage, door, mode, Answer((Said(pieces(form.text)),)), tools=tools)
    assert called(got) == (wanted(form) if tools is TOOLS else [("get_time", {})])
    assert got.finish == CALLED[door]


def strict_tools() -> tuple[Offered, ...]:
    closed: dict[str, Any] = {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    return (Offered("get_time", closed, "the time", strict=True),)


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("delivery", ["bytes", "frames", "crlf"])
@pytest.mark.parametrize("name", ["hermes", "deepseek_v3", "glm"])
def test_how_the_text_is_cut_changes_nothing(
    stage: Stage, name: str, delivery: Delivery, size: int
) -> None:
    answer = Answer((Said(pieces(FORMS[name].text, size)),))
    check_calls(ask(stage, "chat", "stream", answer, delivery=delivery), FORMS[name], "chat")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("door", "mode"), [(door, mode) for door in DOORS for mode in ("create", "stream")]
)
def test_upstreams_of_every_dialect_are_read(
    stage: Stage, door: str, mode: str, dialect: str
) -> None:
    form = FORMS["hermes"]
    got = ask(stage, door, mode, Answer((Said(pieces(form.text)),)), dialect=dialect)
    check_calls(got, form, door)


@pytest.mark.parametrize("mode", ["create", "stream"])
def test_written_calls_get_namespaces_and_free_text_back(stage: Stage, mode: str) -> None:
    tools = (
        Offered("read", TIME.schema, "reads", namespace="files"),
        Offered("run", custom=True, description="runs a script"),
    )
    text = (
        '<tool_call>\n{"name": "files__read", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "run", "arguments": {"input": "a \\"b\\""}}\n</tool_call>'
    )
    read, run = ask(stage, "responses", mode, Answer((Said(pieces(text)),)), tools=tools).calls
    assert (read.name, read.namespace) == ("read", "files")
    assert (run.name, run.custom, run.arguments) == ("run", True, 'a "b"')


@pytest.mark.parametrize("mode", ["create", "stream"])
def test_an_allowed_tool_is_found_under_the_name_the_upstream_knows(
    stage: Stage, mode: str
) -> None:
    tools = (Offered("read", TIME.schema, "reads", namespace="files"), TIME)
    allowed = [{"type": "function", "name": "read", "namespace": "files"}]
    more = {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": allowed}}
    text = f'<tool_call>\n{{"name": "files__read", "arguments": {{}}}}\n</tool_call>\n{HERMES}'
    got = ask(stage, "responses", mode, Answer((Said(pieces(text)),)), tools=tools, more=more)
    assert [(call.name, call.namespace) for call in got.calls] == [("read", "files")]


# --- what is not a call -----------------------------------------------------------------------------------------------

PROSE = {
    "about the tag": "Models write <tool_call> before a call, and </tool_call> after it. A [TOOL_CALLS] is another way.",
    "inline code": f"Write `{HERMES.replace(chr(10), '')}` to ask for the time.",
    "a code fence": f"Like this:\n\n```xml\n{HERMES}\n```\n\nThat is all.",
    "a tool nobody offers": '<tool_call>\n{"name": "launch", "arguments": {}}\n</tool_call>',
    "broken markup": '<tool_call>\n{"name": "get_time", "arguments": {"a": }\n</tool_call> and so on',
    "near openers": "a < b, <tool, <tool_cal>, <|tool, [TOOL, <use_tool >, <function, ```tool",
    "json in prose": 'The answer is {"name": "get_time", "arguments": {}}.',
}


@pytest.mark.parametrize("case", PROSE)
@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_what_only_looks_like_a_call_is_text(stage: Stage, door: str, mode: str, case: str) -> None:
    got = ask(stage, door, mode, Answer((Said(pieces(PROSE[case])),)))
    assert got.text == PROSE[case]
    assert got.calls == []
    assert got.finish == STOPPED[door]


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_without_tools_everything_is_text(stage: Stage, door: str, mode: str) -> None:
    got = ask(stage, door, mode, Answer((Said(pieces(HERMES)),)), tools=())
    assert (got.text, got.calls) == (HERMES, [])


NO_TOOL: dict[str, Any] = {"chat": "none", "responses": "none", "messages": {"type": "none"}}


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_where_no_tool_may_be_called_everything_is_text(stage: Stage, door: str, mode: str) -> None:
    more = {"tool_choice": NO_TOOL[door]}
    got = ask(stage, door, mode, Answer((Said(pieces(HERMES)),)), more=more)
    assert (got.text, got.calls) == (HERMES, [])


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_an_upstream_may_be_left_unread(stage: Stage, door: str, mode: str) -> None:
    got = ask(stage, door, mode, Answer((Said(pieces(HERMES)),)), route="off")
    assert (got.text, got.calls) == (HERMES, [])


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_a_block_that_was_cut_off_is_no_call(stage: Stage, door: str, mode: str) -> None:
    cut = f'{WORDS}\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Par'
    got = ask(stage, door, mode, Answer((Said(pieces(cut)),), finish="length"))
    assert got.calls == []
    assert got.text == cut
    assert got.finish == CUT[door]


# --- text around calls ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_a_turn_ends_with_the_calls_that_came_as_text(stage: Stage, door: str, mode: str) -> None:
    text = f"{WORDS}\n{HERMES}\n\n{HERMES}\nThe time is five. {HERMES}"
    got = ask(stage, door, mode, Answer((Said(pieces(text)),)))
    assert called(got) == [("get_time", {}), ("get_time", {})]
    assert got.text.strip() == WORDS
    assert got.finish == CALLED[door]


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_prose_about_a_tag_does_not_hide_the_call_behind_it(
    stage: Stage, door: str, mode: str
) -> None:
    said = "I use <tool_call> now, not ```<tool_call>```."
    got = ask(stage, door, mode, Answer((Said(pieces(f"{said}\n{HERMES}")),)))
    assert called(got) == [("get_time", {})]
    assert got.text.strip() == said


# --- structured calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_structured_calls_pass_as_they_are(stage: Stage, door: str, mode: str) -> None:
    call = Tool("call_1", "get_weather", pieces('{"city": "<tool_call>", "days": 2}'))
    got = ask(stage, door, mode, Answer((Said((WORDS,)), call)))
    assert called(got) == [("get_weather", {"city": "<tool_call>", "days": 2})]
    assert got.text == WORDS
    assert got.finish == CALLED[door]


def call_before_text(_: ReceivedRequest) -> ScriptedReply:
    """A server that sends a structured call, then text with the same call in its markup."""
    function = {"name": "get_time", "arguments": "{}"}
    deltas: list[dict[str, Any]] = [
        {"role": "assistant"},
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]},
        *({"content": piece} for piece in pieces(HERMES)),
    ]
    frames = [
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in [*((delta, None) for delta in deltas), ({}, "tool_calls")]
    ]  # fmt: skip
    result = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
    return sse(result.encode())


@pytest.mark.parametrize("door", DOORS)
def test_a_structured_call_ends_the_search_for_written_ones(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", call_before_text)
    asking = conversation(door, stage.url, scene.model, tools=TOOLS)
    asking.say("What time is it?")
    got = asking.ask("stream")
    assert [call.name for call in got.calls] == ["get_time"]
    assert got.text == HERMES
    assert got.finish == CALLED[door]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_a_call_that_is_written_and_structured_is_sent_once(
    stage: Stage, door: str, mode: str, dialect: str
) -> None:
    """A server whose parser leaves the markup in the text."""
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
    same = Tool("call_1", "get_weather", pieces('{"days":2,"city":"Paris"}'))
    other = Tool("call_2", "get_time", ("{}",))
    answer = Answer((Said(pieces(f"{WORDS}\n{written}")), same, other))
    got = ask(stage, door, mode, answer, dialect=dialect)
    assert called(got) == [("get_weather", {"city": "Paris", "days": 2}), ("get_time", {})]
    assert [call.call_id for call in got.calls] == ["call_1", "call_2"]
    assert got.text.strip() == WORDS
    assert got.finish == CALLED[door]


# --- the same dialect on both sides -----------------------------------------------------------------------------------


def offering(door: str, model: str, *, is_stream: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools: dict[str, dict[str, Any]] = {
        "chat": {"type": "function", "function": {"name": "get_time", "parameters": schema}},
        "responses": {"type": "function", "name": "get_time", "parameters": schema},
        "messages": {"name": "get_time", "input_schema": schema},
    }
    more: dict[str, Any] = {"tools": [tools[door]], "stream": is_stream}
    if door == "chat" and is_stream:
        more["stream_options"] = {"include_usage": True}
    return plain_body(door, model, **more)


@pytest.mark.parametrize("case", PROSE)
@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_an_answer_without_calls_in_its_text_is_forwarded_byte_for_byte(
    stage: Stage, door: str, is_stream: bool, case: str
) -> None:
    scene = stage.scene(door, delivery="bytes")
    call = Tool("call_1", "get_time", ('{"a": ', '"<tool_call>"}'))
    answer = Answer((Said(pieces(PROSE[case], 3)), call), model=scene.model)
    scene.parts.append(answer)
    response = plain_ask(stage.url, door, offering(door, scene.model, is_stream=is_stream))
    assert response.content == (stream if is_stream else body_bytes)(door, answer)


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_who_wants_answers_exactly_gets_the_text_as_it_is(
    stage: Stage, door: str, is_stream: bool
) -> None:
    scene = stage.scene(door, route=f"exact-{door}")
    answer = Answer((Said(pieces(HERMES)),), model=scene.model)
    scene.parts.append(answer)
    response = plain_ask(stage.url, door, offering(door, scene.model, is_stream=is_stream))
    assert response.content == (stream if is_stream else body_bytes)(door, answer)


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_why_a_block_stayed_text_is_counted(stage: Stage, door: str, mode: str) -> None:
    said = PROSE["a tool nobody offers"]
    before = problems_of(stage, door)
    ask(stage, door, mode, Answer((Said(pieces(said)),)), dialect=door)
    # A request is counted when it is over, which is after its client has heard the end.
    wait_until(lambda: problems_of(stage, door) == before + 1)


def problems_of(stage: Stage, upstream: str) -> float:
    name = f'dragoman_problems_total{{kind="text_unknown_tool",upstream="{upstream}"}} '
    text = fetch("GET", f"{stage.url}/metrics").text
    found = [line for line in text.splitlines() if line.startswith(name)]
    return float(found[0].removeprefix(name)) if found else 0.0


# --- the conversation goes on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["create", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_results_of_written_calls_go_back_under_their_ids(
    stage: Stage, door: str, mode: str
) -> None:
    form = FORMS["qwen3_coder"]
    scene = stage.scene("chat", Answer((Said(pieces(form.text)),)), Answer((Said(("Sunny.",)),)))
    asking = conversation(door, stage.url, scene.model, tools=TOOLS)
    asking.say("What is the weather?")
    got = asking.ask(mode)
    for number, call in enumerate(got.calls):
        asking.answer(call, f"result {number}")
    assert asking.ask(mode).text == "Sunny."
    messages = scene.heard["messages"]
    said = next(message for message in messages if message["role"] == "assistant")
    results = [message for message in messages if message["role"] == "tool"]
    assert [call["id"] for call in said["tool_calls"]] == [
        message["tool_call_id"] for message in results
    ]
    assert [message["content"] for message in results] == ["result 0", "result 1"]
