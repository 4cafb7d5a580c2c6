"""One HTTP request, from its head to its log line.

    read → decode → check → route → attempts (plan → send → write the answer) → record

`gateway.plan` plans the request and how the answer is read; `gateway.attempt` tries the upstreams. A client that leaves
cancels everything at any point, and closes the upstream's connection. A request for a background response is handed over
to an exchange without a client (`background`).
"""

import asyncio
import logging
from collections.abc import Awaitable
from random import getrandbits
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman._json import Raw
from dragoman.core.failures import ReportedError, error_info, status_of
from dragoman.core.ids import NOISE_BITS, number_of
from dragoman.core.secrets import HIDDEN
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.messages import asks_for_thread, threads_unsupported
from dragoman.dialects.responses.conversations import with_conversation
from dragoman.dialects.responses.encode import queue_response
from dragoman.dialects.responses.request import asks_for_background
from dragoman.dialects.translate import TranslatedBody, make_encoder
from dragoman.errors import GatewayError, RequestRefused
from dragoman.gateway.answer import AnswerWriter, failed_stream, settle
from dragoman.gateway.attempt import AttemptFailed, Sender, send, try_targets
from dragoman.gateway.compaction import (
    SummaryPlan,
    expand,
    plan_inline,
    plan_summary,
    prepare,
    wants_summary,
)
from dragoman.gateway.context_edits import apply_edits
from dragoman.gateway.hosted.history import has_hosted_calls, plain_name, restore_calls
from dragoman.gateway.hosted.tool_search import ToolSearch, needed_search
from dragoman.gateway.peers import conversation_key
from dragoman.gateway.plan import (
    AnswerPlan,
    ClientRequest,
    PlannedRequest,
    check_previous,
    knows_previous,
    plan_answer,
    plan_escrow,
    plan_kept,
    plan_request,
    settings_of_client,
)
from dragoman.gateway.reply import let_go
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import Completed, Finished, Started
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request
from dragoman.offload import LARGE, offload
from dragoman.server.attempt_recorder import AttemptRecorder
from dragoman.server.background import (
    BackgroundConnection,
    Queued,
    answer_queued,
    awaited,
    overtime_error,
)
from dragoman.server.client import Client
from dragoman.server.doors import Door, stopping_error
from dragoman.server.hosted_answer import HostedAnswer, HostedRequest
from dragoman.server.http.bodies import ClientGone, read_body
from dragoman.server.http.connection import ClientConnection, Headers
from dragoman.server.http.headers import (
    LOSS_HEADER,
    ClientHeaders,
    error_headers,
    loss_header,
    without_long_wait,
)
from dragoman.server.key_limits import KeyUse
from dragoman.server.limits import GatewayRefusal, check_head, check_json, check_tools
from dragoman.state.continuation import (
    ConnectionMemory,
    Continuation,
    StorageCaller,
    check_background,
    continue_submitted,
    find_continuation,
    is_new,
    make_keeper,
)
from dragoman.state.escrow import FAMILIES, restore
from dragoman.state.keeper import Keeper
from dragoman.upstream.base import UpstreamReply, UpstreamRequest

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

