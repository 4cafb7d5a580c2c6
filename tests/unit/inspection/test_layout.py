"""Reports as a screen, as JSON and as text."""

import json

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.call_input import judge
from dragoman.inspection.layout import (
    EFFECTS,
    MIN_WIDTH,
    REASONS,
    lay_out,
    loss_lines,
    plain,
    problem_lines,
    to_json,
)
from dragoman.inspection.report import CallReport, ChoiceReport, ProblemReport, Report
from dragoman.inspection.terminal_text import cells
from dragoman.model.outcome import ErrorInfo, Loss, Usage
from dragoman.model.parts import Call

CALL = CallReport(
    id="call_1",
    name="get_weather",
    namespace=None,
    kind="function",
    arguments='{"city":"Paris"}',
    deltas=3,
    executable=True,
    reason="complete",
    choice=0,
)
CUT_CALL = replace(
    CALL, id="call_22", name="get_time", arguments='{"zo', executable=False, reason="not_closed"
)
CHOICE = ChoiceReport(index=0, text="Let me look.", finish="tool_calls")
PROBLEM = ProblemReport(frame=7, line=13, kind="cut_stream", message="expected an end, got none")
REPORT = Report(
    dialect="chat",
    form="stream",
    frames=12,
    status=None,
    response_id="chatcmpl-1",
    model="gpt-4.1",
    calls=(CALL,),
    choices=(CHOICE,),
    usage=Usage(input=1200, cached=1000, output=30, reasoning=0, total=1230),
    error=None,
    problems=(),
)
EMPTY = Report(
    dialect="messages",
    form="body",
    frames=1,
    status=None,
    response_id="",
    model="",
    calls=(),
    choices=(),
    usage=None,
    error=None,
    problems=(),
)


def screen(report: Report, width: int = 80) -> str:
    return plain(lay_out(report, "x.sse", width))


def styles(report: Report) -> dict[str, str]:
    return {span.text: span.style for line in lay_out(report, "x.sse", 80) for span in line}


def test_a_clean_stream_fits_one_glance() -> None:
    assert screen(REPORT) == (
        "x.sse: OpenAI Chat Completions, stream of 12 frames\n"
        "model gpt-4.1, id chatcmpl-1\n"
        "\n"
        "CALLS\n"
        "   id      name         deltas  executable\n"
        "1  call_1  get_weather       3  yes\n"
        '   {"city":"Paris"}\n'
        "\n"
        "TEXT\n"
        "   Let me look.\n"
        "\n"
        "USAGE   input 1,200 (cached 1,000), output 30, total 1,230\n"
        "FINISH  tool_calls\n"
        "\n"
        "Clean; 1 call may be run.\n"
    )


def test_problems_and_verdict_come_last() -> None:
    report = replace(REPORT, calls=(CALL, CUT_CALL), problems=(PROBLEM,))
    assert screen(report).endswith(
        "PROBLEMS\n"
        "   cut_stream\n"
        "      frame 7, line 13: expected an end, got none\n"
        "      → Many clients do not notice, and run calls they received only half of.\n"
        "\n"
        "1 problem found; only 1 of 2 calls may be run.\n"
    )


def test_an_empty_body_says_so() -> None:
    assert screen(EMPTY) == (
        "x.sse: Anthropic Messages, body\n"
        "\n"
        "CALLS  none\n"
        "\n"
        "USAGE   not reported\n"
        "FINISH  none\n"
        "\n"
        "Clean; no calls to run.\n"
    )


def test_columns_stay_aligned_whatever_the_names() -> None:
    report = replace(REPORT, calls=(replace(CALL, name="天気"), CUT_CALL))
    rows = screen(report).splitlines()[4:9]
    place = cells(rows[0][: rows[0].index("executable")])
    assert cells(rows[1][: rows[1].index("yes")]) == place
    assert cells(rows[3][: rows[3].index("NO: cut off")]) == place


def test_a_call_that_must_not_be_run_stands_out() -> None:
    found = styles(replace(REPORT, calls=(CALL, CUT_CALL)))
    assert found["yes"] == "good"
    assert found["NO: cut off"] == "bad"


def test_a_call_that_the_provider_runs_is_no_fault() -> None:
    call = replace(
        CALL, kind="web_search", name="web_search", executable=False, reason="not_client"
    )
    report = replace(REPORT, calls=(call,))
    assert styles(report)["provider runs it"] == "faint"
    assert "1  call_1  web_search       3" in screen(report)
    assert screen(report).endswith("Clean; no calls to run.\n")


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    report = replace(REPORT, calls=(replace(CALL, executable=False, reason="odd"),))
    assert "NO: odd" in screen(report)


def test_namespace_kind_and_choice_are_reported_beside_the_name() -> None:
    call = replace(CALL, namespace="mcp__docs", kind="custom", choice=1)
    assert "get_weather (in mcp__docs, custom, choice 1)" in screen(replace(REPORT, calls=(call,)))


def test_long_arguments_wrap_and_then_are_cut_with_their_length() -> None:
    text = screen(replace(REPORT, calls=(replace(CALL, arguments="x" * 1000),)))
    assert text.count("   " + "x" * 77 + "\n") == 6
    assert "   … (1,000 characters in all, see --json)\n" in text


def test_many_calls_are_cut_with_their_number() -> None:
    text = screen(replace(REPORT, calls=(CALL,) * 40))
    assert "30 call_1  get_weather       3  yes\n" in text
    assert "   … 10 more calls (see --json)\n" in text
    assert "31 call_1" not in text


def test_a_hostile_id_neither_breaks_columns_nor_reaches_the_terminal() -> None:
    text = screen(replace(REPORT, calls=(replace(CALL, id="\x1b[2J" + "i" * 500),)))
    assert "\x1b" not in text
    assert "\\x1b[2Jiii" in text
    assert "i…iiii  get_weather" in text


