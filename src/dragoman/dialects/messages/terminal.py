"""The end of a stream that was written, taken back before it leaves."""

from msgspec import Struct

from dragoman._json import FAST_FAILURES, typed_decoder
from dragoman.dialects.messages.errors import encode_error
from dragoman.model.outcome import ErrorInfo
from dragoman.sse import FrameParser, encode_frame

__all__ = ("fail_terminal",)

_ENDS = frozenset(("message_delta", "message_stop"))


class _Typed(Struct, gc=False):
    type: str = ""


_read = typed_decoder(_Typed)


def fail_terminal(last: bytes, error: ErrorInfo) -> bytes:
    """The same frames, but that an error stands where the message would have ended."""
    parser = FrameParser(max(len(last), 1))
    kept = [frame.raw for frame in (*parser.feed(last), *parser.close()) if not _is_end(frame.data)]
    return b"".join(kept) + encode_frame(encode_error(error), b"error")


def _is_end(data: bytes | None) -> bool:
    if data is None:
        return False
    try:
        return _read(data).type in _ENDS
    except FAST_FAILURES:
        return False
