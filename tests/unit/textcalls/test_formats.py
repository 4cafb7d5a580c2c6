"""Corners of single formats: what models really write, and what they get wrong."""

import json

import pytest
from msgspec.structs import replace

from dragoman.model.events import PartEnded
from dragoman.model.parts import Reasoning
from dragoman.textcalls import PATTERNS, PatternRegistry, TextScanner, scan_text
from dragoman.textcalls.registry import formats_of_model

LEAKED = "antml" + ":"
SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "n": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "place": {"type": "object", "properties": {"zip": {"type": "string"}}},
    },
}
TOOLS = [
    {"name": "f", "input_schema": SCHEMA},
    {"name": "only", "input_schema": {"properties": {"q": {"type": "string"}}}},
]
NS = "]<]minimax[>["

FOUND: list[tuple[str, str, object]] = [
    # JSON: the vendor's own shape, arguments as a string, none at all, before the name, with a bare line break
    ("hermes", '<tool_call>{"type":"function","function":{"name":"f","arguments":{"q":"x"}}}</tool_call>', {"q": "x"}),
    ("hermes", '<tool_call>{"name":"f","arguments":"{\\"q\\": \\"x\\"}"}</tool_call>', {"q": "x"}),
    ("hermes", '<tool_call>{"name":"f","arguments":""}</tool_call>', {}),
    ("hermes", '<tool_call>{"name":"f","arguments":null}</tool_call>', {}),
    ("hermes", '<tool_call>{"arguments":{"q":"x"},"name":"f","more":[1,{"a":2}]}</tool_call>', {"q": "x"}),
    ("hermes", '<tool_call>{"function":"f","arguments":{"q":"a\nb"}}</tool_call>', {"q": "a\nb"}),
    ("hermes", '<tool_call>{"name":"f","arguments":{"q":"\\u00e9\\n"}}', {"q": "é\n"}),
    ("apertus", '<|tools_prefix|>[{"f": "{\\"q\\":\\"x\\"}"}]<|tools_suffix|>', {"q": "x"}),
    # a header before the arguments
    ("mistral_named", '[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"q": "x"}', {"q": "x"}),
    ("functionary_v31", '<function=f>"{\\"q\\":\\"x\\"}"</function>', {"q": "x"}),
    ("functionary_v31", '<function=f>{"q":"x"} and so on', {"q": "x"}),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_calls_section_end|>", {}),
    ("kimi_k2", '<|tool_call_section_begin|><|tool_call_begin|>f:12 \n<|tool_call_argument_begin|>{"q":"x"}<|tool_call_end|><|tool_call_section_end|>', {"q": "x"}),
    ("harmony", '<|start|>assistant to=functions.f<|channel|>commentary<|message|>{"q":"x"}', {"q": "x"}),
    # tags
    ("anthropic", "<function_calls><invoke name='f'><parameter name=q>x</parameter></invoke></function_calls>", {"q": "x"}),
    ("anthropic", '<function_calls><invoke name="f"><parameter name="q"/></invoke></function_calls>', {"q": ""}),
    ("invoke", '   <invoke name="f">\n<parameter name="n">7</parameter>\n</invoke>', {"n": 7}),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=q>\n\n two\n\n</parameter>\n</function>\n</tool_call>", {"q": "\n two\n"}),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=n>\n7\n</function>\n</tool_call>", {"n": 7}),
    ("deepseek_v32", '<｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="extra" string="true">7</｜DSML｜parameter><｜DSML｜parameter name="more" string="false">[7]</｜DSML｜parameter><｜DSML｜parameter name="none">7</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>', {"extra": "7", "more": [7], "none": "7"}),
    ("dsml_invoke", '<｜DSML｜invoke name="f"/>', {}),
    ("minimax_m3", f'{NS}<tool_call>{NS}<invoke name="f">{NS}<place>{NS}<zip>1{NS}</zip>{NS}</place>{NS}<tags>{NS}<item>1{NS}</item>{NS}<item>2{NS}</item>{NS}</tags>{NS}</invoke>{NS}</tool_call>', {"place": {"zip": "1"}, "tags": [1, 2]}),
    ("minimax_m3", f'{NS}<tool_call>{NS}<invoke name="f">{NS}<x>{NS}<a>1{NS}</a>{NS}<a>2{NS}</a>{NS}</x>{NS}</invoke>{NS}</tool_call>', {"x": ["1", "2"]}),
    # pairs
    ("glm", "<tool_call>f<arg_key>q</arg_key><arg_key>n</arg_key><arg_value>7</arg_value></tool_call>", {"n": 7}),
    # Python
    ("lfm2", "<|tool_call_start|>[f(q='it's', n=7)]<|tool_call_end|>", {"q": "it's", "n": 7}),
    ("lfm2", "<|tool_call_start|>[f(q=\"\"\"a 'b'\"\"\", tags=(1, 2,),)]<|tool_call_end|>", {"q": "a 'b'", "tags": [1, 2]}),
    ("tool_code", "```tool_code\nf(q='x')\n```", {"q": "x"}),
    # Gemma's notation
    ("gemma4", '<|tool_call>call:f{<|"|>q<|"|>: <|"|>x<|"|>, "n": 7, tags: [ ], word: plain}<tool_call|>', {"q": "x", "n": 7, "tags": [], "word": "plain"}),
    # no sentinel
    ("react", "Action: f\nAction Input: {'q': 'x'}", {"q": "x"}),
    ("react", 'Action: f\nAction Input: ```json\n{"q": "x"}\n```\nObservation:', {"q": "x"}),
    ("react", "Action: f\nAction Input: x\nObservation:", {"input": "x"}),
    ("react", "Action: f\nAction Input:\nObservation:", {}),
    ("command_r", 'Action: ```json\n[{"tool_name": "f", "parameters": {"q": "x"}}]\n```', {"q": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "arguments"), FOUND)
