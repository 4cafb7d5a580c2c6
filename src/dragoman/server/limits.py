"""How much is served: size of a head, number of tools, nesting depth, open streams. Each has an error of its own.

The size of a body is limited where it is read (`bodies`). Everything here is a pure check but `StreamSlots`, which
counts; it belongs to one event loop.
"""

from collections.abc import Collection
from itertools import accumulate, chain

from dragoman.errors import RequestRefused
from dragoman.model.request import Request
from dragoman.server.refusals import HeadersTooLarge, TooManyStreams

__all__ = ("StreamSlots", "check_depth", "check_head", "check_tools", "depth_of")

# Every bracket becomes one of a pair, so that one pattern finds the innermost ones; all but brackets and quotes goes.
_ONE_PAIR = bytes.maketrans(b"[]", b"{}")
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STEP = {ord("{"): 1, ord("}"): -1}


# Behind a header's name and value: a colon, a space and a line end.
_SEPARATORS = 4


def check_head(headers: Collection[tuple[bytes, bytes]], limit: int, line: int) -> None:
    """Raises HeadersTooLarge: the head of a request, its first line of `line` bytes among it, exceeds `limit` bytes."""
    size = line + sum(map(len, chain.from_iterable(headers))) + _SEPARATORS * len(headers) + 2
    if size > limit:
        raise HeadersTooLarge(
            f"expected at most {limit} bytes of head (server.max_header_bytes); {size} came",
            code="headers_too_large",
        )


def check_tools(request: Request, limit: int) -> None:
    """Raises RequestRefused: the request offers more than `limit` tools, those of its namespaces included."""
    count = len(request.tools)
    if count > limit:
        raise RequestRefused(
            f"expected at most {limit} tools (server.max_tools); the request offers {count}",
            param="tools",
            code="too_many_tools",
        )


def check_depth(body: bytes, limit: int) -> None:
    """Raises RequestRefused: the JSON nests deeper than `limit`. What is no JSON is for the decoder to tell."""
    # Most requests have fewer brackets than that, counting those inside strings: one fast count tells.
    if body.count(b"{") + body.count(b"[") <= limit:
        return
    depth = depth_of(body)
    if depth > limit:
        raise RequestRefused(
            f"expected JSON nested at most {limit} deep (server.max_depth); the request is {depth} deep",
            code="too_deep",
        )


def depth_of(body: bytes) -> int:
    """How deep JSON nests, in time linear in its length.

    The brackets outside of strings are all that is kept. Then the innermost pairs are taken out, again and again: that
    is one fast replacement per level for documents, which are broad. What does not get shorter fast is counted.
    """
    pairs = _brackets(body)
    levels = 0
    while pairs:
        left = pairs.replace(b"{}", b"")
        if len(left) * 4 > len(pairs) * 3:
            deepest = max(accumulate(map(_STEP.__getitem__, pairs)))
            return levels + max(0, deepest)
        pairs = left
        levels += 1
    return levels


def _brackets(body: bytes) -> bytes:
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Taking out two adjoining quotes keeps what is inside a string inside, and what is outside outside: nearly all
    # strings vanish so, and few are left to be split at.
    found = body.translate(_ONE_PAIR, _NOT_STRUCTURE).replace(b'""', b"")
    return b"".join(found.split(b'"')[::2])


class StreamSlots:
    """Counts open exchanges. `with slots:` takes a slot and gives it back; any number of blocks may be open."""

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0

    def acquire(self) -> None:
        """Raises TooManyStreams: all are taken."""
        if self.open >= self.limit:
            raise self.refusal()
        self.open += 1

    def refusal(self) -> TooManyStreams:
        return TooManyStreams(
            f"expected fewer than {self.limit} requests at a time (server.max_streams); "
            "every slot is taken, try again in 1 s",
            code="too_many_streams",
        )

    def release(self) -> None:
        self.open -= 1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
