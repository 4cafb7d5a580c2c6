"""One request through the gateway, from its head to its log line.

    read → decode → check → route → (encode → send → answer, again or elsewhere while nothing was forwarded) → record

A client that leaves cancels all of it, at whatever point it is; the upstream's connection is cut with it. What is
decided (routes, retries, limits, dialects) is decided by pure functions elsewhere; here it is done, in order.
"""

import asyncio
import logging
from collections.abc import Awaitable
from random import getrandbits, random
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.core.failures import error_info, status_of
from dragoman.core.ids import NOISE_BITS, number_of
from dragoman.core.secrets import HIDDEN, Secrets
from dragoman.dialects.translate import TranslatedBody
from dragoman.errors import GatewayError
from dragoman.model.outcome import ErrorInfo, Loss
from dragoman.model.parts import Dialect
from dragoman.model.request import Request
from dragoman.server.answer_headers import LOSS_HEADER, error_headers, loss_header
from dragoman.server.answers import Answer, AnswerPlan, failed_stream
from dragoman.server.bodies import ClientGone, read_body
from dragoman.server.client import Client
from dragoman.server.client_headers import ClientHeaders
from dragoman.server.codex import is_codex, is_told_in_stream, patient
from dragoman.server.contract import MODE_HEADER
from dragoman.server.doors import THREADS_UNSUPPORTED, Door, asks_for_thread, stopping_error
from dragoman.server.hosted.history import has_hosted_calls, plain_name, restore_calls
from dragoman.server.hosted.servers import Hosting
from dragoman.server.hosted.serving import HostedAnswer, HostedJob
from dragoman.server.limits import check_head, check_json, check_tools
from dragoman.server.line import Headers, Line, settle
from dragoman.server.planning import Asked, plan_answer, plan_sending
from dragoman.server.ratelimits import limit_headers
from dragoman.server.recording import note_answer, note_client
from dragoman.server.records import RequestRecord
from dragoman.server.refusals import Refusal
from dragoman.server.replies import FailedAttempt, let_go, no_reply, read_error
from dragoman.server.routing import Attempt
from dragoman.server.state.escrow import FAMILIES, restore
from dragoman.server.state.keeping import Keeper
from dragoman.server.state.planned import asked_natively, check_previous, plan_escrow, plan_kept
from dragoman.server.state.recalling import Asking, Recalled, is_new, keep, recall, recall_submitted
from dragoman.server.telemetry import ACTIONS
from dragoman.server.ways import Way
from dragoman.store.working import LARGE, beside
from dragoman.upstream.base import Reply, UpstreamRequest
from dragoman.upstream.headers import response_headers_for
from dragoman.upstream.retry import Fallback, GiveUp, Retry, decide, failure_without_answer

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

__all__ = ("Exchange",)

