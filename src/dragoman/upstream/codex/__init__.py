"""Upstream `codex`: a supervised `codex app-server` child process, over JSON-RPC on its pipes.

upstream       turns a request into a turn, or continues a paused one (`paused_turns`); keeps the children running
process        the program itself
child, turn    one app-server and its messages; one turn and its answers
"""
