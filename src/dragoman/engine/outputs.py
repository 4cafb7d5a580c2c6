"""What goes back to the model of what a tool gave: checked, because tools lie, and cut, because tools flood.

Text that is too long loses its middle: the beginning says what it is and the end how it went.
"""

from collections.abc import Iterable
from typing import cast

from dragoman.engine import wording
from dragoman.engine.tools import Output
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Opaque, Text

__all__ = ("MAX_PARTS", "Content", "check_output", "cut_text", "fit_content")

MAX_PARTS = 500
"""Pieces of content in one result. Tools give one or a few; a provider refuses far fewer than this."""

Content = tuple[Text | Media | Opaque, ...]


def check_output(name: str, value: object) -> Output:
    """What a tool gave back, if it is what its type says.

    Raises:
        ToolError: it is not.
    """
    if not isinstance(value, Output):
        raise ToolError(wording.wrong_output(name, type(value).__name__))
    content = cast("object", value.content)
    if not isinstance(content, tuple):
        raise ToolError(wording.wrong_output(name, f"content as {type(content).__name__}"))
    for part in cast("tuple[object, ...]", content):
        if not isinstance(part, Text | Media | Opaque):
            raise ToolError(wording.wrong_output(name, f"{type(part).__name__} as content"))
        if isinstance(part, Text) and not isinstance(cast("object", part.text), str):
            raise ToolError(wording.wrong_output(name, f"{type(part.text).__name__} as text"))
    return value


def fit_content(output: Output, *, max_characters: int, max_media: int) -> Content:
    """The content within the limits. What is only there as JSON becomes text."""
    content = output.content
    if not content and output.structured is not None:
        content = (Text(text=bytes(output.structured).decode("utf-8", "replace")),)
    if len(content) > MAX_PARTS:
        note = Text(text=wording.dropped_parts(len(content) - MAX_PARTS))
        content = (*content[:MAX_PARTS], note)
    content = tuple(_fit_media(part, max_media) for part in content)
    total = sum(map(_length, content))
    if total <= max_characters:
        return content
    return tuple(_fit_texts(content, total, max_characters))


def cut_text(text: str, limit: int) -> str:
    """The text, or its two ends and a note of how much stood between them."""
    if len(text) <= limit:
        return text
    head = (limit + 1) // 2
    tail = limit - head
    return text[:head] + wording.cut_output(len(text) - limit) + text[len(text) - tail :]


def _fit_texts(content: Content, total: int, limit: int) -> Iterable[Text | Media | Opaque]:
    """Each text gets its share of the room by its length."""
    for part in content:
        if isinstance(part, Text):
            yield Text(text=cut_text(part.text, len(part.text) * limit // total))
        elif isinstance(part, Opaque):
            yield Text(text=wording.dropped_media(part.type, _length(part)))
        else:
            yield part


def _fit_media(part: Text | Media | Opaque, limit: int) -> Text | Media | Opaque:
    if isinstance(part, Media):
        size = len(part.data or "") + len(part.url or "")
        if size > limit:
            return Text(text=wording.dropped_media(part.kind, size))
    return part


def _length(part: Text | Media | Opaque) -> int:
    if isinstance(part, Text):
        return len(part.text)
    return len(bytes(part.raw)) if isinstance(part, Opaque) else 0
