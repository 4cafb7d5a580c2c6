"""Spans and metrics of real requests, as a collector gets them by OTLP: who is whose parent, what is in them, and what never is."""

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec import structs
from opentelemetry import semconv

from dragoman.config.settings import (
    HostedSettings,
    OtelSettings,
    RetrySettings,
    Route,
    ServerSettings,
)
from dragoman.testing import (
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
)
from gateway_harness import DIALECTS, wait_until
from hosted_stage import workshop
from otlp_collector import PROMPTLY, Collector, Taken, collecting
from plain_http import ask, plain_body, streaming
from stage import UPSTREAM_KEY, Stage, deliver, running_stage
from vendor_wire import Answer, Said, Tool
from vendor_wire import stream as wire_stream
from websocket_client import socket_client

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ARGUMENTS = '{"city":"Zürich","marker":"argument-marker-7f3a"}'
CALL = Tool("call_weather", "get_weather", (ARGUMENTS[:9], ARGUMENTS[9:]))
CALLED = Answer((Said(("Let me ", "look.")), CALL))
KEYS = ("gateway-key-0123456789",)
WEATHER = {
    "name": "get_weather",
    "description": "description-marker-7f3a",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture(autouse=True)
def promptly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PROMPTLY.items():
        monkeypatch.setenv(name, value)


@contextmanager
def traced(
    collector: Collector, *, otel: OtelSettings | None = None, **more: Any
) -> Generator[Stage]:
    """A stage whose gateway sends to the collector."""
    settings = structs.replace(otel or OtelSettings(), endpoint=collector.url)
    further = {"otel": settings, **more.pop("further", {})}
    with running_stage(further=further, **more) as stage:
        yield stage


def tools_of(door: str) -> list[dict[str, Any]]:
    if door == "chat":
        return [{"type": "function", "function": WEATHER}]
    if door == "responses":
        return [{"type": "function", **WEATHER}]
    schema = WEATHER["parameters"]
    return [{"name": "get_weather", "description": WEATHER["description"], "input_schema": schema}]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def only(spans: list[Taken], kind: str) -> Taken:
    (found,) = [span for span in spans if span.kind == kind]
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_and_its_attempt_are_spans_of_one_trace(
    door: str, dialect: str, stream: bool
) -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene(dialect, CALLED, delivery="frames")
        body = plain_body(door, scene.model, stream=stream, tools=tools_of(door), temperature=0.5)
        assert ask(stage.url, door, body).status_code == 200
        spans = collector.wait_for(2)
    request, attempt = only(spans, "server"), only(spans, "client")
    assert (request.parent, attempt.parent) == ("", request.id)
    assert request.trace == attempt.trace
    assert request.name == attempt.name == f"chat {scene.model}"
    assert request.began <= attempt.began <= attempt.ended <= request.ended
    assert not request.is_error
    assert not attempt.is_error
    own = {"gen_ai.operation.name": "chat", "gen_ai.request.model": scene.model}
    provider = "anthropic" if dialect == "messages" else "openai"
    assert (
        attempt.attributes
        | {
            **own,
            "gen_ai.provider.name": provider,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.model": "upstream-model",
            "gen_ai.response.finish_reasons": ["tool_calls"],
            "gen_ai.usage.input_tokens": 11,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 3,
            "server.address": "127.0.0.1",
            "server.port": int(stage.upstream.url.rpartition(":")[2]),
            "http.response.status_code": 200,
            "dragoman.upstream": dialect,
            "dragoman.upstream.dialect": dialect,
        }
        == attempt.attributes
    )
    assert ("gen_ai.response.time_to_first_chunk" in attempt.attributes) == stream
    assert attempt.attributes.get("gen_ai.request.stream", False) == stream
    assert attempt.attributes["gen_ai.response.id"]
    assert (
        request.attributes
        | {
            **own,
            "http.request.method": "POST",
            "http.response.status_code": 200,
            "dragoman.door": door,
            "dragoman.attempts": 1,
            "dragoman.tool_calls": 1,
        }
        == request.attributes
    )
    # The size and the hash of the call are those of the very bytes that the upstream sent.
    (event,) = attempt.events
    assert event.name == "dragoman.tool_call"
    assert event.attributes == {
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.id": "call_weather",
        "dragoman.tool.call.arguments.bytes": len(ARGUMENTS.encode()),
        "dragoman.tool.call.arguments.sha256": sha256(ARGUMENTS),
    }


def test_every_name_is_that_of_the_pinned_conventions_or_our_own() -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("messages", CALLED, ScriptedReply(status=500))
        for _ in range(2):
            body = plain_body("chat", scene.model, tools=tools_of("chat"), max_tokens=9, top_p=0.5)
            ask(stage.url, "chat", body)
        spans = collector.wait_for(4)
        collector.wait_for_metric("gen_ai.client.operation.duration", 2)
    assert {span.schema for span in spans} == {"https://opentelemetry.io/schemas/1.41.1"}
    known = _constants("*_attributes.py")
    used = {
        name
        for span in spans
        for each in (span.attributes, span.resource, *(event.attributes for event in span.events))
        for name in each
    }
    used |= {
        name
        for point in collector.points("gen_ai.client.operation.duration")
        for name in point
        if "." in name
    }
    assert not {name for name in used if not name.startswith("dragoman.")} - known
    assert {name for _, name in collector.metrics} <= _constants("gen_ai_metrics.py")


def _constants(files: str) -> set[str]:
    """The names in these modules of the package of the conventions."""
    lines = [
        line
        for folder in semconv.__path__
        for file in Path(folder).rglob(files)
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return {line.split('"')[1] for line in lines if ": Final = " in line and '"' in line}


# --- the context of a trace -----------------------------------------------------------------------------------------------


def test_the_trace_of_a_caller_is_continued() -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("chat", Answer((Said(("hello",)),)))
        headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=value"}
        ask(stage.url, "chat", plain_body("chat", scene.model), headers)
        spans = collector.wait_for(2)
        sent = scene.requests[0].headers
    request, attempt = only(spans, "server"), only(spans, "client")
    assert (request.trace, request.parent) == (TRACE, PARENT)
    assert request.state == "vendor=value"
    assert (attempt.trace, attempt.parent) == (TRACE, request.id)
    # An upstream does not learn of the trace, unless the operator asks for it.
    assert not {"traceparent", "tracestate"} & set(sent)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "garbage",
        TRACEPARENT[:-1],
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"{TRACEPARENT}-more",
        TRACEPARENT.replace("4", "g"),
        "0" * 5000,
    ],
)
def test_a_malformed_traceparent_is_ignored(value: str) -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("chat", Answer((Said(("hello",)),)))
        answer = ask(stage.url, "chat", plain_body("chat", scene.model), {"traceparent": value})
        assert answer.status_code == 200
        spans = collector.wait_for(2)
    request = only(spans, "server")
    assert request.parent == ""
    assert request.trace != TRACE


