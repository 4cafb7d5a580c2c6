"""The ASGI application: conversations by a dictionary, everything else by Starlette.

`create_app(settings)` is the gateway inside any ASGI server; `run.py` is the one that `dragoman serve` starts.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.config.check import complete
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings
from dragoman.server.doors import COUNT_TOKENS_PATH, DOORS, Door
from dragoman.server.gateway import Gateway
from dragoman.server.http.connection import AsgiConnection
from dragoman.server.http.protocol import Serve
from dragoman.server.pages import Pages
from dragoman.state.endpoints import find_submitted

__all__ = ("App", "create_app")

_DOORS: dict[str, Door] = {
    spelling: door
    for path, door in DOORS.items()
    for plain in (path, path.removeprefix("/v1"))
    for spelling in (plain, f"{plain}/")
}


_RESPONSES = _DOORS["/v1/responses"]


def create_app(settings: Settings | None = None) -> "App":
    """The gateway as an ASGI application. Without settings: `dragoman.toml` and the environment, as `serve` reads them.

    Raises:
        ConfigError: the settings cannot work.
    """
    return App(complete(settings) if settings is not None else load_settings(None, os.environ))


class App:
    """An ASGI application. `gateway` is what it serves; a program that embeds it may call `gateway.stop()`.

    directly: who answers a POST at a path, for a server that can do without ASGI (`protocol`).
    limits: how much, and how slowly, such a server lets clients send.
    """

    def __init__(self, settings: Settings) -> None:
        self.gateway = Gateway(settings)
        self.limits = settings.server
        self.directly: dict[bytes, Serve] = {
            path.encode("ascii"): partial(self.gateway.serve, door) for path, door in _DOORS.items()
        }
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
                    line = AsgiConnection(scope, receive, send)
                    await self.gateway.serve(_RESPONSES, line, submits)
                    return
            elif method == "OPTIONS" and self.gateway.cors.is_on:
                await self.gateway.cors.preflight(scope["headers"], send)
                return
        await self._pages(scope, receive, send)


def _pages(gateway: Gateway) -> Starlette:
    pages = Pages(gateway)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        gateway.start()
        try:
            yield
        finally:
            await gateway.close()

    routes = [
        Route("/healthz", pages.health, methods=["GET"]),
        Route("/readyz", pages.ready, methods=["GET"]),
        Route("/metrics", pages.metrics, methods=["GET"]),
    ]
    for prefix in ("/v1", ""):
        routes += [
            Route(f"{prefix}/limits", pages.limits, methods=["GET"]),
            *_stored_routes(f"{prefix}/responses/{{response_id}}", pages),
            Route(f"{prefix}/models", pages.models, methods=["GET"]),
            Route(f"{prefix}/models/{{model:path}}", pages.model, methods=["GET"]),
            Route(
                COUNT_TOKENS_PATH.replace("/v1", prefix, 1), pages.count_tokens, methods=["POST"]
            ),
        ]
    any_method = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    routes.append(Route("/{path:path}", pages.other, methods=any_method))
    return Starlette(routes=routes, lifespan=lifespan)


def _stored_routes(path: str, pages: Pages) -> list[Route]:
    return [
        Route(path, pages.response, methods=["GET", "DELETE"]),
        Route(f"{path}/input_items", pages.input_items, methods=["GET"]),
        Route(f"{path}/cancel", pages.cancel, methods=["POST"]),
    ]
