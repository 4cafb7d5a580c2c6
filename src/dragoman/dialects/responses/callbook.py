"""The calls of an answer: opened when their item is, started when their name is known, ended when their item is.

A call may stand in an item of its own, inside a message (backends behind reverse proxies), or be implied by its first
fragment of input. Names and ids are set once: the first that are not empty win.
"""

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.names import resolve_name
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.responses.call_track import CallTrack, is_same_input
from dragoman.dialects.responses.fields import (
    Fields,
    find_call_id,
    find_name,
    first_byte,
    read_text,
)
from dragoman.dialects.responses.items import (
    read_call,
    read_function_like,
    read_regular_call,
)
from dragoman.dialects.responses.shelf import Item
from dragoman.dialects.responses.telling import Telling
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    CodeDelta,
    CustomInputDelta,
    Delta,
    FunctionArgumentsDelta,
    McpArgumentsDelta,
)
from dragoman.model.events import PartEnded
from dragoman.model.parts import Call, PartStatus

__all__ = ("CallBook",)

_WIRES: dict[str, type[Delta]] = {
    "function_call": FunctionArgumentsDelta,
    "custom_tool_call": CustomInputDelta,
    "mcp_call": McpArgumentsDelta,
    "code_interpreter_call": CodeDelta,
}


class CallBook:
    def __init__(self, context: DecodeContext, telling: Telling) -> None:
        self._context = context
        self._telling = telling
        self._found = telling.found
        self._count = 0
        self._open: CallTrack | None = None
        self._complete: dict[str, None] = {}  # ids of the client's calls that are complete
        self._answered: set[str] = set()
        self.fault = ""  # why the input of a call is not known to be what was sent

    @property
    def has_waiting(self) -> bool:
        """Whether complete calls wait for the client. One that the provider has answered itself does not."""
        return any(call_id not in self._answered for call_id in self._complete)

    def answer(self, call_id: str) -> None:
        """The provider gave the result itself."""
        self._answered.add(call_id)

    def open(self, item: Item, raw_item: Raw, fields: Fields) -> None:
        """A call item was announced."""
        call = self._read(item, raw_item, fields)
        self._inspect(item, fields, call)
        header = replace(call, input="", status="in_progress", item_id=item.id)
        if item.calls:
            track = item.calls[0]
            if not track.is_started:
                spec = CALL_ITEMS[item.type]
                track.become(_merged(track.header, header), _WIRES.get(item.type), spec.empty)
        else:
            track = self._add(item, header, item.type)
        track.early = call.input
        self._start(item, track)

    def open_inner(self, item: Item, fields: Fields) -> None:
        """A content part of a message is a call."""
        call = read_function_like(fields, item.id)
        last = item.calls[-1] if item.calls else None
        if last is not None and last.is_started and item.type != "message":
            self._compare(last, call)
            return
        if last is not None and not last.is_started and not last.header.name:
            last.header = _merged(last.header, call)
            track = last
        else:
            track = self._add(item, replace(call, input="", status="in_progress"), "function_call")
        track.early = call.input
        self._start(item, track)

    def current(self, item: Item, item_type: str) -> CallTrack:
        """The call of an item that its input belongs to: the last that is not closed. A new one has no name yet."""
        for track in reversed(item.calls):
            if not track.closed and not track.ended:
                return track
        if item.calls and item.type != "message":
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
        track = self._add(item, header, item_type)
        self._start(item, track)
        return track

    def identify(self, item: Item, track: CallTrack, fields: Fields) -> None:
        """Names and ids that stand beside the input."""
        if track.is_started:
            return
        header = track.header
        track.header = replace(
            header,
            name=header.name or find_name(fields),
            call_id=header.call_id or find_call_id(fields),
        )
        # An item that was never announced has its id at its end; no other may be made up before that.
        if track.header.call_id or item.type == "message":
            self._start(item, track)

    def close_input(self, item: Item, track: CallTrack, text: str) -> None:
        """`function_call_arguments.done` and its cousins. A call inside a message has no other end of its own."""
        self._note_late(track, text)
        self._telling.out += track.top_up(text)
        track.closed = True
        if item.type == "message" and track.is_started:
            self.end(track, "completed", None)

    def finish(self, item: Item, raw_item: Raw, fields: Fields, status: PartStatus) -> None:
        """A call item is complete."""
        spec = CALL_ITEMS[item.type]
        value = fields.get(spec.field)
        if spec.form == "text" and value is not None and first_byte(value) in (b"{", b"["):
            self._found.append(
                ("object_input", f"expected {spec.field} as a string, got JSON of another type")
            )
        self._complete_call(item, item.calls[0], self._read(item, raw_item, fields), status)

    def finish_inner(self, item: Item, number: int, fields: Fields) -> None:
        """The n-th call inside a message is complete."""
        call = read_function_like(fields, item.id)
        if number < len(item.calls):
            track = item.calls[number]
        else:
            track = self._add(item, replace(call, input="", status="in_progress"), "function_call")
        self._complete_call(item, track, call, "completed")

    def end(self, track: CallTrack, status: PartStatus, value: Call | None) -> None:
        out = self._telling.out
        name = track.header.name
        if track.is_halved and status == "completed":
            status = "incomplete"
            self.fault = f"the input of {name!r} ends inside a character"
        if track.lacks_events and status == "completed":
            status = "incomplete"
            self.fault = (
                f"events of the call of {name!r} are missing, and nothing repeats its input"
            )
            self._found.append(("missing_events", self.fault))
        out += track.end(status, value, self._found)
        match out[-1]:
            case PartEnded(value=Call(executor="client", status="completed", call_id=call_id)):
                self._complete[call_id] = None
            case _:
                pass

    def close(self, item: Item, track: CallTrack, status: PartStatus, *, is_failure: bool) -> bool:
        """The answer is over and this call is not. False if nobody ever named it."""
        if track.closed and not is_failure:
            status = "completed"
        if track.header.name:
            self._start(item, track)
        if not track.is_started and not is_failure:
            self._conclude_name(item, track)
        if not track.is_started:
            self._found.append(
                ("nameless_call", "expected a name for every call, got none for one")
            )
            track.ended = True
            return status != "completed"
        self.end(track, status, None)
        return True

    def compare_input(self, track: CallTrack, fields: Fields) -> None:
        """The end of the answer repeats a call that has ended."""
        said = read_text(fields, "arguments") or read_text(fields, "input")
        if said and said != track.text():
            if not is_same_input(said, track.text()):
                name = track.header.name
                self.fault = f"the end of the answer has another input of {name!r} than its call"
            self._found.append(
                (
                    "input_disagrees",
                    f"expected the input of {track.header.name!r} as streamed, got another at the end",
                )
            )

    def _read(self, item: Item, raw_item: Raw, fields: Fields) -> Call:
        call = read_regular_call(raw_item) if item.type == "function_call" else None
        if call is not None:
            return call
        if read_text(fields, "type") in CALL_ITEMS:
            return read_call(CALL_ITEMS[item.type], fields)
        # The item calls itself `tool_use` or the like; its own id is the best there is.
        return read_function_like(fields, item.id)

    def _inspect(self, item: Item, fields: Fields, call: Call) -> None:
        spec = CALL_ITEMS[item.type]
        if (
            spec.has_call_id
            and call.call_id
            and not find_call_id(fields)
            and spec.kind != "tool_search"
        ):
            self._found.append(("missing_id", f"expected a call_id in the {item.type} item"))
        if call.input and item.type in ("function_call", "custom_tool_call"):
            self._telling.irregular(
                "early_input",
                f"expected no input before its deltas, got {spec.field} in output_item.added",
            )

    def _add(self, item: Item, header: Call, item_type: str) -> CallTrack:
        spec = CALL_ITEMS[item_type]
        track = CallTrack(header, _WIRES.get(item_type), position=self._count, empty=spec.empty)
        self._count += 1
        item.calls.append(track)
        return track

    def _start(self, item: Item, track: CallTrack) -> None:
        header = track.header
        if track.is_started or not header.name:
            return
        telling = self._telling
        if not header.call_id:
            self._found.append(
                ("missing_id", f"expected a call_id for the call of {header.name!r}")
            )
            track.header = header = replace(header, call_id=telling.mint("call_"))
        if track.has_waited:
            self._found.append(("late_name", f"expected the name {header.name!r} before the input"))
        if self._open is not None and not self._open.ended:
            self._telling.irregular(
                "interleaved_calls",
                f"expected one call at a time, got {header.name!r} inside {self._open.header.name!r}",
            )
        self._open = track
        number = telling.start(header)
        telling.out += track.start(number)
        if not item.is_shared:
            telling.live[item.id] = track

    def _complete_call(self, item: Item, track: CallTrack, call: Call, status: PartStatus) -> None:
        self._compare(track, call)
        if track.ended:
            return
        if not track.is_started:
            track.header = _merged(track.header, call)
        self._start(item, track)
        self._note_late(track, call.input)
        self._telling.out += track.top_up(call.input)
        track.closed = status == "completed"
        if track.is_started:
            self.end(track, status, call)

    def _compare(self, track: CallTrack, call: Call) -> None:
        header = track.header
        if call.name and header.name and call.name != header.name:
            self._found.append(
                ("repeated_name", f"expected {header.name!r} again, got {call.name!r}")
            )
        # An item without a call id lends its own, which is no contradiction.
        told = call.call_id if call.call_id != call.item_id else ""
        if told and header.call_id and told != header.call_id:
            self._found.append(("id_mismatch", f"expected call {header.call_id!r}, got {told!r}"))

    def _conclude_name(self, item: Item, track: CallTrack) -> None:
        context = self._context
        name = resolve_name(track.text(), context.tools, track.position, context.name_fallback)
        if name is not None:
            self._found.append(
                ("missing_name", f"expected the call's name, concluded {name!r} from the tools")
            )
            track.header = replace(track.header, name=name)
            self._start(item, track)

    def _note_late(self, track: CallTrack, text: str) -> None:
        silent = track.buffer.is_empty and track.is_started
        if silent and text and track.streams and track.header.kind in ("function", "custom"):
            self._telling.irregular(
                "late_input",
                f"expected the input of {track.header.name!r} in deltas, got it only at the end",
            )


def _merged(known: Call, said: Call) -> Call:
    """First non-empty id and name win; the rest is what the item says."""
    return replace(
        said,
        name=known.name or said.name,
        call_id=known.call_id or said.call_id,
        input="",
        status="in_progress",
        item_id=known.item_id or said.item_id,
    )
