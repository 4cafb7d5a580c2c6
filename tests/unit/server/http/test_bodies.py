"""Request bodies: ceilings, encodings, bombs, clients that leave."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from importlib import import_module

import pytest
import zstandard

from dragoman.core.failures import error_info, status_of
from dragoman.errors import GatewayError
from dragoman.server.http.bodies import (
    BLOCK,
    MAX_ENCODINGS,
    MAX_MEMBERS,
    ClientGone,
    Receive,
    inflate,
    read_body,
)
from dragoman.server.limits import BodyTooLarge, CorruptBody, UnknownEncoding

JSON = b'{"model":"m","messages":[{"role":"user","content":"' + b"words and words " * 4000 + b'"}]}'
LIMIT = 1024 * 1024


def brotli(data: bytes) -> bytes:
    compress: Callable[[bytes], bytes] = import_module("brotli").compress
    return compress(data)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli,
    "zstd": zstd,
}


def receiving(*pieces: bytes, leaves: bool = False) -> Receive:
    messages: list[dict[str, object]] = [
        {"type": "http.request", "body": piece, "more_body": leaves or number < len(pieces)}
        for number, piece in enumerate(pieces, start=1)
    ]
    if leaves:
        messages.append({"type": "http.disconnect"})
    waiting = iter(messages)

    async def receive() -> MutableMapping[str, object]:
        return next(waiting)

    return receive


def read(receive: Receive, encoding: str = "", limit: int = LIMIT, length: str = "") -> bytes:
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    if length:
        headers.append((b"content-length", length.encode()))
    if encoding:
        headers.append((b"content-encoding", encoding.encode()))
    return asyncio.run(read_body(receive, headers, limit))


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def joined(blocks: Iterable[bytes]) -> bytes:
    return b"".join(blocks)


def test_body_in_one_message_is_the_very_object() -> None:
    assert read(receiving(JSON), length=str(len(JSON))) is JSON


def test_body_in_many_messages_is_joined() -> None:
    assert read(receiving(*cut(JSON, 1000))) == JSON


def test_message_without_a_body_is_an_empty_piece() -> None:
    async def receive() -> MutableMapping[str, object]:
        return {"type": "http.request"}

    assert read(receive) == b""


def test_body_of_exactly_the_limit_is_read() -> None:
    assert read(receiving(b"x" * 100), limit=100) == b"x" * 100
    assert read(receiving(b"x" * 60, b"x" * 40), limit=100) == b"x" * 100
    assert read(receiving(gzip.compress(b"x" * 100)), "gzip", limit=100) == b"x" * 100


def test_announced_length_above_the_limit_is_refused_before_anything_is_read() -> None:
    async def receive() -> MutableMapping[str, object]:
        raise AssertionError("nothing may be read")

    with pytest.raises(BodyTooLarge, match=r"at most 100 bytes .*content-length announces 101"):
        read(receive, limit=100, length="101")
    with pytest.raises(BodyTooLarge, match="content-length announces"):
        read(receive, limit=100, length="9" * 5000)


def test_body_above_the_limit_is_refused_with_status_413() -> None:
    with pytest.raises(BodyTooLarge, match=r"at most 100 bytes .*; 101 bytes came") as caught:
        read(receiving(b"x" * 101), limit=100)
    info = error_info(caught.value)
    assert (info.kind, status_of(info), info.code) == ("too_large", 413, "request_too_large")


def test_body_above_the_limit_in_pieces_is_not_read_to_its_end() -> None:
    taken: list[int] = []

    async def receive() -> MutableMapping[str, object]:
        taken.append(1)
        return {"type": "http.request", "body": b"x" * 60, "more_body": True}

    with pytest.raises(BodyTooLarge, match="at least 120 bytes came"):
        read(receive, limit=100)
    assert len(taken) == 2


@pytest.mark.parametrize("name", PACK)
def test_encoded_body_is_inflated(name: str) -> None:
    packed = PACK[name](JSON)
    assert read(receiving(packed), name) == JSON
    assert read(receiving(*cut(packed, 7)), name.upper()) == JSON


def test_bare_deflate_is_read_as_well() -> None:
    assert read(receiving(raw_deflate(JSON)), "deflate") == JSON


@pytest.mark.parametrize("encoding", ["gzip, zstd", "gzip ,identity,, ZSTD"])
def test_encodings_are_undone_from_the_last_to_the_first(encoding: str) -> None:
    assert read(receiving(zstd(gzip.compress(JSON))), encoding) == JSON


def test_encodings_in_two_headers_are_one_list() -> None:
    headers = [(b"content-encoding", b"gzip"), (b"content-encoding", b"br")]
    body = asyncio.run(read_body(receiving(brotli(gzip.compress(JSON))), headers, LIMIT))
    assert body == JSON


def test_identity_changes_nothing() -> None:
    assert read(receiving(JSON), "identity") is JSON


def test_empty_body_has_nothing_to_inflate() -> None:
    assert read(receiving(b""), "gzip") == b""
    assert read(receiving(gzip.compress(b"")), "gzip, gzip") == b""


def test_members_and_frames_that_follow_one_another_are_one_body() -> None:
    assert read(receiving(gzip.compress(b"one ") + gzip.compress(b"two")), "gzip") == b"one two"
    assert read(receiving(gzip.compress(b"one") + b"\0" * 20), "gzip") == b"one"
    assert read(receiving(zstd(b"one ") + zstd(b"two")), "zstd") == b"one two"


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_endless_empty_members_are_refused(name: str) -> None:
    empty = PACK[name](b"")
    assert joined(inflate(name, empty * MAX_MEMBERS, LIMIT)) == b""
    with pytest.raises(CorruptBody, match=f"more than {MAX_MEMBERS}"):
        read(receiving(empty * (MAX_MEMBERS + 1)), name)


def test_unknown_encoding_is_refused_with_status_415_and_the_list() -> None:
    with pytest.raises(UnknownEncoding, match=r"gzip, deflate, br, zstd.*got 'snappy'") as caught:
        read(receiving(JSON), "gzip, snappy")
    info = error_info(caught.value)
    assert (status_of(info), info.code, info.param) == (415, "unknown_encoding", "content-encoding")
    assert caught.value.headers == ((b"accept-encoding", b"gzip, deflate, br, zstd"),)


def test_long_chain_of_encodings_is_refused() -> None:
    with pytest.raises(UnknownEncoding, match=f"at most {MAX_ENCODINGS} content-encodings; got 5"):
        read(receiving(JSON), "gzip, gzip, gzip, gzip, gzip")


@pytest.mark.parametrize("name", PACK)
def test_cut_body_is_refused_as_corrupt(name: str) -> None:
    packed = PACK[name](JSON)
    for kept in (1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(
            CorruptBody, match=f"content-encoding {name}; it cannot be read"
        ) as caught:
            read(receiving(packed[:kept]), name)
        info = error_info(caught.value)
        assert (status_of(info), info.code) == (400, "corrupt_body")


@pytest.mark.parametrize("name", PACK)
def test_body_that_is_not_encoded_is_refused_as_corrupt(name: str) -> None:
    for body in (JSON, b"\0" * 100):
        with pytest.raises(CorruptBody):
            read(receiving(body), name)


@pytest.mark.parametrize("name", PACK)
def test_junk_after_the_end_is_refused_as_corrupt(name: str) -> None:
    with pytest.raises(CorruptBody):
        read(receiving(PACK[name](JSON) + b"junk"), name)


@pytest.mark.parametrize("name", PACK)
def test_bomb_is_refused_and_never_takes_more_than_the_limit_and_a_block(name: str) -> None:
    bomb = PACK[name](bytes(64 * 1024 * 1024))
    read(receiving(PACK[name](b"warm")), name)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match=f"{len(bomb)} bytes of {name} inflate to more"):
            read(receiving(bomb), name, limit=4 * LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # zstd gives out up to 2 MiB at a time, and holds the pieces of it until they are joined
    assert peak < 4 * LIMIT + (4 * LIMIT if name == "zstd" else 4 * BLOCK)


def test_bomb_within_a_bomb_is_refused() -> None:
    bomb = gzip.compress(gzip.compress(bytes(64 * 1024 * 1024)))
    with pytest.raises(BodyTooLarge):
        read(receiving(bomb), "gzip, gzip")


def test_zstd_frame_with_a_vast_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = compressor.compress(b"x" * 100) + compressor.flush()
    with pytest.raises(CorruptBody):
        read(receiving(packed), "zstd")


def test_other_tasks_run_while_a_large_body_is_inflated() -> None:
    packed = gzip.compress(bytes(32 * 1024 * 1024))

    async def both() -> int:
        turns = 0
        headers = [(b"content-encoding", b"gzip")]
        reading = asyncio.ensure_future(read_body(receiving(packed), headers, 64 * LIMIT))
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(await reading) == 32 * 1024 * 1024
        return turns

    assert asyncio.run(both()) >= 30


@pytest.mark.parametrize("pieces", [(), (b"half of",)])
def test_client_that_leaves_while_its_body_is_read_is_distinguished(
    pieces: tuple[bytes, ...],
) -> None:
    with pytest.raises(ClientGone) as caught:
        read(receiving(*pieces, leaves=True))
    assert isinstance(caught.value, GatewayError)
    assert error_info(caught.value).kind == "cancelled"


@pytest.mark.parametrize("pack", [raw_deflate, zlib.compress, gzip.compress])
def test_output_that_waits_behind_a_full_block_is_given_out(pack: Callable[[bytes], bytes]) -> None:
    for extra in (0, 1, 100, 257, 258, 259, 600):
        body = b"a" * (BLOCK + extra)
        name = "gzip" if pack is gzip.compress else "deflate"
        assert joined(inflate(name, pack(body), LIMIT)) == body
