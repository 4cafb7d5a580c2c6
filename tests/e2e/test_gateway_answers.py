"""Every kind of answer through every pair of door and upstream, in every mode of the real SDKs.

The tests check both ends: what the SDK assembled, and what the upstream received.
"""

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from msgspec import Struct

from gateway_harness import wait_until
from heard import HeardTool, Spoken, hear
from plain_http import ask, plain_body
from sdk_clients import DOORS, MODES, Got, Offered, SeenCall, conversation
from stage import PATHS, UPSTREAM_KEY, Delivery, Stage, running_stage
from vendor_wire import Answer, Said, Tool

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
EMPTY: dict[str, Any] = {
    "type": "object",
    "properties": {},
    "required": [],
    "additionalProperties": False,
}
ANYTHING = {
    "type": "object",
    "properties": {"note": {"type": "string"}},
    "required": ["note"],
    "additionalProperties": False,
}
TOOLS = (
    Offered("get_weather", SCHEMA, "the weather in a city", strict=True),
    Offered("get_time", EMPTY, "the time", strict=True),
    Offered("take_note", ANYTHING, "writes down", strict=True),
)
WORDS = 'Zażółć gęślą jaźń \U0001f469\u200d\U0001f680 \u2028 \u0085 שלום \\ " \x7f end'
LARGE = json.dumps({"note": "0123456789abcde\n" * 18_750})  # 300 KB of text, more on the wire
SPELLED = (
    '{"note": "\\u00e9é\\/", "n": 1e2, "big": 123456789012345678901234567890, "f": 1.50 , "n":1}'
)


def pieces(text: str, size: int = 7) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size))


def weather(call_id: str, city: str) -> Tool:
    return Tool(call_id, "get_weather", pieces(json.dumps({"city": city, "days": 2})))


class Case(Struct, frozen=True):
    name: str
    answer: Answer
    delivery: Delivery = "whole"


CASES = (
    Case("text", Answer((Said(("Hello", ", ", "world.")),))),
    Case("one_call", Answer((weather("call_1", "Paris"),))),
    Case("parallel_calls", Answer((weather("call_1", "Paris"), weather("call_2", "Rome"), Tool("call_3", "get_time", ("{}",))))),
    Case("interleaved_calls", Answer((weather("call_1", "Paris"), weather("call_2", "Rome")), interleaved=True)),
    Case("text_then_call", Answer((Said(("Let me ", "look.")), weather("call_1", "Paris")))),
    Case("text_between_calls", Answer((weather("call_1", "Paris"), Said(("And ", "then. ")), weather("call_2", "Rome"), Said(("Done.",))))),
    Case("empty_arguments", Answer((Tool("call_1", "get_time", ()),))),
    Case("large_arguments", Answer((Tool("call_1", "take_note", pieces(LARGE, 4000)),))),
    Case("unicode_text_in_single_bytes", Answer((Said(tuple(WORDS)),)), "bytes"),
    Case("unicode_arguments_in_single_bytes", Answer((Tool("call_1", "take_note", tuple(json.dumps({"note": WORDS}, ensure_ascii=False))),)), "bytes"),
    Case("unicode_arguments_in_frames", Answer((Tool("call_1", "take_note", pieces(json.dumps({"note": WORDS}), 1)),)), "frames"),
    Case("crlf", Answer((Said(("one\n", "two\r\n")), weather("call_1", "Paris"))), "crlf"),
    Case("cr", Answer((Said(("one\n", "two\r\n")), weather("call_1", "Paris"))), "cr"),
    Case("spelling_of_arguments", Answer((Tool("call_1", "take_note", pieces(SPELLED)),))),
    Case("length", Answer((Said(("It was a dark and",)),), finish="length")),
    Case("refusal", Answer((Said(("I can't ", "do that.")),), finish="refusal")),
)  # fmt: skip

