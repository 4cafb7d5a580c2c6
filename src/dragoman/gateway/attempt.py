"""The attempt loop: ask one upstream after another until one answers, or the policy gives up.

It has three callers. The HTTP exchange writes the answer to its client. Hosted tools and the agent use `UpstreamModel`,
which gives the engine the events of the answer. `upstream.retry` decides what follows a failed attempt, and `peers.py` which
target is next; the results of the attempts are noted in the peers' health. An attempt can fail only while nothing of its answer has
been forwarded; after that the answer may break off, but no upstream is asked again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import getrandbits, random
from typing import Self, TypeVar

from msgspec import Struct, structs

from dragoman.config.secrets import address_of
from dragoman.config.settings import PASS_ON, Settings
from dragoman.core.failures import ReportedError, error_info
from dragoman.core.secrets import Secrets
from dragoman.dialects.registry import upstream_codec
from dragoman.errors import GatewayError
from dragoman.gateway.answer import MAX_ANSWER_BYTES, EventReader, too_large
from dragoman.gateway.peers import PeerOrder, conversation_key, is_beside
from dragoman.gateway.plan import (
    ClientRequest,
    PlannedRequest,
    plan_answer,
    plan_request,
    without_hosted_text,
)
from dragoman.gateway.reply import (
    MAX_BODY_BYTES,
    feed_slice,
    is_one_step,
    is_stream,
    let_go,
    read_whole,
    slices,
)
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import Event, Failed, Started
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.model.parts import Dialect
from dragoman.model.request import Request, Tool
from dragoman.offload import offload
from dragoman.store.codec import weigh_request
from dragoman.upstream.base import Supervised, Upstream, UpstreamReply, UpstreamRequest
from dragoman.upstream.errors import not_followed, not_there
from dragoman.upstream.retry import (
    Decision,
    Failure,
    Fallback,
    GiveUp,
    OtherPeer,
    Otherwise,
    Retry,
    decide,
    failure_of,
    failure_without_answer,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# An error body has a few hundred bytes; a proxy's error page has some kilobytes.
MAX_ERROR_BYTES = 1024 * 1024


# An upstream that answers so has no such address, or no such model.
_NOT_THERE = (404, 405)


class AttemptFailed(Exception):
    """One upstream gave no answer, and nothing was forwarded. `error` is for the client, `failure` for the retry policy."""

    def __init__(self, error: ErrorInfo, failure: Failure | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.failure = failure_without_answer(error) if failure is None else failure


class AttemptObserver:
    """Receives the events of the attempts, for a log and for counters. This base class ignores all of them.

    trace_headers: those with which the upstream continues the trace of this attempt; None if it must not know of it.
    """

    __slots__ = ()

    trace_headers: Mapping[str, str] | None = None

    def started(self, target: AttemptTarget) -> None:
        """An attempt begins."""

    def sent(self, target: AttemptTarget, request: PlannedRequest) -> None:
        """The request is planned, and will be sent next."""

    def failed(self, target: AttemptTarget, error: ErrorInfo, decision: Decision) -> None:
        """The attempt failed; `decision` is what happens next."""

    def replied(self, target: AttemptTarget, reply: UpstreamReply) -> UpstreamReply:
        """The upstream replied, perhaps with an error. Returns the reply to read: this one, or one that wraps it."""
        del target
        return reply

    def ended(self, target: AttemptTarget, problems: Sequence[Problem]) -> None:
        """The answer has ended, complete or not."""

    def cooled(self, target: AttemptTarget, *, is_out: bool) -> None:
        """The peer begins to cool down (`is_out`), or answers again."""


class Sender(Struct, frozen=True):
    """What upstreams learn about the caller. See `upstream.base.UpstreamRequest`."""

    headers: Mapping[str, str] = {}
    client_key: str | None = None
    request_id: str = ""


async def try_targets(
    upstreams: Upstreams,
    targets: Sequence[AttemptTarget],
    attempt: Callable[[AttemptTarget], Awaitable[T]],
    observer: AttemptObserver,
    *,
    key: Callable[[], bytes],
    is_forwarded: Callable[[], bool] = lambda: False,
) -> T:
    """Returns the result of the first attempt that succeeds.

    attempt: asks one upstream once; raises `AttemptFailed` if there is no answer.
    key: identifies the conversation, which keeps its peer; called only if an upstream has several.
    is_forwarded: whether the client was sent something nevertheless, such as a keep-alive.

    Raises:
        ReportedError: the error of the last attempt, if the policy gives up.
    """
    retry, tries = upstreams.settings.retry, 1
    order: PeerOrder | None = None  # one target needs none
    target = targets[0]
    if len(targets) > 1:
        order = PeerOrder(targets, upstreams.health, key, only_first=not retry.enabled)
        now = time.monotonic()
        target = order.take(order.next(now) or target, now)
    while True:
        observer.started(target)
        health = upstreams.health[target.peer]
        probe = health.begin(time.monotonic()) if health.is_out else 0
        try:
            result = await attempt(target)
        except AttemptFailed as failed:
            error, failure = failed.error, failed.failure
        else:
            health.succeeded(target.model)
            return result
        finally:
            if probe:
                health.end(probe)
        now = time.monotonic()
        _note_failure(upstreams, target, failure, observer, is_alone=order is None)
        following = None if order is None else order.next(now)
        decision = decide(
            retry,
            failure,
            attempt=tries,
            forwarded=is_forwarded(),
            otherwise=_otherwise(target, following),
            jitter=random(),  # noqa: S311 - spreads retries, protects nothing
        )
        observer.failed(target, error, decision)
        if isinstance(decision, Retry):
            await asyncio.sleep(decision.after)
            if order is not None:
                target = order.again(target, time.monotonic())
        elif order is None or following is None or isinstance(decision, GiveUp):
            raise ReportedError(error)
        else:
            target = order.take(following, now)
        tries = 1 if isinstance(decision, Fallback) else tries + 1


def _otherwise(target: AttemptTarget, following: AttemptTarget | None) -> Otherwise:
    """What follows if `target` is not asked again."""
    if following is None:
        return GiveUp()
    return OtherPeer() if is_beside(following, target) else Fallback()


def _note_failure(
    upstreams: Upstreams,
    target: AttemptTarget,
    failure: Failure,
    observer: AttemptObserver,
    *,
    is_alone: bool,
) -> None:
    """`is_alone`: no other target could be asked, so that the cooldown changes nothing for this request."""
    now = time.monotonic()
    seconds = upstreams.health[target.peer].failed(
        failure,
        target.model,
        settings=upstreams.settings.retry,
        now=now,
        has_own_key=target.settings.api_key != PASS_ON,
    )
    if seconds is not None:
        report = upstreams.health[target.peer].report(now)
        level = logging.INFO if is_alone else logging.WARNING
        text = "upstream %r cools down for %.0f s after %s"
        logger.log(level, text, target.peer, seconds, report.reason)
        observer.cooled(target, is_out=True)


async def send(
    upstreams: Upstreams,
    target: AttemptTarget,
    request: UpstreamRequest,
    observer: AttemptObserver,
) -> UpstreamReply:
    """Send a request; return the reply if its status is a success. The caller closes the reply.

    Raises:
        AttemptFailed: the upstream could not be reached, or replied with an error.
    """
    upstream = upstreams.by_name[target.peer]
    if observer.trace_headers:
        request = structs.replace(request, trace=observer.trace_headers)
    try:
        reply = await upstream.send(request)
    except GatewayError as error:
        raise AttemptFailed(no_reply(error, upstream.secrets, request.request_id)) from error
    try:
        health = upstreams.health[target.peer]
        if health.is_out and health.replied(reply.status):
            logger.info("upstream %r answers again", target.peer)
            observer.cooled(target, is_out=False)
        reply = observer.replied(target, reply)
        if 200 <= reply.status <= 299:
            return reply
        info, failure = await _read_error(reply, target, upstream)
    except BaseException:
        reply.close()
        raise
    reply.close()
    raise AttemptFailed(info, failure)


def no_reply(error: GatewayError, secrets: Secrets, request_id: str = "") -> ErrorInfo:
    """The error for the client when an upstream could not be reached. Only the log names the upstream's address."""
    if error.detail:
        logger.warning("%s%s", f"request {request_id}: " if request_id else "", error.whole)
    return secrets.hide_error(error_info(error))


