"""The findings for programs: one JSON object, one line per problem."""

import json

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.inspection.present import loss_lines, problem_lines, to_json
from dragoman.inspection.report import ChoiceReport
from dragoman.model.outcome import ErrorInfo, Loss

from .reports import CALL, CHOICE, EMPTY, PROBLEM, REPORT


def test_the_json_names_everything() -> None:
    assert json.loads(to_json(replace(REPORT, problems=(PROBLEM,)))) == {
        "dialect": "chat",
        "form": "stream",
        "frames": 12,
        "id": "chatcmpl-1",
        "model": "gpt-4.1",
        "calls": [
            {
                "id": "call_1",
                "name": "get_weather",
                "namespace": None,
                "kind": "function",
                "arguments": '{"city":"Paris"}',
                "deltas": 3,
                "executable": True,
                "reason": "complete",
                "choice": 0,
                "minted": False,
            }
        ],
        "text": "Let me look.",
        "reasoning": "",
        "refusal": None,
        "usage": {"input": 1200, "cached": 1000, "output": 30, "reasoning": 0, "total": 1230},
        "finish": "tool_calls",
        "error": None,
        "problems": [
            {"frame": 7, "line": 13, "kind": "cut_stream", "message": "expected an end, got none"}
        ],
    }


def test_the_json_of_an_empty_answer_has_the_same_fields() -> None:
    found = json.loads(to_json(EMPTY))
    assert (found["text"], found["usage"], found["finish"], found["calls"]) == ("", None, None, [])


def test_the_json_is_one_line_that_no_terminal_obeys() -> None:
    hostile = replace(CHOICE, text="\x1b[2J\x9b2J\n\u2028\ud83d")
    data = to_json(replace(REPORT, choices=(hostile,)))
    assert data.count(b"\n") == 1
    assert b"\x1b" not in data
    assert b"\xc2\x9b" not in data
    assert json.loads(data)["text"] == hostile.text
    visible = to_json(replace(REPORT, choices=(replace(CHOICE, text="é\x9b"),)))
    assert "é\\u009b".encode() in visible


def test_several_choices_are_listed() -> None:
    choices = (CHOICE, ChoiceReport(index=1, text="B"))
    found = json.loads(to_json(replace(REPORT, choices=choices)))
    assert [choice["text"] for choice in found["choices"]] == ["Let me look.", "B"]


def test_an_error_is_told_without_its_raw_form() -> None:
    error = ErrorInfo(kind="rate_limit", message="slow down", status=429, raw=Raw(b'{"secret":1}'))
    assert json.loads(to_json(replace(EMPTY, error=error)))["error"] == {
        "kind": "rate_limit",
        "message": "slow down",
        "status": 429,
        "code": None,
        "param": None,
    }


def test_arguments_are_the_source_text() -> None:
    source = '{"n": 1.0, "n": 12345678901234567890}'
    report = replace(REPORT, calls=(replace(CALL, arguments=source),))
    assert json.loads(to_json(report))["calls"][0]["arguments"] == source


def test_a_problem_is_one_line() -> None:
    assert list(problem_lines((PROBLEM, replace(PROBLEM, line=None, message="a\nb\x1b")))) == [
        "frame 7, line 13: cut_stream: expected an end, got none",
        "frame 7: cut_stream: a\\nb\\x1b",
    ]


def test_a_loss_is_one_line() -> None:
    losses = (Loss("seal", "part 1", "drop", "a\nb"), Loss("logprobs", "", "drop"))
    assert list(loss_lines(losses)) == [
        "loss: seal at part 1 (a\\nb): drop",
        "loss: logprobs: drop",
    ]
