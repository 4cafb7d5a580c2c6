"""How a relay tells frames that every client can use as they are from others: what a dialect has to offer for it.

See `relay`. Each dialect's `regular.py` has a `Watch`.
"""

from typing import Protocol

from dragoman.dialects.base import Look, Mark, StreamEncoder
from dragoman.model.events import Finished
from dragoman.sse import Frame

__all__ = ("Watch",)


class Watch(Protocol):
    """Tells regular frames of one stream from others: those that every known client can use as they are.

    `encoder` writes what a client would have seen so far; it speaks from the first irregular frame on. `harmless` are
    the problems a reader reports that no client minds. `ending`: the terminal frame, where one stands for all.
    `model_path`: where a frame has the name of its model. `has_default_input`: a call without input means `{}`.
    `is_repetition`: the frame looked at last should say again what deltas have told; clients do not look there.
    `head`: `plain` would say of data that begins with it that it passes as it came.
    """

    harmless: frozenset[str]
    ending: bytes
    model_path: tuple[str, ...]
    has_default_input: bool
    is_repetition: bool
    head: bytes

    @property
    def encoder(self) -> StreamEncoder: ...

    def look(self, frame: Frame, data: bytes) -> Look | None:
        """What a frame says; None if there is a client that cannot use it."""
        ...

    def plain(self, data: bytes) -> bytes | None:
        """The data to pass on for a plain delta (see `FrameReader.quick`): as it came, but for the model's name."""
        ...

    def input_size(self, data: bytes) -> int:
        """How many characters of tool input a plain delta brings."""
        ...

    def outline(self, stream: bytes) -> list[Mark]:
        """The marks of what the encoder wrote."""
        ...

    def catch_up(self) -> bytes:
        """Make the encoder say what the wire has said by now (see `Look.is_settled`)."""
        ...

    def follow(self, data: bytes) -> None:
        """The encoder goes on counting after this frame, the last that was passed on."""
        ...

    def mend(self, event: Finished) -> Finished:
        """The end of a choice without a word of the upstream's that no client knows."""
        ...

    def keep_alive(self) -> bytes:
        """What keeps a silent connection open while the upstream's own frames are passed on."""
        ...
