"""Gemma's own notation."""

from dragoman.textcalls.bodies.loose_body import LooseBody
from dragoman.textcalls.patterns import TextPattern

__all__ = ("GEMMA",)

GEMMA = (
    TextPattern(
        name="gemma4",
        openers=("<|tool_call>",),
        body=LooseBody(lead="call:", quote='<|"|>'),
        closers=("<tool_call|>",),
    ),
    TextPattern(
        name="functiongemma",
        openers=("<start_function_call>",),
        body=LooseBody(lead="call:", quote="<escape>"),
        closers=("<end_function_call>",),
    ),
)
"""The patterns, in order of rank."""
