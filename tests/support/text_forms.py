"""The same answer in every format that models write calls in: some words, then one call or two.

Most texts are made by the writers of `dragoman.textcalls.prompting`; formats that have no writer are written out here.
"""

from msgspec import Struct

from dragoman._json import Raw
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.textcalls.formats import BUILT_IN, MARKS
from dragoman.textcalls.prompting import PROMPT_FORMATS, prompt_tools

WORDS = "Let me see."
ARGUMENTS = {"city": 'Paris, "France"\n2e', "days": 2, "parts": ["sun", {"wind": True}]}
_SOURCE = '{"city": "Paris, \\"France\\"\\n2e", "days": 2, "parts": ["sun", {"wind": true}]}'
_RAW = 'Paris, "France"\n2e'
_PARTS = '["sun", {"wind": true}]'

_SCHEMA = Raw(
    b'{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"parts":{"type":"array"}}}'
)
_TOOLS = (Tool(name="get_weather", schema=_SCHEMA), Tool(name="get_time"))
_ONE_CALL = frozenset({"react", "tool_code"})

# The prefix of one vendor's own markup, which its models sometimes leak.
_LEAKED = "antml" + ":"
_M3 = "]<]minimax[>["


class Form(Struct, frozen=True):
    """What the upstream says. `calls` of them: a call of `get_weather`, then one of `get_time`."""

    text: str
    calls: int = 2


def _written(name: str) -> Form:
    count = 1 if name in _ONE_CALL else 2
    calls = (
        Call(call_id="call_1", name="get_weather", input=_SOURCE),
        Call(call_id="call_2", name="get_time", input="{}"),
    )[:count]
    turn = Turn(role="assistant", parts=(Text(text=WORDS), *calls))
    prompted = prompt_tools(Request(model="m", turns=(turn,), tools=_TOOLS), name)
    assert not any(loss.code == "call_form" for loss in prompted.losses)
    (part,) = prompted.request.turns[1].parts
    assert isinstance(part, Text)
    return Form(part.text, count)


def _by_hand(text: str, calls: int = 2) -> Form:
    return Form(f"{WORDS}\n{text}", calls)


def _invoke(prefix: str) -> str:
    return (
        f'<{prefix}invoke name="get_weather">\n<{prefix}parameter name="city">{_RAW}</{prefix}parameter>\n'
        f'<{prefix}parameter name="days">2</{prefix}parameter>\n'
        f'<{prefix}parameter name="parts">{_PARTS}</{prefix}parameter>\n</{prefix}invoke>'
    )


def _dsml(mark: str) -> str:
    return (
        f'<{mark}invoke name="get_weather">\n<{mark}parameter name="city" string="true">{_RAW}</{mark}parameter>\n'
        f'<{mark}parameter name="days" string="false">2</{mark}parameter>\n'
        f'<{mark}parameter name="parts" string="false">{_PARTS}</{mark}parameter>\n</{mark}invoke>'
    )


_OBJECT = f'{{"name": "get_weather", "arguments": {_SOURCE}}}'
_ARRAY = f'[{_OBJECT}, {{"name": "get_time", "arguments": {{}}}}]'
_BY_HAND: dict[str, Form] = {
    "gigachat": _by_hand(f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_OBJECT}", 1),
    "inkling_headed": _by_hand(
        f'<|message_model|>get_weather<|content_invoke_tool_json|>{{"name": "get_weather", "args": {_SOURCE}}}'
        "<|end_message|>",
        1,
    ),
    "functionary_v32": _by_hand(f">>>get_weather\n{_SOURCE}\n>>>get_time\n{{}}"),
    "command_r": _by_hand(
        f'Action: ```json\n[{{"tool_name": "get_weather", "parameters": {_SOURCE}}}, '
        '{"tool_name": "get_time", "parameters": {}}]\n```'
    ),
    "bare_json_array": _by_hand(_ARRAY),
    "json_fence": _by_hand(f"```json\n{_ARRAY}\n```"),
    "kimi_k2_bare": _by_hand(
        f"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{_SOURCE}<|tool_call_end|>"
        "<|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
    ),
    "hunyuan_suffixed": _by_hand(
        "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
        + "".join(
            f"<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>{value}</arg_value:opensource>\n"
            for key, value in (("city", _RAW), ("days", "2"), ("parts", _PARTS))
        )
        + "</tool_call:opensource>\n</tool_calls:opensource>",
        1,
    ),
    "qwen3_coder_bare": _by_hand(
        f"<function=get_weather>\n<parameter=city>\n{_RAW}\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        f"<parameter=parts>\n{_PARTS}\n</parameter>\n</function>",
        1,
    ),
    "anthropic_leaked": _by_hand(
        f"<{_LEAKED}function_calls>\n{_invoke(_LEAKED)}\n</{_LEAKED}function_calls>", 1
    ),
    "invoke": _by_hand(_invoke(""), 1),
    "invoke_leaked": _by_hand(_invoke(_LEAKED), 1),
    "deepseek_v32_doubled": _by_hand(
        f"<｜｜DSML｜｜function_calls>\n{_dsml('｜｜DSML｜｜')}\n</｜｜DSML｜｜function_calls>", 1
    ),
    "deepseek_v4_doubled": _by_hand(
        f"<｜｜DSML｜｜tool_calls>\n{_dsml('｜｜DSML｜｜')}\n</｜｜DSML｜｜tool_calls>", 1
    ),
    "deepseek_v3_bare": _by_hand(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{_SOURCE}\n```<｜tool▁call▁end｜>",
        1,
    ),
    "deepseek_v31_bare": _by_hand(
        f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{_SOURCE}<｜tool▁call▁end｜>", 1
    ),
    "harmony_channels": _by_hand(
        f"to=functions.get_weather <|constrain|>json<|message|>{_SOURCE}<|call|>", 1
    ),
    "muse_headed": _by_hand(
        "<|start|>assistant to=get_weather<|message|><atem:function_calls>\n"
        f"{_invoke('atem:')}\n</atem:function_calls>",
        1,
    ),
    "dsml_invoke": _by_hand(_dsml("｜DSML｜"), 1),
    "lfm2_json": _by_hand(f"<|tool_call_start|>{_ARRAY}<|tool_call_end|>"),
    "minimax_m3": _by_hand(
        f'{_M3}<tool_call>{_M3}<invoke name="get_weather">{_M3}<city>{_RAW}{_M3}</city>{_M3}<days>2{_M3}</days>'
        f"{_M3}<parts>{_PARTS}{_M3}</parts>{_M3}</invoke>{_M3}</tool_call>",
        1,
    ),
}  # fmt: skip

FORMS: dict[str, Form] = {name: _written(name) for name in PROMPT_FORMATS} | _BY_HAND

CALL_FORMATS = {
    pattern.name: pattern
    for pattern in BUILT_IN
    if pattern not in MARKS and pattern.place != "start"
}
"""The formats that are calls, and not mere marks, and may stand behind words."""
