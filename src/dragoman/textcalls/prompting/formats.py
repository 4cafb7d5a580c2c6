"""The formats that tools can be prompted in, by the names that the scanner knows them by."""

from collections.abc import Mapping

from dragoman.core.aliases import NameLimits
from dragoman.textcalls.bodies.named_tags import read_parameters
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
    PromptCall,
    Tags,
    WriteCalls,
    cohere_call,
    enclosed,
    flat_call,
    kimi_id,
    marked_calls,
    mistral_call,
    object_call,
    parameters_call,
    python_calls,
)
from dragoman.textcalls.values import Untyped


def _functions(opening: str, closing: str) -> Tags:
    """Qwen3-Coder's blocks, under any outer tag."""
    return Tags(
        call=(opening + "\n<function={name}>\n", f"</function>\n{closing}"),
        parameter=("<parameter={key}>", "</parameter>\n"),
        room="\n",
        marks=("</parameter>", "<parameter=", "</function>", "<function=", closing),
    )


def _invokes(wrapper: str, prefix: str = "", untyped: Untyped = "string") -> Tags:
    """Blocks of `<invoke name=…>` with `<parameter name=…>`, whose tags may have a prefix."""
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
    """The parameters within the outermost tag."""
    return read_parameters(text[text.index(">") + 1 : text.rindex("</")], name, offers)


USE_TOOL = Tags(
    call=("<use_tool>\n<name>{name}</name>\n", "</use_tool>"),
    parameter=("<{key}>", "</{key}>\n"),
    marks=("<use_tool>", "</use_tool>"),
    read=_read_named_tags,
)


TOOL_TAGS = Tags(
    call=("<{name}>\n", "</{name}>"),
    parameter=("<{key}>", "</{key}>\n"),
    marks=("</{name}>",),
    only_declared=True,
    read=_read_named_tags,
)


# Names that are written bare, where a hyphen would end or split them.
_WORDS = NameLimits(pattern="[a-zA-Z0-9_]")


def _array(opening: str, closing: str) -> WriteCalls:
    return enclosed(object_call, opening=f"{opening}[", between=", ", closing=f"]{closing}")


def _objects(opening: str, closing: str) -> WriteCalls:
    """One JSON object in each block."""
    return enclosed(lambda call: opening + object_call(call) + closing)


def _kimi_call(call: PromptCall) -> str:
    call_id = kimi_id(call.name, call.number)
    return (
        f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{call.arguments}<|tool_call_end|>"
    )


