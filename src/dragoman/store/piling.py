"""A stream that is told, kept as it comes in the room it will take.

What was just written is still in the processor's cache when it is compressed, and a thousand open streams hold kilobytes
each instead of all they have told. Of deltas that were made alike only the texts are kept, which are not compressed
before there are many.
"""

from collections.abc import Sequence

from dragoman.core.journal import Piece, join_pieces, weigh
from dragoman.store.packing import pack_both, pack_pieces, pack_several, unpack_bytes

__all__ = ("PACK_BYTES", "Pile")

PACK_BYTES = 32 * 1024
"""Packed at once. Less is compressed worse: each packing begins without knowing what stood before."""


class Pile:
    """Bytes, and little but adding to them is done for each token of a stream."""

    __slots__ = ("_loose", "_packed", "_size", "_sizes", "_told", "loose")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._sizes: list[int] = []
        self._size = 0
        self._loose: list[Piece] = []
        self._told = 0  # by what is not packed yet
        self.loose = 0
        """Bytes that are still to be packed."""

    @property
    def size(self) -> int:
        """Of all that was added, unpacked."""
        return self._size + self._told

    def add(self, data: bytes, pieces: Sequence[Piece] | None = None) -> bool:
        """Whether enough has come together to be packed, and was. `pieces`: what the data is made of, if that is known."""
        self.add_last(data, pieces)
        if self.loose < PACK_BYTES:
            return False
        self._packed.append(pack_pieces(self._loose))
        self._sizes.append(self._told)
        self._size += self._told
        self._loose = []
        self._told = self.loose = 0
        return True

    def add_last(self, data: bytes, pieces: Sequence[Piece] | None = None) -> None:
        """The last of it is packed with what was not, when it is asked for."""
        size = len(data)
        self._told += size
        if pieces is None:
            self._loose.append(data)
            self.loose += size
        else:
            self._loose += pieces
            self.loose += weigh(pieces)

    def read(self, start: int = 0) -> bytes:
        """All that was added, from the byte at `start` on."""
        found: list[bytes] = []
        place = skipped = 0
        for data, size in zip(self._packed, self._sizes, strict=True):
            place += size
            if place > start:
                found.append(unpack_bytes(data))
            else:
                skipped = place
        return b"".join([*found, join_pieces(self._loose)])[start - skipped :]

    def packed(self) -> bytes:
        """All of it as a store keeps it. Changes nothing, as the next: they may be asked in another thread."""
        packed = [*self._packed, pack_pieces(self._loose)] if self._loose else self._packed
        return packed[0] if len(packed) == 1 else pack_several(packed)

    def packed_with(self, body: bytes) -> bytes | None:
        """The same together with a body that its end tells; None if they are to be kept apart."""
        return None if self._packed else pack_both(self._loose, body)
