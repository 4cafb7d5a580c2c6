"""The Responses backend behind a ChatGPT login, as Codex uses it.

credentials  Codex's own `auth.json`: read, never written
request      the request for that backend, and its address (pure)
upstream     sends the request over HTTP with the credentials
"""
