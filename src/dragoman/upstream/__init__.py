"""Upstreams: HTTP servers of three dialects, Codex, and the embedded rehearsal model."""
