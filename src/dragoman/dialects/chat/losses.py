"""What Chat Completions cannot express, and what happens to it unless the operator's policy says otherwise."""

from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.core.losses import REQUEST_LOSSES, LossBook, LossRule, LossTable, foreign_noter
from dragoman.core.schemas import SchemaRules
from dragoman.dialects.codec import Target
from dragoman.model.parts import Extra

DEFAULT_TARGET = Target(
    dialect="chat",
    names=NameLimits(pattern="[a-zA-Z0-9_-]", max_length=64),
    # OpenAI accepts any characters but at most 40; other servers are not stricter.
    ids=IdLimits(pattern=r"[\x21-\x7e]", max_length=40),
    schemas=SchemaRules(),
)
"""What nearly every Chat server accepts: functions, and no tools of its own. OpenAI also has `custom` tools."""

LOSSES: LossTable = {
    **REQUEST_LOSSES,
    # --- answers and requests alike
    "namespace": LossRule(
        "Chat has no namespaces; the call is written as namespace__name", "carry"
    ),
    "call_kind": LossRule(
        "Chat has no call of this kind; it is written as a function call with its action as arguments",
        "carry",
    ),
    "provider_call": LossRule(
        "a call that the provider ran itself has no place among the client's tool calls", "drop"
    ),
    "provider_result": LossRule("the result of a tool the provider ran has no field", "drop"),
    "seal": LossRule("a signature or encrypted reasoning has no field", "drop"),
    "annotation": LossRule(
        "a citation without a URL has no form, and a citation's quotation has no field", "drop"
    ),
    "opaque_part": LossRule("an item of another dialect that has no meaning here", "drop"),
    "opaque_text": LossRule(
        "only the title, the place and the texts of a search result, or of a document made of texts, are written",
        "carry",
    ),
    "reasoning_sections": LossRule(
        "reasoning in several sections, or with its summary beside it, is written as one text",
        "carry",
    ),
    # --- answers
    "output_media": LossRule(
        "an image in an answer is written as `images`, as some servers do; only the first sound is written, "
        "without its type; other media have no form",
        "carry",
    ),
    "finish_detail": LossRule(
        "the finish reason is more exact than Chat's words for it; the nearest is written", "carry"
    ),
    "stop_sequence": LossRule(
        "the stop sequence that matched is written as `stop_reason`, as vLLM does", "carry"
    ),
    "amended_text": LossRule("text that was changed after it had been streamed", "drop"),
    "parallel_functions": LossRule("a client that uses `functions` can get one call only", "drop"),
    "rate_limits": LossRule("rate limits have no field in an answer", "drop"),
    # --- requests
    "previous_response": LossRule(
        "Chat keeps no state: a conversation that refers to an earlier response would be lost",
        "refuse",
    ),
    "builtin_tool": LossRule("the upstream has no such built-in tool", "drop"),
    "custom_tool": LossRule(
        "the upstream has no free-form tools; offered as a function with one string", "carry"
    ),
    "tool_choice": LossRule(
        "the choice names a tool that is not sent; the model may choose freely", "carry"
    ),
    "schema": LossRule("the schema was changed to what the upstream accepts", "carry"),
    "reasoning_history": LossRule(
        "earlier reasoning is sent as `reasoning_content`, which some servers want and some refuse",
        "carry",
    ),
    "reasoning_settings": LossRule(
        "Chat has only an effort for reasoning; a budget becomes the nearest effort", "carry"
    ),
    "reasoning_off": LossRule(
        "reasoning cannot be switched off; few models accept the effort `none`", "drop"
    ),
    "cache_control": LossRule(
        "a breakpoint of Anthropic is an extension that strict servers refuse; not reported, as these servers cache by themselves",
        "drop",
        is_reported=False,
    ),
    "error_flag": LossRule(
        "a result's error flag has no field; it is written in front of the text", "carry"
    ),
    "result_media": LossRule(
        "a tool message holds text only; its media follow in a user message", "carry"
    ),
    "assistant_media": LossRule(
        "an image, sound or file that the model made earlier, in a form that Chat does not have",
        "drop",
    ),
    "logprobs": LossRule("log probabilities of an earlier answer have no field", "drop"),
    "media": LossRule("this kind of media, or this way to refer to it, has no form", "refuse"),
    "top_k": LossRule("top_k is an extension that strict servers refuse", "drop"),
    "include": LossRule("Chat has no `include`", "drop"),
    "long_user": LossRule("a user id of over 64 characters; a hash of it is sent", "carry"),
    "metadata": LossRule("OpenAI refuses metadata for answers that it does not store", "drop"),
    "store": LossRule("the gateway, not the upstream, decides whether an answer is stored", "drop"),
    "response_format": LossRule("the upstream has no such format", "drop"),
    "unknown_field": LossRule("a field of another dialect, or one that has no place here", "drop"),
}


note_foreign = foreign_noter("chat")
"""Note as losses the fields of another dialect that are not written and may be missed."""


def note_extra(book: LossBook, extra: Extra | None, where: str) -> None:
    """Note as a loss the extra fields of any dialect, where Chat has no place for extra fields."""
    if extra is not None and extra.fields:
        book.note("unknown_field", where, ", ".join(sorted(extra.fields)))
