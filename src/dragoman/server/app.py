"""The ASGI application: a dictionary dispatches conversations, Starlette everything else.

`create_app(settings)` is the gateway for any ASGI server; `run.py` is the server that `dragoman serve` starts.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.config.check import complete
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings
from dragoman.server.doors import DOORS, Door
from dragoman.server.gateway import Gateway
from dragoman.server.http.connection import AsgiConnection
from dragoman.server.http.protocol import Serve
from dragoman.server.pages import Pages
from dragoman.server.websocket import refuse_websocket, serve_websocket
from dragoman.state.endpoints import find_submitted

__all__ = ("App", "create_app")

_DOORS: dict[str, Door] = {
    spelling: door
    for path, door in DOORS.items()
    for plain in (path, path.removeprefix("/v1"))
    for spelling in (plain, f"{plain}/")
}


def create_app(settings: Settings | None = None) -> "App":
    """The gateway as an ASGI application. Without settings: `dragoman.toml` and the environment, as `serve` reads them.

    Raises:
        ConfigError: the settings are invalid.
    """
    return App(complete(settings) if settings is not None else load_settings(None, os.environ))


class App:
    """An ASGI application. A program that embeds it may call `gateway.stop()`.

    directly: the functions that answer a POST, by path, for a server that can do without ASGI (`http.protocol`).
    limits: how much, and how slowly, such a server lets clients send. websocket_paths: where it may accept WebSockets.
    """

    def __init__(self, settings: Settings) -> None:
        self.gateway = Gateway(settings)
        self.limits = settings.server
        self.directly: dict[bytes, Serve] = {
            path.encode("ascii"): partial(self.gateway.serve, door) for path, door in _DOORS.items()
        }
        self.websocket_paths = (
            frozenset(path for path, door in _DOORS.items() if door.dialect == "responses")
            if settings.server.websocket
            else frozenset[str]()
        )
        self._pages: ASGIApp = _pages(self.gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            method = scope["method"]
            if method == "POST":
                door = _DOORS.get(scope["path"])
                if door is not None:
                    await self.gateway.serve(door, AsgiConnection(scope, receive, send))
                    return
                submits = find_submitted(scope["path"])
                if submits is not None and self.gateway.store.is_on:
                    connection = AsgiConnection(scope, receive, send)
                    await self.gateway.serve(_DOORS["/v1/responses"], connection, submits)
                    return
            elif method == "OPTIONS" and self.gateway.cors.is_on:
                await self.gateway.cors.preflight(scope["headers"], send)
                return
        elif scope["type"] == "websocket":
            if scope["path"] in self.websocket_paths:
                await serve_websocket(self.gateway, _DOORS["/v1/responses"], scope, receive, send)
            else:
                await refuse_websocket(scope, receive, send)
            return
        await self._pages(scope, receive, send)


def _pages(gateway: Gateway) -> Starlette:
    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        gateway.start()
        try:
            yield
        finally:
            await gateway.close()

    return Starlette(routes=Pages(gateway).routes(), lifespan=lifespan)
