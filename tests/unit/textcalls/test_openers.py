"""When markup is a call, and when it is only text."""

import json

import pytest

from dragoman._json import Raw
from dragoman.model.events import PartEnded
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Call
from dragoman.model.request import Request, Tool, ToolChoice, ToolRef
from dragoman.textcalls import TextScanner, scan_text, stage_for
from dragoman.textcalls.block import MAX_FAILED

TOOLS = [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'


def names(text: str, model: str | None = None) -> list[str]:
    return [call.name for call in scan_text(text, TOOLS, model=model).calls]


def test_call_is_taken_out_of_the_text_around_it() -> None:
    scan = scan_text(f"Before. {CALL} After.", TOOLS)
    assert [(call.name, call.arguments) for call in scan.calls] == [("f", '{"a": "x"}')]
    assert scan.text == "Before.  After."
    assert scan.problems == ()


def test_white_space_between_calls_and_behind_them_goes() -> None:
    scan = scan_text(f"Hm.\n{CALL}\n\n{CALL}\n  ", TOOLS)
    assert len(scan.calls) == 2
    assert scan.text == "Hm.\n"


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{CALL}\n```",
        f"```xml\n{CALL}\n```\nand so on",
        f"~~~\n{CALL}\n~~~",
        f"   ````\n```\n{CALL}\n````",
        f"write `{CALL}` there",
        f"write ``{CALL}`` there",
        f"write `<tool_call>\n{CALL}\n</tool_call>` there",
        f"1.  So:\n\n    ```\n    {CALL}\n    ```\n",
        f"- ```xml\n  {CALL}\n  ```\n",
        f"12. > - ~~~\n    >   {CALL}\n    >   ~~~\n",
        f"> ```\n> {CALL}\n> ```\n",
        f"```\n        ```\n{CALL}\n```\n",
        f"```\nnever closed {CALL}",
        f"<think>I could write {CALL} here</think> no.",
    ],
)
def test_call_in_a_fence_in_inline_code_or_in_thinking_is_text(text: str) -> None:
    scan = scan_text(text, TOOLS)
    assert scan.calls == ()
    assert scan.text == text


@pytest.mark.parametrize(
    "text",
    [
        f"```\ncode\n```\n{CALL}",
        f"`code` then {CALL}",
        f"a stray ` in one line\n{CALL}",
        f"a stray `<tool_call> in one paragraph\n\n{CALL}",
        f"<think>hm</think>{CALL}",
        f"    ```\n    code\n    ```\n{CALL}",
        f"- ```\n  code\n  ```\n{CALL}",
        f"> ~~~\n> code\n> ~~~\n\n{CALL}",
    ],
)
def test_call_behind_a_fence_or_thinking_is_a_call(text: str) -> None:
    assert names(text) == ["f"]


def test_models_that_call_while_they_think_are_known_by_their_profile() -> None:
    text = f"<think>now I call {CALL}"
    assert names(text) == []
    assert names(text, model="Qwen/Qwen3-8B") == ["f"]


def test_name_that_was_not_offered_is_text_with_a_problem() -> None:
    text = CALL.replace('"f"', '"g"')
    scan = scan_text(f"{text} and {CALL}", TOOLS)
    assert [call.name for call in scan.calls] == ["f"]
    assert scan.text == f"{text} and "
    assert [problem.kind for problem in scan.problems] == ["unknown_tool"]


def test_strange_call_among_others_of_its_block_is_text() -> None:
    text = '<tool_calls>[{"name":"f","arguments":{}},{"name":"g","arguments":{}},{"name":"f","arguments":{"a":"2"}}]</tool_calls>'
    scan = scan_text(text, TOOLS)
    assert [call.arguments for call in scan.calls] == ["{}", '{"a":"2"}']
    assert scan.text == ',{"name":"g","arguments":{}},'


def test_call_quoted_in_the_argument_of_another_is_data() -> None:
    quoted = CALL.replace('"', '\\"')
    scan = scan_text(
        f'<tool_call>{{"name": "f", "arguments": {{"a": "{quoted}"}}}}</tool_call>', TOOLS
    )
    assert len(scan.calls) == 1
    assert scan.text == ""


def test_call_quoted_in_a_malformed_block_is_not_run() -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": "say "hi" {CALL}"}}}}'
    scan = scan_text(text, TOOLS)
    assert scan.calls == ()
    assert scan.text == text
    assert [problem.kind for problem in scan.problems] == ["malformed"]


def test_block_after_a_malformed_one_is_found() -> None:
    scan = scan_text(f'<tool_call>{{"name": "f", "arguments": {{]}}</tool_call> {CALL}', TOOLS)
    assert len(scan.calls) == 1
    assert scan.text == '<tool_call>{"name": "f", "arguments": {]}</tool_call> '


