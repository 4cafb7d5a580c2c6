"""Requests for a `CodexUpstream` in tests, and what its answers amount to."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from codex_app_server import alive
from dragoman._json import Raw
from dragoman.config.settings import UpstreamSettings
from dragoman.core.fold import fold
from dragoman.dialects.codex import CodexReader, encode_request
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.errors import GatewayError
from dragoman.model.events import Event
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Reasoning, Result, Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.upstream.base import UpstreamRequest
from dragoman.upstream.codex.turn import CodexReply
from dragoman.upstream.codex.upstream import CodexUpstream

PATIENCE = 30.0
TOOL = Tool(name="get", schema=Raw(b'{"type":"object","properties":{"x":{"type":"integer"}}}'))


def request(*words: str, tools: Sequence[Tool] = (TOOL,), model: str = "m") -> Request:
    turns = tuple(Turn(role="user", parts=(Text(text=said),)) for said in words or ("hi",))
    return Request(model=model, turns=turns, tools=tuple(tools))


def with_results(before: Request, outcome: Outcome, *more: str, result: str = "ok") -> Request:
    """The request of a client that has run the calls of an answer; `more` is what its user adds."""
    calls = calls_of(outcome)
    said = text_of(outcome)
    parts = (*((Text(text=said),) if said else ()), *calls)
    results = tuple(
        Turn(role="tool", parts=(Result(call_id=call.call_id, content=(Text(text=result),)),))
        for call in calls
    )
    added = tuple(Turn(role="user", parts=(Text(text=words),)) for words in more)
    turns = (*before.turns, Turn(role="assistant", parts=parts), *results, *added)
    return Request(model=before.model, turns=turns, tools=before.tools)


def asked(wanted: Request) -> UpstreamRequest:
    body = encode_request(wanted).body
    return UpstreamRequest(dialect="codex", body=body, stream=True, model=wanted.model)


async def read_all(reply: CodexReply) -> list[Event]:
    decoder = StreamDecoder(CodexReader())
    events: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while data := await reply.read():
            events += decoder.events(data)
    for step in decoder.close():
        events += step.events
    reply.close()
    return events


async def answer_of(upstream: CodexUpstream, wanted: Request) -> Outcome:
    async with asyncio.timeout(PATIENCE):
        reply = await upstream.send(asked(wanted))
    return fold(await read_all(reply))


def calls_of(outcome: Outcome) -> tuple[Call, ...]:
    return tuple(
        part
        for part in outcome.choices[0].parts
        if isinstance(part, Call) and part.executor == "client"
    )


def text_of(outcome: Outcome) -> str:
    return "".join(part.text for part in outcome.choices[0].parts if isinstance(part, Text))


def reasoning_of(outcome: Outcome) -> list[Reasoning]:
    return [part for part in outcome.choices[0].parts if isinstance(part, Reasoning)]


@asynccontextmanager
async def running(settings: UpstreamSettings, folder: Path) -> AsyncGenerator[CodexUpstream]:
    """An upstream, closed at the end; nothing that it started may be left."""
    upstream = CodexUpstream("codex", settings)
    try:
        yield upstream
    finally:
        async with asyncio.timeout(PATIENCE):
            await upstream.close()
    await until(lambda: not alive(folder))


async def answer_of_restarted(upstream: CodexUpstream, wanted: Request) -> Outcome:
    """An answer, as soon as there is a child again."""
    for _ in range(600):
        try:
            return await answer_of(upstream, wanted)
        except GatewayError:
            await asyncio.sleep(0.05)
    raise AssertionError("no child came back")


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited too long")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