async def _read_error(
    reply: UpstreamReply, target: AttemptTarget, upstream: Upstream
) -> tuple[ErrorInfo, Failure]:
    try:
        data = await read_whole(reply, MAX_ERROR_BYTES)
    except GatewayError:
        data = b""  # without its body, the status still says which error it is
    info = error_of_reply(reply, data, target, upstream.secrets)
    if reply.status in _NOT_THERE:
        url = upstream.url_of(target.dialect, "generate")
        # Added after the secrets were hidden, because these include the address.
        info = not_there(target.peer, info, address_of(url), target.model)
    failure = failure_of(reply.status, reply.headers, kind=info.kind, now=time.time())
    if failure.retry_after is not None:
        info = structs.replace(info, retry_after=failure.retry_after)
    return info, failure


def error_of_reply(
    reply: UpstreamReply, data: bytes, target: AttemptTarget, secrets: Secrets
) -> ErrorInfo:
    """The error of a reply that is no success, without the upstream's secrets, because clients read the message."""
    if reply.status < 400:
        location = reply.headers.get("location", "")
        info = error_info(not_followed(target.peer, reply.status, location))
    else:
        codec = upstream_codec(target.dialect)
        info = codec.decode_error(secrets.hide_bytes(data), reply.status)
    return secrets.hide_error(info)


