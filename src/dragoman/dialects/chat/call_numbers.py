"""Decides which call a Chat delta belongs to, and what that call is named.

A Chat delta refers to its call by `index`, and only the first delta of a call should carry an id and a name. Servers omit
the index, give every call index 0, repeat or change the id on every delta, and cut names in two. `CallNumbers` gives
each entry of `tool_calls` the number of its call; numbers are dense, in the order in which calls are first seen. It does
not read arguments; the callback `is_whole` reports whether a call's input is already whole.

A delta that has an index:

    nothing at that index yet   id known, no name         -> the call with that id
                                otherwise                 -> a new call (its name may come later)
    a call C at that index      no id, or C's own id      -> C; but see below for a named delta without an id
                                the id of another call    -> that call
                                a new id, no name         -> C: a delta without a name never opens a second call
                                a new id and a name       -> a new call takes the index over; C if C had no id and
                                                             has this name or none (its id comes late)

A delta without an index:

    no call yet                                           -> a new call
    a known id                                            -> the call with that id
    a new id and a name                                   -> a new call
    otherwise it continues a call: by position in the chunk when the chunk has several entries, else the call opened
    last; but see below for a named delta without an id

A named delta without an id opens a new call, instead of continuing C, when C already had an entry in this chunk; when
C's input is whole and more comes; or when the name is neither C's nor a piece of it (with an index: only if the name is a
declared tool and C's name is settled).

The first non-empty id and name win; "" is no id and no name. A name is *settled* when no more of it can come: it is
exactly a declared tool; no declared tool begins with it; or a delta of the call came without a name. Where no tools are
declared, the first input settles the name, and a name that comes behind the input is whole. Until then pieces are joined; a piece that begins with the name so far
replaces it.
"""

from collections.abc import Callable, Collection, Hashable, Sequence

from msgspec import Struct

Problem = tuple[str, str]
"""The kind of a problem and its message."""


class Placement(Struct, frozen=True):
    """The number of an entry's call, whether the entry opened the call, and the entry's problems."""

    number: int
    is_new: bool
    problems: tuple[Problem, ...] = ()


class CallName:
    """The name of one call, joined from pieces.

    NAMELESS --piece--> OPEN --piece--> OPEN --see the module--> SETTLED
        '--`settle`: the name was found elsewhere -----------------^
    """

    __slots__ = ("_declared", "is_settled", "text", "was_split")

    def __init__(self, declared: Collection[str] = ()) -> None:
        self._declared = declared
        self.text = ""
        self.is_settled = False
        self.was_split = False

    def take(self, piece: str, *, has_input: bool) -> Problem | None:
        """Take a delta of this call, with a piece of its name ("" for none)."""
        if not piece:
            self.is_settled = bool(self.text)
            return None
        if self.is_settled or piece == self.text:
            self.is_settled = True
            return self._ignore(piece)
        if self.text:
            # A piece that begins with the name so far repeats it.
            whole = piece if piece.startswith(self.text) else self.text + piece
            self.text = piece if piece in self._declared else whole
            self.was_split = True
        else:
            self.text = piece
        self.is_settled = self._cannot_grow(has_input=has_input)
        if not self.was_split:
            return None
        return ("split_name", f"expected the whole name in the first delta, got {piece!r} later")

    def settle(self, name: str = "") -> None:
        """Settle the name. `name` is used if no delta had one."""
        self.text = self.text or name
        self.is_settled = True

    def is_other(self, piece: str) -> bool:
        """Whether the piece must be the name of another call: it is a declared tool, and this name is settled."""
        return self.is_settled and piece != self.text and piece in self._declared

    def is_own(self, piece: str) -> bool:
        """Whether the piece is this name, or continues it towards a declared name."""
        if piece == self.text:
            return True
        whole = self.text + piece
        return not self.is_settled and any(name.startswith(whole) for name in self._declared)

    def _cannot_grow(self, *, has_input: bool) -> bool:
        if not self._declared:
            return has_input
        text = self.text
        return text in self._declared or not any(name.startswith(text) for name in self._declared)

    def _ignore(self, piece: str) -> Problem:
        if piece == self.text:
            message = f"expected the name in the first delta only, got {piece!r} again"
            return ("repeated_name", message)
        return ("changed_name", f"expected the name {self.text!r} to stay, got {piece!r}")


