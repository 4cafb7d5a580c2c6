"""The frameworks of Python through the gateway: every way to use them, whole and streamed, to every dialect of upstream."""

import pytest

from clients.scenarios import PYTHON_MODES, SCENARIOS, TOOLS, Mode, check_round_trip, describe
from clients.script import Call, Fault, MidStream, ModelTurn, Script
from clients.stack import Stack
from clients.worker import Worker


# Long input would show how LangChain reads a growing call again at every piece, and nothing else.
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "long-input"])
@pytest.mark.parametrize("mode", PYTHON_MODES, ids=str)
def test_round_trip(stack: Stack, workers: dict[str, Worker], mode: Mode, scenario: str) -> None:
    stack.model.play(Script(SCENARIOS[scenario]))
    seen = workers[mode.worker].run(stack.job(mode.client, mode.mode, mode.door, TOOLS))
    check_round_trip(stack, mode, seen)


@pytest.mark.parametrize("how", ["error", "cut", "end"])
@pytest.mark.parametrize("mode", [mode for mode in PYTHON_MODES if mode.streams], ids=str)
def test_failure_in_the_middle_of_a_call_is_an_error_and_runs_nothing(
    gateway: Stack, workers: dict[str, Worker], mode: Mode, how: MidStream
) -> None:
    fault = Fault(mid_stream=how)
    turn = ModelTurn("One moment.", (Call("get_weather", '{"city": "Paris"}'),))
    gateway.model.play(Script((turn,), fault))
    seen = workers[mode.worker].run(gateway.job(mode.client, mode.mode, mode.door, TOOLS))
    assert seen.error is not None, describe(gateway.model, seen)
    assert seen.error["kind"] != "driver", describe(gateway.model, seen)
    assert seen.calls == []
