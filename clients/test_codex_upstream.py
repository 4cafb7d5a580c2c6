"""The real `codex app-server` as an upstream, asked by the vendors' SDKs at every door."""

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from clients.codex import BINARY
from clients.codex_upstream import (
    CodexGateway,
    Json,
    ScriptedModel,
    codex_gateway,
    codex_home,
    input_of,
    processes_below,
    say,
)
from clients.gateway import run_gateway
from dragoman.dialects.codex.losses import BUILTIN_NAMES
from dragoman.testing import (
    Pause,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
)
from plain_http import ask
from sdk_clients import DOORS, Conversation, Got, Image, Offered, SeenCall, conversation

SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Offered("get_weather", SCHEMA)
ARGUMENTS = '{"city":  "Zürich \\u00e9",   "days": 1.0}'
ONE = say("Let me look.", ("call_1", "get_weather", ARGUMENTS))
PIXEL = Image(
    "image/png",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
)
ERRORS = (openai.APIError, anthropic.APIError)

doors = pytest.mark.parametrize("door", DOORS)
modes = pytest.mark.parametrize("mode", ["create", "stream"])


@pytest.fixture(scope="session")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodexGateway]:
    """A gateway whose turns are held."""
    with codex_gateway(tmp_path_factory.mktemp("holding")) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def forgetting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodexGateway]:
    """A gateway that holds no turn for longer than a moment, so that all results are replayed."""
    with codex_gateway(tmp_path_factory.mktemp("forgetting"), more="held_ttl = 0.001") as gateway:
        yield gateway


@pytest.fixture(params=["held", "replayed"])
def codex(
    request: pytest.FixtureRequest, holding: CodexGateway, forgetting: CodexGateway
) -> CodexGateway:
    return holding if request.param == "held" else forgetting


def talk_at(door: str, gateway: CodexGateway, **more: Any) -> Conversation:
    return conversation(door, gateway.url, "codex", **{"tools": [WEATHER], **more})


def pause(gateway: CodexGateway) -> None:
    """Long enough for the forgetful gateway to forget; it makes no difference to the other one."""
    del gateway
    time.sleep(0.1)


def parsed(call: SeenCall) -> object:
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


def exact(call: SeenCall) -> bool:
    """Whether the arguments are the model's to the letter, where the SDK keeps the letters."""
    return not isinstance(call.arguments, str) or call.arguments == ARGUMENTS


def wait_for(is_true: Callable[[], object], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not is_true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


# --- calls and results -------------------------------------------------------------------------------------------------


@doors
@modes
def test_call_and_its_result_make_the_round(codex: CodexGateway, door: str, mode: str) -> None:
    codex.play(ONE, say("Sunny."))
    talk = talk_at(door, codex, system="Be brief.")
    talk.say("How is the weather?")
    got = talk.ask(mode)
    assert got.text == "Let me look."
    (call,) = got.calls
    assert (call.call_id, call.name) == ("call_1", "get_weather")
    assert (parsed(call), exact(call)) == (json.loads(ARGUMENTS), True)
    assert got.finish in ("tool_calls", "completed", "tool_use")
    assert (got.usage or ())[:2] == (11, 7)
    talk.answer(call, "21 degrees")
    pause(codex)
    after = talk.ask(mode)
    assert (after.text, after.calls) == ("Sunny.", [])
    assert after.finish in ("stop", "completed", "end_turn")
    assert (after.usage or ())[:2] == (11, 7)
    assert [item["type"] for item in input_of(codex.requests[-1])] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]


