"""Every text format, written by hand: how a model of its family writes calls. The code under test is not used.

`FORMATS` has one entry for each pattern that finds calls. `write` makes one block, or several, of calls whose arguments
are plain values of the tools in `TOOLS`. `avoid` are words that a string in this format cannot contain.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

Arguments = dict[str, object]
Written = tuple[str, Arguments]

TOOLS: list[dict[str, object]] = [
    {
        "name": "search",
        "description": "looks for something",
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "exact": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object"},
            },
        },
    },
    {"name": "now", "input_schema": {"type": "object", "properties": {}}},
]


@dataclass(frozen=True)
class TextFormat:
    name: str
    write: Callable[[Sequence[Written]], str]
    avoid: tuple[str, ...] = ()
    trims: bool = False  # line breaks at the edges of a string are markup
    one: bool = False  # one call a block, and blocks cannot follow one another
    strips: bool = False  # white space at the edges of a string is lost
    wraps: bool = False  # every string has a line break of the markup on either side
    parameters: tuple[str, ...] = ("query", "count", "ratio", "exact", "tags", "options")


def dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: object) -> str:
    """A value in a tag: a string as it is, the rest as JSON."""
    return value if isinstance(value, str) else dump(value)


def objects(
    calls: Sequence[Written], name: str = "name", arguments: str = "arguments"
) -> list[str]:
    return [dump({name: call[0], arguments: call[1]}) for call in calls]


def each(before: str, after: str, between: str = "\n") -> Callable[[Sequence[Written]], str]:
    return lambda calls: between.join(f"{before}{one}{after}" for one in objects(calls))


def array(before: str, after: str) -> Callable[[Sequence[Written]], str]:
    return lambda calls: f"{before}[{', '.join(objects(calls))}]{after}"


def elements(
    call: Callable[[str, str], str],
    parameter: Callable[[str, str], str],
    before: str = "",
    after: str = "",
) -> Callable[[Sequence[Written]], str]:
    def write(calls: Sequence[Written]) -> str:
        written = [
            call(name, "".join(parameter(key, plain(value)) for key, value in arguments.items()))
            for name, arguments in calls
        ]
        return before + "\n".join(written) + after

    return write


def invokes(prefix: str, before: str, after: str) -> Callable[[Sequence[Written]], str]:
    return elements(
        lambda name, inside: f'<{prefix}invoke name="{name}">\n{inside}</{prefix}invoke>',
        lambda key, value: f'<{prefix}parameter name="{key}">{value}</{prefix}parameter>\n',
        before,
        after,
    )


def functions(before: str, after: str) -> Callable[[Sequence[Written]], str]:
    one = elements(
        lambda name, inside: f"<function={name}>\n{inside}</function>\n",
        lambda key, value: f"<parameter={key}>\n{value}\n</parameter>\n",
    )
    return lambda calls: "\n".join(f"{before}{one([call])}{after}" for call in calls)


def pairs(name: str, arguments: Arguments, separator: str = "\n") -> str:
    inside = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{plain(value)}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"{name}{separator}{inside}"


def python(value: object) -> str:
    match value:
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
        case list():
            return "[" + ", ".join(map(python, cast("list[object]", value))) + "]"
        case dict():
            members = cast("Arguments", value).items()
            return "{" + ", ".join(f"{python(key)}: {python(item)}" for key, item in members) + "}"
        case _:
            return repr(value)


def python_calls(calls: Sequence[Written], between: str = ", ") -> str:
    return between.join(
        f"{name}({', '.join(f'{key}={python(value)}' for key, value in arguments.items())})"
        for name, arguments in calls
    )


def loose(value: object, quote: str) -> str:
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case list():
            return "[" + ",".join(loose(item, quote) for item in cast("list[object]", value)) + "]"
        case dict():
            members = cast("Arguments", value).items()
            return "{" + ",".join(f"{key}:{loose(item, quote)}" for key, item in members) + "}"
        case _:
            return dump(value)


def loose_calls(before: str, quote: str, after: str) -> Callable[[Sequence[Written]], str]:
    return lambda calls: "".join(
        f"{before}call:{name}{loose(arguments, quote)}{after}" for name, arguments in calls
    )


def kimi(calls: Sequence[Written]) -> str:
    inside = "".join(
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{dump(arguments)}<|tool_call_end|>"
        for index, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inside}<|tool_calls_section_end|>"


def kimi_k3(calls: Sequence[Written]) -> str:
    def argument(key: str, value: object) -> str:
        kind = "string" if isinstance(value, str) else "other"
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{plain(value)}<|close|>argument<|sep|>'

    inside = "".join(
        f'<|open|>call tool="{name}" index="{index}"<|sep|>'
        + "".join(argument(key, value) for key, value in arguments.items())
        + "<|close|>call<|sep|>"
        for index, (name, arguments) in enumerate(calls)
    )
    return f"<|open|>tools<|sep|>{inside}<|close|>tools<|sep|>"


def dsml(bars: str, wrapper: str) -> Callable[[Sequence[Written]], str]:
    mark = f"{bars}DSML{bars}"
    return invokes(mark, f"<{mark}{wrapper}>\n", f"\n</{mark}{wrapper}>")


def deepseek(one: Callable[[str, str], str]) -> Callable[[Sequence[Written]], str]:
    def write(calls: Sequence[Written]) -> str:
        inside = "\n".join(
            f"<｜tool▁call▁begin｜>{one(name, dump(arguments))}<｜tool▁call▁end｜>"
            for name, arguments in calls
        )
        return f"<｜tool▁calls▁begin｜>{inside}<｜tool▁calls▁end｜>"

    return write


def hunyuan(suffix: str) -> Callable[[Sequence[Written]], str]:
    def tag(text: str) -> str:
        for word in ("tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value"):
            text = text.replace(f"{word}>", f"{word}{suffix}>")
        return text

    def write(calls: Sequence[Written]) -> str:
        written: list[str] = []
        for name, arguments in calls:
            inside = "".join(
                f"{tag('<arg_key>')}{key}{tag('</arg_key>')}{tag('<arg_value>')}{plain(value)}{tag('</arg_value>')}"
                for key, value in arguments.items()
            )
            written.append(
                f"{tag('<tool_call>')}{name}{tag('<tool_sep>')}{inside}{tag('</tool_call>')}"
            )
        return f"{tag('<tool_calls>')}{''.join(written)}{tag('</tool_calls>')}"

    return write


def minimax_m3(calls: Sequence[Written]) -> str:
    mark = "]<]minimax[>["
    inside = "".join(
        f'{mark}<invoke name="{name}">'
        + "".join(f"{mark}<{key}>{plain(value)}{mark}</{key}>" for key, value in arguments.items())
        + f"{mark}</invoke>"
        for name, arguments in calls
    )
    return f"{mark}<tool_call>{inside}{mark}</tool_call>"


def use_tool(calls: Sequence[Written]) -> str:
    return "\n".join(
        f"<use_tool>\n<name>{name}</name>\n"
        + "".join(f"<{key}>{plain(value)}</{key}>\n" for key, value in arguments.items())
        + "</use_tool>"
        for name, arguments in calls
    )


def tool_tags(calls: Sequence[Written]) -> str:
    return "".join(
        f"\n<{name}>\n"
        + "".join(f"<{key}>{plain(value)}</{key}>\n" for key, value in arguments.items())
        + f"</{name}>"
        for name, arguments in calls
    )


def headed(before: str, middle: str, after: str) -> Callable[[Sequence[Written]], str]:
    return lambda calls: "".join(
        f"{before}{name}{middle}{dump(arguments)}{after}" for name, arguments in calls
    )


def react(calls: Sequence[Written]) -> str:
    name, arguments = calls[0]
    return f"\nAction: {name}\nAction Input: {dump(arguments)}\nObservation:"


INVOKE = ("</parameter>", "</invoke>")
LEAKED = "antml" + ":"
FUNCTION = ("</parameter>", "<parameter=", "</function>")
KEYS = tuple(
    f"{mark}{key}>"
    for key in ("name", "query", "count", "ratio", "exact", "tags", "options")
    for mark in ("<", "</")
)

FORMATS = (
    TextFormat("hermes", each("<tool_call>\n", "\n</tool_call>")),
    TextFormat("tool_calls_array", array("<tool_calls>", "</tool_calls>")),
    TextFormat(
        "minimax_m1", lambda calls: "<tool_calls>\n" + "\n".join(objects(calls)) + "\n</tool_calls>"
    ),
    TextFormat("nemotron", array("<TOOLCALL>", "</TOOLCALL>")),
    TextFormat("granite", array("<|tool_call|>", "")),
    TextFormat("granite_20b", each("<function_call> ", "")),
    TextFormat("internlm", each("<|action_start|><|plugin|>", "<|action_end|>", "")),
    TextFormat("functools", array("functools", "")),
    TextFormat(
        "command",
        lambda calls: (
            f"<|START_ACTION|>[{', '.join(objects(calls, 'tool_name', 'parameters'))}]<|END_ACTION|>"
        ),
    ),
    TextFormat(
        "apertus",
        lambda calls: (
            f"<|tools_prefix|>{dump([{name: arguments} for name, arguments in calls])}<|tools_suffix|>"
        ),
    ),
    TextFormat("gigachat", each("<|message_sep|>\n\nfunction call<|role_sep|>\n", "</s>", "")),
    TextFormat("longcat", each("<longcat_tool_call>", "</longcat_tool_call>")),
    TextFormat("dots_json", each("<dots_function_call>", "</dots_function_call>")),
    TextFormat(
        "inkling",
        lambda calls: "".join(
            f"<|content_invoke_tool_json|>{one}<|end_message|>"
            for one in objects(calls, "name", "args")
        ),
    ),
    TextFormat(
        "inkling_headed",
        lambda calls: "".join(
            f"<|message_model|>f<|content_invoke_tool_json|>{one}<|end_message|>"
            for one in objects(calls, "name", "args")
        ),
    ),
    TextFormat(
        "python_tag",
        lambda calls: "<|python_tag|>" + "; ".join(objects(calls, "name", "parameters")),
    ),
    TextFormat("mistral", array("[TOOL_CALLS] ", "")),
    TextFormat("kimi_k2", kimi),
    TextFormat(
        "kimi_k2_bare",
        headed(
            "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>"
        ),
    ),
    TextFormat(
        "deepseek_v3",
        deepseek(lambda name, source: f"function<｜tool▁sep｜>{name}\n```json\n{source}\n```"),
    ),
    TextFormat(
        "deepseek_v3_bare",
        headed(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"
        ),
    ),
    TextFormat(
        "deepseek_v31_bare",
        headed("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    ),
    TextFormat("deepseek_v31", deepseek(lambda name, source: f"{name}<｜tool▁sep｜>{source}")),
    TextFormat("mistral_named", headed("[TOOL_CALLS]", "[ARGS]", "")),
    TextFormat("functionary_v31", headed("<function=", ">", "</function>")),
    TextFormat("functionary_v32", headed("\n>>>", "\n", "")),
    TextFormat(
        "harmony",
        headed("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>"),
    ),
    TextFormat(
        "harmony_channels",
        headed("to=functions.", " <|constrain|>json<|message|>", "<|call|>"),
    ),
    TextFormat(
        "qwen3_coder", functions("<tool_call>\n", "</tool_call>"), FUNCTION, trims=True, wraps=True
    ),
    TextFormat("qwen3_coder_bare", functions("", ""), FUNCTION, trims=True, wraps=True),
    TextFormat(
        "seed_oss",
        functions("<seed:tool_call>\n", "</seed:tool_call>"),
        FUNCTION,
        trims=True,
        wraps=True,
    ),
    TextFormat(
        "minimax_m2",
        invokes("", "<minimax:tool_call>\n", "</minimax:tool_call>"),
        INVOKE,
        trims=True,
    ),
    TextFormat(
        "anthropic", invokes("", "<function_calls>\n", "</function_calls>"), INVOKE, trims=True
    ),
    TextFormat(
        "anthropic_leaked",
        invokes(LEAKED, f"<{LEAKED}function_calls>\n", f"</{LEAKED}function_calls>"),
        (f"</{LEAKED}parameter>",),
        trims=True,
    ),
    TextFormat("invoke", invokes("", "", ""), INVOKE, trims=True),
    TextFormat("invoke_leaked", invokes(LEAKED, "", ""), (f"</{LEAKED}parameter>",), trims=True),
    TextFormat(
        "dots",
        invokes("", "<dots_function_call>", "</dots_function_call>"),
        INVOKE,
        trims=True,
    ),
    TextFormat(
        "muse",
        invokes("atem:", "<atem:function_calls>\n", "</atem:function_calls>"),
        ("</atem:parameter>",),
        trims=True,
    ),
    TextFormat(
        "muse_headed",
        invokes(
            "atem:",
            "<|start|>assistant to=f<|message|><atem:function_calls>\n",
            "</atem:function_calls>",
        ),
        ("</atem:parameter>",),
        trims=True,
    ),
    TextFormat("deepseek_v32", dsml("｜", "function_calls"), ("</｜DSML｜parameter>",)),
    TextFormat("deepseek_v4", dsml("｜", "tool_calls"), ("</｜DSML｜parameter>",)),
    TextFormat(
        "deepseek_v32_doubled", dsml("｜｜", "function_calls"), ("</｜｜DSML｜｜parameter>",)
    ),
    TextFormat("deepseek_v4_doubled", dsml("｜｜", "tool_calls"), ("</｜｜DSML｜｜parameter>",)),
    TextFormat("dsml_invoke", invokes("｜DSML｜", "", ""), ("</｜DSML｜parameter>",)),
    TextFormat("kimi_k3", kimi_k3, ("<|close|>argument<|sep|>",)),
    TextFormat(
        "step3",
        invokes(
            "steptml:",
            "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>",
            "<｜tool_call_end｜><｜tool_calls_end｜>",
        ),
        ("</steptml:parameter>",),
        trims=True,
    ),
    TextFormat(
        "minicpm",
        elements(
            lambda name, inside: f'<function name="{name}">{inside}</function>',
            lambda key, value: f'<param name="{key}">{value}</param>',
        ),
        ("</param>", "<![CDATA["),
        trims=True,
    ),
    TextFormat(
        "glm",
        lambda calls: "".join(f"<tool_call>{pairs(*call)}</tool_call>" for call in calls),
        ("</arg_value>",),
    ),
    TextFormat("hunyuan", hunyuan(""), ("</arg_value>",)),
    TextFormat("hunyuan_suffixed", hunyuan(":opensource"), ("</arg_value:opensource>",)),
    TextFormat("llama4", lambda calls: f"<|python_start|>[{python_calls(calls)}]<|python_end|>"),
    TextFormat(
        "lfm2", lambda calls: f"<|tool_call_start|>[{python_calls(calls)}]<|tool_call_end|>"
    ),
    TextFormat("lfm2_json", array("<|tool_call_start|>", "<|tool_call_end|>")),
    TextFormat(
        "olmo3",
        lambda calls: "<function_calls>\n" + python_calls(calls, "\n") + "\n</function_calls>",
    ),
    TextFormat("tool_code", lambda calls: "\n```tool_code\n" + python_calls(calls, "\n") + "\n```"),
    TextFormat("gemma4", loose_calls("<|tool_call>", '<|"|>', "<tool_call|>"), ('<|"|>',)),
    TextFormat(
        "functiongemma",
        loose_calls("<start_function_call>", "<escape>", "<end_function_call>"),
        ("<escape>",),
    ),
    TextFormat("minimax_m3", minimax_m3, ("]<]minimax[>[",), trims=True),
    TextFormat("use_tool", use_tool, (*KEYS, "</use_tool>", "<![CDATA["), strips=True),
    TextFormat("bare_json", lambda calls: "; ".join(objects(calls, "name", "parameters"))),
    TextFormat("bare_json_array", array("", "")),
    TextFormat("json_fence", array("\n```json\n", "\n```")),
    TextFormat("pythonic", lambda calls: f"[{python_calls(calls)}]"),
    TextFormat(
        "command_r",
        lambda calls: (
            f"\nAction: ```json\n[{', '.join(objects(calls, 'tool_name', 'parameters'))}]\n```"
        ),
    ),
    TextFormat("react", react, ("Observation:",), one=True),
    TextFormat(
        "tool_tags",
        tool_tags,
        (*KEYS, "</search>", "</now>", "<search>", "<now>", "<![CDATA["),
        strips=True,
    ),
)
"""One entry for each pattern that finds calls."""

NEAR_OPENERS = (
    "<tool_call>",
    "<tool_call",
    "<tool_calls> are",
    "<use_tool>",
    "<use_tool<use_tool",
    "<function=",
    "<function",
    "<invoke ",
    "[TOOL_CALLS]",
    "functools[",
    "<|tool_call",
    "<｜tool▁calls▁begin｜>",
    "<<<<",
    "`<tool_call>`",
    "</tool_call>",
    "<think>",
    "</think>",
    "```",
    "~~~",
    "{",
    "[",
)
"""Words that are openers, or nearly, in the middle of prose."""
