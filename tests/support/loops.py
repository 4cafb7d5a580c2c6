"""The event loops that the gateway is used with, for tests that must hold in each."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TypeVar

import uvloop

T = TypeVar("T")

LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def play(loop: str, main: Coroutine[object, object, T]) -> T:
    """`asyncio.run` with a loop by name."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main)
