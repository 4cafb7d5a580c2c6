"""The formats that tools can be prompted in, by the names that the scanner knows them by."""

from collections.abc import Mapping, Sequence

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
    TOOL_RESPONSES,
    ResultForm,
    Wording,
    WriteCalls,
    plain_wording,
)
from dragoman.textcalls.prompting.writers import (
    PromptCall,
    Signature,
    Tags,
    ToolPrompt,
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
        head=lambda name, _: f"{opening}\n<function={name}>\n",
        parameter=lambda key, _: f"<parameter={key}>",
        end=lambda _: "</parameter>\n",
        tail=lambda _: f"</function>\n{closing}",
        room="\n",
        marks=("</parameter>", "<parameter=", "</function>", "<function=", closing),
    )


def _invokes(opening: str, closing: str, prefix: str = "", untyped: Untyped = "string") -> Tags:
    """Blocks of `<invoke name=…>` with `<parameter name=…>`, whose tags may have a prefix."""
    return Tags(
        opening=f"{opening}\n",
        head=lambda name, _: f'<{prefix}invoke name="{name}">\n',
        parameter=lambda key, _: f'<{prefix}parameter name="{key}">',
        end=lambda _: f"</{prefix}parameter>\n",
        tail=lambda _: f"</{prefix}invoke>",
        closing=f"\n{closing}",
        marks=(
            f"</{prefix}parameter>",
            f"<{prefix}parameter",
            f"</{prefix}invoke>",
            f"<{prefix}invoke",
            closing,
        ),
        untyped=untyped,
    )


QWEN_CODER = _functions("<tool_call>", "</tool_call>")
SEED = _functions("<seed:tool_call>", "</seed:tool_call>")
ANTHROPIC = _invokes("<function_calls>", "</function_calls>")
MINIMAX = _invokes("<minimax:tool_call>", "</minimax:tool_call>")
MUSE = _invokes("<atem:function_calls>", "</atem:function_calls>", "atem:", "json")
DOTS = _invokes("<dots_function_call>", "</dots_function_call>")

GLM = Tags(
    head=lambda name, _: f"<tool_call>{name}\n",
    parameter=lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
    end=lambda _: "</arg_value>\n",
    tail=lambda _: "</tool_call>",
    marks=("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>"),
    trims="nothing",
)

HUNYUAN = Tags(
    opening="<tool_calls>\n",
    head=lambda name, _: f"<tool_call>{name}<tool_sep>\n",
    parameter=lambda key, _: f"<arg_key>{key}</arg_key>\n<arg_value>",
    end=lambda _: "</arg_value>\n",
    tail=lambda _: "</tool_call>",
    closing="\n</tool_calls>",
    marks=("</arg_value>", "<arg_key>", "<arg_value>", "</tool_call>"),
    trims="nothing",
)


def _dsml(wrapper: str) -> Tags:
    return Tags(
        opening=f"<｜DSML｜{wrapper}>\n",
        head=lambda name, _: f'<｜DSML｜invoke name="{name}">\n',
        parameter=lambda key, kind: (
            f'<｜DSML｜parameter name="{key}" string="{"true" if kind == "string" else "false"}">'
        ),
        end=lambda _: "</｜DSML｜parameter>\n",
        tail=lambda _: "</｜DSML｜invoke>",
        closing=f"\n</｜DSML｜{wrapper}>",
        marks=("｜DSML｜",),
        trims="nothing",
        untyped="markup",
        wrappers=("arguments", "input"),
    )


DSML = _dsml("function_calls")
DSML_V4 = _dsml("tool_calls")

KIMI_K3 = Tags(
    opening="<|open|>tools<|sep|>",
    head=lambda name, number: f'<|open|>call tool="{name}" index="{number}"<|sep|>',
    parameter=lambda key, kind: (
        f'<|open|>argument key="{key}" type="{"number" if kind == "integer" else kind}"<|sep|>'
    ),
    end=lambda _: "<|close|>argument<|sep|>",
    tail=lambda _: "<|close|>call<|sep|>",
    closing="<|close|>tools<|sep|>",
    between="",
    marks=("<|close|>", "<|open|>", "<|sep|>"),
    trims="nothing",
    untyped="markup",
)

