"""A model without tools, behind an upstream with `prompted_tools`: its clients call tools as with any other."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.testing import ReceivedRequest, ScriptedReply
from dragoman.textcalls.prompting import PROMPT_FORMATS
from gateway_harness import connection
from sdk_clients import DOORS, Conversation, Got, Image, Offered, conversation
from stage import Scene, Stage, deliver, running_stage
from text_forms import ARGUMENTS, FORMS, WORDS
from vendor_wire import Answer, Said

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
IMAGE = Image("image/png", "aGVsbG8=")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, dict[str, object]] = {
        f"prompted-{name}": {"kind": "chat", "prompted_tools": name} for name in PROMPT_FORMATS
    }
    upstreams["prompted-over-messages"] = {"kind": "messages", "prompted_tools": "hermes"}
    upstreams["prompted-over-responses"] = {"kind": "responses", "prompted_tools": "hermes"}
    with running_stage(upstreams=upstreams) as running:
        yield running


def said(text: str, size: int = 4) -> Answer:
    return Answer((Said(tuple(text[at : at + size] for at in range(0, len(text), size))),))


def called(got: Got) -> list[tuple[str, object]]:
    return [
        (
            call.name,
            json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments,
        )
        for call in got.calls
    ]


def begin(
    stage: Stage,
    door: str,
    name: str,
    *answers: Answer,
    dialect: str = "chat",
    tools: tuple[Offered, ...] = TOOLS,
    more: dict[str, Any] | None = None,
) -> tuple[Scene, Conversation]:
    scene = stage.scene(dialect, *answers, route=f"prompted-{name}")
    asking = conversation(door, stage.url, scene.model, tools=tools, system="Be brief.", more=more)
    asking.say("What is the weather?")
    return scene, asking


def text_of(message: Any) -> str:
    content = message["content"]
    return (
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    )


@pytest.mark.parametrize("name", PROMPT_FORMATS)
@pytest.mark.parametrize("door", DOORS)
def test_a_conversation_with_tools_over_a_model_that_has_none(
    stage: Stage, door: str, name: str
) -> None:
    form = FORMS[name]
    scene, asking = begin(stage, door, name, said(form.text), said("It is sunny."))
    got = asking.ask("stream")
    assert called(got) == [("get_weather", ARGUMENTS), ("get_time", {})][: form.calls]
    assert got.text.strip() == WORDS
    for number, call in enumerate(got.calls):
        asking.answer(call, f"result {number}")
    last = asking.ask("create")
    assert (last.text, last.calls) == ("It is sunny.", [])

    first, second = (json.loads(request.body) for request in scene.requests)
    for body in (first, second):
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()
        head = body["messages"][0]
        assert head["role"] in ("system", "developer")
        assert text_of(head).startswith("Be brief.\n\n")
        assert "the weather in a city" in text_of(head)
    assert [message["role"] for message in second["messages"][1:]] == ["user", "assistant", "user"]
    again, results = (text_of(message) for message in second["messages"][2:])
    # Clients and literals keep no white space between the tokens of arguments.
    assert again.split("\n")[0] == WORDS
    assert "".join(again.split()) == "".join(form.text.split())
    for number in range(form.calls):
        assert f"result {number}" in results


@pytest.mark.parametrize("dialect", ["messages", "responses"])
@pytest.mark.parametrize("door", DOORS)
def test_upstreams_of_the_other_dialects_can_be_prompted_too(
    stage: Stage, door: str, dialect: str
) -> None:
    answers = said(FORMS["hermes"].text), said("It is sunny.")
    scene, asking = begin(stage, door, f"over-{dialect}", *answers, dialect=dialect)
    got = asking.ask("stream")
    assert [call.name for call in got.calls] == ["get_weather", "get_time"]
    for call in got.calls:
        asking.answer(call, "warm")
    assert asking.ask("create").text == "It is sunny."
    body = scene.requests[-1].body.decode()
    assert '"tools"' not in body
    assert "tool_response" in body


@pytest.mark.parametrize("door", DOORS)
def test_a_demanded_call_is_asked_for_in_words(stage: Stage, door: str) -> None:
    choice: dict[str, Any] = {
        "chat": "required",
        "responses": "required",
        "messages": {"type": "any"},
    }
    more = {"tool_choice": choice[door]}
    scene, asking = begin(stage, door, "hermes", said(FORMS["hermes"].text), more=more)
    assert len(asking.ask("create").calls) == 2
    assert "you must call at least one function" in text_of(scene.heard["messages"][0])


@pytest.mark.parametrize("door", DOORS)
def test_where_no_tool_may_be_called_none_is_offered(stage: Stage, door: str) -> None:
    choice: dict[str, Any] = {"chat": "none", "responses": "none", "messages": {"type": "none"}}
    more = {"tool_choice": choice[door]}
    scene, asking = begin(stage, door, "hermes", said("Hello."), more=more)
    assert asking.ask("create").text == "Hello."
    assert text_of(scene.heard["messages"][0]) == "Be brief."


@pytest.mark.parametrize("door", DOORS)
def test_an_image_in_a_result_reaches_the_model(stage: Stage, door: str) -> None:
    answers = said(FORMS["hermes"].text), said("A cat.")
    scene, asking = begin(stage, door, "hermes", *answers)
    first, second = asking.ask("create").calls
    asking.answer(first, "see", image=IMAGE)
    asking.answer(second, "five")
    assert asking.ask("create").text == "A cat."
    content = scene.heard["messages"][-1]["content"]
    assert [part["image_url"]["url"] for part in content if part["type"] == "image_url"] == [
        IMAGE.url
    ]
    assert "see" in text_of(scene.heard["messages"][-1])


@pytest.mark.parametrize("mode", ["create", "stream"])
def test_custom_tools_and_namespaces_come_back_as_what_they_are(stage: Stage, mode: str) -> None:
    tools = (
        Offered("run", custom=True, description="runs a script"),
        Offered("read", {"type": "object", "properties": {}}, "reads", namespace="files"),
    )
    text = (
        '<tool_call>\n{"name": "run", "arguments": {"input": "print(\\"hi\\")\\n"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "files__read", "arguments": {}}\n</tool_call>'
    )
    scene, asking = begin(stage, "responses", "hermes", said(text), said("Done."), tools=tools)
    run, read = asking.ask(mode).calls
    assert (run.name, run.custom, run.arguments) == ("run", True, 'print("hi")\n')
    assert (read.name, read.namespace) == ("read", "files")
    asking.answer(run, "hi")
    asking.answer(read, "nothing")
    assert asking.ask(mode).text == "Done."
    messages = scene.heard["messages"]
    assert text_of(messages[-2]) == text.replace('{"input": "', '{"input":"')
    assert "the tools of files" in text_of(messages[0])


def test_what_a_prompt_cannot_say_is_in_the_header(stage: Stage) -> None:
    scene = stage.scene("chat", said("Hello."), route="prompted-hermes")
    function: dict[str, Any] = {
        "name": "f",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    }
    body: dict[str, Any] = {
        "model": scene.model,
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "function", "function": function}],
    }
    with connection(stage.gateway) as client:
        client.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"content-type": "application/json"},
        )
        reply = client.getresponse()
        reply.read()
    assert "strict;at=tools[0];drop" in (reply.headers["x-dragoman-loss"] or "")


@pytest.mark.parametrize("door", DOORS)
def test_calls_of_the_past_are_text_where_no_tool_is_offered_any_more(
    stage: Stage, door: str
) -> None:
    scene, asking = begin(stage, door, "hermes", said(FORMS["hermes"].text), said("It is sunny."))
    for call in asking.ask("create").calls:
        asking.answer(call, "warm")
    asking.tools = []
    assert asking.ask("create").text == "It is sunny."
    messages = scene.heard["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert text_of(messages[0]) == "Be brief."
    assert "<tool_call>" in text_of(messages[2])
    assert "<tool_response>" in text_of(messages[3])


@pytest.mark.parametrize("mode", ["create", "stream"])
def test_an_allowed_tool_is_found_under_the_name_the_prompt_gave_it(
    stage: Stage, mode: str
) -> None:
    tools = (Offered("get-time", TIME.schema, "the time"), WEATHER)
    names = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get-time"}}]}
    more = {"tool_choice": {"type": "allowed_tools", "allowed_tools": names}}
    scene = stage.scene("chat", call_of_the_first_tool, route="prompted-lfm2")
    asking = conversation("chat", stage.url, scene.model, tools=tools, more=more)
    asking.say("What time is it?")
    assert called(asking.ask(mode)) == [("get-time", {})]
    assert "the weather" not in text_of(scene.heard["messages"][0])


def call_of_the_first_tool(request: ReceivedRequest) -> ScriptedReply:
    """Calls whatever the prompt offers first."""
    body = json.loads(request.body)
    (name,) = re.findall(r'^\{"name":"(\w+)"', text_of(body["messages"][0]), re.MULTILINE)
    text = f"<|tool_call_start|>[{name}()]<|tool_call_end|>"
    return deliver("chat", said(text), is_stream=body.get("stream") is True)
