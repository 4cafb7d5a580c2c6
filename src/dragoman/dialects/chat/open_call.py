"""One call of a choice, from its first entry to its end.

    WAITING --announced: its name is settled--> OPEN --> ENDED (completed, or incomplete where the answer was cut)

While it waits it holds its input. What a wire that resends everything means is `core.calls.InputBuffer`.
"""

from msgspec.structs import replace

from dragoman._json import Raw, is_strict
from dragoman.core.calls import InputBuffer
from dragoman.core.slots import CallName, Extent
from dragoman.core.surrogates import join_exactly, replace_lone
from dragoman.dialects.chat.entries import CallEntry, merge_objects
from dragoman.dialects.chat.telling import Telling
from dragoman.errors import MalformedJson, RemoteProtocolError
from dragoman.model.events import InputDelta, PartEnded, SealAdded
from dragoman.model.parts import Call, CallKind, Extra, PartStatus, Seal

__all__ = ("OpenCall",)


class OpenCall:
    """`part` is -1 while it waits. `buffer` is the reader's to use for fragments it has understood by itself."""

    __slots__ = (
        "_extent",
        "_extra",
        "_half",
        "_held",
        "_is_halved",
        "_seals",
        "_telling",
        "_values",
        "_was_checked",
        "_was_cumulative",
        "buffer",
        "call_id",
        "has_ended",
        "index",
        "is_complete",
        "is_legacy",
        "kind",
        "name",
        "part",
        "slot",
    )

    def __init__(self, telling: Telling, slot: int, name: CallName, entry: CallEntry) -> None:
        self._telling = telling
        self._extent: Extent | None = None
        self._extra: dict[str, Raw] = {}
        self._half = ""
        self._held: list[str] = []
        self._is_halved = False
        self._seals: list[Seal] = []
        self._values: list[Raw] = []  # inputs that came as JSON objects instead of text
        self._was_checked = False
        self._was_cumulative = False
        self.slot = slot
        self.name = name
        self.index = entry.index
        self.kind: CallKind = entry.kind or "function"
        self.is_legacy = entry.is_legacy
        self.buffer = InputBuffer(is_json=self.kind != "custom")
        self.call_id = ""
        self.part = -1
        self.has_ended = False
        self.is_complete = False

    @property
    def is_plain(self) -> bool:
        """Whether the next fragment of input can be told without further thought."""
        return self.part >= 0 and not (
            self.has_ended or self._half or self._values or self._extent is not None
        )

    @property
    def is_whole(self) -> bool:
        """Whether the input is one object, from brace to brace. From the first time this is asked it is kept up."""
        if self._values:
            return True
        if self._extent is None:
            self._extent = Extent()
            self._extent.feed(self.buffer.text())
        return self._extent.is_whole

    def announce(self, call_id: str, choice: int) -> None:
        telling = self._telling
        self.call_id = call_id
        self.part = telling.start(replace(self._value("in_progress"), seals=()), choice)
        telling.events.extend(SealAdded(self.part, seal) for seal in self._seals)
        text = "".join(self._held)
        self._held.clear()
        if text:
            telling.events.append(InputDelta(self.part, text))

    def fill(self, entry: CallEntry) -> None:
        """What an entry brings besides id and name."""
        self._extra.update(entry.extra)
        if entry.extra_content is not None:
            self._seal(Seal("thought", bytes(entry.extra_content).decode("utf-8")))
        if entry.value is not None:
            self._add_value(entry.value)
        elif entry.text:
            self._add(entry.text)

    def note_cumulative(self) -> None:
        if self.buffer.is_cumulative and not self._was_cumulative:
            self._was_cumulative = True
            message = "expected increments of a call's input, got everything so far in each delta"
            self._telling.odd("cumulative_input", message)

    def can_end_early(self) -> bool:
        """Whether the input is a complete object by now. Looked at once: parsing it again and again is not linear."""
        if self._was_checked or self.part < 0 or self.kind == "custom":
            return False
        self._was_checked = True
        if self._values:
            return True
        self._tell(self.buffer.settle()[0])
        text = self.buffer.text()
        return not self._half and text.lstrip().startswith("{") and is_strict(text)

    def input_so_far(self) -> str:
        """Everything received, and told from here on."""
        if self._values:
            text = merge_objects(self._values)
            self._values.clear()
            self._tell(self.buffer.push(text))
        self._tell(self.buffer.settle()[0])
        if self._half:
            half, self._half, self._is_halved = self._half, "", True
            self._tell(self.buffer.push(replace_lone(half)))
        self.note_cumulative()
        return self.buffer.text()

    def end(self, status: PartStatus) -> None:
        """Closed by the protocol, an empty input is `{}`; cut, it is what it is.

        Raises:
            RemoteProtocolError: its last character never came as a whole.
        """
        text = self.input_so_far()
        if status == "completed" and self._is_halved:
            raise RemoteProtocolError(f"the input of {self.name.text!r} ends inside a character")
        if status == "completed" and self.kind != "custom":
            if not text.strip():
                self._tell(self.buffer.push("{}"))
            elif not is_strict(text):
                message = f"expected the input of {self.name.text!r} as JSON, got {text[:60]!r}"
                self._telling.odd("invalid_arguments", message)
        self.has_ended = True
        self.is_complete = status == "completed"
        self._telling.events.append(PartEnded(self.part, self._value(status)))

    def _add(self, text: str) -> None:
        text, self._half = join_exactly(self._half, text)
        increment = self.buffer.push(text)
        if increment is not text:
            self.note_cumulative()
        self._tell(increment)

    def _add_value(self, value: Raw) -> None:
        """An object. It is kept until the end, for more may come."""
        if not self.buffer.is_empty:
            raise MalformedJson("expected more of a call's input as a string, got an object")
        text = bytes(value).decode("utf-8")
        message = f"expected a call's input as a string, got {text[:40]}"
        self._telling.odd("object_input", message)
        self._values.append(value)

    def _seal(self, seal: Seal) -> None:
        if seal in self._seals:
            return
        self._seals.append(seal)
        if self.part >= 0:
            self._telling.events.append(SealAdded(self.part, seal))

    def _tell(self, text: str) -> None:
        if not text:
            return
        if self._extent is not None:
            self._extent.feed(text)
        if self.part < 0:
            self._held.append(text)
        else:
            self._telling.events.append(InputDelta(self.part, text))

    def _value(self, status: PartStatus) -> Call:
        return Call(
            call_id=self.call_id,
            name=self.name.text,
            input="" if status == "in_progress" else self.buffer.text(),
            kind=self.kind,
            status=status,
            seals=tuple(self._seals),
            extra=Extra("chat", dict(self._extra)) if self._extra else None,
        )
