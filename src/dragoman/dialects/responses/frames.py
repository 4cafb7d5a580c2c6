"""Numbered events as SSE frames. The fields are in the vendor's order: the type, the rest by name, the number last."""

from collections.abc import Sequence

from dragoman._json import dumps, dumps_each, dumps_text
from dragoman.core.journal import Form, Journal, fill_in
from dragoman.dialects.responses.writing import JsonObject
from dragoman.model.events import InputDelta, ReasoningDelta, TextDelta

__all__ = ("EventWriter", "Stencil")

_TAIL = b"}\n\n"


class Stencil:
    """A delta event with two holes, for the text and the number: nearly all that is ever written.

    `kind` is the event it takes for `part`; None: the part's deltas have no event on this wire.
    """

    __slots__ = ("form", "head", "kind", "line", "middle", "part")

    def __init__(
        self,
        part: int,
        kind: type[TextDelta | InputDelta | ReasoningDelta] | None,
        name: str = "",
        place: JsonObject | None = None,
    ) -> None:
        self.part = part
        self.kind = kind
        # The text goes where `delta` stands; every other field is known.
        whole = dumps({"type": name, "delta": "", **(place or {}), "sequence_number": 0})
        head, _, tail = whole.partition(b'"delta":""')
        self.head = b"event: " + name.encode("ascii") + b"\ndata: " + head + b'"delta":'
        self.middle = tail[: -len(b"0}")]
        self.form: Form | None = None  # the same, for many at once
        self.line = b""


class EventWriter:
    """Writes events and counts them. `journal`: told of what is written."""

    __slots__ = ("_journal", "sequence")

    def __init__(self, journal: Journal | None = None) -> None:
        self.sequence = 0
        self._journal = journal

    def event(self, name: str, fields: JsonObject) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        data = dumps({"type": name, **fields, "sequence_number": number})
        frame = b"".join((b"event: ", name.encode("ascii", "replace"), b"\ndata: ", data, b"\n\n"))
        if self._journal is not None:
            self._journal.size += len(frame)
        return frame

    def delta(self, stencil: Stencil, text: str) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        frame = b"%b%b%b%d}\n\n" % (stencil.head, dumps_text(text), stencil.middle, number)
        if self._journal is not None:
            self._journal.size += len(frame)
        return frame

    def deltas(self, stencil: Stencil, texts: Sequence[str]) -> bytes:
        number = self.sequence
        self.sequence = number + len(texts)
        form = stencil.form
        if form is None:
            stencil.form = form = Form(stencil.head, stencil.middle, _TAIL)
            stencil.line = form.line()
        each, lines = dumps_each(texts)
        frames = fill_in(stencil.line, each, number)
        if self._journal is not None:
            self._journal.note(form, number, lines, len(frames))
        return frames
