"""Compressed bytes, in any pieces, never more at once than the bound."""

import gzip
import zlib

import pytest

from dragoman.upstream.http.transport import MAX_PIECE, Inflater

TEXT = b"every good boy deserves fudge " * 200


def bare(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return machine.compress(data) + machine.flush()


def inflated(packed: bytes, cut_into: int) -> bytes:
    inflater = Inflater()
    pieces: list[bytes] = []
    for start in range(0, len(packed), cut_into):
        inflater.feed(packed[start : start + cut_into])
        while piece := inflater.take():
            pieces.append(piece)
    assert inflater.is_whole
    return b"".join(pieces)


@pytest.mark.parametrize("cut_into", [1, 2, 3, 100, 100_000])
@pytest.mark.parametrize(
    "packed",
    [gzip.compress(TEXT), zlib.compress(TEXT), bare(TEXT)],
    ids=["gzip", "zlib", "bare"],
)
def test_every_wrapper_is_read_in_any_pieces(packed: bytes, cut_into: int) -> None:
    assert inflated(packed, cut_into) == TEXT


def test_gzip_members_in_a_row_are_one_text() -> None:
    assert inflated(gzip.compress(b"one ") + gzip.compress(b"two"), 5) == b"one two"


def test_a_bomb_comes_out_in_pieces_of_bounded_size() -> None:
    inflater = Inflater()
    inflater.feed(gzip.compress(bytes(10 * MAX_PIECE)))
    sizes: list[int] = []
    while piece := inflater.take():
        sizes.append(len(piece))
    assert max(sizes) == MAX_PIECE
    assert sum(sizes) == 10 * MAX_PIECE
    assert inflater.is_whole


def test_what_ends_too_soon_is_not_whole() -> None:
    inflater = Inflater()
    assert inflater.is_whole
    inflater.feed(gzip.compress(TEXT)[:-9])
    while inflater.take():
        pass
    assert not inflater.is_whole


@pytest.mark.parametrize(
    "packed", [b"plain text", gzip.compress(TEXT)[:50] + b"\xff" * 50], ids=["plain", "broken"]
)
def test_what_is_not_compressed_is_an_error(packed: bytes) -> None:
    inflater = Inflater()
    inflater.feed(packed)
    with pytest.raises(zlib.error):
        list(iter(inflater.take, b""))


def test_what_breaks_off_in_the_middle_is_an_error() -> None:
    inflater = Inflater()
    inflater.feed(gzip.compress(TEXT)[:50])
    while inflater.take():
        pass
    inflater.feed(b"\xff" * 50)
    with pytest.raises(zlib.error):
        list(iter(inflater.take, b""))
