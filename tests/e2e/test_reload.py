"""The configuration is read again while the gateway serves: in one process and in several, by signal and by command."""

import asyncio
import gc
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from commands import run_command
from dragoman.config.settings import ServerSettings, Settings, UpstreamSettings
from dragoman.server.gateway import Gateway
from dragoman.testing import (
    Chunk,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
)
from gateway_harness import running_gateway, wait_until
from raw_websocket import raw_socket
from served import PATIENCE, Served, children, serving
from wire_client import request, wire

KEY, OTHER_KEY = "first-key-0123456789", "second-key-0123456789"
WORKERS = pytest.mark.parametrize("workers", ["1", "2"])
CHAT = "/v1/chat/completions"
RELOADS = 50


def chunk(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**whole, "choices": [choice]}).encode() + b"\n\n"


class Upstream:
    """A model that answers with its own name: whole, or streamed up to the middle until `go_on` is set."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self.name = name
        self.go_on = threading.Event()
        self.server = stack.enter_context(ScriptedUpstream.in_thread(self._answer))
        stack.callback(self.go_on.set)

    def _answer(self, request: ReceivedRequest) -> ScriptedReply:
        asked = request.json()
        if asked.get("stream") is True:
            end = chunk("", "stop") + b"data: [DONE]\n\n"
            steps: list[Chunk] = [
                chunk(f"{self.name} begins. "),
                Wait(self.go_on),
                chunk(f"{self.name} ends."),
                end,
            ]
            return ScriptedReply(content_type="text/event-stream", chunks=steps)
        message = {"role": "assistant", "content": self.name}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return json_reply({**whole, "choices": [choice]})


class Stage:
    """A gateway with a configuration file, and two upstreams that it may name."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.file = folder / "gateway.toml"
        self.old, self.new = Upstream("old", stack), Upstream("new", stack)
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
        self.stack = stack

    def write(
        self, upstream: Upstream, *, keys: Sequence[str] = (), server: str = "", more: str = ""
    ) -> None:
        self.file.write_text(
            f"[server]\napi_keys = {json.dumps(list(keys))}\n{server}\n"
            f'[store]\nurl = "memory:"\n'
            f'[upstreams.model]\nkind = "chat"\nbase_url = "{upstream.server.url}/v1"\n{more}\n',
            encoding="utf-8",
        )

    def serve(self, *options: str) -> Served:
        return self.stack.enter_context(
            serving(self.folder, {}, "--config", str(self.file), "--log-format", "json", *options)
        )

    def reload(self, *options: str) -> subprocess.CompletedProcess[str]:
        return run_command("reload", *options, cwd=self.folder, env=self.environment)


@pytest.fixture
def stage(tmp_path: Path) -> Generator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def asked(served: Served, key: str = "key", **more: object) -> tuple[int, str]:
    """The status, and the text or the error."""
    client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        return asked_on(client, key, **more)
    finally:
        client.close()


def asked_on(
    client: http.client.HTTPConnection, key: str = "key", **more: object
) -> tuple[int, str]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], **more}
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    client.request("POST", CHAT, json.dumps(body), headers)
    answer = client.getresponse()
    read = json.loads(answer.read())
    if answer.status != 200:
        return answer.status, read["error"]["message"]
    return answer.status, read["choices"][0]["message"]["content"]


@contextmanager
def open_stream(served: Served) -> Generator[http.client.HTTPResponse]:
    """A stream whose first words have come."""
    client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
        client.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        answer = client.getresponse()
        while b"begins" not in answer.readline():
            pass
        yield answer
    finally:
        client.close()


def logged(served: Served) -> str:
    return served.log.read_text(encoding="utf-8")


@WORKERS
def test_stream_ends_with_the_settings_it_began_with_and_the_next_request_has_the_new_ones(
    stage: Stage, workers: str
) -> None:
    stage.write(stage.old)
    served = stage.serve("--workers", workers)
    kept = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    assert asked_on(kept) == (200, "old")
    with open_stream(served) as answer:
        stage.write(stage.new)
        done = stage.reload()
        assert (done.returncode, done.stderr) == (0, "")
        assert served.url in done.stdout
        assert asked(served) == (200, "new")
        assert asked_on(kept) == (200, "new")  # on a connection of before
        kept.close()
        stage.old.go_on.set()
        assert b"old ends." in answer.read()
    wait_until(lambda: stage.old.server.open_connections == 0, PATIENCE)
    assert asked(served) == (200, "new")


