"""Traces and metrics of requests, for an OpenTelemetry collector. Needs the extra `otel`; imported only if an endpoint is set.

    span            kind       begins and ends with
    chat MODEL      SERVER     a client's request and its answer
    chat MODEL      CLIENT     one attempt at an upstream
    execute_tool T  INTERNAL   one call that the gateway runs

Names follow the GenAI semantic conventions of the version in `SCHEMA`; our own begin with `dragoman.`. No span has a prompt, a
text, the input or the result of a call, an error's message or a credential: calls have sizes and hashes.

Spans are begun when a request or an attempt begins, because the upstream and the log need their ids. Everything else happens when
the record of the request is written. Per read of an upstream's answer, a tap counts and takes the time (`_Attempt`). Threads of the
SDK send the spans; its queue is bounded, and what does not fit is dropped.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NoOpTracer,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dragoman.config.settings import OtelSettings
from dragoman.core.secrets import clean, redact
from dragoman.core.usage import NOTED, InputHash, Tally, hash_input, make_tally
from dragoman.engine.events import CallSettled, EngineEvent, ModelSpoke
from dragoman.gateway.reply import is_stream
from dragoman.gateway.targets import AttemptTarget
from dragoman.inspection.receipt import CallReceipt, Receipt
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Request
from dragoman.server.doors import Door
from dragoman.server.observe.console import MAX_NAME
from dragoman.server.observe.metrics import MAX_VALUES
from dragoman.server.observe.record import RequestRecord

logger = logging.getLogger(__name__)

SCHEMA = "https://opentelemetry.io/schemas/1.41.1"
"""The last version of the semantic conventions that has those of GenAI. Their own repository has had no release since."""
_SCOPE = "dragoman"
_CHAT = "chat"
"""The convention's word for what all dialects here do."""
_EXECUTE_TOOL = "execute_tool"
_OTHER = "other"
CLOSE_SECONDS = 3.0
"""In which the last spans and metrics must be sent when the gateway stops. A collector that answers takes milliseconds."""
LOG_SECONDS = 60.0
"""How often each logger of the SDK may log: a collector that is down would fill the log."""
_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.trace.propagation.tracecontext",
    "opentelemetry.trace.span",
)
# The bounds of the buckets that the conventions prescribe.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)  # fmt: skip
# The conventions' names for the providers at these hosts. Other servers have the name of the vendor whose dialect they speak.
_PROVIDERS: Mapping[str, str] = {
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "openai.azure.com": "azure.ai.openai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
}
_OWN_PROVIDERS = {"rehearsal": "dragoman.rehearsal", "replay": "dragoman.replay"}
# Members of a request that are numbers, and so no content, by the conventions' names.
_REQUEST_NUMBERS: Mapping[str, str] = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "seed": "gen_ai.request.seed",
    "choices": "gen_ai.request.choice.count",
}
_USAGE: Mapping[str, str] = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}

_MOST = 2**63
_LABELS = ("gen_ai.operation.name", "gen_ai.provider.name", "server.address", "server.port")

Value = str | int | float | bool | Sequence[str]
Attributes = dict[str, Value]


class _Closable(Protocol):
    def shutdown(self) -> None: ...


class LogLimit(logging.Filter):
    """Lets a logger log once in `LOG_SECONDS`. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + LOG_SECONDS
        return True


class _Meters:
    """The histograms of attempts."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(_SCOPE, version("dragoman"), schema_url=SCHEMA)

        def histogram(name: str, unit: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                f"gen_ai.client.{name}", unit, explicit_bucket_boundaries_advisory=bounds
            )

        self.duration = histogram("operation.duration", "s", _SECONDS)
        self.tokens = histogram("token.usage", "{token}", _TOKENS)
        self.first_chunk = histogram("operation.time_to_first_chunk", "s", _SECONDS)
        self.per_chunk = histogram("operation.time_per_output_chunk", "s", _SECONDS)


