"""What a writer says of what it wrote makes the same bytes again, and is not believed where others wrote too."""

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS, Case, stream_cases
from dragoman.core.journal import Deltas, Form, Journal, Terminal, fill_in, join_pieces
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.interpret import StreamInterpreter
from dragoman.dialects.responses import read_terminal
from strategies import random_cuts

DECODE = DecodeContext(choices=1)


def told(dialect: str, reads: list[bytes]) -> tuple[int, Terminal | None, bytes]:
    """How many deltas were told of, what is said of the end, and the last of what was told."""
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
    return alike, journal.terminal, last


def same_end(terminal: Terminal | None, last: bytes) -> bool:
    """Whether it is what would have been read; what it does not say is."""
    return terminal is None or terminal == read_terminal(last)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deltas_that_came_together_are_told_of_once_for_all(dialect: str) -> None:
    data = b"".join(dialect_stream(dialect, Story(60, 2, 30)))
    alike, terminal, last = told(dialect, [data])
    assert 1 <= alike <= 4  # of a text and two calls
    assert terminal is not None
    assert terminal == read_terminal(last)
    assert terminal.waiting is not None
    assert len(terminal.waiting) == 2
    for seed in range(20):
        reads = random_cuts(data, seed)
        assert same_end(*told(dialect, reads)[1:])


@pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)
def test_end_says_of_itself_what_would_be_read(case: Case) -> None:
    for reads in ([case.stream], random_cuts(case.stream, 3)):
        assert same_end(*told(case.dialect, reads)[1:])


def noted() -> Journal:
    journal = Journal()
    journal.note(Form(b"a", b"b", b"c"), 1, b'"x"', 7)
    journal.terminal = Terminal("r", "completed", b"{}")
    return journal


def test_what_somebody_else_wrote_is_kept_as_it_is() -> None:
    journal = noted()
    assert journal.cut(b'a"x"b1c: alive\n\n') is None
    assert journal.terminal is None
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
