"""The names of uvicorn that `server/http` and `server/run.py` use although uvicorn does not promise them.

If one of these tests fails after an upgrade, uvicorn has moved a name: look at what the class does now, adapt
`protocol.py` and `cycle.py`, and only then widen the range in `pyproject.toml`.
"""

import asyncio
import inspect

import pytest
import uvicorn
from uvicorn.protocols.http import flow_control
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

METHODS = (
    *((HttpToolsProtocol, name, "self") for name in ("eof_received", "resume_writing", "pause_writing", "shutdown")),
    *((HttpToolsProtocol, name, "self") for name in ("on_message_begin", "on_headers_complete", "on_message_complete")),
    *((HttpToolsProtocol, name, "self") for name in ("on_response_complete", "_unset_keepalive_if_required")),
    (HttpToolsProtocol, "_unsupported_upgrade_warning", "self"),
    (HttpToolsProtocol, "connection_made", "self transport"),
    (HttpToolsProtocol, "connection_lost", "self exc"),
    (HttpToolsProtocol, "data_received", "self data"),
    (HttpToolsProtocol, "on_url", "self url"),
    (HttpToolsProtocol, "on_header", "self name value"),
    (HttpToolsProtocol, "on_body", "self body"),
    (HttpToolsProtocol, "_start_asgi_task", "self cycle app"),
    (RequestResponseCycle, "run_asgi", "self app"),
    (WebSocketsSansIOProtocol, "__init__", "self config server_state app_state _loop"),
    (WebSocketsSansIOProtocol, "connection_made", "self transport"),
    (WebSocketsSansIOProtocol, "data_received", "self data"),
    (WebSocketsSansIOProtocol, "handle_connect", "self event"),
    (WebSocketsSansIOProtocol, "shutdown", "self"),
    *((FlowControl, name, "self") for name in ("drain", "pause_reading", "resume_reading")),
    *((FlowControl, name, "self") for name in ("pause_writing", "resume_writing")),
    (uvicorn.Server, "capture_signals", "self"),
    (uvicorn.Server, "on_tick", "self counter"),
    (uvicorn.Server, "shutdown", "self sockets"),
)  # fmt: skip
# Attributes that uvicorn reads of a cycle, so that ours must have them.
CYCLE = ("disconnected", "keep_alive", "response_complete", "response_started", "chunked_encoding", "message_event")  # fmt: skip

SOCKET = ("app", "close_sent", "close_timeout", "conn", "disconnected", "handshake_complete", "logger", "transport", "writable")  # fmt: skip


def protocol() -> HttpToolsProtocol:
    async def app(_scope: object, _receive: object, _send: object) -> None: ...

    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
    return HttpToolsProtocol(config, ServerState(), {}, asyncio.new_event_loop())


@pytest.mark.parametrize(("owner", "name", "parameters"), METHODS)
def test_method_is_there_with_its_parameters(owner: type, name: str, parameters: str) -> None:
    method: object = inspect.getattr_static(owner, name, None)
    assert callable(method), f"uvicorn {uvicorn.__version__}: {owner.__name__} has no {name}()"
    assert " ".join(inspect.signature(method).parameters) == parameters


def test_connection_has_the_attributes_that_ours_uses() -> None:
    made = protocol()
    try:
        for name in (
            *("access_log", "app", "config", "connections", "cycle", "expect_100_continue", "flow"),
            *("headers", "limit_concurrency", "loop", "parser", "pipeline", "root_path", "scope"),
            *("server_state", "tasks", "transport"),
        ):
            assert hasattr(made, name), f"uvicorn {uvicorn.__version__}: no attribute {name}"
    finally:
        made.loop.close()


def test_flow_control_has_its_flags() -> None:
    flow = FlowControl(asyncio.Transport())
    assert (flow.read_paused, flow.write_paused) == (False, False)
    assert "_is_writable_event" in vars(flow)
    assert flow_control.HIGH_WATER_LIMIT > 0


@pytest.mark.parametrize("name", SOCKET)
def test_websocket_has_the_attributes_that_ours_uses(name: str) -> None:
    assert f"self.{name}" in inspect.getsource(WebSocketsSansIOProtocol.__init__)


@pytest.mark.parametrize("name", CYCLE)
def test_cycle_has_the_attributes_that_ours_stands_in_for(name: str) -> None:
    assert f"self.{name}" in inspect.getsource(RequestResponseCycle.__init__)
