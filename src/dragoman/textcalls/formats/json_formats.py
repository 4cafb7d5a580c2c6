"""Formats with JSON arguments: JSON objects between markers (JSON_BLOCKS), and a name in a header before JSON (HEADED)."""

import re

from dragoman.textcalls.block import TextPattern
from dragoman.textcalls.bodies.headed import HarmonyBody, LedBody, NamedBody
from dragoman.textcalls.bodies.json_objects import JsonBody

_INKLING = JsonBody(shape="object", argument_keys=("args", "arguments"))

JSON_BLOCKS = (
    # Hermes, Qwen 2.5 and 3, Ernie 4.5, Granite 4, SmolLM, Trinity; an array after the tag: Granite 3, xLAM.
    TextPattern(
        name="hermes",
        openers=("<tool_call>",),
        body=JsonBody(separators=()),
        closers=("</tool_call>",),
    ),
    # Jamba, Hunyuan A13B, Apriel
    TextPattern(
        name="tool_calls_array",
        openers=("<tool_calls>",),
        body=JsonBody(shape="array"),
        closers=("</tool_calls>",),
    ),
    # One object a line.
    TextPattern(
        name="minimax_m1",
        openers=("<tool_calls>",),
        body=JsonBody(shape="object", separators=()),
        closers=("</tool_calls>",),
    ),
    TextPattern(
        name="nemotron",
        openers=("<TOOLCALL>",),
        body=JsonBody(shape="array"),
        closers=("</TOOLCALL>",),
    ),
    TextPattern(name="granite", openers=("<|tool_call|>",), body=JsonBody()),
    TextPattern(name="granite_20b", openers=("<function_call>",), body=JsonBody(shape="object")),
    TextPattern(
        name="internlm",
        openers=("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        body=JsonBody(shape="object"),
        closers=("<|action_end|>",),
    ),
    # Phi-4-mini, FireFunction
    TextPattern(
        name="functools", openers=("functools[",), body=JsonBody(is_opened=True), place="word"
    ),
    # The ids count from 0 in every turn, so they cannot be kept.
    TextPattern(
        name="command",
        openers=("<|START_ACTION|>",),
        body=JsonBody(id_keys=()),
        closers=("<|END_ACTION|>",),
    ),
    # Command-R and R+
    TextPattern(
        name="command_r",
        openers=("Action: ```json", "Action:```json", "Action:\n```json", "Action:\r\n```json"),
        body=JsonBody(id_keys=(), needs_arguments=True),
        closers=("```",),
        place="line",
    ),
    TextPattern(
        name="apertus",
        openers=("<|tools_prefix|>",),
        body=JsonBody(shape="array", keyed=True),
        closers=("<|tools_suffix|>",),
    ),
    TextPattern(
        name="gigachat",
        openers=(
            "<|message_sep|>\n\nfunction call<|role_sep|>\n",
            "<|message_sep|>\r\n\r\nfunction call<|role_sep|>\r\n",
            "<|function_call|>",
        ),
        body=JsonBody(shape="object"),
        closers=("</s>", "<|message_sep|>"),
    ),
    TextPattern(
        name="longcat",
        openers=("<longcat_tool_call>",),
        body=JsonBody(),
        closers=("</longcat_tool_call>",),
    ),
    TextPattern(
        name="dots_json",
        openers=("<dots_function_call>",),
        body=JsonBody(),
        closers=("</dots_function_call>",),
    ),
    TextPattern(
        name="inkling",
        openers=("<|content_invoke_tool_json|>",),
        body=_INKLING,
        closers=("<|end_message|>",),
    ),
    # The header repeats the name, not always the right one: the payload's counts.
    TextPattern(
        name="inkling_headed",
        openers=("<|message_model|>",),
        body=LedBody(ends=("<|content_invoke_tool_json|>",), body=_INKLING),
        closers=("<|end_message|>",),
    ),
    TextPattern(name="python_tag", openers=("<|python_tag|>",), body=JsonBody(separators=(";",))),
    TextPattern(name="mistral", openers=("[TOOL_CALLS]",), body=JsonBody()),
)
"""The patterns, in order of rank."""


_KIMI_HEADER = re.compile(r"(?:functions?\.)?(.+?)(?::[0-9]+)?")
_KIMI_NAMELESS = re.compile(r"(?:functions?\.?)?:?[0-9]+")
_KIMI_INDEX = re.compile(r".+:[0-9]+")


def _kimi_name(header: str) -> tuple[str, str]:
    """`functions.f:0` is the name and, as a whole, the id: its number counts over the conversation. `:0` names nothing."""
    if _KIMI_NAMELESS.fullmatch(header):
        return "", ""
    found = _KIMI_HEADER.fullmatch(header)
    call_id = header if _KIMI_INDEX.fullmatch(header) else ""
    return ("", "") if found is None else (found[1], call_id)


def _mistral_name(header: str) -> tuple[str, str]:
    """`f`, or `f[CALL_ID]id`."""
    name, _, call_id = header.partition("[CALL_ID]")
    return name.strip(), call_id.strip()


_KIMI_FORBID = "<>()\"'`,;"  # white space may follow the header
_KIMI_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_KIMI = NamedBody(
    opens=("<|tool_call_begin|>",),
    name_ends=("<|tool_call_argument_begin|>",),
    closes=("<|tool_call_end|>",),
    many=True,
    needs_close=True,
    ends=_KIMI_ENDS,
    forbid=_KIMI_FORBID,
    guesses=True,
    read_name=_kimi_name,
)
_HARMONY_ENDS = ("<|call|>", "<|end|>")
_DEEPSEEK = "<｜tool▁calls▁begin｜>"
_DEEPSEEK_CALL = "<｜tool▁call▁begin｜>"
_DEEPSEEK_ENDS = ("<｜tool▁calls▁end｜>",)

HEADED = (
    TextPattern(
        name="kimi_k2",
        openers=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
        body=_KIMI,
        closers=_KIMI_ENDS,
    ),
    TextPattern(
        name="kimi_k2_bare",
        openers=("<|tool_call_begin|>",),
        body=NamedBody(
            name_ends=("<|tool_call_argument_begin|>",),
            closes=("<|tool_call_end|>",),
            needs_close=True,
            ends=_KIMI_ENDS,
            forbid=_KIMI_FORBID,
            guesses=True,
            read_name=_kimi_name,
        ),
        closers=_KIMI_ENDS,
    ),
    TextPattern(
        name="deepseek_v3",
        openers=(_DEEPSEEK,),
        body=NamedBody(
            opens=(f"{_DEEPSEEK_CALL}function<｜tool▁sep｜>",),
            name_ends=("\n", "\r\n", "```json"),
            before=("```json", "```"),
            after=("```",),
            closes=("<｜tool▁call▁end｜>",),
            many=True,
        ),
        closers=_DEEPSEEK_ENDS,
    ),
    TextPattern(
        name="deepseek_v31",
        openers=(_DEEPSEEK,),
        body=NamedBody(
            opens=(_DEEPSEEK_CALL,),
            name_ends=("<｜tool▁sep｜>",),
            closes=("<｜tool▁call▁end｜>",),
            many=True,
        ),
        closers=_DEEPSEEK_ENDS,
    ),
    TextPattern(
        name="mistral_named",
        openers=("[TOOL_CALLS]",),
        body=NamedBody(
            name_ends=("[ARGS]", "{", " [ARGS]", " {"), eos_name=True, read_name=_mistral_name
        ),
    ),
    # Functionary 3.1, and Llama's custom tools
    TextPattern(
        name="functionary_v31",
        openers=("<function=",),
        body=NamedBody(name_ends=(">",), closes=("</function>",)),
        closers=("</function>",),
    ),
    # Without the mark around the section, which some servers eat.
    TextPattern(
        name="deepseek_v3_bare",
        openers=(_DEEPSEEK_CALL,),
        body=NamedBody(
            opens=("function<｜tool▁sep｜>",),
            name_ends=("\n", "\r\n", "```json"),
            before=("```json", "```"),
            after=("```",),
            closes=("<｜tool▁call▁end｜>",),
            needs_close=True,
        ),
        closers=_DEEPSEEK_ENDS,
    ),
    TextPattern(
        name="deepseek_v31_bare",
        openers=(_DEEPSEEK_CALL,),
        body=NamedBody(
            name_ends=("<｜tool▁sep｜>",), closes=("<｜tool▁call▁end｜>",), needs_close=True
        ),
        closers=_DEEPSEEK_ENDS,
    ),
    # Python's prompt in any other text.
    TextPattern(
        name="functionary_v32",
        openers=(">>>",),
        body=NamedBody(name_ends=("\n", "\r\n")),
        place="line",
        is_sentinel=False,
    ),
    TextPattern(
        name="harmony",
        openers=("<|channel|>", "<|start|>assistant"),
        body=HarmonyBody(),
        closers=_HARMONY_ENDS,
    ),
    # What is around the calls; a header whose beginning a server has eaten.
    TextPattern(
        name="harmony_channels",
        openers=("<|channel|>", "<|start|>assistant", "to=functions."),
        body=HarmonyBody(takes_channels=True),
        closers=_HARMONY_ENDS,
        is_sentinel=False,
    ),
)
"""The patterns, in order of rank."""
