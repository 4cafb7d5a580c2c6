"""A collector that takes traces and metrics by OTLP over HTTP, reads them with the protocol's own messages, and keeps them."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream
from gateway_harness import wait_until

PATIENCE = 30.0
PROMPTLY = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
"""Variables of the SDK with which spans and metrics come within milliseconds."""

_PROTOBUF = "application/x-protobuf"
_KINDS = {
    SpanMessage.SPAN_KIND_SERVER: "server",
    SpanMessage.SPAN_KIND_CLIENT: "client",
    SpanMessage.SPAN_KIND_INTERNAL: "internal",
}


class SpanEvent(Struct, frozen=True):
    name: str
    attributes: dict[str, Any]


class Taken(Struct, frozen=True, kw_only=True):
    """A span as it came. Ids are in hex; `parent` is empty for a root."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    state: str
    began: int
    ended: int
    is_error: bool
    message: str
    attributes: dict[str, Any]
    events: list[SpanEvent]
    resource: dict[str, Any]
    schema: str


class Collector:
    """What has come so far. `bodies`: every byte of it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.requests: list[ReceivedRequest] = []
        self.spans: list[Taken] = []
        self.metrics: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """The points of each metric as they last came, by the id of the process and the name of the metric."""
        self.url = ""

    def take(self, request: ReceivedRequest) -> ScriptedReply:
        self.requests.append(request)
        self.bodies.append(request.body)
        if request.path.endswith("/v1/traces"):
            self._take_spans(ExportTraceServiceRequest.FromString(request.body))
            answer = ExportTraceServiceResponse().SerializeToString()
        else:
            assert request.path.endswith("/v1/metrics"), request.path
            self._take_metrics(ExportMetricsServiceRequest.FromString(request.body))
            answer = ExportMetricsServiceResponse().SerializeToString()
        return ScriptedReply(content_type=_PROTOBUF, chunks=[answer])

    def _take_spans(self, message: ExportTraceServiceRequest) -> None:
        for resource in message.resource_spans:
            whose = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                schema = scope.schema_url
                self.spans += [_span(each, whose, schema) for each in scope.spans]

    def _take_metrics(self, message: ExportMetricsServiceRequest) -> None:
        for resource in message.resource_metrics:
            process = _attributes(resource.resource.attributes)["service.instance.id"]
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = [
                        {
                            **_attributes(point.attributes),
                            "count": point.count,
                            "sum": point.sum,
                            "bounds": tuple(point.explicit_bounds),
                            "unit": metric.unit,
                        }
                        for point in metric.histogram.data_points
                    ]
                    self.metrics[process, metric.name] = points

    def points(self, name: str) -> list[dict[str, Any]]:
        """The points of a metric, of all processes."""
        return [
            point for (_, each), points in self.metrics.items() if each == name for point in points
        ]

    def wait_for(
        self, count: int, is_meant: Callable[[Taken], bool] = lambda _: True
    ) -> list[Taken]:
        """Wait until so many spans have come; those, in the order of their beginnings."""
        wait_until(lambda: sum(map(is_meant, list(self.spans))) >= count, PATIENCE)
        found = [span for span in self.spans if is_meant(span)]
        assert len(found) == count, [span.name for span in found]
        return sorted(found, key=lambda span: span.began)

    def wait_for_metric(self, name: str, count: int) -> list[dict[str, Any]]:
        """Wait until a metric has so many measurements; its points."""
        wait_until(lambda: sum(point["count"] for point in self.points(name)) >= count, PATIENCE)
        assert sum(point["count"] for point in self.points(name)) == count
        return self.points(name)


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector on loopback."""
    collector = Collector()
    with ScriptedUpstream.in_thread(collector.take) as server:
        collector.url = server.url
        yield collector
    assert not server.failures, server.failures


def _span(span: SpanMessage, resource: dict[str, Any], schema: str) -> Taken:
    return Taken(
        name=span.name,
        kind=_KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        state=span.trace_state,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=_attributes(span.attributes),
        events=[SpanEvent(event.name, _attributes(event.attributes)) for event in span.events],
        resource=resource,
        schema=schema,
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)
