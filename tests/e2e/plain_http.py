"""Requests without an SDK, where the bytes and headers of HTTP itself are looked at."""

import json
from typing import Any

import httpx2
from stage import PATHS

__all__ = ("ask", "plain_body")

TIMEOUT = 20.0


def plain_body(door: str, model: str, **more: object) -> dict[str, Any]:
    """The smallest request of a dialect."""
    hello = [{"role": "user", "content": "hi"}]
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"messages": hello},
        "responses": {"input": "hi"},
        "messages": {"messages": hello, "max_tokens": 99},
    }
    return {"model": model, **bodies[door], **more}


def ask(
    url: str,
    door: str,
    body: dict[str, Any] | bytes,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    """POST to a door, and the whole answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    with httpx2.Client(timeout=TIMEOUT) as client:
        return client.post(f"{url}{PATHS[door]}", content=data, headers=sent)
