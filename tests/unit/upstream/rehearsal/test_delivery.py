"""Answers in pieces."""

import asyncio
import time

import pytest

from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.errors import UpstreamError
from dragoman.model.events import Failed, InputDelta, TextDelta, UsageReported
from dragoman.model.outcome import Choice, ErrorInfo, Outcome, Usage
from dragoman.model.parts import Call, Dialect, Part, Text
from dragoman.upstream.rehearsal.scenarios import Ending, find_scenario
from dragoman.upstream.rehearsal.upstream import (
    BODY_PIECE,
    MAX_DELTAS,
    Delivery,
    RehearsalReply,
    deliver_body,
    deliver_error,
    deliver_stream,
    events_of,
)
from rehearsal_asking import DIALECTS, WAIT, read_all, read_stream

CONTEXT = EncodeContext(seed="s")


def outcome_of(*parts: Part) -> Outcome:
    return Outcome(
        response_id="r",
        model="m",
        created=1,
        choices=(Choice(parts=parts, finish="stop"),),
        usage=Usage(input=3, output=5),
        completed=True,
    )


def test_events_amount_to_the_answer() -> None:
    outcome = outcome_of(Text(text="Guten Tag"), Call(call_id="c", name="f", input='{"a":1}'))
    events = list(events_of(outcome))
    assert is_grammatical(events)
    assert fold(events) == outcome
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Gute", "n Ta", "g"]
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [
        Usage(input=3, output=0),
        Usage(input=3, output=5),
    ]


def test_answer_without_usage_reports_none() -> None:
    events = events_of(Outcome(response_id="r", completed=True))
    assert not any(isinstance(event, UsageReported) for event in events)


def test_long_input_comes_in_fewer_and_larger_deltas() -> None:
    events = events_of(outcome_of(Call(call_id="c", name="f", input="x" * 300_000)))
    sizes = [len(event.text) for event in events if isinstance(event, InputDelta)]
    assert len(sizes) == MAX_DELTAS
    assert sum(sizes) == 300_000


def test_body_comes_in_pieces() -> None:
    outcome = outcome_of(Text(text="x" * 150_000))
    delivery = deliver_body(outcome, codec("chat"), CONTEXT, find_scenario("rehearsal"))
    assert [len(piece) for piece in delivery.pieces[:2]] == [BODY_PIECE, BODY_PIECE]
    assert len(delivery.pieces) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ending", ["cut", "no-end", "stall", "error-midstream"])
@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Text(text="word"),),
        (Call(call_id="c", name="f", input=""),),
        (Text(text="word"), Call(call_id="c", name="f", input="{}")),
    ],
    ids=["nothing", "text", "empty call", "text and call"],
)
def test_interrupted_answer_of_any_shape_is_one(
    dialect: Dialect, ending: str, parts: tuple[Part, ...]
) -> None:
    scenario = find_scenario(f"rehearsal-{ending}")
    delivery = deliver_stream(outcome_of(*parts), codec(dialect), CONTEXT, scenario)
    events, _ = read_stream(dialect, b"".join(delivery.pieces))
    assert isinstance(events[-1], Failed)


def test_error_says_when_to_come_back() -> None:
    error = ErrorInfo(kind="rate_limit", message="later", retry_after=2.5)
    delivery = deliver_error(error, codec("chat"))
    assert (delivery.status, delivery.headers["retry-after"]) == (429, "2.5")


def test_interleaving_leaves_what_is_no_call_in_its_place() -> None:
    calls = [Call(call_id=f"c{n}", name="f", input='{"a":1}') for n in range(3)]
    scenario = find_scenario("rehearsal-interleaved")
    outcome = outcome_of(Text(text="first"), *calls)
    delivery = deliver_stream(outcome, codec("messages"), CONTEXT, scenario)
    events, _ = read_stream("messages", b"".join(delivery.pieces))
    folded = fold(events)
    assert folded.choices[0].parts == outcome.choices[0].parts
    assert folded.completed


def reply(*pieces: bytes, ending: Ending = "whole", delay: float = 0.0) -> RehearsalReply:
    return RehearsalReply(Delivery(200, {"content-type": "x"}, pieces, ending, delay))


def test_pieces_come_one_by_one_and_then_nothing() -> None:
    async def run() -> None:
        given = reply(b"a", b"b")
        assert (given.status, given.headers) == (200, {"content-type": "x"})
        assert await read_all(given) == [b"a", b"b"]
        assert await given.read() == b""

    asyncio.run(run())


def test_others_have_their_turn_between_pieces() -> None:
    async def run() -> list[str]:
        seen: list[str] = []

        async def other() -> None:
            while len(seen) < 6:
                seen.append("other")
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        given = reply(b"1", b"2")
        while piece := await given.read():
            seen.append(piece.decode())
        await asyncio.wait_for(task, WAIT)
        return seen

    assert asyncio.run(run())[:4] == ["other", "1", "other", "2"]


def test_cut_comes_after_the_pieces() -> None:
    async def run() -> None:
        given = reply(b"a", ending="cut")
        assert await given.read() == b"a"
        with pytest.raises(UpstreamError, match="cut") as caught:
            await given.read()
        assert caught.value.kind == "truncated"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("ending", "delay", "pieces"),
    [("stall", 0.0, ()), ("whole", 3600.0, (b"a",))],
    ids=["hanging", "slow"],
)
def test_close_wakes_the_reader_at_once(
    ending: Ending, delay: float, pieces: tuple[bytes, ...]
) -> None:
    async def run() -> None:
        given = reply(*pieces, ending=ending, delay=delay)
        reading = asyncio.create_task(given.read())
        await asyncio.sleep(0)
        assert not reading.done()
        given.close()
        given.close()
        with pytest.raises(UpstreamError, match="closed"):
            await asyncio.wait_for(reading, WAIT)

    asyncio.run(run())


def test_delay_passes_before_each_piece() -> None:
    async def run() -> float:
        start = time.perf_counter()
        assert await read_all(reply(b"a", b"b", delay=0.02)) == [b"a", b"b"]
        return time.perf_counter() - start

    assert asyncio.run(run()) >= 0.04


def test_nothing_is_read_after_close() -> None:
    async def run() -> None:
        given = reply(b"a")
        given.close()
        with pytest.raises(UpstreamError):
            await given.read()

    asyncio.run(run())
