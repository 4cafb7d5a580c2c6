"""Whole arguments unwrapped at once."""

from dragoman.core.freeform import Unwrapper


def unwrap_input(text: str) -> str | None:
    """The input inside complete arguments; None if they were cut."""
    unwrapper = Unwrapper()
    pieces = [unwrapper.feed(text), unwrapper.finish()]
    return None if unwrapper.is_cut else "".join(pieces)
