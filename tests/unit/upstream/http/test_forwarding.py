"""Replies that are forwarded: each read is handed over by the event loop itself, until the end or until it is enough."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from itertools import chain

import pytest
from msgspec import structs

from dragoman.config.settings import UpstreamSettings
from dragoman.errors import UpstreamError
from dragoman.testing import Chunk, Pause, Script, ScriptedReply, ScriptedUpstream, Wait, sse
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.http.transport import HttpReply
from dragoman.upstream.http.upstream import HttpUpstream
from loops import LOOPS, play

ASKED = UpstreamRequest(dialect="chat", body=b'{"model":"m"}', stream=True, model="m")
SETTINGS = UpstreamSettings(kind="chat")

Scene = Callable[[ScriptedUpstream, HttpReply], Awaitable[None]]

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def forward(loop: str, script: Script, scene: Scene, settings: UpstreamSettings = SETTINGS) -> None:
    async def main() -> None:
        async with ScriptedUpstream(script) as server, asyncio.timeout(60):
            pointed = structs.replace(settings, base_url=f"{server.url}/v1")
            upstream = HttpUpstream("local", pointed, key=None)
            reply = await upstream.send(ASKED)
            assert isinstance(reply, HttpReply)
            try:
                await scene(server, reply)
            finally:
                reply.close()
                await upstream.close()

    play(loop, main())


def taking_all(came: list[bytes]) -> Callable[[list[bytes]], bool]:
    def take(pieces: list[bytes]) -> bool:
        came.append(b"".join(pieces))
        return True

    return take


def test_each_read_is_taken_when_it_comes_and_the_end_is_reported(loop: str) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    chunks: list[Chunk] = [b"one", Wait(gates[0]), b"two", Wait(gates[1]), b"three"]
    came: list[bytes] = []

    def take(pieces: list[bytes]) -> bool:
        came.append(b"".join(pieces))
        if len(came) <= len(gates):
            gates[len(came) - 1].set()
        return True

    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        assert await reply.forward(take)
        assert came == [b"one", b"two", b"three"]
        assert reply.is_over

    forward(loop, [ScriptedReply(chunks=chunks)], scene)


def test_what_is_not_wanted_any_more_is_kept_for_whoever_goes_on(loop: str) -> None:
    gate = asyncio.Event()
    came: list[bytes] = []

    def enough(pieces: list[bytes]) -> bool:
        came.append(b"".join(pieces))
        gate.set()
        return len(came) < 2

    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        assert not await reply.forward(enough)
        assert came == [b"one", b"two"]
        assert await reply.read() == b"three"
        assert await reply.forward(enough)

    chunks: list[Chunk] = [b"one", Wait(gate), b"two", Pause(0.05), b"three"]
    forward(loop, [ScriptedReply(chunks=chunks)], scene)


@pytest.mark.parametrize("cut", [True, "reset"])
def test_answer_that_is_cut_is_taken_up_to_the_cut(loop: str, cut: bool) -> None:
    came: list[bytes] = []

    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        with pytest.raises(UpstreamError) as caught:
            await reply.forward(taking_all(came))
        assert caught.value.kind == "truncated"
        assert b"".join(came) == b"data: 1\n\ndata: 2\n\n"

    chunks: list[Chunk] = [b"data: 1\n\n", Pause(0.05), b"data: 2\n\n", Pause(0.05)]
    forward(loop, [structs.replace(sse(b""), chunks=chunks, cut=cut)], scene)


def test_silence_ends_in_time_counted_from_the_last_read(loop: str) -> None:
    never = asyncio.Event()
    chunks: list[Chunk] = [b"one", Pause(1.1), b"two", Pause(1.1), b"three", Wait(never)]
    came: list[bytes] = []

    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        with pytest.raises(UpstreamError) as caught:
            await reply.forward(taking_all(came))
        assert caught.value.kind == "timeout"
        assert came == [b"one", b"two", b"three"]
        never.set()

    settings = structs.replace(SETTINGS, idle_timeout=2.1)
    forward(loop, [ScriptedReply(chunks=chunks)], scene, settings)


def test_compressed_answer_is_forwarded_plainly(loop: str) -> None:
    text = b"data: 1\n\n" * 1000
    packed = ScriptedReply(body=gzip.compress(text), headers={"content-encoding": "gzip"})
    came: list[bytes] = []

    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        assert reply.take_pieces() == []
        assert await reply.forward(taking_all(came))
        assert b"".join(came) == text

    forward(loop, [packed], scene)


def test_answer_that_has_arrived_with_its_head_is_taken_whole(loop: str) -> None:
    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        first = reply.take_pieces()
        assert (b"".join(first) if first else await reply.read()) == b"all of it"
        assert await reply.read() == b""
        assert reply.is_over

    forward(loop, [ScriptedReply(body=b"all of it")], scene)


def test_forwarding_that_is_given_up_lets_the_connection_go(loop: str) -> None:
    never = asyncio.Event()

    async def scene(server: ScriptedUpstream, reply: HttpReply) -> None:
        forwarding = asyncio.ensure_future(reply.forward(lambda _: True))
        await server.until(lambda: len(server.requests) == 1)
        await asyncio.sleep(0)
        forwarding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forwarding
        reply.close()
        await server.until(lambda: server.open_connections == 0)

    forward(loop, [ScriptedReply(chunks=[b"one", Wait(never)])], scene)


def test_read_that_brings_several_chunks_is_taken_in_pieces(loop: str) -> None:
    gate = asyncio.Event()
    chunks: list[Chunk] = [b"head ", Wait(gate), *(b"%d " % number for number in range(50))]
    came: list[list[bytes]] = []

    def take(pieces: list[bytes]) -> bool:
        gate.set()
        came.append([*pieces])
        return True

    async def scene(_server: ScriptedUpstream, reply: HttpReply) -> None:
        assert await reply.forward(take)
        assert b"".join(chain.from_iterable(came)) == b"".join(
            [b"head ", *(b"%d " % number for number in range(50))]
        )
        assert all(pieces for pieces in came)
        assert reply.is_over

    forward(loop, [ScriptedReply(chunks=chunks)], scene)
