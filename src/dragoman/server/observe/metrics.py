"""Prometheus metrics and the log line, both made from the record of a request.

Counters are cached in our own dictionaries, so that a request costs a few microseconds; a registry per instance
separates two applications in one process. Every label has few values, whatever clients send: models are named by the route
that took them, and a label with too many values becomes `other`.

With several workers, each writes its numbers to files, and any of them renders the sum of all: see `shared_metrics` below.
"""

import asyncio
import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import translate
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

from dragoman.config.settings import Settings, peers_of
from dragoman.model.outcome import Limits
from dragoman.server.observe.logs import RequestLog
from dragoman.server.observe.record import RequestRecord
from dragoman.store.key_usage import MAX_COUNT, MILLION, Counts
from dragoman.store.records import Swept
from dragoman.upstream.rate_limits import LARGEST, number_of
from dragoman.upstream.retry import Decision, Fallback, GiveUp, OtherPeer, Retry

AttemptAction = Literal["retry", "peer", "fallback", "give_up"]
ACTIONS: Mapping[type[Decision], AttemptAction] = {
    Retry: "retry",
    OtherPeer: "peer",
    Fallback: "fallback",
    GiveUp: "give_up",
}
_Count = Callable[[float], None]
_GaugeMode = Literal["livesum", "max", "mostrecent"]

# Loss codes, repair rules and problem kinds are ours and number some dozens; the cap guards against mistakes.
MAX_VALUES = 200
_OTHER = "other"

# The size of each cache of label values; its keys include model names, which clients choose.
_REMEMBERED = 1024
_LONGEST_REMEMBERED = 256

# From a cached answer on the same machine to a reasoning model that thinks before it answers.
FIRST_BYTE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
DURATION_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# From a row that is in memory to a database that does not answer.
STORE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 15)


class _Value(Protocol):
    """A number of `prometheus_client`."""

    def inc(self, amount: float) -> None: ...


class _Histogram(Histogram):
    """A histogram that takes several values at once: those of one bucket are one addition, under one lock."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        total, buckets = cast("_Value", self._sum), cast("list[_Value]", self._buckets)  # pyright: ignore[reportUnknownMemberType] -- the library does not type them
        total.inc(sum(amounts))
        bounds = self._upper_bounds
        found = [bisect_left(bounds, amount) for amount in amounts]
        for bucket in set(found):
            buckets[bucket].inc(found.count(bucket))


class _Meters:
    """All metrics, registered. `docs/operations.md` documents names and labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"dragoman_{name}", meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, bounds: Sequence[float], *labels: str) -> _Histogram:
            full = f"dragoman_{name}_seconds"
            return _Histogram(full, meaning, labels, buckets=bounds, registry=registry)

        def gauge(name: str, meaning: str, mode: _GaugeMode, *labels: str) -> Gauge:
            full = f"dragoman_{name}"
            return Gauge(full, meaning, labels, registry=registry, multiprocess_mode=mode)

        self.requests = counter(
            "requests", "Requests answered", "door", "upstream", "status", "stream"
        )
        self.errors = counter(
            "errors", "Requests that ended in an error", "upstream", "kind", "door"
        )
        self.gone = counter("clients_gone", "Clients that left before the end", "upstream", "door")
        self.calls = counter("tool_calls", "Tool calls sent to clients", "door", "upstream")
        self.hosted = counter("hosted_calls", "Calls the gateway ran", "server", "outcome")
        self.tokens = counter(
            "tokens", "Tokens reported by upstreams", "upstream", "model", "direction"
        )
        self.cached = counter(
            "cached_tokens",
            "Input tokens that upstreams read from their caches of prompts, or wrote to them",
            "upstream",
            "model",
            "kind",
        )
        self.bytes = counter("bytes", "Bytes of bodies, from and to clients", "door", "direction")
        self.losses = counter("losses", "Reported losses", "upstream", "code", "door")
        self.repairs = counter("repairs", "Repairs of conversations", "upstream", "rule", "door")
        self.problems = counter(
            "problems", "Irregularities in upstreams' answers", "upstream", "kind"
        )
        attempts = "Attempts that failed, and what was done"
        self.upstream_errors = counter("upstream_errors", attempts, "upstream", "kind", "action")
        labels = ("door", "upstream", "stream")
        first = "From a request's head to the first byte of its answer"
        self.first_byte = histogram("first_byte", first, FIRST_BYTE_BUCKETS, *labels)
        last = "From a request's head to the last byte of its answer"
        self.duration = histogram("duration", last, DURATION_BUCKETS, *labels)
        self.open = gauge("open_streams", "Requests being served", "livesum")
        cooling = "Workers in which a peer cools down, or has not answered since"
        self.cooling = gauge("upstream_cooling", cooling, "livesum", "upstream", "peer")
        self.build = gauge("build_info", "1, labelled with the version", "max", "version")
        # The limits that upstreams report. With several workers, the latest report is right.
        used = "The share of a limit that is used, from 0 to 1"
        self.limit_used = gauge("limit_used_ratio", used, "mostrecent", "upstream", "window")
        resets = "When a limit resets, in seconds since 1970"
        self.limit_resets = gauge(
            "limit_reset_timestamp_seconds", resets, "mostrecent", "upstream", "window"
        )
        self.credits = gauge("limit_credits", "Reported credits", "mostrecent", "upstream")
        asked = "Operations on the store, by their outcome"
        self.store = histogram("store", asked, STORE_BUCKETS, "operation", "outcome")
        self.swept = counter("store_swept", "Stored responses removed by age or size")


