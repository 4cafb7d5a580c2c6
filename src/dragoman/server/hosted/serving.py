"""One request whose answer the gateway runs tools for: asked, run and told.

The engine asks the model and runs what is called here; this tells the client of it, in its dialect, as one answer. Nothing
is repeated once something was told; before that, upstreams are tried as for any request.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain
from random import getrandbits
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from dragoman.core.ids import NOISE_BITS, number_of
from dragoman.core.losses import answer_book
from dragoman.core.tally import NOTED, Tally
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.translate import SerialEncoder, make_encoder
from dragoman.engine.asking import Model
from dragoman.engine.events import EngineEvent, RunEnded
from dragoman.engine.runner import Engine
from dragoman.engine.settings import EngineSettings
from dragoman.model.events import Event, Noticed, PartEnded
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.model.parts import Call
from dragoman.model.request import Request, Tool, ToolChoice, Turn
from dragoman.server.answer_headers import LOSS_HEADER, loss_header
from dragoman.server.answers import AnswerPlan
from dragoman.server.client import Client
from dragoman.server.client_headers import ClientHeaders
from dragoman.server.contract import MODE_HEADER, Terms, contract_request
from dragoman.server.doors import Door
from dragoman.server.hosted.history import has_hosted_calls, restore_calls
from dragoman.server.hosted.items import ITEM_PREFIX
from dragoman.server.hosted.memory import Asked
from dragoman.server.hosted.offering import Offering
from dragoman.server.hosted.servers import Hosting
from dragoman.server.hosted.telling import Style, Teller, Telling
from dragoman.server.hosted.witnessing import Witnessing
from dragoman.server.line import settle
from dragoman.server.planning import Sending, plan_answer
from dragoman.server.records import RequestRecord
from dragoman.server.settings import HostedSettings
from dragoman.server.speaking import Behalf, Prepare, UpstreamModel
from dragoman.server.state.keeping import Keeper
from dragoman.server.state.planned import plan_escrow, plan_kept
from dragoman.server.state.recalling import MINTED
from dragoman.server.ways import Way
from dragoman.sse import encode_comment
from dragoman.store.working import beside
from dragoman.textcalls.contract.chain import Contract

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

__all__ = ("HostedAnswer", "HostedJob", "engine_settings", "relaxed")

logger = logging.getLogger(__name__)

# Upstreams have a limit of their own for this, which an operator may set; the engine's must not come before it.
_IDLE_SECONDS = 24 * 3600.0
_PING = Noticed("ping")
_EVENT_BYTES = 64  # of a body, that an event makes at least: many are better written in a thread


class HostedJob(Struct, frozen=True, kw_only=True):
    """A request that is served with the tools of these servers.

    prepare: what one upstream's request needs beyond what was asked. keeper: what keeps the answer.
    """

    gateway: "Gateway"
    hosting: Hosting
    servers: Sequence[str]
    door: Door
    client: Client
    record: RequestRecord
    request: Request
    headers: Mapping[bytes, bytes]
    client_key: str | None
    owner: str
    prepare: Prepare | None = None
    keeper: Keeper | None = None


class HostedAnswer:
    """The answer. It stands where an `answers.Answer` does: the exchange ends it and writes it down as one."""

    def __init__(self, job: HostedJob) -> None:
        self.tally = Tally()
        self.is_stream = False  # no reply of an upstream is left when it is told
        self.contract: Contract | None = None
        self._job = job
        self._wants_stream = job.request.stream is True
        self._witness = Witnessing(job.gateway, job.door, job.record, job.client, self._plan_for)
        self._engine: Engine | None = None
        self._telling: Telling | None = None
        self._plan: AnswerPlan | None = None
        self._terms: Terms | None = None
        self._encoder: SerialEncoder | None = None
        self._events: list[Event] = []  # of an answer that is told whole
        self._losses: tuple[Loss, ...] = ()  # of the same

    @property
    def losses(self) -> tuple[Loss, ...]:
        encoder = self._encoder
        told = self._losses if encoder is None else encoder.losses
        return (*self._witness.losses, *told, *(self.contract.losses if self.contract else ()))

    @property
    def unstored(self) -> ErrorInfo | None:
        """Why the client was sent a failure in place of the end."""
        keeper = None if self._plan is None else self._plan.keeper
        return None if keeper is None else keeper.problem

    def all_problems(self) -> tuple[Problem, ...]:
        """What was irregular in any of the answers of upstreams."""
        return tuple(self._witness.problems)

    async def serve(self) -> ErrorInfo | None:
        """Ask, run and tell. An error is returned if nothing was told when it came."""
        job = self._job
        settings = job.gateway.settings.hosted
        if self._wants_stream:
            job.client.keep_alive = self._keep_alive
        offering = Offering(await job.hosting.source(job.servers), job.request.tools)
        self._telling = telling = Telling(_teller(job.door, settings, offering))
        model = UpstreamModel(
            job.gateway.reach,
            door=job.door,
            behalf=Behalf(
                headers=ClientHeaders(job.headers),
                client_key=job.client_key,
                request_id=job.record.request_id,
            ),
            witness=self._witness,
            prepare=self._prepare,
            is_hosted=offering.is_ours,
        )
        self._engine = Engine(
            _Choosing(model, offering),
            (offering,),
            settings=engine_settings(settings),
            observer=self._observe,
        )
        tools = tuple(_modern(tool) for tool in job.request.tools)
        request = structs.replace(job.request, tools=tools, stream=self._wants_stream)
        request = self._recalled(request, offering)
        try:
            run = await self._engine.run(request)
        finally:
            job.record.hosted = tuple(telling.calls)
        self._remember(telling, run.turns[len(request.turns) :], offering)
        return await self._end(telling, run)

    async def fail(self, error: ErrorInfo) -> None:
        """End an answer that has begun: with a failure in its own dialect, after closing what is open."""
        telling = self._telling
        if telling is None or self._job.client.finished:
            return
        await self._finish(self._changed(telling.fail(error)))

    # --- what was run before, and is now -----------------------------------------------------------------------------

    def _recalled(self, request: Request, offering: Offering) -> Request:
        """The request with the calls that were run here before: as the client tells of them, or as is remembered."""
        hosting = self._job.hosting
        offering.tools()  # which names them
        if self._job.door.dialect != "responses":
            return hosting.memory.restore(self._job.owner, request, offering.is_theirs)
        if has_hosted_calls(request, hosting.names):
            return restore_calls(request, hosting.names, offering.name_of)
        return request

    def _remember(self, telling: Telling, turns: Sequence[Turn], offering: Offering) -> None:
        if self._job.door.dialect != "responses" and telling.calls:
            asked = Asked(self._job.owner, self._job.request.turns)
            self._job.hosting.memory.keep(asked, turns, telling.text, offering.is_theirs)

    # --- what is planned when an upstream is asked -------------------------------------------------------------------

    def _plan_for(self, way: Way, sending: Sending) -> None:
        """How the answer is told; by the upstream that the first of it comes from."""
        telling = self._telling
        if telling is None or telling.has_started:
            return
        job = self._job
        gateway = job.gateway
        plan = plan_answer(
            job.request,
            sending,
            way,
            profile=gateway.profile(job.headers),
            seed=job.record.request_id,
            now=gateway.wall_clock(),
        )
        plan = structs.replace(plan, relay="none")
        if job.keeper is not None:
            plan = plan_kept(plan, job.keeper, way, is_native=False)
        elif gateway.is_storing and job.door.dialect == "chat":
            plan = plan_escrow(plan, gateway.store, job.owner)
        if job.door.dialect == "responses" and not plan.encode.response_id:
            # The upstream's own id would name the first of several responses there.
            number = number_of(gateway.wall_clock(), getrandbits(NOISE_BITS))
            minted = MINTED["responses"] + number
            plan = structs.replace(plan, encode=structs.replace(plan.encode, response_id=minted))
        self._terms = terms = self._terms_of(way)
        if terms is not None:
            plan = self._contracted(plan, terms)
        self._plan = plan

    def _terms_of(self, way: Way) -> Terms | None:
        job = self._job
        if not way.is_contracted and MODE_HEADER not in job.headers:
            return None
        return job.gateway.terms(job.door, way.settings, job.headers)

    def _contracted(self, plan: AnswerPlan, terms: Terms) -> AnswerPlan:
        """The contract sees the answer as it is told: calls in the text were found, and names restored, before."""
        self.contract = contract = Contract(
            terms.policy, tools=self._job.request.tools, losses=plan.encode.losses
        )
        if not self._wants_stream:
            contract.hear_end()
        self._witness.headers = (terms.header,)
        return structs.replace(
            plan, encode=structs.replace(plan.encode, last_comment=contract.comment)
        )

    async def _prepare(self, request: Request, way: Way) -> Request:
        if self._job.prepare is not None:
            request = await self._job.prepare(request, way)
        terms = self._terms_of(way)
        return request if terms is None else contract_request(request, terms)[0]

    # --- telling -----------------------------------------------------------------------------------------------------

    async def _observe(self, event: EngineEvent) -> None:
        telling = self._telling
        if telling is None:
            return
        events = self._changed(telling.feed(event))
        if not events:
            return
        if not self._wants_stream:
            self._events += events
            return
        told = self._encode(events)
        if told:
            keeper = None if self._plan is None else self._plan.keeper
            if keeper is not None:
                keeper.take(told)
            await settle(self._job.client.write(told))
        if self.contract is not None and self.contract.is_over and self._engine is not None:
            self._engine.interrupt()

    def _changed(self, events: list[Event]) -> list[Event]:
        """The events that are told, seen by whoever must."""
        if self.contract is not None:
            events = list(chain.from_iterable(map(self.contract.feed, events)))
        escrow = None if self._plan is None else self._plan.escrow
        for event in events:
            if type(event) in NOTED and not _is_hosted(event):
                self.tally.note(event)
            if escrow is not None:
                escrow.see(event)
        return events

    def _encode(self, events: Sequence[Event]) -> bytes:
        encoder = self._encoder
        if encoder is None:
            door = self._job.door.dialect
            self._encoder = encoder = make_encoder(door, self._context())
        if self._job.door.dialect == "responses":
            # Each answer is one part after the other already; calls that are run here stand beside them.
            return b"".join(map(encoder.dialect.encode, events))
        return encoder.encode_all(events)

    def _context(self) -> EncodeContext:
        if self._plan is None:  # nobody was asked yet
            return EncodeContext(model=self._job.request.model)
        return self._plan.encode

    def _keep_alive(self) -> bytes:
        """What breaks a silence: while tools run there may be long ones."""
        if self._encoder is None:
            return encode_comment("keep-alive")
        is_over = self._telling is None or self._telling.is_over
        return b"" if is_over else self._encoder.dialect.encode(_PING)

    async def _end(self, telling: Telling, run: RunEnded) -> ErrorInfo | None:
        run = self._explained(run)
        if self.contract is not None and self.contract.is_over:
            events: list[Event] = []
        else:
            events = telling.end(run)
            error = telling.error
            if error is not None and not (self._wants_stream and self._job.client.started):
                return error
            events = self._changed(events)
        if self._wants_stream:
            await self._finish(events)
        else:
            await self._respond([*self._events, *events])
        return None

    def _explained(self, run: RunEnded) -> RunEnded:
        """The end of a run with the limit that made it."""
        settings = self._job.gateway.settings.hosted
        if run.reason in ("max_turns", "max_tokens", "no_progress"):
            request_id = self._job.record.request_id
            logger.warning(
                "request %s: the model was stopped after %d answers: %s",
                *(request_id, run.turn_count, run.reason),
            )
        if run.reason != "max_time":
            return run
        message = f"tools that the gateway runs took longer than an answer may: {settings.max_seconds:g} s"
        return structs.replace(run, error=ErrorInfo(kind="timeout", message=message))

    async def _finish(self, events: Sequence[Event]) -> None:
        last = self._encode(events)
        if self._encoder is not None:
            last += self._encoder.close()
        keeper = None if self._plan is None else self._plan.keeper
        if keeper is not None:
            last = await keeper.end_stream(last)
        await settle(self._job.client.finish(last))

    async def _respond(self, events: Sequence[Event]) -> None:
        job = self._job
        context = self._context()
        book = answer_book(job.door.codec.losses, context.losses)
        body = await beside(
            len(events) * _EVENT_BYTES, job.door.codec.encode_body, events, context, book
        )
        self._losses = book.losses
        keeper = None if self._plan is None else self._plan.keeper
        if keeper is not None:
            body = await keeper.end_body(body)
        headers = [pair for pair in job.client.reply_headers if pair[0] != LOSS_HEADER]
        if self.losses:
            headers.append(loss_header(self.losses))
        if self.contract is not None:
            headers += self.contract.report().headers
        job.client.reply_headers = headers
        await settle(job.client.respond(200, body))


class _Choosing:
    """A model that must call a tool only in its first answer: else it could never stop.

    The tools that are run here are told what each answer may call.
    """

    def __init__(self, model: Model, offering: Offering) -> None:
        self._model = model
        self._offering = offering
        self._is_first = True

    def ask(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Event]]]:
        is_first, self._is_first = self._is_first, False
        asked = request if is_first else relaxed(request)
        self._offering.choice = asked.tool_choice
        return self._model.ask(asked)


def relaxed(request: Request) -> Request:
    """The request without the demand that a tool be called."""
    choice = request.tool_choice
    if choice is None or not (choice.mode in ("required", "tool") or choice.required):
        return request
    if choice.mode == "allowed":
        return structs.replace(request, tool_choice=structs.replace(choice, required=False))
    return structs.replace(request, tool_choice=ToolChoice(mode="auto"))


def engine_settings(hosted: HostedSettings) -> EngineSettings:
    """How far one answer may go. What was told cannot be taken back: nothing is asked again, or summed up."""
    return EngineSettings(
        max_turns=hosted.max_turns,
        max_seconds=hosted.max_seconds,
        max_parallel=hosted.max_parallel,
        tool_timeout=None,  # each server has its own
        idle_timeout=_IDLE_SECONDS,
        retries=0,
        compaction=None,
    )


def _teller(door: Door, hosted: HostedSettings, offering: Offering) -> Teller:
    style: Style = "items" if door.dialect == "responses" else hosted.calls
    return Teller(
        style=style,
        whose=offering.whose,
        mint=lambda: f"{ITEM_PREFIX}{getrandbits(96):024x}",
        # Chat has one text for the whole answer.
        breaks=door.dialect == "chat" and style == "hidden",
    )


def _modern(tool: Tool) -> Tool:
    """A tool of the client's without the older form that it came in: providers refuse both forms in one request."""
    extra = tool.extra
    if extra is None or extra.dialect != "chat" or "functions" not in extra.fields:
        return tool
    return structs.replace(tool, extra=None)


def _is_hosted(event: Event) -> bool:
    return (
        isinstance(event, PartEnded)
        and isinstance(event.value, Call)
        and event.value.executor == "gateway"
    )
