"""The calls of one choice: which entry goes to which call, and when a call is announced and ended.

Calls are announced in the order they were first seen, each once its name is settled. A call ends early, so that
consumers that take one part at a time can go on, when something else begins and its input is already a complete JSON
object. All others end when the choice finishes. Which entry belongs to which call is `core.slots`.
"""

from functools import partial

from dragoman._json import is_strict
from dragoman.core.names import resolve_name
from dragoman.core.slots import CallName, Slots
from dragoman.dialects.chat.entries import CallEntry
from dragoman.dialects.chat.open_call import OpenCall
from dragoman.dialects.chat.telling import Telling
from dragoman.errors import RemoteProtocolError

__all__ = ("CallTrack",)

_LEGACY_INDEX = "function_call"

# Said of an entry that opens a call these are no more than the absence of an id or a name.
_LATER_ONLY = frozenset({"empty_id", "empty_name"})


class CallTrack:
    """The calls of one choice."""

    def __init__(self, telling: Telling, choice: int) -> None:
        declared = frozenset(tool.name for tool in telling.context.tools)
        self._telling = telling
        self._choice = choice
        self._calls: list[OpenCall] = []
        self._slots = Slots(partial(_is_whole, self._calls), declared)
        self._waiting: list[OpenCall] = []  # few: no deque, which takes 600 bytes
        self._ids: set[str] = set()
        self._active: OpenCall | None = None  # the one that was spoken to last
        self._was_interleaved = False
        self._unusable: RemoteProtocolError | None = None

    @property
    def has_complete(self) -> bool:
        return any(call.is_complete for call in self._calls)

    @property
    def plain(self) -> OpenCall | None:
        """The call that the next delta with its index continues, if its fragments need no thought."""
        call = self._active
        if call is None or call.index is None or not call.is_plain:
            return None
        return call if self._slots.slot_at(call.index) == call.slot else None

    def read(self, entries: list[CallEntry], *, lane: int = 0) -> None:
        """The entries of one delta. Indices count anew in each `lane`, a choice of the wire merged into this one.

        Raises:
            RemoteProtocolError: input for a call that has ended.
        """
        self._slots.begin(len(entries))
        for entry in entries:
            self._take(entry, lane)
        self._announce_settled()

    def read_whole(self, entries: list[CallEntry]) -> None:
        """The calls of a message that is not streamed: each entry is one call; the last ends with its choice."""
        for entry in entries:
            if self._active is not None and not self._active.has_ended:
                self._finish_call(self._active, was_cut=False)
            call = OpenCall(self._telling, len(self._calls), CallName(), entry)
            call.call_id = entry.id
            call.name.settle(entry.name)
            self._add(call)
            call.fill(entry)

    def refuse(self, error: RemoteProtocolError) -> None:
        """An entry of a message that is not streamed cannot be read. The others can: the answer fails when it ends."""
        self._telling.odd("malformed_call", error.message)
        self._unusable = error

    def pause(self) -> None:
        """Something else begins: no more of the name can come, and a complete call ends."""
        call = self._active
        if call is None or call.has_ended:
            return
        if call.name.text:
            call.name.settle()
            self._announce_settled()
        if call.can_end_early():
            call.end("completed")

    def finish(self, *, was_cut: bool) -> None:
        """The choice is over; `was_cut`: by a limit or a filter, so that its last call is not to be trusted.

        Raises:
            RemoteProtocolError: a call has no name and none can be concluded.
        """
        left = [call for call in self._calls if not call.has_ended]
        for call in left:
            # A limit never leaves the last call complete, even if what arrived happens to be JSON.
            is_cut = was_cut and (call is left[-1] or not is_strict(call.input_so_far()))
            self._finish_call(call, was_cut=is_cut)
        if self._unusable is not None:
            # Only now: the calls beside the unusable one are whole, and are told as such.
            raise self._unusable

    def abandon(self) -> None:
        """The answer was cut: what is open ends as it is."""
        for call in self._calls:
            if not call.has_ended:
                self._finish_call(call, was_cut=True)

    def are_strict(self) -> bool:
        """Whether what is still open is JSON, so that an end that was not spelled out can be inferred."""
        return all(
            call.kind == "custom" or is_strict(call.input_so_far())
            for call in self._calls
            if not call.has_ended
        )

    def _take(self, entry: CallEntry, lane: int) -> None:
        index: object = _LEGACY_INDEX if entry.is_legacy else entry.index
        if lane and index is not None:
            index = (lane, index)
        place = self._slots.place(index, entry.id, entry.name, has_input=entry.has_input)
        for kind, message in (*entry.oddities, *place.oddities):
            if not (place.is_new and kind in _LATER_ONLY):
                self._telling.odd(kind, message)
        if place.is_new:
            self.pause()
            self._add(OpenCall(self._telling, place.slot, self._slots.name_of(place.slot), entry))
        call = self._calls[place.slot]
        if call.part < 0:
            call.call_id = self._slots.id_of(place.slot)
        if call.has_ended:
            self._take_late(entry, call)
            return
        if call is not self._active:
            self._note_interleaving()
            self._active = call
        call.fill(entry)

    def _take_late(self, entry: CallEntry, call: OpenCall) -> None:
        text = entry.text.strip()
        if entry.value is None and text in ("", call.buffer.text().strip()):
            # Blanks, or all of it again, as servers send that repeat everything in each delta.
            return
        message = f"expected nothing more for call {call.call_id!r}, got {entry.text[:40]!r}"
        self._telling.odd("input_after_end", message)
        raise RemoteProtocolError(message)

    def _note_interleaving(self) -> None:
        if not self._was_interleaved:
            self._was_interleaved = True
            message = "expected each call's deltas together, got another call's between them"
            self._telling.odd("interleaved_calls", message)

    def _add(self, call: OpenCall) -> None:
        self._calls.append(call)
        self._waiting.append(call)
        self._active = call

    def _announce_settled(self) -> None:
        while self._waiting and self._waiting[0].name.is_settled:
            self._announce(self._waiting.pop(0))

    def _announce(self, call: OpenCall) -> None:
        call_id = call.call_id
        if not call_id or call_id in self._ids:
            if not call.is_legacy:
                self._telling.odd("missing_id", "expected an id of its own for each call, got none")
            call_id = self._telling.mint_call_id()
        self._ids.add(call_id)
        call.announce(call_id, self._choice)

    def _finish_call(self, call: OpenCall, *, was_cut: bool) -> None:
        if call.part < 0 and not self._name(call, must_name=not was_cut):
            return
        call.end("incomplete" if was_cut else "completed")

    def _name(self, call: OpenCall, *, must_name: bool) -> bool:
        """Settle the name of a call that still waits, and announce it. False: it has none, and goes unseen."""
        self._waiting.remove(call)
        if not call.name.text:
            context = self._telling.context
            name = resolve_name(
                call.input_so_far(), context.tools, call.slot, context.name_fallback
            )
            if name is None:
                call.has_ended = True
                message = (
                    "expected a name for every call, got one without that no offered tool fits"
                )
                self._telling.odd("nameless_call", message)
                if must_name:
                    self._unusable = RemoteProtocolError(message)
                return False
            self._telling.odd("missing_name", f"expected a name for every call, concluded {name!r}")
            call.name.settle(name)
        call.name.settle()
        self._announce(call)
        return True


def _is_whole(calls: list[OpenCall], slot: int) -> bool:
    return calls[slot].is_whole
