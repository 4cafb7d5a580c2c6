"""A well-behaved MCP server, built on the SDK, with a tool for every kind of answer.

    python workshop.py          over its standard input and output
    python workshop.py http 0   over streamable HTTP on that port; the one it has is the first line that it prints
    python workshop.py old 0    the same, as a server of 2025: it does not know `server/discover`

Events that tests must see are written into the folder RECORDS, one file per event.
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import uvicorn
from mcp import MCPError, types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.types import ToolAnnotations
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("workshop", log_level="ERROR")
READS = ToolAnnotations(read_only_hint=True)
# one transparent pixel
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def record(event: str) -> None:
    folder = os.environ.get("RECORDS")
    if folder:
        Path(folder, event).write_text(str(os.getpid()), encoding="utf-8")


@server.tool(annotations=READS, structured_output=False)
def echo(text: str) -> str:
    """Says what it is told."""
    return text


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(structured_output=False)
async def slow(name: str) -> str:
    """Takes for ever."""
    record(f"started-{name}")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        record(f"cancelled-{name}")
        raise
    return "done"


@server.tool(structured_output=False)
async def steps(count: int, ctx: Context) -> str:
    """Tells how far it is."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=PNG, format="png")


@server.tool(structured_output=False)
def papers() -> list[types.ContentBlock]:
    """Links and resources."""
    return [
        types.TextContent(text="two papers"),
        types.ResourceLink(name="plan", uri="file:///plan.txt", mime_type="text/plain", size=12),
        types.EmbeddedResource(
            resource=types.TextResourceContents(uri="file:///note.txt", text="a note")
        ),
        types.EmbeddedResource(
            resource=types.BlobResourceContents(
                uri="file:///paper.pdf", mime_type="application/pdf", blob="JVBERi0="
            )
        ),
        types.AudioContent(data="UklGRg==", mime_type="audio/wav"),
    ]


@server.tool(structured_output=False)
def fail() -> str:
    """Fails."""
    raise ValueError("the saw is blunt")


@server.tool(structured_output=False)
def crash() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Asks its client for things."""
    answers: list[str] = []
    try:
        await ctx.session.list_roots()  # pyright: ignore[reportDeprecated]
    except MCPError as error:
        answers.append(f"refused: {error}")
    try:
        answer = await ctx.session.elicit_form("who are you?", {"type": "object", "properties": {}})
        answers.append(answer.action)
    except MCPError as error:
        answers.append(f"refused: {error}")
    try:
        message = types.SamplingMessage(role="user", content=types.TextContent(text="think"))
        await ctx.session.create_message([message], max_tokens=1)  # pyright: ignore[reportDeprecated]
    except MCPError as error:
        answers.append(f"refused: {error}")
    return "; ".join(answers)


@server.tool(structured_output=False)
async def grow(name: str, ctx: Context) -> str:
    """Makes a new tool."""
    server.add_tool(lambda: name, name=name, description="new", structured_output=False)
    await ctx.session.send_tool_list_changed()  # in a session
    await ctx.notify_tools_changed()  # to those who listen, where there are no sessions
    return "made"


@server.tool(structured_output=False)
async def log(text: str, ctx: Context) -> str:
    """Logs, and says something on its standard error."""
    await ctx.session.send_log_message("info", text)  # pyright: ignore[reportDeprecated]
    print(text, file=sys.stderr, flush=True)
    return "logged"


@server.tool(structured_output=False)
def breed() -> str:
    """Starts a process that does not end by itself."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], stdin=subprocess.DEVNULL
    )
    return str(child.pid)


@server.tool(structured_output=False)
def setting(name: str) -> str:
    """A variable of its environment."""
    return os.environ.get(name, "(not set)")


@server.tool(structured_output=False)
def header(name: str, ctx: Context) -> str:
    """A header of the request."""
    return (ctx.headers or {}).get(name, "(not sent)")


def of_2025(app: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if b"mcp-method" in headers:
            await PlainTextResponse("no session", 400)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


def serve_http(port: int, *, is_old: bool) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    app = server.streamable_http_app()
    config = uvicorn.Config(
        of_2025(app) if is_old else app, log_level="error", timeout_graceful_shutdown=1
    )
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    if sys.argv[1:2] in (["http"], ["old"]):
        serve_http(int(sys.argv[2]), is_old=sys.argv[1] == "old")
    else:
        server.run()
