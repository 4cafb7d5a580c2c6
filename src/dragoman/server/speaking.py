"""The gateway's upstreams as a model that the engine asks: a request in, the events of the answer out.

Where a request goes, what is sent and how the answer is read is planned as for a client's request (`routing`, `planning`);
only nobody is told of it here but whoever asked. While nothing has come of an answer it may be tried again, or elsewhere,
by the policy of `upstream.retry`; from its first event on it is the answer, also if it breaks off.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import getrandbits, random
from typing import Protocol, Self

from msgspec import Struct, field, structs

from dragoman.core.failures import ToldError, error_info
from dragoman.core.secrets import Secrets
from dragoman.errors import GatewayError
from dragoman.model.events import Event, Failed, Started
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.model.request import Request, Tool
from dragoman.server.doors import DOORS, Door
from dragoman.server.planning import Asked, Sending, plan_answer, plan_sending, without_hosted_text
from dragoman.server.reading import Reading
from dragoman.server.replies import (
    MAX_BODY_BYTES,
    FailedAttempt,
    feed_slice,
    is_one_step,
    is_stream,
    let_go,
    no_reply,
    read_error,
    read_whole,
    slices,
)
from dragoman.server.routing import Attempt, Router
from dragoman.server.settings import Settings
from dragoman.server.upstreams import make_upstream
from dragoman.server.ways import Way, Ways
from dragoman.store.packing import weigh_request
from dragoman.store.working import beside
from dragoman.upstream.base import Reply, Supervised, Upstream, UpstreamRequest
from dragoman.upstream.retry import (
    Decision,
    Failure,
    Fallback,
    GiveUp,
    Retry,
    decide,
    failure_without_answer,
)

__all__ = ("Behalf", "Prepare", "Reach", "UpstreamModel", "Witness")

Prepare = Callable[[Request, Way], Awaitable[Request]]
"""What one way's request needs beyond what was asked; the very same request where it needs nothing."""


class Reach(Struct, frozen=True):
    """What upstreams there are, and the ways to them."""

    settings: Settings
    upstreams: Mapping[str, Upstream]
    router: Router
    ways: Ways

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Upstreams of one's own. Whoever made them closes them.

        Raises:
            ConfigError: the environment variable that should hold a key is not set.
        """
        upstreams = {name: make_upstream(name, each) for name, each in settings.upstreams.items()}
        return cls(settings, upstreams, Router(settings), Ways(settings, upstreams))


class Behalf(Struct, frozen=True, kw_only=True):
    """For whom a model is asked: what upstreams are told of the caller. See `upstream.base.UpstreamRequest`."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    client_key: str | None = None
    request_id: str = ""


class Witness(Protocol):
    """Hears of what happens on the way to an answer, for a log and for counters."""

    def sends(self, way: Way, sending: Sending) -> None:
        """An attempt."""
        ...

    def failed(self, way: Way, error: ErrorInfo, decision: Decision) -> None:
        """An attempt brought nothing; what is done about it."""
        ...

    def replied(self, way: Way, reply: Reply) -> None:
        """An attempt brings an answer, or an error."""
        ...

    def ended(self, way: Way, problems: Sequence[Problem]) -> None:
        """An answer is over, whatever became of it."""
        ...


class _Nobody:
    def sends(self, way: Way, sending: Sending) -> None: ...
    def failed(self, way: Way, error: ErrorInfo, decision: Decision) -> None: ...
    def replied(self, way: Way, reply: Reply) -> None: ...
    def ended(self, way: Way, problems: Sequence[Problem]) -> None: ...


_NOBODY = _Nobody()
_DOOR = DOORS["/v1/responses"]  # the dialect that can say most of what the vocabulary has
_FOR_NOBODY = Behalf()


