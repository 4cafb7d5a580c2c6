"""The vendor's names of events, blocks, deltas, tools and fields of Anthropic Messages, and what each becomes.

The tables are data, so that a test can walk the vendor's own types and find each of them either mapped or listed as
kept without meaning (opaque, noticed, extra). Nothing here has behaviour, except the typed shape of frames that are one delta.
"""

from collections.abc import Mapping
from typing import Literal, final

from msgspec import Struct

from dragoman._json import Raw, typed_decoder
from dragoman.core.fields import NULL
from dragoman.core.prompt_cache import BreakpointForm
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import CallKind

# --- frames that are one delta ----------------------------------------------------------------------------------------
# Unknown fields are forbidden here, so that a delta that has any is read field by field and keeps them.


class _Closed(Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    pass


@final
class TextFragment(_Closed, frozen=True, gc=False, tag="text_delta"):
    text: str


@final
class InputFragment(_Closed, frozen=True, gc=False, tag="input_json_delta"):
    partial_json: str


@final
class ThinkingFragment(_Closed, frozen=True, gc=False, tag="thinking_delta"):
    thinking: str
    estimated_tokens: int | None = None


class BlockDelta(_Closed, frozen=True, tag="content_block_delta"):
    index: int
    delta: TextFragment | InputFragment | ThinkingFragment


decode_block_delta = typed_decoder(BlockDelta)

# --- events -------------------------------------------------------------------------------------------------------

EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    }
)

NOTICED_DELTAS = frozenset({"compaction_delta"})

DELTA_FIELDS: Mapping[str, str] = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "citations_delta": "citation",
}
"""The one field of each delta that has a meaning; others are emitted as `Noticed` fields."""

STOP_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    # The turn stops after the context was compacted, and continues when the client sends it back.
    "compaction": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}

CUT_REASONS: frozenset[FinishReason] = frozenset(
    {"length", "context_window", "refusal", "content_filter"}
)
"""Finish reasons that may cut a call; the vendor closes the block that was cut."""

# --- blocks -------------------------------------------------------------------------------------------------------

RESULT_SUFFIX = "_tool_result"

MAPPED_BLOCKS: Mapping[str, str] = {
    "text": "Text",
    "thinking": "Reasoning",
    "redacted_thinking": "Reasoning",
    "tool_use": "Call",
    "server_tool_use": "Call",
    "mcp_tool_use": "Call",
    "tool_result": "Result",
    "mcp_tool_result": "Result",
    "web_search_tool_result": "Result",
    "web_fetch_tool_result": "Result",
    "code_execution_tool_result": "Result",
    "bash_code_execution_tool_result": "Result",
    "text_editor_code_execution_tool_result": "Result",
    "tool_search_tool_result": "Result",
    "advisor_tool_result": "Result",
    "image": "Media",
    "document": "Media",
}

OPAQUE_BLOCKS = frozenset(
    {
        "container_upload",
        "compaction",
        "fallback",
        "mcp_tool_listing",
        "search_result",
        "tool_addition",
        "tool_removal",
        "tool_reference",
        "browser_state",
    }
)
"""Blocks that are kept whole, because they describe the vendor's own state. Blocks of unknown types are kept whole too."""

SERVER_TOOL_KINDS: Mapping[str, CallKind] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_interpreter",
    "bash_code_execution": "code_interpreter",
    "text_editor_code_execution": "code_interpreter",
    "tool_search_tool_regex": "tool_search",
    "tool_search_tool_bm25": "tool_search",
    "advisor": "other",
}
"""The names that `server_tool_use` may carry."""

RESULT_KINDS: Mapping[str, CallKind] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_interpreter",
    "bash_code_execution": "code_interpreter",
    "text_editor_code_execution": "code_interpreter",
    "tool_search": "tool_search",
    "mcp": "mcp",
}
"""The kinds by the text before `_tool_result` in a result block's type; all others are of kind `other`."""

CALLED_RESULTS = frozenset({"web_search", "web_fetch"})
"""The results, by the same text, that say who made the call, as calls do."""

# --- requests -----------------------------------------------------------------------------------------------------

TOOL_FAMILIES: Mapping[str, CallKind] = {
    "bash_": "bash",
    "text_editor_": "text_editor",
    "computer_": "computer",
    "memory_": "memory",
    "web_search_": "web_search",
    "web_fetch_": "web_fetch",
    "code_execution_": "code_interpreter",
    "tool_search_tool_": "tool_search",
    "mcp_toolset": "mcp",
    "browser_toolset_": "other",
    "advisor_": "other",
}
"""Prefixes of the types of built-in tools; a tool of an unknown type is of kind `other`."""

COMPACTION_BETA = "compact-2026-09-04"
CONTEXT_BETA = "compact-2026-01-12"
"""The betas of `compaction`, and of the edit that compacts."""

DEFERRED_BETA = "advanced-tool-use-2025-11-20"
"""The beta of deferred tools, which version 2023-06-01 of the API requires."""

TOOL_CHOICES = frozenset({"auto", "any", "tool", "none"})
THINKING_TYPES = frozenset({"enabled", "disabled", "adaptive", "between_tools"})
MAPPED_THINKING = THINKING_TYPES - {"between_tools"}
"""Ways of thinking that the canonical model has; others are kept."""

# --- fields that the canonical model has; all others are kept in `extra` -------------------------------------------

_CACHED_CALL = frozenset({"type", "id", "name", "input", "cache_control"})
_SERVER_RESULT = frozenset({"type", "tool_use_id", "content", "cache_control"})

