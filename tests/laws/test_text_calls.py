"""The laws of calls written as text, for every format: whatever is written is found, however the text is cut.

P1 the cuts do not change what is found; P2 text is conserved; P3 only text that may still become a call is held; P4
arguments are one JSON object, emitted append-only; P5 work is linear, counted in characters read; P6 nothing raises.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

import pytest
from msgspec.structs import replace

from dragoman.model.events import PartEnded, TextDelta
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Call
from dragoman.textcalls import PATTERNS, TextScan, TextScanner, check_pattern, scan_text
from dragoman.textcalls.block import MAX_WORD, TextPattern
from dragoman.textcalls.conformance import MAX_STEPS, coalesce, run_finder
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.findings import (
    CallBroken,
    CallEnded,
    CallFound,
    InputFound,
    TextFound,
    gather,
)
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers
from text_formats import FORMATS, TOOLS, TextFormat, Written
from text_samples import ROUNDS, Chance, cut, some_calls, texts_of

OFFERS = Offers(TOOLS)
BY_NAME = {pattern.name: pattern for pattern in PATTERNS.snapshot()}
LIMITS = BY_NAME["hermes"].limits
COUNT = 4
"""Texts per format and law. `make laws` reads twenty times as many."""
OFFERED = (
    TOOLS,
    [{"type": "function", "name": one["name"], "parameters": one["input_schema"]} for one in TOOLS],
    [
        {
            "type": "function",
            "function": {"name": one["name"], "parameters": json.dumps(one["input_schema"])},
        }
        for one in TOOLS
    ],
)
"""The same tools in the shapes of three dialects."""

SURROUNDINGS = (
    ("", ""),
    ("Let me see. ", "\n"),
    ("Sure!\n\n", "\n\nThat was it."),
    ("I `look`: a < b, (c) and so on.\n", ""),
    ("```\ncode\n```\n", "\nDone."),
    ("<think>hm</think>\n", " "),
    ("It is not <tool_call> alone.\n", "\n"),
)

every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def formats_for(form: TextFormat) -> tuple[str, ...]:
    """`auto`, and the format in question where it has no sentinel, as the profile of a model adds it."""
    return ("auto",) if BY_NAME[form.name].is_sentinel else ("auto", form.name)


def patterns_for(form: TextFormat) -> tuple[TextPattern, ...]:
    names = {pattern.name for pattern in BY_NAME.values() if pattern.is_sentinel}
    return tuple(one for one in PATTERNS.snapshot() if one.name in names | {form.name})


def values_of(scan: TextScan) -> list[Written]:
    return [(call.name, json.loads(call.arguments)) for call in scan.calls]


def written(form: TextFormat, law: str) -> Iterator[tuple[Chance, list[Written], str]]:
    for number in range(COUNT * ROUNDS):
        chance = Chance(f"{law} {form.name} {number}")
        calls = some_calls(form, chance)
        yield chance, calls, form.write(calls)


def scan_pieces(scanner: TextScanner, pieces: Iterable[str]) -> tuple[list[str], str]:
    """The arguments of each call and the text, as the events of a scanner have them."""
    events = [event for piece in pieces for event in scanner.feed(piece)] + [*scanner.finish()]
    ended = [event.value for event in events if isinstance(event, PartEnded)]
    calls = [value.input for value in ended if isinstance(value, Call)]
    return calls, "".join(event.text for event in events if isinstance(event, TextDelta))


def test_every_pattern_that_finds_calls_is_written_here() -> None:
    marks = {name for name, pattern in BY_NAME.items() if pattern.is_mark}
    marks |= {name for name, pattern in BY_NAME.items() if pattern.place == "start"}
    assert {form.name for form in FORMATS} == BY_NAME.keys() - marks


@every_format
def test_written_calls_are_found_and_the_text_around_them_is_kept(form: TextFormat) -> None:
    for chance, calls, block in written(form, "found"):
        before, after = chance.choice(SURROUNDINGS)
        text = f"{before}{block}{after}"
        tools = chance.choice(OFFERED)
        scan = scan_text(text, tools, formats=formats_for(form))
        assert values_of(scan) == calls, text
        assert scan.text.split() == f"{before} {after}".split(), text
        assert [problem for problem in scan.problems if problem.kind != "repaired"] == []
        scanner = TextScanner(tools, formats=formats_for(form))
        assert scan_pieces(scanner, cut(text, chance)) == (
            [call.arguments for call in scan.calls],
            scan.text,
        ), text


@every_format
def test_lines_may_end_as_on_windows(form: TextFormat) -> None:
    for _, calls, block in written(form, "lines"):
        if "\n" not in json.dumps(calls) and "\\n" not in json.dumps(calls):
            text = f"So:\n{block}\n".replace("\n", "\r\n")
            assert values_of(scan_text(text, TOOLS, formats=formats_for(form))) == calls, text


@every_format
def test_calls_of_other_tools_are_text(form: TextFormat) -> None:
    for _, _, block in written(form, "others"):
        if "harmony" not in form.name:  # whose marks are taken out by its profile
            text = f"So: {block} there."
            scan = scan_text(text, [{"name": "other"}], formats=formats_for(form))
            assert (scan.calls, scan.text) == ((), text)


@every_format
def test_calls_in_a_code_fence_are_text(form: TextFormat) -> None:
    for _, _, block in written(form, "fence"):
        text = f"Write:\n~~~~~~~~~~\n{block.strip()}\n~~~~~~~~~~\nand so on"
        scan = scan_text(text, TOOLS, formats=formats_for(form))
        assert (scan.calls, scan.text) == ((), text)


@every_format
def test_cuts_change_nothing(form: TextFormat) -> None:
    patterns = patterns_for(form)
    for chance, text in texts_of(form, COUNT):
        expected = coalesce(run_finder(patterns, [text], OFFERS).found)
        for pieces in (list(text), cut(text, chance), cut(text, chance, 3), cut(text, chance, 60)):
            run = run_finder(patterns, pieces, OFFERS)
            assert coalesce(run.found) == expected, (text, pieces)
            assert run.examined <= MAX_STEPS * (len(text) + MAX_WORD), text
            assert run.most_held <= LIMITS.confirm + 2 * MAX_WORD, text


@every_format
def test_held_text_is_a_possible_opener_or_a_block(form: TextFormat) -> None:
    """What is held before an opener is complete begins one; what is held behind it is bounded until it is confirmed."""
    patterns = patterns_for(form)
    openers = [word for pattern in patterns for word in pattern.openers]
    openers += ["<think>", "</think>", "<thinking>", "</thinking>", "<seed:think>", "</seed:think>"]
    openers += ["<|START_THINKING|>", "<|END_THINKING|>", "[THINK]", "[/THINK]"]
    spelled = [word.replace("{name}", name) for word in openers for name in OFFERS.names]
    for _, text in texts_of(form, COUNT // 4):
        finder = Finder(Openers(patterns, OFFERS), OFFERS)
        for character in text:
            finder.feed(character)
            held = finder.held.lstrip()
            if held and not finder.is_confirmed:
                assert any(word.startswith(held) or held.startswith(word) for word in spelled), (
                    text,
                    held,
                )


@every_format
def test_what_is_not_markup_is_emitted_in_order(form: TextFormat) -> None:
    """Between two calls, before the first and after the last, the text is emitted unchanged."""
    if "harmony" in form.name:
        return  # its marks are taken out of the text without a call
    for chance, text in texts_of(form, COUNT):
        run = run_finder(patterns_for(form), cut(text, chance), OFFERS)
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
@pytest.mark.parametrize("finish", ["length", "stop"])
def test_a_text_that_was_cut_off_has_only_calls_that_it_has_whole(
    form: TextFormat, finish: FinishReason
) -> None:
    patterns = patterns_for(form)
    for chance, calls, text in written(form, finish):
        end = chance.randint(0, len(text))
        cut_off = gather(run_finder(patterns, [text[:end]], OFFERS, finish).found)
        found = values_of(cut_off)
        if form.name == "use_tool" and finish == "stop":
            # Its reference reader takes the end of the text for the end of the block.
            assert [name for name, _ in found] == [name for name, _ in calls[: len(found)]]
        else:
            assert found == calls[: len(found)], text[:end]
        if not found:
            assert cut_off.text.rstrip() == text[:end].rstrip()


@every_format
def test_streamed_arguments_equal_the_whole_arguments(form: TextFormat) -> None:
    pattern = BY_NAME[form.name]
    streaming = replace(pattern, stream_args=True)
    for chance, text in texts_of(form, COUNT):
        run = run_finder([streaming], cut(text, chance), OFFERS)
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
        assert complete == values_of(gather(run_finder([pattern], [text], OFFERS).found)), text


@every_format
def test_own_helper_finds_no_fault_with_a_built_in_format(form: TextFormat) -> None:
    calls: Sequence[Written] = [("search", {"query": "a b", "count": 3}), ("now", {})]
    samples = [f"Well. {form.write(calls[:1] if form.one else calls)} bye", form.write(calls[:1])]
    report = check_pattern(BY_NAME[form.name], samples, TOOLS)
    assert report.faults == ()
    assert report.calls == (2 if form.one else 3)