def test_call_is_found(name: str, text: str, arguments: object) -> None:
    scan = scan_text(text, TOOLS, formats=name)
    assert [(call.name, json.loads(call.arguments)) for call in scan.calls] == [("f", arguments)]
    assert scan.text.strip() in ("", "and so on")


def test_text_for_a_tool_with_one_parameter_is_that_parameter() -> None:
    scan = scan_text("Action: only\nAction Input: some words\n", TOOLS, formats="react")
    assert json.loads(scan.calls[0].arguments) == {"q": "some words"}


TEXT = [
    ("hermes", '<tool_call>{"name":"f"}</tool_call>'),
    ("hermes", '<tool_call>{"arguments":{}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":[1]}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":"words"}</tool_call>'),
    ("hermes", "<tool_call>{}</tool_call>"),
    ("hermes", '<tool_call>{"what":1}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":{"q":"\\x"}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":{"q":"\\u00zz"}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":{"n":01}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":{"n":1,}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":{"n" 1}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":{"n":[1 2]}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"' + "f" * 200 + '","arguments":{}}</tool_call>'),
    ("hermes", '<tool_call>{"name":"f","arguments":' + '{"a":' * 120 + "1" + "}" * 121 + "</tool_call>"),
    ("apertus", '<|tools_prefix|>[{"f": {}, "g": {}}]<|tools_suffix|>'),
    ("mistral_named", "[TOOL_CALLS]"),
    ("mistral_named", "[TOOL_CALLS]f"),
    ("mistral_named", "[TOOL_CALLS] is a token"),
    ("kimi_k2", "<|tool_calls_section_begin|>f<|tool_calls_section_end|>"),
    ("qwen3_coder", "<tool_call>\n<function=>\n</function>\n</tool_call>"),
    ("qwen3_coder", "<tool_call>\n<function=f>\nwords\n</function>\n</tool_call>"),
    ("anthropic", "<function_calls>\n<invoke>\n</invoke>\n</function_calls>"),
    ("minicpm", '<function name="f"><param>x</param></function>'),
    ("minimax_m3", f'{NS}<tool_call>{NS}<invoke name="f">{NS}<q>1{NS}</n>{NS}</invoke>{NS}</tool_call>'),
    ("minimax_m3", f'{NS}<tool_call>{NS}<invoke name="f">{NS}<q>1'),
    ("glm", "<tool_call>not a name\n</tool_call>"),
    ("glm", "<tool_call></tool_call>"),
    ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>"),
    ("lfm2", "<|tool_call_start|>[f(q=open('x'))]<|tool_call_end|>"),
    ("lfm2", "<|tool_call_start|>[f(q='x') f()]<|tool_call_end|>"),
    ("lfm2", "<|tool_call_start|>[f(q='x' n=1)]<|tool_call_end|>"),
    ("lfm2", "<|tool_call_start|>[f(tags=[" + "[" * 120 + "]" * 120 + "])]<|tool_call_end|>"),
    ("gemma4", "<|tool_call>call:f{q:}<tool_call|>"),
    ("gemma4", "<|tool_call>call:f{q:1 ]}<tool_call|>"),
    ("gemma4", "<|tool_call>call:f{tags:[1}<tool_call|>"),
    ("gemma4", "<|tool_call>call:f{" + "a:{" * 120 + "<tool_call|>"),
    ("gemma4", "<|tool_call>call:{}<tool_call|>"),
    ("harmony", "<|channel|>nowhere<|message|>words"),
    ("harmony", "<|channel|>commentary to=functions.f<|message|>words"),
    ("harmony", "<|start|>assistant<|message|>words"),
    ("react", "Action: g\nAction Input: {}"),
    ("react", "Action: f\nAction Input: {oops"),
    ("tool_tags", "<f>words</f>"),
    ("hunyuan_suffixed", "<tool_calls:a b>"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), TEXT)
