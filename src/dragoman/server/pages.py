"""The endpoints that ask no model: models, token counts, stored responses, conversations, health, metrics, unknown paths.

Errors are written in the dialect that the path or the caller's headers indicate.
"""

import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Concatenate, Literal

from msgspec import structs
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from dragoman._json import dumps
from dragoman.core.failures import error_info, status_of
from dragoman.core.secrets import clean, redact
from dragoman.errors import GatewayError, StoreMissing
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect
from dragoman.offload import offload
from dragoman.server.catalog import dialect_of_caller, find_model, list_models
from dragoman.server.count_tokens import count_tokens
from dragoman.server.doors import COUNT_PATHS, DOORS, Door, door_of_path
from dragoman.server.gateway import Gateway
from dragoman.server.http.bodies import read_body
from dragoman.server.http.connection import Headers, line_bytes
from dragoman.server.http.headers import error_headers
from dragoman.server.inspect_pages import InspectPages
from dragoman.server.inspector_page import FOLDER as PAGE_FOLDER
from dragoman.server.inspector_page import PAGE_HEADERS, docs_files, page_files
from dragoman.server.limits import Forbidden, GatewayRefusal, check_head, check_json
from dragoman.state import conversations
from dragoman.state.endpoints import (
    cancel_response,
    delete_response,
    list_input,
    read_response,
)
from dragoman.state.managed_store import ManagedStore

_PATHS = (
    *DOORS,
    *COUNT_PATHS,
    "/v1/conversations",
    "/v1/models",
    "/v1/limits",
    "/v1/usage",
    "/healthz",
    "/readyz",
    "/metrics",
)
_HANDSHAKE = (
    "expected the handshake of a WebSocket: GET over HTTP/1.1 with Connection: Upgrade, Upgrade: websocket, "
    "Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key of 16 bytes"
)
_STORED = re.compile(r"(?:/v1)?/responses/[^/]+(?:/(input_items|cancel|submit_tool_outputs))?/?")
_CONVERSATION = re.compile(r"(?:/v1)?/conversations/[^/]+(/items(?P<item>/[^/]+)?)?/?")
_ANY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

# A readiness probe needs a short reason, not a log.
_MAX_PROBLEM = 400

_Page = Callable[[HttpRequest], Awaitable[Response]]
_Stored = Callable[Concatenate[ManagedStore, str, ...], Awaitable[Response]]
"""Answers for the store and the owner of what is stored. Then come the ids of the path, and the query or the body."""


