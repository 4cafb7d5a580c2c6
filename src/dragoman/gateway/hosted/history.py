"""Puts calls that the gateway ran back into the conversations that clients send. Pure.

A Responses client sends the items of these calls back. Each item becomes a function call and its result for the upstream, so the
conversation is complete in every dialect. Adjacent calls stay together, with their results after them, because a provider accepts the
calls of one answer only in one message.

A client of Chat or Messages sends back only the text and its own calls, so the model would not see what the tools returned. The
gateway therefore stores the turns of an answer (`AnswerMemory`) and puts them in place of the client's version. The key consists of the
user's text before the answer, and the first of the client's calls in the answer or, without calls, its text. The turns are
stored in this process only, within a size limit; without them the conversation is shorter, but valid.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct, structs

from dragoman.core.aliases import flat_name
from dragoman.core.pairing import INTERRUPTED
from dragoman.dialects.responses.mcp_calls import ServerTool, mcp_result, mcp_tool
from dragoman.model.parts import Call, Part, Result, Text, part_size
from dragoman.model.request import Request, Turn
from dragoman.state.escrow import escrow_key

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


# --- calls that clients cannot send back -----------------------------------------------------------------------------

MAX_CHARACTERS = 64 * 1024 * 1024
"""The limit for all stored answers: some thousand answers with long results."""
PART_CHARACTERS = 400
"""What a part counts besides its text: an answer of a few words takes more than a kilobyte of memory."""
MAX_ANSWER = 4 * 1024 * 1024
"""The limit for one answer: a conversation with more in one turn fits into no model."""

_Key = tuple[str, str]


class _Remembered(Struct, frozen=True):
    turns: tuple[Turn, ...]
    size: int


class AnswerMemory:
    """The stored answers of one gateway. `is_own` returns whether a call is the client's."""

    def __init__(self) -> None:
        self._size = 0
        self._kept: OrderedDict[_Key, _Remembered] = OrderedDict()

    def keep(
        self,
        owner: str,
        asked: Sequence[Turn],
        answer: Sequence[Turn],
        *,
        text: str,
        is_own: Callable[[Call], bool],
    ) -> None:
        """Store the turns of `answer`, the answer to the turns `asked`. The client received `text` and its own calls."""
        hosted = any(
            isinstance(part, Call) and part.executor == "client" and not is_own(part)
            for turn in answer
            for part in turn.parts
        )
        size = sum(part_size(part) + PART_CHARACTERS for turn in answer for part in turn.parts)
        if not hosted or size > MAX_ANSWER:
            return
        own = [
            part
            for turn in answer
            for part in turn.parts
            if isinstance(part, Call) and part.executor == "client" and is_own(part)
        ]
        past = _Past()
        for turn in asked:
            past.note(turn)
        key = (owner, past.key_of(own, text))
        self._forget(key)
        self._kept[key] = _Remembered(tuple(answer), size)
        self._size += size
        while self._size > MAX_CHARACTERS:
            self._forget(next(iter(self._kept)))

    def restore(self, owner: str, request: Request, is_own: Callable[[Call], bool]) -> Request:
        """The request with its answers replaced by the stored turns; the same object if none is stored."""
        if not self._kept:
            return request
        turns: list[Turn] = []
        is_same = True
        past = _Past()
        for turn in request.turns:
            past.note(turn)
            kept = self._find(owner, past, turn, is_own) if turn.role == "assistant" else None
            if kept is None:
                turns.append(turn)
            else:
                turns += kept
                is_same = False
        return request if is_same else structs.replace(request, turns=tuple(turns))

    def _find(
        self, owner: str, past: "_Past", turn: Turn, is_own: Callable[[Call], bool]
    ) -> tuple[Turn, ...] | None:
        own = [part for part in turn.parts if isinstance(part, Call) and part.executor == "client"]
        key = (owner, past.key_of(own, _text(turn)))
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        # Take the ids of the client's calls: where a model used an id twice, the client knows only the first.
        theirs = iter(own)
        turns: list[Turn] = []
        for each in kept.turns:
            parts: list[Part] = []
            for part in each.parts:
                if isinstance(part, Call) and part.executor == "client" and is_own(part):
                    call = next(theirs, None)
                    if call is None:
                        return None
                    parts.append(structs.replace(part, call_id=call.call_id))
                else:
                    parts.append(part)
            turns.append(structs.replace(each, parts=tuple(parts)))
        return tuple(turns) if next(theirs, None) is None else None

    def _forget(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size


class _Past:
    """A digest of the user's text so far: the same answer may follow many questions, so its text alone is not a key."""

    def __init__(self) -> None:
        self._said = blake2b(digest_size=16)

    def note(self, turn: Turn) -> None:
        if turn.role == "user":
            self._said.update(_text(turn).encode("utf-8", "surrogatepass") + b"\0")

    def key_of(self, own: Sequence[Call], text: str) -> str:
        """The key of an answer that follows the turns noted so far."""
        answer = escrow_key(own[0]) if own else text.strip()
        digest = self._said.copy()
        digest.update(b"call " if own else b"text ")
        digest.update(answer.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def _text(turn: Turn) -> str:
    return "".join(part.text for part in turn.parts if isinstance(part, Text))
