"""Halves of a character: a surrogate pair whose two escapes arrive in different deltas.

A server that cuts its text by UTF-16 units sends `"\\ud83d"` and then `"\\ude00"`. UTF-8 cannot encode the first half, so
it is held until the second arrives. A half that stays alone becomes U+FFFD; in a call's input it is an error. Only text
with a surrogate needs these functions: fast JSON decoders refuse such text, so other deltas never come here.
"""

from collections.abc import Iterator

from dragoman.errors import MalformedJson

_FIRST_HALVES = ("\ud800", "\udbff")
_SLICE = 65_536  # characters


def join_halves(held: str, text: str) -> tuple[str, str]:
    """The text that can be emitted, and the half to hold for the next call (empty if none).

    `held` is the half that the previous call returned. At the end of the part, emit `replace_lone(held)`.
    """
    whole = held + text
    if whole and _is_first_half(whole[-1]):
        return replace_lone(whole[:-1]), whole[-1]
    return replace_lone(whole), ""


def join_exactly(held: str, text: str) -> tuple[str, str]:
    """`join_halves` for a call's input, in which U+FFFD may not replace anything.

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
    """The text with each surrogate pair as one character and each lone half as U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(map(_replaced, _slices(text)))
    return text


def _replaced(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _slices(text: str) -> Iterator[str]:
    """Slices of a text that cut no pair in two. A lone half costs half a microsecond: slices keep each call short."""
    start = 0
    while start < len(text):
        end = start + _SLICE
        if end < len(text) and _is_first_half(text[end - 1]) and not _is_first_half(text[end]):
            end += 1
        yield text[start:end]
        start = end
