"""The names of OpenAI's Responses API: events, items, content parts and tools, and the model type that each becomes.

This module holds data only. Every name of the vendor's SDK stands in one of the tables; a test walks the SDK's types
and fails on a name that is in no table. Names without a model type are listed too: `OPAQUE_ITEMS` are carried whole,
`PROGRESS_EVENTS` become Progress, and `REPEATED_EVENTS` are ignored because another event carries the same content.

Specification: the `openai` SDK, `openai.types.responses`.
"""

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import UNSET, Struct, UnsetType

from dragoman._json import Raw, typed_decoder
from dragoman.core.prompt_cache import BreakpointForm
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import CallKind, Executor, PartStatus

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

decode_delta = typed_decoder(cast("type[Delta]", Delta))

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

# --- events ----------------------------------------------------------------------------------------------------------

InputForm = Literal["text", "json", "none"]

INPUT_FAMILIES: Mapping[str, tuple[str, str]] = {
    # the event name without `.delta` or `.done`: the item it belongs to, the field of `.done` that holds the whole
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
    "response.mcp_call_arguments": ("mcp_call", "arguments"),
    "response.code_interpreter_call_code": ("code_interpreter_call", "code"),
}

PROGRESS_EVENTS: Mapping[str, tuple[str, str]] = {
    # the event: the item it is about, its stage
    "response.code_interpreter_call.completed": ("code_interpreter_call", "completed"),
    "response.code_interpreter_call.in_progress": ("code_interpreter_call", "in_progress"),
    "response.code_interpreter_call.interpreting": ("code_interpreter_call", "interpreting"),
    "response.compaction.compacting": ("compaction", "compacting"),
    "response.file_search_call.completed": ("file_search_call", "completed"),
    "response.file_search_call.in_progress": ("file_search_call", "in_progress"),
    "response.file_search_call.searching": ("file_search_call", "searching"),
    "response.image_generation_call.completed": ("image_generation_call", "completed"),
    "response.image_generation_call.generating": ("image_generation_call", "generating"),
    "response.image_generation_call.in_progress": ("image_generation_call", "in_progress"),
    "response.mcp_call.completed": ("mcp_call", "completed"),
    "response.mcp_call.failed": ("mcp_call", "failed"),
    "response.mcp_call.in_progress": ("mcp_call", "in_progress"),
    "response.mcp_list_tools.completed": ("mcp_list_tools", "completed"),
    "response.mcp_list_tools.failed": ("mcp_list_tools", "failed"),
    "response.mcp_list_tools.in_progress": ("mcp_list_tools", "in_progress"),
    # The commands of a shell call stream as plain text, but the call's input is the JSON of the whole action, in which
    # the plain commands are not substrings. So the commands become Progress, and the input comes with the finished item.
    "response.shell_call_command.added": ("shell_call", "command.added"),
    "response.shell_call_command.delta": ("shell_call", "command.delta"),
    "response.shell_call_command.done": ("shell_call", "command.done"),
    "response.web_search_call.completed": ("web_search_call", "completed"),
    "response.web_search_call.in_progress": ("web_search_call", "in_progress"),
    "response.web_search_call.searching": ("web_search_call", "searching"),
}
PROGRESS_NAMES: Mapping[tuple[str, str], str] = {
    about: name for name, about in PROGRESS_EVENTS.items()
}

REPEATED_EVENTS = frozenset(
    {
        # The `output_item.done` of the same item has the whole output.
        "response.shell_call_output_content.done",
    }
)

KEEPALIVE_EVENTS = frozenset({"keepalive", "ping", "response.keepalive", "response.ping"})

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

MAPPED_EVENTS = frozenset(
    {
        "response.audio.delta",
        "response.audio.done",
        "response.audio.transcript.delta",
        "response.audio.transcript.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.created",
        "response.image_generation_call.partial_image",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.annotation.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.queued",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.refusal.delta",
        "response.refusal.done",
        "response.shell_call_output_content.delta",
        *TERMINAL_EVENTS,
        *(f"{family}.{step}" for family in INPUT_FAMILIES for step in ("delta", "done")),
    }
)

ENVELOPE_FIELDS = frozenset(
    {
        "annotation",
        "annotation_index",
        "arguments",
        "background",
        "code",
        "command",
        "command_index",
        "content_index",
        "delta",
        "error",
        "input",
        "item",
        "item_id",
        "logprobs",
        "message",
        "obfuscation",
        "output",
        "output_format",
        "output_index",
        "param",
        "part",
        "partial_image_b64",
        "partial_image_index",
        "quality",
        "refusal",
        "response",
        "sequence_number",
        "size",
        "status",
        "summary_index",
        "text",
        "type",
    }
)
"""Fields of an event that the reader reads or ignores (`obfuscation` is padding of random length)."""

# --- items -----------------------------------------------------------------------------------------------------------


class CallSpec(Struct, frozen=True, kw_only=True):
    """One kind of call item.

    field: the field that holds the input. form: `text`, the field is a string and its value is the input; `json`, the
    input is the field's JSON. name: the call's name, for items without a `name` field. placeholder: the field's value
    while the input is unknown. required: fields that the SDK demands and that a call from another dialect lacks.
    """

    type: str
    kind: CallKind
    executor: Executor
    prefix: str
    field: str = ""
    form: InputForm = "none"
    name: str = ""
    placeholder: bytes = b""
    required: Mapping[str, Raw] = {}
    has_status: bool = True
    has_call_id: bool = True
    empty: str = ""


