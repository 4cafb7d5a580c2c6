"""Ports that nobody else comes upon."""

import secrets
import socket
from contextlib import suppress

__all__ = ("free_port",)

_PORTS = range(20_000, 32_000)
"""Below those that systems give to servers which name none, and to connections: tests that run beside have plenty of both."""


def free_port() -> int:
    """A port of this machine on which nobody listens, now or later, but for whoever asked."""
    while True:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