Prepare = Callable[[Request, AttemptTarget], Awaitable[Request]]
"""Completes the request for one upstream; returns the same object where nothing is missing."""

_NO_SENDER = Sender()


class UpstreamModel:
    """An `engine.run.Model` that asks upstreams.

    A request whose `stream` is False asks for a body; any other asks for a stream.
    client_dialect: the dialect for an upstream that speaks several. is_hosted: see `plan.without_hosted_text`.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        *,
        client_dialect: Dialect = "responses",  # it can express the most
        sender: Sender = _NO_SENDER,
        observer: AttemptObserver | None = None,
        prepare: Prepare | None = None,
        is_hosted: Callable[[Tool], bool] | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._client_dialect: Dialect = client_dialect
        self._sender = sender
        self._observer = AttemptObserver() if observer is None else observer
        self._prepare = prepare
        self._is_hosted = is_hosted

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A model with its own upstreams, for programs without a gateway. The caller closes it.

        Raises:
            ConfigError: the environment variable that should hold a key is not set.
        """
        return cls(Upstreams(settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the upstreams' connections. Call this only if no other object uses the upstreams."""
        await self._upstreams.close()

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]]]:
        """See `engine.run.Model`.

        Raises:
            RequestRefused: no route takes the model, or the upstream's dialect cannot express the request.
            ReportedError: the error of the last upstream that was asked.
        """
        targets = self._upstreams.targets(self._client_dialect, request.model)
        attempt = partial(self._attempt, request)
        key = partial(conversation_key, request)
        answer = await try_targets(self._upstreams, targets, attempt, self._observer, key=key)
        try:
            yield answer
        finally:
            self._observer.ended(answer.target, answer.problems)
            await answer.leave()

    async def _attempt(self, request: Request, target: AttemptTarget) -> "EventStream":
        if self._prepare is not None:
            request = await self._prepare(request, target)
        upstream = self._upstreams.by_name[target.peer]
        if isinstance(upstream, Supervised):
            upstream.start()  # does nothing if the upstream is running
        stream = target.asks_for_stream(is_wanted=request.stream is not False)
        request = structs.replace(request, stream=stream)
        asked = ClientRequest(b"", request, is_rebuilt=True)
        planned = await offload(weigh_request(request), plan_request, asked, target, stream=stream)
        self._observer.sent(target, planned)
        logger.debug("asking %s for %s in %s", target.peer, target.model, target.dialect)
        sender = self._sender
        sent = UpstreamRequest(
            dialect=target.dialect,
            body=planned.encoded.body,
            stream=stream,
            model=target.model,
            headers=sender.headers,
            client_key=sender.client_key,
            request_id=sender.request_id,
            betas=planned.encoded.betas,
        )
        # Ids are minted from the seed, and must differ within one conversation.
        seed = f"run_{getrandbits(64):016x}"
        if self._is_hosted is not None:
            planned = without_hosted_text(planned, request, target, self._is_hosted)
        plan = plan_answer(request, planned, target, seed=seed, clock=time.time)
        reader = EventReader(plan)
        reply = await send(self._upstreams, target, sent, self._observer)
        answer = EventStream(reply, reader, target, upstream.secrets)
        try:
            await answer.begin()
        except BaseException:
            reply.close()
            raise
        return answer


