"""What Codex as a client wants otherwise than the door's rules have it (measured with its command line).

- A conversation that has become too long must end with `response.failed`: as HTTP 400 Codex does not recognise it,
  and does not compact the history.
- It waits as long as `Retry-After` says, an hour if need be, silently; a long wait is better reported as an error.
"""

from collections.abc import Mapping

from dragoman.model.outcome import ErrorInfo
from dragoman.server.http.connection import Headers

# What a person in front of a terminal waits for without wondering.
LONGEST_WAIT = 60


def is_codex(headers: Mapping[bytes, bytes]) -> bool:
    """By the header that Codex and its app-server send; its value is the embedding client's name."""
    return b"originator" in headers


def is_sent_in_stream(error: ErrorInfo) -> bool:
    """Whether Codex understands this error only as the failure of a stream."""
    return error.kind == "context_length"


def patient(error: ErrorInfo, limits: Headers) -> tuple[ErrorInfo, Headers]:
    """The error and its headers without a wait that Codex should not be asked for."""
    if error.retry_after is None or error.retry_after <= LONGEST_WAIT:
        return error, limits
    kept = tuple(pair for pair in limits if not pair[0].startswith(b"retry-after"))
    return ErrorInfo(
        kind=error.kind,
        message=f"{error.message} (to be tried again in {error.retry_after:.0f} s)",
        status=error.status,
        code=error.code,
        param=error.param,
        dialect=error.dialect,
        raw=None,
    ), kept
