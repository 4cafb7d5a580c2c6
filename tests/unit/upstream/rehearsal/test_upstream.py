"""The rehearsal as an upstream."""

import asyncio

import pytest

from dragoman.model.parts import Dialect
from dragoman.upstream.base import Upstream, UpstreamRequest
from dragoman.upstream.rehearsal import RehearsalUpstream
from rehearsal_asking import DIALECTS, WEATHER, ask, body, read_all, said_by


def make() -> Upstream:
    return RehearsalUpstream()


def test_it_has_a_name_and_speaks_the_clients_dialect() -> None:
    assert make().name == "rehearsal"
    assert RehearsalUpstream("stand-in").name == "stand-in"
    assert [make().dialect_for(door) for door in DIALECTS] == list(DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
def test_reply_carries_the_answer(dialect: Dialect, stream: bool) -> None:
    data = body(dialect, tools=(WEATHER,), stream=stream)

    async def run() -> None:
        upstream = make()
        request = UpstreamRequest(dialect=dialect, body=data, stream=stream, model="rehearsal")
        reply = await upstream.send(request)
        kind = "text/event-stream" if stream else "application/json"
        assert (reply.status, reply.headers["content-type"]) == (200, kind)
        assert b"".join(await read_all(reply)) == said_by(ask(dialect, data, stream=stream))
        reply.close()
        await upstream.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("dialect", "header"), [("chat", "x-request-id"), ("messages", "request-id")]
)
def test_reply_has_the_vendors_request_id(dialect: Dialect, header: str) -> None:
    assert ask(dialect, body(dialect)).headers[header].startswith("req_")
