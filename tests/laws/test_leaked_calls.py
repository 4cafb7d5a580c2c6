"""Calls that models leak into their text: what is held while prose streams, and what becomes of such calls in a history."""

import re

import pytest

from dragoman._json import loads, raw
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.textcalls import PATTERNS, TextScanner
from dragoman.textcalls.history import repair_history
from text_cases import Case, Chance, cases_of, is_same_value
from text_formats import FORMATS, TextFormat
from text_samples import ROUNDS, cut

COUNT = 8
SENTINELS = {pattern.name for pattern in PATTERNS.snapshot() if pattern.is_sentinel}
LEAKING = [form for form in FORMATS if form.name in SENTINELS]
WORDS = ("the", "court", "Count", "is", "a", "x1", "<b>", "1", "so", "and", "–", "`y`", "don't")
GAPS = (" ", " ", " ", "\n", "\n\n", ", ")
ALONE = re.compile(r"[a-z]{1,16}(?:\r?\n){0,3}")

every_format = pytest.mark.parametrize("form", LEAKING, ids=lambda form: form.name)


def prose(chance: Chance) -> str:
    return "".join(chance.choice(WORDS) + chance.choice(GAPS) for _ in range(chance.randint(1, 60)))


def test_prose_is_held_only_for_a_word_alone_in_its_line() -> None:
    """A word and the character behind it, unless that is a line break, go out at once."""
    for number in range(200 * ROUNDS):
        chance = Chance(f"prose {number}")
        text = prose(chance)
        scanner = TextScanner(["Bash"], model="claude-opus-4-5")
        sent = 0
        for piece in cut(text, chance, 6):
            sent += len(piece)
            scanner.feed(piece)
            held = scanner.held
            assert text[:sent].endswith(held)
            # Besides the word: the beginning of an opener.
            rest = held.rpartition("<")[0] if "<" in held[-1:] else held
            if rest and rest[0] not in "`<":
                assert ALONE.fullmatch(rest), (text, held)
                assert text[: sent - len(held)].endswith(("\n", "")[sent == len(held)])


def request_of(case: Case, *, again: int = 0) -> Request:
    """The case as what the assistant said before; `again`: and how many times more."""
    tools = tuple(Tool(name=tool["name"], schema=raw(tool["input_schema"])) for tool in case.tools)
    said = (
        Turn(role="assistant", parts=(Text(text=case.text),)),
        Turn(role="user", parts=(Text(text="Go on."),)),
    )
    return Request(model="m", tools=tools, turns=said * (1 + again))


@every_format
def test_written_calls_of_a_history_are_the_calls_that_were_written(form: TextFormat) -> None:
    for _, case in cases_of(form, "calls", COUNT * ROUNDS, "history"):
        repaired, repairs = repair_history(request_of(case))
        parts = repaired.turns[0].parts
        calls = [part for part in parts if isinstance(part, Call)]
        assert [call.name for call in calls] == [name for name, _ in case.calls], case.text
        for call, (_, value) in zip(calls, case.calls, strict=True):
            assert is_same_value(loads(call.input), value), case.text
        texts = [part.text for part in parts if isinstance(part, Text)]
        assert " ".join(texts).split() == case.kept.split(), case.text
        assert [repair.rule for repair in repairs] == ["written_call"] * len(calls)
        assert len({call.call_id for call in calls}) == len(calls)


@every_format
def test_a_history_is_repaired_in_the_same_way_when_it_goes_on(form: TextFormat) -> None:
    for _, case in cases_of(form, "calls", COUNT * ROUNDS, "again"):
        once, longer = (
            repair_history(request_of(case))[0],
            repair_history(request_of(case, again=2))[0],
        )
        assert longer.turns[: len(once.turns)] == once.turns
        ids = [
            part.call_id for turn in longer.turns for part in turn.parts if isinstance(part, Call)
        ]
        assert len(set(ids)) == len(ids)


@every_format
@pytest.mark.parametrize("kind", ["prose", "unknown"])
def test_a_history_without_written_calls_is_not_touched(form: TextFormat, kind: str) -> None:
    for _, case in cases_of(form, "prose" if kind == "prose" else "unknown", COUNT * ROUNDS, "not"):
        asked = request_of(case)
        assert repair_history(asked)[0] is asked, case.text
