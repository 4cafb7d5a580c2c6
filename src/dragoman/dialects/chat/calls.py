"""The calls of one choice: decodes the entries of `tool_calls`, and decides when a call is announced and ended.

Calls are announced in the order they were first seen, each once its name is settled. A call ends early, so that
consumers that take one part at a time can continue, when another part begins and the call's input is already a complete
JSON object. All other calls end when the choice finishes. `core.open_parts` emits the events of a call.

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

The first non-empty id and name win; "" is neither an id nor a name. A name is *settled* when no more of it can come: it is
exactly a declared tool; no declared tool begins with it; or a delta of the call came without a name. Where no tools are
declared, the first input settles the name, and a name that comes behind the input is whole. Until then pieces are joined; a
piece that begins with the name so far replaces it.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, is_strict
from dragoman.core.fields import quoted
from dragoman.core.open_parts import OpenCall, Parts
from dragoman.dialects.chat.entries import CallEntry, merge_objects
from dragoman.errors import MalformedJson, RemoteProtocolError
from dragoman.model.parts import Call, CallKind, Extra, PartStatus, Seal

_LEGACY_INDEX = "function_call"

# Problems that are not reported for the first entry of a call: there they only mean that the id or the name is absent.
_LATER_ONLY = frozenset({"empty_id", "empty_name"})

# Characters of a name that comes in pieces, which are joined each time. The vendors allow 64 and 128.
MAX_SPLIT_NAME = 4096

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
            if len(whole) > MAX_SPLIT_NAME:
                message = f"expected at most {MAX_SPLIT_NAME} characters of a name in pieces"
                raise RemoteProtocolError(f"{message}, got {len(whole)}")
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
        # Calls opened by the last chunk that opened calls without an index.
        self._row: list[int] = []
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


class ChoiceCall:
    """One call with what only Chat has: its index, the pieces of its name, inputs that are objects."""

    __slots__ = (
        "_extra",
        "_parts",
        "_was_checked",
        "_was_compared",
        "call_id",
        "index",
        "is_legacy",
        "name",
        "number",
        "open",
        "values",
    )

    def __init__(
        self, parts: Parts, choice: int, number: int, name: CallName, entry: CallEntry
    ) -> None:
        kind: CallKind = entry.kind or "function"
        header = Call(call_id="", name="", kind=kind)
        self._parts = parts
        self._extra: dict[str, Raw] = {}
        self._was_checked = False
        self._was_compared = False
        self.open = OpenCall(parts, header, empty="" if kind == "custom" else "{}", choice=choice)
        self.values: list[Raw] = []  # inputs that came as JSON objects instead of text
        self.number = number
        self.name = name
        self.index = entry.index
        self.is_legacy = entry.is_legacy
        self.call_id = ""

    @property
    def is_whole(self) -> bool:
        return bool(self.values) or self.open.is_whole

    def announce(self, call_id: str) -> None:
        self.call_id = call_id
        header = replace(self._header(), call_id=call_id, name=self.name.text)
        self.open.header = header
        self.open.announce()

    def fill(self, entry: CallEntry) -> None:
        """Add the contents of an entry other than id and name."""
        self._extra.update(entry.extra)
        if entry.extra_content is not None:
            self.open.seal(Seal("thought", bytes(entry.extra_content).decode("utf-8")))
        if entry.value is not None:
            self._add_value(entry.value)
        elif entry.text:
            self.open.add(entry.text)

    def is_repeated_by(self, entry: CallEntry) -> bool:
        """Whether an entry is the whole call again, as some servers send it at its end. Its input is one object, which nothing
        can follow. Compared only once: servers that send id and name with every delta must not cost quadratic work.
        """
        text = entry.text
        is_perhaps = bool(entry.id and entry.name) and text[:1] == "{" and text[-1:] == "}"
        if not is_perhaps or self._was_compared or self.open.header.kind == "custom":
            return False
        self._was_compared = True
        return text == self.open.text() and is_strict(text)

    def can_end_early(self) -> bool:
        """Whether the input is a complete object. Checked only once: parsing the input repeatedly would not be linear."""
        is_custom = self.open.header.kind == "custom"
        if self._was_checked or not self.open.is_announced or is_custom:
            return False
        self._was_checked = True
        return bool(self.values) or self.open.is_object()

    def settle(self) -> str:
        """Return the whole input; no more may come."""
        if self.values:
            self.open.add(merge_objects(self.values))
            self.values.clear()
        return self.open.settle()

    def end(self, status: PartStatus) -> None:
        self.settle()
        self.open.end(status, self._header())

    def _add_value(self, value: Raw) -> None:
        """Keep an input that came as an object until the end of the call, because more objects may come."""
        if self.open.has_input:
            raise MalformedJson("expected a call's input to continue as a string, got an object")
        text = bytes(value).decode("utf-8")
        message = f"expected a call's input as a string, got {text[:40]}"
        self._parts.report("object_input", message)
        self.values.append(value)

    def _header(self) -> Call:
        extra = Extra("chat", dict(self._extra)) if self._extra else None
        return replace(self.open.header, extra=extra)


class CallTrack:
    """The calls of one choice."""

    def __init__(self, parts: Parts, choice: int, declared: frozenset[str]) -> None:
        self._parts = parts
        self._choice = choice
        self._calls: list[ChoiceCall] = []
        self._numbers = CallNumbers(partial(_is_whole, self._calls), declared)
        self._waiting: list[ChoiceCall] = []  # not yet announced; few, and a deque takes 600 bytes
        self._ids: set[str] = set()
        self._active: ChoiceCall | None = None  # the call of the last entry
        self._was_interleaved = False
        self._unusable: RemoteProtocolError | None = None

    @property
    def has_complete(self) -> bool:
        return any(call.open.is_complete for call in self._calls)

    @property
    def plain(self) -> ChoiceCall | None:
        """The call that a plain delta with its index continues, if there is one."""
        call = self._active
        if call is None or call.index is None or call.values or not call.open.is_plain:
            return None
        return call if self._numbers.number_at(call.index) == call.number else None

    def read(self, entries: list[CallEntry], *, wire_index: int = 0) -> None:
        """Decode the entries of one delta. `wire_index`: the choice they came in, where several are merged into this one.

        Each such choice has its own indices.

        Raises:
            RemoteProtocolError: input for a call that has ended.
        """
        self._numbers.begin(len(entries))
        for entry in entries:
            self._take(entry, wire_index)
        self._announce_settled()

    def read_whole(self, entries: list[CallEntry]) -> None:
        """Decode the calls of a message that is not streamed: each entry is one call; the last ends with its choice."""
        for entry in entries:
            if self._active is not None and not self._active.open.has_ended:
                self._finish_call(self._active, was_cut=False)
            call = ChoiceCall(self._parts, self._choice, len(self._calls), CallName(), entry)
            call.call_id = entry.id
            call.name.settle(entry.name)
            self._add(call)
            call.fill(entry)

    def refuse(self, error: RemoteProtocolError) -> None:
        """Note an entry of a body's message that cannot be read. The other calls are emitted; then the answer fails."""
        self._parts.report("malformed_call", error.message)
        self._unusable = error

    def pause(self) -> None:
        """Another part begins: the active call's name is settled, and the call ends if its input is complete."""
        call = self._active
        if call is None or call.open.has_ended:
            return
        if call.name.text:
            call.name.settle()
            self._announce_settled()
        if call.can_end_early():
            call.end("completed")

    def finish(self, *, was_cut: bool) -> None:
        """End all calls: the choice is over. `was_cut`: a limit or a filter ended it, so its last call may be incomplete.

        Raises:
            RemoteProtocolError: a call has no name and none can be inferred.
        """
        left = [call for call in self._calls if not call.open.has_ended]
        for call in left:
            # After a limit the last call is never complete, even if its input happens to be JSON.
            is_cut = was_cut and (call is left[-1] or not is_strict(call.settle()))
            self._finish_call(call, was_cut=is_cut)
        # The answer fails only now: the other calls are whole, and are emitted as completed.
        if self._unusable is not None:
            raise self._unusable
        if self._parts.fault:
            raise RemoteProtocolError(self._parts.fault)

    def abandon(self) -> None:
        """End the open calls as incomplete: the answer was cut."""
        for call in self._calls:
            if not call.open.has_ended:
                self._finish_call(call, was_cut=True)

    def are_strict(self) -> bool:
        """Whether the inputs of all open calls are JSON, so that a missing finish can be inferred."""
        return all(
            call.open.header.kind == "custom" or is_strict(call.settle())
            for call in self._calls
            if not call.open.has_ended
        )

    def _take(self, entry: CallEntry, wire_index: int) -> None:
        index: object = _LEGACY_INDEX if entry.is_legacy else entry.index
        if wire_index and index is not None:
            index = (wire_index, index)
        place = self._numbers.place(index, entry.id, entry.name, has_input=entry.has_input)
        for kind, message in (*entry.problems, *place.problems):
            if not (place.is_new and kind in _LATER_ONLY):
                self._parts.report(kind, message)
        if place.is_new:
            self.pause()
            name = self._numbers.name_of(place.number)
            self._add(ChoiceCall(self._parts, self._choice, place.number, name, entry))
        call = self._calls[place.number]
        if not call.open.is_announced:
            call.call_id = self._numbers.id_of(place.number)
        if call.open.has_ended:
            self._take_late(entry, call)
            return
        if not place.is_new and call.is_repeated_by(entry):
            message = "expected increments of a call's input, got all of it again"
            self._parts.report("cumulative_input", message)
            return
        if call is not self._active:
            self._note_interleaving()
            self._active = call
        call.fill(entry)

    def _take_late(self, entry: CallEntry, call: ChoiceCall) -> None:
        text = entry.text
        ended = call.open.ended
        is_repeated = not text.strip() or (ended is not None and ended.is_same(text))
        if entry.value is None and is_repeated:
            # Blanks, or the whole input again: some servers repeat everything in each delta.
            return
        message = f"expected nothing more for call {call.call_id!r}, got {quoted(entry.text[:40])}"
        self._parts.report("input_after_end", message)
        raise RemoteProtocolError(message)

    def _note_interleaving(self) -> None:
        if not self._was_interleaved:
            self._was_interleaved = True
            message = "expected each call's deltas together, got another call's between them"
            self._parts.report("interleaved_calls", message)

    def _add(self, call: ChoiceCall) -> None:
        self._calls.append(call)
        self._waiting.append(call)
        self._active = call

    def _announce_settled(self) -> None:
        while self._waiting and self._waiting[0].name.is_settled:
            self._announce(self._waiting.pop(0))

    def _announce(self, call: ChoiceCall) -> None:
        call_id = call.call_id
        if not call_id or call_id in self._ids:
            if not call.is_legacy:
                self._parts.report(
                    "missing_id", "expected an id of its own for each call, got none"
                )
            call_id = self._parts.mint("call_")
        self._ids.add(call_id)
        call.announce(call_id)

    def _finish_call(self, call: ChoiceCall, *, was_cut: bool) -> None:
        if not call.open.is_announced and not self._name(call, must_name=not was_cut):
            return
        call.end("incomplete" if was_cut else "completed")

    def _name(self, call: ChoiceCall, *, must_name: bool) -> bool:
        """Settle the name of a call that still waits, and announce it. False: it has no name and is dropped."""
        self._waiting.remove(call)
        if not call.name.text:
            name = self._parts.find_name(call.settle(), call.number)
            if name is None:
                call.open.header = replace(call.open.header, call_id=call.call_id)
                call.open.drop(is_fault=must_name)
                return False
            self._parts.report(
                "missing_name", f"expected a name for every call, got none: inferred {name!r}"
            )
            call.name.settle(name)
        call.name.settle()
        self._announce(call)
        return True


def _is_whole(calls: list[ChoiceCall], number: int) -> bool:
    return calls[number].is_whole
