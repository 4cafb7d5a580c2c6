"""The endpoints that are not conversations: models, token counts, health, metrics, and what is not there.

Errors are written in the dialect that the path, or the caller's headers, speak.
"""

import re
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from dragoman._json import dumps
from dragoman.core.failures import error_info, status_of
from dragoman.core.secrets import clean, redact
from dragoman.errors import GatewayError, StoreMissing
from dragoman.model.outcome import ErrorInfo
from dragoman.server.catalog import dialect_of_caller, find_model, list_models
from dragoman.server.count_tokens import count_tokens
from dragoman.server.doors import COUNT_TOKENS_PATH, DOORS, Door, door_of_path
from dragoman.server.gateway import Gateway
from dragoman.server.http.bodies import read_body
from dragoman.server.http.connection import Headers, line_bytes
from dragoman.server.http.headers import error_headers
from dragoman.server.limits import check_head
from dragoman.server.refusals import Refusal
from dragoman.state.endpoints import (
    cancel_response,
    delete_response,
    list_input,
    read_response,
)
from dragoman.state.managed_store import ManagedStore

_PATHS = (*DOORS, COUNT_TOKENS_PATH, "/v1/models", "/v1/limits", "/healthz", "/readyz", "/metrics")

_STORED = re.compile(r"(?:/v1)?/responses/[^/]+(?:/(input_items|cancel|submit_tool_outputs))?/?")

_Read = Callable[[ManagedStore, str, str, Mapping[str, str]], Awaitable[Response]]
_Change = Callable[[ManagedStore, str, str], Awaitable[Response]]

# Whoever asks whether we are ready wants a word, not a log.
_MAX_TROUBLE = 400


