"""Upstreams with the quirks of real servers, of the client's own dialect and of others: no client is to notice."""

import pytest

from clients.model import Model
from clients.quirks import QUIRKS
from clients.scenarios import MODES, TOOLS, Mode, check_round_trip
from clients.script import Call, Dialect, ModelTurn, Script
from clients.stack import Stack
from clients.worker import Worker

CALLS = (
    Call("get_weather", '{"city": "Paris"}'),
    Call("get_time", "{}"),
    Call("get_weather", '{"city":"東京","days":3}'),
)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.streams], ids=str)
@pytest.mark.parametrize(("to", "quirk"), QUIRKS, ids="-".join)
def test_quirk_is_not_noticed(
    model_server: tuple[Model, str],
    gateway_url: str,
    node: Worker,
    mode: Mode,
    to: Dialect,
    quirk: str,
) -> None:
    stack = Stack(model_server[0], gateway_url, to)
    stack.model.play(Script((ModelTurn("First.", CALLS),), quirk=QUIRKS[to, quirk]))
    seen = node.run(stack.job(mode.client, mode.mode, mode.door, TOOLS))
    check_round_trip(stack, mode, seen)
