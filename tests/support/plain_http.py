"""Requests without an SDK, for tests that look at HTTP's own bytes and headers."""

import json
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import httpx2

from stage import PATHS

TIMEOUT = 60.0


def plain_body(door: str, model: str, **more: object) -> dict[str, Any]:
    """The smallest request of a dialect."""
    hello = [{"role": "user", "content": "hi"}]
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"messages": hello},
        "responses": {"input": "hi"},
        "messages": {"messages": hello, "max_tokens": 99},
    }
    return {"model": model, **bodies[door], **more}


@lru_cache
def _client() -> httpx2.Client:
    """One for all: making one reads the system's certificates, which nobody needs here."""
    return httpx2.Client(timeout=TIMEOUT, verify=False, trust_env=False)


def fetch(
    method: str,
    address: str,
    headers: dict[str, str] | None = None,
    content: bytes | None = None,
) -> httpx2.Response:
    """Any request, and the whole answer."""
    return _client().request(method, address, headers=headers, content=content)


def streaming(
    url: str, door: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> AbstractContextManager[httpx2.Response]:
    """POST to a door, and an answer that is read as it comes."""
    return _client().stream("POST", f"{url}{PATHS[door]}", json=body, headers=headers)


def following(address: str) -> AbstractContextManager[httpx2.Response]:
    """GET, and an answer that is read as it comes."""
    return _client().stream("GET", address)


def ask(
    url: str,
    door: str,
    body: dict[str, Any] | bytes,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    """POST to a door, and the whole answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    return fetch("POST", f"{url}{PATHS[door]}", sent, data)
