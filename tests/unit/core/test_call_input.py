"""Tool input: increments out whatever comes in, nothing eaten, and the verdict on a call."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman.core.call_input import InputBuffer, Verdict, judge
from dragoman.model.parts import Call
from strategies import json_texts, texts


def emitted_by(
    fragments: list[str], whole: str | None = None, *, is_json: bool = True
) -> list[str]:
    """What comes out for each fragment and at the end; checked against what the buffer says it has emitted."""
    buffer = InputBuffer(is_json=is_json)
    found = [buffer.push(fragment) for fragment in fragments]
    last, contradicted = buffer.settle(whole)
    assert not contradicted
    assert buffer.text() == "".join([*found, last])
    return [*found, last]


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


PLACES = st.lists(st.integers(0, 10**6), max_size=6)


@given(json_texts(), PLACES)
def test_increments_come_out_as_they_came(text: str, places: list[int]) -> None:
    fragments = [fragment for fragment in cut(text, places) if fragment]
    # The one shape that cannot be distinguished from a provider that resends everything has its own tests below.
    assume(len(fragments) < 2 or not fragments[1].startswith(fragments[0]))
    assert emitted_by(fragments) == [*fragments, ""]


@given(json_texts(), st.lists(st.integers(0, 10**6), max_size=1))
def test_two_increments_are_exact_whatever_their_shape_when_the_protocol_repeats_the_whole(
    text: str, places: list[int]
) -> None:
    assert "".join(emitted_by(cut(text, places), text)) == text


@given(json_texts().map(str.strip), PLACES)
def test_a_provider_that_resends_everything_is_read_as_increments(
    text: str, places: list[int]
) -> None:
    """M051."""
    edges = sorted({place % len(text) + 1 for place in places} | {len(text)})
    found = emitted_by([text[:edge] for edge in edges])
    assert "".join(found) == text


@given(texts(), PLACES)
def test_free_text_is_never_taken_for_a_repetition(text: str, places: list[int]) -> None:
    fragments = cut(text, places)
    assert emitted_by(fragments, is_json=False) == [*fragments, ""]


def test_fragments_of_free_text_that_extend_one_another_are_all_emitted() -> None:
    """M052."""
    fragments = ["-", "--", "---", "l", "ll -l"]
    assert emitted_by(fragments, is_json=False) == [*fragments, ""]
    assert emitted_by(fragments, "-" * 6 + "lll -l", is_json=False) == [*fragments, ""]


def test_equal_fragments_are_all_emitted() -> None:
    """M052: no fragment is dropped for being equal to another."""
    fragments = ['{"a":"', "l", "l", " ", " ", '"}']
    assert emitted_by(fragments) == [*fragments, ""]
    assert emitted_by(['{"', '{"', "x"]) == ['{"', '{"', "x", ""]


@pytest.mark.parametrize("is_json", [True, False])
def test_an_empty_fragment_is_nothing(is_json: bool) -> None:
    """M048."""
    assert emitted_by(["", "{", "", "}", ""], is_json=is_json) == ["", "{", "", "}", "", ""]


def test_an_impossible_join_shows_a_provider_that_resends_everything_at_once() -> None:
    buffer = InputBuffer()
    found = [
        (buffer.push(fragment), buffer.is_cumulative)
        for fragment in ('{"a"', '{"a":1', '{"a":1}', '{"a":1}')
    ]
    assert found == [('{"a"', False), (":1", True), ("}", True), ("", True)]
    assert buffer.text() == '{"a":1}'


def test_a_latched_provider_that_sends_something_else_is_emitted_as_it_came() -> None:
    buffer = InputBuffer()
    assert [buffer.push(each) for each in ('{"a"', '{"a":1', "}", '{"a"')] == [
        '{"a"',
        ":1",
        "}",
        '{"a"',
    ]
    assert buffer.text() == '{"a":1}{"a"'


@pytest.mark.parametrize(
    ("fragments", "lines"),
    [
        # the third extends the second: everything is resent
        (['{"a":', '{"a":{"b":', '{"a":{"b":1}}'], ['{"a":', "", '{"b":1}}', ""]),
        # the third goes on: increments
        (['{"a":', '{"a":1', "}}"], ['{"a":', "", '{"a":1}}', ""]),
        (['{"a":', '{"a":', '{"a":1}}}'], ['{"a":', '{"a":', '{"a":1}}}', ""]),
        # no third: what makes JSON
        (['{"a":', '{"a":1}}'], ['{"a":', "", '{"a":1}}']),
        (['{"a":', '{"a":1}'], ['{"a":', "", "1}"]),
        ([" ", " {}"], [" ", "", " {}"]),
        # a join cut inside a literal or an escape is still possible
        (['{"a":', '{"a":tr', "ue}}"], ['{"a":', "", '{"a":true}}', ""]),
        (['{"a":', '{"a":"\\u00', 'e9"}}'], ['{"a":', "", '{"a":"\\u00e9"}}', ""]),
    ],
)
def test_an_unsure_fragment_is_held_until_the_next_decides(
    fragments: list[str], lines: list[str]
) -> None:
    assert emitted_by(fragments) == lines


def test_the_whole_text_decides_over_an_unsure_fragment() -> None:
    incremental, cumulative = '{"a":{"a":1', '{"a":1'
    assert emitted_by(['{"a":', '{"a":1'], incremental + "}}") == ['{"a":', "", '{"a":1}}']
    assert emitted_by(['{"a":', '{"a":1'], cumulative + "}") == ['{"a":', "", "1}"]


def test_what_only_the_end_carries_is_topped_up() -> None:
    """M049: input that comes only in `.done`, or its last piece."""
    assert emitted_by([], '{"a":1}') == ['{"a":1}']
    assert emitted_by(['{"a"'], '{"a":1}') == ['{"a"', ":1}"]
    assert emitted_by(['{"a":1}'], '{"a":1}') == ['{"a":1}', ""]


def test_a_whole_text_that_contradicts_what_was_emitted_is_reported() -> None:
    buffer = InputBuffer()
    buffer.push('{"a":1')
    assert buffer.settle('{"b":1}') == ("", True)
    assert buffer.text() == '{"a":1'
    assert buffer.settle("") == ("", True)


def test_a_buffer_knows_whether_anything_came() -> None:
    buffer = InputBuffer()
    assert buffer.is_empty
    assert buffer.text() == ""
    assert buffer.settle() == ("", False)
    buffer.push("")
    assert buffer.is_empty
    buffer.push("{")
    assert not buffer.is_empty


def test_a_hundred_thousand_increments_are_kept_apart_until_asked_for() -> None:
    count = 100_000
    buffer = InputBuffer()
    buffer.push('"')
    for _ in range(count):
        buffer.push("x")
    assert buffer.settle('"' + "x" * count + '"') == ('"', False)


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (Call(call_id="c", name="f", input="{}"), Verdict(executable=True, reason="complete")),
        (
            Call(call_id="c", name="f", input="not JSON", kind="custom"),
            Verdict(executable=True, reason="complete"),
        ),
        (
            Call(call_id="c", name="f", input='{"a":123456789012345678901234567890}'),
            Verdict(executable=True, reason="complete"),
        ),
        (
            Call(call_id="c", name="f", input="{}", status="incomplete"),
            Verdict(executable=False, reason="not_closed"),
        ),
        (
            Call(call_id="c", name="f", input="{}", status="in_progress"),
            Verdict(executable=False, reason="not_closed"),
        ),
        (Call(call_id="c", name="", input="{}"), Verdict(executable=False, reason="no_name")),
        (
            Call(call_id="c", name="f", input='{"a":'),
            Verdict(executable=False, reason="invalid_json"),
        ),
        (Call(call_id="c", name="f"), Verdict(executable=False, reason="invalid_json")),
        (
            Call(call_id="c", name="f", input="{}", executor="provider"),
            Verdict(executable=False, reason="not_client"),
        ),
        (
            Call(call_id="c", name="f", input="{'a':1}", kind="local_shell"),
            Verdict(executable=False, reason="invalid_json"),
        ),
    ],
)
def test_a_call_is_executable_only_if_it_was_closed_and_its_input_is_strict(
    call: Call, verdict: Verdict
) -> None:
    """M061, M062, M063."""
    assert judge(call) == verdict
