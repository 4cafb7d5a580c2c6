"""A connection under an ASGI server that raises when its client has left, as the specification wants."""

import asyncio
import json
import logging

import pytest
from starlette.types import Message, Scope

from dragoman.config.settings import Settings
from dragoman.server.app import create_app

BODY = json.dumps(
    {
        "model": "rehearsal-slow",
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }
).encode()
SCOPE: Scope = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.4"},
    "http_version": "1.1",
    "method": "POST",
    "path": "/v1/chat/completions",
    "raw_path": b"/v1/chat/completions",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
    "scheme": "http",
}


@pytest.mark.parametrize("received", [0, 1, 3])
def test_a_client_that_leaves_is_no_error_of_the_gateway(
    received: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve() -> None:
        app = create_app(Settings())
        has_left = asyncio.Event()
        requests = [{"type": "http.request", "body": BODY, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if len(sent) == received:
                has_left.set()
                raise OSError("the client has left")
            sent.append(message)

        async with asyncio.timeout(5):
            await app(SCOPE, receive, send)
        await app.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(serve())
    lines = [record for record in caplog.records if record.name.startswith("dragoman")]
    assert [line.levelname for line in lines] == ["WARNING"]
    assert "client left" in lines[0].getMessage()
