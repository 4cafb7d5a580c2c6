"""The endpoints of the inspector, `/v1/inspect/…`; `docs/inspector.md` describes them.

They show the requests and answers of all callers, so they are protected more strictly than the doors. Without keys, the gateway serves
only requests for this machine's own names, from programs or from its own page. With keys, it serves only keys that may inspect.
It serves no other origin, whatever `server.cors_origins` says, and no answer has CORS headers. Endpoints that change something need a
request that a page of another site cannot send.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from importlib.metadata import version
from io import BytesIO
from random import getrandbits
from zipfile import ZIP_DEFLATED, ZipFile

from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dragoman._json import as_object, dumps_document, loads
from dragoman.config.secrets import mask_url
from dragoman.core.failures import error_info, status_of
from dragoman.core.secrets import Secrets, clean, redact
from dragoman.errors import GatewayError, MalformedJson, RequestRefused
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_files import to_files
from dragoman.inspection.exchange_form import ExchangeReport
from dragoman.inspection.exchange_report import to_json
from dragoman.inspection.receipt import receipt_of
from dragoman.inspection.redaction import redact_exchange
from dragoman.inspection.replay import request_again
from dragoman.recordings import recording_name
from dragoman.server.access import Caller, Hosts
from dragoman.server.connect import CLIENTS, access_of, snippet
from dragoman.server.doors import DOORS
from dragoman.server.gateway import Gateway
from dragoman.server.http.bodies import read_body
from dragoman.server.http.connection import line_bytes
from dragoman.server.inspector import Follower
from dragoman.server.inspector_page import export_page, without_contents
from dragoman.server.limits import Forbidden, check_head
from dragoman.server.observe.capture import ExchangeCapture
from dragoman.sse import encode_frame

PREFIX = "/v1/inspect"

_Page = Callable[[HttpRequest], Awaitable[Response]]

# Rows in one answer of the list; a page shows a few dozen, and asks again when a person scrolls.
_MAX_ROWS = 500
_USUAL_ROWS = 100
_PING_SECONDS = 15.0
_MAX_POST = 64 * 1024  # bytes: a switch, or the names of an upstream and a model
_MAX_PROBLEM = 400
_SAME_ORIGIN = re.compile(rb"https?://([^/]+)")
_ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class InspectPages:
    """The handlers of one gateway, as Starlette routes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._inspector = gateway.inspector
        self._own_names = Hosts()

    def routes(self) -> list[Route]:
        one = f"{PREFIX}/requests/{{id:path}}"
        return [
            self._route(PREFIX, self._state),
            self._route(f"{PREFIX}/requests", self._list),
            self._route(f"{PREFIX}/events", self._events),
            self._route(f"{PREFIX}/capture", self._switch, "POST"),
            self._route(f"{one}/export", self._export),
            self._route(f"{one}/receipt", self._receipt, is_own=True),
            self._route(f"{one}/case", self._case),
            self._route(f"{one}/replay", self._replay, "POST"),
            self._route(one, self._read),
            Route(f"{PREFIX}{{rest:path}}", _unknown, methods=_ANY_METHOD),
        ]

    # --- who may -----------------------------------------------------------------------------------------------------------

    def _route(self, path: str, page: _Page, method: str = "GET", *, is_own: bool = False) -> Route:
        """`is_own`: the page itself checks that callers read only their own exchanges."""

        async def serve(request: HttpRequest) -> Response:
            try:
                self._check(request)
                self.check_right(request, is_own=is_own)
                return _guarded(await page(request))
            except GatewayError as error:
                return _error(error)

        return Route(path, serve, methods=(method,))

    def _check(self, request: HttpRequest) -> None:
        """
        Raises:
            Forbidden: the request comes from a page of another origin.
        """
        headers: list[tuple[bytes, bytes]] = request.scope["headers"]
        settings = self._gateway.settings
        check_head(headers, settings.server.max_header_bytes, line_bytes(request.scope))
        if settings.inspect.capture == "off":
            raise Forbidden("the inspector is switched off (inspect.capture)", code="inspect_off")
        by_name = dict(headers)
        host, origin = by_name.get(b"host", b""), by_name.get(b"origin")
        site = by_name.get(b"sec-fetch-site")
        if origin is not None:
            match = _SAME_ORIGIN.fullmatch(origin)
            if match is None or match[1].lower() != host.lower():
                raise _foreign(f"got one from {clean(origin.decode('latin-1'), 100)}")
        if site not in (None, b"same-origin", b"none"):
            raise _foreign(f"got one whose Sec-Fetch-Site is {clean(site.decode('latin-1'), 20)}")
        if request.method == "POST":
            is_marked = origin is not None or site == b"same-origin"
            if not is_marked and self._gateway.keys.is_open:
                raise _foreign("got one without Origin and without Sec-Fetch-Site: same-origin")
            kind = by_name.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                raise RequestRefused("expected the content type application/json")

    def check_right(self, request: HttpRequest, *, is_own: bool = False) -> Caller:
        """The caller, if it may inspect the requests of all callers. With `is_own`, any caller with a key.

        Raises:
            Forbidden: the caller may not. Unauthorized: there is no such key.
        """
        headers: list[tuple[bytes, bytes]] = request.scope["headers"]
        if self._gateway.keys.is_open:
            host = dict(headers).get(b"host", b"")
            if not self._own_names.allows(host):
                raise Forbidden(
                    "expected a request for localhost or 127.0.0.1: elsewhere the inspector needs api_keys in [inspect]; "
                    f"got one for {clean(host.decode('latin-1'), 100)}",
                    code="foreign_host",
                )
        caller = self._gateway.identify(headers)
        if not is_own and not self._may_inspect(caller):
            raise Forbidden(
                "expected a key that may inspect (inspect.api_keys, or `inspect = true` of a named key); this one may not",
                code="inspect_not_allowed",
            )
        return caller

    def _may_inspect(self, caller: Caller) -> bool:
        return self._gateway.keys.is_open or caller.may_inspect

    # --- pages -------------------------------------------------------------------------------------------------------------

    async def _state(self, request: HttpRequest) -> Response:
        gateway = self._gateway
        settings = gateway.settings
        url = f"{request.url.scheme}://{request.headers.get('host') or request.url.netloc}"
        access = access_of(settings, url)
        return _json(
            {
                "capture": self._capture_state(),
                "gateway": {
                    "version": version("dragoman"),
                    "address": url,
                    "started_at": gateway.started_at,
                    "stores": gateway.is_storing,
                    "workers": settings.server.workers,
                },
                "upstreams": self._upstreams(),
                "routes": [
                    {
                        "model": route.model,
                        "upstreams": [
                            route.upstream,
                            *(entry.partition("=")[0] for entry in route.fallback),
                        ],
                    }
                    for route in settings.routes
                ],
                "connect": [
                    {"client": guide.title, "text": snippet(name, access)}
                    for name, guide in CLIENTS.items()
                ],
            }
        )

    def _capture_state(self) -> dict[str, object]:
        return {**self._inspector.state(), "can_switch": True}

    def _upstreams(self) -> list[dict[str, object]]:
        upstreams = self._gateway.upstreams
        down = upstreams.problems()
        found: list[dict[str, object]] = []
        resting = upstreams.resting(time.monotonic())
        for name, settings in self._gateway.settings.upstreams.items():
            for peer in upstreams.peers[name]:
                last_used_at, error = self._inspector.last_use.get(peer, (None, ""))
                problem = down.get(peer) or error
                state = "failing" if problem else "unknown" if last_used_at is None else "ok"
                upstream = upstreams.by_name[peer]
                dialect = upstream.dialect_for("chat")
                found.append(
                    {
                        "name": peer,
                        "upstream": name,
                        "kind": settings.kind,
                        "dialect": dialect,
                        "address": mask_url(upstream.url_of(dialect, "generate")),
                        "state": "resting" if peer in resting else state,
                        "health": resting.get(peer),
                        "last_error": None if not problem else clean(redact(problem), _MAX_PROBLEM),
                        "last_used_at": last_used_at,
                    }
                )
        return found

    async def _list(self, request: HttpRequest) -> Response:
        query = request.query_params
        text = query.get("limit", str(_USUAL_ROWS))
        limit = int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else 0
        if not 1 <= limit <= _MAX_ROWS:
            raise RequestRefused(f"limit: expected a number from 1 to {_MAX_ROWS}", param="limit")
        rows, has_more = self._inspector.summaries(limit, query.get("before"))
        return _json({"data": rows, "has_more": has_more})

    async def _read(self, request: HttpRequest) -> Response:
        data = await self._inspector.describe(self._find(request), to_json)
        return Response(data, media_type="application/json")

    async def _export(self, request: HttpRequest) -> Response:
        """The exchange as one HTML file; with `contents=false`, without what people, models and tools wrote."""
        has_contents = request.query_params.get("contents") != "false"
        write = partial(_export, has_contents=has_contents)
        exported = await self._inspector.describe(self._find(request), write)
        return Response(
            exported,
            headers={
                "content-type": "text/html; charset=utf-8",
                # The browser must save the file: if it opened it here, it would be a page of the gateway's own origin.
                "content-disposition": "attachment; filename=exchange.html",
                "content-security-policy": "sandbox",
            },
        )

    def _find(self, request: HttpRequest) -> ExchangeCapture:
        id_: str = request.path_params["id"]
        capture = self._inspector.find(id_)
        if capture is None:
            raise _not_found(id_)
        return capture

    async def _receipt(self, request: HttpRequest) -> Response:
        """The receipt of an exchange, for those who may inspect and for the caller whose exchange it was."""
        caller = self.check_right(request, is_own=True)
        id_: str = request.path_params["id"]
        found = self._inspector.find_receipt(id_)
        if found is not None and (self._may_inspect(caller) or caller.owner == found[1]):
            return _json(found[0])
        capture = self._inspector.find(id_) if self._may_inspect(caller) else None
        if capture is None:
            raise _not_found(id_)
        return _json(await self._inspector.derive(receipt_of, capture.recorded()))

    async def _case(self, request: HttpRequest) -> Response:
        """The exchange as a folder of test cases, in a zip file."""
        capture = self._find(request)
        exchange, secrets = capture.recorded(), self._inspector.secrets_of(capture)
        data = await self._inspector.derive(_zipped, exchange, secrets)
        name = f'attachment; filename="{recording_name(exchange)}.zip"'
        return Response(data, media_type="application/zip", headers={"content-disposition": name})

    async def _replay(self, request: HttpRequest) -> Response:
        """Send a captured request again, perhaps to another upstream, for another model, or in another dialect."""
        capture = self._find(request)
        if not self._inspector.is_on:
            raise RequestRefused("expected the capture to be on: the answer is only seen there")
        fields = await self._posted(request)
        upstream, model, dialect = (
            _text(fields, name) for name in ("upstream", "model", "dialect")
        )
        if upstream is not None and upstream not in self._gateway.upstreams.peers:
            raise RequestRefused(f"upstream: no upstream is called {clean(upstream, 100)!r}")
        exchange = capture.recorded()
        if exchange.is_truncated:
            raise RequestRefused("expected a request that was captured whole")
        door = next(
            (each for each in DOORS.values() if each.dialect == (dialect or exchange.dialect)), None
        )
        if door is None:
            raise RequestRefused(f"dialect: expected a dialect that clients speak, got {dialect!r}")
        body = await self._inspector.derive(request_again, exchange, door.dialect, model)
        own = f"req_{getrandbits(96):024x}"
        keys = (b"authorization", b"x-api-key", b"api-key", b"host")
        headers = [pair for pair in request.scope["headers"] if pair[0] in keys]
        headers += [(b"x-request-id", own.encode()), (b"content-type", b"application/json")]
        self._gateway.replay(door, headers, body, upstream)
        return _json({"id": own})

    async def _switch(self, request: HttpRequest) -> Response:
        fields = await self._posted(request)
        on = fields.get("on")
        if not isinstance(on, bool):
            raise RequestRefused("on: expected true or false", param="on")
        self._inspector.switch(on=on)
        return _json(self._capture_state())

    async def _posted(self, request: HttpRequest) -> dict[str, object]:
        """The members of a small JSON object."""
        body = await read_body(request.receive, request.scope["headers"], _MAX_POST)
        try:
            return {name: loads(value) for name, value in as_object(body).items()}
        except MalformedJson as error:
            raise RequestRefused(f"expected a JSON object: {error.message}") from error

    async def _events(self, request: HttpRequest) -> Response:
        del request
        follower = self._inspector.follow()
        if follower is None:
            raise Forbidden("too many pages follow the events of this gateway", code="too_many")
        return StreamingResponse(
            self._stream(follower), media_type="text/event-stream; charset=utf-8"
        )

    async def _stream(self, follower: Follower) -> AsyncGenerator[bytes]:
        """The events, until the reader leaves or the gateway stops. A reader that missed events gets the state again."""
        try:
            yield _event("capture", self._capture_state())
            while True:
                try:
                    async with asyncio.timeout(_PING_SECONDS):
                        entry = await follower.queue.get()
                except TimeoutError:
                    yield _event("ping", {})
                    continue
                if entry is None:
                    return
                name, data = entry
                if name == "capture":
                    data = self._capture_state()
                yield _event(name, data)
                if follower.missed and follower.queue.empty():
                    missed, follower.missed = follower.missed, 0
                    yield _event("capture", {**self._capture_state(), "missed": missed})
        finally:
            self._inspector.leave(follower)