class UpstreamModel:
    """An `engine.asking.Model` over upstreams.

    A request whose `stream` is False is sent as one that wants a body; any other asks for a stream.
    door: the dialect an upstream that speaks several is spoken to in. is_hosted: see `planning.without_hosted_text`.
    """

    def __init__(
        self,
        reach: Reach,
        *,
        door: Door = _DOOR,
        behalf: Behalf = _FOR_NOBODY,
        witness: Witness = _NOBODY,
        prepare: Prepare | None = None,
        is_hosted: Callable[[Tool], bool] | None = None,
    ) -> None:
        self._reach = reach
        self._door = door
        self._behalf = behalf
        self._witness = witness
        self._prepare = prepare
        self._is_hosted = is_hosted
        self._turns = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A model with upstreams of its own, to be closed; for programs without a gateway.

        Raises:
            ConfigError: the environment variable that should hold a key is not set.
        """
        return cls(Reach.of(settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the upstreams' connections. Only where they are this model's own."""
        for upstream in self._reach.upstreams.values():
            await upstream.close()

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]]]:
        """See `engine.asking.Model`.

        Raises:
            RequestRefused: no route takes the model, or the request says what the upstream cannot be told.
            ToldError: the upstream's own error. UpstreamError: nobody could be reached.
        """
        speech = await self._answered(request)
        try:
            yield speech
        finally:
            self._witness.ended(speech.way, speech.problems)
            await speech.leave()

    async def _answered(self, request: Request) -> "_Speech":
        """The first answer of the planned upstreams."""
        self._turns += 1
        plan = [*self._reach.router.plan(request.model)]
        tries = 0
        while True:
            tries += 1
            came = await self._try(request, plan[0])
            if isinstance(came, _Speech):
                return came
            error, failure, way = came
            decision = decide(
                self._reach.settings.retry,
                failure,
                attempt=tries,
                forwarded=False,
                has_fallback=len(plan) > 1,
                jitter=random(),  # noqa: S311 - spreads retries, protects nothing
            )
            self._witness.failed(way, error, decision)
            match decision:
                case Retry(after):
                    await asyncio.sleep(after)
                case Fallback():
                    plan.pop(0)
                    tries = 0
                case GiveUp():
                    raise ToldError(error)

    async def _try(
        self, request: Request, attempt: Attempt
    ) -> "_Speech | tuple[ErrorInfo, Failure, Way]":
        way = self._reach.ways.find(self._door, attempt)
        if self._prepare is not None:
            request = await self._prepare(request, way)
        upstream = self._reach.upstreams[attempt.upstream]
        if isinstance(upstream, Supervised):
            upstream.start()  # which does nothing if it runs
        stream = request.stream is not False or way.settings.always_stream
        request = structs.replace(request, stream=stream)
        asked = Asked(b"", request, is_rebuilt=True)
        sending = await beside(weigh_request(request), plan_sending, asked, way, stream=stream)
        sent, reading = self._plan(request, way, sending)
        try:
            reply = await upstream.send(sent)
        except GatewayError as error:
            return *no_reply(error, upstream.secrets, self._behalf.request_id), way
        speech = _Speech(reply, reading, way, upstream.secrets)
        try:
            self._witness.replied(way, reply)
            failed = await _failure_of(speech, reply, way)
        except BaseException:
            reply.close()
            raise
        if failed is None:
            return speech
        reply.close()
        return *failed, way

    def _plan(
        self, request: Request, way: Way, sending: Sending
    ) -> tuple[UpstreamRequest, Reading]:
        """What is sent, and what reads the answer to it."""
        self._witness.sends(way, sending)
        behalf = self._behalf
        sent = UpstreamRequest(
            dialect=way.dialect,
            body=sending.encoded.body,
            stream=request.stream is True,
            model=way.attempt.model,
            headers=behalf.headers,
            client_key=behalf.client_key,
            request_id=behalf.request_id,
        )
        # Ids are minted from the seed: those of one conversation must not be minted twice.
        seed = f"{behalf.request_id or f'run_{getrandbits(64):016x}'}.{self._turns}"
        if self._is_hosted is not None:
            sending = without_hosted_text(sending, request, way, self._is_hosted)
        plan = plan_answer(request, sending, way, profile="default", seed=seed, now=time.time())
        return sent, Reading(plan)


class _Speech:
    """An answer while it arrives: an iterator over the events of its reads."""

    __slots__ = ("_first", "_is_done", "_is_over", "_reading", "_reply", "secrets", "way")

    def __init__(self, reply: Reply, reading: Reading, way: Way, secrets: Secrets) -> None:
        self.way = way
        self.secrets = secrets
        self._reply = reply
        self._reading = reading
        self._first: Sequence[Event] = ()
        self._is_over = False
        self._is_done = False  # nothing more is due of the reply

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._reading.problems

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Event]:
        if self._first:
            first, self._first = self._first, ()
            return first
        while not self._is_over:
            events = await self._read()
            if events:
                return events
        raise StopAsyncIteration

    async def begin(self) -> ErrorInfo | None:
        """Wait for the first of it; an error that came in its place."""
        try:
            first = await self._reply.read()
            if not is_stream(self._reply.headers.get("content-type", ""), first):
                self._is_done = self._is_over = True
                data = await read_whole(self._reply, MAX_BODY_BYTES, first)
                told = self._hidden(await beside(len(data), self._reading.body, data))
            else:
                told = await self._hear(first)
                while not self._has_begun(told):
                    told = [*told, *await self._hear(await self._reply.read())]
                self._is_over = self._is_over or self._reading.is_over
        except GatewayError as error:
            return self.secrets.hide_error(error_info(error))
        self._first = told
        for event in told:
            if isinstance(event, Started):
                return None
            if isinstance(event, Failed):
                return event.error
        return None

    async def leave(self) -> None:
        """The exchange ends here: the connection may be used again only if the answer has ended by itself."""
        if self._is_over and not self._is_done:
            await let_go(self._reply)
        else:
            self._reply.close()

    def _has_begun(self, told: Sequence[Event]) -> bool:
        return self._is_over or any(isinstance(event, Started | Failed) for event in told)

    async def _read(self) -> Sequence[Event]:
        try:
            return await self._hear(await self._reply.read())
        except GatewayError as error:
            self._is_over = self._is_done = True
            return self._reading.fail(self.secrets.hide_error(error_info(error)))

    async def _hear(self, data: bytes) -> Sequence[Event]:
        if not data:
            self._is_over = True
            return self._hidden(self._reading.close())
        reading = self._reading
        if is_one_step([data], reading.waiting):
            told = reading.feed(data)
        else:
            events: list[Event] = []
            for part in slices([data]):
                events += await feed_slice(reading, lambda some: reading.feed(b"".join(some)), part)
            told = events
        self._is_over = self._reading.is_over
        return self._hidden(told) if self._is_over else told

    def _hidden(self, told: Sequence[Event]) -> Sequence[Event]:
        """The last of an answer: an error in it does not quote what the upstream was let in with."""
        hide = self.secrets.hide_error
        return [structs.replace(each, error=hide(each.error)) if isinstance(each, Failed) else each for each in told]  # fmt: skip


async def _failure_of(speech: _Speech, reply: Reply, way: Way) -> FailedAttempt | None:
    """Why there is no answer; None if one has begun."""
    if not 200 <= reply.status <= 299:
        return await read_error(reply, way.dialect, speech.secrets, now=time.time())
    info = await speech.begin()
    return None if info is None else (info, failure_without_answer(info))
