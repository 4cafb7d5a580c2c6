"""Codex app-server v2: JSON-RPC messages of a `codex app-server` child. An upstream only; nobody speaks it to us."""

from dragoman.dialects.codex.decode import CodexReader

__all__ = ("CodexReader",)