@WORKERS
def test_signal_does_what_the_command_does(stage: Stage, workers: str) -> None:
    stage.write(stage.old)
    served = stage.serve("--workers", workers)
    assert asked(served) == (200, "old")
    stage.write(stage.new)
    os.killpg(served.pid, signal.SIGHUP)
    wait_until(lambda: asked(served) == (200, "new"), PATIENCE)
    wait_until(lambda: asked(served) == (200, "new"), PATIENCE)
    assert len(served.workers()) == (0 if workers == "1" else 2)


@WORKERS
def test_keys_that_are_added_and_removed_count_at_once(stage: Stage, workers: str) -> None:
    stage.write(stage.old, keys=[KEY])
    served = stage.serve("--workers", workers)
    assert asked(served, OTHER_KEY)[0] == 401
    stage.write(stage.old, keys=[OTHER_KEY])
    assert stage.reload().returncode == 0
    for _ in range(4):
        assert asked(served, OTHER_KEY) == (200, "old")
        assert asked(served, KEY)[0] == 401
    assert KEY not in logged(served)


BAD = {
    "syntax": ("[server\n", "gateway.toml"),
    "unknown key": ("[server]\nprot = 1\n[log]\nlevel = 'loud'\n", "server.prot"),
    "missing variable": (
        '[upstreams.m]\nkind = "chat"\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "NOT_SET"\n',
        "NOT_SET",
    ),
    "no such file": ("", "gateway.toml"),
    "no settings": ("# being written\n", "no settings"),
    "no file": ("", "a regular file"),
    "check": ('[[routes]]\nmodel = "*"\nupstream = "gone"\n', "gone"),
}


@WORKERS
def test_configuration_with_a_problem_changes_nothing_and_says_why(
    stage: Stage, workers: str
) -> None:
    stage.write(stage.old, keys=[KEY])
    served = stage.serve("--workers", workers)
    for case, (text, reason) in BAD.items():
        before = len(logged(served))
        stage.file.write_text(text, encoding="utf-8")
        if case == "no such file":
            stage.file.unlink()
        elif case == "no file":  # as `--config <(decrypt …)`, whose content is read once
            stage.file.unlink()
            stage.file.symlink_to("/dev/null")
        done = stage.reload()
        assert done.returncode == 1, case
        assert reason in done.stderr
        assert "keeps its settings" in done.stderr
        assert reason in logged(served)[before:]
        if case == "unknown key":
            assert "gateway.toml:2" in done.stderr
            assert "gateway.toml:4" in done.stderr  # all problems
        for _ in range(3):
            assert asked(served, KEY) == (200, "old"), case
            assert asked(served)[0] == 401
        stage.file.unlink(missing_ok=True)
        for upstream in (stage.new, stage.old):
            stage.write(upstream, keys=[KEY])
            assert stage.reload().returncode == 0
            assert asked(served, KEY) == (200, upstream.name), case


def test_file_of_the_folder_that_is_gone_is_missed(stage: Stage) -> None:
    file = stage.folder / "dragoman.toml"
    file.write_text('[log]\nformat = "json"\n[upstreams.u]\nkind = "rehearsal"\n', "utf-8")
    with serving(stage.folder, {}, "--upstream", "rehearsal") as served:
        file.rename(stage.folder / "dragoman.toml~")  # as an editor does before it writes another
        done = stage.reload()
        assert (done.returncode, "dragoman.toml: expected" in done.stderr) == (1, True)
        assert "settings stay as they were" in logged(served)