@doors
def test_both_ways_send_the_model_the_same(
    door: str, holding: CodexGateway, forgetting: CodexGateway
) -> None:
    found: list[list[Json]] = []
    tools: list[object] = []
    for gateway in (holding, forgetting):
        gateway.play(
            say("Ah.", ("call_1", "get_weather", "{}"), ("call_2", "get_weather", ARGUMENTS)),
            say("One more.", ("call_3", "get_weather", "{}")),
            say("Done."),
        )
        talk = talk_at(door, gateway, system="Be brief.")
        talk.say("How is the weather?")
        for number in range(2):
            got = talk.ask("stream")
            for call in got.calls:
                talk.answer(call, f"{call.call_id} of {number}")
            pause(gateway)
        assert talk.ask("stream").text == "Done."
        found.append(input_of(gateway.requests[-1]))
        tools.append(gateway.requests[-1].at("tools"))
    assert tools[0] == tools[1]
    held, replayed = ([_settled(item) for item in items] for items in found)
    assert held == replayed


def _settled(item: Json) -> Json:
    """Anthropic's clients keep objects, and so replay the arguments in other letters."""
    if item["type"] == "function_call":
        return {**item, "arguments": json.loads(item["arguments"])}
    return item


@doors
@modes
def test_parallel_calls_come_before_the_finish(codex: CodexGateway, door: str, mode: str) -> None:
    calls = [
        (f"call_{number}", "get_weather", json.dumps({"city": str(number)})) for number in range(3)
    ]
    codex.play(say("", *calls), say("All in."))
    talk = talk_at(door, codex)
    talk.say("Three cities, please.")
    got = talk.ask(mode)
    assert [(call.call_id, parsed(call)) for call in got.calls] == [
        (name, json.loads(source)) for name, _, source in calls
    ]
    for call in reversed(got.calls):
        talk.answer(call, f"result of {call.call_id}")
    pause(codex)
    assert talk.ask(mode).text == "All in."
    outputs = [
        item for item in input_of(codex.requests[-1]) if item["type"] == "function_call_output"
    ]
    assert {item["call_id"]: item["output"] for item in outputs} == {
        name: f"result of {name}" for name, _, _ in calls
    }


def test_serial_calls_come_one_by_one_in_one_turn_of_codex(holding: CodexGateway) -> None:
    codex = holding
    calls = [(f"call_{number}", "get_weather", "{}") for number in range(3)]
    codex.play(say("", *calls), say("All in."))
    parameters: Json = {"type": "object", "properties": {}}
    tools: list[Json] = [{"type": "function", "name": "get_weather", "parameters": parameters}]
    said: list[Json] = [{"type": "message", "role": "user", "content": "Three, please."}]
    body: Json = {"model": "some-model", "tools": tools, "parallel_tool_calls": False}
    for name, _, _ in calls:
        body["input"] = said
        answer = ask(codex.url, "responses", body)
        assert answer.status_code == 200, answer.content
        (call,) = answer.json()["output"]
        assert call["call_id"] == name
        said += [call, {"type": "function_call_output", "call_id": name, "output": name}]
    last = ask(codex.url, "responses", body).json()
    assert last["output"][-1]["content"][0]["text"] == "All in."
    # The model was asked once for the calls, and once with all results.
    assert len(codex.requests) == 2
    outputs = [
        item for item in input_of(codex.requests[-1]) if item["type"] == "function_call_output"
    ]
    assert [item["output"] for item in outputs] == ["call_0", "call_1", "call_2"]


@doors
def test_call_that_comes_late_is_waited_for(holding: CodexGateway, door: str) -> None:
    both = say("", ("call_1", "get_weather", "{}"), ("call_2", "get_weather", "{}"))
    chunks = list(both.chunks or ())
    place = next(
        index
        for index, chunk in enumerate(chunks)
        if isinstance(chunk, bytes) and b"call_2" in chunk
    )
    slow = ScriptedReply(
        content_type="text/event-stream", chunks=[*chunks[:place], Pause(1.0), *chunks[place:]]
    )
    holding.play(slow, say("Done."))
    talk = talk_at(door, holding)
    talk.say("Two, please.")
    got = talk.ask("stream")
    assert [call.call_id for call in got.calls] == ["call_1", "call_2"]
    for call in got.calls:
        talk.answer(call, "ok")
    assert talk.ask("stream").text == "Done."


