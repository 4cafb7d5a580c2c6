"""Answers on their way through the stage."""

from collections.abc import Iterable

import pytest

from dragoman._json import Raw, raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
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
from dragoman.model.outcome import ErrorInfo, FinishReason, Usage
from dragoman.model.parts import Annotation, Call, Part, Reasoning, Text
from dragoman.model.request import Request, Tool
from dragoman.textcalls import (
    JsonBody,
    TailPolicy,
    TextCallStage,
    TextPattern,
    register_text_pattern,
    stage_for,
)

SCHEMA = raw({"type": "object", "properties": {"a": {"type": "string"}}})
REQUEST = Request(
    model="m", tools=(Tool(name="f", schema=SCHEMA), Tool(name="note", kind="custom"))
)
KEEP = TailPolicy(stop="never", suppress_tail=False)


def block(value: str, name: str = "f", key: str = "a") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}</tool_call>'


def made(policy: TailPolicy = KEEP) -> TextCallStage:
    stage = stage_for(REQUEST, policy=policy)
    assert stage is not None
    return stage


def text_part(number: int, text: str) -> list[Event]:
    return [
        PartStarted(number, Text(status="in_progress")),
        *(TextDelta(number, text[start : start + 5]) for start in range(0, len(text), 5)),
        PartEnded(number, Text(text=text)),
    ]


def call_part(number: int) -> list[Event]:
    call = Call(call_id="c", name="f", status="in_progress")
    return [
        PartStarted(number, call),
        InputDelta(number, "{}"),
        PartEnded(number, Call(call_id="c", name="f", input="{}")),
    ]


def answer(*parts: Iterable[Event], finish: FinishReason = "stop") -> list[Event]:
    found = [event for part in parts for event in part]
    return [Started("r", "m"), *found, Finished(finish), Completed()]


def through(stage: TextCallStage, events: Iterable[Event]) -> list[Event]:
    out = [one for event in events for one in stage.feed(event)]
    assert is_grammatical(out)
    return out


def parts_of(events: Iterable[Event]) -> list[Part]:
    return list(fold(events).choices[0].parts)


def shown(events: Iterable[Event]) -> list[str]:
    return [
        part.text if isinstance(part, Text) else part.input if isinstance(part, Call) else "?"
        for part in parts_of(events)
    ]


def test_markup_becomes_a_call_and_the_finish_says_so() -> None:
    out = through(made(), answer(text_part(0, f"Hm. {block('1')} Done.")))
    assert shown(out) == ["Hm. ", '{"a": "1"}', " Done."]
    assert fold(out).choices[0].finish == "tool_calls"


def test_length_beats_tool_calls() -> None:
    out = through(
        made(), answer(text_part(0, f"{block('1')} and {block('2')[:30]}"), finish="length")
    )
    assert shown(out) == ['{"a": "1"}', f" and {block('2')[:30]}"]
    assert fold(out).choices[0].finish == "length"


def test_plain_text_passes_as_the_very_events_that_came() -> None:
    stage = made()
    found = answer(text_part(0, "Only words, nothing else."))
    out = through(stage, found)
    assert out == found
    assert [ours is theirs for ours, theirs in zip(out, found, strict=True)][3:] == [True] * (
        len(found) - 3
    )


def test_structured_call_ends_the_scanning_of_its_choice() -> None:
    found = answer(text_part(0, f"{block('1')[:20]}"), call_part(1), text_part(2, block("2")))
    out = through(made(), found)
    assert shown(out) == [block("1")[:20], "{}", block("2")]
    assert fold(out) == fold(found)


def test_structured_call_while_a_text_is_open_releases_what_is_held() -> None:
    text = text_part(0, block("1"))
    sequence = [Started(), *text[:3], *call_part(1), *text[3:], Finished("tool_calls"), Completed()]
    out = through(made(), sequence)
    assert shown(out) == [block("1"), "{}"]


@pytest.mark.parametrize("mark", ["<function", "<tool_call>", "<tool_call>\n", "[TOOL_CALLS]"])
def test_opener_that_a_server_left_before_its_structured_call_is_left_out(mark: str) -> None:
    stage = made()
    sequence = [
        Started(),
        *text_part(0, f"I look. {mark}"),
        *call_part(1),
        Finished("tool_calls"),
        Completed(),
    ]
    out = through(stage, sequence)
    assert shown(out) == ["I look. ", "{}"]
    assert [problem.kind for problem in stage.problems] == ["leaked_mark"]
    assert stage.has_changed