class _KeyMeters:
    """The metrics of named keys. The names of keys are the operator's, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"dragoman_key_{name}", meaning, ("key", *labels), registry=registry)

        self.requests = counter("requests", "Requests of named keys that were admitted")
        self.tokens = counter("tokens", "Tokens of named keys", "direction")
        self.cost = counter("cost", "Cost of named keys, by the operator's prices")
        self.refused = counter("refused", "Requests of named keys that were refused", "limit")

    def count(self, name: str, used: Counts) -> None:
        self.requests.labels(name).inc()
        self.tokens.labels(name, "input").inc(used.input_tokens)
        self.tokens.labels(name, "output").inc(used.output_tokens)
        self.cost.labels(name).inc(used.cost / MILLION)


class _RequestCounters:
    """The counters of nearly every request, looked up once per (door, upstream, status, stream)."""

    __slots__ = ("bytes_in", "bytes_out", "calls", "count", "observe_all", "observe_first")

    def __init__(self, meters: _Meters, door: str, upstream: str, status: str, stream: str) -> None:
        self.count = meters.requests.labels(door, upstream, status, stream).inc
        self.calls = meters.calls.labels(door, upstream).inc
        self.bytes_in = meters.bytes.labels(door, "in").inc
        self.bytes_out = meters.bytes.labels(door, "out").inc
        self.observe_first = meters.first_byte.labels(door, upstream, stream).observe_all
        self.observe_all = meters.duration.labels(door, upstream, stream).observe_all


# The counts of one upstream in GET /v1/usage, and the metrics that they are.
_COUNTS = (
    *("requests", "errors", "tool_calls", "input_tokens", "output_tokens"),
    *("cached_tokens", "cache_write_tokens"),
)
_COUNTED = {
    "dragoman_requests": "requests",
    "dragoman_errors": "errors",
    "dragoman_tool_calls": "tool_calls",
    "dragoman_tokens": "",  # the direction says which
    "dragoman_cached_tokens": "",  # the kind says which
}
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "read": "cached_tokens",
    "write": "cache_write_tokens",
}


class Telemetry:
    """Counts requests and logs them. One per application."""

    def __init__(self, settings: Settings) -> None:
        self._registry = CollectorRegistry()
        self.is_shared = is_shared()
        if not self.is_shared:
            ProcessCollector(registry=self._registry)
            tasks = "Tasks of the event loop"
            Gauge("dragoman_tasks", tasks, registry=self._registry).set_function(_count_tasks)
        self._meters = _Meters(self._registry)
        self._keys = _KeyMeters(self._registry)
        self._meters.build.labels(version("dragoman")).set(1)
        self._since = time.time()
        self.open = 0
        if not self.is_shared:
            self._meters.open.set_function(lambda: self.open)
        self._upstreams: frozenset[str] = frozenset()
        self._values: dict[str, set[str]] = {}
        self._counters = lru_cache(_REMEMBERED)(self._find_counters)
        self._tokens = lru_cache(_REMEMBERED)(self._find_tokens)
        self._cached = lru_cache(_REMEMBERED)(self._find_cached)
        self._rare = lru_cache(_REMEMBERED)(self._find_rare)
        self._asked = lru_cache(_REMEMBERED)(self._find_asked)
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Apply other settings. The counts go on; upstreams that are gone keep their names, for requests that still run."""
        self._log = RequestLog(settings.log)
        self._upstreams |= frozenset(settings.upstreams)
        for name, each in settings.upstreams.items():
            self._upstreams |= frozenset(peers_of(name, each))
            for peer in peers_of(name, each):
                self._meters.cooling.labels(name, peer)
        self._routes = [(re.compile(translate(r.model)).match, r.model) for r in settings.routes]
        for found in (self._counters, self._tokens, self._cached, self._rare):
            found.cache_clear()

    def opened(self) -> None:
        """Count a request that is being served; `closed` must follow."""
        self.open += 1
        if self.is_shared:
            self._meters.open.inc()

    def closed(self) -> None:
        """Count the end of a request that was `opened`."""
        self.open -= 1
        if self.is_shared:
            self._meters.open.dec()

    def attempt_failed(self, upstream: str, kind: str, action: AttemptAction) -> None:
        """Count a failed attempt; `action` is what the retry policy decided."""
        self._rare(self._meters.upstream_errors, upstream, "kind", kind, action)()

    def cooled(self, upstream: str, peer: str, *, is_out: bool) -> None:
        """Set the gauge of a peer. Both labels are names in the configuration."""
        self._meters.cooling.labels(upstream, peer).set(is_out)

    def note_limits(self, upstream: str, limits: Limits) -> None:
        """Set the gauges to the limits that an upstream reported."""
        meters, name = self._meters, self._upstream(upstream)
        for window in limits.windows:
            labels = (name, self._value("window", window.name))
            if window.used_percent is not None and abs(window.used_percent) <= LARGEST:
                meters.limit_used.labels(*labels).set(window.used_percent / 100)
            if window.resets_at is not None and abs(window.resets_at) <= LARGEST:
                meters.limit_resets.labels(*labels).set(window.resets_at)
        balance = number_of(limits.balance or "")
        if balance is not None:
            meters.credits.labels(name).set(balance)

    def store_asked(self, operation: str, outcome: str, seconds: float) -> None:
        """Count a store operation; `outcome` may be `refused`, or `error` if the store was unreachable."""
        self._asked(operation, outcome)(seconds)

    def store_swept(self, swept: Swept) -> None:
        """Count the stored responses that expired."""
        if swept.responses:
            self._meters.swept.inc(swept.responses)

    def key_refused(self, name: str, limit: str) -> None:
        """Count a refused request of a named key. Both labels are names in the configuration."""
        self._keys.refused.labels(name, limit).inc()

    def record(self, *records: RequestRecord) -> None:
        """Count finished requests, and write their log lines. Equal requests are counted together."""
        alike: dict[tuple[str, str, int, bool], list[RequestRecord]] = {}
        for record in records:
            key = (str(record.door), record.upstream, record.status, record.stream)
            alike.setdefault(key, []).append(record)
        for key, group in alike.items():
            self._count_alike(self._counters(*key), group)
        self._count_tokens(records)
        for record in records:
            if record.cached_tokens or record.cache_write_tokens:
                self._count_cached(record)
            if record.losses or record.repairs or record.problems:
                self._count_irregular(record)
            if record.error_kind is not None or record.client_gone:
                self._count_failed(record)
            if record.used is not None:
                self._keys.count(record.key, record.used)
            for call in record.hosted:
                self._meters.hosted.labels(self._value("server", call.server), call.outcome).inc()
        self._log.write(records)

    def render(self) -> tuple[str, bytes]:
        """The content type and the text for `/metrics`; with several workers, the sum of all."""
        registry = collect_shared() if self.is_shared else self._registry
        return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(_WithoutCreated(registry))

    def usage(self) -> dict[str, object]:
        """The counts for GET /v1/usage, by upstream: those of `/metrics`, so with several workers the sum of all."""
        registry = collect_shared() if self.is_shared else self._registry
        counts: dict[str, dict[str, int]] = {}
        for metric in registry.collect():
            for sample in metric.samples if metric.name in _COUNTED else ():
                if sample.name.endswith("_total"):
                    labels = sample.labels
                    own = counts.setdefault(labels["upstream"], dict.fromkeys(_COUNTS, 0))
                    kind = labels.get("kind") or labels.get("direction", "")
                    own[_COUNTED[metric.name] or _TOKENS[kind]] += int(sample.value)
        data = [{"upstream": name or None, **counts[name]} for name in sorted(counts)]
        total = {name: sum(each[name] for each in counts.values()) for name in _COUNTS}
        return {"since": int(self._since), "total": total, "data": data}

    def _count_alike(self, counters: _RequestCounters, group: list[RequestRecord]) -> None:
        counters.count(len(group))
        bytes_in = bytes_out = calls = 0
        first: list[float] = []
        for record in group:
            bytes_in += record.bytes_in
            bytes_out += record.bytes_out
            calls += record.call_count
            if record.first_byte_s is not None:
                first.append(record.first_byte_s)
        counters.bytes_in(bytes_in)
        counters.bytes_out(bytes_out)
        if calls:
            counters.calls(calls)
        counters.observe_all([record.duration_s for record in group])
        if first:
            counters.observe_first(first)

    def _count_tokens(self, records: Iterable[RequestRecord]) -> None:
        alike: dict[tuple[str, str], tuple[int, int]] = {}
        for record in records:
            if record.input_tokens is not None or record.output_tokens is not None:
                key = (record.upstream, record.model)
                read, written = alike.get(key, (0, 0))
                own, more = record.input_tokens, record.output_tokens
                # A negative count is an upstream's mistake; a counter would raise.
                if own is not None and own > 0:
                    read += own
                if more is not None and more > 0:
                    written += more
                alike[key] = (read, written)
        for (upstream, model), (read, written) in alike.items():
            find = self._tokens if len(model) <= _LONGEST_REMEMBERED else self._find_tokens
            count_input, count_output = find(upstream, model)
            # An upstream may report any number, and one beyond a double raises.
            count_input(min(read, MAX_COUNT))
            count_output(min(written, MAX_COUNT))

    def _count_cached(self, record: RequestRecord) -> None:
        model = record.model
        find = self._cached if len(model) <= _LONGEST_REMEMBERED else self._find_cached
        count_read, count_write = find(record.upstream, model)
        # As in `_count_tokens`.
        count_read(min(MAX_COUNT, max(0, record.cached_tokens or 0)))
        count_write(min(MAX_COUNT, max(0, record.cache_write_tokens or 0)))

    def _count_irregular(self, record: RequestRecord) -> None:
        meters, upstream, door = self._meters, record.upstream, record.door
        for loss in record.losses:
            self._rare(meters.losses, upstream, "code", loss.code, door)()
        for repair in record.repairs:
            self._rare(meters.repairs, upstream, "rule", repair.rule, door)()
        for problem in record.problems:
            self._rare(meters.problems, upstream, "problem", problem.kind)()

    def _count_failed(self, record: RequestRecord) -> None:
        meters, upstream, door = self._meters, record.upstream, record.door
        if record.client_gone:
            self._rare(meters.gone, upstream, "door", door)()
        if record.error_kind is not None:
            self._rare(meters.errors, upstream, "kind", record.error_kind, door)()

    def _find_counters(
        self,
        door: str,
        upstream: str,
        status: int,
        stream: bool,  # noqa: FBT001 -- a part of the key
    ) -> _RequestCounters:
        return _RequestCounters(
            self._meters,
            self._value("door", door),
            self._upstream(upstream),
            self._value("status", str(status)),
            "true" if stream else "false",
        )

    def _find_asked(self, operation: str, outcome: str) -> _Count:
        return self._meters.store.labels(operation, outcome).observe

    def _find_tokens(self, upstream: str, model: str) -> tuple[_Count, _Count]:
        find = self._meters.tokens.labels
        labels = (self._upstream(upstream), self._model(model))
        return find(*labels, "input").inc, find(*labels, "output").inc

    def _find_cached(self, upstream: str, model: str) -> tuple[_Count, _Count]:
        find = self._meters.cached.labels
        labels = (self._upstream(upstream), self._model(model))
        return find(*labels, "read").inc, find(*labels, "write").inc

    def _find_rare(
        self, meter: Counter, upstream: str, label: str, value: str, *others: str
    ) -> Callable[[], None]:
        return meter.labels(self._upstream(upstream), self._value(label, value), *others).inc

    def _upstream(self, name: str) -> str:
        """The label of an upstream; empty for a request that reached none."""
        return name if name in self._upstreams or not name else _OTHER

    def _model(self, model: str) -> str:
        """The label of a model: the route that takes it, which the operator named, not the client's name."""
        for is_match, glob in self._routes:
            if is_match(model):
                return glob
        return _OTHER if self._routes else "*"

    def _value(self, label: str, value: str) -> str:
        seen = self._values.setdefault(label, set())
        if value not in seen:
            if len(seen) >= MAX_VALUES:
                return _OTHER
            seen.add(value)
        return value


