"""Spans from values, in memory: what names, numbers and samplers do to them, and how it all ends."""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman.config.settings import OtelSettings, Settings, UpstreamSettings
from dragoman.core.usage import hash_input
from dragoman.engine.events import CallSettled, ModelSpoke
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.inspection.exchange_form import BothSides
from dragoman.inspection.receipt import CallReceipt, Receipt
from dragoman.model.events import Event, Failed, Finished, PartEnded, Started, UsageReported
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Request
from dragoman.server.doors import DOORS
from dragoman.server.observe import tracing as module
from dragoman.server.observe.metrics import MAX_VALUES
from dragoman.server.observe.record import RequestRecord
from dragoman.server.observe.tracing import LogLimit, RequestTrace, Tracing

DOOR = DOORS["/v1/chat/completions"]
TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTEL = OtelSettings(endpoint="http://127.0.0.1:4318")


class Scene:
    """A tracing whose spans and metrics stay in memory."""

    def __init__(self, settings: OtelSettings = OTEL) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracing = Tracing(settings, SimpleSpanProcessor(self.exporter), self.reader)

    def begin(self, headers: Mapping[bytes, bytes] | None = None) -> RequestTrace:
        return self.tracing.begin(DOOR, headers or {}, "POST")

    def spans(self) -> dict[str, ReadableSpan]:
        """Those that have ended, by their kinds. All of them can be sent."""
        found = self.exporter.get_finished_spans()
        encode_spans(found).SerializeToString()
        return {span.kind.name: span for span in found}

    def sums(self) -> dict[str, float]:
        """The sum of each metric. All of them can be sent."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        encode_metrics(data).SerializeToString()
        return {
            metric.name: sum(getattr(point, "sum", 0) for point in metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def target(
    url: str = "https://api.example/v1", model: str = "m", kind: str = "chat"
) -> AttemptTarget:
    upstream = UpstreamSettings(kind="chat", base_url="" if kind == "rehearsal" else url)
    if kind == "rehearsal":
        upstream = UpstreamSettings(kind="rehearsal")
    elif kind == "messages":
        upstream = UpstreamSettings(kind="messages", base_url=url)
    (found,) = Upstreams(Settings(upstreams={"u": upstream})).targets("chat", model)
    return found


def attributes(span: ReadableSpan) -> Mapping[str, object]:
    assert span.attributes is not None
    return span.attributes


def play(trace: RequestTrace, events: Sequence[Event], **record: object) -> None:
    """One attempt with these events, and the end of the request."""
    trace.attempt_started(target(), "https://user:secret@api.example/v1/key-in-path?query=key")
    for event in events:
        trace.observe(ModelSpoke(event), lambda _call: "")
    made = RequestRecord(door="chat", model="m", status=200)
    for name, value in record.items():
        setattr(made, name, value)
    trace.end(made)


# --- hostile values ---------------------------------------------------------------------------------------------------------


def test_no_number_costs_the_batch() -> None:
    """OTLP has 64 bits; JSON has as many as somebody writes."""
    scene = Scene()
    trace = scene.begin()
    trace.asked(Request(model="m", seed=2**70, max_tokens=-(2**70), temperature=0.5, top_k=3))
    usage = Usage(input=2**2000, output=5, cached=2**63, reasoning=-1)
    play(trace, [Started(model="m"), UsageReported(usage), Finished("stop")])
    sent = attributes(scene.spans()["CLIENT"])
    assert sent["gen_ai.request.temperature"] == 0.5
    assert sent["gen_ai.request.top_k"] == 3.0
    assert sent["gen_ai.usage.output_tokens"] == 5
    assert not {"gen_ai.request.seed", "gen_ai.request.max_tokens"} & set(sent)
    assert "gen_ai.usage.input_tokens" not in sent
    assert scene.sums()["gen_ai.client.token.usage"] == 5


def test_no_name_costs_the_batch_or_fills_it() -> None:
    scene = Scene()
    trace = scene.begin()
    hostile = "half \ud800 and\nnew line" + "x" * 10_000
    call = Call(call_id=hostile, name=hostile, input="{}")
    trace.attempt_started(target(model=hostile), "http://[")
    said = (Started(response_id=hostile, model=hostile), PartEnded(0, call), Finished("tool_calls"))
    for event in said:
        trace.observe(ModelSpoke(event), lambda _call: "")
    result = Result(call_id=hostile, content=(Text(text="\ud800"),))
    trace.observe(CallSettled(1, call, result, "done", 0.5), lambda _call: "server")
    trace.end(RequestRecord(door="chat", model=hostile, request_id=hostile, status=200))
    spans = scene.spans()
    assert set(spans) == {"SERVER", "CLIENT", "INTERNAL"}
    for span in spans.values():
        assert len(span.name) < 1000
        for value in attributes(span).values():
            assert not isinstance(value, str) or (len(value) < 1000 and value.isprintable())
    assert "server.address" not in attributes(spans["CLIENT"])


def test_an_address_is_host_and_port_alone() -> None:
    scene = Scene()
    play(scene.begin(), [])
    sent = attributes(scene.spans()["CLIENT"])
    assert (sent["server.address"], sent["server.port"]) == ("api.example", 443)
    shown = repr(list(sent.values()))
    assert not any(word in shown for word in ("user", "secret", "key", "query"))


def test_what_looks_like_a_credential_is_no_name_of_a_model() -> None:
    scene = Scene()
    play(scene.begin(), [], model="sk-ant-api03-0123456789abcdef0123456789")
    span = scene.spans()["SERVER"]
    assert "0123456789" not in span.name + repr(list(attributes(span).values()))


def test_the_error_of_an_answer_is_its_kind_alone() -> None:
    scene = Scene()
    error = ErrorInfo(kind="overloaded", message="the key sk-1234 is busy")
    play(
        scene.begin(),
        [Started(), Failed(error)],
        error_kind="overloaded",
        error="the key sk-1234 is busy",
    )
    for span in scene.spans().values():
        assert not span.status.is_ok
        assert span.status.description is None
        assert attributes(span)["error.type"] == "overloaded"
        assert not span.events


def test_models_of_clients_do_not_fill_the_metrics() -> None:
    tracing = Scene().tracing
    labels = {tracing.label(f"model-{number}") for number in range(10 * MAX_VALUES)}
    assert len(labels) == MAX_VALUES + 1
    assert tracing.label("model-0") == "model-0"


# --- sampling ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (1.0, 20)])
def test_the_ratio_decides_about_traces_that_begin_here(ratio: float, count: int) -> None:
    scene = Scene(OtelSettings(endpoint="http://127.0.0.1", sample_ratio=ratio, forward=True))
    found: set[str] = set()
    for _ in range(10):
        trace = scene.begin()
        found.add(trace.trace_id)
        play(trace, [Started(), UsageReported(Usage(input=1)), Finished("stop")])
    assert len(scene.exporter.get_finished_spans()) == count
    # Also a trace that is not recorded has an id, for the log; and metrics count every request.
    assert len(found) == 10
    assert scene.sums()["gen_ai.client.token.usage"] == 10


def test_a_caller_who_records_its_trace_overrules_the_ratio() -> None:
    scene = Scene(OtelSettings(endpoint="http://127.0.0.1", sample_ratio=0.0))
    play(scene.begin({b"traceparent": TRACEPARENT}), [])
    assert set(scene.spans()) == {"SERVER", "CLIENT"}


def test_the_sampler_may_be_chosen_by_the_variable_of_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    scene = Scene()
    play(scene.begin({b"traceparent": TRACEPARENT}), [])
    assert scene.spans() == {}


def test_a_disabled_sdk_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    scene = Scene()
    trace = scene.begin()
    play(trace, [Started(), UsageReported(Usage(input=1)), Finished("stop")])
    assert trace.trace_id == ""
    assert (scene.spans(), scene.sums()) == ({}, {})


# --- attributes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind", "name"),
    [
        ("https://api.openai.com/v1", "chat", "openai"),
        ("https://api.anthropic.com", "messages", "anthropic"),
        ("https://api.deepseek.com", "chat", "deepseek"),
        ("https://mine.openai.azure.com/openai", "chat", "azure.ai.openai"),
        ("https://us-central1-aiplatform.googleapis.com", "chat", "gcp.vertex_ai"),
        ("https://aiplatform.googleapis.com", "chat", "gcp.vertex_ai"),
        ("https://notapi.deepseek.com.example", "chat", "openai"),
        ("http://127.0.0.1:8000", "chat", "openai"),
        ("", "rehearsal", "dragoman.rehearsal"),
    ],
)
def test_a_provider_has_the_name_of_the_conventions(url: str, kind: str, name: str) -> None:
    scene = Scene()
    trace = scene.begin()
    trace.attempt_started(target(url, kind=kind), url)
    trace.end(RequestRecord(door="chat"))
    assert attributes(scene.spans()["CLIENT"])["gen_ai.provider.name"] == name


def test_usage_has_the_cached_and_the_reasoning_tokens() -> None:
    scene = Scene()
    usage = Usage(input=100, output=50, cached=80, cache_write=10, reasoning=30)
    play(scene.begin(), [Started(), UsageReported(usage), Finished("stop")])
    sent = attributes(scene.spans()["CLIENT"])
    assert {name: value for name, value in sent.items() if ".usage." in name} == {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 80,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 30,
    }


def test_chunks_are_counted_and_their_time_is_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    scene = Scene()
    trace = scene.begin()
    trace.attempt_started(target(), "")
    tap = trace.attempt_replied(200, {"content-type": "text/event-stream"})
    assert tap is not None
    for _ in range(5):
        now[0] += 250_000_000
        tap.feed(b"data: {}\n\n")
    tap.close(is_whole=True)
    trace.end(RequestRecord(door="chat"))
    sent = attributes(scene.spans()["CLIENT"])
    assert sent["gen_ai.response.time_to_first_chunk"] == 0.25
    assert sent["dragoman.chunks"] == 5
    assert scene.sums() == {
        "gen_ai.client.operation.duration": 1.25,
        "gen_ai.client.operation.time_to_first_chunk": 0.25,
        "gen_ai.client.operation.time_per_output_chunk": 0.25,
    }


def test_the_calls_of_a_receipt_are_events() -> None:
    scene = Scene()
    call = CallReceipt(
        place="request",
        kind="function",
        id=BothSides("a", "b"),
        name=BothSides("n_1", "n.1"),
        executor="client",
        executable=False,
        why="unknown-marker",
        upstream=hash_input("{}"),
        client=None,
        equal=None,
        paired=True,
    )
    receipt = Receipt(
        version=1,
        id="req",
        at=1.0,
        door="chat",
        model="m",
        upstream="u",
        upstream_dialect="chat",
        calls=(call, call),
        truncated=True,
    )
    play(scene.begin(), [], receipt=receipt)
    events = scene.spans()["SERVER"].events
    assert [event.name for event in events] == ["dragoman.receipt.call"] * 2
    assert events[0].attributes == {
        "dragoman.receipt.version": 1,
        "dragoman.receipt.place": "request",
        "dragoman.receipt.kind": "function",
        "dragoman.receipt.executor": "client",
        "dragoman.receipt.executable": False,
        "dragoman.receipt.upstream.id": "a",
        "dragoman.receipt.client.id": "b",
        "dragoman.receipt.upstream.name": "n_1",
        "dragoman.receipt.client.name": "n.1",
        "dragoman.receipt.upstream.bytes": 2,
        "dragoman.receipt.upstream.sha256": hash_input("{}").sha256,
        "dragoman.receipt.paired": True,
        "dragoman.receipt.truncated": True,
    }


# --- the log and the end --------------------------------------------------------------------------------------------------------


def test_a_logger_of_the_sdk_logs_once_a_minute() -> None:
    now = [0.0]
    limit = LogLimit(lambda: now[0])
    record = logging.makeLogRecord({"msg": "no collector"})
    found: list[bool] = []
    for now[0] in (0.0, 0.1, 59.9, 60.0, 61.0, 200.0):
        found.append(limit.filter(record))
    assert found == [True, False, False, True, False, True]


class Hanging(SpanExporter):
    """An exporter that sends until it is shut down."""

    def __init__(self) -> None:
        self.is_stopped = threading.Event()
        self.is_sending = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        self.is_sending.set()
        self.is_stopped.wait(30)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.is_stopped.set()


def test_the_end_does_not_wait_for_a_collector_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    exporter = Hanging()
    processor = BatchSpanProcessor(exporter, schedule_delay_millis=1)
    tracing = Tracing(OTEL, processor, None, [exporter])
    play(tracing.begin(DOOR, {}, "POST"), [])
    assert exporter.is_sending.wait(30)
    asyncio.run(asyncio.wait_for(tracing.close(), 30))
    assert exporter.is_stopped.is_set()
    assert "could not be sent within" in caplog.text


def test_the_end_sends_what_is_left() -> None:
    exporter = InMemorySpanExporter()
    processor = BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000)
    tracing = Tracing(OTEL, processor, None, [exporter])
    play(tracing.begin(DOOR, {}, "POST"), [])
    assert exporter.get_finished_spans() == ()
    asyncio.run(tracing.close())
    assert len(exporter.get_finished_spans()) == 2


def test_a_logger_of_the_sdk_has_one_filter_however_often_a_gateway_is_made() -> None:
    for _ in range(2):
        asyncio.run(Tracing.to_collector(OtelSettings(endpoint="http://127.0.0.1:1")).close())
    filters = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").filters
    assert sum(isinstance(each, LogLimit) for each in filters) == 1