@pytest.mark.parametrize("text", ["a <", "a <b", "I call `<tool_call>`", "<tool_call> is how"])
def test_text_before_a_structured_call_that_is_no_opener_stays(text: str) -> None:
    sequence = [Started(), *text_part(0, text), *call_part(1), Finished("tool_calls"), Completed()]
    assert shown(through(made(), sequence)) == [text, "{}"]


def test_opener_whose_first_character_went_into_the_reasoning_opens_a_call() -> None:
    text = "function=f><parameter=a>1</parameter></function>"
    out = through(made(), [Started(), *text_part(0, text), Finished("stop"), Completed()])
    assert shown(out) == ['{"a":"1"}']
    prose = f"I write {text}"
    out = through(made(), [Started(), *text_part(0, prose), Finished("stop"), Completed()])
    assert shown(out) == [prose]


def test_burst_ends_the_turn_at_the_first_prose_behind_a_call() -> None:
    stage = made(TailPolicy())
    found = answer(text_part(0, f"Hm. {block('1')}\n{block('2')}\nResult: {block('3')}"))
    assert shown(through(stage, found)) == ["Hm. ", '{"a": "1"}', '{"a": "2"}']
    assert stage.is_done
    assert (stage.calls, stage.is_truncated) == (2, True)


def test_first_ends_the_turn_with_the_first_call() -> None:
    stage = made(TailPolicy(stop="first"))
    out = through(stage, answer(text_part(0, f"{block('1')}{block('2')}")))
    assert shown(out) == ['{"a": "1"}']
    assert stage.is_done


def test_answer_can_be_ended_where_its_turn_is_over() -> None:
    stage = made(TailPolicy())
    found = answer(text_part(0, f"{block('1')} And the weather is"))[:-3]
    out = [one for event in found for one in stage.feed(event)]
    assert stage.is_done
    out += stage.finish_now()
    assert is_grammatical(out)
    assert shown(out) == ['{"a": "1"}']
    assert fold(out).choices[0].finish == "tool_calls"


def test_no_more_calls_than_allowed_are_emitted() -> None:
    stage = made(TailPolicy(max_calls=1, stop="never"))
    out = through(stage, answer(text_part(0, f"{block('1')}{block('2')}")))
    assert shown(out) == ['{"a": "1"}']
    assert stage.is_truncated


def test_same_call_twice_is_emitted_once_where_asked_for() -> None:
    first = '<tool_call>{"name": "f", "arguments": {"a": "1", "b": 2}}</tool_call>'
    again = '<tool_call>{"name": "f", "arguments": {"b":2,"a":"1"}}</tool_call>'
    stage = made(TailPolicy(dedup=True))
    assert len(shown(through(stage, answer(text_part(0, first + again))))) == 1
    assert not stage.is_truncated
    assert len(shown(through(made(), answer(text_part(0, first + again))))) == 2


def test_tool_with_free_text_gets_its_text() -> None:
    out = through(made(), answer(text_part(0, block("some words", "note", "input"))))
    call = parts_of(out)[0]
    assert isinstance(call, Call)
    assert (call.kind, call.input) == ("custom", "some words")


def test_ids_of_calls_differ_and_depend_on_the_seed() -> None:
    def ids(seed: str) -> list[str]:
        stage = stage_for(REQUEST, policy=KEEP, seed=seed)
        assert stage is not None
        out = through(stage, answer(text_part(0, block("1") + block("1"))))
        return [part.call_id for part in parts_of(out) if isinstance(part, Call)]

    assert ids("a") == ids("a")
    assert len({*ids("a"), *ids("b")}) == 4


def test_model_s_own_id_is_kept_once() -> None:
    one = "<|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
    text = f"<|tool_calls_section_begin|>{one}{one}<|tool_calls_section_end|>"
    ids = [
        part.call_id
        for part in parts_of(through(made(), answer(text_part(0, text))))
        if isinstance(part, Call)
    ]
    assert ids[0] == "functions.f:7"
    assert ids[1].startswith("call_")


