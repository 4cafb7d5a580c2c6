"""Serves one HTTP request whose answer includes calls that the gateway runs.

The engine asks the model and runs the hosted tools; the answers are merged into one and written in the client's dialect.
Until the first byte is written, upstreams are tried as for any request; after that nothing is repeated.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain
from random import getrandbits
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from dragoman._json import Raw
from dragoman.config.settings import HostedSettings
from dragoman.core.failures import ReportedError
from dragoman.core.ids import NOISE_BITS, number_of
from dragoman.core.losses import answer_book
from dragoman.core.usage import NOTED, Tally
from dragoman.dialects.chat import is_legacy
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.translate import SerialEncoder, make_encoder
from dragoman.engine.events import EngineEvent, RunEnded
from dragoman.engine.run import Engine, Model
from dragoman.engine.settings import EngineSettings
from dragoman.gateway.answer import AnswerReport, settle
from dragoman.gateway.attempt import Prepare, Sender, UpstreamModel
from dragoman.gateway.hosted.history import ITEM_PREFIX, has_hosted_calls, restore_calls
from dragoman.gateway.hosted.merge import AnswerMerger, MergeRules, Style
from dragoman.gateway.hosted.tool_search import ToolSearch
from dragoman.gateway.hosted.tools import HostedTools
from dragoman.gateway.plan import (
    AnswerPlan,
    PlannedRequest,
    plan_answer,
    plan_escrow,
    plan_kept,
)
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import Event, Noticed, PartEnded
from dragoman.model.outcome import ErrorInfo, Loss
from dragoman.model.parts import Call
from dragoman.model.request import Request, ToolChoice, Turn
from dragoman.obsidian.answer import ObsidianAnswer
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.obsidian.request import apply_to_request
from dragoman.offload import offload
from dragoman.server.attempt_recorder import AttemptRecorder
from dragoman.server.client import Client
from dragoman.server.doors import Door
from dragoman.server.http.headers import LOSS_HEADER, loss_header
from dragoman.server.observe.record import RequestRecord
from dragoman.sse import encode_comment
from dragoman.state.continuation import MINTED
from dragoman.state.escrow import Escrow
from dragoman.state.keeper import Keeper

if TYPE_CHECKING:
    from dragoman.server.gateway import Gateway

logger = logging.getLogger(__name__)

# Upstreams have their own idle timeout, which an operator may set; the engine's timeout must not expire first.
_IDLE_SECONDS = 24 * 3600.0
_PING = Noticed("ping")
_EVENT_BYTES = 64  # the least that one event adds to a body; decides whether a thread encodes it


class HostedRequest(Struct, frozen=True, kw_only=True):
    """A request that is served with the tools of these servers, and with a search for its deferred tools.

    seed: see `plan_answer`. search: None if the upstreams need none. prepare: completes the request for one upstream. keeper: stores
    the answer. settings: what the answer repeats of the client's request. edits: returns the report of what was cleared from the
    conversation (`gateway/context_edits.py`).
    """

    gateway: "Gateway"
    servers: Sequence[str]
    door: Door
    client: Client
    record: RequestRecord
    recorder: AttemptRecorder
    request: Request
    headers: Mapping[bytes, bytes]
    sender: Sender
    owner: str
    seed: str
    prepare: Prepare
    keeper: Keeper | None
    settings: Request | None
    search: ToolSearch | None
    edits: Callable[[], Raw | None]


class HostedAnswer:
    """The merged answer. The exchange ends and records it like an `AnswerWriter`."""

    def __init__(self, job: HostedRequest) -> None:
        self.tally = Tally()
        self.obsidian: ObsidianAnswer | None = None
        self._job = job
        self._wants_stream = job.request.stream is True
        job.recorder.on_sent = self._plan_for
        search, settings = job.search, job.gateway.settings.hosted
        self._asked = job.request if search is None else search.request
        self._tools = HostedTools(self._asked.tools)
        rules = _merge_rules(job.door, settings, self._tools, search)
        self._merger = AnswerMerger(rules)
        self._engine: Engine | None = None
        self._plan: AnswerPlan | None = None
        self._encoder: SerialEncoder | None = None
        self._events: list[Event] = []  # of an answer that is written as a body
        self._losses: tuple[Loss, ...] = ()  # of an answer that is written as a body

    @property
    def losses(self) -> tuple[Loss, ...]:
        encoder = self._encoder
        losses = self._losses if encoder is None else encoder.losses
        return (*losses, *(self.obsidian.losses if self.obsidian else ()))

    @property
    def _keeper(self) -> Keeper | Escrow | None:
        return None if self._plan is None else self._plan.keeper

    def report(self) -> AnswerReport:
        """What the record needs besides the tally and the losses. The problems are those of all answers of upstreams."""
        unstored = None if self._keeper is None else self._keeper.problem
        return unstored, tuple(self._job.recorder.problems), self.obsidian

    async def serve(self) -> None:
        """Ask the model, run the tools, and write the answer.

        Raises:
            ReportedError: there is no answer, and nothing was written.
        """
        job, asked, tools, merger = self._job, self._asked, self._tools, self._merger
        if self._wants_stream:
            job.client.keep_alive = self._keep_alive
        if job.gateway.hosted_servers is not None:
            tools.source = await job.gateway.hosted_servers.source(job.servers)
        model = UpstreamModel(
            job.gateway.upstreams,
            client_dialect=job.door.dialect,
            sender=job.sender,
            observer=job.recorder,
            prepare=self._prepare,
            is_hosted=tools.is_ours,
        )
        self._engine = Engine(
            _Choosing(model, tools),
            (tools, *(() if job.search is None else job.search.tools)),
            settings=engine_settings(job.gateway.settings.hosted),
            observer=self._observe if job.record.trace is None else self._trace(),
        )
        # Providers refuse a request with both forms of tools, and hosted tools have the newer form.
        theirs = tuple(
            structs.replace(tool, extra=None) if is_legacy(tool) else tool for tool in asked.tools
        )
        request = structs.replace(asked, tools=theirs, stream=self._wants_stream)
        request = self._recalled(request)
        try:
            run = await self._engine.run(request)
        finally:
            job.record.hosted = tuple(merger.calls)
        self._remember(run.turns[len(request.turns) :])
        await self._end(run)

    async def fail(self, error: ErrorInfo) -> None:
        """Write a failure into an answer that has begun, after closing its open parts."""
        if not self._job.client.finished:
            await self._finish(self._changed(self._merger.fail(error)))

    # --- calls of earlier requests ------------------------------------------------------------------------------------

    def _recalled(self, request: Request) -> Request:
        """The request with the calls that the gateway ran earlier: those that the client sent back, or those from memory."""
        hosted_servers = self._job.gateway.hosted_servers
        if hosted_servers is None:
            return request
        tools = self._tools
        tools.tools()  # which gives the tools their names
        if self._job.door.dialect != "responses":
            return hosted_servers.memory.restore(self._job.owner, request, tools.is_theirs)
        if has_hosted_calls(request, hosted_servers.names):
            return restore_calls(request, hosted_servers.names, tools.name_of)
        return request

    def _remember(self, turns: Sequence[Turn]) -> None:
        servers, merger = self._job.gateway.hosted_servers, self._merger
        if servers is not None and self._job.door.dialect != "responses" and merger.calls:
            memory, asked = servers.memory, self._job.request.turns
            is_own = self._tools.is_theirs
            memory.keep(self._job.owner, asked, turns, text=merger.text, is_own=is_own)

    # --- plan ----------------------------------------------------------------------------------------------------------

    def _plan_for(self, target: AttemptTarget, planned: PlannedRequest) -> None:
        """Plan how the answer is encoded; the upstream of its first part decides."""
        if self._merger.has_started:
            return
        job = self._job
        gateway = job.gateway
        plan = plan_answer(
            job.request,
            planned,
            target,
            seed=job.seed,
            clock=gateway.wall_clock,
            request_id=job.record.request_id,
            profile=gateway.profile(job.headers),
            repeated=job.settings,
        )
        encode = structs.replace(plan.encode, edits=job.edits())
        plan = structs.replace(plan, relay="none", encode=encode)
        if job.keeper is not None:
            plan = plan_kept(plan, job.keeper, target, is_native=False)
        elif gateway.is_storing and job.door.dialect == "chat":
            plan = plan_escrow(plan, gateway.store, job.owner)
        if job.door.dialect == "responses" and not plan.encode.response_id:
            # The upstream would know its own id only as the first of several responses.
            number = number_of(gateway.wall_clock(), getrandbits(NOISE_BITS))
            minted = MINTED["responses"] + number
            plan = structs.replace(plan, encode=structs.replace(plan.encode, response_id=minted))
        policy = gateway.obsidian_policy(target, job.headers)
        if policy is not None:
            plan = self._under_policy(plan, policy)
        job.recorder.headers = () if policy is None else (policy.header,)
        self._plan = plan

    def _under_policy(self, plan: AnswerPlan, policy: ObsidianPolicy) -> AnswerPlan:
        """The plan with the policy applied last, after the stages that find calls in text and restore names."""
        self.obsidian = obsidian = ObsidianAnswer(
            policy, tools=self._job.request.tools, losses=plan.encode.losses
        )
        if not self._wants_stream:
            obsidian.expect_complete()
        return structs.replace(
            plan, encode=structs.replace(plan.encode, last_comment=obsidian.comment)
        )

    async def _prepare(self, request: Request, target: AttemptTarget) -> Request:
        request = await self._job.prepare(request, target)
        if self._job.search is not None:
            request = self._job.search.fit(request, target)
        policy = self._job.gateway.obsidian_policy(target, self._job.headers)
        return request if policy is None else apply_to_request(request, policy)[0]

    # --- output -----------------------------------------------------------------------------------------------------

    def _trace(self) -> Callable[[EngineEvent], Awaitable[None]]:
        """The observer of an answer that is traced."""
        trace = self._job.record.trace

        def server(call: Call) -> str:
            tool = self._tools.whose(call)
            return "" if tool is None else tool.server

        async def observe(event: EngineEvent) -> None:
            if trace is not None:
                trace.observe(event, server)
            await self._observe(event)

        return observe

    async def _observe(self, event: EngineEvent) -> None:
        events = self._changed(self._merger.feed(event))
        if not events:
            return
        if not self._wants_stream:
            self._events += events
            return
        output = self._encode(events)
        if output:
            if self._keeper is not None:
                self._keeper.take(output)
            await settle(self._job.client.write(output))
        if self.obsidian is not None and self.obsidian.is_over and self._engine is not None:
            self._engine.interrupt()

    def _changed(self, events: list[Event]) -> list[Event]:
        """The events for the client, after the policy; counts the events and stores their seals."""
        if self.obsidian is not None:
            events = list(chain.from_iterable(map(self.obsidian.feed, events)))
        escrow = None if self._plan is None else self._plan.escrow
        for event in events:
            if type(event) in NOTED and not _is_hosted(event):
                self.tally.note(event)
            if escrow is not None:
                escrow.see(event)
        return events

    def _encode(self, events: Sequence[Event]) -> bytes:
        door = self._job.door.dialect
        encoder = self._encoder
        if encoder is None:
            self._encoder = encoder = make_encoder(door, self._context())
        if door == "responses":
            # The parts of each answer already come one after the other; hosted calls may overlap with them.
            return b"".join(map(encoder.dialect.encode, events))
        return encoder.encode_all(events)

    def _context(self) -> EncodeContext:
        if self._plan is None:  # no upstream was asked yet
            job = self._job
            now = int(job.gateway.wall_clock())
            return EncodeContext(model=job.request.model, created=now, request=job.settings)
        return self._plan.encode

    def _keep_alive(self) -> bytes:
        """A keep-alive: the stream may be silent for long while tools run."""
        if self._encoder is None:
            return encode_comment("keep-alive")
        return b"" if self._merger.is_over else self._encoder.dialect.encode(_PING)

    async def _end(self, run: RunEnded) -> None:
        merger = self._merger
        run = self._explained(run)
        if self.obsidian is not None and self.obsidian.is_over:
            events: list[Event] = []
        else:
            events = merger.end(run)
            error = merger.error
            if error is not None and not (self._wants_stream and self._job.client.started):
                raise ReportedError(error)
            events = self._changed(events)
        if self._wants_stream:
            await self._finish(events)
        else:
            await self._respond([*self._events, *events])

    def _explained(self, run: RunEnded) -> RunEnded:
        """The end of a run, with a message that names the limit that ended it."""
        settings = self._job.gateway.settings.hosted
        if run.reason in ("max_turns", "max_tokens", "no_progress"):
            request_id = self._job.record.request_id
            logger.warning(
                "request %s: the model was stopped after %d answers: %s",
                *(request_id, run.turn_count, run.reason),
            )
        if run.reason != "max_time":
            return run
        message = (
            f"the hosted tools exceeded the time limit of an answer: {settings.max_seconds:g} s"
        )
        return structs.replace(run, error=ErrorInfo(kind="timeout", message=message))

    async def _finish(self, events: Sequence[Event]) -> None:
        last = self._encode(events)
        if self._encoder is not None:
            last += self._encoder.close()
        if self._keeper is not None:
            last = await self._keeper.end_stream(last)
        await settle(self._job.client.finish(last))

    async def _respond(self, events: Sequence[Event]) -> None:
        job = self._job
        context = self._context()
        book = answer_book(job.door.codec.losses, context.losses)
        body = await offload(
            len(events) * _EVENT_BYTES, job.door.codec.encode_body, events, context, book
        )
        self._losses = book.losses
        if self._keeper is not None:
            body = await self._keeper.end_body(body)
        headers = [pair for pair in job.client.reply_headers if pair[0] != LOSS_HEADER]
        losses = (*job.recorder.losses, *self.losses)
        if losses:
            headers.append(loss_header(losses))
        if self.obsidian is not None:
            headers += self.obsidian.report().headers
        job.client.reply_headers = headers
        await settle(job.client.respond(200, body))


class _Choosing:
    """A model for which a required tool call applies only to the first answer: otherwise it could never stop.

    Passes the tool choice of each answer to the hosted tools.
    """

    def __init__(self, model: Model, tools: HostedTools) -> None:
        self._model = model
        self._tools = tools
        self._is_first = True

    def ask(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Event]]]:
        is_first, self._is_first = self._is_first, False
        asked = request if is_first else relaxed(request)
        self._tools.choice = asked.tool_choice
        return self._model.ask(asked)


def relaxed(request: Request) -> Request:
    """The request without the requirement that a tool be called."""
    choice = request.tool_choice
    if choice is None or not (choice.mode in ("required", "tool") or choice.required):
        return request
    if choice.mode == "allowed":
        return structs.replace(request, tool_choice=structs.replace(choice, required=False))
    return structs.replace(request, tool_choice=ToolChoice(mode="auto"))


def engine_settings(hosted: HostedSettings) -> EngineSettings:
    """The limits of one answer. Written bytes cannot be taken back, so there is no retry and no compaction."""
    return EngineSettings(
        max_turns=hosted.max_turns,
        max_seconds=hosted.max_seconds,
        max_parallel=hosted.max_parallel,
        tool_timeout=None,  # each server has its own timeout
        idle_timeout=_IDLE_SECONDS,
        retries=0,
        compaction=None,
    )


def _merge_rules(
    door: Door, hosted: HostedSettings, tools: HostedTools, search: ToolSearch | None
) -> MergeRules:
    style: Style = "items" if door.dialect == "responses" else hosted.calls
    return MergeRules(
        style=style,
        whose=tools.whose,
        mint=lambda: f"{ITEM_PREFIX}{getrandbits(96):024x}",
        # Chat has one text for the whole answer, so its turns need a separator.
        breaks=door.dialect == "chat" and style == "hidden",
        searched=None if search is None else search.parts,
    )


def _is_hosted(event: Event) -> bool:
    return (
        isinstance(event, PartEnded)
        and isinstance(event.value, Call)
        and event.value.executor == "gateway"
    )
