"""Upstreams over HTTP/1.1: the client, its connections, and which headers go where."""
