"""The real Codex behind the gateway: `codex app-server` as an upstream, with a scripted model behind it.

an SDK ──► the gateway ──► codex app-server (its child) ──► the model, on 127.0.0.1
"""

import json
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.codex import BINARY
from clients.gateway import configured, run_gateway
from clients.script import ModelTurn, SpokenCall, Tool
from clients.wire import responses
from dragoman.testing import Chunk, ReceivedRequest, ScriptedReply, ScriptedUpstream

__all__ = (
    "CodexGateway",
    "Json",
    "Play",
    "ScriptedModel",
    "codex_gateway",
    "codex_home",
    "input_of",
    "processes_below",
    "say",
)

Json = dict[str, Any]
Spoken = tuple[str, str, str]
Play = Callable[[ReceivedRequest], ScriptedReply]

HOME = """
model = "some-model"
model_provider = "scripted"
{more}

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false
"""
UPSTREAM = """
[chat]
enable_parallel_tool_calls = true

[upstreams.codex]
kind = "codex"
command = {command}
codex_home = {home}
output_mode = "openai-json"
{more}
"""


def say(
    text: str = "", *calls: Spoken, thinking: str = "", model: str = "m", **reply: Any
) -> ScriptedReply:
    """A model's answer: words, then calls of (id, name, arguments)."""
    spoken = [
        SpokenCall(name, Tool(tool, None, "function", {}), source) for name, tool, source in calls
    ]
    turn = ModelTurn(text, thinking=thinking)
    chunks: list[Chunk] = [frame for _, frame in responses.stream(turn, spoken, model)]
    return ScriptedReply(content_type="text/event-stream", chunks=chunks, **reply)


@dataclass
class CodexGateway:
    """`play`: what the model answers; `requests`: what it was asked since."""

    url: str
    pid: int
    folder: Path
    model: "ScriptedModel"

    def play(self, *replies: ScriptedReply | Play) -> None:
        """The answers in order; the last is given again."""
        self.model.play(list(replies))

    @property
    def requests(self) -> list[ReceivedRequest]:
        return self.model.requests

    def log(self) -> str:
        return (self.folder / "gateway.log").read_text(encoding="utf-8", errors="replace")


@dataclass
class ScriptedModel:
    replies: list[ScriptedReply | Play] = field(default_factory=list[ScriptedReply | Play])
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def play(self, replies: list[ScriptedReply | Play]) -> None:
        with self.lock:
            self.replies = replies
            self.requests = []

    def __call__(self, request: ReceivedRequest) -> ScriptedReply:
        with self.lock:
            self.requests.append(request)
            place = min(len(self.requests), len(self.replies)) - 1
            reply = self.replies[place]
        return reply(request) if callable(reply) else reply


def codex_home(folder: Path, url: str, more: str = "") -> Path:
    """A home for Codex, with the model at `url`."""
    home = folder / "codex-home"
    home.mkdir()
    (home / "config.toml").write_text(HOME.format(url=url, more=more), encoding="utf-8")
    return home


@contextmanager
def codex_gateway(folder: Path, *, home: str = "", more: str = "") -> Generator[CodexGateway]:
    """A gateway with Codex for its only upstream. `home`, `more`: lines for Codex's configuration and for ours."""
    model = ScriptedModel()
    with ScriptedUpstream.in_thread(model) as upstream:
        place = codex_home(folder, upstream.url, home)
        text = UPSTREAM.format(
            command=json.dumps([str(BINARY), "app-server"]), home=json.dumps(str(place)), more=more
        )
        with run_gateway(folder, configured(folder, text), {"HOME": str(place)}) as (url, pid):
            yield CodexGateway(url, pid, folder, model)


def input_of(request: ReceivedRequest) -> list[Json]:
    """Return the model's input without the ids that Codex gives to everything."""
    items: Any = request.at("input")
    dropped = ("id", "status", "internal_chat_message_metadata_passthrough")
    result = [{key: value for key, value in item.items() if key not in dropped} for item in items]
    for item in result:
        for part in item["content"] if item["type"] == "message" else ():
            part.pop("annotations", None)
            part.pop("logprobs", None)
    return result


def processes_below(pid: int) -> list[int]:
    """All that a process has started, directly or not, and that still runs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return [each for each in found[1:] if _is_there(each)]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
