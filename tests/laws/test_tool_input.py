"""Laws 6 and 8: a call's input is what the wire carried, and only a closed call with strict JSON may run."""

import itertools
import json

import pytest
from bench_streams import Story, dialect_stream
from hypothesis import given
from hypothesis import strategies as st

from corpus_cases import DIALECTS
from dragoman._json import is_strict
from dragoman.core.call_input import judge
from dragoman.core.fold import fold
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call
from strategies import json_texts

AWKWARD = [
    '{"n":1.0,"n":1e2,"big":123456789012345678901234567890}',
    '{ "spaced" : [ 1 , 2 ] }',
    '{"escaped":"\\u00e9\\ud83d\\ude00\\/","raw":"é😀/"}',
    '{"separators":"\u2028\u2029\u0085"}',
    '{"quotes":"\\"\\\\\\"","newline":"\\n"}',
    '{"empty":{},"null":null,"neg":-0}',
]


class OneCall(Story, frozen=True):
    """A call whose argument text is given, in pieces."""

    cut: tuple[str, ...] = ()

    def pieces(self) -> list[str]:
        return list(self.cut)


def stream_of(source: str, pieces: list[str]) -> bytes:
    return b"".join(dialect_stream(source, OneCall(texts=0, calls=1, cut=tuple(pieces))))


def call_in(outcome: Outcome) -> Call:
    calls = [part for part in outcome.choices[0].parts if isinstance(part, Call)]
    assert len(calls) == 1
    return calls[0]


def read(dialect: str, data: bytes) -> Outcome:
    decoder = make_decoder(dialect)
    steps = decoder.feed(data) + decoder.close()
    return fold(event for step in steps for event in step.events)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
@given(text=st.sampled_from(AWKWARD) | json_texts(), cuts=st.lists(st.integers(0, 500), max_size=8))
def test_argument_text_crosses_byte_for_byte(
    source: str, target: str, text: str, cuts: list[int]
) -> None:
    object_text = text if text.lstrip().startswith("{") else f'{{"value":{text}}}'
    data = stream_of(source, pieces_of(object_text, cuts))
    assert call_in(read(source, data)).input == object_text
    translator = StreamTranslator(source, target)
    crossed = call_in(read(target, translator.feed(data) + translator.close()))
    assert crossed.input == object_text
    assert judge(crossed).executable


@pytest.mark.parametrize("dialect", DIALECTS)
@given(keep=st.integers(0, 40))
def test_a_stream_cut_anywhere_offers_no_half_call(dialect: str, keep: int) -> None:
    frames = dialect_stream(dialect, Story(texts=2, calls=2, arguments=12))
    outcome = read(dialect, b"".join(frames[: keep % len(frames)]))
    for choice in outcome.choices:
        for part in choice.parts:
            if isinstance(part, Call) and judge(part).executable:
                assert part.status == "completed"
                assert isinstance(json.loads(part.input), dict)


@given(text=st.text(max_size=30), closed=st.booleans())
def test_only_a_closed_call_with_strict_json_may_run(text: str, closed: bool) -> None:
    call = Call(call_id="a", name="f", input=text, status="completed" if closed else "incomplete")
    assert judge(call).executable == (closed and is_strict(text))
    assert judge(call).reason
