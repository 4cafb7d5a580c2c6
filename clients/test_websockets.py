"""The SDKs over a WebSocket, through the gateway to every dialect of upstream. Codex over one is in `test_codex.py`."""

import pytest

from clients.scenarios import SCENARIOS, TOOLS, WEBSOCKET_MODES, Mode, check_round_trip, describe
from clients.script import Call, Fault, MidStream, ModelTurn, Script
from clients.stack import Stack
from clients.worker import Worker

HALF = (ModelTurn("One moment.", (Call("get_weather", '{"city": "Paris"}'),)),)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", WEBSOCKET_MODES, ids=str)
def test_round_trip(gateway: Stack, workers: dict[str, Worker], mode: Mode, scenario: str) -> None:
    gateway.model.play(Script(SCENARIOS[scenario]))
    seen = workers[mode.worker].run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    check_round_trip(gateway, mode, seen)


@pytest.mark.parametrize("how", ["error", "cut", "end"])
@pytest.mark.parametrize("mode", WEBSOCKET_MODES, ids=str)
def test_failure_in_the_middle_of_a_call_is_an_error_and_runs_nothing(
    gateway: Stack, workers: dict[str, Worker], mode: Mode, how: MidStream
) -> None:
    gateway.model.play(Script(HALF, Fault(mid_stream=how)))
    seen = workers[mode.worker].run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    assert seen.error is not None, describe(gateway.model, seen)
    assert seen.error["kind"] != "driver", describe(gateway.model, seen)
    assert seen.calls == []
    assert len(gateway.model.heard) == 1


@pytest.mark.parametrize("status", [400, 429])
@pytest.mark.parametrize("mode", WEBSOCKET_MODES, ids=str)
def test_http_error_of_the_upstream_reaches_the_client_as_an_error_frame(
    gateway: Stack, workers: dict[str, Worker], mode: Mode, status: int
) -> None:
    gateway.model.play(Script(HALF, Fault(status=status)))
    seen = workers[mode.worker].run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    assert seen.error is not None, describe(gateway.model, seen)
    assert "scripted failure" in seen.error["message"], seen.error
    if mode.client != "openai-agents":  # it shows no status
        assert seen.error["status"] == status
    assert seen.calls == []


@pytest.mark.parametrize("mode", WEBSOCKET_MODES, ids=str)
def test_what_is_said_is_seen_at_once_and_leaving_closes_the_upstream(
    gateway: Stack, workers: dict[str, Worker], mode: Mode
) -> None:
    gateway.model.play(Script(HALF, Fault(mid_stream="silence")))
    job = gateway.job(mode.client, "leave-websocket", mode.door, TOOLS)
    seen = workers[mode.worker].run(job)
    assert (seen.error, seen.texts) == (None, ["One"]), describe(gateway.model, seen)
    (heard,) = gateway.model.heard
    gateway.wait_until(lambda: heard.request.was_abandoned)
