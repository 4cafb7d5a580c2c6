"""The program that the public conformance suite of MCP runs against its servers: `client.py URL`.

It uses a server as `dragoman run` does, through `dragoman.engine.mcp`: starts it, lists its tools, calls each. The person is
played by `Obliging`, who logs in wherever they are sent and takes the defaults of every form. The suite says in
MCP_CONFORMANCE_SCENARIO which scenario it plays, and in MCP_CONFORMANCE_CONTEXT what an operator would know: credentials, or
which calls to make.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from typing import cast
from urllib.parse import urlsplit

import httpx2

from dragoman._json import dumps, loads
from dragoman.config.settings import McpServerSettings, OAuthSettings
from dragoman.engine.mcp.host import ElicitationAnswer, ElicitationForm, ElicitationLink, read_value
from dragoman.engine.mcp.servers import McpServers
from dragoman.engine.tools import Invocation, Tool
from dragoman.engine.validation import check_arguments
from dragoman.errors import ToolError
from dragoman.model.parts import Call
from dragoman.upstream.rehearsal.arguments import arguments_for
from dragoman.upstream.rehearsal.words import UserWords

Table = dict[str, object]

# The suite's own address of a client metadata document. Nothing is there: servers only compare it.
METADATA_URL = "https://conformance-test.local/client-metadata.json"
SECRET_VARIABLE = "CONFORMANCE_SECRET"


class Obliging:
    """A person with a browser who agrees to everything."""

    async def open_login(self, server: str, url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(url)
            if answer.is_redirect:
                await browser.get(answer.headers["location"])

    async def elicit(
        self, server: str, question: ElicitationForm | ElicitationLink
    ) -> ElicitationAnswer:
        if isinstance(question, ElicitationLink):
            return ElicitationAnswer(action="accept")
        values = {field.name: read_value(field, "") for field in question.fields}
        return ElicitationAnswer(action="accept", values=values)


async def main(url: str, scenario: str, context: Table) -> int:
    oauth = await oauth_settings(url, scenario, context)
    settings = McpServerSettings(name="conformance", url=url, oauth=oauth)
    async with McpServers([settings], host=Obliging()) as servers:
        for name, problem in servers.problems.items():
            print(f"{name} {problem}", file=sys.stderr)
        # A call that fails is for a model to read, and no failure of the program: the suite sees what was sent.
        for tool, arguments in calls(servers.tools(), context):
            await call(tool, arguments)
        return 1 if servers.problems else 0


async def oauth_settings(url: str, scenario: str, context: Table) -> OAuthSettings:
    client_id = str(context.get("client_id", ""))
    if not client_id:
        return OAuthSettings(client_metadata_url=METADATA_URL)
    secret = context.get("client_secret", context.get("private_key_pem", ""))
    os.environ[SECRET_VARIABLE] = str(secret)
    if "client-credentials" not in scenario:
        return OAuthSettings(
            client_id=client_id,
            client_secret_from=SECRET_VARIABLE if secret else "",
            issuer=str(context.get("issuer", "")),
        )
    is_signed = "private_key_pem" in context
    return OAuthSettings(
        grant="client_credentials",
        client_id=client_id,
        client_secret_from="" if is_signed else SECRET_VARIABLE,
        private_key_from=SECRET_VARIABLE if is_signed else "",
        issuer=await published_issuer(url),
    )


async def published_issuer(url: str) -> str:
    """The issuer, which an operator with credentials would know: the suite does not name it."""
    parts = urlsplit(url)
    address = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    async with httpx2.AsyncClient() as browser:
        published = cast("dict[str, list[str]]", (await browser.get(address)).json())
    return published["authorization_servers"][0]


def calls(tools: Sequence[Tool], context: Table) -> Iterator[tuple[Tool, Table]]:
    """Those that the suite asks for; else one of each tool."""
    by_name = {tool.offer.declaration.name: tool for tool in tools}
    wanted = cast("list[Table]", context.get("toolCalls", []))
    if wanted:
        yield from (
            (by_name[str(each["name"])], cast("Table", each["arguments"])) for each in wanted
        )
        return
    for name, tool in by_name.items():
        # Echoes to the suite the schema that we read for the other tool.
        if name == "json_schema_echo":
            other = by_name["json_schema_2020_12_tool"].offer.declaration.schema
            assert other is not None
            yield tool, {"schema": loads(bytes(other))}
        else:
            yield tool, arguments_for(tool.offer.declaration, UserWords())


async def call(tool: Tool, arguments: Table) -> None:
    declaration = tool.offer.declaration
    made = Call(call_id="call_1", name=declaration.name, input=dumps(arguments).decode())
    problem = check_arguments(declaration, made.input)
    if problem is None:
        try:
            await tool.run(Invocation(made, print))
        except ToolError as error:
            problem = error.message
    if problem is not None:
        print(problem, file=sys.stderr)


if __name__ == "__main__":
    known = cast("Table", loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"))
    sys.exit(asyncio.run(main(sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), known)))
