"""A tool of an MCP server, as the engine has it."""

from typing import cast

from mcp import types

from dragoman._json import loads, raw
from dragoman.engine.mcp.results import output_from_result
from dragoman.engine.mcp.server import McpServer
from dragoman.engine.tools import Declaration, Invocation, Offer, Output
from dragoman.engine.validation import given_arguments
from dragoman.errors import MalformedJson, ToolError

__all__ = ("McpTool",)

PERSON_SECONDS = 86_400.0
"""As long as a person may take to approve of a call."""


class McpTool:
    """Its namespace is the server's name. It runs beside others if the server says that it only reads."""

    def __init__(self, server: McpServer, listed: types.Tool) -> None:
        self._server = server
        self._name = listed.name
        self._promised = None if listed.output_schema is None else bytes(raw(listed.output_schema))
        annotations = listed.annotations
        self._offer = Offer(
            declaration=Declaration(
                name=listed.name,
                namespace=server.name,
                description=listed.description or listed.title,
                schema=raw(listed.input_schema),
            ),
            is_parallel=annotations is not None and annotations.read_only_hint is True,
            # a person who is asked in the middle of a call takes their time: the server's own limit stands still then
            timeout=server.settings.call_timeout if server.host is None else PERSON_SECONDS,
        )

    @property
    def offer(self) -> Offer:
        return self._offer

    async def run(self, invocation: Invocation) -> Output:
        arguments = _arguments(invocation.call.input)
        if "null" in invocation.call.input:
            # servers refuse a null that their schema does not allow, and take what is left out
            schema = self._offer.declaration.schema
            arguments = given_arguments(b"" if schema is None else bytes(schema), arguments)
        result = await self._server.call(self._name, arguments, invocation.report)
        try:
            return output_from_result(result, self._promised)
        except ToolError as error:
            raise ToolError(
                f"the result of {self._name!r} of the MCP server {self._server.name!r} cannot be"
                f" used: {error.message}"
            ) from error


def _arguments(text: str) -> dict[str, object]:
    if not text.strip():
        return {}
    try:
        value: object = loads(text)
    except MalformedJson as error:
        raise ToolError(f"the arguments of a tool are a JSON object: {error.message}") from error
    if not isinstance(value, dict):
        raise ToolError(
            f"the arguments of a tool are a JSON object, got one of type {type(value).__name__}"
        )
    arguments = cast("dict[str, object]", value)
    _check_texts(arguments)
    return arguments


def _check_texts(value: object) -> None:
    """Half a surrogate pair has no UTF-8; a transport that meets one fails for all its calls."""
    rest: list[object] = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            try:
                each.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ToolError("the arguments hold half a surrogate pair") from error
        elif isinstance(each, dict):
            table = cast("dict[object, object]", each)
            rest += (*table.keys(), *table.values())
        elif isinstance(each, list):
            rest += cast("list[object]", each)
