"""The laws of calls written as text, for every format: whatever is written is found, however the text is cut.

P1 the same is found whatever the cuts; P2 text is conserved; P3 what is held may still become a call; P4 arguments are
one JSON object, told append-only; P5 work is linear, counted in characters looked at; P6 nothing raises.
"""

import json
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.textcalls import PATTERNS, check_pattern
from dragoman.textcalls.conformance import MAX_STEPS, coalesce, run_finder
from dragoman.textcalls.found import CallBroken, CallEnded, CallFound, InputFound, TextFound
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.whole import TextScan, gather
from text_formats import FORMATS, NEAR_OPENERS, TOOLS, TextFormat, Written

OFFERS = Offers(TOOLS)
BY_NAME = {pattern.name: pattern for pattern in PATTERNS.snapshot()}
NASTY = list("<>{}[]()\"'\\/|=,:;`~ \n\tabcé｜▁🌍")
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def patterns_for(form: TextFormat) -> tuple[TextPattern, ...]:
    """All formats with a sentinel and the one in question, as a scanner with that profile has them."""
    names = {pattern.name for pattern in BY_NAME.values() if pattern.is_sentinel}
    return tuple(one for one in PATTERNS.snapshot() if one.name in names | {form.name})


def strings(form: TextFormat) -> st.SearchStrategy[str]:
    def fits(text: str) -> bool:
        if any(word in text for word in form.avoid):
            return False
        if form.strips and (text != text.strip() or "<" in text):
            return False
        return not form.trims or text == text.strip("\r\n")

    words = st.sampled_from(
        ("</tool_call>", "<tool_call>", "```", "{", "]", "plain", "\\n", "'", '"')
    )
    texts = st.one_of(st.lists(st.sampled_from(NASTY), max_size=20).map("".join), words)
    return texts.filter(fits)


def written_calls(form: TextFormat) -> st.SearchStrategy[list[Written]]:
    text = strings(form)
    safe = st.sampled_from(("a", "b c", "é", "1"))
    values: dict[str, st.SearchStrategy[object]] = {
        "query": text,
        "count": st.integers(-(10**12), 10**12),
        "ratio": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "exact": st.booleans(),
        "tags": st.lists(safe, max_size=3),
        "options": st.dictionaries(st.sampled_from(("k", "key_2")), st.one_of(safe, st.booleans())),
    }
    arguments = st.fixed_dictionaries({}, optional=values)
    nothing: Written = ("now", {})
    call: st.SearchStrategy[Written] = st.one_of(
        st.tuples(st.just("search"), arguments), st.just(nothing)
    )
    most = 1 if form.one else 3
    return st.lists(call, min_size=1, max_size=most)


def pieces_of(text: str, seed: int) -> list[str]:
    if seed == 0:
        return list(text)
    chance = random.Random(seed)
    pieces: list[str] = []
    while text:
        size = chance.randint(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def read(form: TextFormat, pieces: Iterable[str]) -> TextScan:
    return gather(run_finder(patterns_for(form), pieces, OFFERS).found)


def values_of(scan: TextScan) -> list[Written]:
    return [(call.name, json.loads(call.arguments)) for call in scan.calls]


def test_every_pattern_that_finds_calls_is_written_here() -> None:
    marks = {name for name in BY_NAME if name.endswith(("_marks", "_thoughts", "_headers"))}
    marks |= {"command_citations", "functionary_v32_content"}
    assert {form.name for form in FORMATS} == BY_NAME.keys() - marks


@every_format
@QUICK
@given(data=st.data())
def test_written_calls_are_found_and_the_text_around_them_is_kept(
    form: TextFormat, data: st.DataObject
) -> None:
    calls = data.draw(written_calls(form))
    text = f"Let me see. {form.write(calls)}\n"
    scan = read(form, [text])
    assert values_of(scan) == calls, (text, scan)
    assert scan.text.strip() == "Let me see."
    assert [problem for problem in scan.problems if problem.kind != "repaired"] == []


@every_format
@QUICK
@given(data=st.data())
def test_cuts_change_nothing(form: TextFormat, data: st.DataObject) -> None:
    text = data.draw(mangled(form))
    patterns = patterns_for(form)
    whole = run_finder(patterns, [text], OFFERS)
    for seed in range(4):
        run = run_finder(patterns, pieces_of(text, seed), OFFERS)
        assert coalesce(run.found) == coalesce(whole.found), text
        assert run.examined <= MAX_STEPS * (len(text) + 64)


def mangled(form: TextFormat) -> st.SearchStrategy[str]:
    """Calls, prose and near-openers, with pieces cut out of them."""

    def damage(drawn: tuple[list[str], list[tuple[int, int]]]) -> str:
        text = "".join(drawn[0])
        for place, size in drawn[1]:
            start = place % (len(text) + 1)
            text = text[:start] + text[start + size :]
        return text

    piece = st.one_of(
        written_calls(form).map(form.write),
        st.sampled_from(NEAR_OPENERS),
        st.sampled_from(("Some words. ", "\n", "  ", "a < b ", "`code` ", "x\n\ny ")),
    )
    holes = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 6)), max_size=3)
    return st.tuples(st.lists(piece, max_size=6), holes).map(damage)


