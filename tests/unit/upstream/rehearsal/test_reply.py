"""Replies that are read piece by piece, and closed at any time."""

import asyncio
import time

import pytest

from dragoman.errors import UpstreamError
from dragoman.upstream.rehearsal.delivery import Delivery
from dragoman.upstream.rehearsal.reply import RehearsalReply
from dragoman.upstream.rehearsal.scenarios import Ending

from .asking import WAIT, read_all


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
    async def run() -> float:
        given = reply(*pieces, ending=ending, delay=delay)
        reading = asyncio.create_task(given.read())
        await asyncio.sleep(0)
        assert not reading.done()
        start = time.perf_counter()
        given.close()
        given.close()
        with pytest.raises(UpstreamError, match="closed"):
            await asyncio.wait_for(reading, WAIT)
        return time.perf_counter() - start

    assert asyncio.run(run()) < 1


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
