"""A server that is reached by streamable HTTP, through the SDK's transport; bounds and waiting times are set here."""

import os
from collections.abc import AsyncIterator, Mapping

import httpx2
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client

from dragoman.engine.mcp.ending import MAX_MESSAGE_BYTES, Ending
from dragoman.engine.mcp.settings import McpServerSettings, check_header_value
from dragoman.errors import ConfigError

__all__ = ("http_client", "http_headers", "open_http")

CONNECT_SECONDS = 10.0
# Said to a server when we leave; one that does not answer is left all the same.
GOODBYE_SECONDS = 2.0
# The SDK sends nothing else until a notification is acknowledged, which takes a server no work.
NOTICE_SECONDS = 10.0
_NOTICE = b'{"jsonrpc":"2.0","method":"notifications/'
# Beyond the time of a call: the call's own limit is the one that is told.
CALL_GRACE = 30.0


def http_headers(settings: McpServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request to it.

    Raises:
        ConfigError: a variable that holds one is not set, or holds what no header can.
    """
    headers = dict(settings.headers)
    for header, name in settings.headers_from.items():
        if name not in environ:
            raise ConfigError(f"the environment variable {name} is not set")
        check_header_value(header, environ[name], "headers_from")
        headers[header] = environ[name]
    return headers


def http_client(
    settings: McpServerSettings, ending: Ending, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """A client for one server, to be entered and left by its owner. `ending` is told of refusals."""
    address = httpx2.URL(settings.url)
    headers = http_headers(settings, os.environ)
    # packed bodies could be of any size once unpacked
    headers["accept-encoding"] = "identity"

    async def note_refusal(response: httpx2.Response) -> None:
        # the SDK tells that there was one, and not which; a GET may be refused by a server that has no news to tell
        request = response.request
        is_login = request.url.host != address.host or request.url.path != address.path
        if not response.is_error or request.method != "POST" or is_login:
            return
        ending.status = response.status_code
        # by the protocol this status means that, whatever the body says
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            ending.is_forgotten = True

    return httpx2.AsyncClient(
        headers=headers,
        auth=auth,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=settings.call_timeout + CALL_GRACE),
        event_hooks={"request": [_set_times], "response": [note_refusal, _bound]},
    )


def open_http(settings: McpServerSettings, client: httpx2.AsyncClient) -> Transport:
    return streamable_http_client(
        settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
    )


async def _set_times(request: httpx2.Request) -> None:
    times = dict(request.extensions.get("timeout") or {})
    if request.method == "GET":  # the stream of news, which may have none for days
        times["read"] = None
    elif request.method == "POST" and request.content.startswith(_NOTICE):
        times["read"] = NOTICE_SECONDS
    elif request.method == "DELETE":
        times = dict.fromkeys(("connect", "read", "write", "pool"), GOODBYE_SECONDS)
    request.extensions = {**request.extensions, "timeout": times}


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise httpx2.RemoteProtocolError(
            "expected a body that is not packed", request=response.request
        )
    # events have the SDK's own bound
    if not response.headers.get("content-type", "").startswith("text/event-stream") and isinstance(
        response.stream, httpx2.AsyncByteStream
    ):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """A body that may not be longer than a message."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for data in self._stream:
            count += len(data)
            if count > MAX_MESSAGE_BYTES:
                # the kind of error that the SDK answers to the call that waits
                raise httpx2.StreamError(f"a message of more than {MAX_MESSAGE_BYTES // 2**20} MiB")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()