def test_a_caller_who_does_not_record_its_trace_decides_for_the_gateway() -> None:
    with collecting() as collector, traced(collector, otel=OtelSettings(forward=True)) as stage:
        scene = stage.scene("chat", *(Answer((Said(("hello",)),)) for _ in range(2)))
        unrecorded = f"00-{TRACE}-{PARENT}-00"
        for value in (unrecorded, TRACEPARENT):
            ask(stage.url, "chat", plain_body("chat", scene.model), {"traceparent": value})
        spans = collector.wait_for(2)
        first, second = (request.headers["traceparent"] for request in scene.requests)
    assert {span.attributes["http.response.status_code"] for span in spans} == {200}
    # Both upstreams' spans would belong to the caller's trace; the flag says whether it is recorded.
    assert (first[:36], first[-3:]) == (f"00-{TRACE}-", "-00")
    assert second == f"00-{TRACE}-{only(spans, 'client').id}-01"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_upstream_gets_the_context_of_its_attempt_if_the_operator_asks_for_it(
    dialect: str,
) -> None:
    with collecting() as collector, traced(collector, otel=OtelSettings(forward=True)) as stage:
        scene = stage.scene(dialect, Answer((Said(("hello",)),)))
        headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=value"}
        ask(stage.url, "chat", plain_body("chat", scene.model), headers)
        attempt = only(collector.wait_for(2), "client")
        sent = scene.requests[0].headers
    assert sent["traceparent"] == f"00-{TRACE}-{attempt.id}-01"
    assert sent["tracestate"] == "vendor=value"
    assert sent["x-request-id"]