MINICPM = Tags(
    head=lambda name, _: f'<function name="{name}">',
    parameter=lambda key, _: f'<param name="{key}">',
    end=lambda _: "</param>",
    tail=lambda _: "</function>",
    marks=("</param>", "<param", "</function>", "<![CDATA["),
    wrappers=("properties", "arguments", "parameters"),
    needs_required=True,
)

STEP3 = Tags(
    opening="<｜tool_calls_begin｜>",
    head=lambda name, _: (
        f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">'
    ),
    parameter=lambda key, _: f'<steptml:parameter name="{key}">',
    end=lambda _: "</steptml:parameter>",
    tail=lambda _: "</steptml:invoke><｜tool_call_end｜>",
    closing="<｜tool_calls_end｜>",
    between="",
    marks=("steptml:", "<｜tool_call"),
)


def _read_named_tags(text: str, name: str, offers: Offers) -> dict[str, str]:
    """The parameters within the outermost tag."""
    return read_parameters(text[text.index(">") + 1 : text.rindex("</")], name, offers)


USE_TOOL = Tags(
    head=lambda name, _: f"<use_tool>\n<name>{name}</name>\n",
    parameter=lambda key, _: f"<{key}>",
    end=lambda key: f"</{key}>\n",
    tail=lambda _: "</use_tool>",
    marks=("<use_tool>", "</use_tool>"),
    read=_read_named_tags,
)


TOOL_TAGS = Tags(
    head=lambda name, _: f"<{name}>\n",
    parameter=lambda key, _: f"<{key}>",
    end=lambda key: f"</{key}>\n",
    tail=lambda name: f"</{name}>",
    marks=("</{name}>",),
    only_declared=True,
    read=_read_named_tags,
)


_NAMES = NameLimits()
# Names that are written bare, where a hyphen would end or split them.
_WORDS = NameLimits(pattern="[a-zA-Z0-9_]")


def _prompt(
    name: str,
    write_calls: WriteCalls,
    wording: Wording | None = None,
    results: ResultForm = TOOL_RESPONSES,
    *,
    names: NameLimits = _NAMES,
    stops: tuple[str, ...] = (),
) -> ToolPrompt:
    """One row. A format without a wording of its own is explained in plain words."""
    words = plain_wording(write_calls) if wording is None else wording

    def describe_tools(signatures: Sequence[Signature]) -> str:
        return f"{words.before}{words.show(signatures)}{words.after}\n\n{results.follow}"

    return ToolPrompt(
        name=name,
        describe_tools=describe_tools,
        write_calls=write_calls,
        write_results=results.write_results,
        ends=results.ends,
        names=names,
        stops=stops,
    )


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
    _prompt("hermes", _objects("<tool_call>\n", "\n</tool_call>"), wordings.HERMES),
    _prompt(
        "mistral",
        enclosed(mistral_call, opening="[TOOL_CALLS] [", between=", ", closing="]"),
        wordings.MISTRAL,
        MISTRAL_RESULTS,
    ),
    _prompt(
        "mistral_named",
        enclosed(flat_call("[TOOL_CALLS]", "[ARGS]", ""), between=""),
        wordings.MISTRAL_NAMED,
        MISTRAL_RESULTS,
    ),
    _prompt("deepseek_v3", _DEEPSEEK_V3, wordings.DEEPSEEK_V3, DEEPSEEK_OUTPUTS),
    _prompt("deepseek_v31", _DEEPSEEK_V31, wordings.DEEPSEEK_V31, DEEPSEEK_OUTPUTS),
    _prompt("kimi_k2", _KIMI, results=KIMI_RETURNS),
    _prompt("bare_json", enclosed(parameters_call, between="; "), wordings.LLAMA_JSON),
    _prompt(
        "python_tag",
        enclosed(parameters_call, opening="<|python_tag|>", between="; "),
    ),
    _prompt(
        "functionary_v31",
        enclosed(flat_call("<function=", ">", "</function>")),
        wordings.FUNCTIONARY,
    ),
    _prompt("command", _COMMAND, results=COHERE_RESULTS),
    _prompt("tool_calls_array", _array("<tool_calls>", "</tool_calls>")),
    _prompt(
        "minimax_m1", enclosed(object_call, opening="<tool_calls>\n", closing="\n</tool_calls>")
    ),
    _prompt("nemotron", _array("<TOOLCALL>", "</TOOLCALL>")),
    _prompt("granite", _array("<|tool_call|>", "")),
    _prompt("granite_20b", _objects("<function_call> ", "")),
    _prompt(
        "internlm",
        enclosed(lambda call: f"<|action_start|><|plugin|>{parameters_call(call)}<|action_end|>"),
    ),
    _prompt("functools", _array("functools", "")),
    _prompt("apertus", _APERTUS),
    _prompt("longcat", _objects("<longcat_tool_call>", "</longcat_tool_call>")),
    _prompt("dots_json", _objects("<dots_function_call>", "</dots_function_call>")),
    _prompt(
        "inkling",
        enclosed(
            lambda call: (
                f'<|content_invoke_tool_json|>{{"name": "{call.name}", '
                f'"args": {call.arguments}}}<|end_message|>'
            )
        ),
    ),
    _prompt("harmony", _HARMONY),
    _prompt(
        "react",
        enclosed(lambda call: f"Action: {call.name}\nAction Input: {call.arguments}"),
        wordings.REACT,
        OBSERVATIONS,
        stops=("Observation:",),
    ),
)

