"""The SDKs of Node through the gateway: every way to use them, to every dialect of upstream."""

import urllib.request

import pytest

from clients.scenarios import (
    MODES,
    PYTHON_MODES,
    SCENARIOS,
    TOOLS,
    Mode,
    check_round_trip,
    describe,
)
from clients.script import Call, Dialect, Fault, MidStream, ModelTurn, Script
from clients.stack import Stack
from clients.worker import Worker

HALF = (ModelTurn("One moment.", (Call("get_weather", '{"city": "Paris"}'),)),)
# The chat helpers of the SDK know functions only.
CUSTOM = [
    mode
    for mode in MODES
    if mode.client == "openai-responses"
    or (mode.client == "openai-chat" and mode.mode in ("create", "stream"))
]
DOORS: dict[str, Dialect] = {mode.client: mode.door for mode in MODES}
STREAMED = [mode for mode in MODES if mode.streams]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_round_trip(stack: Stack, node: Worker, mode: Mode, scenario: str) -> None:
    stack.model.play(Script(SCENARIOS[scenario]))
    seen = node.run(stack.job(mode.client, mode.mode, mode.door, TOOLS))
    check_round_trip(stack, mode, seen)


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if "vercel-openai-res" in mode.client], ids=str
)
@pytest.mark.parametrize("scenario", ["text-then-call", "two-rounds", "thinking"])
def test_references_to_stored_items_do_not_part_calls_from_results(
    stack: Stack, node: Worker, mode: Mode, scenario: str
) -> None:
    """Left to itself the SDK believes that texts and thoughts are stored, and refers to them by id."""
    stack.model.play(Script(SCENARIOS[scenario]))
    job = stack.job(mode.client, mode.mode, mode.door, TOOLS)
    seen = node.run({**job, "store": None})
    check_round_trip(stack, mode, seen)


def _claims(gateway: Stack) -> float:
    with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    name = 'dragoman_store_seconds_count{operation="claim",outcome="ok"} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@pytest.mark.parametrize(
    "mode",
    [mode for mode in MODES if mode.client == "anthropic-messages" and "run" in mode.mode],
    ids=str,
)
def test_the_tool_runner_leaves_its_history_to_the_gateway(
    gateway: Stack, node: Worker, mode: Mode
) -> None:
    """By message threads: each turn but the first continues the one before."""
    gateway.model.play(Script(SCENARIOS["two-rounds"]))
    before = _claims(gateway)
    seen = node.run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    check_round_trip(gateway, mode, seen)
    assert _claims(gateway) - before == len(gateway.model.heard) - 1 == 2


@pytest.mark.parametrize("mode", CUSTOM, ids=str)
def test_custom_tool_gets_its_text(stack: Stack, node: Worker, mode: Mode) -> None:
    text = 'print("é")\n\tif x < 1: {"input": "😀 \\u00e9"}\u2028\n'
    stack.model.play(Script((ModelTurn(calls=(Call("run_code", text, custom=True),)),)))
    tool = {"name": "run_code", "description": "Runs code.", "custom": True}
    seen = node.run(stack.job(mode.client, mode.mode, mode.door, [tool]))
    report = describe(stack.model, seen)
    assert seen.error is None, report
    assert stack.model.objections == [], report
    assert [(call.name, call.text) for call in seen.calls] == [("run_code", text)], report
    assert len(seen.texts) == 2, report
    last = stack.model.heard[-1].conversation
    assert [call.id for call in last.calls] == stack.model.call_ids(stack.to(mode.door))
    assert [result.id for result in last.results] == stack.model.call_ids(stack.to(mode.door))


@pytest.mark.parametrize(
    "mode", [mode for mode in (*MODES, *PYTHON_MODES) if mode.runs_tools], ids=str
)
def test_error_of_a_tool_is_the_result_of_its_call(
    stack: Stack, workers: dict[str, Worker], mode: Mode
) -> None:
    stack.model.play(Script(SCENARIOS["parallel"]))
    job = stack.job(mode.client, mode.mode, mode.door, TOOLS)
    seen = workers[mode.worker].run({**job, "failing": ["get_time"]})
    report = describe(stack.model, seen)
    assert (seen.error, stack.model.objections) == (None, []), report
    assert [call.name for call in seen.calls] == ["get_weather", "get_time", "get_weather"], report
    results = stack.model.heard[-1].conversation.results
    assert [result.id for result in results] == stack.model.call_ids(stack.to(mode.door)), report
    assert "get_time failed: „é“" in results[1].text, report
    assert mode.result('get_weather got {"city":"Paris"}') == results[0].text, report
    assert mode.result('get_weather got {"city":"東京","days":3}') == results[2].text, report
    assert seen.texts[-1] == " | ".join(["Results:", *(result.text for result in results)]), report


@pytest.mark.parametrize("how", ["error", "cut", "end"])
@pytest.mark.parametrize("mode", STREAMED, ids=str)
def test_failure_in_the_middle_of_a_call_is_an_error_and_runs_nothing(
    gateway: Stack, node: Worker, mode: Mode, how: MidStream
) -> None:
    fault = Fault(mid_stream=how)
    gateway.model.play(Script(HALF, fault))
    seen = node.run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    assert seen.error is not None, describe(gateway.model, seen)
    assert seen.error["kind"] != "driver", describe(gateway.model, seen)
    assert seen.calls == []
    assert len(gateway.model.heard) == 1


@pytest.mark.parametrize("client", DOORS)
def test_what_is_said_is_seen_at_once_and_leaving_closes_the_upstream(
    gateway: Stack, node: Worker, client: str
) -> None:
    gateway.model.play(Script(HALF, Fault(mid_stream="silence")))
    seen = node.run(gateway.job(client, "leave", DOORS[client], TOOLS))
    assert (seen.error, seen.texts) == (None, ["One"]), describe(gateway.model, seen)
    (heard,) = gateway.model.heard
    gateway.wait_until(lambda: heard.request.was_abandoned)


@pytest.mark.parametrize(
    ("status", "found", "tries"), [(400, 400, 1), (401, 401, 1), (429, 429, 2), (500, 500, 2)]
)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_http_error_reaches_the_client_with_its_status(
    gateway: Stack, node: Worker, mode: Mode, status: int, found: int, tries: int
) -> None:
    gateway.model.play(Script(HALF, Fault(status=status)))
    seen = node.run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    assert seen.error is not None, describe(gateway.model, seen)
    assert seen.error["status"] == found, describe(gateway.model, seen)
    assert "scripted failure" in seen.error["message"]
    assert len(gateway.model.heard) == tries


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_passing_failure_is_retried_unseen(
    gateway: Stack, node: Worker, mode: Mode, status: int
) -> None:
    fault = Fault(status=status, headers=(("retry-after", "0"),), times=1)
    gateway.model.play(Script(SCENARIOS["single"], fault))
    seen = node.run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    assert seen.error is None, describe(gateway.model, seen)
    assert len(seen.calls) == 1
    assert len(gateway.model.heard) == 3