# --- attempts and tools ------------------------------------------------------------------------------------------------


def test_each_attempt_is_a_span_and_a_failed_one_says_why() -> None:
    routes = (Route(model="tried/*", upstream="chat", fallback=("messages",)),)
    retry = RetrySettings(attempts=2, base_delay=0.001)
    with (
        collecting() as collector,
        traced(collector, otel=OtelSettings(forward=True), routes=routes, retry=retry) as stage,
    ):
        refused = json_reply({"error": {"message": "secret-marker-7f3a is busy"}}, 503)
        scene = stage.scene("messages", refused, refused, CALLED, route="tried")
        answer = ask(stage.url, "chat", plain_body("chat", scene.model, tools=tools_of("chat")))
        assert answer.status_code == 200
        spans = collector.wait_for(4)
        sent = [request.headers["traceparent"].split("-")[2] for request in scene.requests]
        points = collector.wait_for_metric("gen_ai.client.operation.duration", 3)
    request = only(spans, "server")
    attempts = [span for span in spans if span.kind == "client"]
    assert [span.attributes["dragoman.upstream"] for span in attempts] == [
        "chat",
        "chat",
        "messages",
    ]
    assert [span.attributes.get("error.type") for span in attempts] == ["overloaded"] * 2 + [None]
    assert [span.attributes["http.response.status_code"] for span in attempts] == [503, 503, 200]
    assert [span.is_error for span in attempts] == [True, True, False]
    assert [span.message for span in attempts] == ["", "", ""]
    assert {span.parent for span in attempts} == {request.id}
    assert [span.id for span in attempts] == sent
    assert request.attributes["dragoman.attempts"] == 3
    assert not request.is_error
    by_error = {point.get("error.type"): point["count"] for point in points}
    assert by_error == {"overloaded": 2, None: 1}
    assert not any(b"secret-marker-7f3a" in body for body in collector.bodies)


def test_an_upstream_that_cannot_be_reached_is_an_error_of_the_request_too() -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("chat", ScriptedReply(status=200, chunks=[], cut="reset"))
        answer = ask(stage.url, "chat", plain_body("chat", scene.model))
        assert answer.status_code >= 500
        spans = collector.wait_for(2)
    for span in spans:
        assert span.is_error
        assert span.attributes["error.type"] in ("upstream", "truncated")
        assert not span.message


def test_a_refused_request_is_no_error_of_the_gateway() -> None:
    with collecting() as collector, traced(collector) as stage:
        assert ask(stage.url, "chat", plain_body("chat", "no/such")).status_code == 404
        (span,) = collector.wait_for(1)
    assert (span.kind, span.is_error) == ("server", False)
    assert span.attributes["error.type"] == "not_found"
    assert span.attributes["http.response.status_code"] == 404


