"""An upstream over HTTP: the URL of a request in a dialect, its headers, and its timeouts.

Request bodies are sent unchanged; answers are bytes. This module does not know what the bytes mean, nor whether a failure
is worth another attempt (`retry.py`), nor sockets (`transport.py`).
"""

import os
import re
import ssl
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import structs

from dragoman.config.secrets import hidden_from_clients
from dragoman.config.settings import MODEL_PLACE, UpstreamSettings
from dragoman.core.secrets import Secrets
from dragoman.errors import ConfigError, RequestRefused, UpstreamError
from dragoman.model.parts import Dialect
from dragoman.upstream.base import (
    MODELS,
    CheckResult,
    UpstreamReply,
    UpstreamRequest,
    models_request,
)
from dragoman.upstream.http.connect import server_address
from dragoman.upstream.http.headers import (
    header_rules,
    request_headers,
    token_headers,
    usual_lines,
)
from dragoman.upstream.http.model_list import OfferedModel, read_model_list
from dragoman.upstream.http.token_command import TokenCommand
from dragoman.upstream.http.transport import Transport

if TYPE_CHECKING:
    from dragoman.upstream.http.websocket_pool import SocketPool

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")
_PATHS: Mapping[tuple[Dialect, str], str] = {
    ("chat", "generate"): "/chat/completions",
    ("responses", "generate"): "/responses",
    ("messages", "generate"): "/messages",
    ("responses", "count_tokens"): "/responses/input_tokens",
    ("messages", "count_tokens"): "/messages/count_tokens",
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, "token"
# Enough to read a server's message about a refused key; limits an endless answer.
_EXCERPT_BYTES = 4096
# Characters of a model's name in a path: as long as an ARN may be. Addresses are cached, here and by `urlsplit`.
_LONGEST_MODEL = 2048
_LONGEST_SHOWN = 64
# Resellers list hundreds of models with a description each.
_LIST_BYTES = 4 * 1024 * 1024


class HttpUpstream:
    """One server. Created anywhere; its connections belong to the event loop that first sends a request.

    key: the upstream's own key; None if it has none or passes on the client's.

    Raises:
        ConfigError: the address, the key or a header is invalid.
    """

    def __init__(self, name: str, settings: UpstreamSettings, *, key: str | None) -> None:
        kind = settings.kind
        if kind not in DIALECTS or kind == "codex":
            raise ConfigError(f"upstreams.{name}: {kind} is not a plain HTTP upstream")
        self.name = name
        self._settings = settings
        self._kind: Dialect = kind
        self._dialects = frozenset((kind, *settings.also))
        if settings.api_key == "client" == key:
            key = None
        self.secrets = self._own_secrets = hidden_from_clients(settings, key)
        self._tokens = (
            TokenCommand(name, settings.token_command) if settings.token_command else None
        )
        if self._tokens is not None:
            self._tokens.on_secrets = self._hide_tokens
        self._rules = {dialect: header_rules(settings, dialect, key) for dialect in DIALECTS}
        for field, value in {**settings.headers, "key": key or ""}.items():
            _check_header(name, field, value)
        self._urls = {
            (dialect, operation): url_for(name, settings, dialect, operation)
            for dialect, operation in _PATHS
        }
        self._stream_url: str | None = None
        if settings.stream_path is not None:
            streamed = structs.replace(settings, path=settings.stream_path)
            self._stream_url = url_for(name, streamed, kind, "generate")
        self._transport = Transport(name, settings, _tls_context(name, settings))
        self._sockets = self._socket_pool() if settings.websocket else None

    def _socket_pool(self) -> "SocketPool":
        # Most upstreams need no WebSockets, and the package for them takes long to import.
        from dragoman.upstream.http.websocket_pool import SocketPool  # noqa: PLC0415

        # `path` has no place for a model here: see `config.check`.
        url = self._urls["responses", "generate"]
        own_beta = self._rules["responses"].configured.get("openai-beta")
        return SocketPool(self.name, url, self._transport, own_beta=own_beta)

    def _hide_tokens(self, tokens: Secrets) -> None:
        self.secrets = self._own_secrets | tokens

    def dialect_for(self, door: Dialect) -> Dialect:
        return door if door in self._dialects else self._kind

    def url_of(self, dialect: Dialect, operation: str) -> str:
        return self._urls.get((dialect, operation), "")

    def send(
        self, request: UpstreamRequest, more: Mapping[str, str] | None = None
    ) -> Coroutine[object, object, UpstreamReply]:
        """As `Upstream.send`. `more`: headers of this request only; they win over all others."""
        if self._tokens is not None:
            return self._send_with_token(self._tokens, request, more or {})
        return self._send(request, more)

    def _send(
        self, request: UpstreamRequest, more: Mapping[str, str] | None
    ) -> Coroutine[object, object, UpstreamReply]:
        url = self._urls.get((request.dialect, request.operation))
        if url is not None and self._settings.path is not None:
            url = self._url_of_model(request, url)
        if self._sockets is not None and url is not None and _may_be_message(request):
            return self._send_message(self._sockets, url, request, more or {})
        lines = None if more else usual_lines(self._rules[request.dialect], request)
        if url is None or lines is None:
            return self._send_unusual(request, url, more or {})
        return self._transport.send("POST", url, lines, request.body)

    async def _send_with_token(
        self, tokens: TokenCommand, request: UpstreamRequest, more: Mapping[str, str]
    ) -> UpstreamReply:
        token = await tokens.current()
        reply = await self._send(request, {**token_headers(self._settings, token), **more})
        if reply.status != 401:
            return reply
        with ExitStack() as undo:
            undo.callback(reply.close)
            renewed = await tokens.renewed(token)
            if renewed is None:
                undo.pop_all()
                return reply
        return await self._send(request, {**token_headers(self._settings, renewed), **more})

    def _url_of_model(self, request: UpstreamRequest, url: str) -> str:
        """The URL with the model of a request in its path.

        Raises:
            RequestRefused: the model's name would change the path, or is longer than any name.
        """
        if request.operation != "generate":
            return url
        if request.stream and self._stream_url is not None:
            url = self._stream_url
        if request.model in (".", "..") or len(request.model) > _LONGEST_MODEL:
            shown = request.model[:_LONGEST_SHOWN]
            raise RequestRefused(f"expected the name of a model, got {shown!r}", param="model")
        return url.replace(MODEL_PLACE, quote(request.model, safe="@", errors="replace"))

    async def _send_unusual(
        self, request: UpstreamRequest, url: str | None, more: Mapping[str, str]
    ) -> UpstreamReply:
        method = "POST"
        if request.operation == MODELS:
            method, url = "GET", url_for(self.name, self._settings, request.dialect, MODELS)
        if url is None:
            raise UpstreamError(
                f"upstream {self.name!r} has no {request.operation!r} in the dialect {request.dialect!r}"
            )
        headers = request_headers(self._rules[request.dialect], request)
        headers.update(more)
        lines = self._transport.lines(headers)
        return await self._transport.send(method, url, lines, request.body)

    async def _send_message(
        self, sockets: "SocketPool", url: str, request: UpstreamRequest, more: Mapping[str, str]
    ) -> UpstreamReply:
        headers = request_headers(self._rules[request.dialect], request)
        headers.update(more)
        lines = self._transport.lines(headers)
        by_http = partial(self._transport.send, "POST", url, lines, request.body)
        return await sockets.send(request.body, headers, by_http)

    async def check(self, more: Mapping[str, str] | None = None) -> CheckResult:
        """Ask for the list of models: the cheapest request that shows whether the address and the key work."""
        try:
            # The first read is enough to judge by.
            status, body = await self._list_models(more or {}, limit=1)
        except UpstreamError as error:
            return CheckResult(ok=False, status=None, detail=error.whole)
        excerpt = self.secrets.hide_bytes(body)[:_EXCERPT_BYTES]
        brings_key = self._settings.api_key == "client"
        found = _judge(status, excerpt, brings_key=brings_key)
        if self._sockets is None or not found.ok:
            return found
        asked = models_request(self._kind)
        headers = request_headers(self._rules[self._kind], asked) | dict(more or {})
        opened = await self._sockets.check(headers)
        return structs.replace(found, detail=f"{found.detail}; {opened}")

    async def models(self) -> tuple[OfferedModel, ...]:
        """The models that the server lists; none if it has no list.

        Raises:
            UpstreamError: it cannot be reached, or refuses the request.
        """
        status, body = await self._list_models({}, limit=_LIST_BYTES)
        if status in (404, 405):
            return ()
        if status >= 400:
            found = _judge(status, self.secrets.hide_bytes(body)[:_EXCERPT_BYTES], brings_key=False)
            raise UpstreamError(f"upstream {self.name!r}: {found.detail}")
        return read_model_list(body)

    async def _list_models(self, more: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """The status and the body of the list; reading ends when there are `limit` bytes."""
        reply = await self.send(models_request(self._kind), more)
        try:
            pieces: list[bytes] = []
            size = 0
            while size < limit and (data := await reply.read()):
                pieces.append(data)
                size += len(data)
        finally:
            reply.close()
        return reply.status, b"".join(pieces)

    async def close(self) -> None:
        if self._sockets is not None:
            self._sockets.close()
        if self._tokens is not None:
            await self._tokens.close()
        await self._transport.close()


def _may_be_message(request: UpstreamRequest) -> bool:
    """Whether a WebSocket can carry a request: it carries responses, and streams all of them."""
    return request.stream and request.dialect == "responses" and request.operation == "generate"


def url_for(name: str, settings: UpstreamSettings, dialect: Dialect, operation: str) -> str:
    """The URL of an operation: `base_url`, the operator's or the dialect's path, and the queries of both.

    Anthropic's base URL has no version in its path and OpenAI's has one: `/v1` is added or left out accordingly.
    """
    place = server_address(settings.base_url, f"upstreams.{name}.base_url")
    if place.credentials is not None:
        raise ConfigError(
            f"upstreams.{name}.base_url: expected no user and password in the address;"
            " use api_key, api_key_env or headers"
        )
    parts = urlsplit(settings.base_url)
    base = parts.path.rstrip("/")
    own = settings.path if operation == "generate" else None
    if own is None and "messages" in (dialect, settings.kind) and not base.endswith("/v1"):
        base += "/v1"
    path = "/models" if operation == MODELS else own or _PATHS[dialect, operation]
    query = [*parse_qsl(parts.query, keep_blank_values=True), *settings.query.items()]
    return urlunsplit((parts.scheme, parts.netloc, base + path, urlencode(query), ""))


def _tls_context(name: str, settings: UpstreamSettings) -> ssl.SSLContext | None:
    """None for plain HTTP: reading the system's certificates takes longer than the rest of the start.

    OpenSSL reads `SSL_CERT_FILE` and `SSL_CERT_DIR` itself, but ignores a file that it cannot read.
    """
    if not settings.base_url.startswith("https:"):
        return None
    where, file = f"upstreams.{name}.ca_file", settings.ca_file
    if file is None and os.environ.get("SSL_CERT_FILE"):
        where, file = "SSL_CERT_FILE", os.environ["SSL_CERT_FILE"]
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.ca_file is None and file is not None:
            context.load_verify_locations(cafile=file)
    except OSError as error:  # includes SSLError
        raise ConfigError(
            f"{where}: expected a file of certificates in PEM, {file!r} cannot be used: {error}"
        ) from error
    return context


def _check_header(name: str, field: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(field):
        raise ConfigError(f"upstreams.{name}.headers: expected a header name, got {field!r}")
    if not value.isprintable() or not value.isascii():
        raise ConfigError(
            f"upstreams.{name}: expected printable ASCII in {field!r}, got another character"
            " (a line end at the end of a key is the usual one)"
        )


def _judge(status: int, excerpt: bytes, *, brings_key: bool) -> CheckResult:
    if status in (401, 403):
        if brings_key:
            return CheckResult(ok=True, status=status, detail="reached; clients bring the key")
        return CheckResult(ok=False, status=status, detail=f"the key was refused: {_text(excerpt)}")
    if status in (404, 405):
        return CheckResult(ok=True, status=status, detail="reached; it does not list its models")
    if status >= 400:
        return CheckResult(
            ok=False, status=status, detail=f"it answered {status}: {_text(excerpt)}"
        )
    return CheckResult(ok=True, status=status, detail="reached")


def _text(excerpt: bytes) -> str:
    return " ".join(excerpt.decode("utf-8", "replace").split())[:200]