CACHE_CONTROL = BreakpointForm("messages", "type", "ephemeral", alone=True)
CACHEABLE: frozenset[object] = frozenset(
    {
        *("text", "image", "document", "search_result", "tool_use", "tool_result"),
        *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result"),
        *("text_editor_code_execution_tool_result", "mcp_tool_use", "mcp_tool_result"),
    }
)
"""The blocks that take a cache breakpoint; thinking takes none."""

MAPPED_FIELDS: Mapping[str, frozenset[str]] = {
    "request.message": frozenset({"role", "content"}),
    "metadata": frozenset({"user_id"}),
    "output_config": frozenset({"effort", "format"}),
    "thinking": frozenset({"type", "budget_tokens"}),
    "tool_choice": frozenset({"type", "name", "disable_parallel_tool_use"}),
    "tool": frozenset(
        {
            *("type", "name", "description", "input_schema"),
            *("strict", "cache_control", "defer_loading"),
        }
    ),
    "message": frozenset(
        {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
    ),
    "message_delta": frozenset({"stop_reason", "stop_sequence"}),
    "usage": frozenset(
        {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
    ),
    "text": frozenset({"type", "text", "citations", "cache_control"}),
    "thinking_block": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": _CACHED_CALL,
    "server_tool_use": _CACHED_CALL,
    "mcp_tool_use": _CACHED_CALL | {"server_name"},
    "tool_result": _SERVER_RESULT | {"is_error"},
    "mcp_tool_result": _SERVER_RESULT | {"is_error"},
    "server_tool_result": _SERVER_RESULT,
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "title", "cache_control"}),
}
"""The fields of each object that the canonical model has. All others are kept in `extra`."""

FINISH_FIELDS = frozenset({"container", "stop_details"})
COMPLETED_FIELDS = frozenset({"context_management"})
END_FIELDS = FINISH_FIELDS | COMPLETED_FIELDS
"""Fields of a message that a stream sends at its end; the others are in message_start."""

DIRECT = Raw(b'{"type":"direct"}')
"""The `caller` of a call that the model itself made, which every call has that the vendor writes; read as if it were absent."""

STANDARD_TIER = Raw(b'"standard"')
"""The `service_tier` of an answer without a better one; read as if it were absent."""

INVALID_KEY = "_invalid_arguments"
"""The key for a call's input that is not a JSON object: `{"_invalid_arguments": "<text>"}`. A tool that runs with it
reports that its fields are missing, so the model can try again; no tool runs on half of an input."""

# --- what every client can use unchanged ------------------------------------------------------------------------------


class UsableUsage(Struct, gc=False):
    output_tokens: int | None


class UsableStartUsage(Struct, gc=False):
    input_tokens: int | None
    output_tokens: int | None = None


class UsableMessage(Struct):
    id: str
    role: Literal["assistant"]
    model: str
    content: list[Raw]
    usage: UsableStartUsage


class UsableBlock(Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    input: dict[str, Raw] | None = None


class UsableDelta(Struct):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str = ""
    stop_reason: str | None = None


class UsableError(Struct, gc=False):
    type: str
    message: str


class UsableEvent(Struct):
    """Any event; which fields it needs depends on its type."""

    type: str
    index: int = -1
    message: UsableMessage | None = None
    content_block: UsableBlock | None = None
    delta: UsableDelta | None = None
    usage: UsableUsage | None = None
    error: UsableError | None = None


class UsableWholeUsage(Struct, gc=False):
    input_tokens: int
    output_tokens: int


class UsableBody(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[UsableBlock]
    stop_reason: str
    usage: UsableWholeUsage


decode_usable_event = typed_decoder(UsableEvent)
decode_usable_body = typed_decoder(UsableBody)


# --- requests and bodies, read and written by their types ------------------------------------------------------------
#
# An object with any other field does not fit and is read field by field. `Raw | None` would accept only null, so NULL is the
# default of absent `Raw` fields.


class _TypedBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type"):
    pass


class TextBlock(_TypedBlock, tag="text"):
    text: str
    cache_control: Raw = NULL
    citations: tuple[()] | None = None


class ThinkingBlock(_TypedBlock, tag="thinking"):
    thinking: str
    signature: str | None = None


class DirectCaller(_TypedBlock, tag="direct"):
    """Who made a call: the model itself, and not a program that the vendor ran for it."""


class ToolUseBlock(_TypedBlock, tag="tool_use"):
    id: str
    name: str
    input: Raw
    cache_control: Raw = NULL
    caller: DirectCaller | None = None


class ToolResultBlock(_TypedBlock, tag="tool_result"):
    tool_use_id: str
    content: str
    is_error: bool | None = None
    cache_control: Raw = NULL


TypedBlock = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


class TypedMessage(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    content: str | list[TypedBlock]


class TypedBody(Struct, gc=False):
    """The fields that the canonical answer has; the reader takes all others from the object itself."""

    type: Literal["message"]
    content: list[TypedBlock]
    stop_reason: Literal["end_turn", "tool_use"]
    usage: dict[str, Raw]
    id: str | None = None
    model: str | None = None
    stop_sequence: None = None


class WrittenText(Struct, gc=False, tag_field="type", tag="text"):
    """The vendor's schema allows null for no citations, but the AI SDK does not."""

    text: str
    citations: tuple[()] = ()


class WrittenCall(Struct, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw
    caller: Raw = DIRECT


class WrittenBody(Struct):
    id: str
    type: str
    role: str
    model: str
    content: list[WrittenText | WrittenCall | dict[str, object]]
    stop_reason: str
    stop_sequence: None
    stop_details: None
    container: None
    usage: dict[str, object]
