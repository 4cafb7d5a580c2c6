"""Formats without a sentinel: their openers stand in any prose, so they are used only where asked for."""

from dragoman.textcalls.bodies.json_body import JsonBody
from dragoman.textcalls.bodies.python_body import PythonBody
from dragoman.textcalls.bodies.react_body import ReactBody
from dragoman.textcalls.formats.use_tool import TagNamedBody
from dragoman.textcalls.patterns import TextPattern

__all__ = ("BARE",)

BARE = (
    # Llama 3.x: `{"name": …, "parameters": {…}}; {…}`
    TextPattern(
        name="bare_json",
        openers=("{",),
        body=JsonBody(shape="object", is_opened=True, separators=(";",), needs_arguments=True),
        is_sentinel=False,
    ),
    # xLAM, Granite: `[{"name": …, "arguments": {…}}]`
    TextPattern(
        name="bare_json_array",
        openers=("[",),
        body=JsonBody(is_opened=True, needs_arguments=True),
        is_sentinel=False,
    ),
    # xLAM: the one format where a fence is the call
    TextPattern(
        name="json_fence",
        openers=("```json", "```"),
        body=JsonBody(needs_arguments=True),
        closers=("```",),
        place="line",
        is_sentinel=False,
    ),
    # Llama 4, ToolACE: `[f(a=1), g()]`
    TextPattern(
        name="pythonic",
        openers=("[",),
        body=PythonBody(is_opened=True, offered_only=True),
        is_sentinel=False,
    ),
    TextPattern(
        name="react",
        openers=("Action:",),
        body=ReactBody(),
        closers=("Observation:",),
        place="line",
        is_sentinel=False,
    ),
    # Cline, Roo: the tag is the name of the tool
    TextPattern(
        name="tool_tags",
        openers=("<{name}>",),
        body=TagNamedBody(),
        closers=("</{name}>",),
        is_sentinel=False,
    ),
)
"""The patterns, in order of rank."""