def test_parts_behind_a_split_text_are_renumbered() -> None:
    reasoning: list[Event] = [
        PartStarted(1, Reasoning(status="in_progress")),
        ReasoningDelta(1, "hm"),
        Progress("thinking", 1),
        Noticed("unknown", part=1),
        PartEnded(1, Reasoning(summary=("hm",))),
    ]
    out = through(made(), answer(text_part(0, f"a {block('1')} b"), reasoning))
    assert [type(part).__name__ for part in parts_of(out)] == ["Text", "Call", "Text", "Reasoning"]


def test_choices_are_scanned_apart() -> None:
    sequence: list[Event] = [Started()]
    sequence += [PartStarted(number, Text(status="in_progress"), number) for number in (0, 1)]
    text = block("1")
    for start in range(0, len(text), 7):
        sequence += [TextDelta(number, text[start : start + 7]) for number in (0, 1)]
    sequence += [PartEnded(number, Text(text=text)) for number in (0, 1)]
    sequence += [Finished("stop", 0), Finished("stop", 1), Completed()]
    outcome = fold(through(made(), sequence))
    assert [choice.finish for choice in outcome.choices] == ["tool_calls", "tool_calls"]


def test_annotations_stay_with_their_text() -> None:
    annotation = Annotation("responses", Raw(b"{}"), url="u")
    part = text_part(0, "words")
    part.insert(2, AnnotationAdded(0, annotation))
    part[-1] = PartEnded(0, Text(text="words", annotations=(annotation,)))
    out = through(made(), answer(part))
    assert parts_of(out) == [Text(text="words", annotations=(annotation,))]


def test_annotation_before_any_text_goes_to_the_next_text() -> None:
    annotation = Annotation("responses", Raw(b"{}"), url="u")
    part = text_part(0, f"{block('1')} words")
    part.insert(1, AnnotationAdded(0, annotation))
    texts = [one for one in parts_of(through(made(), answer(part))) if isinstance(one, Text)]
    assert texts[0].annotations == (annotation,)


def test_text_that_was_cut_by_a_failure_is_emitted_before_it() -> None:
    text = block("1")[:-5]
    part = text_part(0, text)
    part[-1] = PartEnded(0, Text(text=text, status="incomplete"))
    failed = Failed(ErrorInfo(kind="truncated", message="cut"))
    out = through(made(), [Started(), *part, failed])
    assert shown(out) == [text]
    assert parts_of(out)[0] == Text(text=text, status="incomplete")


def test_usage_passes_while_text_is_held() -> None:
    part = text_part(0, block("1").removesuffix("</tool_call>"))
    sequence = [Started(), *part, UsageReported(Usage(output=3)), Finished("stop"), Completed()]
    out = through(made(), sequence)
    assert shown(out) == ['{"a": "1"}']


def test_calls_in_reasoning_are_emitted_where_asked_for_and_its_text_stays() -> None:
    text = f"I should call {block('1')}"
    part: list[Event] = [
        PartStarted(0, Reasoning(status="in_progress")),
        *(ReasoningDelta(0, piece) for piece in text),
        PartEnded(0, Reasoning(summary=(text,))),
    ]
    stage = stage_for(REQUEST, model="qwen3-8b", policy=KEEP)
    assert stage is not None
    parts = parts_of(through(stage, answer(part)))
    assert [type(one).__name__ for one in parts] == ["Reasoning", "Call"]
    assert parts[0] == Reasoning(summary=(text,))
    passed = through(made(), answer(part))
    assert [type(one).__name__ for one in parts_of(passed)] == ["Reasoning"]


def test_problems_are_recorded() -> None:
    stage = made()
    through(stage, answer(text_part(0, block("1", "g"))))
    assert [problem.kind for problem in stage.problems] == ["unknown_tool"]


# --- written and structured ---------------------------------------------------------------------------------------------


def structured(number: int, arguments: str, name: str = "f") -> list[Event]:
    call = Call(call_id=f"c{number}", name=name, status="in_progress")
    return [
        PartStarted(number, call),
        *(InputDelta(number, piece) for piece in arguments),
        Progress("in_progress", number),
        PartEnded(number, Call(call_id=f"c{number}", name=name, input=arguments)),
    ]


