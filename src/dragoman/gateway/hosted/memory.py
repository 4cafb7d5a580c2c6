"""Stores calls that the gateway ran, and their results, for Chat and Messages clients, which cannot send them back.

Such a client sends back only the text and its own calls, so the model would not see what the tools returned. The
gateway therefore stores the turns of an answer and puts them in place of the client's version. The key consists of the
user's text before the answer, and the first of the client's calls in the answer or, without calls, its text. The turns are
stored in this process only, within a size limit; without them the conversation is shorter, but valid.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

from msgspec import Struct, structs

from dragoman.model.parts import Call, Part, Text, part_size
from dragoman.model.request import Request, Turn
from dragoman.state.escrow import escrow_key

MAX_CHARACTERS = 64 * 1024 * 1024
"""The limit for all stored answers: some thousand answers with long results."""
MAX_ANSWER = 4 * 1024 * 1024
"""The limit for one answer: a conversation with more in one turn fits into no model."""

_Key = tuple[str, str]


class _Remembered(Struct, frozen=True):
    turns: tuple[Turn, ...]
    size: int


class AnswerMemory:
    """The stored answers of one gateway. `is_own` returns whether a call is the client's."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max = max_characters
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
        size = sum(part_size(part) for turn in answer for part in turn.parts)
        if not hosted or size > min(MAX_ANSWER, self._max):
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
        while self._size > self._max:
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
    """A digest of the user's text so far: the same answer may follow many questions, so its text alone is no key."""

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