@pytest.mark.parametrize("door", DIALECTS)
def test_a_call_that_the_gateway_runs_is_a_span(door: str) -> None:
    hosted = {"mcp": (workshop(),), "hosted": HostedSettings(servers=("workshop",))}
    arguments = json.dumps({"text": "result-marker-7f3a"})
    call = Tool("call_echo", "workshop__echo", (arguments,))
    with collecting() as collector, traced(collector, further=hosted) as stage:
        scene = stage.scene("responses", Answer((call,)), Answer((Said(("done",)),)))
        answer = ask(stage.url, door, plain_body(door, scene.model, stream=True))
        assert answer.status_code == 200
        spans = collector.wait_for(4)
        tokens = collector.wait_for_metric("gen_ai.client.token.usage", 4)
    request, tool = only(spans, "server"), only(spans, "internal")
    first, second = (span for span in spans if span.kind == "client")
    assert {span.parent for span in (first, second, tool)} == {request.id}
    assert first.ended <= tool.ended <= second.ended
    assert tool.name == "execute_tool workshop__echo"
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "workshop__echo",
        "gen_ai.tool.call.id": "call_echo",
        "gen_ai.tool.type": "extension",
        "dragoman.mcp.server": "workshop",
        "dragoman.tool.call.arguments.bytes": len(arguments),
        "dragoman.tool.call.arguments.sha256": sha256(arguments),
        "dragoman.tool.call.result.bytes": len("result-marker-7f3a"),
        "dragoman.tool.call.result.sha256": sha256("result-marker-7f3a"),
    }
    # Each answer of the model has its own usage and its own calls.
    assert [span.attributes["gen_ai.usage.input_tokens"] for span in (first, second)] == [11, 11]
    assert [len(span.events) for span in (first, second)] == [1, 0]
    assert {point["gen_ai.token.type"]: point["sum"] for point in tokens} == {
        "input": 22,
        "output": 14,
    }
    assert not any(b"result-marker-7f3a" in body for body in collector.bodies)


def test_a_hosted_call_that_fails_is_an_error() -> None:
    hosted = {"mcp": (workshop(),), "hosted": HostedSettings(servers=("workshop",))}
    call = Tool("call_1", "workshop__no_such_tool", ("{}",))
    with collecting() as collector, traced(collector, further=hosted) as stage:
        scene = stage.scene("chat", Answer((call,)), Answer((Said(("done",)),)))
        ask(stage.url, "chat", plain_body("chat", scene.model))
        tool = only(collector.wait_for(4), "internal")
    assert tool.is_error
    assert tool.attributes["error.type"] == "refused"
    assert "dragoman.mcp.server" not in tool.attributes


def test_each_request_of_a_websocket_is_a_trace() -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("chat", Answer((Said(("one",)),)), Answer((Said(("two",)),)))
        with socket_client(stage.url, scene.model) as client:
            client.answer(input="hi")
            client.answer(input="hi")
            spans = collector.wait_for(4)
    requests = [span for span in spans if span.kind == "server"]
    assert len({span.trace for span in requests}) == 2
    for span in requests:
        assert span.attributes["network.protocol.name"] == "websocket"
        assert span.attributes["http.route"] == "/v1/responses"
        assert "http.request.method" not in span.attributes
        (attempt,) = [each for each in spans if each.parent == span.id]
        assert (attempt.kind, attempt.trace) == ("client", span.trace)


def test_a_background_response_is_one_request() -> None:
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("responses", Answer((Said(("hello",)),)))
        body = plain_body("responses", scene.model, background=True)
        ask(stage.url, "responses", body, {"traceparent": TRACEPARENT})
        spans = collector.wait_for(2)
    assert (only(spans, "server").trace, only(spans, "server").parent) == (TRACE, PARENT)


# --- metrics and receipts ----------------------------------------------------------------------------------------------


def test_metrics_have_the_names_units_and_buckets_of_the_conventions() -> None:
    with collecting() as collector, traced(collector) as stage:
        rest, whole = Event(), wire_stream("chat", CALLED)
        at = whole.index(b"\n\n") + 2
        parted = ScriptedReply(
            content_type="text/event-stream", chunks=[whole[:at], Wait(rest), whole[at:]]
        )
        scene = stage.scene("chat", parted, CALLED)
        body = plain_body("responses", scene.model)
        with streaming(stage.url, "responses", {**body, "stream": True}) as answer:
            received = answer.iter_raw()
            assert next(received)
            rest.set()  # what follows is a second chunk, however fast the machine is
            assert list(received)
        ask(stage.url, "responses", body)
        durations = collector.wait_for_metric("gen_ai.client.operation.duration", 2)
        tokens = collector.wait_for_metric("gen_ai.client.token.usage", 4)
        # Only a stream has chunks.
        first = collector.wait_for_metric("gen_ai.client.operation.time_to_first_chunk", 1)
        chunks = collector.wait_for_metric("gen_ai.client.operation.time_per_output_chunk", 1)
    labels = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": scene.model,
        "gen_ai.response.model": "upstream-model",
        "server.address": "127.0.0.1",
    }
    for (point,) in (durations, first, chunks):
        assert point | labels == point
        assert point["unit"] == "s"
        assert (point["bounds"][0], point["bounds"][-1]) == (0.01, 81.92)
    assert {point["gen_ai.token.type"]: point["sum"] for point in tokens} == {
        "input": 22,
        "output": 14,
    }
    assert {point["unit"] for point in tokens} == {"{token}"}
    assert tokens[0]["bounds"][-1] == 67108864