@doors
def test_user_may_add_something_to_the_results(codex: CodexGateway, door: str) -> None:
    codex.play(ONE, say("In celsius."))
    talk = talk_at(door, codex)
    talk.say("How is the weather?")
    (call,) = talk.ask("stream").calls
    talk.answer(call, "21")
    talk.say("In celsius, please.")
    pause(codex)
    assert talk.ask("stream").text == "In celsius."
    *_, result, added = input_of(codex.requests[-1])
    assert (result["type"], result["output"]) == ("function_call_output", "21")
    assert (added["role"], added["content"][0]["text"]) == ("user", "In celsius, please.")


@doors
def test_results_with_images_and_errors_arrive(codex: CodexGateway, door: str) -> None:
    codex.play(ONE, ONE, say("A pixel."))
    talk = talk_at(door, codex)
    talk.say("How is the weather?")
    (call,) = talk.ask("create").calls
    talk.answer(call, "here", image=PIXEL)
    pause(codex)
    assert talk.ask("create").calls
    output = input_of(codex.requests[1])[-1]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert output[1]["image_url"] == PIXEL.url
    if door == "messages":
        talk = talk_at(door, codex)
        codex.play(ONE, say("Oh."))
        talk.say("How is the weather?")
        (call,) = talk.ask("create").calls
        talk.answer(call, "no such city", is_error=True)
        pause(codex)
        assert talk.ask("create").text == "Oh."
        assert input_of(codex.requests[-1])[-1]["output"] == "[tool error] no such city"


def test_image_of_a_user_arrives_as_it_is(holding: CodexGateway) -> None:
    holding.play(say("A pixel."))
    talk = talk_at("responses", holding)
    image = {"type": "input_image", "image_url": PIXEL.url, "detail": "high"}
    talk.history.append(
        {"role": "user", "content": [image, {"type": "input_text", "text": "What is it?"}]}
    )
    assert talk.ask("create").text == "A pixel."
    assert input_of(holding.requests[-1])[-1]["content"] == [
        {"type": "input_image", "image_url": PIXEL.url, "detail": "high"},
        {"type": "input_text", "text": "What is it?"},
    ]


def test_free_form_tool_is_a_function_there_and_itself_here(codex: CodexGateway) -> None:
    source = '*** Begin\n"zwei" \\ {"input": "é"} 😀\n'
    arguments = json.dumps({"input": source})
    codex.play(say("", ("call_1", "scribble", arguments)), say("Written."))
    for door in ("chat", "responses"):
        codex.play(say("", ("call_1", "scribble", arguments)), say("Written."))
        talk = talk_at(door, codex, tools=[Offered("scribble", custom=True)])
        talk.say("Write.")
        (call,) = talk.ask("stream").calls
        assert (call.name, call.arguments, call.custom) == ("scribble", source, True)
        talk.answer(call, "ok")
        pause(codex)
        assert talk.ask("stream").text == "Written."
        sent = [item for item in input_of(codex.requests[-1]) if item["type"] == "function_call"]
        assert json.loads(sent[0]["arguments"]) == {"input": source}


def test_namespace_comes_back(codex: CodexGateway) -> None:
    tools = [
        Offered("search", SCHEMA, namespace="mcp__one"),
        Offered("search", SCHEMA, namespace="web"),
        Offered("search", SCHEMA),
    ]

    def answer(request: ReceivedRequest) -> ScriptedReply:
        names = [tool["name"] for tool in _tools(request)]
        assert names == ["mcp_one__search", "web__search", "search"]
        return say("", *((f"call_{name}", name, "{}") for name in names))

    codex.play(answer, say("Found."))
    talk = talk_at("responses", codex, tools=tools)
    talk.say("Search.")
    got = talk.ask("stream")
    assert [(call.namespace, call.name) for call in got.calls] == [
        ("mcp__one", "search"),
        ("web", "search"),
        (None, "search"),
    ]
    for call in got.calls:
        talk.answer(call, "ok")
    pause(codex)
    assert talk.ask("stream").text == "Found."


