"""The real Codex CLI, in a home of its own.

Which tools Codex offers depends on the model's name, so the models here are copies of catalogue entries under names
that the gateway routes by: `to-chat-gpt-5.5` is to Codex what `gpt-5.5` is. A name that no entry has (`to-chat-plain`)
gets what Codex gives to models it does not know.
"""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clients.model import DIALECTS
from clients.program import RUN_SECONDS, run_program
from clients.stack import KEY

__all__ = ("MCP", "Codex", "CodexRun", "CodexSession")

HERE = Path(__file__).parent
BINARY = HERE / "node_modules" / ".bin" / "codex"
COPIED = ("gpt-5.5", "gpt-6.1-sol")

CONFIG = """
model_provider = "gateway"
model_catalog_json = "{catalog}"

[model_providers.gateway]
name = "{provider}"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = {retries}
supports_websockets = {websockets}

[analytics]
enabled = false
"""
MCP = """
[mcp_servers.probe]
command = "{python}"
args = ["{server}"]
"""


@dataclass
class CodexRun:
    """What `codex exec --json` printed."""

    code: int
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stderr: str = ""

    def items(self, kind: str) -> list[dict[str, Any]]:
        return [
            event["item"]
            for event in self.events
            if event["type"] == "item.completed" and event["item"]["type"] == kind
        ]

    @property
    def text(self) -> str:
        """The last thing the model said."""
        said = self.items("agent_message")
        return said[-1]["text"] if said else ""

    @property
    def errors(self) -> list[str]:
        """What the turn failed with."""
        return [
            event["error"]["message"] for event in self.events if event["type"] == "turn.failed"
        ]


class Codex:
    """An installation: its home, its catalogue, and a folder to work in."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        more: str = "",
        provider: str = "gateway",
        websockets: bool = False,
        retries: int = 0,
    ) -> None:
        """`provider`: the name of the provider; for one called `OpenAI` Codex asks the provider to compact.

        retries: how often Codex asks again after a stream that broke off.
        """
        self.url = url
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        catalog = self.home / "models.json"
        catalog.write_text(_catalog(), encoding="utf-8")
        config = CONFIG.format(
            url=url,
            catalog=catalog,
            provider=provider,
            retries=retries,
            websockets=str(websockets).lower(),
        )
        (self.home / "config.toml").write_text(config + more, encoding="utf-8")

    def run(self, model: str, prompt: str) -> CodexRun:
        return self._exec("-m", model, prompt)

    def run_as_openai(self, model: str, prompt: str) -> CodexRun:
        """With the provider that Codex has built in, which uses a WebSocket."""
        provider = 'model_provider="openai"', f'openai_base_url="{self.url}/v1"'
        return self._exec("-c", provider[0], "-c", provider[1], "-m", model, prompt)

    def resume(self, model: str, prompt: str, *options: str) -> CodexRun:
        """The next turn of the last session."""
        return self._exec("resume", "--last", *options, "-m", model, prompt)

    @contextmanager
    def session(self, model: str) -> "Generator[CodexSession]":
        """One program for many turns, as the editors run it."""
        with (self.home / "app-server.log").open("wb") as log:
            process = subprocess.Popen(
                [str(BINARY), "app-server"],
                cwd=self.work,
                env=_environment(self.home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield CodexSession(process, self.work, model)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def _exec(self, *arguments: str) -> CodexRun:
        options = ["--json", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
        command = [str(BINARY), "exec", *options, "-C", str(self.work), *arguments]
        ran = run_program(command, _environment(self.home), self.work)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
        return CodexRun(ran.code, events, ran.stderr)


class CodexSession:
    """A thread of `codex app-server`, which speaks JSON-RPC: its turns, one after the other."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, model: str) -> None:
        self._process = process
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 0
        self._turn = ""
        self.heard: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        info = {"name": "clients", "title": "clients", "version": "1"}
        self._request("initialize", {"clientInfo": info, "capabilities": {}})
        self._write({"method": "initialized"})
        options = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
        started = self._request("thread/start", {"cwd": str(folder), "model": model, **options})
        self._thread: str = started["thread"]["id"]

    def ask(self, prompt: str) -> dict[str, Any]:
        """A whole turn. Returns how it ended."""
        self.begin(prompt)
        return self.end()

    def begin(self, prompt: str) -> None:
        """Start a turn."""
        text: dict[str, Any] = {"type": "text", "text": prompt, "text_elements": []}
        started = self._request("turn/start", {"threadId": self._thread, "input": [text]})
        self._turn = started["turn"]["id"]

    def compact(self) -> dict[str, Any]:
        """Compact the thread, as `/compact` does. Returns how it ended."""
        self._request("thread/compact/start", {"threadId": self._thread})
        return self.end()

    def wait_for(self, method: str) -> dict[str, Any]:
        """The next notification of this kind."""
        while (heard := self._next()).get("method") != method:
            pass
        params: dict[str, Any] = heard["params"]
        return params

    def end(self) -> dict[str, Any]:
        """How the turn ended: its status, its error and its texts."""
        texts: list[str] = []
        while (heard := self._next()).get("method") != "turn/completed":
            item = heard.get("params", {}).get("item", {})
            if heard.get("method") == "item/completed" and item.get("type") == "agentMessage":
                texts.append(item["text"])
        return {**heard["params"]["turn"], "texts": texts}

    def interrupt(self) -> dict[str, Any]:
        """Interrupt the turn. Returns how it ended."""
        self._number += 1
        params = {"threadId": self._thread, "turnId": self._turn}
        self._write({"id": self._number, "method": "turn/interrupt", "params": params})
        return self.end()

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._write({"id": self._number, "method": method, "params": params})
        while (heard := self._next()).get("id") != self._number or "method" in heard:
            pass
        assert "result" in heard, heard
        result: dict[str, Any] = heard["result"]
        return result

    def _next(self) -> dict[str, Any]:
        heard = self._lines.get(timeout=RUN_SECONDS)
        self.heard.append(heard)
        return heard

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))


def _environment(home: Path) -> dict[str, str]:
    where = str(home)
    keys = {"GATEWAY_KEY": KEY, "CODEX_API_KEY": KEY}
    return {"PATH": os.environ["PATH"], "HOME": where, "CODEX_HOME": where, **keys}


@cache
def _catalog() -> str:
    """The models that Codex knows, and the copies."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        ran = run_program([str(BINARY), "debug", "models"], _environment(home), home)
    known = {entry["slug"]: entry for entry in json.loads(ran.stdout)["models"]}
    copies = [
        {**known[slug], "slug": f"to-{dialect}-{slug}", "upgrade": None}
        for slug in COPIED
        for dialect in DIALECTS
    ]
    return json.dumps({"models": [*known.values(), *copies]})
