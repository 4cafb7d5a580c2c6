"""Tools of MCP servers: the servers are started and watched here, and their tools are offered to the engine as any other tool.

    host.py        what a server may ask of a person; needs no SDK
    transport.py   the connection: a child process, or streamable HTTP
    oauth.py       access tokens for HTTP
    session.py     the protocol: versions, the list of tools, calls that ask for input
    server.py      one server, kept alive
    tools.py       one of its tools, and its results
    servers.py     many servers as one source of tools: `McpServers`

The settings of servers are in `config`. The official SDK implements the protocol; the limits, the clean-up and the messages
about failures are ours. The SDK is imported when the first server is started, so that programs without servers need no SDK.
"""
