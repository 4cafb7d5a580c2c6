"""Formats of calls written as Python, with a sentinel."""

from dragoman.textcalls.bodies.json_body import JsonBody
from dragoman.textcalls.bodies.python_body import PythonBody
from dragoman.textcalls.patterns import TextPattern

__all__ = ("PYTHON_CALLS",)

PYTHON_CALLS = (
    TextPattern(
        name="llama4",
        openers=("<|python_start|>",),
        body=PythonBody(in_list=None),
        closers=("<|python_end|>",),
    ),
    TextPattern(
        name="lfm2",
        openers=("<|tool_call_start|>",),
        body=PythonBody(in_list=None),
        closers=("<|tool_call_end|>",),
    ),
    TextPattern(
        name="lfm2_json",
        openers=("<|tool_call_start|>",),
        body=JsonBody(),
        closers=("<|tool_call_end|>",),
    ),
    TextPattern(
        name="olmo3",
        openers=("<function_calls>",),
        body=PythonBody(in_list=False),
        closers=("</function_calls>",),
        needs_closer=True,
    ),
    # Gemma 1 to 3, by prompt only.
    TextPattern(
        name="tool_code",
        openers=("```tool_code\n", "```tool_code\r\n"),
        body=PythonBody(in_list=False, offered_only=True, prints=True),
        closers=("```",),
        place="line",
    ),
)
"""The patterns, in order of rank."""
