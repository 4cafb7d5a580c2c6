"""One request through the gateway, from its head to its log line.

    read → decode → check → route → (encode → send → answer, again or elsewhere while nothing was forwarded) → record

A client that leaves cancels all of it, at whatever point it is; the upstream's connection is cut with it. What is
decided (routes, retries, limits, dialects) is decided by pure functions elsewhere; here it is done, in order.
"""

import asyncio
import logging
from math import ceil
from random import random
from typing import TYPE_CHECKING

from msgspec import structs
from starlette.types import Receive, Scope, Send

from dragoman.core.failures import error_info, status_of
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import TranslatedBody
from dragoman.errors import GatewayError
from dragoman.model.outcome import ErrorInfo, Loss
from dragoman.model.parts import Dialect
from dragoman.server.answers import Answer, AnswerPlan, failed_stream, read_whole
from dragoman.server.bodies import ClientGone, read_body
from dragoman.server.client import Client, Headers
from dragoman.server.client_headers import ClientHeaders
from dragoman.server.codex import is_codex, is_told_in_stream, patient
from dragoman.server.doors import THREADS_UNSUPPORTED, Door, asks_for_thread, stopping_error
from dragoman.server.limits import check_depth, check_headers, check_tools
from dragoman.server.planning import Asked, Way, plan_answer, plan_sending
from dragoman.server.protocol import CONNECTION, GatewayProtocol
from dragoman.server.ratelimits import limit_headers
from dragoman.server.records import RequestRecord
from dragoman.server.refusals import Refusal
from dragoman.server.routing import Attempt
from dragoman.server.telemetry import AttemptAction
from dragoman.upstream.base import Reply, UpstreamRequest
from dragoman.upstream.headers import response_headers_for
from dragoman.upstream.retry import Decision, Failure, Fallback, GiveUp, Retry, decide, failure_of

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

__all__ = ("Exchange", "error_headers", "loss_header")

logger = logging.getLogger(__name__)

# An error body is a few hundred bytes; a proxy's error page some kilobytes.
MAX_ERROR_BYTES = 1024 * 1024
# After an answer has ended only the end of its HTTP body is due; a connection not worth the wait is cut.
DRAIN_SECONDS = 1.0
# Servers refuse header lines beyond 8 KB; the log has all of it.
MAX_LOSS_HEADER = 1024


_ACTIONS: dict[type[Decision], AttemptAction] = {
    Retry: "retry",
    Fallback: "fallback",
    GiveUp: "give_up",
}

