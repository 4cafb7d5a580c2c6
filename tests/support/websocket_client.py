"""A client of the Responses door over a WebSocket: sends `response.create` and collects the frames of each answer."""

import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from websockets.sync.client import ClientConnection, connect

Json = dict[str, Any]
PATIENCE = 60.0
LAST = ("response.completed", "response.failed", "response.incomplete", "error")


class SocketClient:
    """`model`: of every request that names none."""

    def __init__(self, connection: ClientConnection, model: str) -> None:
        self.connection = connection
        self.model = model

    def send(self, **fields: object) -> None:
        request: Json = {"type": "response.create", "model": self.model, "store": False, **fields}
        self.connection.send(json.dumps(request))

    def receive(self) -> Json:
        """The next frame, which is a JSON object in a text frame."""
        frame = self.connection.recv(timeout=PATIENCE)
        assert isinstance(frame, str)
        read: Json = json.loads(frame)
        return read

    def events(self) -> list[Json]:
        """The frames up to the end of the running answer; keep-alives are left out."""
        found: list[Json] = []
        while not found or found[-1]["type"] not in LAST:
            found.append(self.receive())
            if found[-1]["type"] == "keepalive":
                found.pop()
        return found

    def ask(self, **fields: object) -> list[Json]:
        self.send(**fields)
        return self.events()

    def answer(self, **fields: object) -> Json:
        """The response of an answer that is complete."""
        last = self.ask(**fields)[-1]
        assert last["type"] == "response.completed", last
        response: Json = last["response"]
        return response

    def error(self, **fields: object) -> Json:
        """The only frame of an answer, an error."""
        (frame,) = self.ask(**fields)
        assert frame["type"] == "error"
        assert frame["error"]["message"]
        assert isinstance(frame["error"]["code"], str)
        return frame


def socket_url(url: str) -> str:
    """The address of the Responses door. `url`: the gateway's, without a path."""
    return url.replace("http", "ws", 1) + "/v1/responses"


@contextmanager
def socket_client(url: str, model: str, **options: Any) -> Generator[SocketClient]:
    """`options`: of `websockets.connect`."""
    # `connect` also returns connections that are no context managers, which pyright cannot follow.
    connected = cast("Callable[..., AbstractContextManager[ClientConnection]]", connect)
    with connected(socket_url(url), max_size=None, open_timeout=PATIENCE, **options) as connection:
        yield SocketClient(connection, model)
