"""Tool calls written as text: found while they stream, in 68 formats.

    scan_text(text, tools)          a whole text: calls, the rest of the text, problems
    TextScanner(tools)              a text while it streams, as events of an answer
    TextCallStage(settings)         between a decoder and an encoder of a whole answer
    register_text_pattern(pattern)  a format of your own; `check_pattern` runs it through the laws

Pure: no I/O, no clock. Knows no dialect. From below: `cursor` (text that arrives), `collector` (findings), `block` (a format
and one block of it), `bodies` and `formats` (what blocks look like), `openers` and `finder` (finding and reading blocks),
`registry` (the catalogue of formats), `scanner` and `stage` (events of an answer), `history` (a conversation that is sent
back). `prompting` is the reverse: tools offered in a prompt.

The laws, for any text and however it is cut: the same calls are found; text and markup together are the input, in order,
except for white space between and after calls; text is held only if it may still become an opener or is a block that its
format has confirmed; arguments are one JSON object, reported append-only; work is linear; nothing raises.
"""

from dragoman.textcalls.block import Block, Body, TextPattern
from dragoman.textcalls.bodies.headed import NamedBody
from dragoman.textcalls.bodies.json_objects import JsonBody
from dragoman.textcalls.bodies.notations import PythonBody
from dragoman.textcalls.bodies.tags import Tag, TaggedBody
from dragoman.textcalls.conformance import Report, check_pattern
from dragoman.textcalls.cursor import Limits, Wait
from dragoman.textcalls.findings import FoundCall, TextScan
from dragoman.textcalls.registry import (
    PATTERNS,
    PatternRegistry,
    TextCall,
    TextMatcher,
    register_text_pattern,
)
from dragoman.textcalls.scanner import TextScanner, scan_text
from dragoman.textcalls.stage import StageSettings, TextCallStage, stage_for
from dragoman.textcalls.tail import TailPolicy

__all__ = (
    "PATTERNS",
    "Block",
    "Body",
    "FoundCall",
    "JsonBody",
    "Limits",
    "NamedBody",
    "PatternRegistry",
    "PythonBody",
    "Report",
    "StageSettings",
    "Tag",
    "TaggedBody",
    "TailPolicy",
    "TextCall",
    "TextCallStage",
    "TextMatcher",
    "TextPattern",
    "TextScan",
    "TextScanner",
    "Wait",
    "check_pattern",
    "register_text_pattern",
    "scan_text",
    "stage_for",
)
