"""Files as `codex login` writes them, with unsigned tokens."""

import json
from base64 import urlsafe_b64encode
from typing import Any

NEVER = 4_102_444_800


def make_token(expires_at: float | None = NEVER, **claims: object) -> str:
    """A token with the form of a JWT."""
    if expires_at is not None:
        claims["exp"] = expires_at
    parts = (json.dumps({"alg": "none"}), json.dumps(claims), "unsigned")
    return ".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def chatgpt_login(
    token: str | None = None, *, account_id: str | None = "acct-1", **more: object
) -> bytes:
    tokens: dict[str, Any] = {
        "access_token": token or make_token(),
        "id_token": make_token(),
        "refresh_token": "refresh-me-not",
    }
    if account_id is not None:
        tokens["account_id"] = account_id
    login = {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}
    return json.dumps({**login, **more}, indent=2).encode()
