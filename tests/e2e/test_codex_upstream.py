"""The vendors' SDKs in front of a Codex upstream whose app-server is a scripted program; and the commands around it."""

import json
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from anthropic import beta_tool
from msgspec.structs import replace

from codex_app_server import Json, alive, answers, app_server, call, heard, params_of, pids, text
from dragoman.cli import main as dragoman
from dragoman.config.settings import (
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from gateway_harness import RunningGateway, running_gateway, wait_until
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
def gateway_of(folder: Path, upstream: UpstreamSettings) -> Generator[RunningGateway]:
    settings = Settings(
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
        client = openai.OpenAI(
            api_key="k", base_url=f"{gateway.url}/v1", max_retries=0, timeout=0.5
        )
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        wait_until(lambda: bool(heard(tmp_path, "turn/interrupt")))


def ready(gateway: RunningGateway) -> tuple[int, Json]:
    response = fetch("GET", f"{gateway.url}/readyz")
    return response.status_code, response.json()


def test_readiness_reports_a_dead_child(tmp_path: Path) -> None:
    upstream = app_server(tmp_path, [], {"exit_on": {"initialize": 3}})
    with gateway_of(tmp_path, upstream) as gateway:
        wait_until(lambda: ready(gateway)[0] == 503)
        status, told = ready(gateway)
        assert (status, told["status"]) == (503, "unready")
        assert "ended with exit code 3" in told["upstreams"]["codex"]
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
