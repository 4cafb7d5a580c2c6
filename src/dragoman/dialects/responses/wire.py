"""The names of OpenAI's Responses API: events, items, content parts and tools, and the model type that each becomes.

This module holds data only. Every name of the vendor's SDK stands in one of the tables; a test walks the SDK's types
and fails on a name that is in no table. Names without a model type are listed too: `OPAQUE_ITEMS` are carried whole,
and `PROGRESS_EVENTS` become Progress.

Specification: the `openai` SDK, `openai.types.responses`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from dragoman._json import Raw, typed_decoder
from dragoman.core.prompt_cache import BreakpointForm
from dragoman.model.events import ReasoningChannel
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import CallKind, Executor, PartStatus

# --- deltas: the only events read by a typed decoder, because they are nearly all events -----------------------------


class Delta(Struct, frozen=True, gc=False):
    """Any event with a `delta` that is a string."""

    type: str
    delta: str
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    logprobs: list[Raw] | None = None


decode_delta = typed_decoder(Delta)

TEXT_DELTA = "response.output_text.delta"
REFUSAL_DELTA = "response.refusal.delta"
REASONING_DELTAS: Mapping[ReasoningChannel, str] = {
    "summary": "response.reasoning_summary_text.delta",
    "content": "response.reasoning_text.delta",
}

# --- typed structs for regular JSON; JSON with another field or another type is read field by field ------------------


class TypedFunctionCall(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type", tag="function_call"
):
    call_id: str
    name: str
    arguments: str
    status: PartStatus
    id: str = ""
    namespace: str | None = None


decode_call = typed_decoder(TypedFunctionCall)


class InputDetails(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class OutputDetails(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None


class TypedUsage(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails = InputDetails()
    output_tokens_details: OutputDetails = OutputDetails()


decode_usage = typed_decoder(TypedUsage)

# --- items -----------------------------------------------------------------------------------------------------------


InputForm = Literal["text", "json", "none"]


class CallSpec(Struct, frozen=True):
    """One kind of call item.

    field: the field that holds the input. form: `text`, the field is a string and its value is the input; `json`, the
    input is the field's JSON. events: the name of the input's events, without `.delta` or `.done`. name: the call's name,
    for items without a `name` field. placeholder: the field's value while the input is unknown. required: fields that the
    SDK demands and that a call from another dialect lacks.
    """

    type: str
    kind: CallKind
    executor: Executor
    prefix: str
    field: str = ""
    form: InputForm = "none"
    events: str = ""
    name: str = ""
    placeholder: bytes = b""
    required: Mapping[str, Raw] = {}
    has_status: bool = True
    has_call_id: bool = True
    empty: str = ""

    @property
    def delta(self) -> str | None:
        """The event with a piece of the input; None if the input does not stream."""
        return f"{self.events}.delta" if self.events else None


_MCP_SERVER = {"server_label": Raw(b'"mcp"')}

_CALLS = (
    CallSpec(
        "function_call", "function", "client", "fc_", "arguments", "text",
        events="response.function_call_arguments", empty="{}",
    ),
    CallSpec(
        "custom_tool_call", "custom", "client", "ctc_", "input", "text",
        events="response.custom_tool_call_input",
    ),
    CallSpec(
        "local_shell_call", "local_shell", "client", "lsh_", "action", "json",
        name="local_shell", placeholder=b'{"type":"exec","command":[],"env":{}}',
    ),
    CallSpec(
        "shell_call", "shell", "client", "sh_", "action", "json",
        name="shell", placeholder=b'{"commands":[],"max_output_length":null,"timeout_ms":null}',
        required={"environment": Raw(b"null")},
    ),
    CallSpec(
        "apply_patch_call", "apply_patch", "client", "apc_", "operation", "json",
        name="apply_patch", placeholder=b'{"type":"create_file","path":"","diff":""}',
    ),
    CallSpec(
        "computer_call", "computer", "client", "cu_", "action", "json",
        name="computer", required={"pending_safety_checks": Raw(b"[]")},
    ),
    CallSpec(
        "tool_search_call", "tool_search", "provider", "tsc_", "arguments", "json",
        name="tool_search", placeholder=b"{}", empty="{}",
    ),
    CallSpec(
        "mcp_call", "mcp", "provider", "mcp_", "arguments", "text",
        events="response.mcp_call_arguments", required=_MCP_SERVER, has_call_id=False, empty="{}",
    ),
    CallSpec(
        "mcp_approval_request", "mcp_approval", "client", "mcpr_", "arguments", "text",
        required=_MCP_SERVER, has_status=False, has_call_id=False, empty="{}",
    ),
    CallSpec(
        "mcp_list_tools", "mcp_list_tools", "provider", "mcpl_",
        name="mcp_list_tools", required={**_MCP_SERVER, "tools": Raw(b"[]")}, has_status=False, has_call_id=False,
    ),
    CallSpec(
        "web_search_call", "web_search", "provider", "ws_", "action", "json",
        name="web_search", placeholder=b'{"type":"search","query":""}', has_call_id=False,
    ),
    CallSpec(
        "file_search_call", "file_search", "provider", "fs_", "queries", "json",
        name="file_search", placeholder=b"[]", has_call_id=False,
    ),
    CallSpec(
        "code_interpreter_call", "code_interpreter", "provider", "ci_", "code", "text",
        events="response.code_interpreter_call_code", name="code_interpreter",
        required={"container_id": Raw(b'""'), "outputs": Raw(b"null")}, has_call_id=False,
    ),
    CallSpec(
        "image_generation_call", "image_generation", "provider", "ig_",
        name="image_generation", required={"result": Raw(b"null")}, has_call_id=False,
    ),
)  # fmt: skip
CALL_ITEMS: Mapping[str, CallSpec] = {spec.type: spec for spec in _CALLS}
ITEM_OF_KIND: Mapping[CallKind, CallSpec] = {spec.kind: spec for spec in _CALLS}


class ResultSpec(Struct, frozen=True):
    """One kind of result item.

    form: `content`, the field is a string or a list of content parts; `text`, a string; `image`, a screenshot; `json`,
    the text of the result is the field's JSON.
    """

    type: str
    kind: CallKind
    prefix: str
    field: str
    form: Literal["content", "text", "image", "json"]
    pair: str = "call_id"
    has_status: bool = True


_RESULTS = (
    ResultSpec("function_call_output", "function", "fco_", "output", "content"),
    ResultSpec("custom_tool_call_output", "custom", "ctco_", "output", "content"),
    ResultSpec("local_shell_call_output", "local_shell", "lsho_", "output", "text"),
    ResultSpec("shell_call_output", "shell", "sho_", "output", "json"),
    ResultSpec("apply_patch_call_output", "apply_patch", "apco_", "output", "text"),
    ResultSpec("computer_call_output", "computer", "cuo_", "output", "image"),
    ResultSpec("tool_search_output", "tool_search", "tso_", "tools", "json"),
    ResultSpec(
        "mcp_approval_response",
        "mcp_approval",
        "mcpa_",
        "approve",
        "json",
        pair="approval_request_id",
        has_status=False,
    ),
)
RESULT_ITEMS: Mapping[str, ResultSpec] = {spec.type: spec for spec in _RESULTS}
RESULT_OF_KIND: Mapping[CallKind, ResultSpec] = {spec.kind: spec for spec in _RESULTS}

OPAQUE_ITEMS: Mapping[str, str] = {
    # the type of an item that is carried whole: the reason why it has no model type
    "additional_tools": "declares tools inside the conversation; they are gathered beside it",
    "agent_message": "Codex: what another agent said",
    "compaction": "a history only its maker can read",
    "compaction_summary": "an older name of compaction",
    "compaction_trigger": "asks the provider to compact",
    "configuration_update": "changes settings in the middle of a conversation",
    "context_compaction": "Codex: a history only its maker can read",
    "item_reference": "an item the provider has stored",
    "program": "code that calls tools, run by the provider",
    "program_output": "what such code gave back",
}

MESSAGE_FIELDS = frozenset({"type", "id", "role", "status", "content"})
REASONING_FIELDS = frozenset({"type", "id", "status", "summary", "content", "encrypted_content"})

PREFIXES: Mapping[str, str] = {
    "message": "msg_",
    "reasoning": "rs_",
    **{spec.type: spec.prefix for spec in _CALLS},
    **{spec.type: spec.prefix for spec in _RESULTS},
}
ITEMS_WITH_STATUS = frozenset(
    {"message", *(spec.type for spec in (*_CALLS, *_RESULTS) if spec.has_status)}
)
STRICT_PREFIXES = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
"""Items whose id OpenAI rejects on replay unless it has the prefix of its type. Other ids are not changed."""

FUNCTION_LIKE = frozenset({"function_call", "function", "tool_use", "tool_call"})
"""Content parts that are calls: backends behind reverse proxies put them inside messages."""

OPAQUE_PART = "content/"
"""Prefix of the type of an Opaque that is a content part of a message and not an item."""
CACHE_BREAKPOINT = BreakpointForm("responses", "mode", "explicit", alone=False)

PART_STATUS: Mapping[str, PartStatus] = {
    "completed": "completed",
    "failed": "failed",
    "in_progress": "in_progress",
    "incomplete": "incomplete",
}

# --- events ----------------------------------------------------------------------------------------------------------

_STAGES: Mapping[str, tuple[str, ...]] = {
    "code_interpreter_call": ("completed", "in_progress", "interpreting"),
    "file_search_call": ("completed", "in_progress", "searching"),
    "image_generation_call": ("completed", "generating", "in_progress"),
    "mcp_call": ("completed", "failed", "in_progress"),
    "mcp_list_tools": ("completed", "failed", "in_progress"),
    "compaction": ("compacting",),
    "web_search_call": ("completed", "in_progress", "searching"),
}
PROGRESS_EVENTS: Mapping[str, tuple[str, str]] = {
    # the event: the item it is about, its stage
    **{
        f"response.{item}.{stage}": (item, stage)
        for item, stages in _STAGES.items()
        for stage in stages
    },
    # The commands of a shell call stream as plain text, but the call's input is the JSON of the whole action, in which
    # the plain commands are not substrings. So the commands become Progress, and the input comes with the finished item.
    "response.shell_call_command.added": ("shell_call", "command.added"),
    "response.shell_call_command.delta": ("shell_call", "command.delta"),
    "response.shell_call_command.done": ("shell_call", "command.done"),
}
PROGRESS_NAMES: Mapping[tuple[str, str], str] = {
    about: name for name, about in PROGRESS_EVENTS.items()
}

KEEPALIVE_EVENTS = frozenset({"keepalive", "ping", "response.keepalive", "response.ping"})

OPENING_EVENTS = frozenset({"response.created", "response.in_progress", "response.queued"})
TERMINAL_EVENTS = frozenset(
    {
        "error",
        "response.cancelled",
        "response.completed",
        "response.done",
        "response.failed",
        "response.incomplete",
    }
)

ENVELOPE_FIELDS = frozenset(
    (
        *("annotation", "annotation_index", "arguments", "background", "code", "command", "command_index"),
        *("content_index", "delta", "error", "input", "item", "item_id", "logprobs", "message", "obfuscation"),
        *("output", "output_format", "output_index", "param", "part", "partial_image_b64", "partial_image_index"),
        *("quality", "refusal", "response", "sequence_number", "size", "status", "summary_index", "text", "type"),
    )
)  # fmt: skip
"""Fields of an event that the reader reads or ignores (`obfuscation` is padding of random length)."""

# --- tools -----------------------------------------------------------------------------------------------------------

TOOL_KINDS: Mapping[str, CallKind] = {
    # built-in tools; `tools.py` reads `function`, `custom` and `namespace` by name
    "apply_patch": "apply_patch",
    "code_interpreter": "code_interpreter",
    "computer": "computer",
    "computer_use": "computer",
    "computer_use_preview": "computer",
    "file_search": "file_search",
    "image_generation": "image_generation",
    "local_shell": "local_shell",
    "mcp": "mcp",
    "programmatic_tool_calling": "other",
    "shell": "shell",
    "tool_search": "tool_search",
    "web_search": "web_search",
    "web_search_2025_08_26": "web_search",
    "web_search_preview": "web_search",
    "web_search_preview_2025_03_11": "web_search",
}

NATIVE_TOOLS: Mapping[CallKind, Mapping[str, object]] = {
    # built-in tools that another vendor has too: the declaration without options
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "image_generation": {"type": "image_generation"},
    "web_search": {"type": "web_search"},
}

# --- the response object ---------------------------------------------------------------------------------------------

RESPONSE_FIELDS = frozenset(
    {
        "created_at",
        "error",
        "id",
        "incomplete_details",
        "model",
        "object",
        "output",
        "status",
        "usage",
    }
)
"""Fields of the response object that the model has fields for. All others are carried in `extra`."""

LATE_FIELDS = frozenset(
    {"completed_at", "moderation", "prompt_cache_diagnostics", "required_action", "tool_usage"}
)
"""Fields known only at the end: null in `response.created`; the events of a body carry them in the last event."""

FINISH_OF_REASON: Mapping[str, FinishReason] = {
    "content_filter": "content_filter",
    "max_messages": "length",
    "max_output_tokens": "length",
    "steered": "pause",
}
REASON_OF_FINISH: Mapping[FinishReason, str] = {
    "content_filter": "content_filter",
    "context_window": "max_output_tokens",
    "length": "max_output_tokens",
    # The response was stopped from outside and can be continued; `steered` is the nearest reason.
    "pause": "steered",
}
RUNNING_STATUSES = frozenset({"in_progress", "queued"})
"""Statuses of an unfinished response: a client polls such a body while the response runs in the background."""

# --- JSON that every client can use unchanged ------------------------------------------------------------------------

_ABSENT = Raw(b"null")


class UsableContent(Struct):
    type: str
    text: str | None = None
    annotations: list[Raw] | None = None


class UsableItem(Struct):
    """`arguments` is a string in a call that the client runs, and an object in some built-in tools."""

    type: str
    id: str
    status: str | None = None
    role: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = _ABSENT
    input: Raw = _ABSENT
    content: list[UsableContent] | None = None
    summary: list[Raw] | None = None


class UsableUsage(Struct, gc=False):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class UsableError(Struct, gc=False):
    message: str
    code: str


class UsableDetails(Struct, gc=False):
    reason: str


class UsableResponse(Struct):
    id: str
    created_at: float
    model: str
    output: list[Raw]
    status: str | None = None
    usage: UsableUsage | None = None
    error: UsableError | None = None
    incomplete_details: UsableDetails | None = None
    tools: Raw = Raw()


class UsableBody(UsableResponse, kw_only=True):
    object: Literal["response"]


class UsableEvent(Struct):
    """Any event; its type decides which fields it needs. Items are decoded separately: only some need the strict type."""

    type: str
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item: Raw = _ABSENT
    response: Raw = _ABSENT
    delta: Raw = _ABSENT


class NamedItem(Struct):
    type: str
    id: str


class NumberedEvent(Struct, gc=False):
    sequence_number: int


decode_usable_event = typed_decoder(UsableEvent)
decode_usable_item = typed_decoder(UsableItem)
decode_usable_response = typed_decoder(UsableResponse)
decode_usable_body = typed_decoder(UsableBody)
decode_named_item = typed_decoder(NamedItem)
decode_numbered_event = typed_decoder(NumberedEvent)
decode_string = typed_decoder(str)


# --- the fields of a response that the store needs (`terminal`) -------------------------------------------------------

# A field that accepts any JSON: msgspec accepts nothing but null for `Raw | None`.
_NOTHING = Raw(b"")


class ResponseHead(Struct, gc=False):
    id: str = ""
    status: str | None = None
    required_action: Raw = _NOTHING


class ItemHead(Struct, gc=False):
    id: str = ""


class ResponseOutline(Struct, gc=False):
    id: str = ""
    status: str | None = None
    output: list[ItemHead] | None = None


class EventOutline(Struct, gc=False):
    type: str = ""
    sequence_number: int | None = None
    response: Raw = _NOTHING


decode_response_head = typed_decoder(ResponseHead)
decode_item_head = typed_decoder(ItemHead)
decode_response_outline = typed_decoder(ResponseOutline)
decode_event_outline = typed_decoder(EventOutline)


# --- typed structs for requests and bodies ---------------------------------------------------------------------------
#
# JSON with any other field does not fit these types and is read field by field. `Raw | None` would accept nothing but null,
# so the default NULL marks an absent field.

_Object = dict[str, object]  # a written body has a field `object`, which hides the type


class TypedText(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: tuple[()] | None = None
    logprobs: tuple[()] | None = None


class TypedItem(Struct, gc=False, forbid_unknown_fields=True):
    """UNSET marks an absent field. Where null has no meaning, an item with null does not fit."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["assistant", "developer", "system", "user"] | UnsetType = UNSET
    content: str | list[TypedText] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    namespace: str | UnsetType | None = UNSET
    id: str | None = None
    status: str | None = None


