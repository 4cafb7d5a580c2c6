"""Chooses an upstream, sends the request, retries, and reads the answer: for the server, hosted tools and the agent.

    route.py     the upstreams for a model, in the order they are tried
    peers.py     the health of each peer, and which peer is asked
    targets.py   the upstream and model of one attempt, and what that upstream accepts
    plan.py      the request to send, and how the answer is read and encoded
    compaction.py  a summary in place of a conversation: the request for it, and the answer made of it
    context_edits.py  clears old results and thinking from a conversation
    attempt.py   the loop: try, decide, fall back, give up; and the upstreams as a model for the engine
    answer.py    an upstream's reply as events, or written to the client
    reply.py     reads a reply without blocking the event loop
    early_end.py answers that end before the upstream's: at a stop sequence, or by the Obsidian policy
    hosted/      tools of MCP servers that the gateway runs

Nothing in this package depends on an HTTP server.
"""
