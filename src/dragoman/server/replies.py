"""The ends of an upstream's reply: an error read whole, and a connection let go of."""

import asyncio
import logging

from msgspec import structs

from dragoman.core.failures import error_info
from dragoman.core.secrets import Secrets
from dragoman.dialects.registry import upstream_codec
from dragoman.errors import FrameTooLarge, GatewayError
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Dialect
from dragoman.upstream.base import Reply
from dragoman.upstream.retry import Failure, failure_of
from dragoman.upstream.transport import HttpReply

__all__ = ("FailedAttempt", "is_stream", "let_go", "no_reply", "read_error", "read_whole")

logger = logging.getLogger(__name__)

# An error body is a few hundred bytes; a proxy's error page some kilobytes.
MAX_ERROR_BYTES = 1024 * 1024
# After an answer has ended only the end of its HTTP body is due; a connection not worth the wait is cut.
DRAIN_SECONDS = 1.0

FailedAttempt = tuple[ErrorInfo, Failure]
"""An attempt that brought nothing: what the client would be told, and what the policy goes by."""


def no_reply(error: GatewayError, secrets: Secrets, request_id: str = "") -> FailedAttempt:
    """An upstream that gave none. Where it is, only the log says."""
    if error.detail:
        logger.warning("%s%s", f"request {request_id}: " if request_id else "", error.whole)
    info = secrets.hide_error(error_info(error))
    return info, Failure(kind=info.kind)


async def read_error(
    reply: Reply, dialect: Dialect, secrets: Secrets, *, now: float
) -> FailedAttempt:
    """A reply whose status is an error's. What the upstream was let in with is not quoted: its words go to clients."""
    try:
        data = await read_whole(reply, MAX_ERROR_BYTES)
    except GatewayError:
        data = b""  # an error whose body was cut is still that error
    info = upstream_codec(dialect).decode_error(secrets.hide_bytes(data), reply.status)
    info = secrets.hide_error(info)
    failure = failure_of(reply.status, reply.headers, kind=info.kind, now=now)
    if failure.retry_after is not None:
        info = structs.replace(info, retry_after=failure.retry_after)
    return info, failure


async def let_go(reply: Reply) -> None:
    """After a stream that has ended: give the connection back if the upstream ends the answer, else cut it."""
    try:
        if isinstance(reply, HttpReply) and reply.is_over:
            return
        async with asyncio.timeout(DRAIN_SECONDS):
            while await reply.read():
                pass
    except (GatewayError, TimeoutError):
        pass
    finally:
        reply.close()


async def read_whole(reply: Reply, limit: int, first: bytes = b"") -> bytes:
    """The rest of a reply.

    Raises:
        FrameTooLarge: it exceeds `limit`. UpstreamError: it was cut.
    """
    pieces = [first]
    size = len(first)
    while data := await reply.read():
        pieces.append(data)
        size += len(data)
        if size > limit:
            raise FrameTooLarge(f"expected an answer of at most {limit:,} bytes, got more")
    return b"".join(pieces)


def is_stream(content_type: str, first: bytes) -> bool:
    """By the content type where it is one of the two, else by the first byte: JSON opens with a brace."""
    if content_type.startswith("text/event-stream"):
        # Some servers send a JSON error under the content type of the stream that was asked for.
        return not first[:64].lstrip().startswith(b"{")
    return first[:64].lstrip().startswith((b"data:", b"event:", b":", b"id:", b"retry:"))
