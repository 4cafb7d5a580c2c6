"""Calls that a gateway ran, as a Responses client sends them back, as the calls and results that they were. Pure.

To an upstream an `mcp_call` is a call of a function that was offered to it, and its result: so the conversation is whole,
whatever dialect the upstream speaks. Calls that stand together stay together, with their results after them: a provider
takes the calls of one answer in one message only.
"""

from collections.abc import Callable, Iterator

from msgspec import structs

from dragoman.core.aliases import flat_name
from dragoman.core.pairing import INTERRUPTED
from dragoman.model.parts import Call, Part, Result, Text
from dragoman.model.request import Request, Turn
from dragoman.server.hosted.items import ITEM_PREFIX, Label, is_ours, label_of, result_of

__all__ = ("has_hosted_calls", "plain_name", "restore_calls")


def plain_name(label: Label) -> str:
    """What a tool is called that is not offered any more."""
    return flat_name(label.tool, label.server or None)


def has_hosted_calls(request: Request, servers: frozenset[str]) -> bool:
    """Whether there is anything to restore."""
    return any(
        isinstance(part, Call) and part.kind == "mcp" and is_ours(part, servers)
        for turn in request.turns
        if turn.role == "assistant"
        for part in turn.parts
    )


def restore_calls(
    request: Request, servers: frozenset[str], name_of: Callable[[Label], str]
) -> Request:
    """The request with a call and a result for each item of ours. `name_of`: what the model knows a tool by."""
    turns = tuple(_Restoring(servers, name_of).run(request.turns))
    return structs.replace(request, turns=turns)


class _Restoring:
    def __init__(self, servers: frozenset[str], name_of: Callable[[Label], str]) -> None:
        self._servers = servers
        self._name_of = name_of
        self._results: list[Part] = []  # of calls that stand before what comes next
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
        """The turn, in as many as its results make of it."""
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
        result = result_of(item, call_id)
        if result is None:
            result = Result(call_id=call_id, content=(Text(text=INTERRUPTED),), is_error=True)
        self._results.append(result)
        return Call(call_id=call_id, name=self._name_of(label_of(item)), input=item.input or "{}")

    def _flush(self) -> Iterator[Turn]:
        results, self._results = self._results, []
        if results:
            yield Turn(role="tool", parts=tuple(results))
