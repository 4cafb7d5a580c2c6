"""What a test talks to: an address for the client, the model that is behind it, and the way between them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clients.model import Model
from clients.script import Dialect

__all__ = ("DIRECT", "KEY", "PROMPT", "Stack")

DIRECT = "direct"
KEY = "sk-of-the-client"
PROMPT = "What is the weather like?"


@dataclass(frozen=True)
class Stack:
    """`route` is the dialect that the gateway speaks with the model, or DIRECT: there is no gateway."""

    model: Model
    url: str
    route: str

    @property
    def is_direct(self) -> bool:
        return self.route == DIRECT

    def to(self, door: Dialect) -> Dialect:
        """The dialect in which the model is asked when the client speaks `door`."""
        match self.route:
            case "chat" | "responses" | "messages":
                return self.route
            case _:
                return door

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Return as soon as the condition holds; fail when it does not within half a minute."""
        deadline = time.monotonic() + 30.0
        while not condition():
            assert time.monotonic() < deadline, "the condition did not hold within 30 seconds"
            time.sleep(0.005)

    def job(
        self, client: str, mode: str, door: Dialect, tools: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """A job for a driver."""
        return {
            "client": client,
            "mode": mode,
            "url": self.url,
            "key": KEY,
            "model": f"to-{self.to(door)}-m",
            "prompt": PROMPT,
            "tools": tools,
            "retries": 0,
            "store": False,
        }
