"""What a reason or a kind of problem means to the person who has it: one sentence each.

The effects are those seen in real clients (the OpenAI and Anthropic SDKs, LangChain, pydantic-ai, litellm, the AI SDK,
Codex, Claude Code) or reported against them. A kind that is not listed here is shown without a sentence.
"""

from collections.abc import Mapping

__all__ = ("EFFECTS", "REASONS")

REASONS: Mapping[str, str] = {
    "complete": "yes",
    "not_closed": "NO: cut off",
    "no_name": "NO: no name",
    "invalid_json": "NO: not JSON",
    "not_client": "provider runs it",
}
"""May the call be run? `complete` is the only yes; `not_client` is no fault."""

EFFECTS: Mapping[str, str] = {
    "after_block_stop": "Clients have closed the block by then and throw, or lose what comes late.",
    "after_end": "Clients stop reading at the end; what follows it is lost.",
    "after_finish": "Some clients have closed the answer by then and lose what comes late.",
    "content_in_start": "Most clients take content from deltas only and lose this.",
    "cumulative_input": "Clients that append each piece get the arguments several times over.",
    "cut_stream": "Many clients do not notice, and run calls they received only half of.",
    "delta_mismatch": "Some clients throw at a delta that does not fit its block.",
    "empty_output": "Clients that read only the last event see an answer without calls.",
    "foreign_body": "The server answered in another format than the one it was asked for.",
    "frame_too_large": "Clients with a smaller limit give up much earlier.",
    "id_mismatch": "Clients that collect by id lose a part of the call.",
    "index_gap": "Clients that use the index as a position throw, or mix up blocks.",
    "index_reused": "Clients that collect by index glue the calls together.",
    "inferred_end": "The server never said that the call is complete; strict clients wait or fail.",
    "input_disagrees": "Clients run the streamed or the final arguments; they are not the same.",
    "interleaved_blocks": "Several clients mix up blocks that overlap; one must end before the next starts.",
    "interleaved_calls": "Several clients mix up calls whose deltas alternate; one must end before the next starts.",
    "invalid_arguments": "The tool cannot be called with this. Most clients throw; some run it with {}.",
    "invalid_utf8": "A proxy cut a character in two, or the text is not UTF-8.",
    "late_name": "Some clients throw when the first piece of a call has no name.",
    "malformed_body": "No client can read this answer. Was the recording cut?",
    "malformed_frame": "Most clients throw at such a frame and lose the rest of the answer.",
    "missing_blank_lines": "Either the recording dropped them, or no conforming client can read this stream.",
    "missing_block_start": "Clients throw at content of a block they do not know.",
    "missing_block_stop": "Clients that run a call when its block stops never run it.",
    "missing_end": "Strict clients report that the stream was cut.",
    "missing_event_name": "The Anthropic SDKs skip events without a name: they see an empty stream.",
    "missing_finish": "Some clients throw; others stop without running the calls.",
    "missing_id": "The result cannot be paired with the call; some clients throw.",
    "missing_index": "Clients take a missing index for 0 and merge parallel calls, or drop the call.",
    "missing_name": "Nobody can tell which tool is meant.",
    "missing_start": "Clients throw when the first event is another.",
    "missing_type": "Clients that read the payload do not know what it is.",
    "missing_usage": "The Anthropic SDKs, pydantic-ai, litellm and the AI SDK throw without it.",
    "nameless_call": "Nobody can tell which tool is meant.",
    "object_input": "Most clients expect a string there and throw.",
    "provider_error": "The provider says so itself; the recording is not at fault.",
    "repeated_id": "Clients that open a call at every id open too many, or pair results wrongly.",
    "repeated_name": "Clients that append names get the name several times over, and find no such tool.",
    "split_name": "Clients that do not append names know only a part of it, and find no such tool.",
    "text_disagrees": "Clients show the streamed or the final text; they are not the same.",
    "unfinished_call": "It must not be run: its arguments lack their end.",
    "unknown_block": "Strict clients throw at a block they do not know.",
    "unknown_delta": "Strict clients throw at a delta they do not know.",
    "unknown_event": "Strict clients throw at an event they do not know.",
    "unknown_finish": "Some clients stop the loop at a finish they do not know.",
    "wrong_event_name": "Clients that go by the event's name and those that go by its type disagree.",
    "wrong_finish": "Some clients end the turn without running the calls.",
}
"""What a kind of problem does to clients."""
