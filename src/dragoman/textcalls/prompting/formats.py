"""The formats in which tools can be prompted, by the names that the scanner uses."""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.core.aliases import NameLimits
from dragoman.textcalls.bodies.named_tags import read_parameters, without_name
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting import wordings
from dragoman.textcalls.prompting.wordings import (
    COHERE_RESULTS,
    DEEPSEEK_OUTPUTS,
    DSML_RESULTS,
    FUNCTION_RESULTS,
    KIMI_RETURNS,
    MISTRAL_RESULTS,
    OBSERVATIONS,
    ToolPrompt,
)
from dragoman.textcalls.prompting.writers import (
    Tags,
    WriteCalls,
    json_calls,
    marked_calls,
    python_calls,
)
from dragoman.textcalls.values import Untyped


def _functions(opening: str, closing: str) -> Tags:
    """Return the tags of Qwen3-Coder's blocks, with any outer tag."""
    return Tags(
        call=(opening + "\n<function={name}>\n", f"</function>\n{closing}"),
        parameter=("<parameter={key}>", "</parameter>\n"),
        room="\n",
        marks=("</parameter>", "<parameter=", "</function>", "<function=", closing),
    )


def _invokes(wrapper: str, prefix: str = "", untyped: Untyped = "string") -> Tags:
    """Return the tags of `<invoke name=…>` with `<parameter name=…>`, with an optional prefix."""
    invoke, parameter, closing = f"{prefix}invoke", f"{prefix}parameter", f"</{wrapper}>"
    return Tags(
        block=(f"<{wrapper}>\n", f"\n{closing}"),
        call=(f'<{invoke} name="{{name}}">\n', f"</{invoke}>"),
        parameter=(f'<{parameter} name="{{key}}">', f"</{parameter}>\n"),
        marks=(f"</{parameter}>", f"<{parameter}", f"</{invoke}>", f"<{invoke}", closing),
        untyped=untyped,
    )


_PAIR = ("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n")
_PAIR_MARKS = ("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>")

GLM = Tags(
    call=("<tool_call>{name}\n", "</tool_call>"),
    parameter=_PAIR,
    marks=_PAIR_MARKS,
    trims=False,
)

HUNYUAN = Tags(
    block=("<tool_calls>\n", "\n</tool_calls>"),
    call=("<tool_call>{name}<tool_sep>\n", "</tool_call>"),
    parameter=_PAIR,
    marks=_PAIR_MARKS,
    trims=False,
)


def _dsml(wrapper: str) -> Tags:
    return Tags(
        block=(f"<｜DSML｜{wrapper}>\n", f"\n</｜DSML｜{wrapper}>"),
        call=('<｜DSML｜invoke name="{name}">\n', "</｜DSML｜invoke>"),
        parameter=(
            '<｜DSML｜parameter name="{key}" string="{is_string}">',
            "</｜DSML｜parameter>\n",
        ),
        marks=("｜DSML｜",),
        trims=False,
        untyped="markup",
        wrappers=("arguments", "input"),
    )


KIMI_K3 = Tags(
    block=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    call=('<|open|>call tool="{name}" index="{number}"<|sep|>', "<|close|>call<|sep|>"),
    parameter=('<|open|>argument key="{key}" type="{type}"<|sep|>', "<|close|>argument<|sep|>"),
    between="",
    marks=("<|close|>", "<|open|>", "<|sep|>"),
    trims=False,
    untyped="markup",
)

MINICPM = Tags(
    call=('<function name="{name}">', "</function>"),
    parameter=('<param name="{key}">', "</param>"),
    marks=("</param>", "<param", "</function>", "<![CDATA["),
    wrappers=("properties", "arguments", "parameters"),
    needs_required=True,
)

STEP3 = Tags(
    block=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
    call=(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
        "</steptml:invoke><｜tool_call_end｜>",
    ),
    parameter=('<steptml:parameter name="{key}">', "</steptml:parameter>"),
    between="",
    marks=("steptml:", "<｜tool_call"),
)


