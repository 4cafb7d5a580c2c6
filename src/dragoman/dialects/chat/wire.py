"""The field names and values of Chat Completions, OpenAI's own and those of servers that imitate it.

`DeltaChunk` is the shape of nearly every frame: one choice with one text, reasoning or arguments delta and nothing else.
A frame with anything else (a finish, usage, an error, a call's first delta) does not fit; it is read as a `TypedChunk`
or field by field. Fields typed `None` may be null or absent.

Specification: the `openai` SDK, `openai.types.chat`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from dragoman._json import Raw, typed_decoder
from dragoman.core.fields import NULL
from dragoman.core.prompt_cache import BreakpointForm
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import CallKind

# --- frames that are one delta ----------------------------------------------------------------------------------------


class DeltaFunction(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str
    name: None = None


class DeltaCall(Struct, gc=False, forbid_unknown_fields=True):
    function: DeltaFunction
    index: int
    id: None = None
    type: Literal["function"] | None = None
    custom: None = None


class OneDelta(Struct, gc=False, forbid_unknown_fields=True):
    content: str | None = None
    tool_calls: tuple[DeltaCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    role: str | None = None
    refusal: None = None
    function_call: None = None
    audio: None = None
    annotations: None = None
    reasoning_text: None = None
    reasoning_details: None = None


class DeltaChoice(Struct, gc=False, forbid_unknown_fields=True):
    """Some servers send the last fields with every delta; they are read only where a choice finishes."""

    delta: OneDelta
    index: int = 0
    finish_reason: None = None
    logprobs: None = None
    stop_reason: None = None
    matched_stop: None = None
    native_finish_reason: None = None
    error: None = None
    # `Raw | None` would accept only null; `Raw` accepts anything, also null.
    content_filter_results: Raw = NULL
    content_filter_offsets: Raw = NULL
    token_ids: Raw = NULL


class DeltaChunk(Struct, gc=False):
    """Other fields of a chunk repeat those of the first chunk, which never takes this shape."""

    choices: tuple[DeltaChoice]
    usage: None = None
    error: None = None
    base_resp: None = None
    moderation: None = None


decode_delta = typed_decoder(DeltaChunk)

# --- the other chunks of nearly every stream --------------------------------------------------------------------------


class ChunkFunction(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str | None = None
    name: str | None = None


class ChunkCall(Struct, gc=False, forbid_unknown_fields=True):
    function: ChunkFunction
    index: int
    id: str | None = None
    type: Literal["function"] | None = None


class TypedDelta(Struct, gc=False, forbid_unknown_fields=True):
    content: str | None = None
    tool_calls: list[ChunkCall] | None = None
    role: str | None = None
    refusal: None = None
    function_call: None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class TypedChoice(Struct, gc=False, forbid_unknown_fields=True):
    delta: TypedDelta
    index: int = 0
    finish_reason: str | None = None
    logprobs: None = None
    stop_reason: None = None


class TypedChunk(Struct, gc=False, forbid_unknown_fields=True):
    """A role, the first text, the beginning of a call, a finish, usage: the other chunks of nearly every stream."""

    choices: list[TypedChoice]
    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    service_tier: Raw = NULL
    system_fingerprint: Raw = NULL
    usage: Raw = NULL
    obfuscation: str = ""

    @property
    def is_odd(self) -> bool:
        """Whether the chunk must be read field by field: it has an empty id or name, or a failure."""
        for choice in self.choices:
            if choice.finish_reason in FAILED_FINISHES:
                return True
            for call in choice.delta.tool_calls or ():
                if call.id == "" or call.function.name == "":
                    return True
        return False


decode_chunk = typed_decoder(TypedChunk)
"""Without this shape a flood costs up to 1.09 times and a small stream 1.08 times as much."""

# --- known fields: all others are kept as extra -----------------------------------------------------------------------

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""The fields for reasoning as text: of DeepSeek and vLLM, OpenRouter and newer vLLM, Copilot, Ollama."""

