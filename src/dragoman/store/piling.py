"""Bytes that come one after another, packed as they come: a stream that is told is kept in the room it will take.

What was just written is still in the processor's cache when it is compressed, and a thousand open streams hold kilobytes
each instead of all they have told.
"""

from dragoman.store.packing import pack_bytes, pack_several, unpack_bytes
from dragoman.store.records import Packed

__all__ = ("PACK_BYTES", "Pile")

PACK_BYTES = 32 * 1024
"""Packed at once. Less is compressed worse: each packing begins without knowing what stood before."""


class Pile:
    """`size`: of all that was added, unpacked."""

    __slots__ = ("_loose", "_packed", "_sizes", "_waiting", "size")

    def __init__(self) -> None:
        self.size = 0
        self._packed: list[bytes] = []
        self._sizes: list[int] = []
        self._loose: list[bytes] = []
        self._waiting = 0

    def add(self, data: bytes) -> None:
        self._loose.append(data)
        self._waiting += len(data)
        self.size += len(data)
        if self._waiting >= PACK_BYTES:
            self._pack()

    def read(self, start: int = 0) -> bytes:
        """All that was added, from the byte at `start` on."""
        found: list[bytes] = []
        skipped = 0
        for data, size in zip(self._packed, self._sizes, strict=True):
            if skipped + size > start:
                found.append(unpack_bytes(data))
            else:
                skipped += size
        return b"".join([*found, *self._loose])[start - skipped :]

    def packed(self) -> Packed:
        """The same as a store keeps it."""
        if self._loose:
            self._pack()
        packed = self._packed
        return Packed(packed[0] if len(packed) == 1 else pack_several(packed), self.size)

    def _pack(self) -> None:
        loose = self._loose
        self._packed.append(pack_bytes(loose[0] if len(loose) == 1 else b"".join(loose)))
        self._sizes.append(self._waiting)
        self._loose = []
        self._waiting = 0
