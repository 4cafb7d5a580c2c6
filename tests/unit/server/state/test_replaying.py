"""A stored stream, told again."""

from dragoman.server.state.replaying import Replay, replay

FRAMES = [
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n',
    b'event: response.output_text.delta\ndata: {"delta":"a","sequence_number":1}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","sequence_number":2}\n\n',
]


def test_the_whole_stream_is_told_byte_for_byte() -> None:
    assert replay(b"".join(FRAMES), None) == b"".join(FRAMES)


def test_only_events_after_the_number_are_told() -> None:
    assert replay(b"".join(FRAMES), 0) == b"".join(FRAMES[1:])
    assert replay(b"".join(FRAMES), 2) == b""


def test_what_only_kept_the_connection_open_is_left_out() -> None:
    noise = b': keep-alive\n\nevent: keepalive\ndata: {"type":"keepalive"}\n\ndata: [DONE]\n\n'
    assert replay(FRAMES[0] + noise + FRAMES[1], None) == FRAMES[0] + FRAMES[1]


def test_a_stream_that_comes_in_pieces_is_told_in_whole_frames_and_once() -> None:
    stream = b"".join(FRAMES)
    replaying = Replay(0)
    cut = len(FRAMES[0]) + 5
    assert replaying.feed(b"") == b""
    assert replaying.feed(stream[:cut]) == b""
    assert replaying.feed(stream[cut : len(FRAMES[0]) + len(FRAMES[1])]) == FRAMES[1]
    assert replaying.last == 1
    assert replaying.rest(stream) == FRAMES[2]