def test_only_what_is_asked_for_is_sent() -> None:
    with collecting() as collector, traced(collector, otel=OtelSettings(traces=False)) as stage:
        scene = stage.scene("chat", Answer((Said(("hello",)),)))
        ask(stage.url, "chat", plain_body("chat", scene.model), {"traceparent": TRACEPARENT})
        collector.wait_for_metric("gen_ai.client.operation.duration", 1)
    assert {request.path for request in collector.requests} == {"/v1/metrics"}
    with collecting() as collector, traced(collector, otel=OtelSettings(metrics=False)) as stage:
        scene = stage.scene("chat", Answer((Said(("hello",)),)))
        ask(stage.url, "chat", plain_body("chat", scene.model))
        collector.wait_for(2)
    assert {request.path for request in collector.requests} == {"/v1/traces"}


@pytest.mark.parametrize("end", ["/otlp", "/otlp/"])
def test_the_address_of_a_collector_may_have_a_path(end: str) -> None:
    with collecting() as collector:
        settings = OtelSettings(endpoint=collector.url + end)
        with running_stage(further={"otel": settings}) as stage:
            scene = stage.scene("chat", Answer((Said(("hello",)),)))
            ask(stage.url, "chat", plain_body("chat", scene.model))
            collector.wait_for(2)
            collector.wait_for_metric("gen_ai.client.operation.duration", 1)
    paths = {request.path for request in collector.requests}
    assert paths == {"/otlp/v1/traces", "/otlp/v1/metrics"}


@pytest.mark.parametrize("stream", [True, False])
def test_a_receipt_is_in_the_trace(stream: bool) -> None:
    # The upstream knows the tool under another name: Chat's names have no dots.
    offered = {**WEATHER, "name": "weather.of.today"}
    tools = [{"name": "weather.of.today", "input_schema": offered["parameters"]}]
    with collecting() as collector, traced(collector) as stage:
        wire: list[str] = []

        def answer(request: ReceivedRequest) -> ScriptedReply:
            name = json.loads(request.body)["tools"][0]["function"]["name"]
            wire.append(name)
            call = Tool("call_1", name, (ARGUMENTS,))
            return deliver("chat", Answer((call,)), is_stream=stream)

        scene = stage.scene("chat", answer)
        body = plain_body("messages", scene.model, stream=stream, tools=tools)
        done = ask(stage.url, "messages", body, {"x-dragoman-receipt": "full"})
        assert done.status_code == 200
        request = only(collector.wait_for(2), "server")
    (event,) = [each for each in request.events if each.name == "dragoman.receipt.call"]
    own = event.attributes
    assert own["dragoman.receipt.upstream.name"] == wire[0] != "weather.of.today"
    assert own["dragoman.receipt.client.name"] == "weather.of.today"
    assert own["dragoman.receipt.upstream.id"] == "call_1"
    assert own["dragoman.receipt.upstream.sha256"] == sha256(ARGUMENTS)
    assert own["dragoman.receipt.client.bytes"] == len(ARGUMENTS.encode())
    assert own["dragoman.receipt.equal"] is True
    assert own["dragoman.receipt.executable"] is True
    assert own["dragoman.receipt.place"] == "answer"


