"""Tools that are run in the gateway when something goes wrong: a client that leaves, a server or an upstream that fails."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from doors import check_chat, check_messages, check_responses
from dragoman.config.settings import HostedSettings, McpServerSettings, Route, ServerSettings
from dragoman.testing import ScriptedReply, json_reply, sse
from gateway_harness import wait_until
from hosted_stage import (
    STOPPED,
    WEATHER,
    add,
    answers,
    echo,
    hosting_stage,
    last_heard,
    raw_stream,
    said,
    sent,
    tool,
    workshop,
)
from plain_http import ask as ask_plainly
from plain_http import plain_body, streaming
from sdk_clients import DOORS
from stage import Scene, Stage
from vendor_wire import Answer, stream

CHECKS = {"chat": check_chat, "responses": check_responses, "messages": check_messages}
FAILED = {"chat": b'"error"', "responses": b"response.failed", "messages": b"event: error"}
ALIVE = {"chat": b": ", "responses": b'"keepalive"', "messages": b"event: ping"}
ABSENT = McpServerSettings(name="absent", command=(sys.executable, "-c", "raise SystemExit(3)"))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def stage(records: Path) -> Iterator[Stage]:
    hosted = HostedSettings(servers=("workshop",), max_turns=3, calls="note")
    routes = (
        Route(model="absent/*", upstream="chat", mcp=("absent",)),
        Route(model="both/*", upstream="chat", mcp=("absent", "workshop")),
    )
    server = ServerSettings(shutdown_grace=0.3, keep_alive_interval=0.2)
    with hosting_stage(
        workshop(records), ABSENT, hosted=hosted, server=server, routes=routes
    ) as running:
        yield running


class Reader:
    """Reads a stream while it comes."""

    def __init__(self, response: httpx2.Response) -> None:
        self.received = b""
        self._pieces = response.iter_bytes()

    def until(self, wanted: bytes) -> None:
        while wanted not in self.received:
            piece = next(self._pieces, None)
            assert piece is not None, f"{wanted!r} never came: {self.received!r}"
            self.received += piece

    def rest(self) -> bytes:
        for piece in self._pieces:
            self.received += piece
        return self.received


def slow(name: str) -> Answer:
    return answers(said("Wait."), tool("workshop__slow", {"name": name}))


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_leaves_cancels_the_tool(stage: Stage, records: Path, door: str) -> None:
    name = f"left-{door}"
    scene = stage.scene("chat", slow(name))
    with streaming(stage.url, door, plain_body(door, scene.model, stream=True)) as response:
        reader = Reader(response)
        reader.until(b"Wait.")
        wait_until((records / f"started-{name}").exists)
        reader.until(ALIVE[door])
    wait_until((records / f"cancelled-{name}").exists)
    wait_until(lambda: not stage.gateway.app.gateway.exchanges)


def test_a_client_that_waits_for_a_body_and_leaves_cancels_the_tool(
    stage: Stage, records: Path
) -> None:
    scene = stage.scene("chat", slow("body"))
    body = plain_body("chat", scene.model)
    limits = httpx2.Timeout(5, read=0.5)
    with (
        httpx2.Client(trust_env=False, timeout=limits) as client,
        pytest.raises(httpx2.ReadTimeout),
    ):
        client.post(f"{stage.url}/v1/chat/completions", json=body)
    wait_until((records / "started-body").exists)
    wait_until((records / "cancelled-body").exists)


@pytest.mark.parametrize("door", DOORS)
def test_what_the_model_says_goes_on_while_a_tool_runs(
    stage: Stage, records: Path, door: str
) -> None:
    name = f"meanwhile-{door}"
    call = tool("workshop__slow", {"name": name})
    scene = stage.scene("responses", Answer((call, said("Mean", "while."))), delivery="frames")
    with streaming(stage.url, door, plain_body(door, scene.model, stream=True)) as response:
        reader = Reader(response)  # which keeps the stream open while it lives
        reader.until(b"while.")
        wait_until((records / f"started-{name}").exists)
        assert not (records / f"cancelled-{name}").exists()
        del reader
    wait_until((records / f"cancelled-{name}").exists)


def test_two_calls_that_run_at_once_are_both_shown_open(stage: Stage) -> None:
    scene = stage.scene("responses", Answer((echo("one"), said("Hm."), add(1, 2))))
    scene.parts.append(answers(said("Done.")))
    check_responses(raw_stream(stage, "responses", scene))


def second_turns() -> dict[str, Any]:
    whole = stream("chat", answers(said("Half ", "an answer.")))
    half = whole[: whole.index(b"an answer.")]
    return {
        "error": json_reply({"error": {"message": "out of order"}}, 500),
        "cut": sse(half[: half.rindex(b"\n\n") + 2], cut=True),
    }


@pytest.mark.parametrize("how", second_turns())
@pytest.mark.parametrize("door", DOORS)
def test_an_upstream_that_fails_later_is_a_failure_in_the_stream(
    stage: Stage, door: str, how: str
) -> None:
    failing: ScriptedReply = second_turns()[how]
    scene = stage.scene("chat", answers(said("One."), echo("x")), failing)
    received = raw_stream(stage, door, scene)
    CHECKS[door](received)
    assert b"One." in received
    assert FAILED[door] in received
    assert (b"out of order" in received) == (how == "error")


@pytest.mark.parametrize("door", DOORS)
def test_an_upstream_that_fails_later_is_an_error_where_nothing_was_sent(
    stage: Stage, door: str
) -> None:
    scene = stage.scene("chat", answers(said("One."), echo("x")), second_turns()["error"])
    answer = ask_plainly(stage.url, door, plain_body(door, scene.model))
    assert answer.status_code == 500
    assert "out of order" in answer.text


@pytest.mark.parametrize(("door", "mode"), [(door, "create") for door in DOORS])
def test_a_server_that_dies_fails_its_call_and_comes_back(
    stage: Stage, door: str, mode: str
) -> None:
    scene = stage.scene("chat", answers(tool("workshop__crash", {})), answers(said("Gone.")))
    got = sent(stage, door, mode, scene)
    assert got.text.endswith("Gone.")
    (result,) = last_heard(scene).results
    assert result.is_error
    assert "workshop" in result.text
    again = stage.scene("chat", answers(echo("back")), answers(said("Back.")))
    assert sent(stage, door, mode, again).text.endswith("Back.")
    assert [result.text for result in last_heard(again).results] == ["back"]


@pytest.mark.parametrize("door", DOORS)
def test_a_server_that_is_not_there_takes_nothing_else_away(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", answers(said("Alone.")), route="absent")
    assert sent(stage, door, "create", scene, (WEATHER,)).text == "Alone."
    assert [each.name for each in last_heard(scene).tools] == ["get_weather"]
    both = stage.scene("chat", answers(echo("x")), answers(said("Done.")), route="both")
    assert sent(stage, door, "create", both).text.endswith("Done.")


def circles(stage: Stage, turns: int = 9) -> Scene:
    parts = [answers(said(f"{turn}."), echo(str(turn), f"call_{turn}")) for turn in range(turns)]
    return stage.scene("chat", *parts)


@pytest.mark.parametrize(
    ("door", "finish"),
    [("chat", "length"), ("responses", "max_output_tokens"), ("messages", "max_tokens")],
)
@pytest.mark.parametrize("mode", ["create", "stream"])
def test_a_model_that_never_stops_calling_is_stopped(
    stage: Stage, door: str, finish: str, mode: str
) -> None:
    scene = circles(stage)
    got = sent(stage, door, mode, scene)
    assert got.finish == finish
    assert len(scene.requests) == 3
    if door == "responses":
        assert [item.output for item in got.hosted] == ["0", "1", "2"]


def test_time_that_is_up_ends_an_answer_and_its_tools(records: Path) -> None:
    hosted = HostedSettings(servers=("workshop",), max_seconds=2.0)
    with hosting_stage(workshop(records), hosted=hosted) as stage:
        ready = stage.scene("chat", answers(said("Ready.")))
        sent(stage, "chat", "create", ready)
        for door in DOORS:
            scene = stage.scene("chat", slow(f"timed-{door}"))
            received = raw_stream(stage, door, scene)
            CHECKS[door](received)
            assert FAILED[door] in received
            assert b"exceeded the time limit" in received
            wait_until((records / f"cancelled-timed-{door}").exists)


def test_a_stopping_gateway_sends_a_failure_and_ends_its_tools(records: Path) -> None:
    with hosting_stage(workshop(records)) as stage:
        scene = stage.scene("chat", slow("stopped"))
        body = plain_body("messages", scene.model, stream=True)
        with streaming(stage.url, "messages", body) as response:
            reader = Reader(response)
            reader.until(b"Wait.")
            wait_until((records / "started-stopped").exists)
            stage.gateway.server.should_exit = True
            assert FAILED["messages"] in reader.rest()
    assert (records / "cancelled-stopped").exists()


@pytest.mark.parametrize("door", DOORS)
def test_a_stopping_gateway_sends_a_failure_while_its_servers_start(door: str) -> None:
    asleep = McpServerSettings(
        name="asleep", command=(sys.executable, "-c", "import time; time.sleep(60)")
    )
    server = ServerSettings(shutdown_grace=0.3, keep_alive_interval=0.2)
    hosted = HostedSettings(servers=("asleep",))
    with hosting_stage(asleep, hosted=hosted, server=server) as stage:
        scene = stage.scene("chat", answers(said("Ready.")))
        with streaming(stage.url, door, plain_body(door, scene.model, stream=True)) as response:
            reader = Reader(response)
            reader.until(b": keep-alive")
            stage.gateway.server.should_exit = True
            assert FAILED[door] in reader.rest()
    assert not scene.requests


@pytest.mark.parametrize("door", ["chat", "messages"])
def test_a_note_says_what_was_run(stage: Stage, door: str) -> None:
    first = answers(said("Look."), echo("x"), tool("workshop__fail", {}, "call_2"))
    scene = stage.scene("chat", first, answers(said("Seen.")))
    got = sent(stage, door, "stream", scene)
    assert got.text == "Look.\n[workshop: echo]\n\n[workshop: fail failed]\nSeen."
    assert got.finish == STOPPED[door]


def test_the_log_says_what_was_run(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    scene = stage.scene("chat", answers(echo("x")), answers(said("Done.")))
    with caplog.at_level(logging.INFO, "dragoman.requests"):
        sent(stage, "chat", "create", scene)
        wait_until(lambda: scene.model in caplog.text)
    (line,) = [line for line in caplog.text.splitlines() if scene.model in line]
    assert "  1 here" in line
    assert "22→14 " in line
