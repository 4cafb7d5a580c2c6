"""Tools that the gateway runs itself: clients send a question, and the gateway calls a tool of an MCP server to answer it.

The gateway runs inside this program and answers from the rehearsal; the MCP server is this same file, started by the gateway
as a child. No key and no network are needed. Neither client knows of any tool.
"""

import socket
import sys
import threading
import time

import uvicorn
from anthropic import Anthropic
from mcp.server import MCPServer
from openai import OpenAI

from dragoman.config.settings import McpServerSettings, Route, Settings, UpstreamSettings
from dragoman.server.app import create_app

QUESTION = "How many saws are in stock?"
SHELF = {"saw": 3, "hammer": 1}


def serve_tools() -> None:
    server = MCPServer("shop", log_level="ERROR")

    @server.tool(structured_output=False)
    def stock() -> str:
        """What is in stock."""
        return ", ".join(f"{count} × {name}" for name, count in SHELF.items())

    server.run()


def start_gateway() -> tuple[uvicorn.Server, threading.Thread, str]:
    settings = Settings(
        upstreams={"rehearsal": UpstreamSettings(kind="rehearsal")},
        routes=(Route(model="*", upstream="rehearsal", mcp=("shop",)),),
        mcp=(McpServerSettings(name="shop", command=(sys.executable, __file__, "serve")),),
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    return server, thread, f"http://127.0.0.1:{listener.getsockname()[1]}"


def main() -> None:
    server, thread, url = start_gateway()
    try:
        openai = OpenAI(base_url=f"{url}/v1", api_key="unused")
        response = openai.responses.create(model="rehearsal", input=QUESTION)
        for item in response.output:
            if item.type == "mcp_call":
                print(f"Responses: {item.server_label}.{item.name} → {item.output}")
        print(f"Responses: {response.output_text}")

        anthropic = Anthropic(base_url=url, api_key="unused")
        with anthropic.messages.stream(
            model="rehearsal", max_tokens=500, messages=[{"role": "user", "content": QUESTION}]
        ) as stream:
            print(f"Messages:  {''.join(stream.text_stream)}")
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    serve_tools() if sys.argv[1:] == ["serve"] else main()
