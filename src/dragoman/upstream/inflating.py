"""Compressed answers, inflated piece by piece. Pure: bytes in, bytes out, never more at once than a bound.

Only what the requests ask for is understood: gzip and deflate. A stream asks for neither, but some servers do not
listen.
"""

import zlib

__all__ = ("Inflater", "is_known")

MAX_PIECE = (
    256 * 1024
)  # of inflated bytes at once: a bomb is then stopped by whoever counts what it reads

_AUTOMATIC = 32 + zlib.MAX_WBITS  # gzip or zlib, by its first bytes
_TELLING_BYTES = 2  # after so many it is certain whether there is a wrapper
_BARE = -zlib.MAX_WBITS  # deflate without a wrapper, which some servers send under that name


def is_known(encoding: str) -> bool:
    return encoding.strip().lower() in ("gzip", "x-gzip", "deflate")


class Inflater:
    """Feed it and take from it until it is empty.

    Raises (`feed`, `take`):
        zlib.error: the bytes are not compressed as they should be.
    """

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(_AUTOMATIC)
        self._rest = b""
        self._has_begun = False

    @property
    def is_whole(self) -> bool:
        """Whether what was fed ends where the compression does."""
        return not self._rest and (self._machine.eof or not self._has_begun)

    def feed(self, data: bytes) -> None:
        self._rest += data

    def take(self) -> bytes:
        """Some bytes, or none if more must be fed first."""
        if not self._has_begun and len(self._rest) < _TELLING_BYTES:
            return b""
        while self._rest:
            if self._machine.eof:  # gzip members may follow one another
                self._machine = zlib.decompressobj(_AUTOMATIC)
            data = self._inflate(self._rest)
            self._has_begun = True
            self._rest = self._machine.unconsumed_tail or self._machine.unused_data
            if data:
                return data
        return b""

    def _inflate(self, data: bytes) -> bytes:
        try:
            return self._machine.decompress(data, MAX_PIECE)
        except zlib.error:
            if self._has_begun:
                raise
            self._machine = zlib.decompressobj(_BARE)
            return self._machine.decompress(data, MAX_PIECE)
