"""Reads the tool calls, and nothing else, from payloads of any dialect, streamed or complete.

`ToolCallAggregator` collects the calls of a turn as they arrive; `parse_tool_calls` and `ToolCallParser` return calls
with parsed parameters. This package is above the dialects, whose readers decode the payloads.
"""

from dragoman.textcalls.registry import PATTERNS as TEXT_PATTERNS
from dragoman.textcalls.registry import PatternRegistry as TextPatterns
from dragoman.textcalls.registry import TextCall, TextMatcher, register_text_pattern
from dragoman.toolcalls.aggregator import (
    IngestResult,
    ToolCallAggregator,
    ToolCallDelta,
    ToolCallRecord,
)
from dragoman.toolcalls.parser import (
    ParsedToolCalls,
    ToolCall,
    ToolCallMetadata,
    ToolCallParser,
    parse_tool_calls,
)

__all__ = (
    "TEXT_PATTERNS",
    "IngestResult",
    "ParsedToolCalls",
    "TextCall",
    "TextMatcher",
    "TextPatterns",
    "ToolCall",
    "ToolCallAggregator",
    "ToolCallDelta",
    "ToolCallMetadata",
    "ToolCallParser",
    "ToolCallRecord",
    "parse_tool_calls",
    "register_text_pattern",
)
