"""Why a choice ended, decided by its content rather than by the server's finish reason alone.

Some servers send `stop` after streaming calls, and `tool_calls` after streaming none; clients act on the reason and
lose the calls, or wait for results that cannot come. So the content decides between these two. A reason that says the
answer is not whole (a limit, a filter, a refusal, a pause) always stays.
"""

from dragoman.model.outcome import FinishReason


def settle_finish(native: FinishReason | None, *, has_complete_client_calls: bool) -> FinishReason:
    """The reason to report. `native` is the reason on the wire, None if there was none."""
    match native:
        case None | "stop" | "tool_calls":
            return "tool_calls" if has_complete_client_calls else "stop"
        case "stop_sequence" if has_complete_client_calls:
            # A call that closed before the sequence matched is still to be run, and clients run calls only with `tool_calls`.
            return "tool_calls"
        case _:
            return native
