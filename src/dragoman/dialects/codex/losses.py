"""What `codex app-server` cannot express, and what happens then unless the operator's policy says otherwise.

Its `thread/start` and `turn/start` accept a model, instructions, tools, an effort and a schema for the answer, but
nothing about sampling, limits or the choice of a tool.
"""

from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.core.losses import REQUEST_LOSSES, LossRule, LossTable, foreign_noter
from dragoman.core.schemas import SchemaRules
from dragoman.dialects.codec import Target

LOSSES: LossTable = {
    **REQUEST_LOSSES,
    "annotation": LossRule("texts have no citations", "drop"),
    "assistant_media": LossRule("an image, sound or file that the model made earlier", "drop"),
    "audio_input": LossRule("Codex takes no sound", "refuse"),
    "builtin_tool": LossRule("Codex's own tools are switched off, and it has no others", "drop"),
    "cache_control": LossRule(
        "cache breakpoints have no place; not reported, as Codex caches by itself",
        "drop",
        is_reported=False,
    ),
    "cache_key": LossRule("Codex makes the cache key itself, from its thread", "drop"),
    "cache_settings": LossRule("Codex decides how and how long its prompts are cached", "drop"),
    "call_kind": LossRule("a tool of this kind is offered as a function", "carry"),
    "call_seal": LossRule("a call cannot carry a seal", "drop"),
    "choices": LossRule("a turn has one answer", "refuse"),
    "custom_tool": LossRule(
        "Codex takes no free-form tools of a client; offered as a function with one string", "carry"
    ),
    "error_flag": LossRule(
        "a result's error flag has no field; it is written in front of the text", "carry"
    ),
    "foreign_seal": LossRule(
        "sealed reasoning of another provider must not be sent to OpenAI", "drop"
    ),
    "frequency_penalty": LossRule("there is no frequency penalty", "drop"),
    "include": LossRule("Codex decides what an answer includes", "drop"),
    "logit_bias": LossRule("there is no logit bias", "drop"),
    "logprobs": LossRule("there are no logprobs", "drop"),
    "max_tokens": LossRule("there is no limit of tokens", "drop"),
    "media_input": LossRule("Codex takes no media but images", "refuse"),
    "message_name": LossRule("messages have no name of their author", "drop"),
    "metadata": LossRule("there is no metadata", "drop"),
    "namespace": LossRule("the tool is offered as namespace__name", "carry"),
    "opaque_part": LossRule("a part that only its own dialect understands", "drop"),
    "opaque_text": LossRule(
        "only the title, the place and the texts of a search result, or of a document made of texts, are written",
        "carry",
    ),
    "presence_penalty": LossRule("there is no presence penalty", "drop"),
    "previous_response": LossRule(
        "a conversation that refers to an earlier response would be lost", "refuse"
    ),
    "provider_call": LossRule("a call that another provider ran cannot be replayed", "drop"),
    "provider_result": LossRule("the result of a provider's tool cannot be replayed", "drop"),
    "reasoning_settings": LossRule(
        "reasoning is set by effort only; a budget becomes the nearest effort", "carry"
    ),
    "reasoning_text": LossRule("reasoning without OpenAI's seal cannot be replayed", "drop"),
    "response_format": LossRule(
        "only a JSON schema can be set; Codex chooses its name and strictness", "drop"
    ),
    "schema": LossRule("Codex drops these keywords of a schema, and all strictness", "carry"),
    "seed": LossRule("there is no seed", "drop"),
    "service_tier": LossRule("Codex does not know this service tier", "drop"),
    "store": LossRule("the gateway, not the upstream, stores answers", "drop"),
    "temperature": LossRule("there is no temperature", "drop"),
    "tool_choice": LossRule(
        "a call cannot be demanded; only the tools that may be called are offered", "carry"
    ),
    "top_k": LossRule("there is no top_k", "drop"),
    "top_p": LossRule("there is no top_p", "drop"),
    "unknown_field": LossRule("fields of another dialect have no meaning here", "drop"),
    "user": LossRule("there is no user id", "drop"),
    "verbosity": LossRule("Codex does not know this verbosity", "drop"),
}

BUILTIN_NAMES = frozenset(
    (
        *("exec_command", "shell_command", "write_stdin", "shell", "local_shell", "apply_patch", "view_image"),
        *("exec", "wait", "sleep", "mcp", "update_plan", "request_user_input", "request_user_input_async"),
        *("web_search", "tool_search", "tool_suggest", "image_generation", "request_permissions"),
        *("get_goal", "create_goal", "update_goal", "list_mcp_resources", "list_mcp_resource_templates"),
        *("read_mcp_resource", "request_plugin_install", "spawn_agent", "send_input", "send_message"),
        *("resume_agent", "wait_agent", "close_agent", "list_agents", "interrupt_agent", "followup_task"),
        *("spawn_agents_on_csv", "report_agent_job_result", "js_repl", "grep_files", "read_file", "list_dir"),
    )
)  # fmt: skip
"""Codex's own tools, some of them hidden. Codex silently does not offer a client's tool with such a name, and the model's
call would run Codex's tool on this machine: `exec_command` and `shell_command` run even when they are switched off. So a
client's tool never gets one of these names on this wire."""

# Keywords that the sanitiser of 0.166 removes from a tool's schema, without those that only describe.
_DROPPED_KEYWORDS = frozenset(
    (
        *("pattern", "format", "default", "minLength", "maxLength", "minimum", "maximum", "multipleOf"),
        *("exclusiveMinimum", "exclusiveMaximum", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("patternProperties", "propertyNames", "if", "then", "else", "not", "contains", "dependentRequired"),
    )
)  # fmt: skip

DEFAULT_TARGET = Target(
    dialect="codex",
    # Codex accepts names of 128 characters; the servers behind it accept 64.
    names=NameLimits(pattern="[a-zA-Z0-9_-]", max_length=64, reserved=BUILTIN_NAMES),
    ids=IdLimits(pattern="[!-~]", max_length=64),
    schemas=SchemaRules(drop=SchemaRules().drop | _DROPPED_KEYWORDS),
    strict=False,
)


note_foreign = foreign_noter("codex")
"""Note as losses the fields of another dialect that are dropped and that a client may miss."""
