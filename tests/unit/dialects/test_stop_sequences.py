"""The stage that cuts an answer at a stop sequence: what is emitted, what is held, and how the answer ends."""

from collections.abc import Iterable

import pytest

from dragoman._json import Raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.stop_sequences import MAX_CHARACTERS, SequenceFinder, StopStage, stop_stage
from dragoman.errors import RequestRefused
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Annotation, Call, Reasoning, Refusal, Text

OPEN = Text(status="in_progress")
USED = UsageReported(Usage(input=5, output=7))
ERROR = ErrorInfo(kind="upstream", message="gone")
CALL = Call(kind="function", call_id="call_1", name="f", status="in_progress")
NOTE = Annotation("responses", Raw(b"{}"), url="https://example.com", title="t")


def text(*pieces: str, part: int = 0) -> list[Event]:
    return [
        PartStarted(part, OPEN),
        *(TextDelta(part, piece) for piece in pieces),
        PartEnded(part, Text(text="".join(pieces))),
    ]


def call(part: int, source: str = "{}") -> list[Event]:
    return [
        PartStarted(part, CALL),
        InputDelta(part, source),
        PartEnded(part, Call(kind="function", call_id="call_1", name="f", input=source)),
    ]


def answer(*events: Event) -> list[Event]:
    return [Started("id", "m"), *events, Finished("stop"), USED, Completed()]


def through(stage: StopStage, events: Iterable[Event]) -> list[Event]:
    out = [emitted for event in events for emitted in stage.feed(event)]
    assert is_grammatical(out)
    return out


def cut(events: Iterable[Event], *stops: str, whole: bool = False) -> list[Event]:
    stage = StopStage(stops)
    if whole:
        stage.expect_complete()
    return through(stage, events)


# --- where the text is cut --------------------------------------------------------------------------------------------

CUTS = [
    ("one two END three", ("END",), "one two ", "END"),
    ("END", ("END",), "", "END"),
    ("one", ("END",), "one", None),
    ("EN EEND", ("END",), "EN E", "END"),
    ("aab", ("ab",), "a", "ab"),
    ("abab abc", ("abc",), "abab ", "abc"),
    ("cab", ("ab", "b"), "c", "ab"),  # both end there: the longer one
    ("xabcd", ("abcd", "bc"), "xa", "bc"),  # the first that is complete
    ("abcabd", ("abd", "cabx"), "abc", "abd"),
    ("a\n\nb", ("\n\n",), "a", "\n\n"),
    ("a]b^c-d", ("^", "-"), "a]b", "^"),
    ("über\U0001f600 all", ("\U0001f600",), "über", "\U0001f600"),
    ("one", ("one more",), "one", None),
]


@pytest.mark.parametrize(("source", "stops", "before", "found"), CUTS)
def test_text_is_cut_before_the_first_complete_sequence_however_it_is_split(
    source: str, stops: tuple[str, ...], before: str, found: str | None
) -> None:
    splits = [[source], list(source), [source[:2], source[2:]], ["", source, ""]]
    for pieces in splits:
        outcome = fold(cut(answer(*text(*pieces)), *stops))
        (choice,) = outcome.choices
        assert choice.parts == (Text(text=before),)
        assert choice.stop_sequence == found
        assert choice.finish == ("stop" if found is None else "stop_sequence")
        assert outcome.completed
        assert outcome.usage == (USED.usage if found is None else None)


def test_only_what_may_begin_a_sequence_is_held() -> None:
    stage = StopStage(["STOP"])
    stage.feed(PartStarted(0, OPEN))
    said = [stage.feed(TextDelta(0, piece)) for piece in ("a ST", "S", "TO", "X", "end")]
    assert said == [
        (TextDelta(0, "a "),),
        (TextDelta(0, "ST"),),
        (),
        (TextDelta(0, "S"), TextDelta(0, "TO"), TextDelta(0, "X")),
        (TextDelta(0, "end"),),
    ]


def test_text_in_which_nothing_begins_is_the_same_event() -> None:
    stage = StopStage(["END"])
    stage.feed(PartStarted(0, OPEN))
    delta = TextDelta(0, "hello", Raw(b"[1]"))
    assert stage.feed(delta)[0] is delta


def test_held_text_comes_out_when_the_part_ends() -> None:
    events = answer(*text("one E", "N"))
    assert fold(cut(events, "END")) == fold(events)


def test_a_sequence_does_not_reach_from_one_part_into_the_next() -> None:
    events = answer(*text("one EN"), *text("D two", part=1))
    assert fold(cut(events, "END")) == fold(events)


def test_logprobs_stay_with_their_delta_and_are_not_sent_for_a_part_of_it() -> None:
    first, second = TextDelta(0, "one E", Raw(b"[1]")), TextDelta(0, "x END y", Raw(b"[2]"))
    out = cut(answer(PartStarted(0, OPEN), first, second), "END")
    assert out[2:5] == [first, TextDelta(0, "x "), PartEnded(0, Text(text="one Ex "))]


def test_annotations_before_the_cut_stay() -> None:
    added = AnnotationAdded(0, NOTE)
    events: list[Event] = [PartStarted(0, OPEN), TextDelta(0, "one"), added]
    events += [TextDelta(0, "END"), added]
    out = cut(answer(*events, PartEnded(0, Text(text="oneEND", annotations=(NOTE, NOTE)))), "END")
    assert PartEnded(0, Text(text="one", annotations=(NOTE,))) in out
    assert out.count(added) == 1


