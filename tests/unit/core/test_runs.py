"""Deltas that are written alike: only what is written so is cut, and what is cut means what JSON means."""

import json

import pytest

from dragoman.core.runs import Mould, Run, mould_of, spread
from dragoman.model.events import Event, InputDelta, TextDelta

PADDING = b',"pad":"'
LAST = TextDelta(0, "word")
MOULD = Mould(LAST, b'{"text":"', b"", b'","of":1}')
PADDED = Mould(LAST, b'{"text":"', b'","of":1,"pad":"', b'"}')


def lines_of(*texts: str) -> list[bytes]:
    return [b'{"text":%b,"of":1}' % json.dumps(text).encode() for text in texts]


def padded(text: str, pad: str) -> bytes:
    return b'{"text":%b,"of":1,"pad":"%b"}' % (json.dumps(text).encode(), pad.encode())


def test_texts_are_those_that_json_has() -> None:
    texts = ["a", ' "b" ', "\\", "\n", "é", "\u2028", "😀", "}", '","of":1}']
    assert MOULD.texts(lines_of(*texts)) == texts


def test_padding_may_be_another_each_time() -> None:
    lines = [padded("a", "x1"), padded('"', "Y"), padded('","of":1,"pad":"', "z2z2")]
    assert PADDED.texts(lines) == ["a", '"', '","of":1,"pad":"']


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b'{"text":"',
        b'{"text":"","of":1}',  # nothing is told of it
        b'{"text":"a","of":2}',
        b'{"text" :"a","of":1}',
        b'{"text":"a","b":"c","of":1}',
        b'{"text":"a"} {"text":"c","of":1}',
        b'{"text":"a\\","of":1}',
        b'{"text":"a\nb","of":1}',
        b'{"text":"a"\n"b","of":1}',
        b'{"text":"\\ud83d","of":1}',
        b'{"text":"\\x","of":1}',
        b'{"text":"\xff","of":1}',
    ],
)
def test_line_that_is_written_otherwise_is_not_cut(odd: bytes) -> None:
    assert MOULD.texts([*lines_of("a"), odd, *lines_of("b")]) is None
    assert MOULD.texts([odd]) is None


def test_two_lines_that_are_odd_do_not_make_up_for_each_other() -> None:
    joined = b'{"text":"a","of":1}{"text":"b","of":1}'
    assert MOULD.texts([joined, b""]) is None
    assert MOULD.texts([b'{"text":"a\\","of":1}', b'{"text":"b","c","of":1}']) is None
    without, twice = b'{"text":"a"}', b'{"text":"b","of":1,"pad":"c","of":1,"pad":"d"}'
    assert PADDED.texts([without, twice]) is None
    assert PADDED.texts([padded("a", "x"), b'{"text":"a","of":1,"pad":"x\\"}']) is None


def test_mould_is_taken_where_the_text_stands_once_and_nothing_is_escaped() -> None:
    assert mould_of([b'{"text":"word","of":1}'], [LAST], PADDING) == MOULD
    assert mould_of([b'{"text":"word","of":1,"pad":"q"}'], [LAST], PADDING) == PADDED
    assert mould_of([b'{"text":"word","of":"word"}'], [LAST], PADDING) is None
    assert mould_of([b'{"text":"\\u0077ord","of":"word"}'], [LAST], PADDING) is None
    assert mould_of([b'{"text":"other"}'], [LAST], PADDING) is None


def test_delta_without_escapes_among_others_gives_the_mould() -> None:
    lines = [b'{"text":"word","of":1}', b'{"text":"\\n","of":1}']
    assert mould_of(lines, [LAST, TextDelta(0, "\n")], PADDING) == MOULD


def test_run_is_its_deltas() -> None:
    run = Run(InputDelta, 2, ["a", "b"])
    told: list[Event | Run] = [LAST, run, LAST]
    assert spread(told) == [LAST, InputDelta(2, "a"), InputDelta(2, "b"), LAST]