def test_call_that_was_written_is_not_emitted_again_when_it_comes_structured() -> None:
    stage = made(TailPolicy())
    lines = answer(
        text_part(0, f"Hm. {block('1')}"), structured(1, '{ "a":"1" }'), finish="tool_calls"
    )
    out = through(stage, lines)
    assert shown(out) == ["Hm. ", '{"a": "1"}']
    assert fold(out).choices[0].finish == "tool_calls"
    assert [problem.kind for problem in stage.problems] == ["repeated_call"]


def test_each_written_call_answers_for_one_repetition() -> None:
    lines = answer(
        text_part(0, block("1") + block("1")),
        structured(1, '{"a":"1"}'),
        structured(2, '{"a":"1"}'),
        structured(3, '{"a":"1"}'),
    )
    out = through(made(), lines)
    assert shown(out) == ['{"a": "1"}', '{"a": "1"}', '{"a":"1"}']
    assert [part.call_id for part in parts_of(out) if isinstance(part, Call)][2] == "c3"


def test_structured_call_that_differs_from_the_written_one_is_emitted_whole() -> None:
    for arguments, name in (('{"a":"2"}', "f"), ('{"a":"1"}', "g"), ("no json", "f"), ("", "f")):
        out = through(made(), answer(text_part(0, block("1")), structured(1, arguments, name)))
        assert shown(out) == ['{"a": "1"}', arguments]


def test_structured_call_that_was_cut_is_emitted_as_such() -> None:
    call = structured(1, '{"a": "1"}')
    call[-1] = PartEnded(1, Call(call_id="c1", name="f", input='{"a": "1"}', status="incomplete"))
    out = through(made(), answer(text_part(0, block("1")), call, finish="length"))
    assert [part.status for part in parts_of(out) if isinstance(part, Call)] == [
        "completed",
        "incomplete",
    ]


def test_other_parts_go_on_while_a_structured_call_waits() -> None:
    call = structured(1, '{"a":"1"}')
    text = text_part(2, "And more.")
    found = answer(text_part(0, block("1")), call[:2], text, call[2:])
    assert shown(through(made(), found)) == ['{"a": "1"}', "And more."]


def test_calls_of_another_choice_are_no_repetition() -> None:
    text, call = text_part(0, block("1")), structured(1, '{"a": "1"}')
    begun = call[0]
    assert isinstance(begun, PartStarted)
    call[0] = PartStarted(1, begun.header, 1)
    sequence = [
        Started(), *text, *call, Finished("stop"), Finished("tool_calls", choice=1), Completed()
    ]  # fmt: skip
    outcome = fold(through(made(), sequence))
    assert [len(choice.parts) for choice in outcome.choices] == [1, 1]


# --- what a caller that passes the answer on must know --------------------------------------------------------------------


def test_stage_says_when_something_else_was_emitted_than_came() -> None:
    for text, is_changed in (
        ("a < b and <tool_call> c", False),
        (block("1", "nobody"), False),
        (block("1")[:-20], False),
        (block("1"), True),
        (f"{block('1')} and so on", True),
    ):
        stage = made(TailPolicy())
        through(stage, answer(text_part(0, text)))
        assert stage.has_changed is is_changed, text


def test_marks_that_only_dress_the_text_are_a_change_too() -> None:
    stage = stage_for(REQUEST, model="command-a", policy=KEEP)
    assert stage is not None
    out = through(stage, answer(text_part(0, "<|START_RESPONSE|>Hello.<|END_RESPONSE|>")))
    assert shown(out) == ["Hello."]
    assert stage.has_changed


def test_stage_reports_pending_events_until_it_has_emitted_them() -> None:
    stage = made()
    stage.feed(Started())
    stage.feed(PartStarted(0, Text(status="in_progress")))
    begun = stage.held_text(0)
    assert begun == (0, 0, False)
    stage.feed(TextDelta(0, "a <tool"))
    held = stage.held_text(0)
    assert held == (0, 7, False)
    assert begun is not None
    assert held is not None
    assert stage.is_released(begun)
    assert not stage.is_released(held)
    assert stage.text_sink(0) is None
    stage.feed(TextDelta(0, "box"))
    assert stage.is_released(held)
    assert (stage.held_text(0), stage.number_of(0)) == (None, 0)
    text_sink = stage.text_sink(0)
    assert text_sink is not None
    text_sink(" more")
    stage.feed(TextDelta(0, " <"))
    stage.feed(PartEnded(0, Text(text="a <toolbox more <")))
    ended = stage.held_text(0)
    assert ended is not None
    assert ended == (0, 12, True)
    stage.feed(Finished("stop"))
    assert stage.is_released(ended)
    assert stage.number_of(0) == 0


