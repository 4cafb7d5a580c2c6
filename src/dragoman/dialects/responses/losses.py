"""What this dialect cannot express, and what happens then unless the operator's policy says otherwise."""

from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.core.losses import REQUEST_LOSSES, LossRule, LossTable, foreign_noter
from dragoman.core.schemas import SchemaRules
from dragoman.dialects.codec import Target
from dragoman.dialects.responses.wire import TOOL_KINDS

LOSSES: LossTable = {
    **REQUEST_LOSSES,
    # --- requests ---
    "assistant_media": LossRule("an image, sound or file that the model made earlier", "drop"),
    "audio_input": LossRule("the Responses API takes no sound in messages", "refuse"),
    "builtin_tool": LossRule("the upstream has no such built-in tool", "drop"),
    "cache_control": LossRule(
        "a breakpoint of Anthropic has no place; not reported, as OpenAI caches by itself",
        "drop",
        is_reported=False,
    ),
    "choices": LossRule("a response has one choice", "refuse"),
    "foreign_seal": LossRule(
        "sealed reasoning of another provider must not be sent to OpenAI", "drop"
    ),
    "frequency_penalty": LossRule("there is no frequency penalty", "drop"),
    "logit_bias": LossRule("there is no logit bias", "drop"),
    "media_input": LossRule("this kind of media has no content part", "refuse"),
    "message_name": LossRule("messages have no name of their author", "drop"),
    "long_user": LossRule("a user id of over 64 characters; a hash of it is sent", "carry"),
    "min_tokens": LossRule("fewer output tokens than OpenAI accepts; its minimum is sent", "carry"),
    "presence_penalty": LossRule("there is no presence penalty", "drop"),
    "reasoning_text": LossRule("another provider's reasoning cannot be replayed", "drop"),
    "reasoning_off": LossRule(
        "reasoning cannot be switched off; few models accept the effort `none`", "drop"
    ),
    "response_format": LossRule("this response format is unknown here", "drop"),
    "schema": LossRule("a tool's schema was changed so that OpenAI accepts it", "carry"),
    "seed": LossRule("there is no seed", "drop"),
    "top_k": LossRule("there is no top_k", "drop"),
    "unknown_field": LossRule("fields of another dialect have no meaning here", "drop"),
    # --- answers, and conversations ---
    "annotation": LossRule(
        "a citation without a URL cannot be written, and a quotation has no field", "drop"
    ),
    "call_seal": LossRule("a call cannot carry a seal", "drop"),
    "echo": LossRule("a setting of the request is too large to be repeated by the answer", "drop"),
    "extra_choices": LossRule("a response has one choice; the others are left out", "drop"),
    "finish_detail": LossRule("the finish reason is less exact", "carry"),
    "logprobs": LossRule("a refusal has no logprobs", "drop"),
    "media_output": LossRule(
        "this kind of media cannot be part of an answer; the media type of audio has no field",
        "drop",
    ),
    "opaque_part": LossRule("a part that only its own dialect understands", "drop"),
    "opaque_text": LossRule(
        "only the title, the place and the texts of a search result, or of a document made of texts, are written",
        "carry",
    ),
    "provider_call": LossRule(
        "a call of a provider's tool without an equivalent here, or a part of its input without one",
        "drop",
    ),
    "provider_result": LossRule(
        "the result of a provider's tool without an equivalent here", "drop"
    ),
    "rate_limits": LossRule("rate limits are sent in headers, not in the stream", "drop"),
    "stop_sequence": LossRule("which stop sequence matched has no field", "drop"),
    "tool_output": LossRule("what a provider's tool prints cannot be streamed", "drop"),
}

# Requests that the backend behind a ChatGPT login refuses although the public API accepts them.
CHATGPT_CODEX_LOSSES: LossTable = {
    "moderation_block": REQUEST_LOSSES["moderation_block"],
    "server_state": LossRule(
        "the ChatGPT Codex backend stores nothing that a request could refer to", "refuse"
    ),
    "unsupported_parameter": LossRule(
        "the ChatGPT Codex backend refuses requests with this parameter", "drop"
    ),
}

DEFAULT_TARGET = Target(
    dialect="responses",
    names=NameLimits(),
    # OpenAI refuses longer call ids; any visible character is allowed in them.
    ids=IdLimits(pattern="[!-~]", max_length=64),
    schemas=SchemaRules(),
    builtin=frozenset(TOOL_KINDS.values()) - {"other"},
)


note_foreign = foreign_noter("responses")
"""Note as losses the fields of another dialect that are dropped and that a client may miss."""