class BodyText(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["output_text"]  # a tag could be absent: msgspec demands tags only in unions
    text: str
    annotations: tuple[()]
    logprobs: tuple[()] | None = None


class BodyMessage(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="message"):
    id: str
    status: Literal["completed"]
    content: list[BodyText]
    role: str = ""


class BodySummary(Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["summary_text"]
    text: str


class BodyReasoning(
    Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="reasoning"
):
    id: str
    summary: list[BodySummary]
    encrypted_content: str | None = None
    content: tuple[()] | None = None
    status: Literal["completed"] | None = None


class TypedBody(Struct, gc=False):
    """The fields that the model knows; the caller carries the object's other fields in `extra`."""

    output: list[BodyMessage | TypedFunctionCall | BodyReasoning]
    status: Literal["completed"]
    id: str | None = None
    model: str | None = None
    created_at: int | None = None
    incomplete_details: None = None


class WrittenText(Struct, gc=False):
    type: str
    annotations: tuple[()]
    logprobs: tuple[()]
    text: str


class WrittenMessage(Struct, gc=False):
    id: str
    type: str
    status: str
    role: str
    content: tuple[WrittenText]


class WrittenCall(Struct, gc=False):
    id: str
    type: str
    call_id: str
    name: str
    arguments: str
    status: str


class WrittenBody(Struct):
    """The first fields of a response; the others repeat the request."""

    id: str
    object: str
    created_at: int
    status: str
    completed_at: int | None
    error: None
    incomplete_details: dict[str, str] | None
    model: str
    output: list[WrittenMessage | WrittenCall | _Object]
    usage: _Object | None