SEALED_FIELDS = ("reasoning_details", "thinking_blocks")
"""The fields for reasoning as a list with seals: OpenRouter's and LiteLLM's. They repeat a field of `REASONING_FIELDS`."""

CHUNK_FIELDS = frozenset(
    # `obfuscation` is random padding against traffic analysis; it is not kept.
    {"id", "object", "created", "model", "choices", "usage", "obfuscation", "error"}
)
CHOICE_FIELDS = frozenset(
    {
        "index",
        "delta",
        "message",
        "finish_reason",
        "logprobs",
        "stop_reason",
        "matched_stop",
        "error",
    }
)
DELTA_FIELDS = frozenset(
    {
        *REASONING_FIELDS,
        *SEALED_FIELDS,
        *("role", "content", "refusal", "tool_calls", "function_call"),
        *("audio", "annotations", "images"),
    }
)
CACHE_CONTROL = BreakpointForm("chat", "type", "ephemeral", alone=True)
"""Anthropic's breakpoints, an extension of OpenRouter, LiteLLM and others."""
CACHE_BREAKPOINT = BreakpointForm("chat", "mode", "explicit", alone=False)

_ANY_MESSAGE = frozenset({"role", "content", "name", "cache_control"})
_OF_ASSISTANTS = frozenset({"refusal", "audio", "tool_calls", "function_call"})
MESSAGE_FIELDS: Mapping[str, frozenset[str]] = {
    "user": _ANY_MESSAGE,
    "tool": _ANY_MESSAGE | {"tool_call_id"},
    "assistant": _ANY_MESSAGE | _OF_ASSISTANTS | {*REASONING_FIELDS, *SEALED_FIELDS},
}
"""The known fields of a request's messages, by role; system messages have those of the user. Other fields of answers
(`annotations`, `images`) are kept as extra when the client sends them back."""
CALL_FIELDS = frozenset(
    {
        "index",
        "id",
        "type",
        "function",
        "custom",
        "extra_content",
        "name",
        "arguments",
        "input",
        "call_id",
        "function_name",
        "tool_name",
        "call_name",
    }
)
AUDIO_FIELDS = frozenset({"id", "data", "transcript"})

# --- finish reasons ---------------------------------------------------------------------------------------------------

FINISHES: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "tool_calls",
    # What imitators send instead: words of other dialects, and names of tokens.
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "context_window",
    "tool_use": "tool_calls",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "recitation": "content_filter",
    "refusal": "refusal",
    "abort": "cancelled",
    "cancelled": "cancelled",
}
"""By the lower-case spelling: Gemini's are upper-case."""

