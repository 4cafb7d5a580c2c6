"""Sends one request of a client with the gateway's own plan, and reads the answer as that client would get it.

This works like an exchange: the client's body is decoded, planned (`gateway.plan`), sent (`gateway.attempt`) and written for the
client (`gateway.answer`); only the HTTP connection of the client is missing. So the upstream gets exactly the request that the gateway
would send with the same settings, and the decoders report every defect that the gateway repairs.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field, structs

from dragoman._json import as_object
from dragoman.config.settings import UpstreamSettings
from dragoman.core.failures import error_info
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import TranslatedBody, make_decoder, read_body
from dragoman.errors import FrameTooLarge, GatewayError
from dragoman.gateway.answer import AnswerWriter, Pending
from dragoman.gateway.attempt import AttemptFailed, AttemptObserver, send
from dragoman.gateway.plan import ClientRequest, plan_answer, plan_request
from dragoman.gateway.reply import is_stream
from dragoman.gateway.route import Upstreams
from dragoman.model.events import Event
from dragoman.model.outcome import ErrorInfo, Loss, Outcome, Problem, Repair
from dragoman.model.parts import Dialect, Part, Text
from dragoman.model.request import Request, Tool
from dragoman.server.question import alone
from dragoman.upstream.base import UpstreamReply, UpstreamRequest

MAX_REQUESTS = 160
"""Of a run. An upstream without faults needs some forty, one with every known fault about a hundred."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of an answer. Two thousand tokens have less than 1 MB in the most verbose dialect; an endless stream ends here."""

PATIENCE = 120.0
"""Seconds for one answer, unless the user says otherwise. A local server loads the model, then reads ten thousand tokens."""

# Seconds, and how often: the longest wait for an upstream that limits its rate. A person would rather try again later than wait longer.
_LONGEST_WAIT = 20.0
_WAITS = (2.0, 4.0, 8.0, 16.0)
# Requests in a row without any answer from the upstream.
_MOST_SILENCES = 2

_NO_ACCESS = ("authentication", "permission", "quota")
_LATER = ("rate_limit", "overloaded")


class ProbeRequest(Struct, frozen=True, kw_only=True):
    """A request as a client sends it. headers: of the client, in lower case."""

    dialect: Dialect
    request: Request
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class ProbeAnswer(Struct, frozen=True, kw_only=True):
    """The result of one request.

    error: why there is no answer; None if there is one. outcome: the answer as the client gets it. problems: what was irregular in the
    upstream's answer. text_calls: how many calls the gateway found in the text. text: the upstream's own text, with such calls.
    fields: the members of the request that was sent. repairs, losses: what was changed in it. tools: those offered, by the upstream's names.
    """

    error: ErrorInfo | None = None
    outcome: Outcome | None = None
    problems: tuple[Problem, ...] = ()
    text_calls: int = 0
    text: str = ""
    fields: frozenset[str] = frozenset()
    repairs: tuple[Repair, ...] = ()
    losses: tuple[Loss, ...] = ()
    tools: tuple[Tool, ...] = ()


class RunStopped(Exception):
    """Further requests would be useless. The message says why, without a key."""


