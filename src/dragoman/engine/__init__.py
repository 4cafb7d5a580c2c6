"""The turn engine: a model asks for tools, they are run while it still speaks, and it is told what came of them.

    turn.py, schedule.py, …   decide: events and settled calls in, actions out; no clock, no task, no I/O
    runner/                   does what they decide, on an event loop; `runner.Engine` is what a program uses
    builtin/, mcp/            tools: those of a terminal agent, and those of MCP servers

Knows the vocabulary of `model` and no dialect: `asking.Model` stands for whatever answers requests.
"""
