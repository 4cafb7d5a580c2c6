"""The formats that tools can be prompted in, by the names that the scanner knows them by."""

from collections.abc import Mapping

from dragoman.core.aliases import NameLimits
from dragoman.textcalls.prompting import families
from dragoman.textcalls.prompting.base import SaidCall, ToolPrompt
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
    Give,
    anthropic_results,
    cohere_results,
    each,
    kimi_results,
    mistral_results,
    react_results,
    tool_responses,
)
from dragoman.textcalls.prompting.tag_formats import (
    ANTHROPIC,
    CLINE,
    DSML,
    GLM,
    HUNYUAN,
    KIMI_K3,
    MINICPM,
    MINIMAX,
    MUSE,
    OBSIDIAN,
    QWEN_CODER,
    SEED,
    STEP3,
)
from dragoman.textcalls.prompting.wordings import Offer, Say, plainly

__all__ = ("PROMPTS",)

# Names that are written bare, where a hyphen would end or split them.
_WORDS = NameLimits(pattern="[a-zA-Z0-9_]")
_NAMES = NameLimits()

_RESPONSE_END = ("</tool_response>",)


def _prompt(
    name: str,
    say: Say,
    *,
    offer: Offer | None = None,
    give: Give = tool_responses,
    ends: tuple[str, ...] = _RESPONSE_END,
    names: NameLimits = _NAMES,
) -> ToolPrompt:
    """One row. Without a wording of its own a format is explained in plain words."""
    wording = plainly(say, families.RESPONSES_FOLLOW) if offer is None else offer
    return ToolPrompt(name=name, offer=wording, say=say, give=give, ends=ends, names=names)


def _kimi(call: SaidCall) -> str:
    return (
        f"<|tool_call_begin|>{kimi_id(call.name, call.number)}<|tool_call_argument_begin|>"
        f"{call.arguments}<|tool_call_end|>"
    )


def _array(opening: str, closing: str) -> Say:
    return enclosed(object_call, opening=f"{opening}[", between=", ", closing=f"]{closing}")


def _objects(opening: str, closing: str) -> Say:
    """One JSON object in each block."""
    return enclosed(lambda call: opening + object_call(call) + closing)


_DEEPSEEK_RESULTS = each("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", between="")
_DEEPSEEK_ENDS = ("<｜tool▁output▁end｜>",)
_FUNCTION_RESULTS_END = ("</function_results>", "</result>")