@every_format
@QUICK
@given(data=st.data())
def test_what_is_not_markup_is_told_in_order(form: TextFormat, data: st.DataObject) -> None:
    """Between two calls, before the first and behind the last, the text is told to the letter."""
    text = data.draw(mangled(form))
    if form.name == "harmony":
        return  # its marks are taken out of the text without a call
    run = run_finder(patterns_for(form), pieces_of(text, 3), OFFERS)
    places = {0}  # where in the text we may be
    for one in coalesce(run.found):
        if isinstance(one, CallEnded):
            places = set(range(min(places), len(text) + 1))
        elif isinstance(one, TextFound):
            size = len(one.text)
            places = {place + size for place in places if text.startswith(one.text, place)}
        assert places, (text, one)
    assert len(text) in places


@every_format
@QUICK
@given(data=st.data())
def test_a_text_that_was_cut_off_has_only_calls_that_it_has_whole(
    form: TextFormat, data: st.DataObject
) -> None:
    calls = data.draw(written_calls(form))
    text = form.write(calls)
    end = data.draw(st.integers(0, len(text)))
    cut = gather(run_finder(patterns_for(form), [text[:end]], OFFERS, "length").found)
    found = values_of(cut)
    assert found == calls[: len(found)]
    if not found:
        assert cut.text == text[:end]


@every_format
@QUICK
@given(data=st.data())
def test_streamed_arguments_are_those_told_whole(form: TextFormat, data: st.DataObject) -> None:
    text = data.draw(mangled(form))
    pattern = BY_NAME[form.name]
    streaming = replace(pattern, stream_args=True)
    run = run_finder([streaming], pieces_of(text, 5), OFFERS)
    inputs: dict[int, str] = {}
    complete: list[Written] = []
    names: dict[int, str] = {}
    broken = 0
    for one in run.found:
        match one:
            case CallFound():
                names[one.index], inputs[one.index] = one.name, ""
            case InputFound():
                inputs[one.index] += one.text
            case CallEnded():
                complete.append((names[one.index], json.loads(inputs[one.index])))
            case CallBroken():
                broken += 1
            case _:
                pass
    assert len(complete) + broken == len(names)
    whole = gather(run_finder([pattern], [text], OFFERS).found)
    assert complete == values_of(whole)


@every_format
def test_own_helper_finds_no_fault_with_a_built_in_format(form: TextFormat) -> None:
    calls: Sequence[Written] = [("search", {"query": "a b", "count": 3}), ("now", {})]
    samples = [f"Well. {form.write(calls[:1] if form.one else calls)} bye", form.write(calls[:1])]
    report = check_pattern(BY_NAME[form.name], samples, TOOLS)
    assert report.faults == ()
    assert report.calls == (2 if form.one else 3)
