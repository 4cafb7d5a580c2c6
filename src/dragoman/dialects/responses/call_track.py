"""One call while it is told: held until its name is known, then increments, then its end.

    NAMELESS --name--> OPEN --`.done`, finished item--> (closed) --> ENDED
       fragments wait    increments are told    only what no delta brought

Nothing told is ever taken back. Where a finished item contradicts the deltas, the end carries the item's word and says
`amended`; a difference in formatting alone is none.
"""

from typing import final

from msgspec.structs import replace

from dragoman._json import dumps, is_strict, loads
from dragoman.core.calls import InputBuffer
from dragoman.core.surrogates import join_exactly, replace_lone
from dragoman.dialects.responses.tracks import Found
from dragoman.dialects.responses.wire import Delta
from dragoman.model.events import Event, InputDelta, PartEnded
from dragoman.model.parts import Call, PartStatus

__all__ = ("CallTrack", "is_same_input")

NOT_STARTED = -1


@final
class CallTrack:
    """A call. Until its name is known it is not started: fragments wait, nothing is told.

    `header` has the identity as far as it is known. `closed`: the wire said that the input is complete.
    """

    __slots__ = (
        "_contradiction",
        "_half",
        "_native",
        "_waiting",
        "buffer",
        "closed",
        "early",
        "empty",
        "ended",
        "header",
        "is_json",
        "is_started",
        "lacks_events",
        "part",
        "position",
        "push_plain",
        "streams",
        "whole",
        "wire",
    )

    def __init__(
        self, header: Call, wire: type[Delta] | None, *, position: int, empty: str
    ) -> None:
        self.become(header, wire, empty)
        self.wire: type[Delta] | None = (
            None  # the deltas that need no thought: none before the name is known
        )
        self.position = position
        self.part = NOT_STARTED
        self.is_started = False
        self.early = (
            ""  # input that stood in `output_item.added`: used only if nothing else tells it
        )
        self.whole: str | None = None  # a complete input that came before the name
        self.lacks_events = (
            False  # events are missing since it began, and nothing has repeated its input
        )
        self.streams = True  # whether its input is expected in deltas
        self.closed = False
        self.ended = False
        self._half = ""
        self._waiting: list[str] = []
        self._contradiction: str | None = None

    @property
    def is_halved(self) -> bool:
        """Whether its last character has not come as a whole."""
        return bool(self._half)

    @property
    def has_waited(self) -> bool:
        """Whether input came before the name."""
        return bool(self._waiting)

    def become(self, header: Call, wire: type[Delta] | None, empty: str) -> None:
        """What the call is, once that is known. Only before it has started."""
        self.header = header
        self._native = wire
        self.empty = empty
        self.is_json = empty == "{}"
        self.buffer = InputBuffer(is_json=self.is_json)
        self.push_plain = self.buffer.push

    def start(self, part: int) -> list[Event]:
        """The name is known: tell what has waited. The caller has announced the part."""
        self.part = part
        self.is_started = True
        self.wire = None if self._half else self._native
        told = "".join(self.buffer.push(fragment) for fragment in self._waiting)
        self._waiting.clear()
        out = self._tell(told)
        if self.whole is not None:
            out += self.top_up(self.whole)
        return out

    def push(self, text: str) -> list[Event]:
        told, self._half = join_exactly(self._half, text)
        if not self.is_started:
            if told:
                self._waiting.append(told)
            return []
        self.wire = None if self._half else self._native
        return self._tell(self.buffer.push(told))

    def top_up(self, whole: str) -> list[Event]:
        """The wire says what the whole input is: tell what is missing.

        A whole that differs from the deltas only in formatting changes nothing.
        """
        if not self.is_started:
            self.whole = whole or self.whole
            self.lacks_events = self.lacks_events and not whole
            return []
        if not whole:
            return []
        self.lacks_events = False
        increment, disagrees = self.buffer.settle(whole)
        if disagrees and not is_same_input(self.buffer.text(), whole):
            self._contradiction = whole
        else:
            self._contradiction = None
            self._half = ""
            self.wire = self._native
        return self._tell(increment)

    def text(self) -> str:
        """The input so far, told or waiting, or what the wire finally said it is."""
        if self.is_started:
            return self.buffer.text() if self._contradiction is None else self._contradiction
        return self.whole or "".join(self._waiting) or self.early

    def end(self, status: PartStatus, value: Call | None, found: Found) -> list[Event]:
        """`value` is the finished item, None if it never came. The caller has started the track."""
        part = self.part
        out: list[Event] = []
        if self.buffer.is_empty and self.early and self._contradiction is None:
            out += self.top_up(self.early)
        increment, _ = self.buffer.settle()
        out += self._tell(increment)
        if self._half:
            out += self._tell(self.buffer.push(replace_lone(self._half)))
        if status == "completed" and self.empty and not self.buffer.text().strip():
            # An empty input that the protocol closed is the empty object, on every wire.
            out += self._tell(self.buffer.push(self.empty))
        self._report(part, status, found)
        final = self.header if value is None else value
        final = replace(
            final,
            call_id=self.header.call_id,
            name=self.header.name,
            kind=self.header.kind,
            namespace=self.header.namespace,
            item_id=self.header.item_id or final.item_id,
            input=self.text(),
            status=status,
        )
        self.ended = True
        self.wire = None
        out.append(PartEnded(part, final, self._contradiction is not None))
        return out

    def _report(self, part: int, status: PartStatus, found: Found) -> None:
        name = self.header.name
        if self.buffer.is_cumulative:
            found.append(
                (
                    "cumulative_input",
                    f"expected increments, got all input so far each time for {name!r}",
                )
            )
        if self._contradiction is not None:
            found.append(
                (
                    "input_disagrees",
                    f"expected the finished input of {name!r} (part {part}) to be its deltas, got another",
                )
            )
        if status == "completed" and self.is_json and not is_strict(self.text()):
            found.append(
                ("invalid_arguments", f"expected JSON as the input of {name!r} (part {part})")
            )

    def _tell(self, text: str) -> list[Event]:
        return [InputDelta(self.part, text)] if text else []


def is_same_input(one: str, other: str) -> bool:
    """Whether two texts are the same JSON value. Text that is no JSON is the same as nothing."""
    if not is_strict(one) or not is_strict(other):
        return False
    first, second = loads(one), loads(other)
    # Python's 1 equals 1.0 and True; written out they differ in length.
    return bool(first == second) and len(dumps(first)) == len(dumps(second))
