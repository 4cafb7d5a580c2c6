"""The very text that each format makes of one call, and of two."""

import pytest

from dragoman._json import Raw
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.textcalls.prompting import PROMPT_FORMATS, prompt_tools

SCHEMA = Raw(b'{"type":"object","properties":{"k":{"type":"string"},"n":{"type":"integer"}}}')
TOOLS = (Tool(name="f", schema=SCHEMA), Tool(name="g"))
FIRST = Call(call_id="abcdefgh1", name="f", input='{"k": "v", "n": 2}')
SECOND = Call(call_id="abcdefgh2", name="g", input="{}")

OBJECT = '{"name": "f", "arguments": {"k": "v", "n": 2}}'
OTHER = '{"name": "g", "arguments": {}}'
ARRAY = f"[{OBJECT}, {OTHER}]"
FORMS: dict[str, str] = {
    "hermes": f"<tool_call>\n{OBJECT}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>",
    "mistral": (
        '[TOOL_CALLS] [{"name": "f", "arguments": {"k": "v", "n": 2}, "id": "abcdefgh1"}, '
        '{"name": "g", "arguments": {}, "id": "abcdefgh2"}]'
    ),
    "mistral_named": '[TOOL_CALLS]f[ARGS]{"k": "v", "n": 2}[TOOL_CALLS]g[ARGS]{}',
    "deepseek_v3": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"k": "v", "n": 2}\n```'
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>"
    ),
    "deepseek_v31": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"k": "v", "n": 2}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi_k2": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"k": "v", "n": 2}'
        "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    ),
    "bare_json": '{"name": "f", "parameters": {"k": "v", "n": 2}}; {"name": "g", "parameters": {}}',
    "python_tag": '<|python_tag|>{"name": "f", "parameters": {"k": "v", "n": 2}}; {"name": "g", "parameters": {}}',
    "functionary_v31": '<function=f>{"k": "v", "n": 2}</function>\n<function=g>{}</function>',
    "command": (
        '<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "f", "parameters": {"k": "v", "n": 2}},\n'
        '{"tool_call_id": "1", "tool_name": "g", "parameters": {}}\n]<|END_ACTION|>'
    ),
    "tool_calls_array": f"<tool_calls>{ARRAY}</tool_calls>",
    "minimax_m1": f"<tool_calls>\n{OBJECT}\n{OTHER}\n</tool_calls>",
    "nemotron": f"<TOOLCALL>{ARRAY}</TOOLCALL>",
    "granite": f"<|tool_call|>{ARRAY}",
    "granite_20b": f"<function_call> {OBJECT}\n<function_call> {OTHER}",
    "internlm": (
        '<|action_start|><|plugin|>{"name": "f", "parameters": {"k": "v", "n": 2}}<|action_end|>\n'
        '<|action_start|><|plugin|>{"name": "g", "parameters": {}}<|action_end|>'
    ),
    "functools": f"functools{ARRAY}",
    "apertus": '<|tools_prefix|>[{"f": {"k": "v", "n": 2}}, {"g": {}}]<|tools_suffix|>',
    "longcat": (
        f"<longcat_tool_call>{OBJECT}</longcat_tool_call>\n<longcat_tool_call>{OTHER}</longcat_tool_call>"
    ),
    "dots_json": (
        f"<dots_function_call>{OBJECT}</dots_function_call>\n<dots_function_call>{OTHER}</dots_function_call>"
    ),
    "inkling": (
        '<|content_invoke_tool_json|>{"name": "f", "args": {"k": "v", "n": 2}}<|end_message|>\n'
        '<|content_invoke_tool_json|>{"name": "g", "args": {}}<|end_message|>'
    ),
    "harmony": (
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"k": "v", "n": 2}<|call|>'
        "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}<|call|>"
    ),
    "react": 'Action: f\nAction Input: {"k": "v", "n": 2}\nAction: g\nAction Input: {}',
    "use_tool": (
        "<use_tool>\n<name>f</name>\n<k>v</k>\n<n>2</n>\n</use_tool>\n<use_tool>\n<name>g</name>\n</use_tool>"
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>"
    ),
    "glm": (
        "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n"
        "</tool_call>\n<tool_call>g\n</tool_call>"
    ),
    "anthropic": (
        '<function_calls>\n<invoke name="f">\n<parameter name="k">v</parameter>\n<parameter name="n">2</parameter>\n'
        '</invoke>\n<invoke name="g">\n</invoke>\n</function_calls>'
    ),
    "deepseek_v32": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="k" string="true">v</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="n" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="g">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    ),
    "deepseek_v4": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="k" string="true">v</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="n" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="g">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
    ),
    "seed_oss": (
        "<seed:tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n"
        "</seed:tool_call>\n<seed:tool_call>\n<function=g>\n</function>\n</seed:tool_call>"
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="k">v</parameter>\n'
        '<parameter name="n">2</parameter>\n</invoke>\n<invoke name="g">\n</invoke>\n</minimax:tool_call>'
    ),
    "hunyuan": (
        "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n<arg_key>n</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>g<tool_sep>\n</tool_call>\n</tool_calls>"
    ),
    "dots": (
        '<dots_function_call>\n<invoke name="f">\n<parameter name="k">v</parameter>\n'
        '<parameter name="n">2</parameter>\n</invoke>\n<invoke name="g">\n</invoke>\n</dots_function_call>'
    ),
    "muse": (
        '<atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="k">v</atem:parameter>\n'
        '<atem:parameter name="n">2</atem:parameter>\n</atem:invoke>\n<atem:invoke name="g">\n</atem:invoke>\n'
        "</atem:function_calls>"
    ),
    "minicpm": (
        '<function name="f"><param name="k">v</param><param name="n">2</param></function>\n<function name="g"></function>'
    ),
    "step3": (
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">'
        '<steptml:parameter name="k">v</steptml:parameter><steptml:parameter name="n">2</steptml:parameter>'
        "</steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="g"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>'
    ),
    "kimi_k3": (
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="k" type="string"<|sep|>v'
        '<|close|>argument<|sep|><|open|>argument key="n" type="number"<|sep|>2<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="g" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
    ),
    "tool_tags": "<f>\n<k>v</k>\n<n>2</n>\n</f>\n<g>\n</g>",
    "pythonic": '[f(k="v", n=2), g()]',
    "llama4": '<|python_start|>[f(k="v", n=2), g()]<|python_end|>',
    "olmo3": '<function_calls>\nf(k="v", n=2)\ng()\n</function_calls>',
    "lfm2": '<|tool_call_start|>[f(k="v", n=2), g()]<|tool_call_end|>',
    "tool_code": '```tool_code\nf(k="v", n=2)\ng()\n```',
    "gemma4": '<|tool_call>call:f{k:<|"|>v<|"|>,n:2}<tool_call|><|tool_call>call:g{}<tool_call|>',
    "functiongemma": (
        "<start_function_call>call:f{k:<escape>v<escape>,n:2}<end_function_call>"
        "<start_function_call>call:g{}<end_function_call>"
    ),
}  # fmt: skip


def test_every_format_is_here() -> None:
    assert set(FORMS) == set(PROMPT_FORMATS)


@pytest.mark.parametrize("name", PROMPT_FORMATS)
def test_two_calls_in_one_turn(name: str) -> None:
    results = tuple(
        Result(call_id=call.call_id, content=(Text(text="ok"),)) for call in (FIRST, SECOND)
    )
    turns = (
        Turn(role="assistant", parts=(FIRST, SECOND)),
        Turn(role="tool", parts=results),
    )
    prompted = prompt_tools(Request(model="m", turns=turns, tools=TOOLS), name)
    assert prompted.request.turns[1].parts == (Text(text=FORMS[name]),)
    assert not prompted.losses
    assert not prompted.repairs
