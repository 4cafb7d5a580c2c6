"""Tool calls written as text: found while they stream, in some forty formats.

    scan_text(text, tools)          a whole text: calls, the rest of the text, problems
    TextScanner(tools)              a text while it streams, as events of an answer
    TextCallStage(settings)         between a decoder and an encoder of a whole answer
    register_text_pattern(pattern)  a format of your own; `check_pattern` runs it through the laws

Pure: no I/O, no clock. Knows no dialect. How it works, from below: `words` and `tape` (text that arrives), `bodies` and
`formats` (what a block looks like), `block` and `patterns` (the contract between them and the rest), `finder` with
`openers`, `surroundings`, `spool` and `telling` (the machine), `weaving` (events), `scanner` and `stage` (the ways in).

The laws, whatever the text and however it is cut: the same is found; text and markup together are the input, in order,
but for white space between and behind calls; what is held may still become an opener or is a block that its format has
confirmed; arguments are one JSON object, told append-only; work is linear; nothing raises.
"""

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.json_body import JsonBody
from dragoman.textcalls.bodies.named_body import NamedBody
from dragoman.textcalls.bodies.python_body import PythonBody
from dragoman.textcalls.bodies.tagged_body import Tag, TaggedBody
from dragoman.textcalls.choosing import PATTERNS, register_text_pattern
from dragoman.textcalls.conformance import Report, check_pattern
from dragoman.textcalls.limits import Limits
from dragoman.textcalls.matchers import TextCall, TextMatcher
from dragoman.textcalls.obsidian import extract_use_tool_blocks, is_read_back, to_obsidian_xml
from dragoman.textcalls.patterns import Body, TextPattern
from dragoman.textcalls.registry import PatternRegistry
from dragoman.textcalls.scanner import TextScanner
from dragoman.textcalls.stage import StageSettings, TextCallStage, stage_for
from dragoman.textcalls.tail import TailPolicy
from dragoman.textcalls.tape import Wait
from dragoman.textcalls.whole import FoundCall, TextScan, scan_text

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
    "extract_use_tool_blocks",
    "is_read_back",
    "register_text_pattern",
    "scan_text",
    "stage_for",
    "to_obsidian_xml",
)