def _read_named_tags(text: str, name: str, offers: Offers) -> dict[str, str]:
    """Return the parameters within the outermost tag."""
    return read_parameters(text[text.index(">") + 1 : text.rindex("</")], name, offers)


def _read_use_tool(text: str, name: str, offers: Offers) -> dict[str, str]:
    return _read_named_tags(without_name(text), name, offers)


USE_TOOL = Tags(
    call=("<use_tool>\n<name>{name}</name>\n", "</use_tool>"),
    parameter=("<{key}>", "</{key}>\n"),
    marks=("<use_tool>", "</use_tool>"),
    read=_read_use_tool,
)


TOOL_TAGS = Tags(
    call=("<{name}>\n", "</{name}>"),
    parameter=("<{key}>", "</{key}>\n"),
    marks=("</{name}>",),
    only_declared=True,
    read=_read_named_tags,
)


# For formats that write names bare: a hyphen would end or split a name.
_WORDS = NameLimits(pattern="[a-zA-Z0-9_]")


_OBJECT = '{"name": "%(name)s", "arguments": %(arguments)s}'
_PARAMETERS = '{"name": "%(name)s", "parameters": %(arguments)s}'
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")


def _array(opening: str, closing: str = "", call: str = _OBJECT) -> WriteCalls:
    return json_calls(call, block=(f"{opening}[", f"]{closing}"), between=", ")


_IN_JSON = (
    ToolPrompt("hermes", json_calls(f"<tool_call>\n{_OBJECT}\n</tool_call>"), wordings.HERMES),
    ToolPrompt(
        "mistral",
        _array(
            "[TOOL_CALLS] ",
            call='{"name": "%(name)s", "arguments": %(arguments)s, "id": "%(mistral_id)s"}',
        ),
        wordings.MISTRAL,
        MISTRAL_RESULTS,
    ),
    ToolPrompt(
        "mistral_named",
        json_calls("[TOOL_CALLS]%(name)s[ARGS]%(arguments)s", between=""),
        wordings.MISTRAL_NAMED,
        MISTRAL_RESULTS,
    ),
    ToolPrompt(
        "deepseek_v3",
        json_calls(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%(name)s\n"
            "```json\n%(arguments)s\n```<｜tool▁call▁end｜>",
            block=_DEEPSEEK,
        ),
        wordings.DEEPSEEK_V3,
        DEEPSEEK_OUTPUTS,
    ),
    ToolPrompt(
        "deepseek_v31",
        json_calls(
            "<｜tool▁call▁begin｜>%(name)s<｜tool▁sep｜>%(arguments)s<｜tool▁call▁end｜>",
            block=_DEEPSEEK,
            between="",
        ),
        wordings.DEEPSEEK_V31,
        DEEPSEEK_OUTPUTS,
    ),
    ToolPrompt(
        "kimi_k2",
        json_calls(
            "<|tool_call_begin|>%(kimi_id)s<|tool_call_argument_begin|>%(arguments)s<|tool_call_end|>",
            block=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            between="",
        ),
        results=KIMI_RETURNS,
    ),
    ToolPrompt("bare_json", json_calls(_PARAMETERS, between="; "), wordings.LLAMA_JSON),
    ToolPrompt("python_tag", json_calls(_PARAMETERS, block=("<|python_tag|>", ""), between="; ")),
    ToolPrompt(
        "functionary_v31",
        json_calls("<function=%(name)s>%(arguments)s</function>"),
        wordings.FUNCTIONARY,
    ),
    ToolPrompt(
        "command",
        json_calls(
            '{"tool_call_id": "%(number)d", "tool_name": "%(name)s", "parameters": %(arguments)s}',
            block=("<|START_ACTION|>[\n", "\n]<|END_ACTION|>"),
            between=",\n",
        ),
        results=COHERE_RESULTS,
    ),
    ToolPrompt("tool_calls_array", _array("<tool_calls>", "</tool_calls>")),
    ToolPrompt("minimax_m1", json_calls(_OBJECT, block=("<tool_calls>\n", "\n</tool_calls>"))),
    ToolPrompt("nemotron", _array("<TOOLCALL>", "</TOOLCALL>")),
    ToolPrompt("granite", _array("<|tool_call|>")),
    ToolPrompt("granite_20b", json_calls(f"<function_call> {_OBJECT}")),
    ToolPrompt("internlm", json_calls(f"<|action_start|><|plugin|>{_PARAMETERS}<|action_end|>")),
    ToolPrompt("functools", _array("functools")),
    ToolPrompt(
        "apertus",
        _array("<|tools_prefix|>", "<|tools_suffix|>", '{"%(name)s": %(arguments)s}'),
    ),
    ToolPrompt("longcat", json_calls(f"<longcat_tool_call>{_OBJECT}</longcat_tool_call>")),
    ToolPrompt("dots_json", json_calls(f"<dots_function_call>{_OBJECT}</dots_function_call>")),
    ToolPrompt(
        "inkling",
        json_calls(
            '<|content_invoke_tool_json|>{"name": "%(name)s", "args": %(arguments)s}<|end_message|>'
        ),
    ),
    ToolPrompt(
        "harmony",
        json_calls(
            "<|channel|>commentary to=functions.%(name)s <|constrain|>json<|message|>%(arguments)s<|call|>",
            between="",
        ),
    ),
    ToolPrompt(
        "react",
        json_calls("Action: %(name)s\nAction Input: %(arguments)s"),
        wordings.REACT,
        OBSERVATIONS,
        stops=("Observation:",),
    ),
)