class Asker:
    """Asks one upstream for one model, under changing settings.

    asked: how many requests were sent. input_tokens, output_tokens: what the upstream reported for them.
    """

    def __init__(
        self,
        name: str,
        model: str,
        environ: Mapping[str, str],
        *,
        patience: float = PATIENCE,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self.asked = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.max_requests = max_requests
        self._name = name
        self._model = model
        self._environ = environ
        self.patience = patience
        self._settings: UpstreamSettings | None = None
        self._upstreams: Upstreams | None = None
        self._silences = 0

    async def close(self) -> None:
        if self._upstreams is not None:
            await self._upstreams.close()
            self._upstreams = self._settings = None

    async def ask(
        self,
        probe: ProbeRequest,
        settings: UpstreamSettings,
        model: str = "",
        *,
        is_vital: bool = True,
    ) -> ProbeAnswer:
        """Ask once. model: another than this asker's. is_vital: False for a question whose failure says nothing about the next.

        Raises:
            RunStopped: the upstream refuses the key, limits its rate, does not answer any more, or the budget is spent.
        """
        model = model or self._model
        seen = await self._ask_in_time(probe, settings, model)
        if not is_vital:
            return seen
        for usual in _WAITS:
            error = seen.error
            if error is None or error.kind not in _LATER:
                break
            wait = usual if error.retry_after is None else error.retry_after
            if wait > _LONGEST_WAIT:
                raise RunStopped(f"the upstream wants a pause of {wait:g} s: {error.message}")
            await asyncio.sleep(wait)
            seen = await self._ask_in_time(probe, settings, model)
        self._check(seen.error)
        return seen

    def _check(self, error: ErrorInfo | None) -> None:
        if error is not None and error.kind in _LATER:
            raise RunStopped(f"the upstream is busy or limits its rate: {error.message}")
        if error is not None and error.kind in _NO_ACCESS:
            raise RunStopped(f"the upstream refuses access: {error.message}")
        if error is None or not _is_silence(error):
            self._silences = 0
            return
        self._silences += 1
        if self._silences >= _MOST_SILENCES:
            raise RunStopped(f"the upstream does not answer any more: {error.message}")

    async def _ask_in_time(
        self, probe: ProbeRequest, settings: UpstreamSettings, model: str
    ) -> ProbeAnswer:
        if self.asked >= self.max_requests:
            raise RunStopped(f"all {self.max_requests} requests of a run were sent")
        self.asked += 1
        try:
            async with asyncio.timeout(self.patience):
                seen = await self._ask(probe, settings, model)
        except TimeoutError:
            message = f"no whole answer within {self.patience:g} s"
            return ProbeAnswer(error=ErrorInfo(kind="timeout", message=message, status=504))
        except AttemptFailed as failed:
            return ProbeAnswer(error=failed.error)
        except GatewayError as error:
            return ProbeAnswer(error=error_info(error))
        usage = None if seen.outcome is None else seen.outcome.usage
        if usage is not None:
            self.input_tokens += usage.input or 0
            self.output_tokens += usage.output or 0
        return seen

    async def _ask(
        self, probe: ProbeRequest, settings: UpstreamSettings, model: str
    ) -> ProbeAnswer:
        upstreams = await self._upstreams_for(settings)
        target = upstreams.targets(probe.dialect, model)[0]
        upstream = upstreams.by_name[target.peer]
        client = codec(probe.dialect)
        body = client.encode_request(structs.replace(probe.request, model=model)).body
        request = client.decode_request(body)
        stream = target.asks_for_stream(is_wanted=request.stream is True)
        planned = plan_request(ClientRequest(body, request), target, stream=stream)
        seed = f"certify_{self.asked}"
        plan = plan_answer(request, planned, target, seed=seed, clock=time.time)
        seen = ProbeAnswer(
            fields=frozenset(as_object(planned.encoded.body)),
            repairs=planned.encoded.repairs,
            losses=planned.losses,
            tools=planned.tools,
        )
        sent = UpstreamRequest(
            dialect=target.dialect,
            body=planned.encoded.body,
            stream=stream,
            model=target.model,
            headers=probe.headers,
            request_id=seed,
            betas=planned.encoded.betas,
        )
        received = _ReceivedAnswer()
        writer = AnswerWriter(plan, received, _ignore, upstream.secrets)
        try:
            reply = _RecordedReply(await send(upstreams, target, sent, AttemptObserver()))
        except AttemptFailed as failed:
            return structs.replace(seen, error=failed.error)
        try:
            error = await writer.write(reply)
        finally:
            reply.close()
        if error is not None:
            return structs.replace(seen, error=error)
        theirs = _events(plan.dialect, plan.decode, reply.data, is_streamed=reply.is_stream)
        ours = DecodeContext(tools=request.tools, seed=seed)
        return structs.replace(
            seen,
            outcome=fold(
                _events(probe.dialect, ours, received.data, is_streamed=received.is_stream)
            ),
            problems=writer.report()[1],
            text_calls=0 if plan.written is None else plan.written.calls,
            text=text_of(fold(theirs)),
        )

    async def _upstreams_for(self, settings: UpstreamSettings) -> Upstreams:
        """The upstream with these settings; its connections are reused while the settings stay the same."""
        if self._upstreams is None or settings is not self._settings:
            await self.close()
            self._upstreams = Upstreams(alone(self._name, settings), self._environ)
            self._settings = settings
        return self._upstreams


def first_parts(outcome: Outcome | None) -> tuple[Part, ...]:
    """The parts of the first choice."""
    return outcome.choices[0].parts if outcome is not None and outcome.choices else ()


def text_of(outcome: Outcome | None) -> str:
    """The text of the first choice."""
    return "".join(part.text for part in first_parts(outcome) if isinstance(part, Text))


def _is_silence(error: ErrorInfo) -> bool:
    """Whether nothing came from the upstream, or nothing within the time."""
    return error.kind == "timeout" or (error.kind == "upstream" and error.status in (502, 504))


def _events(
    dialect: Dialect, context: DecodeContext, data: bytes, *, is_streamed: bool
) -> Sequence[Event]:
    if not is_streamed:
        return read_body(data, dialect, context).events
    decoder = make_decoder(dialect, context)
    events = [*decoder.events(data)]
    return [*events, *(event for step in decoder.close() for event in step.events)]


def _ignore(_body: TranslatedBody) -> None:
    """Do nothing: there is no client that waits for headers."""


class _ReceivedAnswer:
    """The client's end of the connection: a `gateway.answer.ClientWriter`."""

    def __init__(self) -> None:
        self.started = False
        self.finished = False
        self.bytes_out = 0
        self.keep_alive: Callable[[], bytes] | None = None
        self.is_stream = True
        self._pieces: list[bytes] = []

    @property
    def data(self) -> bytes:
        return b"".join(self._pieces)

    def write(self, data: bytes) -> Pending:
        self.started = True
        self.bytes_out += len(data)
        self._pieces.append(data)
        return None

    def finish(self, data: bytes = b"") -> Pending:
        self.finished = True
        return self.write(data)

    def respond(self, status: int, body: bytes) -> Pending:  # noqa: ARG002 -- an answer's is always 200
        self.is_stream = False
        return self.finish(body)


class _RecordedReply(UpstreamReply):
    """A reply of limited size, and what was read of it."""

    __slots__ = ("_pieces", "_reply", "_size", "headers", "status")

    def __init__(self, reply: UpstreamReply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def data(self) -> bytes:
        return b"".join(self._pieces)

    @property
    def is_stream(self) -> bool:
        return is_stream(self.headers.get("content-type", ""), self.data[:64])

    async def read(self) -> bytes:
        data = await self._reply.read()
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise FrameTooLarge(
                f"expected an answer of at most {MAX_ANSWER_BYTES:,} bytes to a small question, got more"
            )
        self._pieces.append(data)
        return data

    def close(self) -> None:
        self._reply.close()