logger = logging.getLogger(__name__)


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_answer",
        "_asked",
        "_began",
        "_caller_key",
        "_door",
        "_gateway",
        "_headers",
        "_is_new",
        "_keeper",
        "_limits",
        "_line",
        "_losses",
        "_owner",
        "_raw_headers",
        "_recalled",
        "_stop_reason",
        "_submits",
        "_task",
        "_watcher",
        "client",
        "has_slot",
        "is_over",
        "record",
        "request_id",
    )

    def __init__(
        self, gateway: "Gateway", door: Door, line: Line, submits: str | None = None
    ) -> None:
        """`submits`: the response whose calls have the outputs that are sent."""
        self._gateway = gateway
        self._door = door
        self._line = line
        self._raw_headers = line.take_headers()
        self._headers = dict(self._raw_headers)
        self.request_id = gateway.mint_request_id(self._headers)
        self.client = Client(
            line, gateway.response_headers(door, self.request_id, self._raw_headers), gateway.clock
        )
        self.client.on_start = self._forget_asked
        self.record = RequestRecord(door=door.dialect, request_id=self.request_id)
        self.has_slot = False
        self.is_over = False
        self._began = self.client.last_write  # now, that is
        self._watcher: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._answer: Answer | HostedAnswer | None = None
        self._losses: list[Loss] = []
        self._stop_reason: ErrorInfo | None = None
        self._caller_key: str | None = None
        self._limits: Headers = ()  # of the last reply that was an error
        self._asked: Asked | None = None
        self._owner = ""
        self._submits = submits
        self._recalled: Recalled | None = None
        self._keeper: Keeper | None = None
        self._is_new = False  # it continues nothing that the store would know of

    async def run(self) -> None:
        """Serve the request, whatever it is; only a cancellation from outside comes back out."""
        gateway = self._gateway
        line = self._line
        self._task = line.task()
        is_called = line.on_leave(self._client_left, self._probe)
        try:
            gateway.begin(self)
            self._check_head()
            body = line.take_body()
            limit = gateway.settings.server.max_body_bytes
            if body is None or len(body) > limit or b"content-encoding" in self._headers:
                body = await read_body(line.receive, self._raw_headers, limit, whole=body)
            gateway.take_slot(self)
            if not is_called:
                gateway.watch_soon(self)
            self.record.bytes_in = len(body)
            recalling = self._read(body) if len(body) < LARGE else await self._read_large(body)
            # Streams last: nothing but `_asked`, which goes with the first byte, may hold the request meanwhile.
            del body
            if recalling is not None:
                await self._recall(recalling)
            del recalling
            if self._door.dialect == "messages" and self._is_thread():
                await settle(self.client.respond(400, THREADS_UNSUPPORTED))
                return
            plan = gateway.router.plan(self.record.model)
            if gateway.hosting is not None and await self._host(gateway.hosting):
                return
            failed = await self._try(plan[0])
            if failed is not None:
                await self._try_on([*plan], failed)
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
            self._end()

    def stop(self, reason: ErrorInfo) -> None:
        """End the exchange now: its client is told `reason`. One whose end is being stored ends by itself."""
        if self._keeper is not None and self._keeper.is_ending:
            return
        if self._task is not None and not self.client.finished:
            self._stop_reason = reason
            self._task.cancel()

    def _check_head(self) -> None:
        gateway = self._gateway
        limit = gateway.settings.server.max_header_bytes
        check_head(self._raw_headers, limit, self._line.line_bytes)
        caller = gateway.identify(self._raw_headers)
        self._caller_key, self.record.caller, self._owner = caller.key, caller.id, caller.owner

    def _read(self, body: bytes) -> Awaitable[Recalled] | None:
        """Read what is asked; what it continues is to be awaited."""
        if self._submits is None:
            return self._note_asked(body, self._decode(body))
        self._check_body(body)
        return recall_submitted(self._gateway.store, self._submits, body, self._asking())

    async def _read_large(self, body: bytes) -> Awaitable[Recalled] | None:
        """The same, without holding up the others."""
        size = len(body)
        if self._submits is None:
            return self._note_asked(body, await beside(size, self._decode, body))
        await beside(size, self._check_body, body)
        return recall_submitted(self._gateway.store, self._submits, body, self._asking())

    def _check_body(self, body: bytes) -> None:
        server = self._gateway.settings.server
        check_json(body, max_depth=server.max_depth, max_values=server.max_values)

    def _decode(self, body: bytes) -> Request:
        self._check_body(body)
        return self._door.codec.decode_request(body)

    def _note_asked(self, body: bytes, request: Request) -> Awaitable[Recalled] | None:
        self.record.model = request.model
        self._asked = asked = Asked(body, request)
        most = self._gateway.settings.server.max_tools
        if len(request.tools) > most:
            check_tools(request, most)
        store = self._gateway.store
        door = self._door
        if door.dialect == "chat" or not self._gateway.is_storing:
            return None
        if door.dialect == "messages" and not asks_for_thread(door, request):
            return None
        if door.dialect == "responses" and is_new(request):
            self._is_new = True
            self._keeper = keep(store, request, self._asking)
            return None
        return recall(store, self._door.dialect, asked, self._asking())

    def _is_thread(self) -> bool:
        """Whether it asks for a thread that nobody keeps, which only its own refusal fits."""
        asked = self._asked
        if asked is None or self._gateway.is_storing:
            return False
        return asks_for_thread(self._door, asked.request)

    def _asking(self) -> Asking:
        now = self._gateway.wall_clock()
        number = number_of(now, getrandbits(NOISE_BITS))
        return Asking(
            self._owner, number, lambda kept: Keeper(self._gateway.store, kept, self.stop, now)
        )

    async def _recall(self, recalling: Awaitable[Recalled]) -> None:
        """Put what went before into what is asked, and have the answer kept."""
        self._recalled = recalled = await recalling
        self._asked = recalled.asked
        self._keeper = recalled.keeper
        self.record.model = recalled.asked.request.model

    def _forget_asked(self) -> None:
        """With the first byte out there is no other attempt, and no need to keep what it would send."""
        self._asked = self._recalled = None
        self._raw_headers = []
        self._headers = {}

    def watch(self) -> None:
        """Notice from now on when the client leaves."""
        if self._watcher is None and not self.is_over:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Cancel the exchange when its client leaves."""
        while (await self._line.receive())["type"] != "http.disconnect":
            pass
        self._client_left()

    def _client_left(self) -> None:
        if not self.client.finished and self._task is not None:
            self.record.client_gone = True
            self._task.cancel()

    def _probe(self) -> bool:
        """Write into a stream what shows whether its client is there. False: nothing may be written now."""
        client = self.client
        if client.keep_alive is None or client.is_writing:
            return client.is_writing
        data = client.keep_alive()
        if data:
            client.write(data)
        return bool(data)

    async def _host(self, hosting: Hosting) -> bool:
        """Serve the request with the tools of the route's MCP servers. False: it has none, and goes the usual way."""
        gateway, asked = self._gateway, self._asked
        if asked is None:
            return False
        request = asked.request
        servers = gateway.router.servers(self.record.model)
        if not servers or (request.choices or 1) > 1:
            if self._door.dialect == "responses" and has_hosted_calls(request, hosting.names):
                request = restore_calls(request, hosting.names, plain_name)
                self._asked = Asked(b"", request, is_rebuilt=True)
            return False
        self.record.stream = request.stream is True
        self._answer = answer = HostedAnswer(
            HostedJob(
                gateway=gateway,
                hosting=hosting,
                servers=servers,
                door=self._door,
                client=self.client,
                record=self.record,
                request=request,
                headers=self._headers,
                client_key=self._caller_key,
                owner=self._owner,
                prepare=self._prepare_hosted,
                keeper=self._keeper,
            )
        )
        error = await answer.serve()
        if error is not None:
            await self._give_up(error)
        return True

    async def _prepare_hosted(self, request: Request, way: Way) -> Request:
        if self._recalled is not None:
            asked_natively(self._recalled, way)  # which refuses what nobody knows
        elif request.previous_id is not None or self._gateway.is_storing:
            return (await self._asked_for(Asked(b"", request), way)).request
        return request

    async def _give_up(self, error: ErrorInfo) -> None:
        if self._keeper is not None:
            await self._keeper.give_up()
        await self._refuse(error)

    async def _try_on(self, plan: list[Attempt], failed: FailedAttempt | None) -> None:
        """Try the planned upstreams in order until one has answered, or the policy gives up."""
        gateway = self._gateway
        tries = 1
        while failed is not None:
            error, failure = failed
            decision = decide(
                gateway.settings.retry,
                failure,
                attempt=tries,
                forwarded=self.client.started,
                has_fallback=len(plan) > 1,
                jitter=random(),  # noqa: S311 - spreads retries, protects nothing
            )
            gateway.telemetry.attempt_failed(plan[0].upstream, error.kind, ACTIONS[type(decision)])
            match decision:
                case Retry(after):
                    await asyncio.sleep(after)
                case Fallback():
                    plan.pop(0)
                    tries = 0
                case GiveUp():
                    await self._give_up(error)
                    return
            tries += 1
            failed = await self._try(plan[0])

    async def _try(self, attempt: Attempt) -> FailedAttempt | None:
        """One upstream, once. What failed is returned if nothing was forwarded."""
        gateway = self._gateway
        record = self.record
        record.attempts += 1
        way = gateway.ways.find(self._door, attempt)
        terms = None
        if way.is_contracted or MODE_HEADER in self._headers:
            terms = gateway.terms(self._door, way.settings, self._headers)
            way = structs.replace(way, terms=terms)
        record.upstream = attempt.upstream
        record.upstream_model = attempt.model
        asked = self._asked
        if asked is None:
            raise AssertionError("nothing is sent after an answer has begun")
        goes_on = self._recalled is not None or asked.request.previous_id is not None
        if not self._is_new and (goes_on or gateway.is_storing):
            asked = await self._asked_for(asked, way)
        sent, plan = await self._prepare(asked, way)
        del asked
        upstream = gateway.upstreams[attempt.upstream]
        try:
            reply = await upstream.send(sent)
        except GatewayError as error:
            return no_reply(error, upstream.secrets, self.request_id)
        del sent
        try:
            if not 200 <= reply.status <= 299:
                return await self._read_error(reply, way.dialect, upstream.secrets)
            self._add_headers(reply, way.dialect)
            if terms is not None:
                self.client.reply_headers = [*self.client.reply_headers, terms.header]
            answer = Answer(plan, self.client, self._note_body, upstream.secrets)
            self._answer = answer
            told = await answer.tell(reply)
            return None if told is None else (told, failure_without_answer(told))
        finally:
            if self._answer is not None and self._answer.is_stream and self.client.finished:
                await let_go(reply)
            else:
                reply.close()

    async def _asked_for(self, asked: Asked, way: Way) -> Asked:
        """What this upstream is asked: with what it must be told of the past, and with what was kept for it alone."""
        if self._recalled is not None:
            return asked_natively(self._recalled, way) or asked
        if self._door.dialect == "responses":
            check_previous(asked, way)
        family = FAMILIES.get(way.dialect)
        store = self._gateway.store
        if self._door.dialect == "chat" and family is not None and store.is_on:
            request = await restore(store, self._owner, family, asked.request, asked.size)
            if request is not asked.request:
                return Asked(b"", request, is_rebuilt=True)
        return asked

    async def _prepare(self, asked: Asked, way: Way) -> tuple[UpstreamRequest, AnswerPlan]:
        """What is sent, and how the answer to it is read."""
        gateway = self._gateway
        request = asked.request
        record = self.record
        record.stream = request.stream is True
        stream = record.stream or way.settings.always_stream
        size = asked.size
        if size < LARGE:
            sending = plan_sending(asked, way, stream=stream)
        else:
            sending = await beside(size, plan_sending, asked, way, stream=stream)
        encoded = sending.encoded
        self._losses = list(sending.losses)
        record.repairs = encoded.repairs
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
        if self._keeper is not None:
            plan = plan_kept(plan, self._keeper, way, is_native=not asked.is_rebuilt)
        elif gateway.is_storing and self._door.dialect == "chat":
            plan = plan_escrow(plan, gateway.store, self._owner)
        return sent, plan

    def _add_headers(self, reply: Reply, dialect: Dialect) -> None:
        """What the reply's headers, and what was lost on the way to it, add to the answer's."""
        door = self._door.dialect
        told = response_headers_for(door, dialect, reply.headers)
        limits = limit_headers(door, dialect, reply.headers, self._gateway.wall_clock())
        if limits:
            told += limits
            self._gateway.limits.note_headers(self.record.upstream, reply.headers)
        if self._losses:
            told.append(loss_header(self._losses))
        self.client.reply_headers = told

    async def _read_error(self, reply: Reply, dialect: Dialect, secrets: Secrets) -> FailedAttempt:
        now = self._gateway.wall_clock()
        failed = await read_error(reply, dialect, secrets, now=now)
        self._limits = limit_headers(self._door.dialect, dialect, reply.headers, now)
        self._gateway.limits.note_headers(self.record.upstream, reply.headers)
        return failed

    def _note_body(self, told: TranslatedBody) -> None:
        """A body's losses are known before it is sent: they go into the header too."""
        if told.losses:
            losses = (*self._losses, *told.losses)
            kept = [pair for pair in self.client.reply_headers if pair[0] != LOSS_HEADER]
            self.client.reply_headers = [*kept, loss_header(losses)]
        contract = None if self._answer is None else self._answer.contract
        if contract is not None:
            self.client.reply_headers = [*self.client.reply_headers, *contract.report().headers]

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
                told = failed_stream(self._door.dialect, error, self.record.model)
                await settle(client.finish(told))
                return
        body = self._door.codec.encode_error(error)
        extra = (*headers, *limits, *error_headers(error, limits))
        await settle(client.respond(status_of(error), body, extra))

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

    def _end(self) -> None:
        """Whatever became of it: it is over."""
        self.is_over = True
        self._line.on_leave(None)
        if self._watcher is not None:
            self._watcher.cancel()
        self._gateway.forget(self)
        if self._keeper is not None:
            self._keeper.close()
        self._write_record()
        # They know this exchange: without that they go at once, and the collector has nothing to look for.
        self.client.on_start = self._answer = self._keeper = self._recalled = None

    def _write_record(self) -> None:
        record = self.record
        note_client(record, self.client, began=self._began, now=self._gateway.clock())
        answer = self._answer
        if answer is not None:
            note_answer(record, answer)
            if answer.tally.limits is not None:
                self._gateway.limits.note(record.upstream, answer.tally.limits)
            self._losses += answer.losses
        if record.error and self._caller_key:
            # An upstream that was sent the caller's own key may quote it: to the caller, but to nobody else.
            record.error = record.error.replace(self._caller_key, HIDDEN)
        if self._losses:
            record.losses = tuple(self._losses)
        self._gateway.note(record)
