"""Results for the model: a tool's output, checked and cut to size, and the engine's own text if no tool gave an output.

Tools may return anything, so their output is checked; it may have any size, so it is cut. Text that is too long loses its
middle: the beginning says what the text is, and the end says how the work ended. The engine's own text says what happened to
the call and, where possible, what to do instead, because a model acts on it.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import cast

from dragoman._json import dumps_document
from dragoman.engine.events import RunEnd
from dragoman.engine.tools import Output
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Opaque, Text

_ENDS: Mapping[RunEnd, str] = {
    "cancelled": "the run was interrupted",
    "max_time": "the time of the run was up",
    "failed": "the run ended with an error",
}


STILL_RUNNING = " It did not stop when it was cancelled and may still be running."


def aborted_text(reason: RunEnd, elapsed: float, *, is_stuck: bool) -> str:
    """The result of a call that was running when the run ended."""
    end = _ENDS.get(reason, "the run ended")
    still = STILL_RUNNING if is_stuck else ""
    return f"Aborted after {elapsed:.1f} s: {end}.{still}"


def not_run_text(reason: RunEnd) -> str:
    """The result of a call that had not started when the run ended."""
    return f"Not run: {_ENDS.get(reason, 'the run ended')}."


MAX_PARTS = 500
"""Parts of content in one result. Tools return one or a few; providers refuse far fewer than this."""

Content = tuple[Text | Media | Opaque, ...]


def check_output(name: str, value: object) -> Output:
    """The output of a tool, if its value has the declared type.

    Raises:
        ToolError: the value has another type.
    """
    came = _what_is_wrong(value)
    if came is not None:
        raise ToolError(
            f"The tool {name!r} is broken: it returned {came} where an output was expected."
        )
    return cast("Output", value)


def _what_is_wrong(value: object) -> str | None:
    if not isinstance(value, Output):
        return type(value).__name__
    content = cast("object", value.content)
    if not isinstance(content, tuple):
        return f"content as {type(content).__name__}"
    for part in cast("tuple[object, ...]", content):
        if not isinstance(part, (Text, Media, Opaque)):
            return f"{type(part).__name__} as content"
        if isinstance(part, Text) and not isinstance(cast("object", part.text), str):
            return f"{type(part.text).__name__} as text"
    return None


def fit_content(output: Output, *, max_characters: int, max_media: int) -> Content:
    """The content within the limits. An output that has only structured JSON becomes text."""
    content = output.content
    if not content and output.structured is not None:
        content = (Text(text=bytes(output.structured).decode("utf-8", "replace")),)
    if len(content) > MAX_PARTS:
        note = f"[… {len(content) - MAX_PARTS} more parts left out …]"
        content = (*content[:MAX_PARTS], Text(text=note))
    content = tuple(_fit_part(part, max_media) for part in content)
    total = sum(map(_length, content))
    if total <= max_characters:
        return content
    return tuple(_fit_texts(content, total, max_characters))


def cut_text(text: str, limit: int) -> str:
    """The text, or its two ends with a note of how much was left out between them."""
    if len(text) <= limit:
        return text
    head = (limit + 1) // 2
    tail = limit - head
    note = f"\n[… {len(text) - limit} characters left out …]\n"
    return text[:head] + note + text[len(text) - tail :]


def _fit_texts(content: Content, total: int, limit: int) -> Iterable[Text | Media | Opaque]:
    """Each text gets a share of the limit in proportion to its length."""
    for part in content:
        if isinstance(part, Text):
            yield Text(text=cut_text(part.text, len(part.text) * limit // total))
        elif isinstance(part, Opaque):
            yield _left_out(part.type, _length(part))
        else:
            yield part


_HALF = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text without halves of surrogate pairs, as in the name of a file that is not UTF-8: providers refuse such JSON."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _fit_part(part: Text | Media | Opaque, limit: int) -> Text | Media | Opaque:
    if isinstance(part, Text):
        text = encodable(part.text)
        return part if text is part.text else Text(text=text)
    if isinstance(part, Media):
        size = len(part.data or "") + len(part.url or "")
        if size > limit:
            return _left_out(part.kind, size)
    return part


def _left_out(kind: str, size: int) -> Text:
    return Text(text=f"[{kind} of {size} characters left out: too large]")


def _length(part: Text | Media | Opaque) -> int:
    if isinstance(part, Text):
        return len(part.text)
    return len(bytes(part.raw)) if isinstance(part, Opaque) else 0


# Enough to recognise a value.
MAX_SHOWN = 200


def shown(value: object) -> str:
    """A value as JSON, cut if it is long. Of a long string only the shown part is encoded."""
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"a string of {len(value):,} characters that begins {shown(value[:60])}"
    return cut(dumps_document(value).decode("utf-8", "replace"))


def cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(data: bytes) -> str | None:
    """The media type of an image that models accept, by its first bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)


def image_part(data: bytes) -> Media | None:
    """The bytes of an image as a part of a message; None if the bytes are not an image."""
    kind = image_type(data)
    if kind is None:
        return None
    return Media(kind="image", media_type=kind, data=b64encode(data).decode("ascii"))
