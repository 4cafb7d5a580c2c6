"""What Chat and Messages clients cannot carry, remembered for them: the calls that were run here, and their results.

Such a client sends back what it was told: the words and its own calls. A model that sees no more of its past would not
know what the tools said. So the turns behind an answer are kept, by what the user had said before it and by the first of
the client's calls in it or else its words, and put in the place of what the client sends. Kept in this process only, as
long as there is room; without them the conversation is valid all the same, and shorter.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

from msgspec import Struct, structs

from dragoman.model.parts import Call, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Request, Turn
from dragoman.server.state.escrow import escrow_key

__all__ = ("Asked", "Memory")

MAX_CHARACTERS = 64 * 1024 * 1024
"""Of all that is remembered: some thousand answers with long results."""
MAX_ANSWER = 4 * 1024 * 1024
"""Of one answer: a conversation with more than that in one turn fits into no model."""

_Key = tuple[str, str]


class Asked(Struct, frozen=True):
    """A conversation as its client sent it."""

    owner: str
    turns: tuple[Turn, ...]


class _Remembered(Struct, frozen=True):
    turns: tuple[Turn, ...]
    size: int


class Memory:
    """Of one gateway. `is_own` says whether a call is the client's."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max = max_characters
        self._size = 0
        self._kept: OrderedDict[_Key, _Remembered] = OrderedDict()

    def keep(
        self, asked: Asked, turns: Sequence[Turn], told: str, is_own: Callable[[Call], bool]
    ) -> None:
        """The turns of an answer to what was asked. The client was told these words of them, and its own calls."""
        hosted = any(
            isinstance(part, Call) and part.executor == "client" and not is_own(part)
            for turn in turns
            for part in turn.parts
        )
        size = sum(_size(part) for turn in turns for part in turn.parts)
        if not hosted or size > min(MAX_ANSWER, self._max):
            return
        own = [
            part
            for turn in turns
            for part in turn.parts
            if isinstance(part, Call) and part.executor == "client" and is_own(part)
        ]
        past = _Past()
        for turn in asked.turns:
            past.note(turn)
        key = (asked.owner, past.key_of(own, told))
        self._forget(key)
        self._kept[key] = _Remembered(tuple(turns), size)
        self._size += size
        while self._size > self._max:
            self._forget(next(iter(self._kept)))

    def restore(self, owner: str, request: Request, is_own: Callable[[Call], bool]) -> Request:
        """The request with what is remembered of its answers; the very same if that is nothing."""
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
        # The client's calls as it has them: where a model has used an id twice, it knows the first.
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
    """What the user has said so far: the same words may be the answer to many questions."""

    def __init__(self) -> None:
        self._said = blake2b(digest_size=16)

    def note(self, turn: Turn) -> None:
        if turn.role == "user":
            self._said.update(_text(turn).encode("utf-8", "surrogatepass") + b"\0")

    def key_of(self, own: Sequence[Call], told: str) -> str:
        """What an answer is known by that comes next."""
        answer = escrow_key(own[0]) if own else told.strip()
        digest = self._said.copy()
        digest.update(b"call " if own else b"text ")
        digest.update(answer.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def _text(turn: Turn) -> str:
    return "".join(part.text for part in turn.parts if isinstance(part, Text))


def _size(part: Part) -> int:
    match part:
        case Text() | Refusal():
            return len(part.text)
        case Reasoning():
            return sum(map(len, (*part.summary, *part.content)))
        case Call():
            return len(part.input)
        case Result():
            return sum(_size(each) for each in part.content)
        case Opaque():
            return len(bytes(part.raw))
        case _:
            return len(part.data or "")