_ROWS: tuple[ToolPrompt, ...] = (
    # --- JSON
    _prompt("hermes", _objects("<tool_call>\n", "\n</tool_call>"), offer=families.HERMES),
    _prompt(
        "functionary",
        enclosed(flat_call("<function=", ">", "</function>")),
        offer=families.FUNCTIONARY,
    ),
    _prompt("llama3_json", enclosed(parameters_call, between="; "), offer=families.LLAMA_JSON),
    _prompt(
        "mistral_array",
        enclosed(mistral_call, opening="[TOOL_CALLS] [", between=", ", closing="]"),
        offer=families.MISTRAL,
        give=mistral_results,
        ends=(),
    ),
    _prompt(
        "mistral",
        enclosed(flat_call("[TOOL_CALLS]", "[ARGS]", ""), between=""),
        offer=families.MISTRAL_NAMED,
        give=mistral_results,
        ends=(),
    ),
    _prompt(
        "deepseek_v3",
        enclosed(
            flat_call(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                "\n```json\n",
                "\n```<｜tool▁call▁end｜>",
            ),
            opening="<｜tool▁calls▁begin｜>",
            closing="<｜tool▁calls▁end｜>",
        ),
        offer=families.DEEPSEEK_V3,
        give=_DEEPSEEK_RESULTS,
        ends=_DEEPSEEK_ENDS,
    ),
    _prompt(
        "deepseek_v31",
        enclosed(
            flat_call("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
            opening="<｜tool▁calls▁begin｜>",
            between="",
            closing="<｜tool▁calls▁end｜>",
        ),
        offer=families.DEEPSEEK_V31,
        give=_DEEPSEEK_RESULTS,
        ends=_DEEPSEEK_ENDS,
    ),
    _prompt(
        "kimi_k2",
        enclosed(
            _kimi,
            opening="<|tool_calls_section_begin|>",
            between="",
            closing="<|tool_calls_section_end|>",
        ),
        give=kimi_results,
        ends=("## Return of ",),
    ),
    _prompt(
        "command_a",
        enclosed(
            cohere_call,
            opening="<|START_ACTION|>[\n",
            between=",\n",
            closing="\n]<|END_ACTION|>",
        ),
        give=cohere_results,
        ends=(),
    ),
    _prompt(
        "internlm2",
        enclosed(lambda call: f"<|action_start|><|plugin|>{parameters_call(call)}<|action_end|>"),
    ),
    _prompt("granite3", _array("<|tool_call|>", "")),
    _prompt("granite_20b", _objects("<function_call> ", "")),
    _prompt("phi4", _array("functools", "")),
    _prompt("jamba", _array("<tool_calls>", "</tool_calls>")),
    _prompt(
        "minimax_m1", enclosed(object_call, opening="<tool_calls>\n", closing="\n</tool_calls>")
    ),
    _prompt("nemotron", _array("<TOOLCALL>", "</TOOLCALL>")),
    _prompt(
        "apertus",
        enclosed(
            lambda call: f'{{"{call.name}": {call.arguments}}}',
            opening="<|tools_prefix|>[",
            between=", ",
            closing="]<|tools_suffix|>",
        ),
    ),
    _prompt(
        "harmony",
        enclosed(
            flat_call(
                "<|channel|>commentary to=functions.",
                " <|constrain|>json<|message|>",
                "<|call|>",
            ),
            between="",
        ),
    ),
    _prompt("longcat", _objects("<longcat_tool_call>", "</longcat_tool_call>")),
    _prompt("dots", _objects("<dots_function_call>", "</dots_function_call>")),
    # --- parameters in tags
    _prompt("qwen3_coder", QWEN_CODER.say, offer=families.QWEN_CODER),
    _prompt("glm", GLM.say, offer=families.GLM),
    _prompt("obsidian", OBSIDIAN.say, offer=families.OBSIDIAN),
    _prompt(
        "anthropic",
        ANTHROPIC.say,
        offer=families.ANTHROPIC,
        give=anthropic_results,
        ends=_FUNCTION_RESULTS_END,
    ),
    _prompt(
        "deepseek_dsml",
        DSML.say,
        offer=families.DSML,
        give=each(
            "<result>", "</result>", around=("<function_results>\n", "\n</function_results>")
        ),
        ends=_FUNCTION_RESULTS_END,
    ),
    _prompt("minimax_m2", MINIMAX.say),
    _prompt("seed_oss", SEED.say),
    _prompt("hunyuan_v3", HUNYUAN.say),
    _prompt("minicpm5", MINICPM.say),
    _prompt("step3", STEP3.say),
    _prompt("kimi_k3", KIMI_K3.say),
    _prompt("muse", MUSE.say),
    _prompt("cline", CLINE.say),
    # --- Python, and what resembles it
    _prompt(
        "pythonic", python_calls(opening="[", closing="]"), offer=families.PYTHONIC, names=_WORDS
    ),
    _prompt(
        "llama4_pythonic",
        python_calls(opening="<|python_start|>[", closing="]<|python_end|>"),
        offer=families.PYTHONIC,
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

_REACT = ToolPrompt(
    name="react",
    offer=families.REACT,
    say=enclosed(lambda call: f"Action: {call.name}\nAction Input: {call.arguments}"),
    give=react_results,
    ends=("\nObservation:",),
    stops=("Observation:",),
)

PROMPTS: Mapping[str, ToolPrompt] = {row.name: row for row in (*_ROWS, _REACT)}