_KIMI = enclosed(
    _kimi_call,
    opening="<|tool_calls_section_begin|>",
    between="",
    closing="<|tool_calls_section_end|>",
)
_DEEPSEEK_V3 = enclosed(
    flat_call(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"
    ),
    opening="<｜tool▁calls▁begin｜>",
    closing="<｜tool▁calls▁end｜>",
)
_DEEPSEEK_V31 = enclosed(
    flat_call("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    opening="<｜tool▁calls▁begin｜>",
    between="",
    closing="<｜tool▁calls▁end｜>",
)
_COMMAND = enclosed(
    cohere_call, opening="<|START_ACTION|>[\n", between=",\n", closing="\n]<|END_ACTION|>"
)
_APERTUS = enclosed(
    lambda call: f'{{"{call.name}": {call.arguments}}}',
    opening="<|tools_prefix|>[",
    between=", ",
    closing="]<|tools_suffix|>",
)
_HARMONY = enclosed(
    flat_call("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>"),
    between="",
)

_IN_JSON = (
    ToolPrompt("hermes", _objects("<tool_call>\n", "\n</tool_call>"), wordings.HERMES),
    ToolPrompt(
        "mistral",
        enclosed(mistral_call, opening="[TOOL_CALLS] [", between=", ", closing="]"),
        wordings.MISTRAL,
        MISTRAL_RESULTS,
    ),
    ToolPrompt(
        "mistral_named",
        enclosed(flat_call("[TOOL_CALLS]", "[ARGS]", ""), between=""),
        wordings.MISTRAL_NAMED,
        MISTRAL_RESULTS,
    ),
    ToolPrompt("deepseek_v3", _DEEPSEEK_V3, wordings.DEEPSEEK_V3, DEEPSEEK_OUTPUTS),
    ToolPrompt("deepseek_v31", _DEEPSEEK_V31, wordings.DEEPSEEK_V31, DEEPSEEK_OUTPUTS),
    ToolPrompt("kimi_k2", _KIMI, results=KIMI_RETURNS),
    ToolPrompt("bare_json", enclosed(parameters_call, between="; "), wordings.LLAMA_JSON),
    ToolPrompt(
        "python_tag",
        enclosed(parameters_call, opening="<|python_tag|>", between="; "),
    ),
    ToolPrompt(
        "functionary_v31",
        enclosed(flat_call("<function=", ">", "</function>")),
        wordings.FUNCTIONARY,
    ),
    ToolPrompt("command", _COMMAND, results=COHERE_RESULTS),
    ToolPrompt("tool_calls_array", _array("<tool_calls>", "</tool_calls>")),
    ToolPrompt(
        "minimax_m1", enclosed(object_call, opening="<tool_calls>\n", closing="\n</tool_calls>")
    ),
    ToolPrompt("nemotron", _array("<TOOLCALL>", "</TOOLCALL>")),
    ToolPrompt("granite", _array("<|tool_call|>", "")),
    ToolPrompt("granite_20b", _objects("<function_call> ", "")),
    ToolPrompt(
        "internlm",
        enclosed(lambda call: f"<|action_start|><|plugin|>{parameters_call(call)}<|action_end|>"),
    ),
    ToolPrompt("functools", _array("functools", "")),
    ToolPrompt("apertus", _APERTUS),
    ToolPrompt("longcat", _objects("<longcat_tool_call>", "</longcat_tool_call>")),
    ToolPrompt("dots_json", _objects("<dots_function_call>", "</dots_function_call>")),
    ToolPrompt(
        "inkling",
        enclosed(
            lambda call: (
                f'<|content_invoke_tool_json|>{{"name": "{call.name}", '
                f'"args": {call.arguments}}}<|end_message|>'
            )
        ),
    ),
    ToolPrompt("harmony", _HARMONY),
    ToolPrompt(
        "react",
        enclosed(lambda call: f"Action: {call.name}\nAction Input: {call.arguments}"),
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
    ToolPrompt("pythonic", python_calls(opening="[", closing="]"), wordings.PYTHONIC, names=_WORDS),
    ToolPrompt(
        "llama4",
        python_calls(opening="<|python_start|>[", closing="]<|python_end|>"),
        names=_WORDS,
    ),
    ToolPrompt(
        "olmo3",
        python_calls(opening="<function_calls>\n", between="\n", closing="\n</function_calls>"),
        names=_WORDS,
    ),
    ToolPrompt(
        "lfm2",
        python_calls(opening="<|tool_call_start|>[", closing="]<|tool_call_end|>"),
        names=_WORDS,
    ),
    ToolPrompt(
        "tool_code",
        python_calls(opening="```tool_code\n", between="\n", closing="\n```"),
        names=_WORDS,
    ),
    ToolPrompt(
        "gemma4",
        marked_calls(mark='<|"|>', opening="<|tool_call>", closing="<tool_call|>"),
        names=_WORDS,
    ),
    ToolPrompt(
        "functiongemma",
        marked_calls(
            mark="<escape>", opening="<start_function_call>", closing="<end_function_call>"
        ),
        names=_WORDS,
    ),
)

PROMPTS: Mapping[str, ToolPrompt] = {row.name: row for row in (*_IN_JSON, *_IN_TAGS, *_PYTHON_LIKE)}
