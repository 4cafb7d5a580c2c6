"""The many ways in which models really write one and the same call, found by `auto` or by the profile of a model."""

import json

import pytest

from dragoman.textcalls import scan_text

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "opt": {"type": "object"},
        "either": {"type": ["string", "null"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
]
CALL = ("get_weather", {"city": "Paris"})
NOW: tuple[str, object] = ("now", {})
OBJECT = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
NONE = '{"name": "now", "arguments": {}}'
DSML = "｜DSML｜"
NS = "]<]minimax[>["
SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
V3 = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>'
V31 = '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>'
KIMI = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
HARMONY = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
INVOKE = '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>'
MUSE = '<atem:function_calls><atem:invoke name="get_weather"><atem:parameter name="city">Paris</atem:parameter></atem:invoke></atem:function_calls>'
QWEN = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
PAIRS = "get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"

ONE = [
    # JSON in tags: spacing, missing closer, other keys, the vendor's shapes, a fence of its own
    f"<tool_call>{OBJECT}</tool_call>",
    f"<tool_call>\r\n{OBJECT}\r\n</tool_call>",
    f"<tool_call>{OBJECT}",
    f"<tool_call>```json\n{OBJECT}\n```</tool_call>",
    f"<tool_call>[{OBJECT}]</tool_call>",
    '<tool_call>{"name": "get_weather", "parameters": {"city": "Paris"}}</tool_call>',
    '<tool_call>{"name": "get_weather", "args": {"city": "Paris"}}</tool_call>',
    '<tool_call>{"name": "get_weather", "input": {"city": "Paris"}}</tool_call>',
    '<tool_call>{"tool": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
    '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>',
    '<tool_call>{"name": "functions.get_weather", "arguments": {"city": "Paris"}}</tool_call>',
    '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
    '<tool_call>{"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}}</tool_call>',
    '<tool_call>{"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}</tool_call>',
    f"<tool_calls>[{OBJECT}]",
    f"<tool_calls>{OBJECT}</tool_calls>",
    f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
    f"<|tool_call|>[{OBJECT}]",
    f"<function_call> {OBJECT}",
    f"<|action_start|> <|plugin|>\n{OBJECT}<|action_end|>",
    f"functools[{OBJECT}]",
    f"<|python_tag|>{OBJECT}",
    f"[TOOL_CALLS] [{OBJECT}]",
    f"[TOOL_CALLS]{OBJECT}",
    f"<|message_sep|>\n\nfunction call<|role_sep|>\n{OBJECT}",
    f"<longcat_tool_call>{OBJECT}</longcat_tool_call>",
    '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>',
    'Action: ```json\n[{"tool_name": "get_weather", "parameters": {"city": "Paris"}}]```',
    '<|tools_prefix|>[{"get_weather": {"city": "Paris"}}]',
    '<|tools_prefix|>[{"get_weather": {"city": "Paris"}<|tools_suffix|>',
    # a header and JSON
    '[TOOL_CALLS]get_weather{"city": "Paris"}',
    '[TOOL_CALLS] get_weather {"city": "Paris"}',
    '[TOOL_CALLS]get_weather[CALL_ID]abc123def[ARGS]{"city": "Paris"}',
    f"{SECTION[0]}{V3}{SECTION[1]}",
    f"{SECTION[0]}\n{V3}",
    f"{SECTION[0]}{V31}{SECTION[1]}",
    V3,
    V31,
    f"<|tool_calls_section_begin|>{KIMI}<|tool_calls_section_end|>",
    f"<|tool_call_section_begin|>\n{KIMI}\n<|tool_call_section_end|>",
    f"<|tool_calls_section_begin|>{KIMI.removesuffix('<|tool_call_end|>')}<|tool_calls_section_end|>",
    f"<|tool_calls_section_begin|>{KIMI.replace('functions.get_weather:0', ':5')}<|tool_calls_section_end|>",
    f"<|tool_calls_section_begin|>{KIMI.replace('functions.get_weather:0', '5')}<|tool_calls_section_end|>",
    KIMI,
    '<function=get_weather>{"city": "Paris"}</function>',
    '<function=get_weather>{"city": "Paris"}',
    HARMONY,
    f"<|start|>assistant{HARMONY}",
    HARMONY.removesuffix("<|call|>"),
    HARMONY.replace(" <|constrain|>json", ""),
    '<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    # tags: missing ones, quotes, namespaces, what stands around them
    f"<tool_call>\n{QWEN}\n</tool_call>",
    f"<tool_call>{QWEN.replace(chr(10), '')}</tool_call>",
    f"<tool_call>\n{QWEN}",
    QWEN,
    f"{QWEN}\n</tool_call>",
    f"<tool_call>\n{QWEN.replace('</parameter>' + chr(10), '')}\n</tool_call>",
    f"<tool_call>\n{QWEN.replace('</function>', '')}</tool_call>",
    f"<tool_call>\n{QWEN.replace('=get_weather', '=' + chr(34) + 'get_weather' + chr(34))}\n</tool_call>",
    f"<seed:tool_call>\n{QWEN}\n</seed:tool_call>",
    f"<function_calls>\n{INVOKE}\n</function_calls>",
    f"<function_calls>{INVOKE}",
    f"<minimax:tool_call>\n{INVOKE}\n</minimax:tool_call>",
    f"<minimax:tool_call>{INVOKE.replace(chr(34), chr(39))}</minimax:tool_call>",
    f"<minimax:tool_call>{INVOKE.replace(chr(34), '')}</minimax:tool_call>",
    f"<dots_function_call>{INVOKE}</dots_function_call>",
    INVOKE,
    INVOKE.replace("\n", "\n    "),
    MUSE,
    f"<|start|>assistant to=get_weather<|message|>{MUSE}",
    f'<{DSML}function_calls>\n<{DSML}invoke name="get_weather">\n<{DSML}parameter name="city" string="true">Paris</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}function_calls>',
    f'<{DSML}tool_calls><{DSML}invoke name="get_weather">{{"city": "Paris"}}</{DSML}invoke></{DSML}tool_calls>',
    f'<{DSML}tool_calls><{DSML}invoke name="get_weather"><{DSML}parameter name="arguments" string="false">{{"city": "Paris"}}</{DSML}parameter></{DSML}invoke></{DSML}tool_calls>',
    '<function name="get_weather"><param name="city"><![CDATA[Paris]]></param></function>',
    '<function name="get_weather"><param name="city">\n<![CDATA[Paris]]>\n</param></function>',
    f'{NS}<tool_call>\n{NS}<invoke name="get_weather">\n{NS}<city>Paris{NS}</city>\n{NS}</invoke>\n{NS}</tool_call>',
    "<use_tool>\n<name>get_weather</name>\n<city>Paris</city>\n</use_tool>",
    "<use_tool><name>get_weather</name><city>Paris</city>",
    "<use_tool><name>get_weather</name><city><![CDATA[Paris]]></city></use_tool>",
    # pairs
    f"<tool_call>{PAIRS}</tool_call>",
    f"<tool_call>\n{PAIRS}</tool_call>",
    f"<tool_call>{PAIRS.replace(chr(10), '')}</tool_call>",
    "<tool_calls><tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call></tool_calls>",
    # Python and Gemma
    '<|python_start|>[get_weather(city="Paris")]<|python_end|>',
    "<|tool_call_start|>[get_weather(city='Paris',)]<|tool_call_end|>",
    '<|tool_call_start|>get_weather(city="Paris")<|tool_call_end|>',
    f"<|tool_call_start|>[{OBJECT}]<|tool_call_end|>",
    '<function_calls>\nget_weather(city="Paris")\n</function_calls>',
    '```tool_code\nget_weather(city="Paris")\n```',
    '```tool_code\nprint(get_weather(city="Paris"))\n```',
    '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    "<start_function_call>call:get_weather{city:<escape>Paris<escape>}",
]  # fmt: skip


@pytest.mark.parametrize("text", ONE)
def test_call_is_found_by_auto(text: str) -> None:
    scan = scan_text(text, TOOLS)
    assert [(call.name, json.loads(call.arguments)) for call in scan.calls] == [CALL]
    assert scan.text == ""
    assert scan.problems == ()


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{OBJECT}</tool_call><tool_call>{NONE}</tool_call>",
        f"<tool_call>{OBJECT}<tool_call>{NONE}",
        f"<tool_call>\n{OBJECT}\n{NONE}\n</tool_call>",
        f"<tool_calls>\n{OBJECT}\n{NONE}\n</tool_calls>",
        f"<|tool_call|>[{OBJECT},{NONE}]",
        f"<function_call> {OBJECT} <function_call> {NONE}",
        f"<|python_tag|>{OBJECT}; {NONE}",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[ARGS]{}',
        '<function=get_weather>{"city": "Paris"}</function><function=now>{}</function>',
        f"{HARMONY}<|start|>assistant<|channel|>commentary to=functions.now<|message|>{{}}<|call|>",
        f"<tool_call>\n{QWEN}\n<function=now>\n</function>\n</tool_call>",
        f"<tool_call>{PAIRS}</tool_call><tool_call>now</tool_call>",
        f'<function_calls>{INVOKE}<invoke name="now"/></function_calls>',
        '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|><|tool_call_start|>[now()]<|tool_call_end|>',
    ],
)
def test_calls_one_after_the_other_are_all_found(text: str) -> None:
    scan = scan_text(f"So: {text}", TOOLS)
    assert [(call.name, json.loads(call.arguments)) for call in scan.calls] == [CALL, NOW]
    assert scan.text == "So: "


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "now"}</tool_call>',
        '<tool_call>{"name": "now", "arguments": ""}</tool_call>',
        "<tool_call>now</tool_call>",
        "<tool_call>\nnow\n</tool_call>",
        "<tool_call>\n<function=now>\n</tool_call>",
        "[TOOL_CALLS]now",
        "<|tool_call_start|>[now()]<|tool_call_end|>",
        f'<{DSML}tool_calls><{DSML}invoke name="now"/></{DSML}tool_calls>',
    ],
)
def test_tool_without_parameters_is_called_without_arguments(text: str) -> None:
    assert [(call.name, call.arguments) for call in scan_text(text, TOOLS).calls] == [("now", "{}")]


