"""What an operator may say about the store."""

from typing import Literal

from msgspec import Struct

__all__ = ("DEFAULT_TTL", "StoreSettings")

DEFAULT_TTL = 30 * 24 * 3600.0
"""Seconds. As long as OpenAI keeps responses."""


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where state is kept, what of it, for how long, and how much.

    url: `sqlite:` (a file in the user's state directory), `sqlite:///path`, `postgresql://…` or `memory:`.
    policy: `default` keeps every response that its client does not refuse to have kept (`store: false`), as OpenAI does;
        `asked` only those with `store: true`; `off` keeps nothing at all, neither threads nor reasoning.
    ttl: seconds that a response is kept after it, or one that continues it, was stored.
    max_bytes: of all that is stored; what would expire first goes first.
    max_record_bytes: of one request, or of one answer, as it is stored, compressed. A request may come with 64 MiB.
    pool_size: connections to PostgreSQL per worker process. Servers allow a hundred in all by default.
    """

    url: str = "sqlite:"
    policy: Literal["default", "asked", "off"] = "default"
    ttl: float = DEFAULT_TTL
    max_bytes: int = 4 * 1024 * 1024 * 1024
    max_record_bytes: int = 128 * 1024 * 1024
    pool_size: int = 8

    def __repr__(self) -> str:
        """Without the address, which may hold a password: traces show this."""
        return f"StoreSettings({self.url.partition(':')[0]}, …)"
