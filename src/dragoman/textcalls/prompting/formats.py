"""The formats that tools can be prompted in, by the names that the scanner knows them by."""

from collections.abc import Mapping, Sequence

from dragoman.core.aliases import NameLimits
from dragoman.textcalls.prompting import families
from dragoman.textcalls.prompting.base import SaidCall, Signature, ToolPrompt
from dragoman.textcalls.prompting.in_json import (
    cohere_call,
    enclosed,
    flat_call,
    kimi_id,
    mistral_call,
    object_call,
    parameters_call,
)
from dragoman.textcalls.prompting.in_python import marked_calls, python_calls
from dragoman.textcalls.prompting.results import (
    COHERE_RESULTS,
    DEEPSEEK_OUTPUTS,
    DSML_RESULTS,
    FUNCTION_RESULTS,
    KIMI_RETURNS,
    MISTRAL_RESULTS,
    OBSERVATIONS,
    TOOL_RESPONSES,
    ResultForm,
)
from dragoman.textcalls.prompting.tag_formats import (
    ANTHROPIC,
    DOTS,
    DSML,
    DSML_V4,
    GLM,
    HUNYUAN,
    KIMI_K3,
    MINICPM,
    MINIMAX,
    MUSE,
    QWEN_CODER,
    SEED,
    STEP3,
    TOOL_TAGS,
    USE_TOOL,
)
from dragoman.textcalls.prompting.wordings import Say, Wording, plainly

__all__ = ("PROMPTS",)

_NAMES = NameLimits()
# Names that are written bare, where a hyphen would end or split them.
_WORDS = NameLimits(pattern="[a-zA-Z0-9_]")


def _prompt(
    name: str,
    say: Say,
    wording: Wording | None = None,
    results: ResultForm = TOOL_RESPONSES,
    *,
    names: NameLimits = _NAMES,
    stops: tuple[str, ...] = (),
) -> ToolPrompt:
    """One row. A format without a wording of its own is explained in plain words."""
    words = plainly(say) if wording is None else wording

    def offer(signatures: Sequence[Signature]) -> str:
        return f"{words.before}{words.show(signatures)}{words.after}\n\n{results.follow}"

    return ToolPrompt(
        name=name,
        offer=offer,
        say=say,
        give=results.give,
        ends=results.ends,
        names=names,
        stops=stops,
    )


def _array(opening: str, closing: str) -> Say:
    return enclosed(object_call, opening=f"{opening}[", between=", ", closing=f"]{closing}")


def _objects(opening: str, closing: str) -> Say:
    """One JSON object in each block."""
    return enclosed(lambda call: opening + object_call(call) + closing)


def _kimi_call(call: SaidCall) -> str:
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
    _prompt("hermes", _objects("<tool_call>\n", "\n</tool_call>"), families.HERMES),
    _prompt(
        "mistral",
        enclosed(mistral_call, opening="[TOOL_CALLS] [", between=", ", closing="]"),
        families.MISTRAL,
        MISTRAL_RESULTS,
    ),
    _prompt(
        "mistral_named",
        enclosed(flat_call("[TOOL_CALLS]", "[ARGS]", ""), between=""),
        families.MISTRAL_NAMED,
        MISTRAL_RESULTS,
    ),
    _prompt("deepseek_v3", _DEEPSEEK_V3, families.DEEPSEEK_V3, DEEPSEEK_OUTPUTS),
    _prompt("deepseek_v31", _DEEPSEEK_V31, families.DEEPSEEK_V31, DEEPSEEK_OUTPUTS),
    _prompt("kimi_k2", _KIMI, results=KIMI_RETURNS),
    _prompt("bare_json", enclosed(parameters_call, between="; "), families.LLAMA_JSON),
    _prompt(
        "python_tag",
        enclosed(parameters_call, opening="<|python_tag|>", between="; "),
    ),
    _prompt(
        "functionary_v31",
        enclosed(flat_call("<function=", ">", "</function>")),
        families.FUNCTIONARY,
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
        families.REACT,
        OBSERVATIONS,
        stops=("Observation:",),
    ),
)

_IN_TAGS = (
    _prompt("use_tool", USE_TOOL.say, families.OBSIDIAN),
    _prompt("qwen3_coder", QWEN_CODER.say, families.QWEN_CODER),
    _prompt("glm", GLM.say, families.GLM),
    _prompt("anthropic", ANTHROPIC.say, families.ANTHROPIC, FUNCTION_RESULTS),
    _prompt("deepseek_v32", DSML.say, families.DSML, DSML_RESULTS),
    _prompt("deepseek_v4", DSML_V4.say, families.DSML_V4, DSML_RESULTS),
    _prompt("seed_oss", SEED.say),
    _prompt("minimax_m2", MINIMAX.say),
    _prompt("hunyuan", HUNYUAN.say),
    _prompt("dots", DOTS.say),
    _prompt("muse", MUSE.say),
    _prompt("minicpm", MINICPM.say),
    _prompt("step3", STEP3.say),
    _prompt("kimi_k3", KIMI_K3.say),
    _prompt("tool_tags", TOOL_TAGS.say),
)

_PYTHON_LIKE = (
    _prompt("pythonic", python_calls(opening="[", closing="]"), families.PYTHONIC, names=_WORDS),
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
