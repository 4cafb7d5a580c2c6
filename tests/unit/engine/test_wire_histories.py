"""What the engine leaves behind goes through the encoders of every dialect without a repair."""

import asyncio

import pytest

from dragoman.dialects.registry import CODECS
from dragoman.engine.events import CallStarted, EngineEvent
from dragoman.engine.run import Engine
from dragoman.model.events import Failed, Started
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Reasoning, Text
from dragoman.model.request import Request, Turn
from engine_models import (
    Acting,
    Gated,
    Script,
    answer_calls,
    answer_text,
    ask,
    bounded,
    call,
    ending,
    part_events,
    say_ok,
)

ERROR = ErrorInfo(kind="server", message="gone")
CUT = call("work", "c", '{"path": "x', status="incomplete")


def answered() -> tuple[Turn, ...]:
    model = Script(
        [
            Started(),
            *part_events(0, Reasoning(summary=("hm",))),
            *part_events(1, Text(text="Let me.")),
            *part_events(2, call("work", "a")),
            *part_events(3, call("work", "a", '{"b":1}')),
            *part_events(4, call("wrok", "b", "{")),
            *part_events(5, call("", "", "{}")),
            *part_events(6, CUT),
            *ending("length"),
        ],
        answer_calls(call("work", "a")),
        answer_text(),
    )
    return asyncio.run(bounded(Engine(model, [Acting(say_ok)]).run(ask()))).turns


def broken() -> tuple[Turn, ...]:
    model = Script(
        [
            Started(),
            *part_events(0, Text(text="Let me.")),
            *part_events(1, call("work", "a")),
            *part_events(2, Reasoning(summary=("hm",))),
            *part_events(3, CUT),
            Failed(ERROR),
        ]
    )
    return asyncio.run(bounded(Engine(model, [Acting(say_ok)]).run(ask()))).turns


def interrupted() -> tuple[Turn, ...]:
    async def main() -> tuple[Turn, ...]:
        engine: Engine

        async def interrupt(event: EngineEvent) -> None:
            if isinstance(event, CallStarted):
                engine.interrupt()

        model = Script(answer_calls(call("work", "a"), call("work", "b")))
        engine = Engine(model, [Gated()], observer=interrupt)
        return (await bounded(engine.run(ask()))).turns

    return asyncio.run(main())


HISTORIES = {"answered": answered, "broken": broken, "interrupted": interrupted}


@pytest.mark.parametrize("dialect", CODECS)
@pytest.mark.parametrize("history", HISTORIES)
def test_history_is_sent_again_without_a_repair(history: str, dialect: str) -> None:
    turns = HISTORIES[history]()
    assert any(isinstance(part, Call) for turn in turns for part in turn.parts)
    more = Turn(role="user", parts=(Text(text="Go on."),))
    codec = CODECS[dialect]
    encoded = codec.encode_request(Request(model="m", turns=(*turns, more)), codec.target, {})
    assert encoded.repairs == ()
