"""An MCP server that wants an access token, and the authorization server that gives them, on one port of 127.0.0.1."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2

from dragoman.config.settings import McpServerSettings, OAuthSettings
from dragoman.engine.mcp.host import ElicitationAnswer, ElicitationForm, ElicitationLink
from mcp_help import PATIENCE, QUICK

T = TypeVar("T")
Table = dict[str, object]
_REASONS = {
    200: "OK",
    201: "Created",
    302: "Found",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
}


class Guarded:
    """Both servers. What they were asked for is in `log`, by path.

    lifetime: of a token, in seconds. denies: nobody may log in. scope: what a call needs beyond the first login.
    """

    def __init__(self) -> None:
        self.port = 0
        self.log: list[tuple[str, Table]] = []
        self.good: set[str] = set()
        self.lifetime = 3600
        self.denies = False
        self.needs_scope = ""
        self.token_answer: object = None
        self.issuer_shown = ""
        self.call_gate = asyncio.Event()
        self.call_gate.set()
        self._count = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}/tenant"

    def settings(self, oauth: OAuthSettings | None = None) -> McpServerSettings:
        return McpServerSettings(name="far", url=self.url, oauth=oauth, restart=QUICK)

    def paths(self) -> list[str]:
        return [path for path, _ in self.log if path != "/mcp"]

    def asked(self, path: str) -> list[Table]:
        return [fields for each, fields in self.log if each == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.split("\r\n")
            pairs = (each.partition(": ") for each in rest)
            headers = {name.lower(): value for name, _, value in pairs}
            body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
            status, answer, more = await self._answer(line, headers, body)
            content = json.dumps(answer).encode()
            head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Oh')}\r\ncontent-type: application/json\r\n{more}"
            head = f"{head}content-length: {len(content)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + content)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, line: str, headers: Mapping[str, str], body: str
    ) -> tuple[int, object, str]:
        target = urlsplit(line.split(" ")[1])
        query = {key: values[0] for key, values in parse_qs(target.query).items()}
        form = {key: values[0] for key, values in parse_qs(body).items()} if "=" in body else {}
        self.log.append((target.path, {**query, **form, "headers": headers}))
        match target.path:
            case "/mcp":
                return await self._mcp(headers, json.loads(body or "{}"))
            case "/.well-known/oauth-protected-resource/mcp":
                return 200, {"resource": self.url, "authorization_servers": [self.issuer]}, ""
            case "/.well-known/oauth-authorization-server/tenant":
                return 200, self._metadata(), ""
            case "/tenant/register":
                client = json.loads(body)
                return 201, {**client, "client_id": "registered", "client_secret": "sesame"}, ""
            case "/tenant/authorize":
                code = "error=access_denied" if self.denies else "code=the-code"
                back = f"{query['redirect_uri']}?{code}&state={query['state']}"
                return 302, {}, f"location: {back}\r\n"
            case "/tenant/token":
                return 200, self._tokens(form), ""
            case _:
                return 404, {}, ""

    def _metadata(self) -> Table:
        base = self.issuer
        return {
            "issuer": self.issuer_shown or base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }

    def _tokens(self, form: Mapping[str, str]) -> object:
        if self.token_answer is not None:
            return self.token_answer
        self._count += 1
        token = f"secret-token-{self._count}"
        self.good = {token}
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "refresh_token": f"secret-refresh-{self._count}",
            **({"scope": form["scope"]} if "scope" in form else {}),
        }

    async def _mcp(self, headers: Mapping[str, str], message: Table) -> tuple[int, object, str]:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.good:
            where = f"http://127.0.0.1:{self.port}/.well-known/oauth-protected-resource/mcp"
            return 401, {}, f'www-authenticate: Bearer resource_metadata="{where}"\r\n'
        match message.get("method"):
            case "server/discover":
                result: Table = {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                }
            case "tools/list":
                work = {"name": "work", "inputSchema": {"type": "object"}}
                result = {"tools": [work, {**work, "name": "slow"}]}
            case "tools/call":
                if self.needs_scope:
                    challenge = f'Bearer error="insufficient_scope", scope="{self.needs_scope}"'
                    return 403, {}, f"www-authenticate: {challenge}\r\n"
                params = message["params"]
                assert isinstance(params, dict)
                if params["name"] == "slow":
                    await self.call_gate.wait()
                result = {"content": [{"type": "text", "text": token}]}
            case _:
                return 404, {}, ""
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, ""


@asynccontextmanager
async def guarded() -> AsyncGenerator[Guarded]:
    held = Guarded()
    server = await asyncio.start_server(held.serve, "127.0.0.1", 0)
    async with server:
        held.port = server.sockets[0].getsockname()[1]
        yield held


@contextmanager
def guarded_in_thread() -> Generator[Guarded]:
    """The same in a loop of its own, for other processes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def play(step: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, loop).result(PATIENCE)

    opened = guarded()
    try:
        yield play(opened.__aenter__())
        play(opened.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Browser:
    """A person who goes where they are sent. `before`: another visitor who comes to the port first."""

    def __init__(self, *, before: str = "", wait: float = 0.0) -> None:
        self.visited: list[str] = []
        self.pages: list[int] = []
        self._before = before
        self._wait = wait

    async def open_login(self, server: str, url: str) -> None:
        self.visited.append(url)
        await asyncio.sleep(self._wait)
        async with httpx2.AsyncClient() as browser:
            if self._before:
                port = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0]).port
                answer = await browser.get(f"http://127.0.0.1:{port}{self._before}")
                self.pages.append(answer.status_code)
            back = (await browser.get(url)).headers["location"]
            self.pages.append((await browser.get(back)).status_code)

    async def elicit(
        self, server: str, question: ElicitationForm | ElicitationLink
    ) -> ElicitationAnswer:
        raise AssertionError(question)
