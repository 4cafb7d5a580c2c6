"""Which names tools of MCP servers have beside a client's own, and whose a call is."""

import asyncio
from collections.abc import Awaitable, Sequence

from dragoman.dialects.responses.mcp_calls import ServerTool
from dragoman.engine.tools import Declaration, Invocation, Offer, Output, Tool, text_output
from dragoman.gateway.hosted.tools import HostedTools
from dragoman.model.parts import Call


class Doing:
    """A tool that says what it was called by."""

    def __init__(self, name: str, server: str) -> None:
        self._offer = Offer(declaration=Declaration(name=name, namespace=server))

    @property
    def offer(self) -> Offer:
        return self._offer

    def run(self, invocation: Invocation) -> Awaitable[Output]:
        return self._run(invocation)

    async def _run(self, invocation: Invocation) -> Output:
        return text_output(f"{invocation.call.namespace}/{invocation.call.name}")


class Source:
    def __init__(self, *tools: Tool) -> None:
        self.all: Sequence[Tool] = tools

    def tools(self) -> Sequence[Tool]:
        return self.all


SOURCE = Source(Doing("read", "files"), Doing("read", "web"))


def hosted(theirs: Sequence[Declaration], source: Source = SOURCE) -> HostedTools:
    tools = HostedTools(theirs)
    tools.source = source
    return tools


def offered(offering: HostedTools) -> list[str]:
    return [tool.offer.declaration.name for tool in offering.tools()]


def call(name: str, **more: str) -> Call:
    return Call(call_id="call_1", name=name, **more)  # type: ignore[arg-type]  # a kind, or a namespace


def test_a_tool_is_offered_by_its_servers_name_and_its_own() -> None:
    offering = hosted(())
    assert offered(offering) == ["files__read", "web__read"]
    assert all(tool.offer.declaration.namespace is None for tool in offering.tools())


def test_the_clients_tool_keeps_its_name() -> None:
    theirs = [Declaration(name="files__read"), Declaration(name="files__read_2")]
    offering = hosted(theirs)
    assert offered(offering) == ["files__read_3", "web__read"]
    assert offering.whose(call("files__read")) is None
    assert offering.whose(call("files__read_3")) == ServerTool("files", "read")


def test_a_clients_tool_in_a_namespace_counts_as_the_same_name() -> None:
    offering = hosted([Declaration(name="read", namespace="files")])
    assert offered(offering) == ["files__read_2", "web__read"]
    assert offering.whose(call("read", namespace="files")) is None


def test_names_stay_while_tools_come_and_go() -> None:
    source = Source(Doing("a", "s"), Doing("b", "s"))
    offering = hosted([Declaration(name="s__b")], source)
    assert offered(offering) == ["s__a", "s__b_2"]
    source.all = (Doing("b", "s"),)
    assert offered(offering) == ["s__b_2"]
    assert offering.whose(call("s__a")) == ServerTool("s", "a")


def test_a_call_of_nobodys_tool_is_answered_here() -> None:
    offering = hosted([Declaration(name="get_weather")])
    offering.tools()
    assert offering.whose(call("no_such")) == ServerTool("", "no_such")
    assert offering.is_theirs(call("get_weather"))


def test_built_in_kinds_that_the_client_declared_are_the_clients() -> None:
    offering = hosted([Declaration(name="local_shell", kind="local_shell")])
    assert offering.is_theirs(call("local_shell", kind="local_shell"))


def test_a_server_is_called_by_its_own_name() -> None:
    tool = hosted([Declaration(name="files__read")]).tools()[0]
    invocation = Invocation(call("files__read_2"), lambda _: None)

    async def run() -> Output:
        return await tool.run(invocation)

    assert asyncio.run(run()) == text_output("files/read")
