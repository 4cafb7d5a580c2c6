"""Tool calls for people who only want those: from payloads of any dialect, streamed or whole, to calls.

`ToolCallAggregator` collects the calls of a turn as they arrive; `parse_tool_calls` and `ToolCallParser` give calls
with parsed parameters. Sits above the dialects, whose readers do the reading.
"""

from dragoman.toolcalls.aggregator import ToolCallAggregator
from dragoman.toolcalls.parse import ParsedToolCalls, ToolCallParser, parse_tool_calls
from dragoman.toolcalls.records import IngestResult, ToolCallDelta, ToolCallRecord
from dragoman.toolcalls.textpatterns import (
    TEXT_PATTERNS,
    TextCall,
    TextMatcher,
    TextPatterns,
    register_text_pattern,
)
from dragoman.toolcalls.unified import ToolCall, ToolCallMetadata

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