@pytest.mark.parametrize("finish", ["length", "content_filter", "cancelled", "error"])
def test_block_at_the_end_of_a_text_that_was_cut_off_is_no_call(finish: FinishReason) -> None:
    block = CALL.removesuffix("</tool_call>")
    assert scan_text(block, TOOLS).calls != ()
    cut = scan_text(block, TOOLS, finish=finish)
    assert cut.calls == ()
    assert cut.text == block
    assert [problem.kind for problem in cut.problems] == ["truncated"]


def test_no_tools_means_that_text_is_text() -> None:
    assert scan_text(CALL, []).text == CALL
    assert scan_text(CALL, None).calls[0].name == "f"


def test_formats_are_chosen_by_name() -> None:
    assert scan_text(CALL, TOOLS, formats="use_tool").text == CALL
    assert len(scan_text(CALL, TOOLS, formats=("use_tool", "hermes")).calls) == 1


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", '{"name": "f", "parameters": {"a": "x"}}'),
        ("llama-4-scout", "[f(a='x')]"),
        ("Salesforce/xLAM-2-8b", '[{"name": "f", "arguments": {"a": "x"}}]'),
        ("openai/gpt-oss-20b", 'to=functions.f <|constrain|>json<|message|>{"a": "x"}<|call|>'),
        ("ollama/qwen2.5-coder-cline", "<f>\n<a>x</a>\n</f>"),
        ("Qwen/Qwen-7B-Chat", 'Action: f\nAction Input: {"a": "x"}\n'),
    ],
)
def test_formats_without_a_sentinel_need_the_profile_of_a_model(model: str, text: str) -> None:
    assert names(text) == []
    assert names(text, model=model) == ["f"]


def test_tools_of_every_dialect_are_read() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    text = "<function=g>\n<parameter=n>\n3\n</parameter>\n</function>"
    shapes: list[object] = [
        {"type": "function", "function": {"name": "g", "parameters": schema}},
        {"type": "function", "name": "g", "parameters": schema},
        {"name": "g", "input_schema": schema},
        {"name": "g", "inputSchema": schema},
        {"type": "custom", "name": "g", "input_schema": schema},
        {"type": "function", "function": {"name": "g", "parameters": json.dumps(schema)}},
        Tool(name="g", schema=Raw(json.dumps(schema).encode())),
    ]
    found = [scan_text(text, [shape]).calls[0].arguments for shape in shapes]
    assert found == ['{"n":3}'] * len(shapes)
    assert scan_text(text, ["g"]).calls[0].arguments == '{"n":"3"}'
    assert scan_text(text, [None, 7, {}, {"name": ""}, ""]).calls == ()


def test_tool_with_free_text_is_called_with_its_text() -> None:
    tool = {"type": "custom", "name": "note", "format": {"type": "text"}}
    scanner = TextScanner([tool])
    text = '<tool_call>{"name": "note", "arguments": {"input": "a \\"b\\""}}</tool_call>'
    events = [*scanner.feed(text), *scanner.finish()]
    ended = [event.value for event in events if isinstance(event, PartEnded)]
    assert [(one.kind, one.input) for one in ended if isinstance(one, Call)] == [
        ("custom", 'a "b"')
    ]


def test_stage_is_made_only_where_a_tool_may_be_called() -> None:
    tool = Tool(name="f")
    other = Tool(name="g")
    assert stage_for(Request()) is None
    assert stage_for(Request(tools=(Tool(name="s", kind="web_search"),))) is None
    assert stage_for(Request(tools=(tool,), tool_choice=ToolChoice(mode="none"))) is None
    assert stage_for(Request(tools=(tool,))) is not None
    only = ToolChoice(mode="allowed", allowed=(ToolRef("h"),))
    assert stage_for(Request(tools=(tool, other), tool_choice=only)) is None


def test_scanner_emits_parts_in_order_and_ends_them() -> None:
    scanner = TextScanner(TOOLS, seed="s")
    events = [*scanner.feed(f"Hi {CALL} bye"), *scanner.finish("stop")]
    assert [(type(event).__name__, getattr(event, "part", None)) for event in events] == [
        ("PartStarted", 0),
        ("TextDelta", 0),
        ("PartEnded", 0),
        ("PartStarted", 1),
        ("InputDelta", 1),
        ("PartEnded", 1),
        ("PartStarted", 2),
        ("TextDelta", 2),
        ("PartEnded", 2),
    ]
    assert scanner.calls == 1
    assert scanner.finish("stop") == ()


def test_after_too_many_openers_that_begin_no_call_all_is_text() -> None:
    openers = "<tool_call>." * (MAX_FAILED - 10)
    scan = scan_text(f"{openers}{CALL}", TOOLS)
    assert [call.name for call in scan.calls] == ["f"]
    text = f"{openers}{'<tool_call>.' * 20}{CALL}"
    scan = scan_text(text, TOOLS)
    assert (scan.calls, scan.text) == ((), text)
    assert [problem.kind for problem in scan.problems] == ["limit"]