def _tools(request: ReceivedRequest) -> list[Json]:
    tools: Any = request.at("tools")
    return list(tools)


# --- nothing runs here -------------------------------------------------------------------------------------------------


@doors
def test_tool_named_exec_command_reaches_the_client_and_does_not_run_here(
    codex: CodexGateway, door: str, tmp_path: Path
) -> None:
    marker = tmp_path / "it-ran"
    arguments = json.dumps({"cmd": f"touch {marker}"})

    def answer(request: ReceivedRequest) -> ScriptedReply:
        (tool,) = _tools(request)
        assert tool["name"].startswith("exec_command_")
        return say("", ("call_1", tool["name"], arguments))

    codex.play(answer, say("Done."))
    talk = talk_at(door, codex, tools=[Offered("exec_command", SCHEMA)])
    talk.say("Run it.")
    (call,) = talk.ask("stream").calls
    assert (call.name, parsed(call)) == ("exec_command", json.loads(arguments))
    talk.answer(call, "not here")
    pause(codex)
    assert talk.ask("stream").text == "Done."
    assert input_of(codex.requests[-1])[-1]["output"] == "not here"
    assert not marker.exists()


@pytest.mark.parametrize("model", ["codex", "gpt-5.5"])
def test_every_tool_survives_whatever_its_name(holding: CodexGateway, model: str) -> None:
    names = [*sorted(BUILTIN_NAMES), "naïve name", "x" * 100, "functions", "a.b", "mcp__a__b"]
    holding.play(say("Fine."))
    talk = talk_at("chat", holding, tools=[Offered(name, SCHEMA) for name in names])
    talk.model = model
    talk.say("hi")
    assert talk.ask("create").text == "Fine."
    offered = [tool.get("name") for tool in _tools(holding.requests[-1])]
    own = [name for name in offered if name in BUILTIN_NAMES]
    assert len(offered) - len(own) == len(names)
    assert len(set(offered)) == len(offered)
    # One of Codex's own cannot be switched off for this model; without an environment it does nothing.
    assert own == (["apply_patch"] if model == "gpt-5.5" else [])


@pytest.mark.parametrize("name", ["exec_command", "shell_command", "apply_patch", "write_stdin"])
def test_model_that_calls_a_tool_of_codexs_own_runs_nothing(
    holding: CodexGateway, name: str, tmp_path: Path
) -> None:
    marker = tmp_path / "it-ran"
    arguments = json.dumps({"cmd": f"touch {marker}", "command": f"touch {marker}", "workdir": "/"})
    holding.play(say("", ("call_1", name, arguments)), say("Sorry."))
    talk = talk_at("responses", holding)
    talk.model = "gpt-5.5"
    talk.say("Run it.")
    got = talk.ask("stream")
    assert (got.text, got.calls) == ("Sorry.", [])
    assert not marker.exists()
    assert input_of(holding.requests[-1])[-1]["type"] == "function_call_output"


def test_patch_of_the_model_changes_nothing(holding: CodexGateway, tmp_path: Path) -> None:
    patch = f"*** Begin Patch\n*** Add File: {tmp_path}/evil.txt\n+x\n*** End Patch\n"
    item = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c1",
        "name": "apply_patch",
        "input": patch,
    }
    holding.play(_items(item), say("Sorry."))
    talk = talk_at("chat", holding)
    talk.model = "gpt-5.5"
    talk.say("Patch it.")
    assert talk.ask("create").text == "Sorry."
    assert "No usable execution environment" in str(input_of(holding.requests[-1])[-1]["output"])
    assert list(tmp_path.iterdir()) == []


