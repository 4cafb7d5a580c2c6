"""A stream is read back as it was told, however it came and however much of it was packed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from dragoman._json import dumps_each
from dragoman.core.journal import Deltas, Form, Piece, join_pieces
from dragoman.errors import StoreDamaged
from dragoman.store import piling
from dragoman.store.packing import pack_bytes, pack_ending, unpack_bytes, unpack_stream
from dragoman.store.piling import PACK_BYTES, Pile
from dragoman.store.records import Ending


@given(st.lists(st.binary(max_size=400), max_size=8), st.integers(0, 2000))
def test_what_came_in_pieces_comes_back(pieces: list[bytes], start: int) -> None:
    pile = Pile()
    for piece in pieces:
        pile.add(piece * 300)
    whole = b"".join(piece * 300 for piece in pieces)
    assert pile.size == len(whole)
    assert pile.read() == whole
    assert pile.read(start * 100) == whole[start * 100 :]
    assert unpack_bytes(pile.packed()) == whole
    pile.add_last(b"the end")
    assert pile.loose >= len(b"the end")
    assert unpack_bytes(pile.packed()) == whole + b"the end"
    assert pile.read(start) == (whole + b"the end")[start:]


def test_a_small_pack_behind_a_large_one_is_read_from_the_middle_of_that_one() -> None:
    pile = Pile()
    reads = [b"a" * 3 * PACK_BYTES, b"b" * PACK_BYTES, b"c" * PACK_BYTES, b"d"]
    for read in reads:
        pile.add(read)
    whole = b"".join(reads)
    for start in range(0, len(whole) + PACK_BYTES, PACK_BYTES // 2):
        assert pile.read(start) == whole[start:]


def test_a_pile_takes_little_room() -> None:
    pile = Pile()
    frames = [b'data: {"type":"delta","number":%d}\n\n' % number for number in range(2000)]
    for frame in frames:
        pile.add(frame)
    assert pile.size > 2 * PACK_BYTES
    assert pile.read() == b"".join(frames)
    assert len(pile.packed()) < pile.size / 5


def test_a_stream_that_is_packed_is_kept_as_it_is() -> None:
    pile = Pile()
    pile.add(b"x" * 500)
    assert pack_ending(Ending(status="completed", answer=None, stream=pile))[2] == pile.packed()


FORM = Form(b'data: {"50 %":', b',"n":', b"}\n\n")
TEXTS = st.lists(
    st.text(max_size=12) | st.sampled_from(["%b", "\n", "\ud800", "\u2028"]), min_size=1, max_size=9
)


@st.composite
def told_pieces(draw: st.DrawFn) -> list[Piece]:
    """Frames of a stream, some of which were made alike."""
    pieces: list[Piece] = []
    number = 0
    for texts in draw(st.lists(TEXTS, max_size=5)):
        lines = dumps_each(texts)[1]
        pieces.append(Deltas(FORM, number, lines))
        pieces.append(draw(st.binary(max_size=20)))
        number += len(texts)
    return pieces


@given(st.lists(told_pieces(), max_size=4), st.integers(0, 400), st.integers(1, 3000))
def test_what_was_made_alike_is_made_again(
    reads: list[list[Piece]], start: int, pack_bytes_at: int
) -> None:
    whole = b"".join(map(join_pieces, reads))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piling, "PACK_BYTES", pack_bytes_at)
        pile = Pile()
        for pieces in reads:
            pile.add(join_pieces(pieces), pieces)
        pile.add_last(b"the end")
    whole += b"the end"
    assert pile.size == len(whole)
    assert pile.read() == whole
    assert pile.read(start) == whole[start:]
    assert unpack_bytes(pile.packed()) == whole


@given(
    told_pieces(),
    st.binary(max_size=20),
    st.binary(min_size=1, max_size=2000),
    st.binary(max_size=20),
)
def test_a_stream_and_the_body_that_it_ends_in_are_one_value(
    pieces: list[Piece], before: bytes, body: bytes, after: bytes
) -> None:
    pile = Pile()
    last = before + body + after
    pile.add(join_pieces(pieces), pieces)
    pile.add_last(last)
    answer, packed, apart = pack_ending(
        Ending(status="completed", answer=None, body=body, stream=pile)
    )
    assert not answer
    assert unpack_bytes(packed) == body
    assert unpack_stream(packed, apart) == join_pieces(pieces) + last


@pytest.mark.parametrize("body", [b"", b"another body", b"x" * 400])
def test_a_body_that_the_end_does_not_tell_stands_apart(body: bytes) -> None:
    pile = Pile()
    pile.add(b"x" * 399)
    ended = pack_ending(Ending(status="completed", answer=None, body=body, stream=pile))
    assert ended[1:] == (pack_bytes(body), pile.packed())
    assert unpack_stream(*ended[1:]) == pile.read()
    assert unpack_stream(pack_bytes(body), None) is None


def test_the_end_of_a_long_stream_stands_apart_from_its_body() -> None:
    pile = Pile()
    pile.add(b"x" * PACK_BYTES)
    pile.add_last(b'data: {"id":"a"}\n\n')
    ended = pack_ending(Ending(status="completed", answer=None, body=b'{"id":"a"}', stream=pile))
    assert ended[1:] == (pack_bytes(b'{"id":"a"}'), pile.packed())


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\x04\x00", "pieces"),
        (b"\x04\x00not", "pieces"),
        (b"\x04\x03\x00\x00\x00\x00", "otherwise"),
        (b"\x04\x04\x00\x90", "otherwise"),
        (b"\x05\x05\x00\x90", "otherwise"),
        (b"\x05\x00\x92\x01\x02", "pieces"),
        (b"\x03\x00\x00\x00\x02\x05\x00", "lengths"),
        (
            b"\x04\x00"
            + msgpack.encode([Deltas(Form(b"h" * 2000, b"", b""), 0, b"\n" * 1_000_000)]),
            "at most",
        ),
    ],
)
def test_pieces_that_make_no_stream_are_reported(data: bytes, match: str) -> None:
    with pytest.raises(StoreDamaged, match=match):
        unpack_bytes(data)


def test_a_body_that_is_said_to_stand_where_nothing_is_told_is_empty() -> None:
    deltas = Deltas(Form(b"a", b"b", b"c"), 1, b'"x"')
    for pieces in ([], [deltas]):
        data = b"\x05\x00" + msgpack.encode([0, 9, pieces])
        assert unpack_bytes(data) == b""
    assert unpack_stream(data, None) == b'a"x"b1c'
