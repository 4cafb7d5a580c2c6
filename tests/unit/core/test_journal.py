"""What a writer says of what it wrote makes the same bytes again, and is not believed where others wrote too."""

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS, Case, stream_cases
from dragoman.core.journal import Deltas, Form, Journal, WrittenEnd, fill_in, join_pieces
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.interpret import StreamInterpreter
from dragoman.dialects.responses import read_terminal
from dragoman.state.keeper import ended_response
from strategies import random_cuts

DECODE = DecodeContext(choices=1)


def told(dialect: str, reads: list[bytes]) -> tuple[int, WrittenEnd, bytes]:
    """How many deltas were noted, what was noted of the end, and the last bytes of the stream."""
    journal = Journal()
    encode = EncodeContext(seed="law", journal=journal)
    interpreter = StreamInterpreter(dialect, "responses", decode=DECODE, encode=encode)
    alike = 0
    last = b""
    for read in [*reads, None]:
        out = interpreter.close() if read is None else interpreter.feed(read)
        pieces = journal.cut(out) or [out]
        assert join_pieces(pieces) == out
        alike += sum(type(piece) is Deltas for piece in pieces)
        last = out or last
    assert journal.end is not None
    return alike, journal.end, last


def is_same_end(end: WrittenEnd, last: bytes) -> bool:
    """Whether the encoder notes of its end what would be read from its last frames."""
    read = read_terminal(last)
    assert end.terminal is not None
    assert read is not None
    return last.endswith(end.frames) and ended_response(end.terminal) == ended_response(read)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deltas_that_came_together_are_told_of_once_for_all(dialect: str) -> None:
    data = b"".join(dialect_stream(dialect, Story(60, 2, 30)))
    alike, end, last = told(dialect, [data])
    assert 1 <= alike <= 4  # of a text and two calls
    assert end.terminal is not None
    assert end.terminal == read_terminal(last)
    assert end.terminal.waiting is not None
    assert len(end.terminal.waiting) == 2
    for seed in range(20):
        reads = random_cuts(data, seed)
        assert is_same_end(*told(dialect, reads)[1:])


@pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)
def test_end_says_of_itself_what_would_be_read(case: Case) -> None:
    for reads in ([case.stream], random_cuts(case.stream, 3)):
        assert is_same_end(*told(case.dialect, reads)[1:])


def noted() -> Journal:
    journal = Journal()
    journal.note(Form(b"a", b"b", b"c"), 1, b'"x"', 7)
    return journal


def test_what_somebody_else_wrote_is_kept_as_it_is() -> None:
    journal = noted()
    assert journal.cut(b'a"x"b1c: alive\n\n') is None
    # And nothing of it is remembered.
    journal.size += 3
    assert journal.cut(b"abc") is None
    assert journal.size == 0


def test_frames_are_made_again_whatever_stands_in_them() -> None:
    texts = [b'"%b"', b'"%"', b'"100 %d"']
    form = Form(b"5 %s:", b",%%,", b"%}")
    deltas = Deltas(form, 9, b"\n".join(texts))
    frames = b'5 %s:"%b",%%,9%}5 %s:"%",%%,10%}5 %s:"100 %d",%%,11%}'
    assert deltas.frames() == frames
    assert fill_in(form.line(), texts, 9) == frames
    assert deltas.most >= len(frames)