def test_an_amended_text_is_searched_as_it_is_at_its_end() -> None:
    ended = PartEnded(0, Text(text="one END two"), amended=True)
    out = cut(answer(PartStarted(0, OPEN), TextDelta(0, "on"), ended), "END")
    assert PartEnded(0, Text(text="one "), amended=True) in out
    assert Finished("stop_sequence", stop_sequence="END", inferred=True) in out
    ended = PartEnded(0, Text(text="other"), amended=True)
    events = answer(PartStarted(0, OPEN), TextDelta(0, "on"), ended)
    assert cut(events, "END") == events


# --- what is not searched -----------------------------------------------------------------------------------------------


def test_tool_input_reasoning_and_refusals_are_not_searched() -> None:
    events = answer(
        PartStarted(0, Reasoning(status="in_progress")),
        ReasoningDelta(0, "END"),
        PartEnded(0, Reasoning(summary=("END",))),
        *call(1, '{"a":"END"}'),
        PartStarted(2, Refusal(status="in_progress")),
        TextDelta(2, "END"),
        PartEnded(2, Refusal(text="END")),
        Noticed("ping"),
    )
    assert cut(events, "END") == events


# --- the end ------------------------------------------------------------------------------------------------------------


def test_a_stream_ends_at_the_cut_and_nothing_follows() -> None:
    stage = StopStage(["END"])
    out = through(stage, answer(*text("one END two"), *call(1)))
    assert out == [
        Started("id", "m"),
        PartStarted(0, OPEN),
        TextDelta(0, "one "),
        PartEnded(0, Text(text="one ")),
        Finished("stop_sequence", stop_sequence="END", inferred=True),
        Completed(),
    ]
    assert stage.is_over
    assert stage.is_cut


def test_a_body_is_read_to_its_end_for_the_usage() -> None:
    stage = StopStage(["END"])
    stage.expect_complete()
    out = through(stage, answer(*text("one END two"), *call(1), *text("END", part=2)))
    assert fold(out).usage == USED.usage
    assert fold(out).choices == fold(cut(answer(*text("one END")), "END")).choices
    assert stage.is_over
    assert not stage.is_cut


def test_an_answer_without_a_sequence_ends_as_it_came() -> None:
    stage = StopStage(["END"])
    events = answer(*text("one"), *call(1))
    assert through(stage, events) == events
    assert stage.is_over
    assert not stage.is_cut


def test_complete_calls_before_the_cut_are_still_to_be_run() -> None:
    out = cut(answer(*call(0), *text("one END", part=1)), "END")
    assert out[-2:] == [Finished("tool_calls", inferred=True), Completed()]


@pytest.mark.parametrize("whole", [False, True])
def test_a_call_that_was_open_at_the_cut_comes_out_whole(whole: bool) -> None:
    started, delta, ended = call(1, '{"a":1}')
    events = answer(
        PartStarted(0, OPEN),
        started,
        TextDelta(0, "one END"),
        Progress("running", 1),
        delta,
        Progress("other", 2),
        TextDelta(0, "two"),
        PartEnded(0, Text(text="one ENDtwo")),
        ended,
        *call(2),
    )
    (choice,) = fold(cut(events, "END", whole=whole)).choices
    assert [type(part) for part in choice.parts] == [Text, Call]
    assert choice.finish == "tool_calls"


@pytest.mark.parametrize("end", [Failed(ERROR), Finished("length")])
def test_a_call_that_was_open_at_the_cut_and_breaks_is_not_presented_as_whole(end: Event) -> None:
    started, delta, _ = call(1, '{"a"')
    broken = PartEnded(1, Call(kind="function", call_id="call_1", name="f", input='{"a"', status="incomplete"))  # fmt: skip
    events: list[Event] = [Started(), PartStarted(0, OPEN), started, TextDelta(0, "one END"), delta]
    last = [] if isinstance(end, Failed) else [Completed()]
    assert cut([*events, broken, end, *last], "END")[-1 - len(last)] == end


@pytest.mark.parametrize("before", [[], [Finished("stop")]])
def test_a_body_that_fails_behind_the_cut_is_complete(before: list[Event]) -> None:
    events = [Started(), *text("one END two"), *before, Failed(ERROR)]
    outcome = fold(cut(events, "END", whole=True))
    assert outcome.error is None
    assert outcome.completed


def test_a_second_open_text_ends_where_it_is() -> None:
    events: list[Event] = [
        Started(),
        PartStarted(0, OPEN),
        PartStarted(1, OPEN),
        TextDelta(1, "two E"),
        TextDelta(0, "one END"),
    ]
    (choice,) = fold(cut(events, "END")).choices
    assert choice.parts == (Text(text="one "), Text(text="two E"))


# --- limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [(), ("",)])
def test_without_a_sequence_there_is_no_stage(stops: tuple[str, ...]) -> None:
    assert stop_stage(stops) is None


def test_sequences_have_a_limit_together() -> None:
    assert stop_stage(("x" * MAX_CHARACTERS,)) is not None
    with pytest.raises(RequestRefused, match="at most 16,384 characters together, got 16,385"):
        stop_stage(("x" * MAX_CHARACTERS, "y"))


def test_work_does_not_depend_on_the_number_of_sequences() -> None:
    stops = [f"{number:04}" for number in range(4_000)]
    finder = SequenceFinder(stops)
    assert finder.find("x" * 100_000 + "0 1 2 3999")[1:] == (100_010, "3999")
