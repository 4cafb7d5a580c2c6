"""Every body case through its reader and, as a body and as a stream, through every encoder."""

import pytest

from corpus_cases import DIALECTS, FolderCase, folder_cases
from corpus_checks import CHECKS, calls_of, check_calls, same_calls, same_finish, text_of
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import translate_body
from dragoman.inspection.recording import recognise

each_case = pytest.mark.parametrize("case", folder_cases("bodies"), ids=lambda case: case.name)


@each_case
def test_body_reads_as_expected(case: FolderCase) -> None:
    step = codec(case.meta["dialect"]).read_body(case.read("body.json"), DecodeContext())
    assert step.raw == case.read("body.json")
    assert is_grammatical(step.events)
    outcome = fold(step.events)
    assert text_of(outcome) == case.meta["expect"]["text"]
    assert outcome.choices[0].finish == case.meta["expect"]["finish"]
    check_calls(calls_of(outcome), case.meta["expect"])


@each_case
def test_body_is_recognised_by_its_own_shape(case: FolderCase) -> None:
    found = recognise(case.read("body.json"))
    assert found is not None
    assert (found.dialect, found.form) == (case.meta["dialect"], "body")


@pytest.mark.parametrize("target", DIALECTS)
@each_case
def test_body_crosses_and_streams_alike(case: FolderCase, target: str) -> None:
    dialect = case.meta["dialect"]
    events = codec(dialect).read_body(case.read("body.json"), DecodeContext()).events
    source = fold(events)
    crossed = translate_body(case.read("body.json"), dialect, target)
    again = fold(codec(target).read_body(crossed.body, DecodeContext()).events)
    assert text_of(again) == text_of(source)
    same_finish(again.choices[0].finish, source.choices[0].finish)
    same_calls(calls_of(again), calls_of(source), target)
    encoder = codec(target).encoder(EncodeContext())
    stream = b"".join(encoder.encode(event) for event in events) + encoder.close()
    CHECKS[target](stream)
