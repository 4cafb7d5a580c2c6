"""Tools of MCP servers that the gateway runs itself, inside an answer.

    servers.py    the servers, kept as long as the gateway
    offering.py   their tools beside the client's own: names that differ, and whose a call is
    items.py      a call that was run here as an item of the Responses API, both ways
    memory.py     what clients of the other doors cannot send back
    history.py    such items in a conversation, as the call and the result that they were
    telling.py    what the engine does, over several answers of the model, as one answer
    serving.py    one request: asked, run and told

Everything but `servers` and `serving` is pure.
"""
