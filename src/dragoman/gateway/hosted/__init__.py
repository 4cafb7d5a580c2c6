"""Tools of MCP servers that the gateway runs itself, inside an answer.

    servers.py    the servers, which live as long as the gateway
    tools.py      their tools beside the client's own: names that differ, and who runs a call
    merge.py      several answers of the model, and the calls between them, as one answer
    history.py    calls that a Responses client sends back as items
    memory.py     calls that clients of the other doors cannot send back

Everything but `servers` is pure. `server/hosted_answer.py` serves a request with them.
"""
