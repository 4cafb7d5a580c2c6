"""uvicorn's HTTP protocol, with a ceiling on a request's head.

The parser keeps a head until it is complete, however long that takes. A head that is a little too large gets its door's
own error from `limits`; one that goes on beyond the ceiling is cut off here, before more of it is kept.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ("CEILING", "BoundedHeadProtocol")

# Far above any `server.max_header_bytes` in use, and little enough to be held by every connection at once.
CEILING = 1024 * 1024

_BODY = b'{"error":{"message":"expected a request head of at most 1048576 bytes; got more"}}'
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_BODY), _BODY)
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """One connection."""

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

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Not worth a warning: Codex asks for a WebSocket each time, and is told to do without."""
