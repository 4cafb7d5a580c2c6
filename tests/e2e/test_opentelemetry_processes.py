"""`dragoman serve` that sends traces: several workers, a reload, the end, a collector that is not there, and no collector at all."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from commands import run_command
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, Wait, json_reply
from gateway_harness import wait_until
from otlp_collector import PROMPTLY, Collector, Taken, collecting
from ports import free_port
from served import PATIENCE, Served, serving

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SLOWLY = {"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
"""Nothing is sent before the end."""
NEVER = Event()


def answer(_request: ReceivedRequest) -> ScriptedReply:
    message = {"role": "assistant", "content": "hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
    return json_reply({**whole, "choices": [choice]})


class Place:
    """A folder with a configuration, and an upstream."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.file = folder / "gateway.toml"
        self.stack = stack
        self.upstream = stack.enter_context(ScriptedUpstream.in_thread(answer))

    def write(self, endpoint: str | None, more: str = "") -> None:
        otel = "" if endpoint is None else f'[otel]\nendpoint = "{endpoint}"\n{more}\n'
        self.file.write_text(
            '[server]\nshutdown_grace = 0.3\n[store]\nurl = "memory:"\n'
            f'[upstreams.model]\nkind = "chat"\nbase_url = "{self.upstream.url}/v1"\n{otel}',
            encoding="utf-8",
        )

    def serve(self, variables: dict[str, str], *options: str) -> Served:
        arguments = ("--config", str(self.file), "--log-format", "json", *options)
        return self.stack.enter_context(serving(self.folder, variables, *arguments))

    def collector(self) -> Collector:
        return self.stack.enter_context(collecting())


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


def lines_of(served: Served) -> list[dict[str, Any]]:
    """The lines of requests in its log."""
    text = served.log.read_text(encoding="utf-8")
    found: list[dict[str, Any]] = [
        json.loads(line) for line in text.splitlines() if line[:1] == "{"
    ]
    return [line for line in found if line["event"] == "request"]


def is_request(span: Taken) -> bool:
    return span.kind == "server"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_end_sends_what_is_left(place: Place, workers: str) -> None:
    collector = place.collector()
    place.write(collector.url)
    served = place.serve(SLOWLY, "--workers", workers)
    for _ in range(12):
        assert served.ask(CHAT, BODY)[0] == 200
    served.stop()
    requests = collector.wait_for(12, is_request)
    assert len(collector.spans) == 24
    points = collector.wait_for_metric("gen_ai.client.operation.duration", 12)
    assert {point["gen_ai.request.model"] for point in points} == {"m"}
    tokens = collector.wait_for_metric("gen_ai.client.token.usage", 24)
    assert sum(point["sum"] for point in tokens) == 12 * 7
    # The log line of a request has the id of its trace.
    assert {line["trace_id"] for line in lines_of(served)} == {span.trace for span in requests}
    # The counters of two workers are not taken for those of one.
    processes = {span.resource["service.instance.id"] for span in requests}
    assert {process for process, _ in collector.metrics} == processes
    assert {span.resource["service.name"] for span in requests} == {"dragoman"}


def test_a_collector_that_is_not_there_disturbs_nobody(place: Place) -> None:
    place.write(f"http://127.0.0.1:{free_port()}")
    served = place.serve(
        {**PROMPTLY, "OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"}
    )
    for _ in range(40):
        assert served.ask(CHAT, BODY)[0] == 200

    def problems() -> list[str]:
        text = served.log.read_text(encoding="utf-8")
        return [line for line in text.splitlines() if '"logger":"opentelemetry' in line]

    wait_until(lambda: bool(problems()), PATIENCE)
    served.signal(signal.SIGTERM)
    assert served.wait() == 0
    last: dict[str, datetime] = {}
    for line in map(json.loads, problems()):
        at = datetime.fromisoformat(line["time"])
        # Each logger of the SDK logs at most once a minute, whatever fails meanwhile.
        before = last.get(line["logger"])
        assert before is None or (at - before).total_seconds() > 59
        last[line["logger"]] = at
    assert len(lines_of(served)) == 40


def test_a_collector_that_never_answers_does_not_keep_the_process_alive(place: Place) -> None:
    with ScriptedUpstream.in_thread(_never) as silent:
        place.write(silent.url)
        served = place.serve(PROMPTLY)
        assert served.ask(CHAT, BODY)[0] == 200
        wait_until(lambda: bool(silent.requests), PATIENCE)
        served.signal(signal.SIGTERM)
        assert served.wait() == 0
        assert "could not be sent within" in served.log.read_text(encoding="utf-8")


def _never(_request: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(hold=Wait(NEVER))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_changes_where_traces_go(place: Place, workers: str) -> None:
    first, second = place.collector(), place.collector()
    place.write(None)
    served = place.serve(PROMPTLY, "--workers", workers)

    def reload() -> None:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(place.folder)}
        done = run_command("reload", cwd=place.folder, env=environment)
        assert done.returncode == 0, done.stderr

    def ask() -> None:
        assert served.ask(CHAT, BODY)[0] == 200

    ask()
    place.write(first.url)
    reload()
    ask()
    first.wait_for(2)
    # The same collector: the spans go on, and nothing is sent twice.
    place.write(first.url, "[hosted]\nmax_turns = 5")
    reload()
    ask()
    first.wait_for(4)
    place.write(second.url, 'service_name = "second"')
    reload()
    ask()
    assert {span.resource["service.name"] for span in second.wait_for(2)} == {"second"}
    place.write(None)
    reload()
    ask()
    served.stop()
    assert (len(first.spans), len(second.spans)) == (4, 2)
    assert sum("trace_id" in line for line in lines_of(served)) == 3
    assert len(lines_of(served)) == 5


def test_without_a_collector_nothing_of_the_sdk_is_imported() -> None:
    code = (
        "import sys\n"
        "from dragoman.config.settings import Settings\n"
        "from dragoman.server.app import create_app\n"
        "create_app(Settings())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_without_the_extra_the_configuration_is_refused(place: Place) -> None:
    """The packages are hidden from a fresh process, as if they were not installed."""
    place.write("http://127.0.0.1:4318")
    code = (
        "import sys\n"
        "sys.modules['opentelemetry.sdk'] = None\n"
        "from dragoman.cli import main\n"
        f"sys.exit(main(['serve', '--config', {str(place.file)!r}, '--port', '0']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "otel.endpoint: expected the OpenTelemetry SDK" in done.stderr
    assert "install dragoman[otel]" in done.stderr
