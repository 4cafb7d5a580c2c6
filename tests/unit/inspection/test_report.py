"""Reports of recorded answers, and of the answers in a dump."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.dialects.shapes import DialectName
from dragoman.dialects.stream_decoder import Step
from dragoman.errors import GatewayError
from dragoman.inspection.layout import to_json_answers
from dragoman.inspection.recording import recognise
from dragoman.inspection.report import Report, examine, examine_dumped, examine_steps, open_dump
from dragoman.model.events import Failed, PartEnded, PartStarted, Started
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Media
from dragoman.server.observe.dump import EventPicker
from dragoman.sse import FrameParser, encode_frame
from vendor_wire import Answer, Said, Tool, stream

DONE = "data: [DONE]\n\n"


def chat(*deltas: object, finish: str | None = "tool_calls", done: str = DONE) -> bytes:
    """A Chat stream of these deltas."""
    choices: list[dict[str, object]] = [
        {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None},
        *({"index": 0, "delta": delta, "finish_reason": None} for delta in deltas),
    ]
    if finish is not None:
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks = [
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        for choice in choices
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + done.encode()


def call(
    arguments: str, *, index: int = 0, id_: str | None = None, name: str | None = None
) -> dict[str, object]:
    """One delta with one piece of one call."""
    function: dict[str, object] = {"arguments": arguments}
    entry: dict[str, object] = {"index": index, "function": function}
    if id_ is not None:
        entry |= {"id": id_, "type": "function"}
    if name is not None:
        function["name"] = name
    return {"tool_calls": [entry]}


def report_of(data: bytes, dialect: DialectName | None = None) -> Report:
    return examine(recognise(data, dialect))


def kinds(report: Report) -> list[str]:
    return [problem.kind for problem in report.problems]


def test_calls_are_counted_by_the_pieces_they_came_in() -> None:
    data = chat(
        call("", id_="a", name="f"),
        call('{"x"'),
        call(":1}"),
        call('{"y":2}', index=1, id_="b", name="g"),
    )
    report = report_of(data)
    assert [(c.id, c.name, c.arguments, c.deltas) for c in report.calls] == [
        ("a", "f", '{"x":1}', 2),
        ("b", "g", '{"y":2}', 1),
    ]
    assert all(c.executable and c.reason == "complete" and not c.minted for c in report.calls)
    assert report.problems == ()
    assert (report.model, report.response_id, report.frames) == ("m", "chatcmpl-1", 7)


def test_arguments_that_never_came_are_no_piece() -> None:
    empty = report_of(chat(call("", id_="a", name="f"))).calls[0]
    assert (empty.arguments, empty.deltas, empty.executable) == ("{}", 0, True)
    sent = report_of(chat(call("{}", id_="a", name="f"))).calls[0]
    assert (sent.arguments, sent.deltas) == ("{}", 1)
    held = report_of(chat(call("{}", id_="a"), call("", name="f"))).calls[0]
    assert (held.arguments, held.deltas) == ("{}", 1)


def test_arguments_of_a_body_came_in_one_piece_or_not_at_all() -> None:
    calls = [
        {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}
        for id_, arguments in (("a", '{"x":1}'), ("b", ""))
    ]
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": calls}}
    body = {"object": "chat.completion", "choices": [choice | {"finish_reason": "tool_calls"}]}
    report = report_of(json.dumps(body | {"id": "c", "created": 1, "model": "m"}).encode())
    assert [(c.arguments, c.deltas) for c in report.calls] == [('{"x":1}', 1), ("{}", 0)]


def test_calls_stand_in_the_order_they_appeared() -> None:
    data = chat(call("", id_="a", name="f"), call("{}", index=1, id_="b", name="g"), call("{}"))
    assert [c.id for c in report_of(data).calls] == ["a", "b"]


def test_an_id_that_was_never_sent_is_marked() -> None:
    report = report_of(chat(call("{}", name="f")))
    assert "missing_id" in kinds(report)
    assert report.calls[0].minted
    assert report.calls[0].id


def test_a_sent_id_that_looks_minted_is_not_marked() -> None:
    sent = "call_" + "0123456789abcdef01234567"
    data = chat(call("", id_=sent, name="f"), call("{}"), call("{}", index=1, name="g"))
    assert [c.minted for c in report_of(data).calls] == [False, True]


def test_arguments_that_are_no_json_are_one_problem() -> None:
    report = report_of(chat(call('{"x":', id_="a", name="f")))
    assert kinds(report) == ["invalid_arguments"]
    assert [(c.executable, c.reason) for c in report.calls] == [(False, "invalid_json")]


def test_arguments_in_a_problem_have_the_backslashes_that_were_sent() -> None:
    report = report_of(chat(call(r'{"path":"C:\\new\n"', id_="a", name="f")))
    assert r"""got '{"path":"C:\\new\n"'""" in report.problems[0].message


def test_a_call_cut_by_the_token_limit_is_a_problem_with_advice() -> None:
    report = report_of(chat(call('{"x":', id_="a", name="f"), finish="length"))
    assert kinds(report) == ["unfinished_call"]
    assert "raise the token limit" in report.problems[0].message
    assert report.calls[0].reason == "not_closed"
    assert report.choices[0].finish == "length"


def test_text_cut_by_the_token_limit_is_no_problem() -> None:
    report = report_of(chat({"content": "Once upon"}, finish="length"))
    assert report.problems == ()
    assert report.choices[0].text == "Once upon"


def test_a_cut_stream_is_one_problem() -> None:
    whole = chat(call('{"x":', id_="a", name="f"), finish=None, done="")
    report = report_of(whole)
    assert kinds(report) == ["cut_stream"]
    assert report.calls[0].reason == "not_closed"
    assert report.choices[0].finish is None


def test_a_cut_through_the_last_frame_is_one_problem() -> None:
    report = report_of(chat(call('{"x":', id_="a", name="f"), finish=None, done="")[:-20])
    assert kinds(report) == ["cut_stream"]


def test_a_damaged_frame_before_the_cut_is_the_problem() -> None:
    whole = chat(call("{}", id_="a", name="f"), finish=None, done="data: {\n\n")
    assert kinds(report_of(whole)) == ["malformed_frame"]


def test_problems_know_their_frame_and_line() -> None:
    data = chat(call("{}", id_="a", name="f"), done="data: {\n\n: hi\n\n" + DONE)
    report = report_of(data)
    assert [(p.frame, p.line, p.kind) for p in report.problems] == [(4, 7, "malformed_frame")]
    assert report.frames == 6


def test_the_providers_error_is_a_problem_with_its_words() -> None:
    error = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
    data = chat({"content": "Hi"}, finish=None, done=f"data: {json.dumps(error)}\n\n")
    report = report_of(data)
    assert kinds(report) == ["provider_error"]
    assert "slow down" in report.problems[0].message
    assert report.error is not None


def test_an_error_body_is_a_problem_with_its_words() -> None:
    report = report_of(b'{"error":{"message":"no such model","type":"invalid_request_error"}}')
    assert (report.form, kinds(report)) == ("body", ["provider_error"])
    assert "no such model" in report.problems[0].message


def test_a_second_answer_in_the_same_file_is_one_problem() -> None:
    one = chat({"content": "A"}, finish="stop")
    report = report_of(one + one)
    assert [(p.frame, p.kind) for p in report.problems] == [(5, "after_end")]
    assert "3 more frames" in report.problems[0].message
    assert report.choices[0].text == "A"


def test_one_late_frame_is_reported_as_one() -> None:
    report = report_of(chat({"content": "A"}, finish="stop") + b'data: {"x":1}\n\n: bye\n\n')
    assert "1 more frame," in report.problems[0].message


def test_lost_blank_lines_are_one_problem_and_everything_is_read() -> None:
    data = chat(call("{}", id_="a", name="f")).replace(b"\n\n", b"\n")
    report = report_of(data)
    assert kinds(report) == ["missing_blank_lines"]
    assert [c.id for c in report.calls] == ["a"]


def test_choices_keep_their_texts_and_calls_apart() -> None:
    chunks: list[dict[str, object]] = [
        {"index": 0, "delta": {"role": "assistant", "content": "A"}, "finish_reason": None},
        {
            "index": 1,
            "delta": {"role": "assistant", **call("{}", id_="b", name="g")},
            "finish_reason": None,
        },
        {"index": 0, "delta": {}, "finish_reason": "stop"},
        {"index": 1, "delta": {}, "finish_reason": "tool_calls"},
    ]
    data = b"".join(
        encode_frame(
            json.dumps(
                {
                    "object": "chat.completion.chunk",
                    "id": "c",
                    "model": "m",
                    "created": 1,
                    "choices": [choice],
                }
            ).encode()
        )
        for choice in chunks
    )
    report = report_of(data + DONE.encode())
    assert [(c.index, c.text, c.finish, c.native_finish) for c in report.choices] == [
        (0, "A", "stop", "stop"),
        (1, "", "tool_calls", "tool_calls"),
    ]
    assert [(c.id, c.choice) for c in report.calls] == [("b", 1)]


def message(*blocks: dict[str, object], stop: str = "end_turn") -> bytes:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    return json.dumps(body).encode()


def test_reasoning_seals_and_other_parts_are_named() -> None:
    report = report_of(
        message(
            {"type": "thinking", "thinking": "One.", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "thinking", "thinking": "Two.", "signature": "s"},
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "q"},
            },
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "hologram", "x": 1},
            {"type": "text", "text": "Done."},
        ),
    )
    choice = report.choices[0]
    assert (choice.reasoning, choice.sealed, choice.text) == ("One.\n\nTwo.", 3, "Done.")
    assert choice.others[0].startswith("result of web_search")
    assert choice.others[1] == "hologram"
    assert [(c.executable, c.reason) for c in report.calls] == [(False, "not_client")]


def test_a_closed_block_without_json_is_not_called_cut() -> None:
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": json.loads(message(stop="")) | {"stop_reason": None}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"x":'},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    report = report_of(b"".join(json.dumps(event).encode() + b"\n" for event in events))
    assert [(c.executable, c.reason) for c in report.calls] == [(False, "invalid_json")]
    assert kinds(report).count("invalid_arguments") == 1
    assert "unfinished_call" not in kinds(report)


def test_what_a_decoder_left_unsaid_is_still_a_problem() -> None:
    """Whatever decoder read it: no report is clean that has a call which may not be run."""
    invalid = Call(call_id="a", name="f", input="{" + "x" * 99)
    events = (
        Started(),
        PartStarted(0, Call(call_id="a", name="f", status="in_progress")),
        PartEnded(0, invalid),
        PartStarted(1, Media(kind="image")),
        PartEnded(1, Media(kind="image")),
        Failed(ErrorInfo(kind="truncated", message="it stopped")),
    )
    recognised = recognise(chat())
    report = examine_steps(recognised, [Step(b"data: {}\n\n", events)])
    assert kinds(report) == ["invalid_arguments", "cut_stream"]
    assert report.problems[0].message.endswith("x…'")
    assert report.choices[0].others == ("image",)


def test_images_and_refusals_have_their_place() -> None:
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "No."}],
            },
            {
                "type": "image_generation_call",
                "id": "ig_1",
                "status": "completed",
                "result": "aGk=",
            },
        ],
    }
    choice = report_of(json.dumps(body).encode()).choices[0]
    assert choice.refusal == "No."


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@settings(max_examples=60)
@given(
    data=st.lists(
        st.sampled_from(
            [
                *(chat(call("{}", id_="a", name="f")).split(b"\n\n")),
                b'event: message_start\ndata: {"type":"message_start","message":{}}',
                b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f"}}',
                b'data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f"}}',
                b'data: {"type":"response.completed","response":{"output":[]}}',
                b"data: {",
                b"\xff",
            ]
        ),
        min_size=1,
    ).map(b"\n\n".join)
)
def test_any_mixture_of_frames_gives_a_report_or_a_refusal(
    data: bytes, dialect: DialectName
) -> None:
    try:
        report = report_of(data, dialect)
    except GatewayError:
        return
    assert report.dialect == dialect


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
    texts: dict[str, object] = {
        "at": 1.0,
        "request_id": request_id,
        "upstream": "up",
        "dialect": dialect,
    }
    texts["answer"] = answer
    found: list[tuple[int, dict[str, object]]] = []
    frames = [*parser.feed(data), *parser.close()]
    for number, frame in enumerate(frames, 1):
        found += [(number, event) for event in picker.pick(frame.data or b"")]
    found += [(len(frames), event) for event in picker.close()]
    return [json.dumps({**texts, "frame": number, "event": event}) for number, event in found]


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


def test_answers_that_came_at_once_are_distinguished() -> None:
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
    document: dict[str, Any] = json.loads(
        to_json_answers(
            [(answer.request_id, answer.upstream, examine_dumped(answer)) for answer in answers]
        )
    )
    [answer] = document["answers"]
    assert (answer["request_id"], answer["upstream"], answer["dialect"]) == ("req_1", "up", "chat")
    assert [call["name"] for call in answer["calls"]] == ["get_weather", "get_time"]
