"""What the gateway itself refuses before an upstream is asked, each with its status, code and headers.

    RequestRefused
      Refusal
        BodyTooLarge       413  the body, as sent or inflated, exceeds the ceiling
        UnknownEncoding    415  a content-encoding that is not read here
        CorruptBody        400  a body that is not what its content-encoding says
        HeadersTooLarge    431
        Unauthorized       401  no key, or not one of the operator's
        Forbidden          403  a web page of another site
        TooManyStreams     429  every slot is taken; come back in a second

`headers` go onto the answer as they are. How a dialect spells the error is the affair of its `errors.py`.
"""

from dragoman.errors import RequestRefused

HeaderList = tuple[tuple[bytes, bytes], ...]


class Refusal(RequestRefused):
    """A request the gateway does not serve. `headers` belong on the answer."""

    headers: HeaderList = ()


class BodyTooLarge(Refusal):
    """The body, as sent or inflated, exceeds the ceiling."""

    kind = "too_large"
    status = 413


class UnknownEncoding(Refusal):
    """A content-encoding that is not read here."""

    status = 415
    # RFC 9110 §12.5.3: a 415 for the content-encoding says in this header which ones would do.
    headers: HeaderList = ((b"accept-encoding", b"gzip, deflate, br, zstd"),)


class CorruptBody(Refusal):
    """The body is not what its content-encoding says."""


class HeadersTooLarge(Refusal):
    """The header fields together exceed the ceiling."""

    kind = "too_large"
    status = 431


class Unauthorized(Refusal):
    """The request carries no key, or none of the operator's."""

    kind = "authentication"
    status = 401
    headers: HeaderList = ((b"www-authenticate", b"Bearer"),)


class Forbidden(Refusal):
    """A web page of another site asked, and nobody allowed it to."""

    kind = "permission"
    status = 403


class TooManyStreams(Refusal):
    """Every slot is taken. A client that waits a second and tries again is served."""

    kind = "rate_limit"
    status = 429
    headers: HeaderList = ((b"retry-after", b"1"),)
