"""How much is served: size of a head, number of tools, nesting depth, number of values, open streams. Each has an error of its own.

The size of a body is limited where it is read (`bodies`). Everything here is a pure check but `StreamSlots`, which
counts; it belongs to one event loop.
"""

from collections.abc import Collection
from itertools import chain

from dragoman._json import shape_of
from dragoman.errors import RequestRefused
from dragoman.model.request import Request
from dragoman.server.refusals import BodyTooLarge, HeadersTooLarge, TooManyStreams

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


def check_json(body: bytes, *, max_depth: int, max_values: int) -> None:
    """What is no JSON is for the decoder to refuse.

    Raises:
        RequestRefused: the JSON nests deeper than `max_depth`.
        BodyTooLarge: it has more values than `max_values`.
    """
    # Most requests have fewer brackets than that, counting those inside strings: one fast count shows it.
    opened = body.count(b"{") + body.count(b"[")
    # A value takes two bytes, itself and what separates it from the next.
    if opened <= max_depth and (
        len(body) < 2 * max_values or opened + body.count(b",") < max_values
    ):
        return
    shape = shape_of(body, max_values=max_values, max_depth=max_depth)
    if shape.depth > max_depth:
        raise RequestRefused(
            f"expected JSON nested at most {max_depth} deep (server.max_depth); the request is at least {shape.depth} deep",
            code="too_deep",
        )
    if shape.values > max_values:
        raise BodyTooLarge(
            f"expected at most {max_values} JSON values in a request (server.max_values); it has more",
            code="too_many_values",
        )


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