class EventStream:
    """An answer while it arrives: an iterator that returns the events of one read at a time."""

    __slots__ = ("_first", "_is_done", "_is_over", "_reader", "_reply", "_secrets", "_size", "target")  # fmt: skip

    def __init__(
        self, reply: UpstreamReply, reader: EventReader, target: AttemptTarget, secrets: Secrets
    ) -> None:
        self.target = target
        self._secrets = secrets
        self._reply = reply
        self._reader = reader
        self._size = 0  # bytes of the stream so far
        self._first: Sequence[Event] = ()
        self._is_over = False
        self._is_done = False  # nothing more of the reply has to be read

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._reader.problems

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Event]:
        if self._first:
            first, self._first = self._first, ()
            return first
        while not self._is_over:
            events = await self._next()
            if events:
                return events
        raise StopAsyncIteration

    async def begin(self) -> None:
        """Wait for the first events.

        Raises:
            AttemptFailed: the upstream sent an error in place of an answer.
        """
        reply = self._reply
        events: list[Event] = []
        try:
            data = await reply.read()
            if not is_stream(reply.headers.get("content-type", ""), data):
                self._is_done = self._is_over = True
                data = await read_whole(reply, MAX_BODY_BYTES, data)
                events += self._without_secrets(await offload(len(data), self._reader.body, data))
                first = _beginning(events)
            else:
                read = await self._read(data)
                while (first := _beginning(read)) is None and not self._is_over:
                    events += read
                    read = await self._read(await reply.read())
                events += read
        except GatewayError as error:
            raise AttemptFailed(self._secrets.hide_error(error_info(error))) from error
        self._first = events
        if isinstance(first, Failed):
            raise AttemptFailed(first.error)

    async def leave(self) -> None:
        """Release the reply. Its connection is reused only if the answer has ended by itself."""
        if self._is_over and not self._is_done:
            await let_go(self._reply)
        else:
            self._reply.close()

    async def _next(self) -> Sequence[Event]:
        try:
            return await self._read(await self._reply.read())
        except GatewayError as error:
            self._is_over = self._is_done = True
            return self._reader.fail(self._secrets.hide_error(error_info(error)))

    async def _read(self, data: bytes) -> Sequence[Event]:
        if not data:
            self._is_over = True
            return self._without_secrets(self._reader.close())
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise too_large()
        reader = self._reader
        if is_one_step([data], reader.waiting):
            events = reader.feed(data)
        else:
            sliced: list[Event] = []
            for part in slices([data]):
                sliced += await feed_slice(reader, part)
            events = sliced
        self._is_over = reader.is_over
        self._is_done = reader.is_cut
        return self._without_secrets(events) if self._is_over else events

    def _without_secrets(self, events: Sequence[Event]) -> Sequence[Event]:
        """The last events of an answer, without the upstream's secrets in their errors."""
        hide = self._secrets.hide_error
        return [
            structs.replace(event, error=hide(event.error)) if isinstance(event, Failed) else event
            for event in events
        ]


def _beginning(events: Sequence[Event]) -> Started | Failed | None:
    """The event with which an answer begins. Only what is no part of it, such as a ping, may come before."""
    return next((event for event in events if isinstance(event, (Started, Failed))), None)
