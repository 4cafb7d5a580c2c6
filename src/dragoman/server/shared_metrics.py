"""One set of metrics for several worker processes: a directory that all of them write their numbers to.

prometheus-client decides at its import whether numbers live in memory or in files, by PROMETHEUS_MULTIPROC_DIR. So the
parent enters `shared_metrics` before it starts its workers (fresh processes, which import everything anew), and calls
`forget_worker` for one that has ended, so that its open streams are no longer counted.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Protocol, cast

from prometheus_client import CollectorRegistry

__all__ = ("collect_shared", "forget_worker", "is_shared", "shared_metrics")

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class _Multiprocess(Protocol):
    """The module `prometheus_client.multiprocess`, which has no types."""

    def MultiProcessCollector(self, registry: CollectorRegistry) -> object: ...  # noqa: N802 -- its spelling
    def mark_process_dead(self, pid: int) -> None: ...


@contextmanager
def shared_metrics() -> Generator[str]:
    """Workers started inside share their metrics. A directory that the operator named is used and left as it is."""
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
    """The numbers of all workers."""
    registry = CollectorRegistry()
    _multiprocess().MultiProcessCollector(registry)
    return registry


def forget_worker(pid: int) -> None:
    """A worker has ended: its gauges go, its counters stay. For the parent, inside `shared_metrics`."""
    _multiprocess().mark_process_dead(pid)


def _multiprocess() -> _Multiprocess:
    return cast("_Multiprocess", import_module("prometheus_client.multiprocess"))
