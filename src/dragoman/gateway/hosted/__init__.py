"""Tools that the gateway runs itself, inside an answer: those of MCP servers, and a search for tools.

    servers.py    the servers, which run as long as the gateway
    tools.py      their tools beside the client's own: distinct names, and who runs a call
    merge.py      merges several answers of the model, and the calls between them, into one answer
    history.py    puts the calls back into later requests: Responses clients send them as items, other clients cannot send them
    tool_search.py  searches deferred tools, where an upstream takes fewer tools than a request has

Every module except `servers` and `tool_search`, which starts a process, is pure. `server/hosted_answer.py` serves a request with hosted tools.
"""