_IN_TAGS = (
    _prompt("use_tool", USE_TOOL.write_calls, wordings.OBSIDIAN),
    _prompt("qwen3_coder", QWEN_CODER.write_calls, wordings.QWEN_CODER),
    _prompt("glm", GLM.write_calls, wordings.GLM),
    _prompt("anthropic", ANTHROPIC.write_calls, wordings.ANTHROPIC, FUNCTION_RESULTS),
    _prompt("deepseek_v32", DSML.write_calls, wordings.DSML, DSML_RESULTS),
    _prompt("deepseek_v4", DSML_V4.write_calls, wordings.DSML_V4, DSML_RESULTS),
    _prompt("seed_oss", SEED.write_calls),
    _prompt("minimax_m2", MINIMAX.write_calls),
    _prompt("hunyuan", HUNYUAN.write_calls),
    _prompt("dots", DOTS.write_calls),
    _prompt("muse", MUSE.write_calls),
    _prompt("minicpm", MINICPM.write_calls),
    _prompt("step3", STEP3.write_calls),
    _prompt("kimi_k3", KIMI_K3.write_calls),
    _prompt("tool_tags", TOOL_TAGS.write_calls),
)

_PYTHON_LIKE = (
    _prompt("pythonic", python_calls(opening="[", closing="]"), wordings.PYTHONIC, names=_WORDS),
    _prompt(
        "llama4",
        python_calls(opening="<|python_start|>[", closing="]<|python_end|>"),
        names=_WORDS,
    ),
    _prompt(
        "olmo3",
        python_calls(opening="<function_calls>\n", between="\n", closing="\n</function_calls>"),
        names=_WORDS,
    ),
    _prompt(
        "lfm2",
        python_calls(opening="<|tool_call_start|>[", closing="]<|tool_call_end|>"),
        names=_WORDS,
    ),
    _prompt(
        "tool_code",
        python_calls(opening="```tool_code\n", between="\n", closing="\n```"),
        names=_WORDS,
    ),
    _prompt(
        "gemma4",
        marked_calls(mark='<|"|>', opening="<|tool_call>", closing="<tool_call|>"),
        names=_WORDS,
    ),
    _prompt(
        "functiongemma",
        marked_calls(
            mark="<escape>", opening="<start_function_call>", closing="<end_function_call>"
        ),
        names=_WORDS,
    ),
)

PROMPTS: Mapping[str, ToolPrompt] = {row.name: row for row in (*_IN_JSON, *_IN_TAGS, *_PYTHON_LIKE)}