def test_each_choice_has_its_own_text_and_finish() -> None:
    choices = (CHOICE, ChoiceReport(index=1, text="Or not.", finish="stop"))
    text = screen(replace(REPORT, choices=choices))
    assert "TEXT of choice 0\n   Let me look.\n" in text
    assert "TEXT of choice 1\n   Or not.\n" in text
    assert "FINISH  choice 0: tool_calls\nFINISH  choice 1: stop\n" in text


def test_refusal_reasoning_and_other_parts_have_their_sections() -> None:
    choice = replace(
        CHOICE,
        text="",
        refusal="I cannot.",
        reasoning="Hmm.",
        sealed=2,
        others=("image", "compaction"),
    )
    text = screen(replace(REPORT, choices=(choice,)))
    assert "TEXT" not in text
    assert "REFUSAL\n   I cannot.\n" in text
    assert "REASONING (2 seals)\n   Hmm.\n" in text
    assert "OTHER PARTS\n   image, compaction\n" in text


def test_reasoning_that_is_only_sealed_says_so() -> None:
    choice = replace(CHOICE, sealed=1)
    assert "REASONING (1 seal)\n   sealed\n" in screen(replace(REPORT, choices=(choice,)))


def test_the_providers_own_finish_is_reported_where_it_differs() -> None:
    choice = replace(CHOICE, native_finish="tool_use")
    assert "FINISH  tool_calls (as sent: tool_use)\n" in screen(replace(REPORT, choices=(choice,)))
    same = replace(CHOICE, native_finish="tool_calls")
    assert "FINISH  tool_calls\n" in screen(replace(REPORT, choices=(same,)))


def test_a_choice_that_never_finished_says_so() -> None:
    report = replace(REPORT, choices=(replace(CHOICE, finish=None),))
    assert "FINISH  none\n" in screen(report)
    assert styles(report)["none"] == "bad"


def test_usage_without_numbers_is_not_reported() -> None:
    assert "USAGE   not reported\n" in screen(replace(REPORT, usage=Usage()))


def test_the_http_status_is_shown() -> None:
    assert "HTTP 429\n" in screen(replace(EMPTY, status=429))


def test_problems_of_one_kind_stand_together_and_only_the_first_are_shown() -> None:
    problems = (
        *(ProblemReport(frame=n, line=None, kind="odd_kind", message=f"m{n}") for n in range(1, 6)),
        PROBLEM,
        ProblemReport(frame=9, line=20, kind="odd_kind", message="m9"),
    )
    assert (
        "PROBLEMS\n"
        "   odd_kind (6 times)\n"
        "      frame 1: m1\n"
        "      frame 2: m2\n"
        "      frame 3: m3\n"
        "      … 3 more (see --json); the last: frame 9, line 20\n"
        "   cut_stream\n"
    ) in screen(replace(REPORT, problems=problems))


def test_a_body_has_no_frames_to_name() -> None:
    report = replace(EMPTY, problems=(replace(PROBLEM, frame=1, line=None),))
    assert "   cut_stream\n      expected an end, got none\n" in screen(report)


def test_none_of_the_calls_may_be_run() -> None:
    report = replace(REPORT, calls=(CUT_CALL, CUT_CALL), problems=(PROBLEM,))
    assert screen(report).endswith("1 problem found; 2 calls, NONE may be run.\n")


def test_an_id_that_was_never_sent_is_not_shown_as_if_it_was() -> None:
    report = replace(REPORT, calls=(replace(CALL, minted=True),))
    assert "1  none sent  get_weather       3  yes\n" in screen(report)
    assert styles(report)["none sent"] == "bad"


def test_an_id_that_does_not_fit_keeps_both_ends() -> None:
    call = replace(CALL, id="toolu_01T1x1fJ34qAmk2tNTrN7Up6", name="n" * 40)
    lines = screen(replace(REPORT, calls=(call,))).splitlines()
    assert lines[5].startswith("1  toolu_01T1…")
    assert "…7Up6  nnn" in lines[5]
    assert max(map(len, lines)) <= 80
    narrow = screen(replace(REPORT, calls=(call,)), MIN_WIDTH)
    assert "1  toolu_0…7Up6  nnn" in narrow


def test_messages_wrap_below_each_other() -> None:
    problem = replace(PROBLEM, message="word " * 30)
    lines = screen(replace(REPORT, problems=(problem,))).splitlines()
    start = next(n for n, line in enumerate(lines) if "frame 7" in line)
    assert lines[start + 1].startswith("      word")
    assert max(map(len, lines)) <= 80


def test_a_very_narrow_terminal_is_treated_as_a_narrow_one() -> None:
    assert screen(REPORT, 3) == screen(REPORT, MIN_WIDTH)


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


def test_an_error_is_reported_without_its_raw_form() -> None:
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


def test_every_reason_of_a_verdict_has_its_words() -> None:
    calls = (
        Call(call_id="a", name="f", input="{}"),
        Call(call_id="a", name="f", input="{"),
        Call(call_id="a", name="f", input="{}", status="incomplete"),
        Call(call_id="a", name="", input="{}"),
        Call(call_id="a", name="f", input="{}", executor="provider"),
    )
    assert {judge(call).reason for call in calls} == set(REASONS)
    assert REASONS["complete"] == "yes"


def test_effects_are_whole_sentences_on_one_line() -> None:
    for kind, effect in EFFECTS.items():
        assert kind.isidentifier()
        assert effect[0].isupper() or effect.startswith("pydantic")
        assert effect.endswith((".", "?"))
        assert "\n" not in effect
