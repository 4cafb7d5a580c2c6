"""Formats whose block is JSON with a name and arguments in it, told apart by their openers."""

from dragoman.textcalls.bodies.json_body import JsonBody
from dragoman.textcalls.bodies.led_body import LedBody
from dragoman.textcalls.patterns import TextPattern

__all__ = ("JSON_BLOCKS",)

_INKLING = JsonBody(shape="object", argument_keys=("args", "arguments"))

JSON_BLOCKS = (
    # Hermes, Qwen 2.5 and 3, Ernie 4.5, Granite 4, SmolLM, Trinity; an array behind the tag: Granite 3, xLAM.
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
