"""Bytes come back as they were, also those that earlier versions packed, and what cannot be read is reported."""

import sys
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from dragoman.errors import StoreDamaged
from dragoman.store.packing import (
    PACK_BYTES,
    StreamBuffer,
    pack_bytes,
    unpack_bytes,
    unpack_stream,
)


@given(st.binary(max_size=600), st.integers(1, 40))
def test_any_bytes_come_back(data: bytes, times: int) -> None:
    assert unpack_bytes(pack_bytes(data * times)) == data * times


def test_repetition_is_compressed_and_noise_is_not() -> None:
    assert len(pack_bytes(b"data: x\n\n" * 1000)) < 200
    noise = zlib.compress(bytes(range(256)) * 3, 9) * 1
    assert len(pack_bytes(noise)) == len(noise) + 1
    incompressible = bytes((n * n * 31 + n * 7) % 251 for n in range(251)) + bytes(range(100))
    assert len(pack_bytes(incompressible)) <= len(incompressible) + 1


def test_what_zlib_packed_is_read_and_written_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"the same again, " * 100
    assert unpack_bytes(b"\x01" + zlib.compress(data)) == data
    packed = pack_bytes(data)
    assert packed[:1] == b"\x02"
    monkeypatch.setitem(sys.modules, "zstandard", None)
    found: list[bytes] = []
    # Compressors are remembered by thread: another has not asked yet.
    thread = threading.Thread(target=lambda: found.append(pack_bytes(data)))
    thread.start()
    thread.join()
    assert found[0][:1] == b"\x01"
    assert unpack_bytes(found[0]) == data
    with pytest.raises(StoreDamaged, match=r"dragoman\[server\]"):
        unpack_bytes(packed)


@pytest.mark.parametrize(
    "data",
    [
        b"\x03\x00",
        b"\x03\x00\x00\x00\x09\x00ab",
        b"\x03\x00\x00\x00\x00",
        b"\x03\x00\x00\x00\x05\x03\x00\x00\x00\x00",
    ],
)
def test_pieces_whose_lengths_do_not_fit_are_reported(data: bytes) -> None:
    with pytest.raises(StoreDamaged, match="lengths"):
        unpack_bytes(data)


@given(st.lists(st.binary(max_size=400), max_size=8), st.integers(0, 2000))
def test_what_came_in_pieces_comes_back(pieces: list[bytes], start: int) -> None:
    buffer = StreamBuffer()
    for piece in pieces:
        buffer.add(piece * 300)
    whole = b"".join(piece * 300 for piece in pieces)
    assert buffer.size == len(whole)
    assert buffer.read() == whole
    assert buffer.read(start * 100) == whole[start * 100 :]
    assert unpack_bytes(buffer.packed()) == whole
    buffer.add_last(b"the end")
    assert buffer.loose >= len(b"the end")
    assert unpack_bytes(buffer.packed()) == whole + b"the end"
    assert buffer.read(start) == (whole + b"the end")[start:]


def test_a_small_pack_behind_a_large_one_is_read_from_the_middle_of_that_one() -> None:
    buffer = StreamBuffer()
    reads = [b"a" * 3 * PACK_BYTES, b"b" * PACK_BYTES, b"c" * PACK_BYTES, b"d"]
    for read in reads:
        buffer.add(read)
    whole = b"".join(reads)
    for start in range(0, len(whole) + PACK_BYTES, PACK_BYTES // 2):
        assert buffer.read(start) == whole[start:]


def test_a_pile_takes_little_room() -> None:
    buffer = StreamBuffer()
    frames = [b'data: {"type":"delta","number":%d}\n\n' % number for number in range(2000)]
    for frame in frames:
        buffer.add(frame)
    assert buffer.size > 2 * PACK_BYTES
    assert buffer.read() == b"".join(frames)
    assert len(buffer.packed()) < buffer.size / 5


# As earlier versions wrote them: a frame, two that were made of one form, and the end.
OLD_STREAM = (
    b'data: {"n":0}\n\n'
    b'data: {"delta":"a","n":9}\n\ndata: {"delta":"50 %","n":10}\n\n'
    b'data: {"response":{"id":"r"}}\n\n'
)
_OLD = (
    b'\x93\xc4\x0fdata: {"n":0}\n\n\x93\x93\xc4\x0fdata: {"delta":\xc4\x05,"n":\xc4\x03}\n\n\t'
    b'\xc4\n"a"\n"50 %"\xc4\x1fdata: {"response":{"id":"r"}}\n\n'
)
OLD_PIECES = b"\x04\x00" + _OLD
OLD_BOTH = b"\x05\x00\x93\x12\x1c" + _OLD


def test_streams_that_earlier_versions_stored_are_read() -> None:
    assert unpack_stream(b"\x00{}", OLD_PIECES) == OLD_STREAM
    several = b"\x03\x00\x00\x00\x61" + OLD_PIECES + b"\x00\x00\x00\x04\x00end"
    assert unpack_stream(b"\x00{}", several) == OLD_STREAM + b"end"
    assert unpack_stream(OLD_BOTH, None) == OLD_STREAM
    assert unpack_bytes(OLD_BOTH) == b'{"id":"r"}'
    compressed = b"\x05\x01" + zlib.compress(OLD_BOTH[2:])
    assert unpack_stream(compressed, None) == OLD_STREAM
    assert unpack_stream(b"\x00{}", None) is None


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\x06", "00 to 05"),
        (b"\x04\x00", "pieces"),
        (b"\x04\x00not", "pieces"),
        (b"\x04\x03\x00\x00\x00\x00", "in another way"),
        (b"\x04\x04\x00\x90", "in another way"),
        (b"\x05\x05\x00\x90", "in another way"),
        (b"\x05\x00\x92\x01\x02", "pieces"),
        (b"\x03\x00\x00\x00\x02\x05\x00", "lengths"),
        (
            b"\x04\x00" + msgpack.encode([[[b"h" * 2000, b"", b""], 0, b"\n" * 1_000_000]]),
            "at most",
        ),
    ],
)
def test_pieces_that_make_no_stream_are_reported(data: bytes, match: str) -> None:
    with pytest.raises(StoreDamaged, match=match):
        unpack_bytes(data)


def test_a_body_that_is_said_to_stand_where_no_bytes_are_is_empty() -> None:
    deltas = [[b"a", b"b", b"c"], 1, b'"x"']
    for pieces in ([], [deltas]):
        data = b"\x05\x00" + msgpack.encode([0, 9, pieces])
        assert unpack_bytes(data) == b""
    assert unpack_stream(data, None) == b'a"x"b1c'
