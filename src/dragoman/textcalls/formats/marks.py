"""Marks of channels and turns that some models write around their text: not calls, and nothing for a reader.

They are taken out only where a model's profile asks for it.
"""

from dragoman.textcalls.bodies.mark_body import MarkBody, ThoughtBody
from dragoman.textcalls.patterns import TextPattern

__all__ = ("MARKS",)

_K3_CHANNELS = ("response", "message", "think")
_K3_MARKS = tuple(
    f"<|{verb}|>{space}{channel}{space}<|sep|>"
    for verb in ("open", "close")
    for channel in _K3_CHANNELS
    for space in ("", " ")
)


def _marks(name: str, *openers: str, ends: tuple[str, ...] = ()) -> TextPattern:
    return TextPattern(name=name, openers=openers, body=MarkBody(ends=ends), is_sentinel=False)


def _thoughts(name: str, *openers: str, ends: tuple[str, ...]) -> TextPattern:
    return TextPattern(name=name, openers=openers, body=ThoughtBody(ends=ends), is_sentinel=False)


MARKS = (
    _marks("kimi_k3_marks", *_K3_MARKS),
    _marks("harmony_marks", "<|end|>", "<|return|>", "<|call|>", "<|message|>"),
    _thoughts("command_thoughts", "<|START_THINKING|>", ends=("<|END_THINKING|>",)),
    _marks(
        "command_marks",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<co>",
    ),
    _marks("command_citations", "</co: ", ends=(">",)),
    _thoughts(
        "muse_thoughts",
        *(f"{lead}to=self<|message|>" for lead in ("", " ", "<|start|>assistant ")),
        ends=("<|eom|>", "<|eot|>"),
    ),
    _marks("muse_headers", "<|start|>assistant to=", " to=", "to=", ends=("<|message|>",)),
    _marks("muse_marks", "<|eom|>", "<|eot|>"),
    _marks("dots_marks", "</dots_function_call>"),
    _marks("functionary_v32_content", ">>>all\n"),
)
"""The patterns, in order of rank."""