def test_what_needs_a_restart_stays_and_is_named(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve()
    stage.write(stage.new, server="workers = 3")
    done = stage.reload()
    assert done.returncode == 0
    assert "server.workers: 3 needs a restart; it stays 1" in done.stdout
    assert "server.workers" in logged(served)
    assert asked(served) == (200, "new")


def test_server_that_listens_beyond_this_machine_does_not_lose_its_keys(stage: Stage) -> None:
    """The file is fine by itself: without keys, it listens on loopback. But the socket stays where it is."""
    stage.write(stage.old, keys=[KEY], server='host = "0.0.0.0"')
    served = stage.serve()
    stage.write(stage.new)
    done = stage.reload()
    assert done.returncode == 1
    assert "server.host" in done.stderr
    assert asked(served)[0] == 401
    assert asked(served, KEY) == (200, "old")


def test_command_says_when_no_gateway_runs_and_when_several_do(
    stage: Stage, tmp_path: Path
) -> None:
    stage.write(stage.old)
    done = stage.reload()
    assert done.returncode == 2
    assert "found none" in done.stderr
    one, other = stage.serve(), stage.serve()
    done = stage.reload()
    assert done.returncode == 2
    assert one.url in done.stderr
    assert other.url in done.stderr
    stage.write(stage.new)
    assert stage.reload("--url", f"{one.url}/v1").returncode == 0
    assert asked(one) == (200, "new")
    assert asked(other) == (200, "old")


def test_process_that_has_the_id_of_a_gateway_that_is_gone_gets_no_signal(stage: Stage) -> None:
    stage.write(stage.old)
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        served = stage.serve()
        records = stage.folder / ".local/state/dragoman/gateways"
        (record,) = records.glob("*.json")
        stale = record.with_name(f"{innocent.pid}.json")
        stale.write_bytes(record.read_bytes())
        served.kill()
        assert stage.reload().returncode == 2
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_gateway_whose_hangups_are_ignored_says_so(stage: Stage) -> None:
    stage.write(stage.old)
    with serving(stage.folder, {}, "--config", str(stage.file), wrapper=("nohup",)):
        done = stage.reload()
        assert done.returncode == 2
        assert "nohup" in done.stderr


def test_websocket_stays_open_and_its_next_request_has_the_new_settings(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve()
    stage.old.go_on.set()
    stage.new.go_on.set()
    with raw_socket(served.url) as client:
        client.ask("m", input="Hi.")
        first = client.last()
        assert "old ends." in json.dumps(first)
        stage.write(stage.new)
        assert stage.reload().returncode == 0
        # The connection remembers what was not stored.
        client.ask("m", input="And?", previous_response_id=first["response"]["id"])
        assert "new ends." in json.dumps(client.last())
        stage.write(stage.new, keys=[KEY])
        assert stage.reload().returncode == 0
        client.ask("m", input="Hi.")
        assert client.last()["status"] == 401
        stage.write(stage.new, server="websocket = false")
        assert stage.reload().returncode == 0
        assert client.close_code() == 1012


def test_running_turn_of_a_websocket_ends_with_its_own_settings(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve()
    with raw_socket(served.url) as client:
        client.ask("m", input="Hi.")
        while "begins" not in json.dumps(client.event()):
            pass
        stage.write(stage.new, server="websocket = false")
        assert stage.reload().returncode == 0
        stage.old.go_on.set()
        assert "old ends." in json.dumps(client.last())
        assert client.close_code() == 1012


def response(served: Served, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    status, text = served.ask(path, body)
    assert status == 200, text
    read: dict[str, Any] = json.loads(text)
    return read


def test_background_response_and_what_is_stored_in_memory_outlive_a_reload(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve()
    stored = response(served, "/v1/responses", {"model": "m", "input": "Keep this."})
    asks = {"model": "m", "input": "Hi.", "background": True, "stream": False}
    running = response(served, "/v1/responses", asks)
    wait_until(lambda: len(stage.old.server.requests) == 2, PATIENCE)
    stage.write(stage.new)
    assert stage.reload().returncode == 0
    assert response(served, f"/v1/responses/{stored['id']}")["status"] == "completed"
    stage.old.go_on.set()
    where = f"/v1/responses/{running['id']}"
    wait_until(lambda: response(served, where)["status"] == "completed", PATIENCE)
    assert "old" in json.dumps(response(served, where)["output"])
    following = {"model": "m", "input": "And?", "previous_response_id": stored["id"]}
    assert "new" in json.dumps(response(served, "/v1/responses", following)["output"])


def total(served: Served, name: str = "dragoman_requests_total") -> float:
    lines = served.ask("/metrics")[1].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@WORKERS
def test_metrics_go_on_counting_across_reloads_and_restarts(stage: Stage, workers: str) -> None:
    stage.write(stage.old)
    served = stage.serve("--workers", workers)
    assert asked(served) == (200, "old")
    stage.write(stage.new)
    assert stage.reload().returncode == 0
    assert asked(served) == (200, "new")
    wait_until(lambda: total(served) == 2, PATIENCE)
    if workers == "2":
        assert stage.reload("--restart").returncode == 0
        assert asked(served) == (200, "new")
        wait_until(lambda: total(served) == 3, PATIENCE)


class Load:
    """Clients that ask one after the other, each on a new connection or all on their own, and count what goes wrong."""

    def __init__(self, served: Served, *, keep: bool = False, clients: int = 4) -> None:
        self.answered = 0
        self.problems: list[str] = []
        self._served = served
        self._keep = keep
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _ask(self) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=PATIENCE)
        while not self._stopped.is_set():
            try:
                status, text = asked_on(client)
            except (OSError, http.client.HTTPException) as error:
                self.problems.append(repr(error))
                client.close()
                continue
            if status != 200 or text not in ("old", "new"):
                self.problems.append(f"{status} {text}")
            self.answered += 1
            if not self._keep:
                client.close()
        client.close()

    def go_on(self, more: int = 5) -> None:
        """Wait for some answers."""
        enough = self.answered + more
        wait_until(lambda: self.answered >= enough or bool(self.problems), PATIENCE)


def handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_many_reloads_under_load_lose_no_request_and_leave_nothing_behind(
    stage: Stage,
) -> None:
    stage.write(stage.old)
    served = stage.serve()
    assert asked(served) == (200, "old")
    stage.write(stage.new)
    assert stage.reload().returncode == 0
    wait_until(lambda: stage.old.server.open_connections == 0, PATIENCE)
    before = handles(served.pid)
    with Load(served, keep=True) as load:
        for number in range(RELOADS):
            upstream = stage.old if number % 2 else stage.new
            stage.write(upstream, server=f"max_streams = {100 + number}")
            assert stage.reload().returncode == 0
            load.go_on()
    assert load.problems == []
    assert load.answered >= 5 * RELOADS
    stage.write(stage.new)
    assert stage.reload().returncode == 0
    for upstream in (stage.old, stage.new):
        wait_until(lambda: upstream.server.open_connections == 0, PATIENCE)  # noqa: B023 - awaited here
    wait_until(lambda: handles(served.pid) <= before, PATIENCE)
    assert "rror" not in "".join(
        line for line in logged(served).splitlines() if '"event":"log"' in line
    )


def test_mcp_servers_of_the_settings_before_end_and_unchanged_ones_stay(stage: Stage) -> None:
    server = Path(__file__).parents[1] / "support" / "mcp_servers" / "workshop.py"

    def section(number: int) -> str:
        command = json.dumps([sys.executable, str(server)])
        return f'[[mcp]]\nname = "tools"\ncommand = {command}\nenv = {{N = "{number}"}}\n'

    stage.write(stage.old, more=section(0))
    served = stage.serve()
    wait_until(lambda: len(children(served.pid)) == 1, PATIENCE)
    first = children(served.pid)
    stage.write(stage.new, more=section(0))
    assert stage.reload().returncode == 0
    assert asked(served) == (200, "new")
    assert children(served.pid) == first
    with open_stream(served) as answer:
        for number in range(1, 4):
            stage.write(stage.new, more=section(number))
            assert stage.reload().returncode == 0
        # That of the stream, and the newest.
        wait_until(lambda: len(children(served.pid)) == 2, PATIENCE)
        assert first[0] in children(served.pid)
        stage.new.go_on.set()
        assert b"new ends." in answer.read()
    wait_until(lambda: len(children(served.pid)) == 1, PATIENCE)
    assert first != children(served.pid)
    stage.write(stage.new)
    assert stage.reload().returncode == 0
    wait_until(lambda: children(served.pid) == [], PATIENCE)


def test_application_that_is_reloaded_keeps_no_task_and_no_gateway(stage: Stage) -> None:
    def settings(number: int) -> Settings:
        upstream = UpstreamSettings(
            kind="chat", base_url=f"{stage.old.server.url}/v1", headers={"x-n": str(number)}
        )
        return Settings(upstreams={"model": upstream})

    with running_gateway(settings(0)) as gateway:
        url = urlsplit(gateway.url)
        client = http.client.HTTPConnection(url.netloc, timeout=PATIENCE)
        assert asked_on(client) == (200, "old")
        sweeper = gateway.app.gateway._sweeper  # pyright: ignore[reportPrivateUsage] -- a task of the loop
        assert sweeper is not None
        loop = sweeper.get_loop()
        del sweeper
        before = len(asyncio.all_tasks(loop))
        made: list[weakref.ref[Gateway]] = []
        for number in range(RELOADS):
            made.append(weakref.ref(gateway.app.gateway))
            asyncio.run_coroutine_threadsafe(gateway.app.reload(settings(number)), loop).result(
                PATIENCE
            )
            assert asked_on(client) == (200, "old")
        wait_until(lambda: len(asyncio.all_tasks(loop)) <= before, PATIENCE)
        gc.collect()
        assert [ref for ref in made if ref() is not None] == []
        client.close()


def test_limit_of_heads_counts_at_once_on_connections_that_are_open() -> None:
    with running_gateway(Settings()) as gateway, wire(gateway) as client:
        sweeper = gateway.app.gateway._sweeper  # pyright: ignore[reportPrivateUsage] -- a task of the loop
        assert sweeper is not None
        large = request(f"x-padding: {'x' * 5000}")
        client.send(large)
        assert client.answer()[0].startswith(b"http/1.1 200 ")
        reload = gateway.app.reload(Settings(server=ServerSettings(max_header_bytes=4000)))
        asyncio.run_coroutine_threadsafe(reload, sweeper.get_loop()).result(PATIENCE)
        client.send(large)
        assert client.answer()[0].startswith(b"http/1.1 431 ")


def test_restart_of_workers_refuses_no_connection(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve("--workers", "2")
    with Load(served) as load:
        load.go_on()
        for upstream in (stage.new, stage.old):
            before = served.workers()
            stage.write(upstream)
            done = stage.reload("--restart")
            assert (done.returncode, done.stderr) == (0, "")
            load.go_on()
            wait_until(lambda: not set(before) & set(served.workers()), PATIENCE)  # noqa: B023 - awaited here
            load.go_on()
    assert load.problems == []
    assert asked(served) == (200, "old")
    assert len(served.workers()) == 2


def test_old_workers_finish_their_streams_after_a_restart(stage: Stage) -> None:
    stage.write(stage.old, server="workers = 2")
    served = stage.serve()
    with open_stream(served) as answer:
        stage.write(stage.new, server="workers = 3")
        assert stage.reload("--restart").returncode == 0
        wait_until(lambda: asked(served) == (200, "new"), PATIENCE)
        stage.old.go_on.set()
        assert b"old ends." in answer.read()
    wait_until(lambda: len(served.workers()) == 3, PATIENCE)


def test_restart_with_a_bad_configuration_keeps_the_old_workers(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve("--workers", "2")
    before = served.workers()
    stage.file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    done = stage.reload("--restart")
    assert done.returncode == 1
    assert "server.prot" in done.stderr
    wait_until(lambda: served.workers() == before, PATIENCE)
    assert asked(served) == (200, "old")


def test_worker_that_is_replaced_has_the_settings_in_force_and_not_those_of_a_bad_file(
    stage: Stage,
) -> None:
    stage.write(stage.old)
    served = stage.serve("--workers", "2")
    stage.write(stage.new)
    assert stage.reload().returncode == 0
    stage.file.write_text("[server\n", encoding="utf-8")
    before = served.workers()
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(set(served.workers()) - set(before)) == 2, PATIENCE)
    for _ in range(4):
        assert asked(served) == (200, "new")


def test_worker_that_cannot_start_leaves_the_others_to_serve(stage: Stage) -> None:
    """As while another version is installed: half of its files are there."""
    broken = stage.folder / "broken"
    hook = f"import os\nif os.path.exists({str(broken)!r}):\n    os._exit(3)\n"
    (stage.folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
    stage.write(stage.old)
    options = ("--config", str(stage.file), "--log-format", "json", "--workers", "2")
    with serving(stage.folder, {"PYTHONPATH": str(stage.folder)}, *options) as served:
        wait_until(lambda: len(served.workers()) == 2, PATIENCE)
        lost, left = served.workers()
        assert asked(served) == (200, "old")
        broken.touch()
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: "a worker cannot start" in logged(served), PATIENCE)
        assert served.workers() == [left]
        stage.write(stage.new)
        assert stage.reload().returncode == 0
        assert asked(served) == (200, "new")
        broken.unlink()
        wait_until(lambda: len(served.workers()) == 2, PATIENCE)
        os.kill(left, signal.SIGKILL)
        wait_until(lambda: left not in served.workers(), PATIENCE)
        assert asked(served) == (200, "new")


def test_single_process_is_not_restarted_and_says_why(stage: Stage) -> None:
    stage.write(stage.old)
    served = stage.serve()
    done = stage.reload("--restart")
    assert done.returncode == 1
    assert "server.workers" in done.stderr
    assert asked(served) == (200, "old")


PASS_ON = """
import os, signal, socket, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may have been started with nohup
listener = socket.socket(fileno=int(sys.argv[1]))
os.dup2(listener.fileno(), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2])
os.execv(sys.executable, [sys.executable, "-m", "dragoman", *sys.argv[3:]])
"""


@contextmanager
def started_with(
    listener: socket.socket, stage: Stage, count: int = 1
) -> Generator[subprocess.Popen[bytes]]:
    """`dragoman serve` as a service manager starts it: with a listening socket as its descriptor 3."""
    arguments = ["serve", "--config", str(stage.file), "--port", "1", "--log-format", "json"]
    with subprocess.Popen(
        [sys.executable, "-c", PASS_ON, str(listener.fileno()), str(count), *arguments],
        cwd=stage.folder,
        env=stage.environment,
        pass_fds=[listener.fileno()],
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as gateway:
        try:
            yield gateway
        finally:
            if gateway.poll() is None:  # the test has failed; its workers end with it
                os.killpg(gateway.pid, signal.SIGKILL)


def asked_at(port: int, key: str = "key") -> tuple[int, str]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        return asked_on(client, key)
    finally:
        client.close()


@WORKERS
def test_socket_of_a_service_manager_is_served_and_outlives_a_restart(
    stage: Stage, workers: str
) -> None:
    stage.write(stage.old, server=f"workers = {workers}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        answers: list[tuple[int, str]] = []
        with started_with(listener, stage) as gateway:
            assert asked_at(port) == (200, "old")
            stage.write(stage.new)
            assert stage.reload().returncode == 0
            assert asked_at(port) == (200, "new")
            gateway.terminate()
            gateway.communicate(timeout=PATIENCE)
            assert gateway.returncode == 0
        # Nobody serves, and nobody is refused.
        client = threading.Thread(target=lambda: answers.append(asked_at(port)))
        client.start()
        with started_with(listener, stage) as gateway:
            client.join(PATIENCE)
            assert answers == [(200, "new")]
            gateway.terminate()
            gateway.communicate(timeout=PATIENCE)


def test_socket_of_a_service_manager_beyond_this_machine_needs_keys(stage: Stage) -> None:
    """The settings say loopback, but the socket is what counts."""
    stage.write(stage.old)
    with socket.create_server(("0.0.0.0", 0)) as listener, started_with(listener, stage) as gateway:
        _, errors = gateway.communicate(timeout=PATIENCE)
        assert gateway.returncode == 2
        assert b"DRAGOMAN_API_KEYS" in errors


@pytest.mark.parametrize("case", ["two", "datagrams", "not listening"])
def test_what_is_no_listening_socket_is_refused(stage: Stage, case: str) -> None:
    stage.write(stage.old)
    kind = socket.SOCK_DGRAM if case == "datagrams" else socket.SOCK_STREAM
    with socket.socket(type=kind) as passed:
        if case == "two":
            passed.bind(("127.0.0.1", 0))
            passed.listen()
        with started_with(passed, stage, 2 if case == "two" else 1) as gateway:
            _, errors = gateway.communicate(timeout=PATIENCE)
            assert gateway.returncode == 2
            assert b"LISTEN_FDS" in errors
