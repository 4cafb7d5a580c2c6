"""Blocks with something missing or wrong, and marks that are only mentioned: never a call that was not written, no text lost."""

import json

import pytest

from dragoman.textcalls import scan_text

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "tags": {"type": "array"}},
}
TOOLS = [{"name": "f", "input_schema": SCHEMA}]
NS = "]<]minimax[>["


@pytest.mark.parametrize(
    "text",
    [
        # a parameter without its closing tag, before another parameter or another call
        '<invoke name="f"><parameter name="a">x<parameter name="b">1</parameter></invoke>',
        '<invoke name="f"><parameter name="a">x</invoke>\n<invoke name="f"><parameter name="b">1</parameter></invoke>',
        '<minimax:tool_call><invoke name="f"><parameter name="a">x\n<parameter name="b">1</parameter></invoke></minimax:tool_call>',
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x\n<arg_key>b</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_value>\n<arg_value>x</arg_value>\n<arg_key>b</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "<use_tool><name>f</name><a>x</a>\n<use_tool><name>f</name><b>1</b></use_tool>",
        # attributes that are none
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="string<|sep|>x<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        # a bracket too many: what follows was meant to be in the call
        '<tool_call>{"name": "f", "arguments": {"a": "x"}, "b": 1}}</tool_call>',
        '<function=f>{"a": "x"}, "b": 1}</function>',
        '<|tool_call>call:f{a:<|"|>x<|"|>},b:1}<tool_call|>',
        '<|tool_call>call:f{a:<|"x<|"|>,b:1}<tool_call|>',
        "<|tool_call>call:f{b:1:}<tool_call|>",
        "<|tool_call>call:f{b:null oops}<tool_call|>",
        # an argument without its sign or its comma
        "<|python_start|>[f(a='x', b1, tags='y')]<|python_end|>",
        "<|python_start|>[f(a='x' b='y')]<|python_end|>",
        "<function_calls>\nf(a='x', b1)\nf(a='y', b=2)\n</function_calls>",
    ],
)
def test_damaged_block_is_text_and_no_other_call(text: str) -> None:
    scan = scan_text(f"So:\n{text}\nThere.", TOOLS)
    assert (scan.calls, scan.text) == ((), f"So:\n{text}\nThere.")
    assert "malformed" in [problem.kind for problem in scan.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<invoke name="f"><parameter name="a">one\ntwo\n</parameter></invoke>', "one\ntwo\n"),
        ('<invoke name="f"><parameter name="a">\none</parameter></invoke>', "\none"),
        ('<invoke name="f"><parameter name="a">\none\n</parameter></invoke>', "one"),
        ('<function name="f"><param name="a">one\r\n</param></function>', "one\r\n"),
        ("<tool_call>\n<function=f>\n<parameter=a>\none\n\n</parameter>\n</function>\n</tool_call>", "one\n"),
        (f'{NS}<tool_call>{NS}<invoke name="f">{NS}<a>one\n{NS}</a>{NS}</invoke>{NS}</tool_call>', "one\n"),
        ('<invoke name="f"><parameter name="a">see </invoke> there</parameter></invoke>', "see </invoke> there"),
        ("<|python_start|>[f(a='it's, so to say')]<|python_end|>", "it's, so to say"),
    ],
)  # fmt: skip
def test_string_keeps_its_own_line_breaks_and_markup(text: str, value: str) -> None:
    assert [json.loads(call.arguments) for call in scan_text(text, TOOLS).calls] == [{"a": value}]


def test_calls_of_gigachat_may_follow_one_another_without_an_end() -> None:
    opener = "<|message_sep|>\n\nfunction call<|role_sep|>\n"
    text = "".join(f'{opener}{{"name": "f", "arguments": {{"b": {number}}}}}' for number in (1, 2))
    scan = scan_text(text, TOOLS)
    assert [call.arguments for call in scan.calls] == ['{"b": 1}', '{"b": 2}']
    assert scan.text == ""


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("gpt-oss-120b", "The <|message|> token follows, and <|end|> or <|call|> ends it."),
        ("gpt-oss-120b", 'Hm. <|channel|>commentary tofunctions.f <|constrain|>json<|message|>{"b": 1}<|call|>'),
        ("dots.llm1", "Between <dots_function_call> and </dots_function_call> is JSON."),
        ("dots.llm1", '<dots_function_call>{"name" "f", "arguments": {}}</dots_function_call>'),
        ("muse-glimmer", "Set to=user or to=self and <|eom|> as you like."),
        ("muse-glimmer", '<|start|>assistant to=ghost<|message|><atem:function_calls>\n<atem:invoke name="ghost">\n</atem:invoke>\n</atem:function_calls><|eot|>'),
        ("muse-glimmer", 'So.<|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name="f"'),
        ("llama-4-scout", "| <|python_start|> | <|python_end|> |\nare [1, 2] and [f](x)."),
    ],
)  # fmt: skip
def test_marks_that_are_mentioned_or_belong_to_a_block_that_is_text_stay(
    model: str, text: str
) -> None:
    scan = scan_text(text, TOOLS, model=model)
    assert (scan.calls, scan.text) == ((), text)


@pytest.mark.parametrize(
    ("model", "text", "kept"),
    [
        ("gpt-oss-120b", "<|channel|>final<|message|>Hello.<|return|>", "Hello."),
        ("gpt-oss-120b", "<|message|>Hello.<|end|>\n", "Hello.\n"),
        ("dots.llm1", "Hello.</dots_function_call>", "Hello."),
        ("muse-glimmer", " to=user<|message|>Hello.<|eot|>", "Hello."),
        ("muse-glimmer", "<|start|>assistant to=user<|message|>Hello.<|eom|><|start|>assistant to=user<|message|>Bye.<|eot|>", "Hello.Bye."),
    ],
)  # fmt: skip
def test_marks_around_an_answer_are_removed(model: str, text: str, kept: str) -> None:
    assert scan_text(text, TOOLS, model=model).text == kept


def test_call_of_muse_whose_header_lost_its_beginning_is_a_call() -> None:
    text = ' to=f<|message|><atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="b">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>'
    scan = scan_text(text, TOOLS, model="muse-glimmer")
    assert [call.arguments for call in scan.calls] == ['{"b":1}']
    assert scan.text == ""
