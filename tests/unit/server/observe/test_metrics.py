"""Metrics: what is counted, that labels stay few, and that workers are summed."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from dragoman.config.settings import LogSettings, Route, Settings, UpstreamSettings
from dragoman.model.outcome import Limits, LimitWindow, Loss, Problem, Repair
from dragoman.server.observe.metrics import (
    MAX_VALUES,
    Telemetry,
    is_shared,
    shared_metrics,
)
from dragoman.server.observe.record import RequestRecord

DOCS = Path(__file__).parents[4] / "docs" / "operations.md"


def settings(*routes: Route) -> Settings:
    local = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")
    return Settings(
        upstreams={"local": local, "other one": local},
        routes=routes,
        log=LogSettings(level="error"),
    )


def telemetry() -> Telemetry:
    return Telemetry(
        settings(Route(model="claude-*", upstream="local"), Route(model="gpt-x", upstream="local"))
    )


def done(model: str = "claude-9", **changes: object) -> RequestRecord:
    record = RequestRecord(
        door="messages",
        upstream="local",
        model=model,
        status=200,
        stream=True,
        call_count=2,
        call_names=("a", "b"),
        finish="tool_calls",
        input_tokens=100,
        output_tokens=7,
        first_byte_s=0.2,
        duration_s=1.5,
        bytes_in=10,
        bytes_out=30,
        attempts=1,
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def samples(counted: Telemetry, name: str) -> dict[str, float]:
    """The samples of one metric: their labels (without braces and quotes) and values."""
    text = counted.render()[1].decode()
    found = re.findall(rf"^dragoman_{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {labels.replace('"', ""): float(value) for labels, value in found}


def test_request_is_counted_by_door_upstream_status_and_stream() -> None:
    counted = telemetry()
    for _ in range(3):
        counted.record(done())
    counted.record(done(status=429, stream=False, upstream=""))
    assert samples(counted, "requests_total") == {
        "door=messages,status=200,stream=true,upstream=local": 3,
        "door=messages,status=429,stream=false,upstream=": 1,
    }


def test_calls_tokens_and_bytes_are_summed() -> None:
    counted = telemetry()
    counted.record(done())
    counted.record(done(output_tokens=None, call_count=0))
    assert samples(counted, "tool_calls_total") == {"door=messages,upstream=local": 2}
    assert samples(counted, "tokens_total") == {
        "direction=input,model=claude-*,upstream=local": 200,
        "direction=output,model=claude-*,upstream=local": 7,
    }
    assert samples(counted, "bytes_total") == {
        "direction=in,door=messages": 20,
        "direction=out,door=messages": 60,
    }


def test_cached_tokens_are_counted_by_whether_they_were_read_or_written() -> None:
    counted = telemetry()
    counted.record(done())
    assert samples(counted, "cached_tokens_total") == {}  # nobody said anything about a cache
    counted.record(done(cached_tokens=80), done(cached_tokens=10, cache_write_tokens=5))
    assert samples(counted, "cached_tokens_total") == {
        "kind=read,model=claude-*,upstream=local": 90,
        "kind=write,model=claude-*,upstream=local": 5,
    }
    total = cast("dict[str, int]", counted.usage()["total"])
    assert (total["input_tokens"], total["cached_tokens"], total["cache_write_tokens"]) == (
        300,
        90,
        5,
    )


def test_count_below_zero_does_no_harm() -> None:
    counted = telemetry()
    counted.record(done(input_tokens=-5, cached_tokens=-3, cache_write_tokens=2))
    assert samples(counted, "tokens_total")["direction=input,model=claude-*,upstream=local"] == 0
    assert samples(counted, "cached_tokens_total") == {
        "kind=read,model=claude-*,upstream=local": 0,
        "kind=write,model=claude-*,upstream=local": 2,
    }


def test_numbers_beyond_a_double_cost_no_other_request_its_count() -> None:
    counted, n = telemetry(), 10**400
    huge = done(input_tokens=n, output_tokens=n, cached_tokens=n, cache_write_tokens=n)
    counted.record(huge, done())
    assert samples(counted, "requests_total").popitem()[1] == 2
    assert all(value >= 2**52 for value in samples(counted, "tokens_total").values())
    counted.record(huge)
    [used] = cast("list[dict[str, object]]", counted.usage()["data"])
    assert used["requests"] == 3


def test_limits_beyond_every_measure_are_no_gauge() -> None:
    counted, huge = telemetry(), 10**400
    odd = LimitWindow(name="primary", used_percent=huge, resets_at=-huge)
    right = LimitWindow(name="secondary", used_percent=50.0, resets_at=1_700_000_000)
    counted.note_limits("local", Limits(windows=(odd, right)))
    assert samples(counted, "limit_used_ratio") == {"upstream=local,window=secondary": 0.5}
    assert len(samples(counted, "limit_reset_timestamp_seconds")) == 1


def test_times_of_one_batch_are_counted_as_those_that_come_one_by_one() -> None:
    # On a bound, below the first, several in one bucket, and beyond the last.
    times = (0.025, 0.001, 0.3, 0.3, 0.5, 120.0, 5000.0)
    records = [done(first_byte_s=each, duration_s=each) for each in times]
    together, apart = telemetry(), telemetry()
    together.record(*records, done(first_byte_s=None, duration_s=7.0))
    for each in (*records, done(first_byte_s=None, duration_s=7.0)):
        apart.record(each)
    for name in ("first_byte_seconds", "duration_seconds"):
        assert samples(together, f"{name}_bucket") == samples(apart, f"{name}_bucket")
        assert samples(together, f"{name}_count") == samples(apart, f"{name}_count")
        found, wanted = samples(together, f"{name}_sum"), samples(apart, f"{name}_sum")
        assert found == pytest.approx(wanted)


def test_times_fall_into_their_buckets() -> None:
    counted = telemetry()
    counted.record(done())
    counted.record(done(first_byte_s=None, duration_s=3.0))
    first = samples(counted, "first_byte_seconds_bucket")
    whole = samples(counted, "duration_seconds_bucket")
    assert first["door=messages,le=0.1,stream=true,upstream=local"] == 0
    assert first["door=messages,le=0.25,stream=true,upstream=local"] == 1
    assert first["door=messages,le=+Inf,stream=true,upstream=local"] == 1
    assert whole["door=messages,le=2.5,stream=true,upstream=local"] == 1
    assert whole["door=messages,le=+Inf,stream=true,upstream=local"] == 2


def test_losses_repairs_and_problems_are_counted_by_their_names() -> None:
    counted = telemetry()
    loss = Loss("strict_tools", "tools[0]", "drop")
    counted.record(
        done(
            losses=(loss, loss),
            repairs=(Repair("orphan_result", "turns[3]"),),
            problems=(Problem(4, "malformed_frame", "whatever the upstream sent"),),
        )
    )
    assert samples(counted, "losses_total") == {
        "code=strict_tools,door=messages,upstream=local": 2,
    }
    assert samples(counted, "repairs_total") == {
        "door=messages,rule=orphan_result,upstream=local": 1,
    }
    assert samples(counted, "problems_total") == {"kind=malformed_frame,upstream=local": 1}


def test_errors_failed_attempts_and_lost_clients_are_counted() -> None:
    counted = telemetry()
    counted.record(done(error_kind="timeout"))
    counted.record(done(client_gone=True))
    counted.attempt_failed("local", "overloaded", "retry")
    counted.attempt_failed("local", "overloaded", "retry")
    counted.attempt_failed("local", "timeout", "fallback")
    assert samples(counted, "errors_total") == {"door=messages,kind=timeout,upstream=local": 1}
    assert samples(counted, "clients_gone_total") == {"door=messages,upstream=local": 1}
    assert samples(counted, "upstream_errors_total") == {
        "action=retry,kind=overloaded,upstream=local": 2,
        "action=fallback,kind=timeout,upstream=local": 1,
    }


def test_open_streams_rise_and_fall() -> None:
    counted = telemetry()
    counted.opened()
    counted.opened()
    counted.closed()
    assert samples(counted, "open_streams") == {"": 1}


def test_models_are_reported_by_their_routes_whatever_clients_send() -> None:
    counted = telemetry()
    for number in range(3000):
        counted.record(done(model=f"claude-{number}"))
        counted.record(done(model=f"invented-{number}" + "x" * 300))
    counted.record(done(model="gpt-x"))
    models = {re.search("model=([^,]*)", key)[1] for key in samples(counted, "tokens_total")}  # type: ignore[index]
    assert models == {"claude-*", "gpt-x", "other"}


def test_without_routes_there_is_one_model() -> None:
    counted = Telemetry(settings())
    counted.record(done())
    assert "direction=input,model=*,upstream=local" in samples(counted, "tokens_total")


def test_label_that_keeps_growing_says_other() -> None:
    counted = telemetry()
    for number in range(MAX_VALUES + 50):
        counted.record(done(problems=(Problem(1, f"kind-{number}", ""),), upstream=f"up-{number}"))
    found = samples(counted, "problems_total")
    assert len(found) == MAX_VALUES + 1
    assert found["kind=other,upstream=other"] == 50
    assert len(samples(counted, "requests_total")) == 1


def test_request_that_was_refused_before_anything_was_known_is_counted() -> None:
    counted = telemetry()
    counted.record(RequestRecord(door="chat", status=401, error_kind="authentication"))
    assert samples(counted, "requests_total") == {
        "door=chat,status=401,stream=false,upstream=": 1,
    }
    assert samples(counted, "tokens_total") == {}


def test_tasks_of_the_event_loop_are_counted_when_the_page_is_rendered() -> None:
    counted = Telemetry(Settings())

    async def render_beside(others: int) -> dict[str, float]:
        gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(others):
                group.create_task(gate.wait())
            found = samples(counted, "tasks")
            gate.set()
        return found

    assert asyncio.run(render_beside(0)) == {"": 1}
    assert asyncio.run(render_beside(3)) == {"": 4}
    assert samples(counted, "tasks") == {"": 0}


def test_two_applications_in_one_process_count_apart() -> None:
    first, second = telemetry(), telemetry()
    first.record(done())
    assert samples(second, "requests_total") == {}


def test_page_has_its_content_type_the_version_and_no_creation_times() -> None:
    content_type, text = telemetry().render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"dragoman_build_info{version=" in text
    assert b"process_resident_memory_bytes" in text
    assert b"_created" not in text


def test_every_metric_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    names = re.findall(r"^# TYPE (dragoman_\w+)", telemetry().render()[1].decode(), re.MULTILINE)
    assert len(names) >= 14
    assert [name for name in names if f"`{name}`" not in page] == []


WORKER = """
import sys
from dragoman.server.observe.record import RequestRecord
from dragoman.config.settings import LogSettings, Settings
from dragoman.server.observe.metrics import forget_worker
from dragoman.server.observe.metrics import Telemetry
telemetry = Telemetry(Settings(log=LogSettings(level="error")))
telemetry.opened()
telemetry.record(RequestRecord(door="chat", status=200))
for pid in sys.argv[1:]:
    forget_worker(int(pid))
sys.stdout.write(telemetry.render()[1].decode())
"""


def work(*ended: int) -> tuple[int, str]:
    command = [sys.executable, "-c", WORKER, *map(str, ended)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return process.pid, text


def test_workers_are_summed_and_the_open_streams_of_one_that_ended_forgotten() -> None:
    requests = 'dragoman_requests_total{door="chat",status="200",stream="false",upstream=""}'
    with shared_metrics() as directory:
        first, alone = work()
        second, both = work()
        _, living = work(first, second)
        assert Path(directory).is_dir()
    assert f"{requests} 1.0" in alone
    assert f"{requests} 2.0" in both
    assert "dragoman_open_streams 2.0" in both
    assert f"{requests} 3.0" in living
    assert "dragoman_open_streams 1.0" in living
    assert not Path(directory).exists()
    assert not is_shared()


def test_directory_that_the_operator_named_is_used_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    with shared_metrics() as directory:
        assert directory == str(tmp_path)
    assert tmp_path.is_dir()
    assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == str(tmp_path)
