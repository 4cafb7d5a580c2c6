"""The Responses backend behind a ChatGPT login, as Codex uses it.

credentials  Codex's own `auth.json`: read, never written
shaping      the request as that backend takes it, and its address (pure)
upstream     both together, over HTTP
"""
