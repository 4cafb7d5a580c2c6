"""Upstream `codex`: a supervised `codex app-server` child, spoken to in JSON-RPC over its pipes.

upstream  a request becomes a turn, or goes on with one that is held
child     one app-server: its messages and its turns; `seat` supervises it, `process` is the program itself
"""