FINISHES = {
    "stop": {"chat": "stop", "responses": "completed", "messages": "end_turn"},
    "calls": {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"},
    "length": {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"},
    # OpenAI marks a refusal by the kind of its text, Anthropic by the stop reason.
    "refusal": {"chat": "stop", "responses": "completed", "messages": "refusal"},
    "stopped by refusal": {
        "chat": "content_filter",
        "responses": "content_filter",
        "messages": "refusal",
    },
}
_RAISED: dict[str, type[Exception]] = {
    "length": openai.LengthFinishReasonError,
    "content_filter": openai.ContentFilterFinishReasonError,
}
SDK_RAISES = {("chat", "parse"): _RAISED, ("chat", "helper"): _RAISED}
"""Where strict tools are offered these modes have an exception of their own for some finishes."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


PARSED = ("text", "one_call", "parallel_calls", "empty_arguments", "length")
"""`parse` asks as `create` does and differs in what the SDK does with the body: fewer cases show it."""


def every_case() -> list[Any]:
    return [
        pytest.param(door, mode, dialect, case, id=f"{door}-{mode}-over-{dialect}-{case.name}")
        for door in DOORS
        for mode in MODES[door]
        for dialect in DOORS
        for case in CASES
        if mode != "parse" or case.name in PARSED
    ]


@pytest.mark.parametrize(("door", "mode", "dialect", "case"), every_case())
def test_an_answer_comes_out_as_it_went_in(
    stage: Stage, door: str, mode: str, dialect: str, case: Case
) -> None:
    scene = stage.scene(dialect, case.answer, delivery=case.delivery)
    asking = conversation(door, stage.url, scene.model, tools=TOOLS, system="Be brief.")
    asking.say("What is the weather?")
    raised = SDK_RAISES.get((door, mode), {}).get(FINISHES[finish_of(case.answer, dialect)][door])
    if raised is None:
        got = asking.ask(mode)
        check_told(got, case.answer, door, dialect)
        is_encoded = door == "responses" and dialect != "responses"
        # Over an upstream of the same dialect, an answer is relayed or encoded.
        models = {scene.model} if is_encoded else {case.answer.model}
        assert got.model in (models | {scene.model} if door == "responses" else models)
    else:
        with pytest.raises(raised):
            asking.ask(mode)
    assert len(scene.requests) == 1
    request = scene.requests[0]
    assert (request.method, request.path) == ("POST", PATHS[dialect])
    assert UPSTREAM_KEY in (
        request.headers.get("x-api-key"),
        request.headers.get("authorization", "").removeprefix("Bearer "),
    )
    assert "key-of-the-client" not in str(request.headers)
    assert request.headers["content-type"] == "application/json"
    assert ("anthropic-version" in request.headers) == (dialect == "messages")
    heard = hear(dialect, request.body)
    assert heard.stream == (mode in ("stream", "helper"))
    assert heard.turns == [Spoken("system", "Be brief."), Spoken("user", "What is the weather?")]
    assert heard.tools == [
        HeardTool(tool.name, tool.schema, tool.description) for tool in asking.tools
    ]


def finish_of(answer: Answer, dialect: str) -> str:
    if answer.finish == "refusal":
        return "stopped by refusal" if dialect == "messages" else "refusal"
    return "calls" if answer.calls else answer.finish


def check_told(got: Got, answer: Answer, door: str, dialect: str) -> None:
    said = "".join(part.text for part in answer.parts if isinstance(part, Said))
    finish = finish_of(answer, dialect)
    is_refusal_part = finish == "refusal" and door != "messages"
    assert (got.text, got.refusal) == (("", said) if is_refusal_part else (said, ""))
    assert got.finish == FINISHES[finish][door]
    check_calls(got.calls, answer)
    cached = answer.usage["cached"]
    own = answer.usage["input"] - (cached if door == "messages" else 0)
    assert got.usage == (own, answer.usage["output"], cached)


def check_calls(seen: list[SeenCall], answer: Answer) -> None:
    assert [(call.call_id, call.name) for call in seen] == [
        (call.call_id, call.name) for call in answer.calls
    ]
    for call, wanted in zip(seen, answer.calls, strict=True):
        text = wanted.arguments or "{}"
        assert call.arguments == (text if isinstance(call.arguments, str) else json.loads(text))


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.requirement("S002-28", "S003-66")
def test_each_call_has_a_debug_line_without_its_input(
    stage: Stage, door: str, dialect: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = weather("call_1", "Paris"), weather("call_2", "Oslo-the-secret")
    scene = stage.scene(dialect, *[Answer((first, second))] * 2)

    def lines_at(level: int) -> list[str]:
        caplog.clear()
        with caplog.at_level(level, logger="dragoman"):
            body = plain_body(door, scene.model, stream=stream)
            assert ask(stage.url, door, body, {"x-request-id": "req-of-mine"}).status_code == 200
            wait_until(lambda: any(scene.model in text for text in logged("dragoman.requests")))
        return logged("dragoman.calls")

    def logged(name: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == name]

    assert lines_at(logging.INFO) == []
    sizes = [len(each.arguments) for each in (first, second)]
    assert lines_at(logging.DEBUG) == [
        f"tool call get_weather, id {call_id}, {size} characters of input, "
        f"{dialect} to {door}, request req-of-mine"
        for call_id, size in zip(("call_1", "call_2"), sizes, strict=True)
    ]
    assert "Oslo-the-secret" not in caplog.text


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DOORS)
def test_ids_differ_in_a_conversation_whose_requests_all_have_one_id(
    stage: Stage, door: str, stream: bool
) -> None:
    """A program in a service mesh passes the id of its own request on with each of its requests."""
    scene = stage.scene("chat", *[Answer((Tool("", "get_time", ("{}",)),))] * 2)
    found: list[str] = []
    for said in ("Hi.", "Hi, again."):
        more = {"input": said} if door == "responses" else {"messages": [user(said)]}
        body = {**plain_body(door, scene.model, stream=stream), **more}
        answer = ask(stage.url, door, body, {"x-request-id": "of-the-mesh"})
        assert answer.headers["x-request-id"] == "of-the-mesh"
        found.append(re.findall(r'"((?:call|toolu)_\w{20,})"', answer.text)[0])
    assert found[0] != found[1]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
