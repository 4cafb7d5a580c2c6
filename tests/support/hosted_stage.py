"""A gateway with an MCP server of its own, between scripted upstreams and the SDKs."""

import json
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragoman.config.settings import (
    HostedSettings,
    McpServerSettings,
    Route,
    ServerSettings,
    StoreSettings,
)
from heard import Heard, hear
from plain_http import ask as ask_plainly
from plain_http import plain_body
from sdk_clients import Got, Offered, conversation
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Tool

SERVER = Path(__file__).parent / "mcp_servers" / "workshop.py"
STOPPED = {"chat": "stop", "responses": "completed", "messages": "end_turn"}
CALLED = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}
WEATHER = Offered(
    "get_weather",
    {"type": "object", "properties": {"city": {"type": "string"}}},
    "the weather in a city",
)


def workshop(records: Path | None = None, name: str = "workshop") -> McpServerSettings:
    env = {} if records is None else {"RECORDS": str(records)}
    return McpServerSettings(name=name, command=(sys.executable, str(SERVER)), env=env)


@contextmanager
def hosting_stage(
    *servers: McpServerSettings,
    hosted: HostedSettings | None = None,
    server: ServerSettings | None = None,
    routes: tuple[Route, ...] = (),
    store: StoreSettings | None = None,
    upstreams: Mapping[str, Mapping[str, object]] | None = None,
) -> Generator[Stage]:
    """Every route has the tools of `workshop` but those that say otherwise."""
    settings = hosted or HostedSettings(servers=("workshop",))
    further = {"mcp": servers or (workshop(),), "hosted": settings}
    with running_stage(
        server=server, routes=routes, store=store, further=further, upstreams=upstreams
    ) as running:
        yield running


def said(*pieces: str) -> Said:
    return Said(pieces)


def tool(name: str, arguments: dict[str, Any], call_id: str = "call_1") -> Tool:
    text = json.dumps(arguments)
    middle = len(text) // 2
    return Tool(call_id, name, (text[:middle], text[middle:]))


def echo(text: str, call_id: str = "call_1") -> Tool:
    return tool("workshop__echo", {"text": text}, call_id)


def add(a: int, b: int, call_id: str = "call_2") -> Tool:
    return tool("workshop__add", {"a": a, "b": b}, call_id)


def sent(
    stage: Stage, door: str, mode: str, scene: Scene, tools: tuple[Offered, ...] = (), **more: Any
) -> Got:
    """What the SDK made of the answer to one question."""
    asking = conversation(door, stage.url, scene.model, tools=tools, more=more)
    asking.say("What is there?")
    return asking.ask(mode)


def raw_stream(stage: Stage, door: str, scene: Scene, **more: object) -> bytes:
    """The very bytes of a streamed answer."""
    body = plain_body(door, scene.model, stream=True, **more)
    answer = ask_plainly(stage.url, door, body)
    assert answer.status_code == 200, answer.text
    return bytes(answer.content)


def last_heard(scene: Scene) -> Heard:
    """What the upstream was asked last: checked by the vendor's rules."""
    return hear(scene.dialect, scene.requests[-1].body)


def answers(*parts: Said | Tool) -> Answer:
    return Answer(parts)