class Pages:
    """Handlers for Starlette."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def models(self, request: HttpRequest) -> Response:
        dialect = dialect_of_caller(request.scope["headers"])
        return await self._guarded(request, lambda: self._models(dialect, request.query_params))

    async def model(self, request: HttpRequest) -> Response:
        dialect = dialect_of_caller(request.scope["headers"])
        name: str = request.path_params["model"]
        return await self._guarded(request, lambda: self._model(dialect, name))

    async def count_tokens(self, request: HttpRequest) -> Response:
        return await self._guarded(request, lambda: self._count(request))

    async def limits(self, request: HttpRequest) -> Response:
        """What each upstream has last said of its rate limits."""
        return await self._guarded(request, self._limits)

    async def response(self, request: HttpRequest) -> Response:
        """A stored response: read, or deleted."""
        return await self._stored(request, delete_response if request.method == "DELETE" else None)

    async def cancel(self, request: HttpRequest) -> Response:
        return await self._stored(request, cancel_response)

    async def input_items(self, request: HttpRequest) -> Response:
        return await self._guarded(request, lambda: self._asking(request, list_input))

    async def _stored(self, request: HttpRequest, change: _Change | None) -> Response:
        if change is None:
            return await self._guarded(request, lambda: self._asking(request, read_response))
        return await self._guarded(
            request,
            lambda: change(
                self._gateway.store, self._owner(request), request.path_params["response_id"]
            ),
        )

    async def _asking(self, request: HttpRequest, read: _Read) -> Response:
        response_id: str = request.path_params["response_id"]
        return await read(
            self._gateway.store, self._owner(request), response_id, request.query_params
        )

    def _owner(self, request: HttpRequest) -> str:
        """Whose state is asked for.

        Raises:
            RequestRefused: none is kept here.
        """
        if not self._gateway.store.is_on:
            message = "responses are not stored by this gateway (store.policy)"
            raise StoreMissing(message)
        return self._gateway.identify(request.scope["headers"]).owner

    async def health(self, request: HttpRequest) -> Response:
        """Whether the process answers."""
        return await self._guarded(request, self._health, is_public=True)

    async def _health(self) -> Response:
        return _json(200, b'{"status":"ok"}')

    async def ready(self, request: HttpRequest) -> Response:
        """Whether new requests are welcome: not while the gateway stops, nor if no upstream can answer."""
        return await self._guarded(request, self._ready, is_public=True)

    async def _ready(self) -> Response:
        if self._gateway.is_stopping:
            return _json(503, b'{"status":"stopping"}')
        troubles = self._gateway.upstreams.troubles()
        # Without the store the requests that need none are served all the same.
        why_no_store = await self._gateway.store.check()
        if not troubles and why_no_store is None:
            return _json(200, b'{"status":"ready"}')
        is_ready = len(troubles) < len(self._gateway.upstreams.by_name)
        report: dict[str, object] = {"status": "ready" if is_ready else "unready"}
        if troubles:
            report["upstreams"] = {
                name: clean(redact(why), _MAX_TROUBLE) for name, why in troubles.items()
            }
        if why_no_store is not None:
            report["store"] = clean(redact(why_no_store), _MAX_TROUBLE)
        return _json(200 if is_ready else 503, dumps(report))

    async def metrics(self, request: HttpRequest) -> Response:
        return await self._guarded(request, lambda: self._metrics(request))

    async def other(self, request: HttpRequest) -> Response:
        """No such path, or not with this method."""
        return await self._guarded(request, lambda: self._other(request), is_public=True)

    async def _other(self, request: HttpRequest) -> Response:
        path = request.url.path
        if path.rstrip("/") in ("/v1/responses", "/responses") and "upgrade" in request.headers:
            # Codex asks for a WebSocket first; on 426 it turns to HTTP at once, on anything else after seconds.
            return self._error(
                request, _problem("expected POST: WebSockets are not served here", 426)
            )
        known = (
            path.rstrip("/") in _PATHS
            or f"/v1{path.rstrip('/')}" in _PATHS
            or _STORED.fullmatch(path) is not None
        )
        if known:
            return self._error(request, _problem(f"{path} does not take {request.method}", 405))
        hint = "; is `/v1` in the client's base URL twice?" if path.startswith("/v1/v1/") else ""
        message = f"expected one of {', '.join(_PATHS)}; got {path[:200]}{hint}"
        return self._error(request, _problem(message, 404))

    async def _guarded(
        self,
        request: HttpRequest,
        serve: Callable[[], Awaitable[Response]],
        *,
        is_public: bool = False,
    ) -> Response:
        """Serve callers with a key, or anyone; our own errors become answers."""
        headers = request.scope["headers"]
        try:
            limit = self._gateway.settings.server.max_header_bytes
            check_head(headers, limit, line_bytes(request.scope))
            if is_public:
                self._gateway.check_source(headers)
            else:
                self._gateway.identify(headers)
            response = await serve()
        except Refusal as refusal:
            return self._error(request, error_info(refusal), refusal.headers)
        except GatewayError as error:
            return self._error(request, error_info(error))
        self._add_headers(request, response)
        return response

    async def _models(self, dialect: str, query: Mapping[str, str]) -> Response:
        listed = list_models(self._gateway.settings, dialect, query)
        return Response(listed, media_type="application/json")

    async def _model(self, dialect: str, name: str) -> Response:
        found = find_model(self._gateway.settings, dialect, name)
        return Response(found, media_type="application/json")

    async def _count(self, request: HttpRequest) -> Response:
        headers = request.scope["headers"]
        limit = self._gateway.settings.server.max_body_bytes
        body = await read_body(request.receive, headers, limit)
        counted = await count_tokens(self._gateway, headers, body)
        return Response(
            counted.body, counted.status, dict(counted.headers), media_type="application/json"
        )

    async def _limits(self) -> Response:
        return Response(self._gateway.limits.page(), media_type="application/json")

    async def _metrics(self, request: HttpRequest) -> Response:
        if not self._gateway.settings.server.metrics:
            return self._error(request, _problem("metrics are switched off (server.metrics)", 404))
        self._gateway.flush()
        self._gateway.limits.settle()
        content_type, text = self._gateway.telemetry.render()
        return Response(text, headers={"content-type": content_type})

    def _error(self, request: HttpRequest, error: ErrorInfo, headers: Headers = ()) -> Response:
        door = self._door(request)
        status = status_of(error)
        response = _json(status, door.codec.encode_error(error))
        self._add_headers(request, response)
        for name, value in (*headers, *error_headers(error)):
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        if status == 405:
            path = request.url.path.rstrip("/")
            is_post = path in DOORS or f"/v1{path}" in DOORS or path.endswith("/count_tokens")
            stored = _STORED.fullmatch(path)
            if stored is not None:
                allowed = {None: "GET, DELETE", "input_items": "GET"}.get(stored[1], "POST")
                response.headers["allow"] = allowed
            else:
                response.headers["allow"] = "POST" if is_post else "GET"
        if status == 426:
            response.headers["upgrade"] = "HTTP/1.1"
            response.headers["connection"] = "upgrade"
        return response

    def _door(self, request: HttpRequest) -> Door:
        """Whose errors the caller understands."""
        path = request.url.path
        if "/models" in path:
            wanted = dialect_of_caller(request.scope["headers"])
            return next(door for door in DOORS.values() if door.dialect == wanted)
        return door_of_path(path)

    def _add_headers(self, request: HttpRequest, response: Response) -> None:
        headers = request.scope["headers"]
        request_id = self._gateway.mint_request_id(dict(headers))
        for name, value in self._gateway.response_headers(self._door(request), request_id, headers):
            response.headers[name.decode("latin-1")] = value.decode("latin-1")


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")


def _problem(message: str, status: int) -> ErrorInfo:
    return ErrorInfo(
        kind="not_found" if status == 404 else "invalid_request", message=message, status=status
    )
