"""Upstream `codex`: a supervised `codex app-server` child, spoken to in JSON-RPC over its pipes."""

from dragoman.upstream.codex.process import INSTALL_HINT
from dragoman.upstream.codex.upstream import CodexUpstream, child_environment

__all__ = ("INSTALL_HINT", "CodexUpstream", "child_environment")
