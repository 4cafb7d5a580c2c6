"""Halves of a character: a surrogate pair whose two escapes arrive in different deltas.

A server that cuts its text by UTF-16 units sends `"\\ud83d"` and then `"\\ude00"`. The first half has no UTF-8 and must
not be emitted; it waits for the other. A half whose partner never comes is U+FFFD; in a call's input it is a fault. Only text in which a decoder met a
surrogate needs these functions: JSON readers refuse such text on their fast path, so other deltas never come here.
"""

from collections.abc import Iterator

from dragoman.errors import MalformedJson

_FIRST_HALVES = ("\ud800", "\udbff")
_SLICE = 65_536  # characters


def join_halves(held: str, text: str) -> tuple[str, str]:
    """The text that can be emitted, and the half to hold for the next call (empty if none).

    `held` is what the call before gave back. At the end of the part, emit `replace_lone(held)`.
    """
    whole = held + text
    if whole and _is_first_half(whole[-1]):
        return replace_lone(whole[:-1]), whole[-1]
    return replace_lone(whole), ""


def join_exactly(held: str, text: str) -> tuple[str, str]:
    """The same for a call's input, where nothing may stand for what was sent.

    Raises:
        MalformedJson: a half has no other half.
    """
    whole = held + text
    half = whole[-1] if whole and _is_first_half(whole[-1]) else ""
    text = whole[:-1] if half else whole
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le"), half
    except UnicodeDecodeError as error:
        raise MalformedJson(
            "expected whole characters in a call's input, got half of one"
        ) from error


def _is_first_half(character: str) -> bool:
    low, high = _FIRST_HALVES
    return low <= character <= high


def replace_lone(text: str) -> str:
    """The text with its surrogate pairs made characters and every lone half made U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(map(_replaced, _slices(text)))
    return text


def _replaced(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _slices(text: str) -> Iterator[str]:
    """Pieces of a text that cut no pair in two. Each lone half takes the decoder half a microsecond, all of them in one call."""
    start = 0
    while start < len(text):
        end = start + _SLICE
        if end < len(text) and _is_first_half(text[end - 1]) and not _is_first_half(text[end]):
            end += 1
        yield text[start:end]
        start = end