_CALLS = (
    CallSpec(
        type="function_call",
        kind="function",
        executor="client",
        prefix="fc_",
        field="arguments",
        form="text",
        empty="{}",
    ),
    CallSpec(
        type="custom_tool_call",
        kind="custom",
        executor="client",
        prefix="ctc_",
        field="input",
        form="text",
    ),
    CallSpec(
        type="local_shell_call",
        kind="local_shell",
        executor="client",
        prefix="lsh_",
        field="action",
        form="json",
        name="local_shell",
        placeholder=b'{"type":"exec","command":[],"env":{}}',
    ),
    CallSpec(
        type="shell_call",
        kind="shell",
        executor="client",
        prefix="sh_",
        field="action",
        form="json",
        name="shell",
        placeholder=b'{"commands":[],"max_output_length":null,"timeout_ms":null}',
        required={"environment": Raw(b"null")},
    ),
    CallSpec(
        type="apply_patch_call",
        kind="apply_patch",
        executor="client",
        prefix="apc_",
        field="operation",
        form="json",
        name="apply_patch",
        placeholder=b'{"type":"create_file","path":"","diff":""}',
    ),
    CallSpec(
        type="computer_call",
        kind="computer",
        executor="client",
        prefix="cu_",
        field="action",
        form="json",
        name="computer",
        required={"pending_safety_checks": Raw(b"[]")},
    ),
    CallSpec(
        type="tool_search_call",
        kind="tool_search",
        executor="provider",
        prefix="tsc_",
        field="arguments",
        form="json",
        name="tool_search",
        placeholder=b"{}",
        empty="{}",
    ),
    CallSpec(
        type="mcp_call",
        kind="mcp",
        executor="provider",
        prefix="mcp_",
        field="arguments",
        form="text",
        required={"server_label": Raw(b'"mcp"')},
        has_call_id=False,
        empty="{}",
    ),
    CallSpec(
        type="mcp_approval_request",
        kind="mcp_approval",
        executor="client",
        prefix="mcpr_",
        field="arguments",
        form="text",
        required={"server_label": Raw(b'"mcp"')},
        has_status=False,
        has_call_id=False,
        empty="{}",
    ),
    CallSpec(
        type="mcp_list_tools",
        kind="mcp_list_tools",
        executor="provider",
        prefix="mcpl_",
        name="mcp_list_tools",
        required={"server_label": Raw(b'"mcp"'), "tools": Raw(b"[]")},
        has_status=False,
        has_call_id=False,
    ),
    CallSpec(
        type="web_search_call",
        kind="web_search",
        executor="provider",
        prefix="ws_",
        field="action",
        form="json",
        name="web_search",
        placeholder=b'{"type":"search","query":""}',
        has_call_id=False,
    ),
    CallSpec(
        type="file_search_call",
        kind="file_search",
        executor="provider",
        prefix="fs_",
        field="queries",
        form="json",
        name="file_search",
        placeholder=b"[]",
        has_call_id=False,
    ),
    CallSpec(
        type="code_interpreter_call",
        kind="code_interpreter",
        executor="provider",
        prefix="ci_",
        field="code",
        form="text",
        name="code_interpreter",
        required={"container_id": Raw(b'""'), "outputs": Raw(b"null")},
        has_call_id=False,
    ),
    CallSpec(
        type="image_generation_call",
        kind="image_generation",
        executor="provider",
        prefix="ig_",
        name="image_generation",
        required={"result": Raw(b"null")},
        has_call_id=False,
    ),
)
CALL_ITEMS: Mapping[str, CallSpec] = {spec.type: spec for spec in _CALLS}
ITEM_OF_KIND: Mapping[CallKind, CallSpec] = {spec.kind: spec for spec in _CALLS}


class ResultSpec(Struct, frozen=True, kw_only=True):
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
    ResultSpec(
        type="function_call_output",
        kind="function",
        prefix="fco_",
        field="output",
        form="content",
    ),
    ResultSpec(
        type="custom_tool_call_output",
        kind="custom",
        prefix="ctco_",
        field="output",
        form="content",
    ),
    ResultSpec(
        type="local_shell_call_output",
        kind="local_shell",
        prefix="lsho_",
        field="output",
        form="text",
    ),
    ResultSpec(
        type="shell_call_output",
        kind="shell",
        prefix="sho_",
        field="output",
        form="json",
    ),
    ResultSpec(
        type="apply_patch_call_output",
        kind="apply_patch",
        prefix="apco_",
        field="output",
        form="text",
    ),
    ResultSpec(
        type="computer_call_output",
        kind="computer",
        prefix="cuo_",
        field="output",
        form="image",
    ),
    ResultSpec(
        type="tool_search_output",
        kind="tool_search",
        prefix="tso_",
        field="tools",
        form="json",
    ),
    ResultSpec(
        type="mcp_approval_response",
        kind="mcp_approval",
        prefix="mcpa_",
        field="approve",
        form="json",
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
CACHE_BREAKPOINT = BreakpointForm("responses", "mode", "explicit", alone=False)
"""Prefix of the type of an Opaque that is a content part of a message and not an item."""

PART_STATUS: Mapping[str, PartStatus] = {
    "completed": "completed",
    "failed": "failed",
    "in_progress": "in_progress",
    "incomplete": "incomplete",
}

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
