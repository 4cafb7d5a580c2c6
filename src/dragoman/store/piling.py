"""Bytes that come one after another, packed as they come: a stream that is told is kept in the room it will take.

What was just written is still in the processor's cache when it is compressed, and a thousand open streams hold kilobytes
each instead of all they have told.
"""

from dragoman.store.packing import pack_bytes, pack_several, unpack_bytes

__all__ = ("PACK_BYTES", "Pile")

PACK_BYTES = 32 * 1024
"""Packed at once. Less is compressed worse: each packing begins without knowing what stood before."""

# Small pieces are counted instead of measured: this many events of one token each are some 30 KB.
_MANY = 128
_LARGE = 1024


class Pile:
    """Bytes, and nothing but adding to them is done for each token of a stream."""

    __slots__ = ("_loose", "_packed", "_size", "_sizes")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._sizes: list[int] = []
        self._size = 0
        self._loose: list[bytes] = []

    @property
    def size(self) -> int:
        """Of all that was added, unpacked."""
        return self._size + self.loose

    @property
    def loose(self) -> int:
        """Of what is not packed yet."""
        return sum(map(len, self._loose))

    def add(self, data: bytes) -> bool:
        """Whether enough has come together to be packed, and was."""
        loose = self._loose
        loose.append(data)
        if len(loose) < _MANY and (len(data) < _LARGE or sum(map(len, loose)) < PACK_BYTES):
            return False
        self._pack()
        return True

    def add_last(self, data: bytes) -> None:
        """The last of it is packed with what was not, when it is asked for."""
        self._loose.append(data)

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

    def packed(self) -> bytes:
        """All of it as a store keeps it. Changes nothing: it may be asked in another thread."""
        packed = [*self._packed, pack_bytes(b"".join(self._loose))] if self._loose else self._packed
        return packed[0] if len(packed) == 1 else pack_several(packed)

    def _pack(self) -> None:
        data = b"".join(self._loose)
        self._packed.append(pack_bytes(data))
        self._sizes.append(len(data))
        self._size += len(data)
        self._loose = []
