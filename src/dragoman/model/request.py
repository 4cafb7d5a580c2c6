"""A client's request, independent of dialects.

A conversation is a tuple of turns. Calls are parts of assistant turns, results are parts of `tool` turns. A request
decoder makes one turn per native message or item and never merges turns; an encoder merges and splits turns as its
dialect requires (after `core.pairing` has put calls and results in order). Fields that the vocabulary lacks are in
`extra`, tagged with their dialect.
"""

from typing import Literal

from msgspec import Struct

from dragoman._json import Raw
from dragoman.model.parts import Breakpoint, CallKind, Extra, Part

__all__ = (
    "CacheSettings",
    "ChoiceMode",
    "Effort",
    "Grammar",
    "Namespace",
    "ReasoningSettings",
    "Request",
    "ResponseFormat",
    "Role",
    "Tool",
    "ToolChoice",
    "ToolKind",
    "ToolRef",
    "Turn",
)

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolKind = CallKind
ChoiceMode = Literal["auto", "none", "required", "tool", "allowed"]
Effort = str
"""none, minimal, low, medium, high, xhigh, max or any later word of a provider; passed on unchanged."""


class Turn(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One message or item. `head` marks text from a field outside the conversation (`system`, `instructions`)."""

    role: Role
    parts: tuple[Part, ...] = ()
    head: bool = False
    name: str | None = None
    item_id: str | None = None
    status: str | None = None
    cache: Breakpoint | None = None
    extra: Extra | None = None


class Grammar(Struct, frozen=True, gc=False, omit_defaults=True):
    """The format of a custom tool's input: a context-free or regular grammar (`lark`, `regex`)."""

    syntax: str
    definition: str


class Tool(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A tool that the client offers, or asks the provider to run.

    `schema` is the JSON schema of a function's input, as received. Built-in kinds have their whole wire object in
    `extra`, and `variant` holds the wire type (`web_search_20250305`, `computer_use_preview`, …). `place` is `input`
    for tools declared inside the conversation (Responses `additional_tools` and `tool_search_output`, Messages
    `tool_addition`). `deferred`: the provider does not show the tool to the model until a search finds it. Only a dialect with
    such a search gets the flag back; for every other upstream the tool is declared like any other.
    """

    name: str
    kind: ToolKind = "function"
    namespace: str | None = None
    description: str | None = None
    schema: Raw | None = None
    strict: bool | None = None
    grammar: Grammar | None = None
    variant: str | None = None
    place: Literal["request", "input"] = "request"
    deferred: bool | None = None
    cache: Breakpoint | None = None
    extra: Extra | None = None


class Namespace(Struct, frozen=True, gc=False, omit_defaults=True):
    """A group of tools; Codex sends each MCP server as one. Its members are Tools with this name as `namespace`.

    `place` is `input` for a namespace that is declared inside the conversation, as for a Tool.
    """

    name: str
    description: str | None = None
    extra: Extra | None = None
    place: Literal["request", "input"] = "request"


class ToolRef(Struct, frozen=True, gc=False, omit_defaults=True):
    """A reference to a tool."""

    name: str
    kind: ToolKind = "function"
    namespace: str | None = None


class ToolChoice(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Mode `tool`: the model must call `tool`. Mode `allowed`: it may call those in `allowed`; if `required`, at least one."""

    mode: ChoiceMode = "auto"
    tool: ToolRef | None = None
    allowed: tuple[ToolRef, ...] = ()
    required: bool = False
    extra: Extra | None = None


class ReasoningSettings(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How much a model should reason: by effort (OpenAI), by a budget of tokens (Anthropic), or not at all."""

    enabled: bool | None = None
    effort: Effort | None = None
    budget: int | None = None
    adaptive: bool = False
    summary: str | None = None
    extra: Extra | None = None


class ResponseFormat(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The format that the text of the answer must have."""

    kind: Literal["text", "json_object", "json_schema", "other"] = "text"
    name: str | None = None
    description: str | None = None
    schema: Raw | None = None
    strict: bool | None = None
    extra: Extra | None = None


class CacheSettings(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How the provider should cache the prompt. All are the client's words, passed on unchanged.

    mode: `explicit`: only up to the client's breakpoints. ttl, retention: how long (`30m`, `24h`, `in_memory`).
    last: a breakpoint that the provider places at the end. extra: other options.
    """

    mode: str | None = None
    ttl: str | None = None
    retention: str | None = None
    last: Breakpoint | None = None
    extra: Extra | None = None


class Request(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A client's whole request: the conversation, the tools and the settings of the answer. None: the client did not say.

    `compact_at`: the provider summarises the conversation by itself when it has so many input tokens.
    session: the id of the client's session, where its `user` has one; serves as the cache key of a client that states none.
    """

    model: str = ""
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    stream: bool | None = None
    include_usage: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    choices: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: Raw | None = None
    stop: tuple[str, ...] = ()
    response_format: ResponseFormat | None = None
    reasoning: ReasoningSettings | None = None
    verbosity: str | None = None
    user: str | None = None
    safety_id: str | None = None
    cache_key: str | None = None
    cache: CacheSettings | None = None
    session: str | None = None
    metadata: Raw | None = None
    service_tier: str | None = None
    store: bool | None = None
    previous_id: str | None = None
    include: tuple[str, ...] = ()
    compact_at: int | None = None
    extra: Extra | None = None
