"""What Anthropic Messages cannot express, and what happens to it unless the operator's policy says otherwise.

`carry`: it is written in another form, described here and in the documentation. `drop`: it is left out. `refuse`: the
request is refused. In answers `refuse` acts as `drop`: a stream that has begun cannot be refused.
"""

from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.core.losses import REQUEST_LOSSES, LossBook, LossRule, LossTable, foreign_noter
from dragoman.core.schemas import SchemaRules
from dragoman.dialects.codec import Target
from dragoman.model.outcome import Usage

_NOT_STRICT = frozenset(
    {
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "if",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
        "uniqueItems",
    }
)

DEFAULT_TARGET = Target(
    dialect="messages",
    # Newer versions of the API allow 128 characters; all versions and the clones accept 64.
    names=NameLimits(pattern="[a-zA-Z0-9_-]", max_length=64),
    ids=IdLimits(pattern="[a-zA-Z0-9_-]", max_length=256),
    # The vendor reads JSON Schema 2020-12; its strict mode reads a part of it.
    schemas=SchemaRules(drop=frozenset(), not_strict=_NOT_STRICT),
    default_max_tokens=8192,
    builtin=frozenset({"web_search", "web_fetch", "code_interpreter"}),
)

_EVERYWHERE: LossTable = {
    "unknown_field": LossRule("fields of another dialect that have no meaning here", "drop"),
    "foreign_part": LossRule(
        "an item or block of another dialect that has no meaning here", "drop"
    ),
    "citation": LossRule(
        "a citation that is neither this vendor's nor a web address; of a web address, its position in the text",
        "drop",
    ),
    "invalid_input": LossRule(
        "a call's input that is no JSON object: carried under `_invalid_arguments`, "
        "in a stream as it was streamed",
        "carry",
    ),
    "namespace": LossRule("a tool's namespace is joined to its name", "carry"),
    "call_kind": LossRule(
        "a call of a kind this dialect does not have is written as tool_use", "carry"
    ),
    "call_seal": LossRule("a seal on a call, which has no field here", "drop"),
    "provider_call": LossRule(
        "a call run by another provider, which has no equivalent here", "drop"
    ),
    "provider_result": LossRule("a result of another provider's own tool", "drop"),
    "reasoning_entries": LossRule(
        "several reasoning texts are joined by a blank line into one thinking block", "carry"
    ),
    "logprobs": LossRule("log probabilities", "drop"),
    "choices": LossRule("more than one choice", "refuse"),
}

_ANSWERS: LossTable = {
    "custom_call": LossRule(
        'a custom tool\'s text is written as the JSON object {"input": text}', "carry"
    ),
    "provider_output": LossRule("what a provider's tool prints while it runs", "drop"),
    "media_output": LossRule("an image, sound or file in an answer", "drop"),
    "finish_reason": LossRule(
        "an ending this dialect has no word for is written as the nearest one", "carry"
    ),
    "refusal": LossRule(
        "only the stop reason can mark a text as a refusal, and the answer ended for another reason",
        "carry",
    ),
    "call_status": LossRule(
        "the failure of a provider's call has no field; its result may show it", "drop"
    ),
    "limits": LossRule("rate limits inside a stream", "drop"),
    "progress": LossRule("the progress of a provider's tool", "drop"),
    "usage_details": LossRule("audio token counts", "drop"),
}

_REQUESTS: LossTable = {
    "custom_tool": LossRule(
        "a custom tool is offered as a function with one string, `input`", "carry"
    ),
    "builtin_tool": LossRule(
        "a built-in tool of another provider without an equivalent here", "drop"
    ),
    "tool_choice": LossRule("a choice of a tool that is not offered; the choice is `auto`", "drop"),
    "strict": LossRule("strict is removed: the schema or the upstream does not allow it", "drop"),
    "schema": LossRule("keywords of a tool's schema that the upstream refuses", "drop"),
    "thinking_off": LossRule(
        "thinking is switched off for this request: the history lacks the signed thinking block "
        "that must precede the last calls, or max_tokens leaves no room for it",
        "drop",
    ),
    "forced_choice_with_thinking": LossRule(
        "a forced tool choice is not allowed while thinking: dropped, the choice becomes `auto`; "
        "carried, thinking is switched off",
        "drop",
    ),
    "sampling_with_thinking": LossRule(
        "temperature, top_k and a low top_p are not allowed while thinking", "drop"
    ),
    "temperature_range": LossRule("a temperature above 1 is written as 1", "carry"),
    "foreign_seal": LossRule("reasoning sealed by another provider", "drop"),
    "unsigned_reasoning": LossRule(
        "reasoning without a signature, which the vendor refuses: carried, it is a text in "
        "<thinking> tags",
        "drop",
    ),
    "audio": LossRule("audio input", "refuse"),
    "video": LossRule("video input", "refuse"),
    "file_type": LossRule("a file that is neither PDF nor plain text", "refuse"),
    "file_id": LossRule("a file stored at another provider", "refuse"),
    "file_name": LossRule("the name of an image", "drop"),
    "image_detail": LossRule("the detail level of an image", "drop"),
    "assistant_media": LossRule("an image, sound or file that the model made earlier", "drop"),
    "system_media": LossRule("an image, sound or file in a system text", "refuse"),
    "turn_name": LossRule("the name of a message's author", "drop"),
    "presence_penalty": LossRule("presence_penalty", "drop"),
    "frequency_penalty": LossRule("frequency_penalty", "drop"),
    "seed": LossRule("seed", "drop"),
    "logit_bias": LossRule("logit_bias", "drop"),
    "verbosity": LossRule("verbosity", "drop"),
    "cache_key": LossRule("a prompt cache key", "drop"),
    "cache_ttl": LossRule(
        "a cache of half an hour or more is kept for five minutes, unless the upstream's `cache_ttl` is `1h`",
        "drop",
    ),
    "cache_breakpoints": LossRule(
        "the vendor takes four breakpoints; the earliest are left out", "drop"
    ),
    "store": LossRule("storing the answer at the provider", "drop"),
    "previous_id": LossRule("an earlier answer stored at another provider", "refuse"),
    "include": LossRule("extra output asked for by name", "drop"),
    "metadata": LossRule("metadata other than a user id", "drop"),
    "user_id": LossRule("a second user id: only the one for safety checks is sent", "drop"),
    "service_tier": LossRule("a service tier this vendor does not have", "drop"),
    "stop_sequence": LossRule("a stop sequence of white space only", "drop"),
    "response_format": LossRule("a response format other than a JSON schema", "drop"),
    "format_details": LossRule("the name, description or leniency of a response format", "drop"),
    "reasoning_summary": LossRule("the length asked for in reasoning summaries", "drop"),
}

LOSSES: LossTable = {**_EVERYWHERE, **_ANSWERS, **REQUEST_LOSSES, **_REQUESTS}


note_foreign = foreign_noter("messages")
"""Note as losses the fields of another dialect that are not written and may be missed."""


def note_usage(usage: Usage, book: LossBook) -> None:
    """Note as losses the counts that have no field."""
    if usage.input_audio is not None or usage.output_audio is not None:
        book.note("usage_details", "usage")
    note_foreign(book, usage.extra, "usage")