class CallNumbers:
    """Numbers the calls of one choice. Call `begin` for each chunk, then `place` for each of its entries in order.

    `is_whole(number)` returns whether the input of that call is a complete JSON object; `declared` are the names of
    the tools that were offered, if known.
    """

    def __init__(self, is_whole: Callable[[int], bool], declared: Collection[str] = ()) -> None:
        self._is_whole = is_whole
        self._declared = declared
        self._ids: list[str] = []
        self._names: list[CallName] = []
        self._by_index: dict[Hashable, int] = {}
        self._by_id: dict[str, int] = {}
        self._row: list[
            int
        ] = []  # calls opened by the last chunk that opened calls without an index
        self._entries = 0
        self._position = 0
        self._opened = 0  # calls without an index that this chunk has opened
        self._spoken: set[int] = set()  # numbers of the calls that had an entry in this chunk
        self._filled: set[int] = set()  # numbers of the calls without a name that have input

    def begin(self, entries: int) -> None:
        """Begin a chunk with this many entries."""
        self._entries = entries
        self._position = 0
        self._opened = 0
        self._spoken.clear()

    def place(
        self, index: Hashable | None, call_id: str, name: str, *, has_input: bool
    ) -> Placement:
        """Return the number of the next entry's call. `call_id` and `name` are "" where the entry has none."""
        problems: list[Problem] = []
        if index is None:
            problems.append(("missing_index", "expected an index on every tool call, got none"))
            found = self._without_index(call_id, name, has_input=has_input)
        else:
            found = self._at_index(index, call_id, name, has_input=has_input)
        number = self._open(index, call_id, problems) if found is None else found
        if found is not None and call_id:
            problems.append(self._see_id(number, call_id))
        if found is not None and name and not self._names[number].text:
            message = f"expected the name in a call's first delta, got {name!r} later"
            problems.append(("late_name", message))
        problem = self._names[number].take(name, has_input=has_input or number in self._filled)
        if has_input and not self._names[number].text:
            self._filled.add(number)
        if problem is not None:
            problems.append(problem)
        self._position += 1
        self._spoken.add(number)
        return Placement(number, found is None, tuple(problems))

    def id_of(self, number: int) -> str:
        """Return the first id that this call got; "" if it got none, or one that another call has."""
        return self._ids[number]

    def name_of(self, number: int) -> CallName:
        return self._names[number]

    def number_at(self, index: Hashable) -> int | None:
        """Return the number of the call that currently has this index."""
        return self._by_index.get(index)

    def _at_index(self, index: Hashable, call_id: str, name: str, *, has_input: bool) -> int | None:
        current = self._by_index.get(index)
        known = self._by_id.get(call_id) if call_id else None
        if current is None:
            return None if name else known
        if known is not None:
            return known
        if not name:
            return current
        if call_id and (self._ids[current] or self._names[current].text not in ("", name)):
            return None
        again = self._is_again(current, has_input=has_input) or self._names[current].is_other(name)
        return None if again else current

    def _without_index(self, call_id: str, name: str, *, has_input: bool) -> int | None:
        if not self._ids:
            return None
        if call_id:
            known = self._by_id.get(call_id)
            if known is not None or name:
                return known
        current = self._continued()
        if not name:
            return current
        again = self._is_again(current, has_input=has_input)
        return None if again or not self._names[current].is_own(name) else current

    def _is_again(self, number: int, *, has_input: bool) -> bool:
        """Whether a named delta for this call must be the first delta of another call."""
        return number in self._spoken or (has_input and self._is_whole(number))

    def _continued(self) -> int:
        """Return the call that an entry without an index and a known id continues."""
        count = self._entries
        if count < 2:
            return len(self._ids) - 1
        row: Sequence[int] = self._row
        if len(row) < count:
            row = range(len(self._ids))[-count:]
        return row[min(self._position, len(row) - 1)]

    def _open(self, index: Hashable | None, call_id: str, problems: list[Problem]) -> int:
        number = len(self._ids)
        if index is None:
            self._row = [*self._row, number] if self._opened else [number]
            self._opened += 1
        else:
            if index in self._by_index:
                message = f"expected an index of its own for each call, got {index} again"
                problems.append(("index_reused", message))
            self._by_index[index] = number
        if call_id in self._by_id:
            message = f"expected an id of its own for each call, got {call_id!r} again"
            problems.append(("duplicate_id", message))
            call_id = ""
        if call_id:
            self._by_id[call_id] = number
        self._ids.append(call_id)
        self._names.append(CallName(self._declared))
        return number

    def _see_id(self, number: int, call_id: str) -> Problem:
        known = self._ids[number]
        if not known:
            self._ids[number] = call_id
            self._by_id[call_id] = number
            return ("late_id", f"expected the id in a call's first delta, got {call_id!r} later")
        if call_id == known:
            return (
                "repeated_id",
                f"expected the id in the first delta only, got {call_id!r} again",
            )
        message = f"expected later deltas of call {known!r} without an id, got {call_id!r}"
        return ("id_mismatch", message)