def test_operators_own_servers_and_programs_are_not_started(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    home = f"""
notify = ["touch", "{marker}-notify"]

[mcp_servers.probe]
command = "touch"
args = ["{marker}-mcp"]

[mcp_servers."with.dots"]
command = "touch"
args = ["{marker}-dots"]
"""
    folder = tmp_path / "gateway"
    folder.mkdir()
    with codex_gateway(folder, home=home) as gateway:
        gateway.play(say("Fine."))
        talk = talk_at("chat", gateway)
        talk.say("hi")
        assert talk.ask("create").text == "Fine."
        assert [tool["name"] for tool in _tools(gateway.requests[-1])] == ["get_weather"]
        time.sleep(0.5)
    assert list(tmp_path.glob("started*")) == []


def test_only_the_clients_words_reach_the_model(holding: CodexGateway) -> None:
    holding.play(say("Fine."))
    talk = talk_at("messages", holding, system="Be brief.", tools=())
    talk.say("hi")
    talk.ask("create")
    assert input_of(holding.requests[-1]) == [
        _message("developer", "Be brief."),
        _message("user", "hi"),
    ]
    assert not holding.requests[-1].json().get("tools")


def _message(role: str, text: str) -> Json:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


def _items(*items: Json) -> ScriptedReply:
    events: list[Json] = [{"type": "response.output_item.done", "item": item} for item in items]
    events.append({"type": "response.completed", "response": {"id": "r"}})
    chunks = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


def test_program_of_a_code_mode_model_calls_the_clients_tools(holding: CodexGateway) -> None:
    source = 'const r = await tools.get_weather({city: "Rome"}); text("got " + r);'
    item = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c1",
        "name": "exec",
        "input": source,
    }
    holding.play(_items(item), say("Sunny."))
    talk = talk_at("chat", holding)
    talk.model = "gpt-6.1-sol"
    talk.say("How is the weather?")
    (call,) = talk.ask("stream").calls
    assert (call.name, parsed(call)) == ("get_weather", {"city": "Rome"})
    talk.answer(call, "21")
    assert talk.ask("stream").text == "Sunny."
    assert "got 21" in json.dumps(input_of(holding.requests[-1])[-1])


# --- what else an answer has -------------------------------------------------------------------------------------------


def test_reasoning_comes_with_its_seal_and_goes_back(codex: CodexGateway) -> None:
    codex.play(say("Ah.", ("call_1", "get_weather", "{}"), thinking="Which city?"), say("Done."))
    talk = talk_at("responses", codex, more={"reasoning": {"effort": "high", "summary": "auto"}})
    talk.say("How is the weather?")
    got = talk.ask("stream")
    assert (got.thought, bool(got.seal)) == ("Which city?", True)
    talk.answer(got.calls[0], "21")
    pause(codex)
    assert talk.ask("stream").text == "Done."
    reasoning = [item for item in input_of(codex.requests[-1]) if item["type"] == "reasoning"]
    assert [item["encrypted_content"] for item in reasoning] == [got.seal]
    assert codex.requests[0].at("reasoning", "effort") == "high"


def test_schema_for_the_answer_reaches_the_model(holding: CodexGateway) -> None:
    schema = {**SCHEMA, "additionalProperties": False}
    form = {"type": "json_schema", "name": "city", "schema": schema, "strict": True}
    holding.play(say('{"city": "Rome"}'))
    talk = talk_at("responses", holding, more={"text": {"format": form}})
    talk.say("Where?")
    assert json.loads(talk.ask("create").text) == {"city": "Rome"}
    assert holding.requests[-1].at("text", "format", "schema") == schema


def test_what_cannot_be_said_is_reported(holding: CodexGateway) -> None:
    holding.play(say("Fine."))
    client = openai.OpenAI(api_key="k", base_url=f"{holding.url}/v1", max_retries=0)
    raw = client.chat.completions.with_raw_response.create(
        model="codex",
        messages=[{"role": "user", "content": "hi"}],
        temperature=0.1,
        max_tokens=5,
        stop=["x"],
        seed=1,
    )
    found = raw.headers["x-dragoman-loss"]
    for code in ("temperature", "max_tokens", "seed"):
        assert f"{code};" in found


