"""Upstreams: where requests go. HTTP servers of three dialects, and the embedded rehearsal model."""
