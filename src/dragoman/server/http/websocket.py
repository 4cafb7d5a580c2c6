"""uvicorn's WebSocket protocol, behind our HTTP protocol: limits, frames without ASGI, a shutdown that waits for responses.

`websockets` reads and writes the frames. Its own reading of the handshake allows fewer and shorter headers than
`server.max_header_bytes`, and answers some mistakes with 400, on which Codex gives up instead of falling back to HTTP. So
`protocol.GatewayProtocol` checks the request (`asks_for_websocket`) and passes on only what the handshake needs.
"""

import logging
import re
from collections.abc import Collection
from typing import cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from dragoman.config.settings import ServerSettings
from dragoman.gateway.answer import Pending
from dragoman.server.http.cycle import unsent_bytes

TEXTS = "dragoman.texts"
"""The extension of the ASGI scope with which a session sends several frames at once, and without awaiting."""

WEBSOCKET_ROOM = 2
"""A message of up to so many times `max_body_bytes` is read to its end, so that its sender gets an error; a larger one ends
the connection with code 1009."""

# RFC 6455, section 4.1: sixteen bytes in base64.
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
_LINGER = 5.0  # seconds for a client to answer our close

_DEFAULTS = ServerSettings()
_logger = logging.getLogger(__name__)
_logger.setLevel(
    logging.WARNING
)  # uvicorn logs each connection as INFO; our log has a line for each response


def asks_for_websocket(headers: Collection[tuple[bytes, bytes]]) -> bool:
    """Whether these headers are a correct WebSocket handshake."""
    found = dict(headers)
    return (
        found.get(b"upgrade", b"").strip().lower() == b"websocket"
        and _KEY.fullmatch(found.get(b"sec-websocket-key", b"").strip()) is not None
        and found.get(b"sec-websocket-version", b"").strip() == b"13"
    )


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection. The session that serves it (`server.websocket`) ends it at a shutdown."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, object]
    ) -> None:
        super().__init__(config, server_state, app_state)
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType] -- uvicorn does not type it
        self._limits: ServerSettings = getattr(app, "limits", _DEFAULTS)
        self.logger = _logger
        self.close_timeout = _LINGER
        self._headers: list[tuple[bytes, bytes]] = []
        self._unread = 0  # unread bytes at the last check, and the time of their last decrease
        self._unread_since = 0.0

    def begin(self, url: bytes, headers: list[tuple[bytes, bytes]], data: bytes) -> None:
        """Start with a request that `GatewayProtocol` has read. `data`: what came behind its head."""
        self._headers = headers
        found = dict(headers)
        key = found[b"sec-websocket-key"].strip()
        self.data_received(
            b"GET %b HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n"
            % (url.partition(b"?")[0], key)
        )
        if data:
            self.data_received(data)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        self.scope["headers"] = self._headers
        self._headers = []
        own: dict[object, object] = {"send": self.send_texts}
        self.scope["extensions"] = {**(self.scope.get("extensions") or {}), TEXTS: own}

    def send_texts(self, frames: list[bytes]) -> Pending:
        """Send text frames, in one write. Nothing is sent to a client that has left: the session learns of it by ASGI."""
        if self.disconnected or self.close_sent or self.transport.is_closing():
            return None
        for frame in frames:
            self.conn.send_text(frame)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return None if self.writable.is_set() else self._drain

    async def _drain(self) -> None:
        await self.writable.wait()

    def shutdown(self) -> None:
        """Called when the server stops: the session closes an open connection when its responses have ended."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()

    def check_times(self, now: float) -> None:
        """Cut off a client that has read nothing for `send_timeout`. To a client that is gone, pings stay unread."""
        if self.transport.is_closing():  # the list of connections to check may be a second old
            return
        unread = self.transport.get_write_buffer_size() + unsent_bytes(self.transport)
        if not unread or not self._unread or unread < self._unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since >= self._limits.send_timeout:
            self.logger.warning(
                "cut off a WebSocket client that read nothing for %g s (server.send_timeout)",
                self._limits.send_timeout,
            )
            self.transport.abort()
