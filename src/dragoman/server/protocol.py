"""uvicorn's HTTP protocol, with a ceiling on a request's head, and a word when the client leaves.

ASGI tells that only to a task that waits for it, which costs every request; here it is a call.

The parser keeps a head until it is complete, however long that takes. A head that is a little too large gets its door's
own error from `limits`; one that goes on beyond the ceiling is cut off here, before more of it is kept.
"""

from collections.abc import Callable
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ("CEILING", "CONNECTION", "GatewayProtocol")

CONNECTION = "dragoman.connection"
"""Where a request's scope has its connection, until the exchange takes it out."""

# Far above any `server.max_header_bytes` in use, and little enough to be held by every connection at once.
CEILING = 1024 * 1024

_BODY = b'{"error":{"message":"expected a request head of at most 1048576 bytes; got more"}}'
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_BODY), _BODY)
)


class GatewayProtocol(HttpToolsProtocol):
    """One connection. `on_leave` is called when the client has gone; it belongs to the exchange at hand."""

    on_leave: Callable[[], None] | None = None
    _is_in_head = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > CEILING:
                self.transport.write(_REFUSAL)
                self.transport.close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[CONNECTION] = self

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_leave is not None:
            self.on_leave()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Not worth a warning: Codex asks for a WebSocket each time, and is told to do without."""