class Tracing:
    """Makes the traces of requests, and sends them with the metrics. Gateways with the same settings share one."""

    def __init__(
        self,
        settings: OtelSettings,
        processor: SpanProcessor | None,
        reader: MetricReader | None,
        exporters: Sequence[_Closable] = (),
    ) -> None:
        """`processor`, `reader`: what takes the spans and the metrics; None: there are none of these.

        `exporters`: those behind them, to be shut down first if the end takes too long.
        """
        self.forwards = settings.forward
        self._exporters = exporters
        self._propagator = TraceContextTextMapPropagator()
        self._models: set[str] = set()
        self._closables: list[_Closable] = []
        self.tracer: Tracer = NoOpTracer()
        self.meters: _Meters | None = None
        resource = _resource(settings.service_name)
        if processor is not None:
            ratio = settings.sample_ratio
            sampler = None if ratio is None else ParentBased(TraceIdRatioBased(ratio))
            provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
            provider.add_span_processor(processor)
            self.tracer = provider.get_tracer(_SCOPE, version("dragoman"), SCHEMA)
            self._closables.append(provider)
        if reader is not None:
            meters = MeterProvider([reader], resource, shutdown_on_exit=False)
            self.meters = _Meters(meters)
            self._closables.append(meters)

    @classmethod
    def to_collector(cls, settings: OtelSettings) -> "Tracing":
        """What these settings describe. Headers, certificates and timeouts come from the variables of the SDK."""
        for name in _LOGGERS:
            found = logging.getLogger(name)
            if not any(isinstance(each, LogLimit) for each in found.filters):
                found.addFilter(LogLimit())
        base = (settings.endpoint or "").rstrip("/")
        exporters: list[_Closable] = []
        processor = reader = None
        if settings.traces:
            spans = OTLPSpanExporter(f"{base}/v1/traces")
            processor = BatchSpanProcessor(spans)
            exporters.append(spans)
        if settings.metrics:
            metrics = OTLPMetricExporter(f"{base}/v1/metrics")
            reader = PeriodicExportingMetricReader(metrics)
            exporters.append(metrics)
        return cls(settings, processor, reader, exporters)

    def begin(self, door: Door, headers: Mapping[bytes, bytes], method: str) -> "RequestTrace":
        """The trace of a request: that of its `traceparent`, if it has a valid one, else a new one."""
        context = Context()
        parent = headers.get(b"traceparent")
        if parent is not None:
            carrier = {"traceparent": parent.decode("latin-1")}
            state = headers.get(b"tracestate")
            if state is not None:
                carrier["tracestate"] = state.decode("latin-1")
            context = self._propagator.extract(carrier, context)
        return RequestTrace(self, door, context, method)

    def headers_of(self, span: Span) -> dict[str, str]:
        """The headers with which another server continues the trace."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers, set_span_in_context(span, Context()))
        return headers

    def label(self, model: str) -> str:
        """The name of a model as an attribute of metrics. Clients choose names: there are at most so many."""
        if model not in self._models:
            if len(self._models) >= MAX_VALUES:
                return _OTHER
            self._models.add(model)
        return model

    async def close(self) -> None:
        """Send what is left, within `CLOSE_SECONDS`. What cannot be sent in time is dropped."""
        loop = asyncio.get_running_loop()
        left = len(self._closables)
        is_done = asyncio.Event()

        def note() -> None:
            nonlocal left
            left -= 1
            if not left:
                is_done.set()

        def end(each: _Closable) -> None:
            each.shutdown()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(note)

        # Daemons: a connection that hangs must not keep the process from ending.
        for each in self._closables:
            threading.Thread(target=end, args=(each,), name="otel-end", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await is_done.wait()
        except TimeoutError:
            logger.warning("the last spans or metrics could not be sent within %g s", CLOSE_SECONDS)
            for exporter in self._exporters:
                exporter.shutdown()


def _resource(service_name: str | None) -> Resource:
    own: dict[str, str] = {
        "service.version": version("dragoman"),
        # Each worker has its own: counters of two must not be taken for one.
        "service.instance.id": str(uuid4()),
    }
    if service_name is not None:
        own["service.name"] = service_name
    resource = Resource.create(own)
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "dragoman"}))
    return resource


class _Attempt:
    """One attempt while it runs. A tap of its reply: counts what is read, and when."""

    def __init__(self, attributes: Mapping[str, Value], span: Span, began: int) -> None:
        self.attributes = attributes
        self.span = span
        self.began = began
        self.ended = 0
        self.status = 0
        self.chunks = 0
        self.first = 0
        self.last = 0
        self.is_stream = False
        self.error: str | None = None
        self.tally: Tally = make_tally(hashes=True)
        self._content_type = ""

    def replied(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self._content_type = headers.get("content-type", "")

    def feed(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self.chunks:
            self.first = now
            self.is_stream = data[:1] != b"{" and is_stream(self._content_type, data)
        self.last = now
        self.chunks += 1

    def close(self, *, is_whole: bool) -> None:
        del is_whole
        self.ended = self.ended or time.monotonic_ns()


class RequestTrace:
    """The trace of one request.

    trace_id: 32 hex digits, for the log; empty if there is no trace.
    """

    def __init__(self, tracing: Tracing, door: Door, context: Context, method: str) -> None:
        self._tracing = tracing
        self._door = door
        self._method = method
        self._wall = time.time_ns()
        self._began = time.monotonic_ns()
        self._span = tracing.tracer.start_span(
            _CHAT, context, SpanKind.SERVER, start_time=self._wall
        )
        found = self._span.get_span_context()
        self.trace_id = format_trace_id(found.trace_id) if found.is_valid else ""
        self._attempt: _Attempt | None = None
        self._is_observed = False
        self._numbers: Attributes = {}

    # --- the request ----------------------------------------------------------------------------------------------------

    def asked(self, request: Request) -> None:
        """Note the numbers of a request, such as its temperature. Its contents are not looked at."""
        if self._span.is_recording():
            for member, name in _REQUEST_NUMBERS.items():
                value: float | None = getattr(request, member)
                if value is None or not _fits(value) or (member, value) == ("choices", 1):
                    continue
                self._numbers[name] = float(value) if member == "top_k" else value

    def end(self, record: RequestRecord) -> None:
        """End the spans that are open, with what is in the record."""
        attempt = self._attempt
        if attempt is not None:
            is_cut = record.client_gone and attempt.tally.finish is None
            if attempt.error is None and is_cut:
                attempt.error = "cancelled"
            self._end_attempt(attempt)
        span = self._span
        if not span.is_recording():
            return
        model = _shown(record.model)
        span.update_name(f"{_CHAT} {model}" if model else _CHAT)
        span.set_attributes(_request_attributes(record, self._door, self._method, model))
        if record.receipt is not None:
            ended = self._at(time.monotonic_ns())
            for call in record.receipt.calls:
                attributes = _receipt_attributes(record.receipt, call)
                span.add_event("dragoman.receipt.call", attributes, ended)
        # A server's span is an error if the server failed, not if it refused a request.
        if record.status >= 500 or (record.error_kind is not None and record.status < 400):
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._wall + int(record.duration_s * 1e9))

    # --- attempts -------------------------------------------------------------------------------------------------------

    def attempt_started(self, target: AttemptTarget, url: str) -> None:
        """An attempt begins. `url`: where its request goes; only host and port are kept."""
        if self._attempt is not None:
            self._end_attempt(self._attempt)
        now = time.monotonic_ns()
        attributes = _attempt_attributes(target, url)
        model = attributes["gen_ai.request.model"]
        # Samplers may look at these attributes, so that they are there from the beginning.
        span = self._tracing.tracer.start_span(
            f"{_CHAT} {model}" if model else _CHAT,
            set_span_in_context(self._span, Context()),
            SpanKind.CLIENT,
            attributes,
            start_time=self._at(now),
        )
        self._attempt = _Attempt(attributes, span, now)

    def headers(self) -> Mapping[str, str]:
        """The headers with which the upstream continues the trace; none unless the operator wants that."""
        if not self._tracing.forwards or self._attempt is None:
            return {}
        return self._tracing.headers_of(self._attempt.span)

    def attempt_replied(self, status: int, headers: Mapping[str, str]) -> _Attempt | None:
        """The upstream replied. Returns the tap of the reply."""
        if self._attempt is not None:
            self._attempt.replied(status, headers)
        return self._attempt

    def attempt_failed(self, error: ErrorInfo) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.error = error.kind
            self._end_attempt(attempt)

    def answered(self, tally: Tally) -> None:
        """Note the tally of the answer: that of the last attempt, unless the answer is made of several (`observe`)."""
        if self._attempt is not None and not self._is_observed:
            self._attempt.tally = tally

    def _end_attempt(self, attempt: _Attempt) -> None:
        self._attempt = None
        attempt.ended = attempt.ended or time.monotonic_ns()
        if attempt.error is None and attempt.tally.error is not None:
            attempt.error = attempt.tally.error.kind
        span = attempt.span
        if span.is_recording():
            span.set_attributes({**self._numbers, **_answer_attributes(attempt)})
            ended = self._at(attempt.ended)
            tally = attempt.tally
            for (name, call_id, _), hashed in zip(tally.calls, tally.hashes or (), strict=False):
                span.add_event("dragoman.tool_call", _call_attributes(name, call_id, hashed), ended)
            if attempt.error is not None:
                span.set_status(Status(StatusCode.ERROR))
            span.end(ended)
        if self._tracing.meters is not None:
            self._measure(self._tracing.meters, attempt)

    def _measure(self, meters: _Meters, attempt: _Attempt) -> None:
        context = Context()
        label = self._tracing.label
        labels = {name: attempt.attributes[name] for name in _LABELS if name in attempt.attributes}
        labels["gen_ai.request.model"] = label(str(attempt.attributes["gen_ai.request.model"]))
        if attempt.tally.model:
            labels["gen_ai.response.model"] = label(_shown(attempt.tally.model))
        if attempt.error is not None:
            failed = {**labels, "error.type": attempt.error}
            meters.duration.record(_seconds(attempt.ended - attempt.began), failed, context)
            return
        meters.duration.record(_seconds(attempt.ended - attempt.began), labels, context)
        usage = attempt.tally.usage or Usage()
        for kind, count in (("input", usage.input), ("output", usage.output)):
            # A negative count is an upstream's mistake.
            if count is not None and count >= 0 and _fits(count):
                typed = {**labels, "gen_ai.token.type": kind}
                meters.tokens.record(count, typed, context)
        if attempt.is_stream:
            first = _seconds(attempt.first - attempt.began)
            meters.first_chunk.record(first, labels, context)
            if attempt.chunks > 1:
                # One measurement of the mean: one per chunk would cost more than the rest of the gateway.
                mean = _seconds(attempt.last - attempt.first) / (attempt.chunks - 1)
                meters.per_chunk.record(mean, labels, context)

    # --- calls that the gateway runs --------------------------------------------------------------------------------------

    def observe(self, event: EngineEvent, server: Callable[[Call], str]) -> None:
        """Note an event of an answer that is made of several. `server`: the MCP server of a call's tool, or nothing."""
        self._is_observed = True
        if isinstance(event, ModelSpoke):
            if self._attempt is not None and type(event.event) in NOTED:
                self._attempt.tally.note(event.event)
        elif isinstance(event, CallSettled):
            self._ran(event, server(event.call))

    def _ran(self, settled: CallSettled, server: str) -> None:
        now = time.monotonic_ns()
        name = clean(settled.call.name, MAX_NAME)
        span = self._tracing.tracer.start_span(
            f"{_EXECUTE_TOOL} {name}",
            set_span_in_context(self._span, Context()),
            SpanKind.INTERNAL,
            start_time=self._at(now - int(settled.elapsed * 1e9)),
        )
        if span.is_recording():
            span.set_attributes(_tool_attributes(settled, name, server))
            if settled.how != "done":
                span.set_status(Status(StatusCode.ERROR))
        span.end(self._at(now))

    def _at(self, now: int) -> int:
        """The time of day at this reading of the monotonic clock, in nanoseconds."""
        return self._wall + now - self._began


