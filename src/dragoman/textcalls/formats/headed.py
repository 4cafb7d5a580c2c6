"""Formats whose calls have the name in a header and the arguments as JSON behind it."""

import re

from dragoman.textcalls.bodies.harmony_body import HarmonyBody
from dragoman.textcalls.bodies.named_body import NamedBody
from dragoman.textcalls.patterns import TextPattern

__all__ = ("HEADED",)

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


_KIMI_FORBID = "<>()\"'`,;"  # white space may stand behind the header
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