async def _unknown(request: HttpRequest) -> Response:
    """Answer any other path below the prefix, or any other method, without the CORS headers of the doors."""
    error = RequestRefused(f"{clean(request.url.path, 200)} does not take {request.method}")
    error.kind, error.status = "not_found", 404
    return _error(error)


def _text(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestRefused(f"{name}: expected a string", param=name)
    return value


def _export(report: ExchangeReport, *, has_contents: bool) -> bytes:
    shown = report if has_contents else without_contents(report)
    return export_page(f"{shown.summary.model} {shown.summary.id}", (shown,))


def _zipped(exchange: RecordedExchange, secrets: Secrets) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name, data in to_files(redact_exchange(exchange, secrets)).items():
            archive.writestr(f"{recording_name(exchange)}/{name}", data)
    return buffer.getvalue()


def _event(name: str, data: object) -> bytes:
    return encode_frame(dumps_document(data), name.encode("ascii"))


def _json(value: object) -> Response:
    return Response(dumps_document(value), media_type="application/json")


def _guarded(response: Response) -> Response:
    response.headers.update(_HEADERS)
    return response


def _error(error: GatewayError) -> Response:
    info = error_info(error)
    body = DOORS["/v1/chat/completions"].codec.encode_error(info)
    return _guarded(Response(body, status_of(info), media_type="application/json"))


def _foreign(got: str) -> Forbidden:
    return Forbidden(
        f"expected a request of a program, or of the gateway's own page; {got}",
        code="foreign_origin",
    )


def _not_found(id_: str) -> RequestRefused:
    error = RequestRefused(
        f"no captured request has the id {clean(id_, 100)!r}; it was not captured, or there was no room for it any more",
        code="not_captured",
    )
    error.kind, error.status = "not_found", 404
    return error
