"""Files as text: what counts as text, in which ends of lines, and how much of a line is shown."""

from dragoman.errors import ToolError

__all__ = ("MAX_LINE", "as_bytes", "as_text", "is_binary", "shown_line")

# Longer lines are data or minified; the rest of them helps nobody.
MAX_LINE = 2_000
# As git does it.
_PROBED = 8_192


def is_binary(data: bytes) -> bool:
    """Whether the bytes are no text: there is a zero among the first of them."""
    return b"\0" in data[:_PROBED]


def as_text(data: bytes, path: str) -> str:
    """The text of a file that is to be changed.

    Raises:
        ToolError: it is not UTF-8, and writing it back would change more than was asked for.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is not UTF-8 text (byte {error.start:,}); it cannot be edited as text"
        ) from error


def as_bytes(text: str, path: str) -> bytes:
    """The text as it is stored.

    Raises:
        ToolError: it has characters that no file can hold.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{path}: the text has half a surrogate pair at character {error.start:,}"
        ) from error


def shown_line(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}… ({len(line):,} characters)"
