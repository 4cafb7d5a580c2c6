"""The calls of an answer: opened with their item, announced when their name is known, ended with their item.

A call may be an item of its own, stand inside a message (backends behind reverse proxies), or be implied by the first
fragment of its input. Names and ids are set once: the first that is not empty wins.

Some backends finish an item before its arguments have come, with no more than the names and ids of its calls. Such a call
waits for its arguments: each `.done` event closes one call, in the order of the item's content. If the arguments never
come, the call is incomplete and the answer fails.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.call_input import input_key, is_same_input
from dragoman.core.fields import Fields, first_byte, read_text
from dragoman.core.open_parts import OpenCall, Parts
from dragoman.dialects.responses.items import (
    find_call_id,
    find_input,
    find_name,
    read_call,
    read_function_like,
    read_regular_call,
)
from dragoman.dialects.responses.open_items import ItemCall, OpenItem, OpenItems
from dragoman.dialects.responses.wire import CALL_ITEMS
from dragoman.model.parts import Call, PartStatus


class OutputCalls:
    """The calls of one answer."""

    def __init__(self, parts: Parts, items: OpenItems) -> None:
        self._parts = parts
        self._items = items
        self._count = 0
        self._open: ItemCall | None = None
        self._complete: dict[str, None] = {}  # ids of the client's calls that are complete
        self._answered: set[str] = set()
        # The ids that came, by those under which the calls were emitted.
        self._wire_ids: dict[str, str] = {}
        self.is_final = False  # the final output is being read, so no call can wait for more
        self.gaps = 0  # places of the stream where events are missing; an open call may lack a piece of its input

    @property
    def has_waiting(self) -> bool:
        """Whether complete calls wait for the client. A call that the provider has answered itself does not wait."""
        return any(call_id not in self._answered for call_id in self._complete)

    def answer(self, call_id: str) -> None:
        """Note that the provider gave the result itself."""
        self._answered.add(call_id)

    def open(self, item: OpenItem, raw_item: Raw, fields: Fields) -> None:
        """Open the call of an announced item."""
        said = self._read(item, raw_item, fields)
        self._inspect(item, fields, said)
        header = replace(said, input="", status="in_progress", item_id=item.id)
        if item.calls:
            call = item.calls[0]
            if not call.open.is_announced:
                spec = CALL_ITEMS[item.type]
                call.open.become(_merged(call.open.header, header), spec.empty)
                call.wire = spec.delta
        else:
            call = self._add(item, header, item.type)
        call.open.early = said.input
        self._announce(item, call)

    def open_inner(self, item: OpenItem, fields: Fields) -> None:
        """Open a call that is a content part of a message."""
        said = read_function_like(fields, item.id)
        last = item.calls[-1] if item.calls else None
        if last is not None and last.open.is_announced and item.type != "message":
            self._compare(last, said)
            return
        if last is not None and not last.open.is_announced and not last.open.header.name:
            last.open.header = _merged(last.open.header, said)
            call = last
        else:
            call = self._add(item, replace(said, input="", status="in_progress"), "function_call")
            call.lacks_input = find_input(fields)[0] is None
            item.active = None
            # Which call of the item the next delta belongs to is no longer certain. It is read field by field, as is the next
            # of every other part, which then finds its part by the id again.
            self._items.streaming.clear()
        call.open.early = said.input
        self._announce(item, call)

    def is_parallel(self, item: OpenItem) -> bool:
        """Whether the next piece of an item's input may belong to one of several calls."""
        return sum(not call.had_done for call in item.calls) > 1

    def current(self, item: OpenItem, item_type: str, fields: Fields) -> ItemCall:
        """Return the call that a piece of an item's input belongs to.

        In this order: the call that the event names; the call that took input last; the first call of the item that has no
        input yet, or that ended with its item and whose `.done` event is due; a new call without a name.
        """
        waiting = [call for call in item.calls if not call.had_done]
        call_id = find_call_id(fields) if len(waiting) > 1 else ""
        for call in waiting:
            if call_id and call.open.header.call_id == call_id:
                return call
        if item.active is not None and not item.active.had_done:
            return item.active
        for call in waiting:
            if call.open.has_ended or not call.open.has_input:
                return call
        if waiting:
            return waiting[-1]
        if item.calls and item.announced and item.type != "message":
            return item.calls[-1]
        spec = CALL_ITEMS[item_type]
        header = Call(
            call_id="",
            name=spec.name,
            kind=spec.kind,
            executor=spec.executor,
            item_id=item.id,
            status="in_progress",
        )
        call = self._add(item, header, item_type)
        self._announce(item, call)
        return call

    def identify(self, item: OpenItem, call: ItemCall, fields: Fields) -> None:
        """Take the name and the id that come with a piece of input."""
        if call.open.is_announced:
            return
        header = call.open.header
        call.open.header = replace(
            header,
            name=header.name or find_name(fields),
            call_id=header.call_id or find_call_id(fields),
        )
        # An item that was not announced has its id in its end; no id may be invented before that.
        if call.open.header.call_id or item.type == "message":
            self._announce(item, call)

    def close_input(self, item: OpenItem, call: ItemCall, text: str) -> None:
        """Handle `function_call_arguments.done` and its like. A call inside a message, or of a finished item, has no other end."""
        # Only the order says which call it is.
        is_ordered = item.type == "message" or not item.announced
        is_other = is_ordered and _is_other(call.open.text(), text)
        self._complete_input(call, text)
        if is_other or (self.gaps and len(item.calls) > 1):
            call.gaps = -1  # this may be the input of another call
        call.closed = call.had_done = True
        call.had_whole = bool(text)
        item.active = None
        if call.open.is_announced and (item.type == "message" or call.finished is not None):
            self.end(call, "completed", call.finished)

    def close_late(self, call: ItemCall, text: str) -> None:
        """Compare the input of an ended call with the events of that input that came after its end."""
        late = "".join(call.late)
        whole = text or ("" if input_key(late) == call.rest else late)
        call.late.clear()
        call.had_done = True
        if whole and call.open.header.executor == "client":
            self._compare_whole(call, whole, "after its end")

    def finish(self, item: OpenItem, raw_item: Raw, fields: Fields, status: PartStatus) -> None:
        """End the call of a finished item."""
        spec = CALL_ITEMS[item.type]
        value = fields.get(spec.field)
        if spec.form == "text" and value is not None and first_byte(value) in (b"{", b"["):
            message = f"expected {spec.field} as a string, got JSON of another type"
            self._parts.report("object_input", message)
        call = item.calls[0]
        call.lacks_input = find_input(fields)[0] is None
        self._finish(item, call, self._read(item, raw_item, fields), status)

    def match_inner(self, item: OpenItem, entries: Sequence[Fields]) -> list[ItemCall | None]:
        """Return the calls that are the entries of a finished item's content: by id, else by order; None for a new call."""
        ids = [find_call_id(entry) or read_text(entry.get("id")) or "" for entry in entries]
        known = {call.open.header.call_id: call for call in item.calls if call.open.header.call_id}
        named = set(ids)
        others = iter([call for call in item.calls if call.open.header.call_id not in named])
        return [known.pop(call_id, None) or next(others, None) for call_id in ids]

    def finish_inner(
        self, item: OpenItem, call: ItemCall | None, fields: Fields, *, is_only: bool
    ) -> None:
        """End a call that is an entry of a finished item's content, or let it wait for its arguments.

        is_only: the content has no other call.
        """
        said = read_function_like(fields, item.id)
        if call is None:
            call = self._add(item, replace(said, input="", status="in_progress"), "function_call")
        call.lacks_input = find_input(fields)[0] is None
        if self.gaps and call.had_done and not is_only:
            call.gaps = -1
        self._finish(item, call, said, "completed", placeholder="{}")

    def finish_rest(self, item: OpenItem, status: PartStatus) -> None:
        """End the calls of a finished item that its content does not repeat."""
        for call in item.calls:
            if call.open.is_announced and not call.open.has_ended and call.finished is None:
                self._finish(item, call, call.open.header, status)

    def end(self, call: ItemCall, status: PartStatus, value: Call | None) -> None:
        is_client = call.open.header.executor == "client"
        if call.gaps < (self.gaps if is_client else 0) and status == "completed":
            status = "incomplete"
            name = call.open.header.name
            fault = f"events of the call of {name!r} are missing, and nothing repeats its input"
            self._parts.fault = fault
            self._parts.report("missing_events", fault)
        call.open.end(status, value)
        header = call.open.header
        if call.open.is_complete and (value or header).executor == "client":
            self._complete[header.call_id] = None

    def close(
        self, item: OpenItem, call: ItemCall, status: PartStatus, *, is_failure: bool
    ) -> None:
        """Close a call that is still open at the end of the answer."""
        if call.closed and not is_failure:
            status = "completed"
        if not call.open.header.name and not is_failure:
            if _repeats(item, call):
                call.open.forget(
                    "repeated_call", "expected a call's arguments once, got them again"
                )
                return
            self._find_name(call)
        self._announce(item, call)
        if not call.open.is_announced:
            call.open.drop(is_fault=status == "completed")
            return
        if status == "completed" and call.lacks_input and not call.open.has_input:
            status = "incomplete"
            fault = f"expected the arguments of the call of {call.open.header.name!r}, got none"
            self._parts.fault = fault
            self._parts.report("missing_input", fault)
        self.end(call, status, call.finished)

    def compare_input(self, call: ItemCall, fields: Fields) -> None:
        """Compare an ended call with its repetition at the end of the answer."""
        said = read_text(fields.get("arguments")) or read_text(fields.get("input"))
        if said and said.strip() and call.open.has_ended:
            self._compare_whole(call, said, "at the end of the answer")

    def _compare_whole(self, call: ItemCall, said: str, when: str) -> None:
        """Report an input that differs from the one that was emitted; fail if it differs in more than its formatting."""
        name, ended = call.open.header.name, call.open.ended
        if ended is not None and not ended.is_equal(said):
            if not ended.is_same(said):
                self._parts.fault = (
                    f"expected one input of the call of {name!r}, got another {when}"
                )
            self._parts.report(
                "input_disagrees", f"expected the input of {name!r} as emitted, got another {when}"
            )

    def _read(self, item: OpenItem, raw_item: Raw, fields: Fields) -> Call:
        call = read_regular_call(raw_item) if item.type == "function_call" else None
        if call is not None:
            return call
        if read_text(fields.get("type")) in CALL_ITEMS:
            return read_call(CALL_ITEMS[item.type], fields)
        # The item's type is `tool_use` or the like; its own id is the only one.
        return read_function_like(fields, item.id)

    def _inspect(self, item: OpenItem, fields: Fields, call: Call) -> None:
        spec = CALL_ITEMS[item.type]
        if (
            spec.has_call_id
            and call.call_id
            and not find_call_id(fields)
            and spec.kind != "tool_search"
        ):
            self._parts.report("missing_id", f"expected a call_id in the {item.type} item")
        if call.input and item.type in ("function_call", "custom_tool_call"):
            self._items.report_in_stream(
                "early_input",
                f"expected no input before its deltas, got {spec.field} in output_item.added",
            )

    def _add(self, item: OpenItem, header: Call, item_type: str) -> ItemCall:
        spec = CALL_ITEMS[item_type]
        opened = OpenCall(self._parts, header, empty=spec.empty)
        call = ItemCall(opened, spec.delta, self._count, self.gaps)
        self._count += 1
        item.calls.append(call)
        return call

    def _announce(self, item: OpenItem, call: ItemCall) -> None:
        """Announce a call if its name is known."""
        name = call.open.header.name
        if call.open.is_announced or not name:
            return
        if call.open.has_input:
            self._parts.report("late_name", f"expected the name {name!r} before the input")
        if self._open is not None and not self._open.open.has_ended:
            self._items.report_in_stream(
                "interleaved_calls",
                f"expected one call at a time, got {name!r} inside {self._open.open.header.name!r}",
            )
        self._open = call
        self._claim_id(call.open)
        call.open.announce()
        if call.wire is not None and item.type != "message":
            # Which call of a message the next delta belongs to is decided when it comes.
            self._items.stream(item, item.id, call.open, call.wire)

    def _claim_id(self, call: OpenCall) -> None:
        """Give a call with the id of an earlier call one of its own: a result would belong to both."""
        header = call.header
        if header.call_id in self._wire_ids and header.executor == "client":
            self._parts.report(
                "repeated_id", f"expected an id of its own for the call of {header.name!r}"
            )
            call.header = replace(header, call_id=self._parts.mint("call_"))
        if header.call_id:
            self._wire_ids[call.header.call_id] = header.call_id

    def _finish(
        self, item: OpenItem, call: ItemCall, said: Call, status: PartStatus, placeholder: str = ""
    ) -> None:
        """End a call with its item. `placeholder`: an input that may stand for arguments that are still to come."""
        self._compare(call, said)
        if call.open.has_ended:
            return
        if not call.open.is_announced:
            call.open.header = _merged(call.open.header, said)
        self._announce(item, call)
        if status == "completed" and self._waits(call, said, placeholder):
            return
        streamed = len(call.open.text()) if call.open.has_input else 0
        if call.had_whole and said.input != placeholder and _is_other(call.open.text(), said.input):
            # Two events have the whole input, and nobody can say which of them is right.
            status = "incomplete"
            self._parts.fault = (
                f"expected one input of the call of {said.name!r}, got another in its item"
            )
        self._complete_input(call, said.input)
        if not call.had_done and call.wire is not None:
            call.rest = input_key(call.open.text()[streamed:])
        call.closed = status == "completed"
        if call.open.is_announced:
            self.end(call, status, said)

    def _waits(self, call: ItemCall, said: Call, placeholder: str) -> bool:
        """Whether a call of a finished item waits for its arguments: neither the item nor any event has them complete."""
        is_waiting = call.finished is not None
        given = said.input.strip()
        if (
            (given and given != placeholder)
            or call.had_done
            or (self.is_final and not is_waiting)
            or said.kind not in ("function", "custom")
            or said.executor != "client"
            or (call.open.is_announced and call.open.is_object())
        ):
            return False
        if not is_waiting:
            call.open.early = call.open.early or said.input
            self._items.report_in_stream(
                "early_end", f"expected the arguments of {said.name!r} before the end of its item"
            )
        call.finished = said
        return True

    def _compare(self, call: ItemCall, said: Call) -> None:
        header = call.open.header
        if said.name and header.name and said.name != header.name:
            message = f"expected {header.name!r} again, got {said.name!r}"
            self._parts.report("repeated_name", message)
        # An item without a call id uses its own id as the call id, which is not a mismatch.
        call_id = said.call_id if said.call_id != said.item_id else ""
        known = self._wire_ids.get(header.call_id, header.call_id)
        if call_id and known and call_id != known:
            message = f"expected call {known!r}, got {call_id!r}"
            self._parts.report("id_mismatch", message)

    def _find_name(self, call: ItemCall) -> None:
        name = self._parts.find_name(call.open.settle(), call.position)
        if name is not None:
            message = f"expected the call's name, inferred {name!r} from the tools"
            self._parts.report("missing_name", message)
            call.open.header = replace(call.open.header, name=name)

    def _complete_input(self, call: ItemCall, text: str) -> None:
        """Take the whole input, as an event repeats it."""
        header = call.open.header
        is_silent = call.open.is_announced and not call.open.has_input
        if is_silent and text and call.streams and header.kind in ("function", "custom"):
            self._items.report_in_stream(
                "late_input",
                f"expected the input of {header.name!r} in deltas, got it only at the end",
            )
        call.open.complete(text)
        if text:
            call.gaps = self.gaps


def _repeats(item: OpenItem, call: ItemCall) -> bool:
    """Return whether a call without a name has the input of another call of its item: events that were sent twice."""
    others = [other for other in item.calls if other is not call and other.open.header.name]
    return any(other.open.key == call.open.key for other in others)


def _is_other(streamed: str, whole: str) -> bool:
    """Return whether the whole input is another input than the deltas were."""
    return bool(whole) and not whole.startswith(streamed) and not is_same_input(streamed, whole)


def _merged(known: Call, said: Call) -> Call:
    """Merge the fields: the first non-empty id and name win; all others are from `said`."""
    return replace(
        said,
        name=known.name or said.name,
        call_id=known.call_id or said.call_id,
        input="",
        status="in_progress",
        item_id=known.item_id or said.item_id,
    )