def test_what_is_no_call_is_text(name: str, text: str) -> None:
    scan = scan_text(text, TOOLS, formats=name)
    assert scan.calls == ()
    assert scan.text == text


def test_calls_before_a_malformed_one_stand() -> None:
    text = (
        '<tool_calls>[{"name":"f","arguments":{}},{"name":"f","arguments":{]}}]</tool_calls> after'
    )
    scan = scan_text(text, TOOLS)
    assert len(scan.calls) == 1
    assert scan.text == ',{"name":"f","arguments":{]}}]</tool_calls> after'


def test_two_functions_in_one_block_are_two_calls() -> None:
    one = "<function=f>\n<parameter=n>\n7\n</parameter>\n</function>\n"
    assert len(scan_text(f"<tool_call>\n{one}{one}</tool_call>", TOOLS).calls) == 2


def test_opener_shared_by_formats_is_settled_by_what_follows() -> None:
    texts = {
        "hermes": '<tool_call>{"name":"f","arguments":{}}</tool_call>',
        "qwen3_coder": "<tool_call>\n<function=f>\n</function>\n</tool_call>",
        "glm": "<tool_call>f\n</tool_call>",
        "tool_calls_array": '<tool_calls>[{"name":"f","arguments":{}}]</tool_calls>',
        "minimax_m1": '<tool_calls>\n{"name":"f","arguments":{}}\n</tool_calls>',
        "hunyuan": "<tool_calls><tool_call>f<tool_sep></tool_call></tool_calls>",
        "anthropic": '<function_calls><invoke name="f"></invoke></function_calls>',
        "olmo3": "<function_calls>f()</function_calls>",
        "functionary_v31": "<function=f>{}</function>",
        "qwen3_coder_bare": "<function=f></function>",
        "mistral": '[TOOL_CALLS] [{"name":"f","arguments":{}}]',
        "mistral_named": "[TOOL_CALLS]f{}",
    }
    found = {
        name: [call.pattern for call in scan_text(text, TOOLS).calls]
        for name, text in texts.items()
    }
    assert found == {name: [name] for name in texts}


def test_leaked_markup_is_found() -> None:
    text = f'<{LEAKED}function_calls><{LEAKED}invoke name="f"></{LEAKED}invoke></{LEAKED}function_calls>'
    assert [call.pattern for call in scan_text(text, TOOLS).calls] == ["anthropic_leaked"]


def test_channels_become_thoughts_text_and_calls() -> None:
    text = (
        "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>final<|message|>Words."
        '<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"q":"x"}<|call|>'
    )
    scan = scan_text(text, TOOLS, model="gpt-oss-120b")
    assert (scan.thoughts, scan.text, len(scan.calls)) == ("I think.", "Words.", 1)
    scanner = TextScanner(TOOLS, model="gpt-oss-120b")
    events = [event for piece in text for event in scanner.feed(piece)] + [*scanner.finish()]
    ended = [event.value for event in events if isinstance(event, PartEnded)]
    assert ended[0] == Reasoning(content=("I think.",))


def test_thoughts_behind_text_end_its_part() -> None:
    scanner = TextScanner(TOOLS, model="command-a-03-2025")
    events = [*scanner.feed("Hm.<|START_THINKING|>why<|END_THINKING|>So."), *scanner.finish()]
    assert [type(event).__name__ for event in events] == [
        *("PartStarted", "TextDelta", "PartEnded"),
        *("PartStarted", "ReasoningDelta", "PartEnded"),
        *("PartStarted", "TextDelta", "PartEnded"),
    ]


def test_streamed_string_loses_one_line_break_on_either_side() -> None:
    pattern = next(one for one in PATTERNS.snapshot() if one.name == "qwen3_coder")
    registry = PatternRegistry((replace(pattern, stream_args=True),))
    for value in ("\nx\n", "\r\nx\r\n", "x", "\n\nx\n\n", "\n", "", "\r", "x\r"):
        text = f"<tool_call>\n<function=f>\n<parameter=q>{value}</parameter>\n<parameter=n>7</parameter></function></tool_call>"
        whole = scan_text(text, TOOLS, formats="qwen3_coder").calls[0].arguments
        streamed = scan_text(text, TOOLS, registry=registry).calls[0].arguments
        assert json.loads(streamed) == json.loads(whole)


def test_profiles_are_matched_with_and_without_the_vendor() -> None:
    assert formats_of_model("Meta-Llama/LLAMA-3.3-70B") == ("bare_json",)
    assert "command_thoughts" in formats_of_model("CohereForAI/c4ai-command-r7b")
    assert formats_of_model("gpt-5") == formats_of_model(None) == ()


def test_bare_line_break_in_a_string_is_put_right_and_reported() -> None:
    scan = scan_text('<tool_call>{"name":"f","arguments":{"q":"a\nb"}}</tool_call>', TOOLS)
    assert scan.calls[0].arguments == '{"q":"a\\u000ab"}'
    assert [problem.kind for problem in scan.problems] == ["repaired"]
