"""What a prompt cannot say that fields of a request can, and what is done about it unless the policy says otherwise."""

from dragoman.core.losses import LossRule, LossTable

__all__ = ("LOSSES",)

LOSSES: LossTable = {
    # --- tools
    "custom_tool": LossRule(
        "a free-text tool is offered as a function with one string, `input`", "carry"
    ),
    "grammar": LossRule(
        "a grammar becomes words in the tool's description; nothing holds the model to it", "carry"
    ),
    "strict": LossRule("nothing holds a model that writes its calls as text to a schema", "drop"),
    "namespace": LossRule("text formats have no namespaces; a tool is namespace__name", "carry"),
    "call_kind": LossRule(
        "text formats have functions only; the tool's action is written as arguments", "carry"
    ),
    "cache_control": LossRule("a cache breakpoint of a tool has no place in a prompt", "drop"),
    "tool_fields": LossRule("a field of a tool that a prompt does not say", "drop"),
    "tool_choice": LossRule(
        "which tools to call is asked for in words; the model may not", "carry"
    ),
    "parallel_calls": LossRule("that calls come one at a time is asked for in words", "carry"),
    "response_format": LossRule(
        "an upstream that holds the answer to a format keeps its model from writing calls", "carry"
    ),
    # --- the conversation
    "call_input": LossRule(
        "input that is no JSON object is written as the text of an argument `input`", "carry"
    ),
    "call_form": LossRule("the format has no unambiguous way to write this argument", "carry"),
    "result_form": LossRule("a result contains what the format ends its results with", "carry"),
    "result_media": LossRule("media of a result follow its text in the same turn", "carry"),
    "seal": LossRule("a signature of a call has no place in text", "drop"),
    "call_fields": LossRule("a field of a call or a result that text does not say", "drop"),
    "stop": LossRule("there is no room for the format's own stop sequence", "drop"),
}