def test_limits_are_reported(holding: CodexGateway) -> None:
    headers = {
        "x-codex-primary-used-percent": "42",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "1800000000",
    }
    holding.play(say("Fine.", headers=headers))
    talk = talk_at("chat", holding)
    talk.say("hi")
    assert talk.ask("create").text == "Fine."
    with urllib.request.urlopen(f"{holding.url}/v1/limits", timeout=30) as response:
        assert '"used_percent":42' in response.read().decode().replace(" ", "")


def test_short_form_of_the_command_line_serves_codex(tmp_path: Path) -> None:
    """As in the first lines of docs/codex.md: nothing but `--upstream codex`, Codex on the PATH and its own home."""
    model = ScriptedModel()
    with ScriptedUpstream.in_thread(model) as upstream:
        home = str(codex_home(tmp_path, upstream.url))
        path = f"{BINARY.parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": home, "CODEX_HOME": home}
        with run_gateway(tmp_path, ["--upstream", "codex"], environment) as (url, pid):
            model.play([ONE, say("Sunny.")])
            talk = conversation("messages", url, "codex", tools=[WEATHER])
            talk.say("How is the weather?")
            (call,) = talk.ask("stream").calls
            talk.answer(call, "21")
            assert talk.ask("stream").text == "Sunny."
            with urllib.request.urlopen(f"{url}/readyz", timeout=30) as response:
                assert json.loads(response.read()) == {"status": "ready"}
            assert processes_below(pid)


# --- errors, leaving, dying --------------------------------------------------------------------------------------------


@doors
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "bad"), (429, "usage_limit_reached"), (500, "oops")]
)
def test_error_of_the_model_is_reported(
    holding: CodexGateway, door: str, status: int, kind: str
) -> None:
    error = {"error": {"type": kind, "message": "scripted failure", "resets_in_seconds": 60}}
    holding.play(json_reply(error, status))
    talk = talk_at(door, holding)
    talk.say("hi")
    with pytest.raises(ERRORS) as caught:
        talk.ask("create")
    assert getattr(caught.value, "status_code", None) is not None
    # Codex's own retries are off; ours are two.
    assert len(holding.requests) <= 2


@doors
def test_stream_that_is_cut_is_an_error_and_not_repeated(holding: CodexGateway, door: str) -> None:
    chunks = list(say("Half of it. And the other half.").chunks or ())
    cut = ScriptedReply(
        content_type="text/event-stream", chunks=[*chunks[:6], Pause(0.2)], cut=True
    )
    holding.play(cut)
    talk = talk_at(door, holding)
    talk.say("hi")
    with pytest.raises(Exception, match=r".+"):
        talk.ask("stream")
    assert len(holding.requests) == 1


def test_connection_that_is_cut_after_a_call_is_mended_with_its_result(
    holding: CodexGateway,
) -> None:
    """Codex does not report it until the call is answered; then the gateway replays."""
    chunks = list(ONE.chunks or ())[:-1]
    cut = ScriptedReply(content_type="text/event-stream", chunks=[*chunks, Pause(0.1)], cut=True)
    holding.play(cut, say("Sunny."))
    talk = talk_at("chat", holding)
    talk.say("hi")
    (call,) = talk.ask("stream").calls
    talk.answer(call, "21")
    assert talk.ask("stream").text == "Sunny."
    assert len(holding.requests) == 2


@doors
def test_client_that_leaves_ends_the_models_request(holding: CodexGateway, door: str) -> None:
    gone = threading.Event()
    chunks = list(say("Half of it, and then nothing for a long while.").chunks or ())
    holding.play(
        ScriptedReply(
            content_type="text/event-stream", chunks=[*chunks[:7], Wait(gone), *chunks[7:]]
        )
    )
    try:
        _leave_early(door, holding.url)
        wait_for(lambda: holding.requests and holding.requests[0].was_abandoned)
    finally:
        gone.set()


