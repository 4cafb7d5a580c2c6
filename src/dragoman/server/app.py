"""The ASGI application: a dictionary dispatches conversations, Starlette everything else.

`create_app(settings)` is the gateway for any ASGI server; `run.py` is the server that `dragoman serve` starts.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.config.check import complete
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings
from dragoman.server.doors import DOORS, Door
from dragoman.server.gateway import Gateway
from dragoman.server.http.connection import AsgiConnection, ClientConnection
from dragoman.server.http.protocol import Serve
from dragoman.server.inspect_pages import PREFIX as INSPECT_PREFIX
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
    """An ASGI application. A program that embeds it may call `reload` and `stop`.

    gateway: the one that serves new requests. Those that it replaced go on until their last request has ended.
    directly: the functions that answer a POST, by path, for a server that can do without ASGI (`http.protocol`).
    limits: how much, and how slowly, such a server lets clients send. websocket_paths: where it may accept WebSockets.
    """

    def __init__(self, settings: Settings) -> None:
        self.directly: dict[bytes, Serve] = {
            path.encode("ascii"): partial(self._serve, door) for path, door in _DOORS.items()
        }
        self._replaced: dict[Gateway, asyncio.Task[None]] = {}
        self._reloading = asyncio.Lock()
        self._use(Gateway(settings))

    def _use(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.limits = gateway.settings.server
        self.websocket_paths = (
            frozenset(path for path, door in _DOORS.items() if door.dialect == "responses")
            if self.limits.websocket
            else frozenset[str]()
        )
        self._pages: ASGIApp = Starlette(routes=Pages(gateway).routes())

    def _serve(self, door: Door, connection: ClientConnection) -> Coroutine[object, object, None]:
        # A connection keeps this function, and requests that wait on it start later: the gateway is looked up here.
        return self.gateway.serve(door, connection)

    async def reload(self, settings: Settings) -> None:
        """Serve new requests by other settings, also on connections that are open. Requests that run keep theirs.

        Upstreams, MCP servers and the store go on if their settings did not change. The address and the number of workers are
        not the application's to change.

        Raises:
            ConfigError: the settings are invalid; nothing has changed.
        """
        async with self._reloading:
            before = self.gateway
            if before.is_stopping:
                return
            # In a thread: certificates and programs are looked up.
            gateway = await asyncio.to_thread(Gateway, complete(settings), before)
            if self.gateway.is_stopping:
                await gateway.close([before, *self._replaced])
                return
            gateway.take_over(before)
            gateway.start()
            self._use(gateway)
            self._replaced[before] = asyncio.create_task(self._retire(before))

    async def _retire(self, gateway: Gateway) -> None:
        """Close a gateway that was replaced, when its last request has ended."""
        await gateway.drain()
        try:
            others = [self.gateway, *(each for each in self._replaced if each is not gateway)]
            await gateway.close(others)
        finally:
            del self._replaced[gateway]

    @property
    def open_streams(self) -> int:
        """The requests that are being answered."""
        return sum(len(each.exchanges) for each in (self.gateway, *self._replaced))

    async def stop(self) -> None:
        """Let open exchanges finish within the grace period, then end them with a failure in their own dialect."""
        await asyncio.gather(*(each.stop() for each in (*self._replaced, self.gateway)))

    async def close(self) -> None:
        """Close all gateways. Exchanges that still run are cut."""
        for gateway in self._replaced:
            gateway.cut_short()
        await asyncio.gather(*self._replaced.values())
        await self.gateway.close()

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
            elif (
                method == "OPTIONS"
                and self.gateway.cors.is_on
                and not scope["path"].startswith(INSPECT_PREFIX)
            ):
                await self.gateway.cors.preflight(scope["headers"], send)
                return
        elif scope["type"] == "websocket":
            if scope["path"] in self.websocket_paths:
                await serve_websocket(self.gateway, _DOORS["/v1/responses"], scope, receive, send)
            else:
                await refuse_websocket(scope, receive, send)
            return
        elif scope["type"] == "lifespan":
            await Starlette(lifespan=self._lifespan)(scope, receive, send)
            return
        with self.gateway.serving_page():
            await self._pages(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        self.gateway.start()
        try:
            yield
        finally:
            await self.close()