VALUES = {"n": "42", "ok": "True", "x": "1.50", "tags": '["a"]', "opt": "{'k': None}", "either": "None", "maybe": "None"}  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "call"),
    [
        ("<parameter={0}>\n{1}\n</parameter>", "<tool_call>\n<function=get_weather>\n{0}\n</function>\n</tool_call>"),
        ('<parameter name="{0}">{1}</parameter>', '<invoke name="get_weather">{0}</invoke>'),
        ("<arg_key>{0}</arg_key><arg_value>{1}</arg_value>", "<tool_call>get_weather{0}</tool_call>"),
        ("<{0}>{1}</{0}>", "<use_tool><name>get_weather</name>{0}</use_tool>"),
    ],
)  # fmt: skip
def test_values_in_tags_are_typed_by_the_schema(parameter: str, call: str) -> None:
    text = call.format("".join(parameter.format(key, value) for key, value in VALUES.items()))
    assert json.loads(scan_text(text, TOOLS).calls[0].arguments) == {
        "n": 42,
        "ok": True,
        "x": 1.5,
        "tags": ["a"],
        "opt": {"k": None},
        "either": "None",
        "maybe": None,
    }


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", '{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "now", "parameters": {}}'),
        ("llama3.2", '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}\n{"name": "now", "parameters": {}}'),
        ("llama-4-scout", '[get_weather(city="Paris"), now()]'),
        ("Team-ACE/ToolACE-8B", "[get_weather(city='Paris'), now()]"),
        ("xLAM-2-8b-fc-r", f"```json\n[{OBJECT}, {NONE}]\n```"),
        ("Salesforce/xLAM-1b-fc-r", f"<think>hm</think>[{OBJECT}, {NONE}]"),
        ("granite-3.1-8b-instruct", f"[{OBJECT}, {NONE}]"),
        ("meetkai/functionary-small-v3.2", '>>>get_weather\n{"city": "Paris"}\n>>>now\n{}'),
        ("gpt-oss-120b", f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{HARMONY}<|start|>assistant<|channel|>commentary to=functions.now<|message|>{{}}<|call|>"),
        ("qwen3-cline", "<get_weather>\n<city>Paris</city>\n</get_weather>\n<now>\n</now>"),
    ],
)  # fmt: skip
def test_calls_without_a_sentinel_are_found_by_the_profile_of_the_model(
    model: str, text: str
) -> None:
    scan = scan_text(text, TOOLS, model=model)
    assert [(call.name, json.loads(call.arguments)) for call in scan.calls] == [CALL, NOW]


