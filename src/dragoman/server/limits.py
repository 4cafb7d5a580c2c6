"""What the gateway itself refuses before an upstream is asked, each with its status, code and headers; and how much it serves.

    RequestRefused
      GatewayRefusal
        BodyTooLarge       413  the body, as sent or inflated, exceeds the ceiling
        UnknownEncoding    415  a content-encoding that is not read here
        CorruptBody        400  a body that is not what its content-encoding says
        HeadersTooLarge    431  the head exceeds the ceiling
        Unauthorized       401  no key, or not one of the operator's
        Forbidden          403  a web page of another site, which nobody allowed
        TooManyStreams     429  every slot is taken; come back in a second

The size of a body is limited where it is read (`http.bodies`). Everything here is pure but `StreamSlots`, which counts; it
belongs to one event loop.
"""

from collections.abc import Collection
from itertools import chain

from dragoman._json import shape_of
from dragoman.errors import RequestRefused
from dragoman.model.request import Request

_Headers = tuple[tuple[bytes, bytes], ...]


class GatewayRefusal(RequestRefused):
    """A request the gateway does not serve. `headers` belong on the answer."""

    headers: _Headers = ()


class BodyTooLarge(GatewayRefusal):
    kind = "too_large"
    status = 413


class UnknownEncoding(GatewayRefusal):
    status = 415
    # RFC 9110 §12.5.3: a 415 for the content-encoding says in this header which ones would do.
    headers: _Headers = ((b"accept-encoding", b"gzip, deflate, br, zstd"),)


class CorruptBody(GatewayRefusal):
    pass


class HeadersTooLarge(GatewayRefusal):
    kind = "too_large"
    status = 431


class Unauthorized(GatewayRefusal):
    kind = "authentication"
    status = 401
    headers: _Headers = ((b"www-authenticate", b"Bearer"),)


class Forbidden(GatewayRefusal):
    kind = "permission"
    status = 403


class TooManyStreams(GatewayRefusal):
    kind = "rate_limit"
    status = 429
    headers: _Headers = ((b"retry-after", b"1"),)


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
    """Counts open exchanges."""

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0

    def check(self) -> None:
        """Raises TooManyStreams: every slot is taken."""
        if self.open >= self.limit:
            raise TooManyStreams(
                f"expected fewer than {self.limit} requests at a time (server.max_streams); "
                "every slot is taken, try again in 1 s",
                code="too_many_streams",
            )

    def acquire(self) -> None:
        """Raises TooManyStreams: every slot is taken."""
        self.check()
        self.open += 1

    def release(self) -> None:
        self.open -= 1
