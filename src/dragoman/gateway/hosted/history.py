"""Restores calls that the gateway ran, from the items that a Responses client sends back. Pure.

Each item becomes a function call and its result for the upstream, so the conversation is complete in every dialect.
Adjacent calls stay together, with their results after them, because a provider accepts the calls of one answer only in one
message.
"""

from collections.abc import Callable, Iterator

from msgspec import structs

from dragoman.core.aliases import flat_name
from dragoman.core.pairing import INTERRUPTED
from dragoman.dialects.responses.mcp_calls import ServerTool, mcp_result, mcp_tool
from dragoman.model.parts import Call, Part, Result, Text
from dragoman.model.request import Request, Turn

ITEM_PREFIX = "mcp_dgm"
"""The prefix of our item ids. The vendor's ids continue with digits after `mcp_`."""


def plain_name(tool: ServerTool) -> str:
    """The name for a tool that is no longer offered."""
    return flat_name(tool.tool, tool.server or None)


def is_ours(call: Call, servers: frozenset[str]) -> bool:
    """Whether a gateway ran the call: decided by its id or, where a client left the id out, by its server's name."""
    if call.kind != "mcp" or call.executor == "client":
        return False
    if call.item_id is not None:
        return call.item_id.startswith(ITEM_PREFIX)
    return mcp_tool(call).server in servers


def has_hosted_calls(request: Request, servers: frozenset[str]) -> bool:
    """Whether the request has items of calls that the gateway ran."""
    return any(
        isinstance(part, Call) and part.kind == "mcp" and is_ours(part, servers)
        for turn in request.turns
        if turn.role == "assistant"
        for part in turn.parts
    )


def restore_calls(
    request: Request, servers: frozenset[str], name_of: Callable[[ServerTool], str]
) -> Request:
    """The request with a call and a result in place of each item of ours. `name_of` returns a tool's name for the model."""
    turns = tuple(_Restorer(servers, name_of).run(request.turns))
    return structs.replace(request, turns=turns)


class _Restorer:
    def __init__(self, servers: frozenset[str], name_of: Callable[[ServerTool], str]) -> None:
        self._servers = servers
        self._name_of = name_of
        self._results: list[Part] = []  # of the calls before the next part
        self._count = 0

    def run(self, turns: tuple[Turn, ...]) -> Iterator[Turn]:
        for turn in turns:
            if turn.role == "assistant" and turn.parts:
                yield from self._split(turn)
            else:
                yield from self._flush()
                yield turn
        yield from self._flush()

    def _split(self, turn: Turn) -> Iterator[Turn]:
        """The turn, split where results belong between its parts."""
        said: list[Part] = []
        is_split = False
        for part in turn.parts:
            if isinstance(part, Call) and is_ours(part, self._servers):
                said.append(self._call(part))
                is_split = True
                continue
            if self._results and not isinstance(part, Call):
                if said:
                    yield structs.replace(turn, parts=tuple(said))
                    said = []
                yield from self._flush()
            said.append(part)
        if said:
            yield structs.replace(turn, parts=tuple(said)) if is_split else turn

    def _call(self, item: Call) -> Call:
        self._count += 1
        call_id = item.item_id or item.call_id or f"{ITEM_PREFIX}_{self._count}"
        result = mcp_result(item, call_id)
        if result is None:
            result = Result(call_id=call_id, content=(Text(text=INTERRUPTED),), is_error=True)
        self._results.append(result)
        return Call(call_id=call_id, name=self._name_of(mcp_tool(item)), input=item.input or "{}")

    def _flush(self) -> Iterator[Turn]:
        results, self._results = self._results, []
        if results:
            yield Turn(role="tool", parts=tuple(results))