logger = logging.getLogger(__name__)


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_answer",
        "_asked",
        "_background",
        "_began",
        "_caller_key",
        "_capture",
        "_connection",
        "_continuation",
        "_deadline",
        "_door",
        "_edits",
        "_gateway",
        "_headers",
        "_is_handed_over",
        "_is_new",
        "_keeper",
        "_key_use",
        "_memory",
        "_native",
        "_owner",
        "_raw_headers",
        "_recorder",
        "_request",
        "_stop_reason",
        "_submits",
        "_task",
        "client",
        "has_slot",
        "only_upstream",
        "record",
        "request_id",
    )

    def __init__(
        self,
        gateway: "Gateway",
        door: Door,
        connection: ClientConnection,
        submits: str | None = None,
        memory: ConnectionMemory | None = None,
        background: BackgroundConnection | None = None,
    ) -> None:
        """`submits`: the id of the response whose call outputs the request contains.

        `memory`: of the WebSocket connection that the request came over. `background`: the connection, if it has no client.
        """
        self._gateway = gateway
        self._door = door
        self._connection = connection
        self._raw_headers = connection.take_headers()
        self._headers = dict(self._raw_headers)
        self.request_id = gateway.mint_request_id(self._headers)
        self._began = gateway.clock()
        method = "POST" if memory is None else "WEBSOCKET"
        self._capture = gateway.inspector.begin(door, self._raw_headers, self._headers, method)
        if self._capture is not None:
            has_head = memory is None and background is None
            connection = gateway.inspector.tap(connection, self._capture, has_head=has_head)
            self._connection = connection
        own = gateway.response_headers(door, self.request_id, self._raw_headers)
        self.client = Client(connection, own, gateway.clock, self._began)
        self.client.on_start = self._forget_request
        self.record = gateway.make_record(door, self.request_id, self._headers, method)
        self.has_slot = False
        self.only_upstream: str | None = None  # set: the one to ask, whatever the routes say
        self._task: asyncio.Task[None] | None = None
        self._answer: AnswerWriter | HostedAnswer | None = None
        self._recorder = AttemptRecorder(gateway, self.record, self.client, self._capture)
        self._stop_reason: ErrorInfo | None = None
        self._caller_key: str | None = None
        self._request: ClientRequest | None = None
        self._asked: Request | None = None  # what the client asked for, without what the store adds
        self._owner = ""
        self._key_use: KeyUse | None = None  # of a named key
        self._submits = submits
        self._memory = memory
        self._background = background
        self._is_handed_over = False  # to the exchange of a background response
        self._deadline: asyncio.TimerHandle | None = None  # ends a background response
        # The request as the client sent it, for an upstream that knows the response that the request continues.
        self._native: ClientRequest | None = None
        self._continuation: Continuation | None = None
        self._keeper: Keeper | None = None
        self._is_new = False  # the request continues no stored response
        self._edits: Raw | None = None  # the report of what was cleared, for a Messages client

    async def run(self) -> None:
        """Serve the request and answer every error; only a cancellation from outside is raised."""
        self._task = self._connection.task()
        self._connection.on_leave(self._client_left)
        try:
            await self._serve()
        except ClientGone:
            self.record.client_gone = True
        except asyncio.CancelledError:
            await self._end_cancelled()
        except GatewayRefusal as refusal:
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

    async def _serve(self) -> None:
        gateway = self._gateway
        connection = self._connection
        gateway.begin(self)
        self._check_head()
        body = connection.take_body()
        limit = gateway.settings.server.max_body_bytes
        if body is None or len(body) > limit or b"content-encoding" in self._headers:
            body = await read_body(connection.receive, self._raw_headers, limit, whole=body)
        gateway.slots.acquire()  # clients that stall while sending take none
        self.has_slot = True
        self.record.bytes_in = len(body)
        if self._capture is not None:
            self._capture.take_request(body)
        size = len(body)
        request = self._decode(body) if size < LARGE else await offload(size, self._decode, body)
        continuing = self._note_request(body, request)
        del request
        if self._is_handed_over:
            background, is_stream = self._hand_over(body)
            del body
            await answer_queued(self.client, gateway.store, background, is_stream=is_stream)
            return
        # Streams last long: only `_request`, which is dropped with the first byte, may refer to the request meanwhile.
        del body
        if continuing is not None:
            await self._continue(continuing)
        del continuing
        if self.record.key:
            await self._admit()
        if self._door.dialect == "messages" and self._is_thread():
            await settle(self.client.respond(400, threads_unsupported(self.request_id)))
            return
        targets = gateway.upstreams.targets(
            self._door.dialect, self.record.model, self.only_upstream
        )
        if self._memory is not None and not self._memory.generates:
            await self._answer_empty()
            return
        asked = self._request
        search = (
            None if asked is None else needed_search(asked.request, self._door.dialect, targets)
        )
        del asked
        may_host = gateway.hosted_servers is not None or search is not None
        if may_host and self.only_upstream is None and await self._host(search):
            return
        del search
        await try_targets(
            gateway.upstreams,
            targets,
            self._attempt,
            self._recorder,
            key=self._conversation_key,
            is_forwarded=self._is_started,
        )

    def _conversation_key(self) -> bytes:
        return b"" if self._request is None else conversation_key(self._request.request)

    def _is_started(self) -> bool:
        return self.client.started

    def stop(self, reason: ErrorInfo) -> None:
        """End the exchange now with `reason`.

        An exchange whose end is being stored ends by itself, and one that follows a background response ends with that.
        """
        if self._is_handed_over or (self._keeper is not None and self._keeper.is_ending):
            return
        if self._task is not None and not self.client.finished:
            self._stop_reason = reason
            self._task.cancel()

    @property
    def is_background(self) -> bool:
        return self._background is not None

    def _check_head(self) -> None:
        gateway = self._gateway
        line = self._connection.line_bytes
        if line is not None:
            check_head(self._raw_headers, gateway.settings.server.max_header_bytes, line)
        caller = gateway.identify(self._raw_headers)
        self._caller_key, self.record.caller, self._owner = caller.key, caller.id, caller.owner
        self.record.key = caller.named
        if self._capture is not None:
            gateway.inspector.admit(self._capture, self.request_id, caller.owner)

    async def _admit(self) -> None:
        """Count a request of a named key, within its limits. Raises Forbidden, ReportedError."""
        keys, record = self._gateway.named_keys, self.record
        asked = self._native or self._request
        if self._key_use is None and (self._memory is None or self._memory.generates):
            body = None if asked is None else asked.body
            self._key_use = await keys.admit(record.key, record.model, body)

    def _decode(self, body: bytes) -> Request | None:
        """The request; None for outputs of calls, which are read together with the response that they belong to."""
        server, codec = self._gateway.settings.server, self._door.codec
        check_json(body, max_depth=server.max_depth, max_values=server.max_values)
        if self._submits is not None:
            return None
        request = codec.decode_request(body)
        if codec.check_request is not None:
            codec.check_request(request)
        if self._door.is_compact:  # it has no stream, and nothing of it is stored
            request = structs.replace(request, stream=None, store=False)
        return request

    def _note_request(self, body: bytes, request: Request | None) -> Awaitable[Continuation] | None:
        """Returns an awaitable that finds the response that the request continues, if there is one."""
        if request is None:
            submits = self._submits or ""
            return continue_submitted(self._gateway.store, submits, body, self._caller())
        self.record.model = request.model
        self._asked = request
        if self.record.trace is not None:
            self.record.trace.asked(request)
        self._request = ClientRequest(body, request)
        most = self._gateway.settings.server.max_tools
        if len(request.tools) > most:
            check_tools(request, most)
        store = self._gateway.store
        door = self._door
        if self._memory is not None:
            caller, memory = self._caller(), self._memory
            caller = structs.replace(caller, body=body)
            waits = self._waits() and memory.generates
            return find_continuation(
                store, door.dialect, request, caller, waits=waits, memory=memory
            )
        if door.dialect == "responses" and asks_for_background(request):
            return self._note_background(body, request)
        if door.dialect == "chat" or not self._gateway.is_storing:
            return None
        if door.dialect == "messages" and not asks_for_thread(request):
            return None
        if door.dialect == "responses" and is_new(request):
            self._is_new = True
            self._keeper = make_keeper(store, request, self._caller, waits=self._waits())
            return None
        caller = structs.replace(self._caller(), body=body, only_reads=door.is_compact)
        return find_continuation(store, door.dialect, request, caller, waits=self._waits())

    def _note_background(self, body: bytes, request: Request) -> Awaitable[Continuation] | None:
        """Raises RequestRefused: the response cannot be made in the background."""
        if self._door.is_compact:
            raise RequestRefused(
                f"background: expected false at {self._door.path}: a compaction is not stored",
                param="background",
            )
        store = self._gateway.store
        check_background(store, request)
        if self._background is None:
            self._is_handed_over = True
            return None
        self._request = ClientRequest(b"", awaited(request), is_rebuilt=True)
        caller = structs.replace(self._caller(), body=body)
        return find_continuation(store, "responses", request, caller)

    def _waits(self) -> bool:
        """Whether the answer asks the client to submit the outputs of its calls."""
        is_asked = self._gateway.profile(self._headers) == "required_action"
        return is_asked and not self._door.is_compact

    def _is_thread(self) -> bool:
        """Whether the request asks for a message thread while nothing is stored; a special refusal answers it."""
        asked = self._request
        if asked is None or self._gateway.is_storing:
            return False
        return asks_for_thread(asked.request)

    def _caller(self) -> StorageCaller:
        now = self._gateway.wall_clock()
        number = number_of(now, getrandbits(NOISE_BITS))
        return StorageCaller(self._owner, number, now, self.stop)

    async def _continue(self, continuing: Awaitable[Continuation]) -> None:
        """Add the stored history to the request, and have the answer stored."""
        self._continuation = continuation = await continuing
        self._keeper = continuation.keeper
        if continuation.request is not None:
            self._native = self._request if continuation.upstream else None
            request = continuation.request
            request = request if self._background is None else awaited(request)
            self._request = ClientRequest(b"", request, is_rebuilt=True)
            self.record.model = continuation.request.model
            if self._submits is not None:
                asked = with_conversation(continuation.request, continuation.conversation)
                self._asked = structs.replace(asked, previous_id=self._submits)
        if self._background is not None:
            await self._queue(self._background)

    def _hand_over(self, body: bytes) -> tuple[BackgroundConnection, bool]:
        """Have the request served without its client. Returns the connection for it, and whether the client wants the stream.

        Raises:
            TooManyStreams: too many background responses run.
        """
        self._is_handed_over = False  # until it is: a refusal is this exchange's own
        gateway = self._gateway
        if gateway.is_stopping:
            raise ReportedError(stopping_error())
        gateway.release_slot(self)  # the other exchange takes it
        own = (b"x-request-id", self.request_id.encode("ascii"))
        others = (b"x-request-id", b"content-encoding")  # the body is decoded
        headers = [own, *(pair for pair in self._raw_headers if pair[0] not in others)]
        gateway.inspector.discard(self._capture)  # the other exchange has its own, with the same id
        background = gateway.serve_in_background(self._door, headers, body)
        self._is_handed_over = True
        is_stream = self._asked is not None and self._asked.stream is True
        self._forget_request()
        return background, is_stream

    async def _queue(self, background: BackgroundConnection) -> None:
        """Store the response as queued, and report that to the exchange that has the client.

        Raises:
            RequestRefused, StoreError
        """
        keeper = self._keeper
        key = None if keeper is None else keeper.key
        if keeper is None or key is None:
            raise AssertionError("a background response is stored")
        gateway = self._gateway
        if self.record.key:
            await self._admit()
        # Refuse what can be refused at once: an unknown model, or a response that neither side knows.
        target = gateway.upstreams.targets(self._door.dialect, self.record.model)[0]
        if self._continuation is not None and self._request is not None:
            knows_previous(self._continuation, self._request.request, target)
        body, opening = queue_response(self._queued_context(keeper))
        await keeper.queue(body, opening)
        limit = gateway.settings.server.background_max_seconds
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(limit, self.stop, overtime_error(limit))
        background.acknowledge(Queued(key, body))

    def _queued_context(self, keeper: Keeper) -> EncodeContext:
        own = keeper.draft.id
        return EncodeContext(
            model=self.record.model,
            created=int(keeper.draft.created),
            seed=own,
            response_id=own,
            request=self._settings(),
            clock=self._gateway.wall_clock,
            is_queued=True,
        )

    async def _fail_queued(self, keeper: Keeper, error: ErrorInfo) -> None:
        """Store the failure of a background response that no upstream has begun."""
        context = structs.replace(self._queued_context(keeper), notes=keeper.expect("", ""))
        last = failed_stream(self._door.dialect, error, context)
        await settle(self.client.finish(await keeper.end_stream(last)))

    def _forget_request(self) -> None:
        """Drop the request: after the first byte there is no other attempt that would need it."""
        self._request = self._native = self._continuation = self._asked = None
        self._raw_headers = []
        self._headers = {}

    def _client_left(self) -> None:
        if not self.client.finished and self._task is not None:
            self.record.client_gone = True
            self._task.cancel()

    async def _host(self, search: ToolSearch | None) -> bool:
        """Serve the request with the tools of the route's MCP servers, and with a search for deferred tools.

        False: it needs neither; serve it without them.
        """
        gateway, asked = self._gateway, self._request
        hosted_servers = gateway.hosted_servers
        if asked is None:
            return False
        request = asked.request
        servers = (
            () if hosted_servers is None else gateway.upstreams.router.servers(self.record.model)
        )
        is_summary = self._door.is_compact or wants_summary(request)
        is_hosted = bool(servers) or search is not None
        if not is_hosted or (request.choices or 1) > 1 or is_summary:
            if (
                hosted_servers is not None
                and self._door.dialect == "responses"
                and has_hosted_calls(request, hosted_servers.names)
            ):
                request = restore_calls(request, hosted_servers.names, plain_name)
                self._request = ClientRequest(b"", request, is_rebuilt=True)
            return False
        self.record.stream = request.stream is True
        self._answer = answer = HostedAnswer(
            HostedRequest(
                gateway=gateway,
                servers=servers,
                door=self._door,
                client=self.client,
                record=self.record,
                recorder=self._recorder,
                request=request,
                headers=self._headers,
                sender=Sender(ClientHeaders(self._headers), self._caller_key, self.request_id),
                owner=self._owner,
                seed=self._seed(),
                prepare=self._prepare_hosted,
                keeper=self._keeper,
                settings=self._settings(),
                search=search,
                edits=lambda: self._edits,
            )
        )
        await answer.serve()
        return True

    async def _answer_empty(self) -> None:
        """Answer a request that generates nothing: without an upstream, and with an id that the next request can continue."""
        keeper = self._keeper
        if keeper is None:
            raise AssertionError("an answer over a WebSocket is stored or remembered")
        self.record.stream = True
        own, now = keeper.draft.id, self._gateway.wall_clock
        context = EncodeContext(
            model=self.record.model,
            created=int(now()),
            seed=own,
            response_id=own,
            request=self._settings(),
            clock=now,
            notes=keeper.expect("", ""),
        )
        encoder = make_encoder(self._door.dialect, context)
        first = encoder.encode(Started(response_id=own, model=self.record.model))
        last = encoder.encode(Finished("stop")) + encoder.encode(Completed()) + encoder.close()
        keeper.take(first)
        await settle(self.client.write(first))
        await settle(self.client.finish(await keeper.end_stream(last)))

    async def _prepare_hosted(self, request: Request, target: AttemptTarget) -> Request:
        if self._continuation is not None:
            knows_previous(self._continuation, request, target)  # refuses what neither side knows
        elif request.previous_id is not None or self._gateway.is_storing:
            request = (await self._request_for(ClientRequest(b"", request), target)).request
        if self._door.dialect == "chat":
            return request
        # A compaction in the middle of an answer would be in the middle of several.
        request = structs.replace(expand(request, target), compact_at=None)
        request, self._edits = apply_edits(request, target)
        return request

    async def _attempt(self, target: AttemptTarget) -> None:
        """Ask one upstream once, and write its answer to the client.

        Raises:
            AttemptFailed: there is no answer, and nothing was forwarded.
        """
        gateway, recorder = self._gateway, self._recorder
        self._answer = None  # that of an attempt before
        is_chat = self._door.dialect == "chat"
        policy = gateway.obsidian_policy(target, self._headers) if is_chat else None
        if policy is not None:
            target = structs.replace(target, obsidian=policy)
        recorder.headers = () if policy is None else (policy.header,)
        asked = self._request
        if asked is None:
            raise AssertionError("nothing is sent after an answer has begun")
        goes_on = self._continuation is not None or asked.request.previous_id is not None
        if not self._is_new and (goes_on or gateway.is_storing):
            asked = await self._request_for(asked, target)
        summary = None
        if not is_chat:
            asked, summary = prepare(asked, target, is_compact=self._door.is_compact)
        if self._door.dialect == "messages" and asked.request.extra is not None:
            asked = self._edited(asked, target)
        self.record.stream = is_stream = asked.request.stream is True
        stream = target.asks_for_stream(is_wanted=is_stream)
        size = len(asked.body) or asked.size
        if size < LARGE:
            planned = plan_request(asked, target, stream=stream)
        else:
            planned = await offload(size, plan_request, asked, target, stream=stream)
        recorder.sent(target, planned)
        asked_at = gateway.wall_clock()
        reply = await self._send(target, planned, stream=stream)
        answer: AnswerWriter | None = None
        try:
            # Planned only now: what waits for the upstream beside each request is cold when it answers, which took 1 %.
            plan = self._plan(asked, target, planned, summary, asked_at)
            del asked, planned
            secrets = gateway.upstreams.by_name[target.peer].secrets
            self._answer = answer = AnswerWriter(plan, self.client, self._note_body, secrets)
            error = await answer.write(reply)
            if error is not None:
                self.client.keep_alive = None  # once one is sent, no other upstream can be asked
                raise AttemptFailed(error)
        finally:
            if answer is not None and answer.is_stream and self.client.finished:
                await let_go(reply)
            else:
                reply.close()

    def _send(
        self, target: AttemptTarget, planned: PlannedRequest, *, stream: bool
    ) -> Awaitable[UpstreamReply]:
        sent = UpstreamRequest(
            dialect=target.dialect,
            body=planned.encoded.body,
            stream=stream,
            model=target.model,
            headers=ClientHeaders(self._headers),
            client_key=self._caller_key,
            request_id=self.request_id,
            betas=planned.encoded.betas,
        )
        return send(self._gateway.upstreams, target, sent, self._recorder)

    def _edited(self, asked: ClientRequest, target: AttemptTarget) -> ClientRequest:
        """The request after the edits that the client wants and this upstream does not make."""
        request, self._edits = apply_edits(asked.request, target)
        if request is asked.request:
            return asked
        return ClientRequest(b"", request, is_rebuilt=True)

    async def _request_for(self, asked: ClientRequest, target: AttemptTarget) -> ClientRequest:
        """The request for this upstream, with the history that it does not know and the seals that were stored for it."""
        if self._continuation is not None:
            is_known = knows_previous(self._continuation, asked.request, target)
            if self._door.is_compact:  # its answer contains messages of the whole conversation
                return asked
            return self._native if is_known and self._native is not None else asked
        if self._door.dialect == "responses" and not asked.is_rebuilt:
            check_previous(asked.request, target)
        family = FAMILIES.get(target.dialect)
        store = self._gateway.store
        if self._door.dialect == "chat" and family is not None and store.is_on:
            request = await restore(store, self._owner, family, asked.request, asked.size)
            if request is not asked.request:
                return ClientRequest(b"", request, is_rebuilt=True)
        return asked

    def _seed(self) -> str:
        """What ids are minted from: other ids for each request of a conversation, even if all have one `x-request-id`."""
        is_own = b"x-request-id" not in self._headers
        return self.request_id if is_own else f"{self.request_id}.{self.record.bytes_in}"

    def _settings(self) -> Request | None:
        """What the answer repeats of the client's request; None if its dialect repeats nothing."""
        asked = self._asked
        if asked is None or self._door.dialect != "responses":
            return None
        keeper = self._keeper
        return settings_of_client(asked, is_stored=keeper is not None and keeper.is_storing)

    def _plan(
        self,
        asked: ClientRequest,
        target: AttemptTarget,
        planned: PlannedRequest,
        summary: SummaryPlan | None,
        asked_at: float,
    ) -> AnswerPlan:
        """How the answer is read and encoded. `summary`: it becomes a compaction. `asked_at`: when the request was sent."""
        gateway, request = self._gateway, asked.request
        plan = plan_answer(
            request,
            planned,
            target,
            seed=self._seed(),
            clock=gateway.wall_clock,
            asked_at=asked_at,
            request_id=self.request_id,
            profile=gateway.profile(self._headers),
            repeated=self._settings(),
            hashes_inputs=self.record.trace is not None,
        )
        if self._edits is not None:
            plan = structs.replace(plan, encode=structs.replace(plan.encode, edits=self._edits))
        if summary is not None:
            plan = structs.replace(plan, relay="none")
        elif (
            request.compact_at is not None
            and target.accepts.compacts
            and not target.is_same_dialect
        ):
            plan = plan_inline(plan)
        if self._keeper is not None:
            plan = plan_kept(plan, self._keeper, target, is_native=not asked.is_rebuilt)
        elif gateway.is_storing and self._door.dialect == "chat":
            plan = plan_escrow(plan, gateway.store, self._owner)
        if summary is not None:
            plan = plan_summary(plan, summary)
        return plan

    def _note_body(self, body: TranslatedBody) -> None:
        """Add a body's losses to the header: they are known before the body is sent."""
        if body.losses:
            losses = (*self._recorder.losses, *body.losses)
            kept = [pair for pair in self.client.reply_headers if pair[0] != LOSS_HEADER]
            self.client.reply_headers = [*kept, loss_header(losses)]
        obsidian = None if self._answer is None else self._answer.obsidian
        if obsidian is not None:
            self.client.reply_headers = [*self.client.reply_headers, *obsidian.report().headers]

    async def _refuse(self, error: ErrorInfo, headers: Headers = ()) -> None:
        """Send an error: with a status if nothing has been written, else in the stream."""
        self.record.error_kind = error.kind
        self.record.error = error.message
        client = self.client
        if client.finished:
            return
        if self._keeper is not None:
            await self._keeper.give_up()
        if client.started:
            if self._answer is not None:
                await self._answer.fail(error)
            return
        if self._keeper is not None and self._keeper.draft.background and self._keeper.is_begun:
            await self._fail_queued(self._keeper, error)
            return
        limits = self._recorder.error_limits
        # Codex and its app-server send this header; its value is the embedding client's name.
        if self._door.dialect == "responses" and b"originator" in self._headers:
            error, limits = without_long_wait(error, limits)
            # Codex does not recognise a too long conversation by HTTP 400, and so would not compact it.
            if self.record.stream and error.kind == "context_length":
                now = int(self._gateway.wall_clock())
                context = EncodeContext(
                    model=self.record.model, created=now, request=self._settings()
                )
                stream = failed_stream(self._door.dialect, error, context)
                await settle(client.finish(stream))
                return
        error = structs.replace(error, request_id=self.request_id)
        body = self._door.codec.encode_error(error)
        extra = (*headers, *limits, *error_headers(error, limits))
        await settle(client.respond(status_of(error), body, extra))

    async def _end_cancelled(self) -> None:
        """End a cancelled exchange: silently if the client left, with an error if the gateway stops."""
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
        """Release everything and write the record, however the exchange ended."""
        self._connection.on_leave(None)
        if self._deadline is not None:
            self._deadline.cancel()
        self._gateway.forget(self)
        if self._keeper is not None:
            self._keeper.close()
        if not self._is_handed_over:
            self._write_record()
        # These objects refer to this exchange: breaking the cycles frees them without the garbage collector.
        self.client.on_start = self._answer = self._keeper = self._native = None
        self._continuation = self._memory = self._background = self._capture = None

    def _write_record(self) -> None:
        record = self.record
        self._recorder.finish(self._answer, self._began)
        if self._key_use is not None:
            self._gateway.named_keys.end(self._key_use, record)
        if record.error and self._caller_key:
            # An upstream may quote the caller's own key in an error. Only the caller may read it, not the log.
            record.error = record.error.replace(self._caller_key, HIDDEN)
        self._gateway.inspector.end(self._capture, record, self._gateway.note)
