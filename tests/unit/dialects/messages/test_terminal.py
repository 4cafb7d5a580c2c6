"""The end of a Messages stream, taken back before it leaves."""

from dragoman.dialects.messages import fail_terminal
from dragoman.model.outcome import ErrorInfo

ERROR = ErrorInfo(kind="overloaded", message="no room")


def test_an_error_stands_where_the_message_would_have_ended() -> None:
    start = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    noise = b": comment\n\ndata: nonsense\n\n"
    end = (
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )
    assert fail_terminal(start + noise + end, ERROR) == start + noise + (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no room"}}\n\n'
    )