# --- attributes -------------------------------------------------------------------------------------------------------------


def _known(attributes: Mapping[str, Value | None]) -> Attributes:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def _request_attributes(record: RequestRecord, door: Door, method: str, model: str) -> Attributes:
    irregular = {
        "losses": [loss.code for loss in record.losses],
        "repairs": [repair.rule for repair in record.repairs],
        "problems": [problem.kind for problem in record.problems],
    }
    return _known(
        {
            "gen_ai.operation.name": _CHAT,
            "http.route": door.path,
            "url.path": door.path,
            "url.scheme": "http",
            "dragoman.request_id": _shown(record.request_id),
            "dragoman.door": record.door,
            "dragoman.attempts": record.attempts,
            "dragoman.tool_calls": record.call_count,
            "http.request.method": method if method == "POST" else None,
            "network.protocol.name": None if method == "POST" else "websocket",
            "gen_ai.request.model": model or None,
            "gen_ai.request.stream": record.stream or None,
            "http.response.status_code": record.status or None,
            "gen_ai.response.finish_reasons": None if record.finish is None else (record.finish,),
            "dragoman.time_to_first_byte": record.first_byte_s,
            "dragoman.key": record.key or None,
            "error.type": record.error_kind or ("cancelled" if record.client_gone else None),
            **{
                f"dragoman.{name}": tuple(dict.fromkeys(kinds)) or None
                for name, kinds in irregular.items()
            },
        }
    )


