"""The rate limits that a ChatGPT Codex backend reports, and the dump of its answers, as clients and operators see them."""

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from codex_backend import backend_stage, bare_stream, odd_stream
from dragoman.config.settings import DumpSettings, ServerSettings, Settings
from dragoman.testing import ScriptedUpstream, json_reply, sse
from gateway_harness import DIALECTS, one_upstream, running_gateway, wait_until
from plain_http import ask, fetch, plain_body
from sdk_clients import DOORS, Offered, conversation
from vendor_wire import Answer, Said, Tool, stream

COMMAND = str(Path(sysconfig.get_path("scripts")) / "dragoman")
LIMITS = {
    "x-codex-primary-used-percent": "42.5",
    "x-codex-primary-window-minutes": "300",
    "x-codex-primary-reset-at": "1900003600",
    "x-codex-secondary-used-percent": "60",
    "x-codex-secondary-window-minutes": "10080",
    "x-codex-secondary-reset-at": "1900600000",
    "x-codex-credits-has-credits": "true",
    "x-codex-credits-unlimited": "false",
    "x-codex-credits-balance": "5.39",
}
SUNNY = Answer((Said(("Sunny",)),))
CALLS = Answer(
    (
        Said(("Let me look.",)),
        Tool("call_1", "get_weather", ('{"city": "Paris", "api_', 'key": "hidden-1"}')),
        Tool("call_2", "get_weather", ('{"city":', '"Rome"}')),
    )
)
WEATHER = Offered("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}})

doors = pytest.mark.parametrize("door", DOORS)


def shown_limits(url: str, **headers: str) -> list[dict[str, Any]]:
    answer = fetch("GET", f"{url}/v1/limits", headers)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    data: list[dict[str, Any]] = body["data"]
    return data


@pytest.mark.requirement("S002-31")
@doors
@pytest.mark.parametrize("streamed", [True, False])
def test_limits_reach_the_client_the_page_and_the_metrics(
    door: str, streamed: bool, tmp_path: Path
) -> None:
    with backend_stage(tmp_path, [sse(stream("responses", SUNNY), headers=LIMITS)]) as stage:
        assert shown_limits(stage.url) == []
        answer = ask(stage.url, door, plain_body(door, "m", stream=streamed))
        assert answer.status_code == 200
        for name, value in LIMITS.items():
            assert answer.headers.get_list(name) == [value]
        own = (
            ("anthropic-ratelimit-unified-7d-utilization", "0.6")
            if door == "messages"
            else ("x-ratelimit-remaining-requests", "40")
        )
        assert answer.headers[own[0]] == own[1]
        [entry] = shown_limits(stage.url)
        assert entry["upstream"] == "codex"
        assert [window["used_percent"] for window in entry["windows"]] == [42.5, 60.0]
        assert entry["credits"]["balance"] == "5.39"
        metrics = fetch("GET", f"{stage.url}/metrics").text
        assert 'dragoman_limit_used_ratio{upstream="codex",window="secondary"} 0.6' in metrics


@doors
def test_limits_of_a_refusal_are_reported_too(door: str, tmp_path: Path) -> None:
    error = {"type": "usage_limit_reached", "message": "The usage limit has been reached"}
    used_up = {**LIMITS, "x-codex-primary-used-percent": "100"}
    with backend_stage(tmp_path, [json_reply({"error": error}, 429, headers=used_up)]) as stage:
        answer = ask(stage.url, door, plain_body(door, "m"))
        assert answer.status_code == 429
        assert answer.headers["x-codex-primary-used-percent"] == "100"
        [entry] = shown_limits(stage.url)
        assert entry["windows"][0]["used_percent"] == 100.0


@doors
@pytest.mark.parametrize("place", ["before", "within"])
def test_limits_reported_inside_the_stream_are_shown(door: str, place: str, tmp_path: Path) -> None:
    report = {
        "type": "codex.rate_limits",
        "rate_limits": {
            "primary": {"used_percent": 7, "window_minutes": 300, "reset_at": 1900000000}
        },
    }
    frame = b"event: codex.rate_limits\ndata: " + json.dumps(report).encode() + b"\n\n"
    sent = stream("responses", SUNNY)
    head, _, rest = sent.partition(b"event: response.output_item.added")
    within = head + frame + b"event: response.output_item.added" + rest
    data = frame + sent if place == "before" else within
    with backend_stage(tmp_path, [bare_stream(data)]) as stage:
        talk = conversation(door, stage.url, "m")
        talk.say("hi")
        assert talk.ask("stream").text == "Sunny"
        wait_until(lambda: shown_limits(stage.url) != [])
        [entry] = shown_limits(stage.url)
        assert [window["used_percent"] for window in entry["windows"]] == [7.0]


def test_the_page_asks_for_a_key_where_there_are_keys() -> None:
    settings = Settings(server=ServerSettings(api_keys=("k",), shutdown_grace=0.3))
    with running_gateway(settings) as gateway:
        assert fetch("GET", f"{gateway.url}/v1/limits").status_code == 401
        assert shown_limits(gateway.url, authorization="Bearer k") == []
        assert fetch("POST", f"{gateway.url}/v1/limits").status_code == 405
        assert fetch("GET", f"{gateway.url}/limits", {"x-api-key": "k"}).status_code == 200


def read_dump(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def inspect(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (COMMAND, "inspect", *arguments), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.requirement("S000-27")
@doors
def test_what_the_backend_sent_is_dumped_and_can_be_inspected(door: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    settings = Settings(dump=DumpSettings(path=str(path)))
    replies = [bare_stream(odd_stream(CALLS)), bare_stream(odd_stream(SUNNY))]
    with backend_stage(tmp_path, replies, settings=settings) as stage:
        talk = conversation(door, stage.url, "gpt-5.5", tools=[WEATHER])
        talk.say("hi")
        got = talk.ask("stream")
        assert len(got.calls) == 2
        for call in got.calls:
            talk.answer(call, "sunny")
        talk.ask("create")
    lines = read_dump(path)
    assert {line["upstream"] for line in lines} == {"codex"}
    assert len({line["request_id"] for line in lines}) == 2
    kinds = {line["event"]["type"] for line in lines}
    assert {
        "response.content_part.added",
        "response.output_item.done",
        "response.function_call_arguments.done",
    } <= kinds
    assert all("output" not in line["event"].get("response", {}) for line in lines)
    assert "hidden-1" not in path.read_text(encoding="utf-8")
    seen = inspect(str(path))
    assert (seen.returncode, seen.stderr) == (0, "")
    assert "call_1" in seen.stdout
    assert '{"city": "Paris", "api_key": "[redacted]"}' in seen.stdout
    assert "2 calls may be run" in seen.stdout
    found: dict[str, Any] = json.loads(inspect(str(path), "--json").stdout)
    assert [len(answer["calls"]) for answer in found["answers"]] == [2, 0]
    refused = inspect(str(path), "--to", "chat")
    assert refused.returncode == 2
    assert "expected one answer to rewrite, got 2" in refused.stderr


@pytest.mark.parametrize("dialect", DIALECTS)
@doors
def test_streams_of_every_dialect_are_dumped(door: str, dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    with ScriptedUpstream.in_thread([sse(stream(dialect, CALLS), cut_into=7)]) as upstream:
        settings = one_upstream(upstream.url, dialect, dump=DumpSettings(path=str(path)))
        with running_gateway(settings) as gateway:
            talk = conversation(door, gateway.url, "m", tools=[WEATHER])
            talk.say("hi")
            assert len(talk.ask("stream").calls) == 2
    found: dict[str, Any] = json.loads(inspect(str(path), "--json").stdout)
    [answer] = found["answers"]
    assert answer["dialect"] == dialect
    assert [call["id"] for call in answer["calls"]] == ["call_1", "call_2"]
    assert answer["problems"] == []


def test_a_dump_that_cannot_be_written_fails_no_request(tmp_path: Path) -> None:
    settings = Settings(dump=DumpSettings(path=str(tmp_path / "missing" / "dump.jsonl")))
    replies = [bare_stream(stream("responses", SUNNY))]
    with backend_stage(tmp_path, replies, settings=settings) as stage:
        assert ask(stage.url, "chat", plain_body("chat", "m")).status_code == 200


def test_a_cut_stream_is_seen_as_one_in_its_dump(tmp_path: Path) -> None:
    path = tmp_path / "dump.jsonl"
    settings = Settings(dump=DumpSettings(path=str(path)))
    data = stream("responses", CALLS).partition(b"event: response.completed")[0]
    with backend_stage(tmp_path, [bare_stream(data)], settings=settings) as stage:
        ask(stage.url, "chat", plain_body("chat", "m", stream=True))
    seen = inspect(str(path))
    assert seen.returncode == 1
    assert "cut_stream" in seen.stdout
