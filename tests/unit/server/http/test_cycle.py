"""What a connection has not sent yet, also if it was closed since the list of connections was made."""

import asyncio
import socket

from dragoman.server.http.cycle import unsent_bytes


def test_a_closed_connection_has_nothing_unsent() -> None:
    async def check() -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, sock=ours
            )
            transport.abort()
            await asyncio.sleep(0)
            ours.close()
            return unsent_bytes(transport)

    assert asyncio.run(check()) == 0