def _count_tasks() -> int:
    """Only when the page is rendered: it takes time that grows with their number."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # rendered outside an event loop
        return 0


class _WithoutCreated:
    """A registry without the `_created` samples, which double the page and have no use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class _Multiprocess(Protocol):
    """The module `prometheus_client.multiprocess`, which has no type annotations."""

    def MultiProcessCollector(self, registry: CollectorRegistry) -> object: ...  # noqa: N802 -- its spelling
    def mark_process_dead(self, pid: int) -> None: ...


@contextmanager
def shared_metrics() -> Generator[str]:
    """Share the metrics of workers started inside. A directory that the operator set is used and not removed."""
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    with TemporaryDirectory(prefix="dragoman-metrics-") as directory:
        os.environ[VARIABLE] = directory
        try:
            yield directory
        finally:
            del os.environ[VARIABLE]


def is_shared() -> bool:
    """Whether this process is one of several that share their metrics."""
    return bool(os.environ.get(VARIABLE))


def collect_shared() -> CollectorRegistry:
    """A registry with the numbers of all workers."""
    registry = CollectorRegistry()
    _multiprocess().MultiProcessCollector(registry)
    return registry


def forget_worker(pid: int) -> None:
    """Drop the gauges of a worker that has ended; its counters stay. For the parent process, inside `shared_metrics`."""
    _multiprocess().mark_process_dead(pid)


def _multiprocess() -> _Multiprocess:
    return cast("_Multiprocess", import_module("prometheus_client.multiprocess"))
