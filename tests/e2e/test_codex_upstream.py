"""The vendors' SDKs in front of a Codex upstream whose app-server is a scripted program; and the commands around it."""

import json
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anthropic import beta_tool
from msgspec.structs import replace

from background_runs import ended
from codex_app_server import Json, alive, answers, app_server, call, heard, params_of, pids, text
from doors import payloads
from dragoman.cli import main as dragoman
from dragoman.config.settings import (
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman.core.summaries import Packed, unpack_summary
from dragoman.obsidian.settings import ChatSettings
from gateway_harness import RunningGateway, connection, running_gateway, wait_until
from plain_http import ask, fetch, plain_body
from sdk_clients import DOORS, MODES, Offered, SeenCall, anthropic_client, conversation

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Offered("get_weather", SCHEMA, strict=True)
ARGUMENTS = '{"city":  "Rome", "days": 1.0}'
ROUND = [
    [
        text("Let me look."),
        call("call_1", "get_weather", ARGUMENTS),
        call("call_2", "get_weather", "{}"),
    ],
    [text("Sunny.")],
]

every_mode = pytest.mark.parametrize(
    ("door", "mode"), [(door, mode) for door in DOORS for mode in MODES[door]]
)


@contextmanager
def gateway_of(
    folder: Path, upstream: UpstreamSettings, *, parallel: bool | None = True
) -> Generator[RunningGateway]:
    settings = Settings(
        chat=ChatSettings(enable_parallel_tool_calls=parallel),
        server=ServerSettings(shutdown_grace=0.3),
        retry=RetrySettings(base_delay=0.01),
        upstreams={"codex": replace(upstream, output_mode="openai-json")},
    )
    with running_gateway(settings) as gateway:
        yield gateway
    wait_until(lambda: not alive(folder))


def parsed(seen: SeenCall) -> object:
    return json.loads(seen.arguments) if isinstance(seen.arguments, str) else seen.arguments


@every_mode
@pytest.mark.parametrize("held_ttl", [900.0, 0.001])
def test_calls_and_their_results_make_the_round(
    door: str, mode: str, held_ttl: float, tmp_path: Path
) -> None:
    upstream = app_server(tmp_path, ROUND, held_ttl=held_ttl)
    with gateway_of(tmp_path, upstream) as gateway:
        talk = conversation(door, gateway.url, "codex", tools=[WEATHER], system="Be brief.")
        talk.say("How is the weather?")
        got = talk.ask(mode)
        assert got.text == "Let me look."
        assert [(each.call_id, each.name) for each in got.calls] == [
            ("call_1", "get_weather"),
            ("call_2", "get_weather"),
        ]
        assert parsed(got.calls[0]) == json.loads(ARGUMENTS)
        if door != "messages":
            assert got.calls[0].arguments == ARGUMENTS
        for each in got.calls:
            talk.answer(each, f"{each.call_id}: 21")
        if held_ttl < 1:
            wait_until(lambda: bool(heard(tmp_path, "thread/unsubscribe")))
        assert talk.ask(mode).text == "Sunny."
    assert len(heard(tmp_path, "thread/start")) == (1 if held_ttl > 1 else 2)


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("held_ttl", [900.0, 0.001])
def test_a_thread_goes_on_with_ids_that_need_an_alias(
    held_ttl: float, stream: bool, tmp_path: Path
) -> None:
    @beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: where
        """
        if held_ttl < 1:
            wait_until(lambda: bool(heard(tmp_path, "thread/unsubscribe")))
        return f"{city}: sunny"

    called = call("functions.get_weather:0", "get_weather", '{"city":"Rome"}')
    upstream = app_server(tmp_path, [[called], [text("Sunny.")]], held_ttl=held_ttl)
    with gateway_of(tmp_path, upstream) as gateway:
        runner = anthropic_client(gateway.url).beta.messages.tool_runner(
            model="codex",
            max_tokens=500,
            tools=[get_weather],
            messages=[{"role": "user", "content": "How is the weather?"}],
            stream=stream,
        )
        last = [step.get_final_message() if stream else step for step in runner][-1]
        assert last.content[0].text == "Sunny."
    assert len(heard(tmp_path, "thread/start")) == (1 if held_ttl > 1 else 2)
    assert "Rome: sunny" in json.dumps(heard(tmp_path) + answers(tmp_path))
    assert "interrupted" not in json.dumps(heard(tmp_path))


@pytest.mark.parametrize("held_ttl", [900.0, 0.001])
def test_calls_and_their_results_make_the_round_in_the_background(
    held_ttl: float, tmp_path: Path
) -> None:
    upstream = app_server(tmp_path, ROUND, held_ttl=held_ttl)
    with gateway_of(tmp_path, upstream) as gateway:
        tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
        body = plain_body("responses", "codex", background=True, tools=[tool])
        made = ask(gateway.url, "responses", body).json()
        assert made["status"] == "queued"
        first = ended(f"{gateway.url}/v1/responses/{made['id']}")
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        assert [call["call_id"] for call in calls] == ["call_1", "call_2"]
        results = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": "21"}
            for call in calls
        ]
        more = {"input": results, "previous_response_id": first["id"]}
        again = ask(gateway.url, "responses", {**body, **more}).json()
        second = ended(f"{gateway.url}/v1/responses/{again['id']}")
        assert second["output"][0]["content"][0]["text"] == "Sunny."


def test_tool_with_the_name_of_a_builtin_comes_back_under_its_own(tmp_path: Path) -> None:
    with gateway_of(tmp_path, app_server(tmp_path, [[text("Hi.")]])) as gateway:
        talk = conversation("chat", gateway.url, "m", tools=[Offered("exec_command", SCHEMA)])
        talk.say("hi")
        assert talk.ask("create").text == "Hi."
        (tool,) = params_of(tmp_path, "thread/start")[0]["dynamicTools"]
        assert tool["name"].startswith("exec_command_")
    renamed = [[call("c", tool["name"])], [text("Done.")]]
    with gateway_of(tmp_path, app_server(tmp_path, renamed)) as again:
        talk = conversation("chat", again.url, "m", tools=[Offered("exec_command", SCHEMA)])
        talk.say("hi")
        assert [each.name for each in talk.ask("stream").calls] == ["exec_command"]


def test_failure_before_the_first_word_is_tried_again_and_reported_with_a_status(
    tmp_path: Path,
) -> None:
    error = {"message": "upstream is on fire", "codexErrorInfo": "internalServerError"}
    with gateway_of(tmp_path, app_server(tmp_path, [], {"error": error})) as gateway:
        response = ask(gateway.url, "chat", plain_body("chat", "m", stream=True))
        assert response.status_code == 500
        assert "on fire" in response.text
    assert len(heard(tmp_path, "turn/start")) == 3


def test_results_of_a_turn_that_fails_are_replayed_without_the_clients_knowledge(
    tmp_path: Path,
) -> None:
    upstream = app_server(tmp_path, ROUND, {"fail_after_results": True})
    with gateway_of(tmp_path, upstream) as gateway:
        talk = conversation("chat", gateway.url, "m", tools=[WEATHER])
        talk.say("How is the weather?")
        for each in talk.ask("stream").calls:
            talk.answer(each, "21")
        assert talk.ask("stream").text == "Sunny."
    assert len(heard(tmp_path, "thread/start")) == 2


def test_client_that_leaves_stops_the_turn(tmp_path: Path) -> None:
    upstream = app_server(tmp_path, [[text("Hi.")]], {"silent": True})
    with gateway_of(tmp_path, upstream) as gateway:
        with connection(gateway) as client:
            client.request("POST", "/v1/chat/completions", json.dumps(plain_body("chat", "m")))
            wait_until(lambda: bool(heard(tmp_path, "turn/start")))
        wait_until(lambda: bool(heard(tmp_path, "turn/interrupt")))


def ready(gateway: RunningGateway) -> tuple[int, Json]:
    response = fetch("GET", f"{gateway.url}/readyz")
    return response.status_code, response.json()


def test_readiness_reports_a_dead_child(tmp_path: Path) -> None:
    upstream = app_server(tmp_path, [], {"exit_on": {"initialize": 3}})
    with gateway_of(tmp_path, upstream) as gateway:
        wait_until(lambda: ready(gateway)[0] == 503)
        status, found = ready(gateway)
        assert (status, found["status"]) == (503, "unready")
        assert "ended with exit code 3" in found["upstreams"]["codex"]
        response = ask(gateway.url, "messages", plain_body("messages", "m"))
        assert response.status_code == 503


def test_other_upstreams_make_up_for_it(tmp_path: Path) -> None:
    broken = app_server(tmp_path, [], {"exit_on": {"initialize": 3}})
    settings = Settings(
        upstreams={"codex": broken, "spare": UpstreamSettings(kind="rehearsal")},
        routes=(Route(model="c-*", upstream="codex"), Route(model="*", upstream="spare")),
    )
    with running_gateway(settings) as gateway:
        wait_until(lambda: "upstreams" in ready(gateway)[1])
        assert ready(gateway)[0] == 200
    wait_until(lambda: not alive(tmp_path))


def test_child_is_started_with_the_gateway_and_ends_with_it(tmp_path: Path) -> None:
    with gateway_of(tmp_path, app_server(tmp_path, [[text("Hi.")]])) as gateway:
        wait_until(lambda: len(pids(tmp_path)) == 1)
        assert ready(gateway) == (200, {"status": "ready"})
        models = fetch("GET", f"{gateway.url}/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["codex"]


@pytest.mark.parametrize("command", ["serve", "check"])
def test_missing_program_is_reported_with_the_way_to_install_it(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dragoman([command, "--upstream", "codex"]) == 2
    said = capsys.readouterr().err
    assert "npm install -g @openai/codex" in said
    assert said.count("npm install") == 1


def test_check_starts_the_program_and_says_who_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = app_server(tmp_path / "child")
    launcher = tmp_path / "codex"
    launcher.write_text(f"#!/bin/sh\nexec {' '.join(settings.command)}\n", encoding="utf-8")
    launcher.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert shutil.which("codex") == str(launcher)
    assert dragoman(["check", "--upstream", "codex"]) == 0
    assert "started; stand-in/0.166.0" in capsys.readouterr().out
    wait_until(lambda: not alive(tmp_path / "child"))


def limits_of(used: float) -> Json:
    window = {"usedPercent": used, "windowDurationMins": 300, "resetsAt": 1900003600}
    return {"limitId": "codex", "primary": window, "secondary": None, "credits": None}


def used_percents(gateway: RunningGateway) -> list[float]:
    entries: list[Json] = fetch("GET", f"{gateway.url}/v1/limits").json()["data"]
    return [window["used_percent"] for entry in entries for window in entry["windows"]]


@pytest.mark.requirement("S002-25")
def test_the_accounts_limits_are_read_on_start_and_while_codex_is_in_use(tmp_path: Path) -> None:
    reports = [limits_of(used) for used in (10, 20, 30)]
    upstream = app_server(
        tmp_path,
        [[text("Hello.")]],
        {"account_limits": reports},
        limits_interval=0.01,
    )
    with gateway_of(tmp_path, upstream) as gateway:
        # Nobody has asked for anything.
        wait_until(lambda: used_percents(gateway) == [10.0])
        assert len(heard(tmp_path, "account/rateLimits/read")) == 1
        # The first request lasts longer than the interval, so the limits may be read while it runs and once more after it.
        first = ask(gateway.url, "chat", plain_body("chat", "m"))
        assert first.headers["x-codex-primary-used-percent"] in ("10", "20", "30")
        wait_until(lambda: used_percents(gateway)[0] > 10)
        ask(gateway.url, "chat", plain_body("chat", "m"))
        wait_until(lambda: used_percents(gateway) == [30.0])
        third = ask(gateway.url, "chat", plain_body("chat", "m"))
        assert third.headers["x-codex-primary-used-percent"] == "30"


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_codex_without_limits_serves_as_ever(how: str, tmp_path: Path) -> None:
    behaviour = {} if how == "refused" else {"mute": ["account/rateLimits/read"]}
    upstream = app_server(tmp_path, [[text("Hello.")]], behaviour, limits_interval=0.01)
    with gateway_of(tmp_path, upstream) as gateway:
        for _ in range(3):
            assert ask(gateway.url, "chat", plain_body("chat", "m")).status_code == 200
        assert used_percents(gateway) == []
        assert len(heard(tmp_path, "account/rateLimits/read")) == 1
        assert len(pids(tmp_path)) == 1


@pytest.mark.requirement("S002-25", "S003-69")
def test_usage_is_counted_for_each_upstream_beside_its_limits(tmp_path: Path) -> None:
    upstream = app_server(tmp_path, ROUND, {"account_limits": [limits_of(10)]})
    with gateway_of(tmp_path, upstream) as gateway:
        empty = fetch("GET", f"{gateway.url}/v1/usage").json()
        assert (empty["object"], empty["data"]) == ("usage", [])
        assert set(empty["total"].values()) == {0}
        talk = conversation("chat", gateway.url, "m", tools=[WEATHER])
        talk.say("hi")
        for seen in talk.ask("stream").calls:
            talk.answer(seen, "sunny")
        talk.ask("create")
        assert ask(gateway.url, "chat", b"{").status_code == 400
        page = fetch("GET", f"{gateway.url}/usage").json()
        cached = {"cached_tokens": 0, "cache_write_tokens": 0}
        counts = {"errors": 0, "tool_calls": 2, "input_tokens": 20, "output_tokens": 10, **cached}
        refused = {key: int(key == "errors") for key in counts}
        assert page["data"] == [
            {"upstream": None, "requests": 1, **refused},
            {"upstream": "codex", "requests": 2, **counts},
        ]
        assert page["total"] == {"requests": 3, **counts, "errors": 1}
        assert page["limits"] == fetch("GET", f"{gateway.url}/v1/limits").json()["data"]
        assert page["limits"][0]["windows"][0]["used_percent"] == 10
        assert fetch("POST", f"{gateway.url}/v1/usage").status_code == 405


@pytest.mark.requirement("S003-51", "S003-67")
@pytest.mark.parametrize("mode", MODES["chat"])
@pytest.mark.parametrize("parallel", [None, False])
def test_without_parallel_calls_a_chat_client_gets_one_call_in_each_answer(
    parallel: bool | None, mode: str, tmp_path: Path
) -> None:
    with gateway_of(tmp_path, app_server(tmp_path, ROUND), parallel=parallel) as gateway:
        talk = conversation("chat", gateway.url, "m", tools=[WEATHER])
        talk.say("hi")
        for call_id in ("call_1", "call_2"):
            got = talk.ask(mode)
            assert [seen.call_id for seen in got.calls] == [call_id]
            talk.answer(got.calls[0], "sunny")
        assert talk.ask(mode).text == "Sunny."
    assert len(heard(tmp_path, "turn/start")) == 1


@pytest.mark.parametrize(
    ("door", "said"),
    [
        ("chat", {"parallel_tool_calls": False}),
        ("responses", {"parallel_tool_calls": False}),
        ("messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ],
)
def test_a_client_may_forbid_parallel_calls(door: str, said: Json, tmp_path: Path) -> None:
    tools = {
        "chat": [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
        "responses": [{"type": "function", "name": "get_weather", "parameters": SCHEMA}],
        "messages": [{"name": "get_weather", "input_schema": SCHEMA}],
    }
    with gateway_of(tmp_path, app_server(tmp_path, ROUND)) as gateway:
        body = plain_body(door, "m", tools=tools[door], **said)
        answer = ask(gateway.url, door, body)
        assert b"call_1" in answer.content
        assert b"call_2" not in answer.content
        assert "parallel" not in answer.headers.get("x-dragoman-loss", "")


@pytest.mark.requirement("S003-56")
def test_blocks_are_all_in_one_answer_by_default_because_their_reader_runs_them_in_order(
    tmp_path: Path,
) -> None:
    with gateway_of(tmp_path, app_server(tmp_path, ROUND), parallel=None) as gateway:
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
        body = plain_body("chat", "m", tools=tools)
        answer = ask(gateway.url, "chat", body, {"x-proxy-output-mode": "obsidian-xml"})
        assert answer.json()["choices"][0]["message"]["content"].count("</use_tool>") == 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_conversation_is_compacted_while_its_turn_waits_for_results(
    tmp_path: Path, *, stream: bool
) -> None:
    summary = [text("The user asked for the weather.")]
    upstream = app_server(tmp_path, [ROUND[0], summary])
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
    with gateway_of(tmp_path, upstream) as gateway:
        question: Json = {"role": "user", "content": "How is the weather?"}
        body: Json = {"model": "codex", "tools": [tool], "store": False, "stream": False}
        first = json.loads(ask(gateway.url, "responses", {**body, "input": [question]}).content)
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "21"}
            for item in calls
        ]
        history = [question, *first["output"], *results, {"type": "compaction_trigger"}]
        reply = ask(gateway.url, "responses", {**body, "input": history, "stream": stream})
        assert reply.status_code == 200, reply.text
        whole: Json = payloads(reply.content)[-1][1]["response"] if stream else reply.json()
        (item,) = whole["output"]
        assert item["type"] == "compaction"
        assert unpack_summary(item["encrypted_content"]) == Packed(
            summary="The user asked for the weather."
        )
