"""Which upstream is asked, with what, how often, and how its answer is read: what the server, hosted tools and the agent share.

    route.py     the upstreams for a model, in the order they are tried
    targets.py   where one attempt goes, and what that upstream accepts
    plan.py      what is sent, and how the answer is read and encoded
    attempt.py   the loop: try, decide, fall back, give up; and the upstreams as a model for the engine
    answer.py    an upstream's reply as events, or written to the client
    reply.py     reading a reply without holding up the event loop
    obsidian.py  answers that the Obsidian policy may end early
    hosted/      tools of MCP servers that the gateway runs

Nothing here knows an HTTP server.
"""