_IN_TAGS = (
    ToolPrompt("use_tool", USE_TOOL.write_calls, wordings.OBSIDIAN),
    ToolPrompt(
        "qwen3_coder", _functions("<tool_call>", "</tool_call>").write_calls, wordings.QWEN_CODER
    ),
    ToolPrompt("glm", GLM.write_calls, wordings.GLM),
    ToolPrompt(
        "anthropic", _invokes("function_calls").write_calls, wordings.ANTHROPIC, FUNCTION_RESULTS
    ),
    ToolPrompt("deepseek_v32", _dsml("function_calls").write_calls, wordings.DSML, DSML_RESULTS),
    ToolPrompt("deepseek_v4", _dsml("tool_calls").write_calls, wordings.DSML_V4, DSML_RESULTS),
    ToolPrompt("seed_oss", _functions("<seed:tool_call>", "</seed:tool_call>").write_calls),
    ToolPrompt("minimax_m2", _invokes("minimax:tool_call").write_calls),
    ToolPrompt("hunyuan", HUNYUAN.write_calls),
    ToolPrompt("dots", _invokes("dots_function_call").write_calls),
    ToolPrompt("muse", _invokes("atem:function_calls", "atem:", "json").write_calls),
    ToolPrompt("minicpm", MINICPM.write_calls),
    ToolPrompt("step3", STEP3.write_calls),
    ToolPrompt("kimi_k3", KIMI_K3.write_calls),
    ToolPrompt("tool_tags", TOOL_TAGS.write_calls),
)

_PYTHON_LIKE = (
    ToolPrompt("pythonic", python_calls(block=("[", "]")), wordings.PYTHONIC),
    ToolPrompt("llama4", python_calls(block=("<|python_start|>[", "]<|python_end|>"))),
    ToolPrompt(
        "olmo3",
        python_calls(block=("<function_calls>\n", "\n</function_calls>"), between="\n"),
    ),
    ToolPrompt("lfm2", python_calls(block=("<|tool_call_start|>[", "]<|tool_call_end|>"))),
    ToolPrompt("tool_code", python_calls(block=("```tool_code\n", "\n```"), between="\n")),
    ToolPrompt("gemma4", marked_calls(mark='<|"|>', block=("<|tool_call>", "<tool_call|>"))),
    ToolPrompt(
        "functiongemma",
        marked_calls(mark="<escape>", block=("<start_function_call>", "<end_function_call>")),
    ),
)

PROMPTS: Mapping[str, ToolPrompt] = {
    row.name: row
    for row in (*_IN_JSON, *_IN_TAGS, *(replace(row, names=_WORDS) for row in _PYTHON_LIKE))
}