# --- what is never sent ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("door", DIALECTS)
def test_no_content_and_no_secret_leaves_the_gateway(door: str, dialect: str) -> None:
    """Also with receipts, with a failure in the middle, and with a key in the caller's model name."""
    marker = "7f3a"
    said = Answer((Said((f"text-marker-{marker}",)), CALL))
    server = ServerSettings(shutdown_grace=0.3, api_keys=KEYS)
    with collecting() as collector, traced(collector, server=server) as stage:
        scene = stage.scene(
            dialect,
            said,
            said,
            json_reply({"error": {"message": f"error-marker-{marker} {UPSTREAM_KEY}"}}, 400),
        )
        own = {"authorization": f"Bearer {KEYS[0]}", "x-dragoman-receipt": "full"}
        own |= {"cookie": f"cookie-marker-{marker}", "baggage": f"user=baggage-marker-{marker}"}
        for stream in (True, False, False):
            body = plain_body(
                door,
                scene.model,
                stream=stream,
                tools=tools_of(door),
                metadata={"user_id": f"metadata-marker-{marker}"},
                stop=[f"stop-marker-{marker}"],
            )
            if door != "chat":
                del body["stop"]
            said_by_client = f"prompt-marker-{marker}"
            if door == "responses":
                body |= {"input": said_by_client, "instructions": f"system-marker-{marker}"}
            else:
                body["messages"] = [{"role": "user", "content": said_by_client}]
            ask(stage.url, door, body, own)
        ask(stage.url, door, plain_body(door, "sk-proj-0123456789abcdefghijklmnop"), own)
        collector.wait_for(7)
        collector.wait_for_metric("gen_ai.client.operation.duration", 3)
    everything = b"".join(collector.bodies)
    assert scene.model.encode() in everything
    assert marker.encode() not in everything
    assert UPSTREAM_KEY.encode() not in everything
    assert KEYS[0].encode() not in everything
    assert b"sk-proj" not in everything
    assert "Zürich".encode() not in everything


def test_a_client_that_leaves_ends_its_spans() -> None:
    go_on = Event()
    first, *_ = wire_stream("chat", Answer((Said(("hello ", "there")),))).split(b"\n\n")
    with collecting() as collector, traced(collector) as stage:
        reply = ScriptedReply(
            content_type="text/event-stream", chunks=[first + b"\n\n", Wait(go_on)]
        )
        scene = stage.scene("chat", reply)
        body = plain_body("chat", scene.model, stream=True)
        try:
            with streaming(stage.url, "chat", body) as answer:
                next(answer.iter_bytes())
            spans = collector.wait_for(2)
        finally:
            go_on.set()
    assert {span.attributes["error.type"] for span in spans} == {"cancelled"}
    assert only(spans, "client").is_error
    assert not only(spans, "server").is_error


def test_the_headers_of_the_collector_are_sent_and_not_logged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collector-key-7f3a")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "named-by-variable")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with collecting() as collector, traced(collector) as stage:
        scene = stage.scene("chat", Answer((Said(("hello",)),)))
        ask(stage.url, "chat", plain_body("chat", scene.model))
        spans = collector.wait_for(2)
        shown = stage.gateway.app.gateway.inspector.secrets.hide("it is collector-key-7f3a here")
    assert {request.headers["authorization"] for request in collector.requests} == {
        "Bearer collector-key-7f3a"
    }
    assert shown == "it is [redacted] here"
    assert spans[0].resource["service.name"] == "named-by-variable"
    assert spans[0].resource["deployment.environment.name"] == "test"
    assert spans[0].resource["service.instance.id"]
    assert "collector-key-7f3a" not in "".join(capfd.readouterr())


def test_a_collector_that_refuses_everything_costs_no_request() -> None:
    with ScriptedUpstream.in_thread(lambda _: ScriptedReply(status=503)) as refusing:
        settings = OtelSettings(endpoint=refusing.url)
        with running_stage(further={"otel": settings}) as stage:
            scene = stage.scene("chat", *(Answer((Said(("hello",)),)) for _ in range(5)))
            for _ in range(5):
                done = ask(stage.url, "chat", plain_body("chat", scene.model))
                assert done.status_code == 200
            wait_until(lambda: len(refusing.requests) > 1)