def _leave_early(door: str, url: str) -> None:
    if door == "messages":
        client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)
        messages: Any = [{"role": "user", "content": "hi"}]
        stream: Any = client.messages.create(
            model="codex", max_tokens=9, messages=messages, stream=True
        )
    elif door == "chat":
        chat = openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
        asked: Any = [{"role": "user", "content": "hi"}]
        stream = chat.chat.completions.create(model="codex", messages=asked, stream=True)
    else:
        responses = openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
        stream = responses.responses.create(model="codex", input="hi", stream=True)
    next(iter(stream))
    stream.close()


def test_child_that_is_killed_in_a_turn_is_reported_and_replaced(tmp_path: Path) -> None:
    with codex_gateway(tmp_path) as gateway:
        started = threading.Event()
        hold = threading.Event()

        def answer(_: ReceivedRequest) -> ScriptedReply:
            started.set()
            chunks = list(say("Half of it, and the rest.").chunks or ())
            return ScriptedReply(
                content_type="text/event-stream", chunks=[*chunks[:7], Wait(hold), *chunks[7:]]
            )

        gateway.play(answer)
        talk = talk_at("chat", gateway)
        talk.say("hi")
        with ThreadPoolExecutor() as pool:
            asking = pool.submit(talk.ask, "stream")
            assert started.wait(60)
            time.sleep(0.2)
            victims = processes_below(gateway.pid)
            assert victims
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(openai.APIError, match="signal 9"):
                asking.result(60)
        hold.set()
        gateway.play(ONE, say("Sunny."))
        again = talk_at("chat", gateway)
        again.say("How is the weather?")
        (call,) = again.ask("stream").calls
        # And once more, with a turn that is held.
        for pid in processes_below(gateway.pid):
            os.kill(pid, signal.SIGKILL)
        again.answer(call, "21")
        assert again.ask("stream").text == "Sunny."
        left = processes_below(gateway.pid)
        assert left
    wait_for(lambda: not any(_runs(pid) for pid in left))


def _runs(pid: int) -> bool:
    try:
        return (Path(f"/proc/{pid}/stat").read_text()).rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("children", [1, 2])
def test_two_threads_at_once_do_not_mix(tmp_path: Path, children: int) -> None:
    meeting = threading.Barrier(2, timeout=60)

    def answer(request: ReceivedRequest) -> ScriptedReply:
        name = input_of(request)[-1]["content"][0]["text"]
        return ScriptedReply(
            content_type="text/event-stream",
            chunks=list(say(f"To {name}.", (f"call_{name}", "get_weather", "{}")).chunks or ()),
        )

    def after(request: ReceivedRequest) -> ScriptedReply:
        items = input_of(request)
        if items[-1]["type"] != "function_call_output":
            return answer(request)
        return say(f"{items[-1]['call_id']}: {items[-1]['output']}")

    def converse(name: str, url: str) -> Got:
        talk = conversation("chat", url, "codex", tools=[WEATHER])
        talk.say(name)
        meeting.wait()
        got = talk.ask("stream")
        assert got.text == f"To {name}."
        (call,) = got.calls
        meeting.wait()
        talk.answer(call, f"result for {name}")
        return talk.ask("stream")

    with codex_gateway(tmp_path, more=f"children = {children}") as gateway:
        gateway.play(after)
        with ThreadPoolExecutor() as pool:
            asked = {name: pool.submit(converse, name, gateway.url) for name in ("Ann", "Bob")}
            for name, answered in asked.items():
                assert answered.result(60).text == f"call_{name}: result for {name}"


def test_gateway_that_stops_leaves_no_process_behind(tmp_path: Path) -> None:
    with codex_gateway(tmp_path) as gateway:
        gateway.play(ONE)
        talk = talk_at("chat", gateway)
        talk.say("hi")
        assert talk.ask("stream").calls  # and never comes back
        left = processes_below(gateway.pid)
        assert left
    wait_for(lambda: not any(_runs(pid) for pid in left))