@pytest.mark.parametrize(
    "text",
    [
        "The <tool_call> tag holds JSON with a name and arguments.",
        "Write <tool_call>{...}</tool_call> to call a tool.",
        'It looks like <tool_call>{"name": ..., "arguments": ...}</tool_call>.',
        "Use `<tool_call>` or ``<use_tool>`` for that.",
        "Mistral's [TOOL_CALLS] token comes first, then [ARGS] and so on.",
        "In Python, functools[0] fails; functools.partial does not.",
        "A DeepSeek model writes <｜tool▁calls▁begin｜> and then its calls.",
        "The <|channel|> token is followed by analysis or commentary and <|message|>.",
        "<invoke name is what it begins with, and <function=name> too.",
        "HTML has <function> nowhere, and <use_tool> is no element either.",
        "<function_calls> wraps them; <invoke> stands inside.",
        "Action: I will look it up.\nAction Input: none.",
        "See [1], [link](x), {braces} and <b>bold</b>; 1 < 2 > 0; a <= b.",
        '{"name": "get_weather", "arguments": {"city": "Paris"}}',
        '[get_weather(city="Paris")]',
        "<get_weather><city>Paris</city></get_weather>",
        ">>>get_weather\n{}",
        f"```\n<tool_call>{OBJECT}</tool_call>\n```",
        f"Write `<tool_call>{OBJECT}</tool_call>` there.",
    ],
)
def test_text_about_formats_is_left_alone(text: str) -> None:
    scan = scan_text(text, TOOLS)
    assert scan.calls == ()
    assert scan.text == text
