"""The Obsidian contract over the upstream it was made for: `codex app-server`, played by a program that speaks its protocol."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codex_app_server import app_server, call, heard, text
from dragoman.config.settings import Route, ServerSettings, Settings
from dragoman.obsidian.settings import ChatSettings
from gateway_harness import RunningGateway, running_gateway, wait_until
from obsidian_cases import BLOCKS, DECLARED, SEARCH, read_stream
from plain_http import ask
from sdk_clients import Offered, conversation

LOOK = [text("I look."), call("call_1", "search", SEARCH), call("call_2", "now")]
DONE = [text("It is five.")]


@contextmanager
def codex(
    folder: Path,
    *responses: list[dict[str, Any]],
    chat: ChatSettings | None = None,
    behaviour: dict[str, Any] | None = None,
) -> Generator[RunningGateway]:
    upstream = app_server(folder, list(responses), behaviour)
    settings = Settings(
        server=ServerSettings(shutdown_grace=0.3),
        chat=chat or ChatSettings(),
        upstreams={"codex": upstream},
        routes=(Route(model="*", upstream="codex"),),
    )
    with running_gateway(settings) as gateway:
        yield gateway


def asking(*more: dict[str, Any], **fields: object) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}, *more]
    return {"model": "m", "messages": messages, "tools": DECLARED, **fields}


@pytest.mark.parametrize("streamed", [True, False])
def test_codex_speaks_obsidian_xml_by_default(tmp_path: Path, streamed: bool) -> None:
    with codex(tmp_path, LOOK) as gateway:
        got = ask(gateway.url, "chat", asking(stream=streamed))
    assert got.headers["x-proxy-output-mode"] == "obsidian-xml"
    if streamed:
        read = read_stream(got.text)
        content, finish, calls = read.content, read.finishes, len(read.calls)
        assert read.frames[-2].startswith(': {"tool_call_count":2,')
    else:
        (choice,) = got.json()["choices"]
        content, finish = choice["message"]["content"], [choice["finish_reason"]]
        calls = len(choice["message"]["tool_calls"])
        assert got.headers["x-codex-tool-call-count"] == "2"
    assert content == f"I look.\n{BLOCKS['search']}{BLOCKS['now']}"
    assert (finish, calls) == (["tool_calls"], 2)


@pytest.mark.parametrize("streamed", [True, False])
def test_codex_speaks_openai_json_where_asked_for(tmp_path: Path, streamed: bool) -> None:
    headers = {"x-proxy-output-mode": "openai-json"}
    with codex(tmp_path, LOOK) as gateway:
        got = ask(gateway.url, "chat", asking(stream=streamed), headers)
    assert got.headers["x-proxy-output-mode"] == "openai-json"
    assert "<use_tool>" not in got.text


def test_the_blocks_and_text_results_of_a_client_reach_codex_as_calls_and_results(
    tmp_path: Path,
) -> None:
    with codex(tmp_path, LOOK, DONE) as gateway:
        first = ask(gateway.url, "chat", asking()).json()["choices"][0]["message"]["content"]
        results = "Tool 'search' result: []\n\nTool 'now' result: five"
        turns = ({"role": "assistant", "content": first}, {"role": "user", "content": results})
        assert ask(gateway.url, "chat", asking(*turns)).status_code == 200
    items = heard(tmp_path, "thread/inject_items")[-1]["params"]["items"]
    called = [item["call_id"] for item in items if item["type"] == "function_call"]
    answered = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert len(called) == 2
    assert called == answered


@pytest.mark.parametrize("mode", ["create", "stream"])
def test_a_client_of_calls_goes_on_with_the_same_turn(tmp_path: Path, mode: str) -> None:
    tools = (Offered("search", DECLARED[0]["function"]["parameters"]), Offered("now", {"type": "object"}))  # fmt: skip
    with codex(tmp_path, LOOK, DONE) as gateway:
        talk = conversation("chat", gateway.url, "m", tools=tools)
        talk.say("hi")
        got = talk.ask(mode)
        for each in got.calls:
            talk.answer(each, "ok")
        assert talk.ask(mode).text == "It is five."
    assert len(heard(tmp_path, "thread/start")) == 1
    assert len(heard(tmp_path, "turn/start")) == 1


@pytest.mark.parametrize("streamed", [True, False])
def test_codex_that_dies_after_its_calls_leaves_a_finished_answer(
    tmp_path: Path, streamed: bool
) -> None:
    with codex(tmp_path, LOOK, behaviour={"exit_after_items": True}) as gateway:
        got = ask(gateway.url, "chat", asking(stream=streamed))
    if streamed:
        read = read_stream(got.text)
        assert (read.error, read.finishes) == (None, ["tool_calls"])
    else:
        assert got.json()["choices"][0]["finish_reason"] == "tool_calls"


def test_a_turn_that_is_cut_while_it_runs_is_interrupted(tmp_path: Path) -> None:
    chat = ChatSettings(stop_after_tools=True, stop_after_tools_mode="first")
    with codex(tmp_path, LOOK, chat=chat, behaviour={"slow": 0.3}) as gateway:
        read = read_stream(ask(gateway.url, "chat", asking(stream=True)).text)
        wait_until(lambda: bool(heard(tmp_path, "turn/interrupt")))
    assert [each["name"] for each in read.calls] == ["search"]
    assert read.finishes == ["tool_calls"]


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@pytest.mark.parametrize("mode", ["create", "stream"])
def test_call_that_codex_writes_and_makes_is_sent_once_and_its_turn_goes_on(
    tmp_path: Path, mode: str, dialect: str
) -> None:
    tools = (Offered("search", DECLARED[0]["function"]["parameters"]),)
    twice = [text(f"I look.\n{BLOCKS['search']}"), call("call_1", "search", SEARCH)]
    with codex(tmp_path, twice, DONE) as gateway:
        talk = conversation(dialect, gateway.url, "m", tools=tools)
        talk.say("hi")
        got = talk.ask(mode)
        assert [each.name for each in got.calls] == ["search"]
        for each in got.calls:
            talk.answer(each, "ok")
        assert talk.ask(mode).text == "It is five."
    assert len(heard(tmp_path, "thread/start")) == 1
    assert len(heard(tmp_path, "turn/start")) == 1
