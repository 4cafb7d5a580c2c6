"""The error flag of a tool result, in-band, for wires that have no field for it.

Chat and Responses know only text; models treat the same text differently when it is marked as an error, so the mark is
part of the text and comes off again when the conversation returns.
"""

__all__ = ("ERROR_MARK", "mark_error", "unmark_error")

ERROR_MARK = "[tool error] "


def mark_error(text: str) -> str:
    return ERROR_MARK + text


def unmark_error(text: str) -> tuple[str, bool]:
    """The text without the mark, and whether it had one."""
    if text.startswith(ERROR_MARK):
        return text[len(ERROR_MARK) :], True
    return text, False