class Pages:
    """The handlers of one gateway, as Starlette routes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[Route]:
        stored = "/responses/{response_id}"
        routes = [
            self._route("/healthz", self._health, is_public=True),
            self._route("/readyz", self._ready, is_public=True),
            self._route("/metrics", self._metrics),
            self._route("/", self._page, is_public=True),
            self._route(f"/{PAGE_FOLDER}/{{name}}", self._page, is_public=True),
            self._route(f"/{PAGE_FOLDER}/dialects/{{document}}", self._page, is_public=True),
        ]
        for prefix in ("/v1", ""):
            routes += self._conversation_routes(f"{prefix}/conversations")
            routes += [
                self._route(path.replace("/v1", prefix, 1), self._counts(dialect), "POST")
                for path, dialect in COUNT_PATHS.items()
            ]
            routes += [
                self._route(f"{prefix}/limits", self._limits),
                self._route(f"{prefix}/usage", self._usage),
                self._route(prefix + stored, self._stored(read_response, "query")),
                self._route(prefix + stored, self._stored(delete_response), "DELETE"),
                self._route(f"{prefix}{stored}/input_items", self._stored(list_input, "query")),
                self._route(f"{prefix}{stored}/cancel", self._stored(cancel_response), "POST"),
                self._route(f"{prefix}/models", self._models),
                self._route(f"{prefix}/models/{{model:path}}", self._model),
            ]
        routes += InspectPages(self._gateway).routes()
        routes.append(self._route("/{path:path}", self._other, *_ANY_METHOD, is_public=True))
        return routes

    def _conversation_routes(self, path: str) -> list[Route]:
        one = path + "/{conversation_id}"
        items, item = f"{one}/items", f"{one}/items/{{item_id}}"
        stored = self._stored
        return [
            self._route(path, stored(conversations.create_conversation, "body"), "POST"),
            self._route(one, stored(conversations.read_conversation)),
            self._route(one, stored(conversations.update_conversation, "body"), "POST"),
            self._route(one, stored(conversations.delete_conversation), "DELETE"),
            self._route(items, stored(conversations.add_items, "body"), "POST"),
            self._route(items, stored(conversations.list_conversation, "query")),
            self._route(item, stored(conversations.read_item)),
            self._route(item, stored(conversations.delete_item), "DELETE"),
        ]

    def _route(self, path: str, page: _Page, *methods: str, is_public: bool = False) -> Route:
        """`is_public`: callers without a key are served too."""
        serve = partial(self._serve, page, is_public)
        return Route(path, serve, methods=methods or ("GET",))

    async def _serve(self, page: _Page, is_public: bool, request: HttpRequest) -> Response:  # noqa: FBT001 - bound by `_route`
        headers = request.scope["headers"]
        gateway = self._gateway
        try:
            check_head(headers, gateway.settings.server.max_header_bytes, line_bytes(request.scope))
            if is_public:
                gateway.check_source(headers)
            else:
                gateway.identify(headers)
            response = await page(request)
        except GatewayRefusal as refusal:
            return self._error(request, error_info(refusal), refusal.headers)
        except GatewayError as error:
            return self._error(request, error_info(error))
        self._add_headers(request, response)
        return response

    def _stored(self, answer: _Stored, wants: Literal["", "query", "body"] = "") -> _Page:
        async def page(request: HttpRequest) -> Response:
            owner = self._owner(request)
            more: list[object] = list(request.path_params.values())
            if wants:
                more.append(request.query_params if wants == "query" else await self._body(request))
            return await answer(self._gateway.store, owner, *more)

        return page

    async def _body(self, request: HttpRequest) -> bytes:
        """The body of a request, within the limits.

        Raises:
            GatewayRefusal
        """
        server = self._gateway.settings.server
        body = await read_body(request.receive, request.scope["headers"], server.max_body_bytes)
        if body:
            await offload(
                len(body),
                check_json,
                body,
                max_depth=server.max_depth,
                max_values=server.max_values,
            )
        return body

    def _owner(self, request: HttpRequest) -> str:
        """The owner of the stored state that the caller may read.

        Raises:
            StoreMissing: this gateway stores nothing.
        """
        if not self._gateway.store.is_on:
            raise StoreMissing(
                "responses and conversations are not stored by this gateway (store.policy)"
            )
        return self._gateway.identify(request.scope["headers"]).owner

    async def _health(self, _request: HttpRequest) -> Response:
        """Reports that the process answers, and that it is this gateway and no other server."""
        return _json(200, b'{"status":"ok","server":"dragoman"}')

    async def _ready(self, _request: HttpRequest) -> Response:
        """Whether the gateway accepts new requests: not while it stops, nor if no upstream can answer."""
        if self._gateway.is_stopping:
            return _json(503, b'{"status":"stopping"}')
        upstreams = self._gateway.upstreams
        problems = upstreams.problems()
        # What cools down may answer the next request, here or at another node: that must not take the node out.
        resting = upstreams.resting(time.monotonic())
        # Without the store, the gateway still serves requests that do not need it.
        why_no_store = await self._gateway.store.check()
        if not problems and not resting and why_no_store is None:
            return _json(200, b'{"status":"ready"}')
        is_ready = len(problems) < len(upstreams.by_name)
        report: dict[str, object] = {"status": "ready" if is_ready else "unready"}
        if problems:
            report["upstreams"] = {
                name: clean(redact(why), _MAX_PROBLEM) for name, why in problems.items()
            }
        if resting:
            report["resting"] = resting
        if why_no_store is not None:
            report["store"] = clean(redact(why_no_store), _MAX_PROBLEM)
        return _json(200 if is_ready else 503, dumps(report))

    async def _models(self, request: HttpRequest) -> Response:
        headers = request.scope["headers"]
        gateway = self._gateway
        caller = gateway.identify(headers)
        listed = await gateway.models.listed(caller.key, caller.owner)
        dialect = dialect_of_caller(headers)
        allows = partial(gateway.named_keys.allows, caller.named) if caller.named else None
        page = list_models(gateway.settings, dialect, request.query_params, listed, allows=allows)
        return _json(200, page)

    async def _model(self, request: HttpRequest) -> Response:
        headers = request.scope["headers"]
        name: str = request.path_params["model"]
        self._gateway.named_keys.check_model(self._gateway.identify(headers).named, name)
        return _json(200, find_model(self._gateway.settings, dialect_of_caller(headers), name))

    def _counts(self, dialect: Dialect) -> _Page:
        async def page(request: HttpRequest) -> Response:
            headers = request.scope["headers"]
            limit = self._gateway.settings.server.max_body_bytes
            body = await read_body(request.receive, headers, limit)
            return await count_tokens(self._gateway, dialect, headers, body)

        return page

    async def _limits(self, _request: HttpRequest) -> Response:
        """The latest rate limits that each upstream has reported."""
        return _json(200, self._gateway.limits.page())

    async def _usage(self, request: HttpRequest) -> Response:
        """What each upstream was asked for, the latest rate limits that it has reported, and the usage of named keys.

        A named key sees only its own usage, unless it may inspect.
        """
        gateway = self._gateway
        caller = gateway.identify(request.scope["headers"])
        if not caller.is_operator:
            (own,) = await gateway.named_keys.usage([caller.named])
            return _json(200, dumps({"object": "usage", "key": own}))
        gateway.flush()
        report: dict[str, object] = {"object": "usage", **gateway.telemetry.usage()}
        if gateway.named_keys:
            report["keys"] = await gateway.named_keys.usage()
        return _json(200, dumps({**report, "limits": gateway.limits.entries()}))

    async def _metrics(self, request: HttpRequest) -> Response:
        if not self._gateway.settings.server.metrics:
            return self._error(request, _problem("metrics are switched off (server.metrics)", 404))
        if not self._gateway.identify(request.scope["headers"]).is_operator:
            raise Forbidden(
                "expected a key that may read the metrics of everyone (`inspect = true`, or one of server.api_keys)",
                code="metrics_not_allowed",
            )
        self._gateway.flush()
        self._gateway.limits.settle()
        content_type, text = self._gateway.telemetry.render()
        return Response(text, headers={"content-type": content_type})

    async def _page(self, request: HttpRequest) -> Response:
        """The inspector's page and its files. They contain no data, so everyone may have them who may ask at all."""
        document: str | None = request.path_params.get("document")
        if document is None:
            found = page_files().get(request.path_params.get("name", "index.html"))
        else:
            found = docs_files().get(document)
        if found is None or self._gateway.settings.inspect.capture == "off":
            return await self._other(request)
        return Response(found.data, headers={**PAGE_HEADERS, "content-type": found.content_type})

    async def _other(self, request: HttpRequest) -> Response:
        """Answers an unknown path, or a method that the path does not support."""
        path = request.url.path
        bare = path.rstrip("/")
        if bare in ("/v1/responses", "/responses") and "upgrade" in request.headers:
            # Codex first asks for a WebSocket. On 426 it falls back to HTTP at once, on any other status after seconds.
            is_served = self._gateway.settings.server.websocket
            message = _HANDSHAKE if is_served else "expected POST: WebSockets are not served here"
            response = self._error(request, _problem(message, 426))
            response.headers.update({"upgrade": "HTTP/1.1", "connection": "upgrade"})
            if is_served:  # RFC 6455, section 4.4
                response.headers.update({"upgrade": "websocket", "sec-websocket-version": "13"})
            return response
        stored, conversation = _STORED.fullmatch(path), _CONVERSATION.fullmatch(path)
        is_known = stored is not None or conversation is not None
        if not is_known and bare not in _PATHS and f"/v1{bare}" not in _PATHS:
            hint = (
                "; is `/v1` in the client's base URL twice?" if path.startswith("/v1/v1/") else ""
            )
            message = f"expected one of {', '.join(_PATHS)}; got {path[:200]}{hint}"
            return self._error(request, _problem(message, 404))
        response = self._error(request, _problem(f"{path} does not take {request.method}", 405))
        if stored is not None:
            allowed = {None: "GET, DELETE", "input_items": "GET"}.get(stored[1], "POST")
        elif conversation is not None:
            is_item = conversation["item"] is not None
            is_list = conversation[1] is not None and not is_item
            allowed = "GET, POST" if is_list else "GET, DELETE" if is_item else "GET, POST, DELETE"
        else:
            posts = (*DOORS, *COUNT_PATHS, "/v1/conversations")
            is_post = bare in posts or f"/v1{bare}" in posts
            allowed = "POST" if is_post else "GET"
        response.headers["allow"] = allowed
        return response

    def _error(self, request: HttpRequest, error: ErrorInfo, headers: Headers = ()) -> Response:
        request_id = self._gateway.mint_request_id(dict(request.scope["headers"]))
        error = structs.replace(error, request_id=request_id)
        response = _json(status_of(error), self._door(request).codec.encode_error(error))
        self._add_headers(request, response, request_id)
        _set_headers(response, (*headers, *error_headers(error)))
        return response

    def _door(self, request: HttpRequest) -> Door:
        """The door whose dialect the caller can read errors in."""
        path = request.url.path
        if "/models" in path:
            wanted = dialect_of_caller(request.scope["headers"])
            return next(door for door in DOORS.values() if door.dialect == wanted)
        if path.startswith(("/v1/conversations", "/conversations")):
            return DOORS["/v1/responses"]
        return door_of_path(path)

    def _add_headers(
        self, request: HttpRequest, response: Response, request_id: str | None = None
    ) -> None:
        headers = request.scope["headers"]
        request_id = request_id or self._gateway.mint_request_id(dict(headers))
        door = self._door(request)
        _set_headers(response, self._gateway.response_headers(door, request_id, headers))


def _set_headers(response: Response, headers: Headers) -> None:
    for name, value in headers:
        response.headers[name.decode("latin-1")] = value.decode("latin-1")


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")


def _problem(message: str, status: int) -> ErrorInfo:
    return ErrorInfo(
        kind="not_found" if status == 404 else "invalid_request", message=message, status=status
    )