FAILED_FINISHES = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Finish reasons that mean the server failed: OpenRouter's and Mistral's, Zhipu's, DeepSeek's."""

CUT_REASONS: frozenset[FinishReason | None] = frozenset(
    {"length", "context_window", "content_filter", "refusal", "cancelled"}
)
"""Endings that may have cut the last call."""

FINISH_OF_REASON: Mapping[FinishReason, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "context_window": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    # The turn is not over: `stop` would present half an answer as the whole.
    "pause": "length",
}

# --- tools ------------------------------------------------------------------------------------------------------------

BUILTIN_KINDS: Mapping[str, CallKind] = {
    "web_search": "web_search",
    "web_search_preview": "web_search",
    "file_search": "file_search",
    "code_interpreter": "code_interpreter",
    "image_generation": "image_generation",
    "computer": "computer",
    "computer_use_preview": "computer",
    "mcp": "mcp",
    "local_shell": "local_shell",
    "shell": "shell",
    "apply_patch": "apply_patch",
    "tool_search": "tool_search",
}
"""Tool types beyond function and custom that servers accept on Chat; any other is `other`."""

LEGACY_TOOLS = "functions"
LEGACY_CHOICE = "function_call"
"""The older names of `tools` and `tool_choice`. A call in a message is named `function_call` too."""

# --- what every client can use unchanged ------------------------------------------------------------------------------


class UsableFunction(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class UsableCustom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class UsableCall(Struct):
    index: int
    id: str | None = None
    type: Literal["function", "custom"] | None = None
    function: UsableFunction | None = None
    custom: UsableCustom | None = None

    @property
    def name(self) -> str:
        inner = self.custom or self.function
        return (inner.name or "") if inner is not None else ""

    @property
    def input(self) -> str:
        if self.custom is not None:
            return self.custom.input or ""
        return (self.function.arguments or "") if self.function is not None else ""


class UsableDelta(Struct):
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[UsableCall] | None = None
    function_call: UsableFunction | None = None


class UsableChoice(Struct):
    index: int
    delta: UsableDelta
    finish_reason: str | None  # the key is required, also where it is null


class UsableEnvelope(Struct):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str


class UsableUsage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class UsableChunk(UsableEnvelope):
    choices: list[UsableChoice]
    usage: UsableUsage | None = None


class UsableError(Struct, gc=False):
    message: str


class UsableErrorChunk(Struct):
    error: UsableError
    choices: None = None


class UsableWholeFunction(Struct, gc=False):
    name: str
    arguments: str


class UsableWholeCustom(Struct, gc=False):
    name: str
    input: str


class UsableWholeCall(Struct):
    id: str
    type: Literal["function", "custom"]
    function: UsableWholeFunction | None = None
    custom: UsableWholeCustom | None = None


class UsableMessage(Struct):
    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[UsableWholeCall] | None = None
    function_call: UsableWholeFunction | None = None


class UsableWholeChoice(Struct):
    index: int
    message: UsableMessage
    finish_reason: str


class UsableBody(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[UsableWholeChoice]


decode_usable_chunk = typed_decoder(UsableChunk)
decode_usable_envelope = typed_decoder(UsableEnvelope)
decode_usable_error = typed_decoder(UsableErrorChunk)
decode_usable_body = typed_decoder(UsableBody)


# --- requests and bodies, read and written by their types ------------------------------------------------------------
#
# A message or body with any other field does not fit and is read field by field.

_Object = dict[str, object]  # a written body has a field `object`, which hides the type


class TypedText(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class TypedFunction(Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class TypedCall(Struct, gc=False, forbid_unknown_fields=True):
    id: str
    type: Literal["function"]
    function: TypedFunction


class TypedMessage(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TypedText] | None = None
    tool_calls: list[TypedCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: None = None
    function_call: None = None
    audio: None = None


class BodyCall(Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    type: Literal["function"]
    function: TypedFunction
    index: int | None = None


class BodyMessage(Struct, gc=False, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[BodyCall] | None = None
    refusal: None = None
    annotations: tuple[()] | None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None


class BodyChoice(Struct, gc=False, forbid_unknown_fields=True):
    index: Literal[0]
    message: BodyMessage
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    logprobs: None = None
    stop_reason: None = None
    matched_stop: None = None


class TypedBody(Struct, gc=False):
    """A body that has all that a `UsableBody` has, and may have fields that the canonical answer has not."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: tuple[BodyChoice]
    error: None = None
    base_resp: None = None


class ClosedBody(TypedBody, gc=False, forbid_unknown_fields=True):
    """A body without other fields than those that most servers send. Reading it takes one pass instead of two.

    That is a fifth of the time that reading a small body takes.
    """

    usage: Raw = NULL
    obfuscation: Raw = NULL
    service_tier: Raw = NULL
    system_fingerprint: Raw = NULL


class WrittenMessage(Struct, gc=False, omit_defaults=True):
    role: str
    content: str | None
    refusal: None
    annotations: tuple[()]
    reasoning_content: str | None = None
    tool_calls: list[BodyCall] | None = None


class WrittenChoice(Struct, gc=False):
    index: int
    message: WrittenMessage
    logprobs: None
    finish_reason: str


class WrittenBody(Struct, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[WrittenChoice]
    usage: _Object | None = None
    service_tier: str | None = None


class InputDetails(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class OutputDetails(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None


class TypedUsage(Struct, gc=False, forbid_unknown_fields=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None