def _attempt_attributes(target: AttemptTarget, url: str) -> Attributes:
    host, port = _place(url)
    return _known(
        {
            "gen_ai.operation.name": _CHAT,
            "gen_ai.provider.name": _provider(target, host),
            "gen_ai.request.model": _shown(target.model),
            "dragoman.upstream": target.upstream,
            "dragoman.upstream.dialect": target.dialect,
            "server.address": host or None,
            "server.port": port if host else None,
        }
    )


def _answer_attributes(attempt: _Attempt) -> Attributes:
    tally = attempt.tally
    found = _known(
        {
            "error.type": attempt.error,
            "http.response.status_code": attempt.status or None,
            "gen_ai.response.id": clean(tally.response_id, MAX_NAME) or None,
            "gen_ai.response.model": _shown(tally.model) if tally.model else None,
            "gen_ai.response.finish_reasons": None if tally.finish is None else (tally.finish,),
        }
    )
    if tally.usage is not None:
        for member, name in _USAGE.items():
            count: int | None = getattr(tally.usage, member)
            if count is not None and _fits(count):
                found[name] = count
    if attempt.is_stream:
        found["gen_ai.request.stream"] = True
        found["gen_ai.response.time_to_first_chunk"] = _seconds(attempt.first - attempt.began)
        found["dragoman.chunks"] = attempt.chunks
    return found


