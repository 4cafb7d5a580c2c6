"""Reads an upstream's reply without blocking the event loop: whole bodies, streams in slices, and the end."""

import asyncio
from collections.abc import Iterator
from typing import Protocol, TypeVar

from dragoman.errors import FrameTooLarge, GatewayError
from dragoman.offload import offload
from dragoman.sse import MAX_FRAME_BYTES, begins_stream
from dragoman.upstream.base import UpstreamReply

T_co = TypeVar("T_co", covariant=True)

MAX_BODY_BYTES = MAX_FRAME_BYTES
"""The limit of an answer that is not a stream. The last frame of a stream may hold the whole answer: same limit."""
# Bytes and lines of a stream that are decoded in one step: one or two hundred usual frames, or a thousand comments, which
# take ten microseconds each. Up to `SHORT` bytes the lines need not be counted.
SHORT = 4 * 1024
_SLICE = 32 * 1024
_MAX_LINES = 2048
# The event loop needs a pause while a body inflates to much more than was received.
PAUSE_EVERY = 1024 * 1024

# After the last event only the end of the HTTP body is missing; if it takes longer, a new connection costs less than the wait.
DRAIN_SECONDS = 1.0


async def let_go(reply: UpstreamReply) -> None:
    """Release a stream that has ended: reuse the connection if the HTTP body ends soon, else close it."""
    try:
        if reply.is_over:
            return
        async with asyncio.timeout(DRAIN_SECONDS):
            while await reply.read():
                pass
    except (GatewayError, TimeoutError):
        pass
    finally:
        reply.close()


async def read_whole(reply: UpstreamReply, limit: int, first: bytes = b"") -> bytes:
    """Read the rest of a reply; return it behind `first`.

    Raises:
        FrameTooLarge: the reply exceeds `limit`. UpstreamError: the reply was cut.
    """
    pieces = [first]
    size = len(first)
    pause_at = PAUSE_EVERY
    while data := await reply.read():
        pieces.append(data)
        size += len(data)
        if size > limit:
            raise FrameTooLarge(f"expected an answer of at most {limit:,} bytes, got more")
        if size > pause_at:
            pause_at = size + PAUSE_EVERY
            await asyncio.sleep(0)
    return b"".join(pieces)


class Reader(Protocol[T_co]):
    """A stream decoder."""

    @property
    def waiting(self) -> int:
        """How many bytes of an incomplete frame are buffered."""
        ...

    def feed(self, data: bytes) -> T_co: ...


async def feed_slice(reader: Reader[T_co], data: bytes) -> T_co:
    """Feed a slice of a stream; other tasks run before the next one.

    A frame that came in many reads is decoded at once when it is complete; a large one is decoded in a thread.
    """
    made = await offload(reader.waiting + len(data), reader.feed, data)
    await asyncio.sleep(0)
    return made


def is_one_step(pieces: list[bytes], waiting: int) -> bool:
    """Whether a read of a stream may be decoded in one step. `waiting`: bytes of the frame that it may complete."""
    size = (len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))) + waiting
    return size <= SHORT or (size <= _SLICE and _has_few_lines(b"".join(pieces)))


def slices(pieces: list[bytes]) -> Iterator[bytes]:
    """The bytes of a read in slices that are small enough for one step; small pieces are joined, a large one is cut."""
    group: list[bytes] = []
    size = 0
    for piece in pieces:
        if group and size + len(piece) > _SLICE:
            yield from _cut(group)
            group, size = [], 0
        group.append(piece)
        size += len(piece)
    if group:
        yield from _cut(group)


def _cut(group: list[bytes]) -> Iterator[bytes]:
    whole = b"".join(group)
    if len(whole) <= _SLICE and _has_few_lines(whole):
        yield whole
        return
    parts = max(-(-len(whole) // _SLICE), -(-_lines(whole) // _MAX_LINES))
    size = -(-len(whole) // parts)
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def _has_few_lines(data: bytes) -> bool:
    """Whether there are at most `_MAX_LINES` lines. A split finds line ends many bytes at a time: a count of each byte takes
    6 % of a flood.
    """
    if b"\r" in data:
        return _lines(data) <= _MAX_LINES
    return len(data.split(b"\n", _MAX_LINES + 1)) - 1 <= _MAX_LINES


def _lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def is_stream(content_type: str, first: bytes) -> bool:
    """Whether an answer is a stream: by its content type, unless it begins with a brace (JSON); else by its first bytes."""
    if content_type.startswith("text/event-stream"):
        # Some servers send a JSON error under the content type of the stream that was asked for.
        return not first[:64].lstrip().startswith(b"{")
    return begins_stream(first)
