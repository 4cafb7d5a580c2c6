"""The spellings of OpenAI's Responses API: events, items, content parts, tools, and which of our words each one is.

Everything here is data. The tables say where every name of the vendor's SDK has its home; a test walks the SDK's types
and fails on one that is in no table. What has no word of ours is listed too: `OPAQUE_ITEMS` are carried whole,
`PROGRESS_EVENTS` become Progress, `REPEATED_EVENTS` repeat what another event says and mean nothing by themselves.

Specification: the `openai` SDK, `openai.types.responses`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from dragoman._json import Raw, typed_decoder
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import CallKind, Executor, PartStatus

__all__ = (
    "CALL_ITEMS",
    "CONTENT_PARTS",
    "ENVELOPE_FIELDS",
    "FINISH_OF_REASON",
    "FUNCTION_LIKE",
    "INPUT_FAMILIES",
    "ITEM_OF_KIND",
    "KEEPALIVE_EVENTS",
    "LATE_FIELDS",
    "MAPPED_EVENTS",
    "MESSAGE_FIELDS",
    "NOT_WAITING",
    "OPAQUE_ITEMS",
    "OPAQUE_PART",
    "PART_STATUS",
    "PREFIXES",
    "PROGRESS_EVENTS",
    "PROGRESS_NAMES",
    "REASONING_FIELDS",
    "REASON_OF_FINISH",
    "REPEATED_EVENTS",
    "RESPONSE_FIELDS",
    "RESULT_ITEMS",
    "RESULT_OF_KIND",
    "STRICT_PREFIXES",
    "TERMINAL_EVENTS",
    "CallSpec",
    "CodeDelta",
    "CustomInputDelta",
    "Delta",
    "FunctionArgumentsDelta",
    "InputForm",
    "McpArgumentsDelta",
    "OutputTextDelta",
    "ReasoningTextDelta",
    "RefusalDelta",
    "ResultSpec",
    "SummaryTextDelta",
    "decode_delta",
)

# --- deltas: the only events read by a typed decoder, because they are nearly all events -----------------------------


class _Delta(Struct, frozen=True, gc=False, tag_field="type"):
    delta: str
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    logprobs: list[Raw] | None = None


class OutputTextDelta(_Delta, frozen=True, gc=False, tag="response.output_text.delta"):
    pass


class FunctionArgumentsDelta(
    _Delta, frozen=True, gc=False, tag="response.function_call_arguments.delta"
):
    pass


class CustomInputDelta(_Delta, frozen=True, gc=False, tag="response.custom_tool_call_input.delta"):
    pass


class McpArgumentsDelta(_Delta, frozen=True, gc=False, tag="response.mcp_call_arguments.delta"):
    pass


class CodeDelta(_Delta, frozen=True, gc=False, tag="response.code_interpreter_call_code.delta"):
    pass


class RefusalDelta(_Delta, frozen=True, gc=False, tag="response.refusal.delta"):
    pass


class SummaryTextDelta(_Delta, frozen=True, gc=False, tag="response.reasoning_summary_text.delta"):
    pass


class ReasoningTextDelta(_Delta, frozen=True, gc=False, tag="response.reasoning_text.delta"):
    pass


Delta = (
    OutputTextDelta
    | FunctionArgumentsDelta
    | CustomInputDelta
    | McpArgumentsDelta
    | CodeDelta
    | RefusalDelta
    | SummaryTextDelta
    | ReasoningTextDelta
)

decode_delta = typed_decoder(Delta)
