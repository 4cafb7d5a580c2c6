"""Servers behind HTTP: those that are not there, refuse, end, come back, or answer what they should not."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from dragoman.config.settings import McpServerSettings
from dragoman.engine.mcp.servers import McpServers
from dragoman.errors import ToolError
from mcp_help import PATIENCE, QUICK, call_tool, played, said, served_workshop, until

Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncGenerator[McpServerSettings]:
    """A server that reads one request a connection and leaves the answer to `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = head.partition("content-length: ")[2].partition("\r\n")[0]
            body = (await reader.readexactly(int(length or 0))).decode()
            await answer(body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield McpServerSettings(
            name="odd", url=f"http://127.0.0.1:{port}/mcp", start_timeout=PATIENCE, restart=QUICK
        )


def response(body: str, status: str = "200 OK", *, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n{more}"
    return f"{head}content-length: {len(body.encode())}\r\n\r\n{body}".encode()


INTRODUCTION = (
    '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    '"serverInfo":{"name":"odd","version":"1"}}}'
)
LISTING = (
    '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}}'
)


def id_of(body: str) -> str:
    return body.partition('"id":')[2].partition(",")[0]


def odd(call: Answer) -> Answer:
    """Starts well, and leaves calls to `call`."""

    async def answer(body: str, writer: asyncio.StreamWriter) -> None:
        if '"initialize"' in body:
            writer.write(response(INTRODUCTION % id_of(body)))
        elif '"tools/list"' in body:
            writer.write(response(LISTING % id_of(body)))
        elif '"tools/call"' in body:
            await call(body, writer)
        else:
            writer.write(response("", "202 Accepted" if body else "405 Method Not Allowed"))
        await writer.drain()

    return answer


def test_server_that_nobody_serves_is_reported() -> None:
    async def main() -> None:
        async with answering(odd(never)) as settings:
            pass
        async with McpServers([settings]) as servers:
            assert servers.problems["odd"].startswith("cannot be reached (")

    played(main())


async def never(body: str, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def test_refusal_is_reported_with_its_status() -> None:
    async def refuse(body: str, writer: asyncio.StreamWriter) -> None:
        writer.write(response("{}", "401 Unauthorized"))

    async def main() -> None:
        async with answering(refuse) as settings, McpServers([settings]) as servers:
            assert "(HTTP status 401)" in servers.problems["odd"]

    played(main())


def test_missing_variable_of_a_header_is_reported_by_its_name() -> None:
    async def main() -> None:
        settings = McpServerSettings(
            name="odd",
            url="http://127.0.0.1:9/mcp",
            headers_from={"authorization": "NO_SUCH_VARIABLE"},
        )
        async with McpServers([settings]) as servers:
            assert servers.problems == {
                "odd": "the environment variable NO_SUCH_VARIABLE is not set"
            }

    played(main())


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (response("x" * 17 * 2**20), "more than 16 MiB"),
        (response("not json"), "Failed to parse"),
        (response('{"jsonrpc":"2.0","id":3,"result":[1]}'), "Failed to parse"),
        (response("{}", "500 Oh"), "refused"),
        (response("{}", more="content-encoding: gzip\r\n"), "not compressed"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
            "'odd' broke off the answer",
        ),
        (b"nonsense\r\n\r\n", "'odd'"),
        (b"", "'odd'"),
    ],
    ids=["huge", "not-json", "no-result", "status-500", "packed", "cut", "no-http", "nothing"],
)
def test_bad_answer_fails_its_call_and_the_server_can_be_called_again(
    answer: bytes, complaint: str
) -> None:
    calls: list[str] = []

    async def call(body: str, writer: asyncio.StreamWriter) -> None:
        calls.append(body)
        good = '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"good"}]}}'
        writer.write(answer if len(calls) == 1 else response(good % id_of(body)))

    async def main() -> None:
        async with answering(odd(call)) as settings, McpServers([settings]) as servers:
            with pytest.raises(ToolError) as raised:
                await call_tool(servers, "work")
            assert complaint in raised.value.message
            assert "'odd'" in raised.value.message
            assert said(await call_tool(servers, "work")) == "good"

    asyncio.run(main())


def test_silent_server_holds_up_neither_a_caller_nor_the_end() -> None:
    async def main() -> None:
        async with answering(odd(never)) as settings:
            hasty = structs.replace(settings, call_timeout=0.01)
            async with McpServers([hasty]) as servers:
                with pytest.raises(ToolError, match=r"within 0\.01 s"):
                    await call_tool(servers, "work")

    asyncio.run(main())


def test_server_that_forgot_the_session_is_introduced_again_and_the_call_is_run() -> None:
    with served_workshop(is_old=True) as first:
        port = first.port

        async def main() -> None:
            async with McpServers([first.settings]) as servers:
                assert said(await call_tool(servers, "echo", text="one")) == "one"
                first.end()
                with served_workshop(port=port, is_old=True):
                    assert said(await call_tool(servers, "echo", text="two")) == "two"
                with pytest.raises(ToolError, match="'workshop'"):
                    await call_tool(servers, "echo", text="three")
                await until(lambda: bool(servers.problems))

        asyncio.run(main())


def test_headers_are_sent_and_their_values_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKSHOP_TOKEN", "Bearer 12345")

    async def main() -> None:
        with served_workshop() as served:
            settings = structs.replace(
                served.settings,
                headers={"x-colour": "green"},
                headers_from={"authorization": "WORKSHOP_TOKEN"},
            )
            assert "green" not in repr(settings)
            async with McpServers([settings]) as servers:
                assert said(await call_tool(servers, "header", name="x-colour")) == "green"
                held = said(await call_tool(servers, "header", name="authorization"))
                assert held == "Bearer 12345"

    played(main())
