"""Tools of MCP servers: started and watched here, offered to the engine as any other tool.

    settings.py   what is said of a server; needs no SDK
    child.py      a server that is started here, spoken to by its pipes
    http.py       a server that is reached by streamable HTTP
    oauth.py      access tokens for it
    session.py    which protocol is spoken with it, and calls that it answers with questions
    host.py       what it may ask of a person
    server.py     one server, kept alive
    results.py    what its tools gave back, in the engine's words
    tools.py      one of its tools, as the engine has it
    servers.py    many servers, as one source of tools: `McpServers`

The protocol is the official SDK's; what is bounded, cleaned up and said of it when it fails is ours. The SDK is imported
when the first server is started, so that whoever has none needs none.
"""