_Failed = tuple[ErrorInfo, Failure]
"""An attempt that brought nothing: what the client would be told, and what the policy goes by."""


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_answer",
        "_asked",
        "_began",
        "_caller_key",
        "_connection",
        "_door",
        "_gateway",
        "_headers",
        "_limits",
        "_losses",
        "_raw_headers",
        "_receive",
        "_stop_reason",
        "_task",
        "_watcher",
        "client",
        "is_over",
        "record",
        "request_id",
    )

    def __init__(
        self, gateway: "Gateway", door: Door, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._gateway = gateway
        self._door = door
        self._receive = receive
        self._raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._headers = dict(self._raw_headers)
        self.request_id = gateway.mint_request_id(self._headers)
        self.client = Client(
            send, gateway.response_headers(door, self.request_id, self._raw_headers), gateway.clock
        )
        self.client.on_start = self._forget_asked
        self.record = RequestRecord(door=door.dialect, request_id=self.request_id)
        self.is_over = False
        self._began = gateway.clock()
        self._watcher: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._answer: Answer | None = None
        self._losses: list[Loss] = []
        self._stop_reason: ErrorInfo | None = None
        self._caller_key: str | None = None
        self._limits: Headers = ()  # of the last reply that was an error
        self._asked: Asked | None = None
        # Our own server calls when the client leaves; any other tells it only to a task that waits.
        self._connection: GatewayProtocol | None = scope.pop(CONNECTION, None)

    async def run(self) -> None:
        """Serve the request, whatever it is; only a cancellation from outside comes back out."""
        self._task = asyncio.current_task()
        gateway = self._gateway
        if self._connection is not None:
            self._connection.on_leave = self._client_left
        try:
            with gateway.slots:
                gateway.exchanges.add(self)
                gateway.telemetry.opened()
                try:
                    await self._serve()
                finally:
                    gateway.telemetry.closed()
        except ClientGone:
            self.record.client_gone = True
        except asyncio.CancelledError:
            await self._end_cancelled()
        except Refusal as refusal:
            await self._refuse(error_info(refusal), refusal.headers)
        except GatewayError as error:
            await self._refuse(error_info(error))
        except Exception:
            logger.exception("request %s failed", self.request_id)
            await self._refuse(
                ErrorInfo(kind="server", message="the gateway failed; its log has the reason")
            )
        finally:
            self.is_over = True
            if self._connection is not None:
                self._connection.on_leave = None
            if self._watcher is not None:
                self._watcher.cancel()
            gateway.forget(self)
            self._write_record()

    def stop(self, reason: ErrorInfo) -> None:
        """End the exchange now: its client is told `reason`."""
        if self._task is not None and not self.client.finished:
            self._stop_reason = reason
            self._task.cancel()

    async def _serve(self) -> None:
        gateway = self._gateway
        settings = gateway.settings.server
        check_headers(self._raw_headers, settings.max_header_bytes)
        caller = gateway.identify(self._raw_headers)
        self._caller_key, self.record.caller = caller.key, caller.id
        body = await read_body(self._receive, self._raw_headers, settings.max_body_bytes)
        self.record.bytes_in = len(body)
        check_depth(body, settings.max_depth)
        if self._connection is None:
            gateway.watch_soon(self)
        asked = self._asked = Asked(body, self._door.codec.decode_request(body))
        self.record.model = asked.request.model
        check_tools(asked.request, settings.max_tools)
        if asks_for_thread(self._door, asked.request):
            await self.client.respond(400, THREADS_UNSUPPORTED)
            return
        # Streams last: nothing but `_asked`, which goes with the first byte, may hold the request meanwhile.
        del asked, body
        await self._attempt()

    def _forget_asked(self) -> None:
        """With the first byte out there is no other attempt, and no need to keep what it would send."""
        self._asked = None

    def watch(self) -> None:
        """Notice from now on when the client leaves."""
        if self._watcher is None and not self.is_over:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Cancel the exchange when its client leaves."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._client_left()

    def _client_left(self) -> None:
        if not self.client.finished and self._task is not None:
            self.record.client_gone = True
            self._task.cancel()

    async def _attempt(self) -> None:
        """Try the planned upstreams in order until one has answered, or the policy gives up."""
        gateway = self._gateway
        plan = list(gateway.router.plan(self.record.model))
        tries = 0
        while True:
            tries += 1
            self.record.attempts += 1
            failed = await self._try(plan[0])
            if failed is None:
                return
            error, failure = failed
            decision = decide(
                gateway.settings.retry,
                failure,
                attempt=tries,
                forwarded=self.client.started,
                has_fallback=len(plan) > 1,
                jitter=random(),  # noqa: S311 - spreads retries, protects nothing
            )
            gateway.telemetry.attempt_failed(plan[0].upstream, error.kind, _ACTIONS[type(decision)])
            match decision:
                case Retry(after):
                    await asyncio.sleep(after)
                case Fallback():
                    plan.pop(0)
                    tries = 0
                case GiveUp():
                    await self._refuse(error)
                    return

    async def _try(self, attempt: Attempt) -> _Failed | None:
        """One upstream, once. What failed is returned if nothing was forwarded."""
        gateway = self._gateway
        upstream = gateway.upstreams[attempt.upstream]
        settings = gateway.settings.upstreams[attempt.upstream]
        way = Way(self._door, upstream.dialect_for(self._door.dialect), attempt, settings)
        self.record.upstream = attempt.upstream
        self.record.upstream_model = attempt.model
        sent, plan = self._prepare(way)
        try:
            reply = await upstream.send(sent)
        except GatewayError as error:
            info = error_info(error)
            return info, Failure(kind=info.kind)
        del sent
        try:
            if not 200 <= reply.status <= 299:
                return await self._read_error(reply, way.dialect)
            self._add_headers(reply, way.dialect)
            answer = self._answer = Answer(plan, self.client, self._note_body)
            told = await answer.tell(reply)
            return None if told is None else (told, Failure(kind=told.kind))
        finally:
            await self._let_go(reply)

    def _prepare(self, way: Way) -> tuple[UpstreamRequest, AnswerPlan]:
        """What is sent, and how the answer to it is read."""
        gateway = self._gateway
        asked = self._asked
        if asked is None:
            raise AssertionError("nothing is sent after an answer has begun")
        request = asked.request
        self.record.stream = request.stream is True
        stream = self.record.stream or way.settings.always_stream
        sending = plan_sending(asked, way, stream=stream)
        encoded = sending.encoded
        self._losses = list(sending.losses)
        self.record.repairs = encoded.repairs
        sent = UpstreamRequest(
            dialect=way.dialect,
            body=encoded.body,
            stream=stream,
            model=way.attempt.model,
            headers=ClientHeaders(self._headers),
            client_key=self._caller_key,
            request_id=self.request_id,
        )
        plan = plan_answer(
            request,
            sending,
            way,
            profile=gateway.profile(self._headers),
            seed=self.request_id,
            now=gateway.wall_clock(),
        )
        return sent, plan

    def _add_headers(self, reply: Reply, dialect: Dialect) -> None:
        """What the reply's headers, and what was lost on the way to it, add to the answer's."""
        door = self._door.dialect
        told = response_headers_for(door, dialect, reply.headers)
        told += limit_headers(door, dialect, reply.headers, self._gateway.wall_clock())
        if self._losses:
            told.append((b"x-dragoman-loss", loss_header(self._losses)))
        self.client.reply_headers = told

    async def _read_error(self, reply: Reply, dialect: Dialect) -> _Failed:
        try:
            data = await read_whole(reply, MAX_ERROR_BYTES)
        except GatewayError:
            data = b""  # an error whose body was cut is still that error
        info = codec(dialect).decode_error(data, reply.status)
        now = self._gateway.wall_clock()
        failure = failure_of(reply.status, reply.headers, kind=info.kind, now=now)
        self._limits = limit_headers(self._door.dialect, dialect, reply.headers, now)
        if failure.retry_after is not None:
            info = structs.replace(info, retry_after=failure.retry_after)
        return info, failure

    async def _let_go(self, reply: Reply) -> None:
        """Give the connection back if the upstream ends the answer it has told, else cut it."""
        try:
            if self._answer is not None and self._answer.is_stream and self.client.finished:
                async with asyncio.timeout(DRAIN_SECONDS):
                    while await reply.read():
                        pass
        except (GatewayError, TimeoutError):
            pass
        finally:
            reply.close()

    def _note_body(self, told: TranslatedBody) -> None:
        """A body's losses are known before it is sent: they go into the header too."""
        if told.losses:
            losses = (*self._losses, *told.losses)
            header = (b"x-dragoman-loss", loss_header(losses))
            kept = [pair for pair in self.client.reply_headers if pair[0] != header[0]]
            self.client.reply_headers = [*kept, header]

    async def _refuse(self, error: ErrorInfo, headers: Headers = ()) -> None:
        """Tell an error: with a status if nothing has been said yet, else in the stream."""
        self.record.error_kind = error.kind
        self.record.error = error.message
        client = self.client
        if client.finished:
            return
        if client.started:
            if self._answer is not None:
                await self._answer.fail(error)
            return
        limits = self._limits
        if self._door.dialect == "responses" and is_codex(self._headers):
            error, limits = patient(error, limits)
            if self.record.stream and is_told_in_stream(error):
                await client.write(failed_stream(self._door.dialect, error, self.record.model))
                await client.finish()
                return
        body = self._door.codec.encode_error(error)
        extra = (*headers, *limits, *error_headers(error, limits))
        await client.respond(status_of(error), body, extra)

    async def _end_cancelled(self) -> None:
        """Cancelled: because the client left (nobody to tell), or because the gateway stops (tell, then end)."""
        task = self._task
        if self.record.client_gone:
            if task is not None:
                task.uncancel()
            return
        reason = self._stop_reason
        await self._refuse(reason or stopping_error())
        if reason is None:
            raise asyncio.CancelledError
        if task is not None:
            task.uncancel()

    def _write_record(self) -> None:
        record = self.record
        client = self.client
        now = self._gateway.clock()
        record.status = client.status
        record.bytes_out = client.bytes_out
        record.duration_s = now - self._began
        if client.first_write is not None:
            record.first_byte_s = client.first_write - self._began
        answer = self._answer
        if answer is not None:
            tally = answer.tally
            record.call_count = tally.call_count
            record.call_names = tuple(tally.names)
            record.finish = tally.finish
            if tally.usage is not None:
                record.input_tokens = tally.usage.input
                record.output_tokens = tally.usage.output
            if tally.error is not None:
                record.error_kind = tally.error.kind
                record.error = tally.error.message
            record.problems = answer.problems
            self._losses += answer.losses
        record.losses = tuple(self._losses)
        self._gateway.note(record)


def error_headers(error: ErrorInfo, present: Headers = ()) -> Headers:
    """When to come back, if the error says so and no header does yet: whole seconds, never too early."""
    if error.retry_after is None or any(name == b"retry-after" for name, _ in present):
        return ()
    return ((b"retry-after", b"%d" % max(0, ceil(error.retry_after))),)


def loss_header(losses: "list[Loss] | tuple[Loss, ...]") -> bytes:
    """`code at=where action, …`, printable and of bounded length."""
    text = ", ".join([f"{loss.code};at={loss.where or '-'};{loss.action}" for loss in losses])
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return text[:MAX_LOSS_HEADER].encode("ascii")