def test_confirmed_block_is_known_to_be_read() -> None:
    stage = made()
    stage.feed(PartStarted(0, Text(status="in_progress")))
    stage.feed(TextDelta(0, "<tool_call>"))
    assert not stage.is_reading
    stage.feed(TextDelta(0, '{"name": "f", "arguments": {'))
    assert stage.is_reading


def test_format_that_is_registered_later_is_looked_for_in_later_answers() -> None:
    text = '@@call {"name": "f", "arguments": {"a": "1"}}@@'
    assert shown(through(made(), answer(text_part(0, text)))) == [text]
    mine = TextPattern(name="mine", openers=("@@call ",), body=JsonBody(), closers=("@@",))
    unregister = register_text_pattern(mine)
    try:
        assert shown(through(made(), answer(text_part(0, text)))) == ['{"a": "1"}']
    finally:
        unregister()
    assert shown(through(made(), answer(text_part(0, text)))) == [text]


# --- the structured call wins ---------------------------------------------------------------------------------------------


def holding(policy: TailPolicy | None = None) -> TextCallStage:
    stage = stage_for(REQUEST, policy=policy or TailPolicy(), holds_calls=True)
    assert stage is not None
    return stage


def call_ids(events: Iterable[Event]) -> list[str]:
    return [
        event.value.call_id
        for event in events
        if isinstance(event, PartEnded) and isinstance(event.value, Call)
    ]


def test_structured_call_replaces_the_written_one_under_its_own_id() -> None:
    stage = holding()
    events = answer(
        text_part(0, f"Hm. {block('1')}"), structured(1, '{ "a":"1" }'), finish="tool_calls"
    )
    out = through(stage, events)
    assert shown(out) == ["Hm. ", '{ "a":"1" }']
    assert call_ids(out) == ["c1"]
    assert fold(out).choices[0].finish == "tool_calls"
    assert [problem.kind for problem in stage.problems] == ["repeated_call"]
    assert stage.calls == 0


def test_written_call_that_nothing_repeats_comes_with_the_end_of_its_choice() -> None:
    stage = holding()
    out: list[Event] = []
    for event in answer(text_part(0, f"Hm. {block('1')}"), finish="stop"):
        if isinstance(event, Finished):
            out += stage.feed(Progress("working"))
            assert call_ids(out) == []
        out += stage.feed(event)
    assert shown(out) == ["Hm. ", '{"a": "1"}']
    assert fold(out).choices[0].finish == "tool_calls"
    assert is_grammatical(out)


def test_other_structured_call_does_not_hide_a_written_one() -> None:
    stage = holding()
    events = answer(
        text_part(0, block("1") + block("2")),
        structured(1, '{"a":"2"}'),
        structured(2, '{"a":"3"}'),
        finish="tool_calls",
    )
    out = through(stage, events)
    assert [part for part in shown(out) if part] == ['{"a":"2"}', '{"a":"3"}', '{"a": "1"}']
    assert call_ids(out)[:2] == ["c1", "c2"]
    assert is_grammatical(out)


def test_held_call_is_emitted_when_the_caller_ends_the_answer() -> None:
    stage = holding(TailPolicy(stop="first"))
    out: list[Event] = []
    for event in answer(text_part(0, f"{block('1')} and more")):
        out += stage.feed(event)
        if stage.is_done:
            assert stage.has_held_calls
            out += stage.finish_now()
            break
    assert shown(out)[-1] == '{"a": "1"}'
    assert is_grammatical(out)


def test_text_after_a_held_call_releases_it_and_keeps_the_order() -> None:
    stage = holding(KEEP)
    events = answer(
        text_part(0, f"{block('1')} and more"), structured(1, '{"a":"1"}'), finish="tool_calls"
    )
    out = through(stage, events)
    assert [part for part in shown(out) if part.strip()] == ['{"a": "1"}', " and more"]
    assert [problem.kind for problem in stage.problems] == ["repeated_call"]
    assert is_grammatical(out)
