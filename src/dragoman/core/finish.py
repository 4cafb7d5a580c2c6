"""Why a choice ended, decided from what it holds rather than from the label alone.

Servers say `stop` after streaming calls, and `tool_calls` after streaming none; clients act on the label and lose the
calls, or wait for results nobody can give. So the natural endings are settled by content. An ending that says the
answer is not whole (a limit, a filter, a refusal, a pause) always stands.
"""

from dragoman.model.outcome import FinishReason


def settle_finish(native: FinishReason | None, *, has_complete_client_calls: bool) -> FinishReason:
    """The reason to report. `native` is what the wire said, None if it said nothing."""
    match native:
        case None | "stop" | "tool_calls":
            return "tool_calls" if has_complete_client_calls else "stop"
        case "stop_sequence" if has_complete_client_calls:
            # A call that closed before the sequence matched is still to be run, and clients run calls only with `tool_calls`.
            return "tool_calls"
        case _:
            return native
