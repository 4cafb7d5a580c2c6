"""Tools of MCP servers that the gateway runs itself, inside an answer.

    servers.py    the servers, which run as long as the gateway
    tools.py      their tools beside the client's own: distinct names, and who runs a call
    merge.py      merges several answers of the model, and the calls between them, into one answer
    history.py    calls that a Responses client sends back as items
    memory.py     calls that clients of the other dialects cannot send back

Every module except `servers` is pure. `server/hosted_answer.py` serves a request with hosted tools.
"""
