"""Free ports for the servers of tests."""

import os
import secrets
import socket
from contextlib import suppress

_ALL = range(20_000, 32_000)
"""Below the ephemeral ports, which systems give to connections and to servers on port 0: parallel tests use many of both."""
_SHARES = 8
_PORTS = _ALL[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _SHARES :: _SHARES]
"""The ports of this test process: no other process takes a port between finding and using it."""


def free_port() -> int:
    """Return a random free port of this machine, one that no other test is likely to take."""
    while True:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
