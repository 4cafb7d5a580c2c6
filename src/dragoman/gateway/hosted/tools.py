"""The tools of MCP servers beside the client's own: their names, and who runs a call. Pure.

A tool `read` of the server `files` is offered as the function `files__read`. If the client has a tool of that name, the
client's tool keeps the name and the hosted tool is called `files__read_2`.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from dragoman.core.aliases import flat_name
from dragoman.dialects.responses.mcp_calls import ServerTool
from dragoman.engine.toolbox import spoken_name
from dragoman.engine.tools import Invocation, Offer, Output, Tool, ToolSource
from dragoman.errors import ToolError
from dragoman.model.parts import CLIENT_KINDS, Call
from dragoman.model.request import Tool as Declaration
from dragoman.model.request import ToolChoice


class HostedTools:
    """The hosted tools of one request: a `ToolSource` that the engine queries before each turn.

    source: tools whose namespaces are the names of their servers; None: there are no servers, or they have not started yet.
    """

    def __init__(self, theirs: Iterable[Declaration]) -> None:
        self.source: ToolSource | None = None
        self._their_names: set[str] = set()
        self._their_kinds: set[str] = set()
        for tool in theirs:
            self._their_names.add(spoken_name(tool.name, tool.namespace))
            if tool.kind in CLIENT_KINDS:
                self._their_kinds.add(tool.kind)
        self.choice: ToolChoice | None = None
        """The tool choice of the current answer."""
        self._by_name: dict[str, ServerTool] = {}  # by the offered name
        self._names: dict[ServerTool, str] = {}

    def tools(self) -> Sequence[Tool]:
        """The tools available now. A tool keeps its name as long as the request is served."""
        found: dict[str, Tool] = {}
        for tool in () if self.source is None else self.source.tools():
            declaration = tool.offer.declaration
            name = self.name_of(ServerTool(declaration.namespace or "", declaration.name))
            found.setdefault(name, _Offered(tool, name, self._refusal))
        return tuple(found.values())

    def name_of(self, tool: ServerTool) -> str:
        """The name under which the model is offered a tool."""
        name = self._names.get(tool)
        if name is None:
            name = self._free_name(flat_name(tool.tool, tool.server))
            self._names[tool] = name
            self._by_name[spoken_name(name, None)] = tool
        return name

    def whose(self, call: Call) -> ServerTool | None:
        """The hosted tool of a call; None: the client runs the call.

        The gateway also answers a call of an unknown tool, with an error for the model; the returned tool then has no server.
        """
        spoken = spoken_name(call.name, call.namespace)
        tool = self._by_name.get(spoken)
        if tool is not None and call.kind not in CLIENT_KINDS:
            return tool
        if spoken in self._their_names or call.kind in self._their_kinds:
            return None
        return ServerTool("", call.name)

    def is_ours(self, tool: Declaration) -> bool:
        """Whether the gateway runs this tool of a request."""
        return spoken_name(tool.name, tool.namespace) in self._by_name

    def _refusal(self, name: str) -> str | None:
        """Why a tool may not be called now, in a message for the model. A model may call a tool that it was not offered."""
        choice = self.choice
        if choice is None or choice.mode in ("auto", "required"):
            return None
        if choice.mode == "none":
            return f"{name} was not run: this request allows no tool. Answer without one."
        named = choice.allowed if choice.tool is None else (*choice.allowed, choice.tool)
        if spoken_name(name, None) in {spoken_name(ref.name, ref.namespace) for ref in named}:
            return None
        return f"{name} was not run: this request allows other tools only."

    def is_theirs(self, call: Call) -> bool:
        """Whether the client runs a call."""
        return self.whose(call) is None

    def _free_name(self, name: str) -> str:
        free, number = name, 1
        while (
            spoken_name(free, None) in self._their_names or spoken_name(free, None) in self._by_name
        ):
            number += 1
            free = f"{name}_{number}"
        return free


class _Offered:
    """A tool under the name that the model is offered."""

    __slots__ = ("_name", "_offer", "_refusal", "_tool")

    def __init__(self, tool: Tool, name: str, refusal: Callable[[str], str | None]) -> None:
        self._tool = tool
        self._refusal = refusal
        offer = tool.offer
        self._name = offer.declaration.name
        declaration = structs.replace(offer.declaration, name=name, namespace=None)
        self._offer = structs.replace(offer, declaration=declaration)

    @property
    def offer(self) -> Offer:
        return self._offer

    async def run(self, invocation: Invocation) -> Output:
        refusal = self._refusal(self._offer.declaration.name)
        if refusal is not None:
            raise ToolError(refusal)
        namespace = self._tool.offer.declaration.namespace
        call = structs.replace(invocation.call, name=self._name, namespace=namespace)
        return await self._tool.run(structs.replace(invocation, call=call))
