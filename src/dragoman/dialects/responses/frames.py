"""Numbered events as SSE frames. The fields are in the vendor's order: the type, the rest by name, the number last."""

from collections.abc import Sequence
from itertools import chain, count

from dragoman._json import dumps, dumps_each, dumps_text
from dragoman.dialects.responses.writing import JsonObject
from dragoman.model.events import InputDelta, ReasoningDelta, TextDelta

__all__ = ("EventWriter", "Stencil")


class Stencil:
    """A delta event with two holes, for the text and the number: nearly all that is ever written.

    `kind` is the event it takes for `part`; None: the part's deltas have no event on this wire.
    """

    __slots__ = ("head", "kind", "line", "middle", "part")

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
        self.line = b""  # a frame to be filled in, for many at once


class EventWriter:
    """Writes events and counts them."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0

    def event(self, name: str, fields: JsonObject) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        data = dumps({"type": name, **fields, "sequence_number": number})
        return b"".join((b"event: ", name.encode("ascii", "replace"), b"\ndata: ", data, b"\n\n"))

    def delta(self, stencil: Stencil, text: str) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        return b"%b%b%b%d}\n\n" % (stencil.head, dumps_text(text), stencil.middle, number)

    def deltas(self, stencil: Stencil, texts: Sequence[str]) -> bytes:
        number = self.sequence
        self.sequence = number + len(texts)
        line = stencil.line
        if not line:
            parts = (stencil.head.replace(b"%", b"%%"), stencil.middle.replace(b"%", b"%%"))
            stencil.line = line = b"%b%%b%b%%d}\n\n" % parts
        holes = zip(dumps_each(texts), count(number), strict=False)
        return line * len(texts) % tuple(chain.from_iterable(holes))
