"""Answers told apart in a dump of the gateway, and what is said of them."""

import json
from typing import Any

import pytest
from vendor_wire import Answer, Said, Tool, stream

from dragoman.inspection.dumped import examine_dumped, open_dump
from dragoman.inspection.present import to_json_dump
from dragoman.server.dump_events import EventPicker
from dragoman.sse import FrameParser

CALLS = Answer(
    (
        Said(("Let me look.",)),
        Tool("call_1", "get_weather", ('{"city":', '"Paris"}')),
        Tool("call_2", "get_time", ("{}",)),
    )
)
DIALECTS = ("chat", "responses", "messages")


def dumped_lines(
    dialect: str, data: bytes, request_id: str = "req_1", answer: int = 0
) -> list[str]:
    """As the gateway writes them."""
    parser, picker = FrameParser(), EventPicker(dialect)
    told: dict[str, object] = {
        "at": 1.0,
        "request_id": request_id,
        "upstream": "up",
        "dialect": dialect,
    }
    told["answer"] = answer
    found: list[tuple[int, dict[str, object]]] = []
    frames = [*parser.feed(data), *parser.close()]
    for number, frame in enumerate(frames, 1):
        found += [(number, event) for event in picker.pick(frame.data or b"")]
    found += [(len(frames), event) for event in picker.close()]
    return [json.dumps({**told, "frame": number, "event": event}) for number, event in found]


def joined(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_sound_answer_has_its_calls_and_no_problems(dialect: str) -> None:
    answers = open_dump(joined(dumped_lines(dialect, stream(dialect, CALLS))))
    assert answers is not None
    [answer] = answers
    report = examine_dumped(answer)
    assert (answer.request_id, answer.upstream, report.dialect) == ("req_1", "up", dialect)
    assert [(call.id, call.name, call.arguments) for call in report.calls] == [
        ("call_1", "get_weather", '{"city":"Paris"}'),
        ("call_2", "get_time", "{}"),
    ]
    assert all(call.executable for call in report.calls)
    assert report.problems == ()
    assert report.choices[0].finish == "tool_calls"


def test_answers_that_came_at_once_are_told_apart() -> None:
    first = dumped_lines("responses", stream("responses", CALLS), "req_a")
    second = dumped_lines("messages", stream("messages", CALLS), "req_b")
    mixed = [line for pair in zip(first, second, strict=False) for line in pair]
    mixed += first[len(second) :] + second[len(first) :]
    answers = open_dump(joined(mixed))
    assert answers is not None
    assert [answer.request_id for answer in answers] == ["req_a", "req_b"]
    assert [len(examine_dumped(answer).calls) for answer in answers] == [2, 2]


def test_a_second_attempt_of_a_request_is_an_answer_of_its_own() -> None:
    cut = dumped_lines("responses", stream("responses", CALLS))[:5]
    again = dumped_lines("responses", stream("responses", CALLS), answer=1)
    answers = open_dump(joined(cut + again))
    assert answers is not None
    reports = [examine_dumped(answer) for answer in answers]
    assert [len(report.calls) for report in reports] == [1, 2]
    [problem] = reports[0].problems
    assert (problem.kind, problem.line) == ("cut_stream", 5)
    assert reports[1].problems == ()


def test_problems_stand_on_the_lines_of_the_dump() -> None:
    broken = Answer((Tool("call_1", "get_weather", ('{"city":',)),))
    before = dumped_lines("responses", stream("responses", CALLS), "req_0")
    after = dumped_lines("responses", stream("responses", broken))
    answers = open_dump(joined(before + after))
    assert answers is not None
    problem = next(
        problem
        for problem in examine_dumped(answers[1]).problems
        if problem.kind == "invalid_arguments"
    )
    event: dict[str, Any] = json.loads((before + after)[(problem.line or 0) - 1])["event"]
    assert "get_weather" in json.dumps(event) or "arguments" in event


def test_lines_that_are_none_are_passed_over() -> None:
    lines = dumped_lines("responses", stream("responses", CALLS))
    answers = open_dump(joined([lines[0], "{", "[]", '{"a":1}', *lines[1:], lines[0][:30]]))
    assert answers is not None
    assert len(examine_dumped(answers[0]).calls) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"data: {}\n\n",
        b'{"type":"response.created"}\n',
        b"{\n",
        b'{"event":{"type":"x"}}\n',
        b'{"dialect":"chat","event":"x"}\n',
        stream("responses", CALLS),
    ],
)
def test_what_is_no_dump_is_left_to_others(data: bytes) -> None:
    assert open_dump(data) is None


def test_findings_of_a_dump_are_one_object() -> None:
    answers = open_dump(joined(dumped_lines("chat", stream("chat", CALLS)))) or ()
    told: dict[str, Any] = json.loads(
        to_json_dump([(answer, examine_dumped(answer)) for answer in answers])
    )
    [answer] = told["answers"]
    assert (answer["request_id"], answer["upstream"], answer["dialect"]) == ("req_1", "up", "chat")
    assert [call["name"] for call in answer["calls"]] == ["get_weather", "get_time"]
