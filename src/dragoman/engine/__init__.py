"""The turn engine: a model calls tools, the engine runs them while the answer still streams, and sends back their results.

    turn.py, schedule.py, …   decide: events and settled calls in, actions out; no clock, no task, no I/O
    run/                      performs the decisions on an event loop; `run.Engine` is what a program uses
    builtin/, mcp/            tools: those of a terminal agent, and those of MCP servers

The engine knows the vocabulary of `model` and no dialect: `run.Model` is anything that answers requests.
"""
