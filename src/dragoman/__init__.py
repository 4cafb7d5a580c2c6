"""Dragoman translates LLM tool calls between OpenAI Chat Completions, OpenAI Responses and Anthropic Messages.

This module exports the names that most programs need. The vocabulary (parts, events, requests) is in `dragoman.model`,
the codec of each dialect in `dragoman.dialects`.
"""

from dragoman.core.call_input import Verdict, judge
from dragoman.core.failures import exception_of
from dragoman.core.fold import fold
from dragoman.dialects.codec import Codec, DecodeContext, EncodeContext, EncodedRequest, Target
from dragoman.dialects.registry import CODECS, codec
from dragoman.dialects.stream_decoder import Step, StreamDecoder
from dragoman.dialects.translate import (
    StreamTranslator,
    TranslatedBody,
    make_decoder,
    make_encoder,
    translate_body,
    translate_request,
)
from dragoman.errors import (
    ConfigError,
    FrameTooLarge,
    GatewayError,
    LocalProtocolError,
    MalformedJson,
    ProtocolError,
    RemoteProtocolError,
    RequestRefused,
    StoreError,
    StreamTruncated,
    ToolError,
    UpstreamError,
)
from dragoman.model.outcome import ErrorInfo, Loss, Outcome, Problem, Repair, Usage
from dragoman.model.parts import Call, Media, Opaque, Reasoning, Refusal, Result, Text
from dragoman.model.request import Request, Tool, ToolChoice, Turn
from dragoman.obsidian import extract_use_tool_blocks, to_obsidian_xml
from dragoman.sse import Frame, FrameParser
from dragoman.textcalls import TextPattern, TextScanner, register_text_pattern, scan_text
from dragoman.toolcalls import (
    IngestResult,
    ParsedToolCalls,
    ToolCall,
    ToolCallAggregator,
    ToolCallDelta,
    ToolCallParser,
    ToolCallRecord,
    parse_tool_calls,
)

__all__ = (
    "CODECS",
    "Call",
    "Codec",
    "ConfigError",
    "DecodeContext",
    "EncodeContext",
    "EncodedRequest",
    "ErrorInfo",
    "Frame",
    "FrameParser",
    "FrameTooLarge",
    "GatewayError",
    "IngestResult",
    "LocalProtocolError",
    "Loss",
    "MalformedJson",
    "Media",
    "Opaque",
    "Outcome",
    "ParsedToolCalls",
    "Problem",
    "ProtocolError",
    "Reasoning",
    "Refusal",
    "RemoteProtocolError",
    "Repair",
    "Request",
    "RequestRefused",
    "Result",
    "Step",
    "StoreError",
    "StreamDecoder",
    "StreamTranslator",
    "StreamTruncated",
    "Target",
    "Text",
    "TextPattern",
    "TextScanner",
    "Tool",
    "ToolCall",
    "ToolCallAggregator",
    "ToolCallDelta",
    "ToolCallParser",
    "ToolCallRecord",
    "ToolChoice",
    "ToolError",
    "TranslatedBody",
    "Turn",
    "UpstreamError",
    "Usage",
    "Verdict",
    "codec",
    "exception_of",
    "extract_use_tool_blocks",
    "fold",
    "judge",
    "make_decoder",
    "make_encoder",
    "parse_tool_calls",
    "register_text_pattern",
    "scan_text",
    "to_obsidian_xml",
    "translate_body",
    "translate_request",
)