def _call_attributes(name: str, call_id: str, hashed: InputHash) -> Attributes:
    return {
        "gen_ai.tool.name": clean(name, MAX_NAME),
        "gen_ai.tool.call.id": clean(call_id, MAX_NAME),
        "dragoman.tool.call.arguments.bytes": hashed.bytes,
        "dragoman.tool.call.arguments.sha256": hashed.sha256,
    }


def _tool_attributes(settled: CallSettled, name: str, server: str) -> Attributes:
    call = settled.call
    result = hash_input(_text_of(settled.result))
    return _known(
        {
            "gen_ai.operation.name": _EXECUTE_TOOL,
            "gen_ai.tool.type": "extension",
            **_call_attributes(name, call.call_id, hash_input(call.input)),
            "dragoman.tool.call.result.bytes": result.bytes,
            "dragoman.tool.call.result.sha256": result.sha256,
            "dragoman.mcp.server": server or None,
            "error.type": None if settled.how == "done" else settled.how,
        }
    )


def _receipt_attributes(receipt: Receipt, call: CallReceipt) -> Attributes:
    """A call of a receipt. What is the same on both wires has one attribute; an alias has two."""
    found: dict[str, Value | None] = {
        "version": receipt.version,
        "place": call.place,
        "kind": call.kind,
        "executor": call.executor,
        "executable": call.executable,
        "equal": call.equal,
        "paired": call.paired,
        "truncated": receipt.truncated or None,
    }
    for side in ("upstream", "client"):
        for what, sides in (("id", call.id), ("name", call.name)):
            text: str | None = getattr(sides, side)
            found[f"{side}.{what}"] = None if text is None else clean(text, MAX_NAME)
        hashed: InputHash | None = getattr(call, side)
        found[f"{side}.bytes"] = None if hashed is None else hashed.bytes
        found[f"{side}.sha256"] = None if hashed is None else hashed.sha256
    return _known({f"dragoman.receipt.{name}": value for name, value in found.items()})


def _text_of(result: Result) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


def _place(url: str) -> tuple[str, int]:
    """Host and port of an address: without user, password, path and query."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", 0
    return parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


def _provider(target: AttemptTarget, host: str) -> str:
    own = _OWN_PROVIDERS.get(target.settings.kind)
    if own is not None:
        return own
    for known, name in _PROVIDERS.items():
        # `mine.openai.azure.com`, `europe-west1-aiplatform.googleapis.com`
        if host == known or host.endswith((f".{known}", f"-{known}")):
            return name
    return "anthropic" if target.dialect == "messages" else "openai"


def _shown(text: str) -> str:
    """A name that somebody else chose, on one line, without what looks like a credential."""
    return clean(redact(text[: 2 * MAX_NAME]), MAX_NAME)


def _fits(number: float) -> bool:
    """Whether OTLP has room for a number. Another one would cost the whole batch, and clients and upstreams write what they like."""
    return not isinstance(number, int) or -_MOST <= number < _MOST


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9
