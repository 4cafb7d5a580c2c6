"""The requests that the gateway refuses before it asks an upstream, with status, code and headers; and the slots for streams.

    RequestRefused
      GatewayRefusal
        BodyTooLarge       413  the body, as sent or inflated, exceeds the ceiling
        UnknownEncoding    415  a content-encoding that the gateway cannot decode
        CorruptBody        400  a body that does not match its content-encoding
        HeadersTooLarge    431  the head exceeds the ceiling
        Unauthorized       401  no key, or none of the operator's
        Forbidden          403  a web page of another site that the operator has not allowed
        TooManyStreams     429  every slot is taken; the client may retry after a second

`http.bodies` limits the size of a body while reading it. Everything here is pure except `StreamSlots`, which counts and
belongs to one event loop.
"""

from collections.abc import Collection
from itertools import chain

from dragoman._json import shape_of
from dragoman.errors import RequestRefused
from dragoman.model.request import Request

_Headers = tuple[tuple[bytes, bytes], ...]


class GatewayRefusal(RequestRefused):
    """A request that the gateway does not serve. `headers` belong in the answer."""

    headers: _Headers = ()


class BodyTooLarge(GatewayRefusal):
    kind = "too_large"
    status = 413


class UnknownEncoding(GatewayRefusal):
    status = 415
    # RFC 9110 §12.5.3: a 415 for the content-encoding lists the supported ones in this header.
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


# The colon, space and line end of a header line.
_SEPARATORS = 4


def check_head(headers: Collection[tuple[bytes, bytes]], limit: int, line: int) -> None:
    """Raises HeadersTooLarge: the head of a request, with its first line of `line` bytes, exceeds `limit` bytes."""
    size = line + sum(map(len, chain.from_iterable(headers))) + _SEPARATORS * len(headers) + 2
    if size > limit:
        raise HeadersTooLarge(
            f"expected at most {limit} bytes of head (server.max_header_bytes); {size} came",
            code="headers_too_large",
        )


def check_tools(request: Request, limit: int) -> None:
    """Raises RequestRefused: the request offers more than `limit` tools, including those of its namespaces."""
    count = len(request.tools)
    if count > limit:
        raise RequestRefused(
            f"expected at most {limit} tools (server.max_tools); the request offers {count}",
            param="tools",
            code="too_many_tools",
        )


def check_json(body: bytes, *, max_depth: int, max_values: int) -> None:
    """Check the nesting and the number of values. Text that is not JSON passes: the decoder refuses it.

    Raises:
        RequestRefused: the JSON nests deeper than `max_depth`.
        BodyTooLarge: the JSON has more values than `max_values`.
    """
    # Most requests have fewer brackets than `max_depth` allows, even counting those inside strings. `replace` finds them at a
    # third of the cost of `count` and `translate`, which look at byte after byte, and stops when there are too many.
    some = max_depth + 1
    left = len(body.replace(b"{", b"", some)) + len(body.replace(b"[", b"", some))
    opened = 2 * len(body) - left
    # A value takes at least two bytes: itself and its separator.
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
    """Counts open exchanges. `setting`: the name of the limit; `what`: what is counted."""

    __slots__ = ("_setting", "_what", "limit", "open")

    def __init__(
        self, limit: int, setting: str = "server.max_streams", what: str = "requests"
    ) -> None:
        self.limit = limit
        self.open = 0
        self._setting = setting
        self._what = what

    def check(self) -> None:
        """Raises TooManyStreams: every slot is taken."""
        if self.open >= self.limit:
            raise TooManyStreams(
                f"expected fewer than {self.limit} {self._what} at a time ({self._setting}); "
                "every slot is taken, try again in 1 s",
                code="too_many_streams",
            )

    def acquire(self) -> None:
        """Raises TooManyStreams: every slot is taken."""
        if self.open >= self.limit:
            self.check()
        self.open += 1

    def release(self) -> None:
        self.open -= 1
