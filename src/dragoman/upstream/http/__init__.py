"""Upstreams over HTTP/1.1: the client, its connections, and the rules for headers."""
