"""Results for the model: a tool's output, checked and cut to size, and the engine's own words where no tool gave an output.

Tools may return anything, so their output is checked; they may return any amount of it, so it is cut. Text that is too long
loses its middle: the beginning says what it is, and the end says how it went. The engine's own words say what happened to
the call and, where possible, what to do instead, because a model acts on them.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from dragoman._json import dumps_document
from dragoman.engine.events import RunEnd
from dragoman.engine.tools import Output
from dragoman.errors import ToolError
from dragoman.model.parts import Media, Opaque, Text

_REASONS: Mapping[str, str] = {
    "not_closed": (
        "The call was cut off before its input was complete, so it was not run. "
        "Call the tool again with a shorter input."
    ),
    "no_name": "The call names no tool, so it was not run.",
    "invalid_json": (
        "The arguments are not valid JSON, so the call was not run. Call the tool again with one JSON object."
    ),
}

_ENDS: Mapping[RunEnd, str] = {
    "cancelled": "the run was interrupted",
    "max_time": "the time of the run was up",
    "failed": "the run ended with an error",
}


def refusal_text(reason: str) -> str:
    """The text for a verdict of `core.call_input.judge`."""
    return _REASONS[reason]


def unknown_tool_text(name: str, near: Sequence[str]) -> str:
    if not near:
        return (
            f"There is no tool named {name!r}. Only the tools of this conversation can be called."
        )
    return f"There is no tool named {name!r}. Did you mean {' or '.join(map(repr, near))}?"


def unknown_kind_text(kind: str) -> str:
    return f"Calls of the kind {kind!r} cannot be run here. Use one of the other tools."


def wrong_kind_text(name: str, wanted: str) -> str:
    form = "plain text" if wanted == "custom" else "a JSON object"
    return f"The tool {name!r} takes {form} as its input, and was called with the other form."


def aborted_text(reason: RunEnd, elapsed: float, *, is_stuck: bool) -> str:
    """For a call that was running when the run ended."""
    end = _ENDS.get(reason, "the run ended")
    still = " It did not stop when it was cancelled and may still be running." if is_stuck else ""
    return f"Aborted after {elapsed:.1f} s: {end}.{still}"


def not_run_text(reason: RunEnd) -> str:
    """For a call that had not started."""
    return f"Not run: {_ENDS.get(reason, 'the run ended')}."


def timed_out_text(seconds: float, *, is_stuck: bool) -> str:
    still = " It did not stop when it was cancelled and may still be running." if is_stuck else ""
    return f"Timed out after {seconds:g} s and was stopped.{still}"


def no_answer_text(name: str) -> str:
    return f"The tool {name!r} was cancelled without an output."


def exit_text(name: str, code: object) -> str:
    return f"The tool {name!r} exited with the code {code!r} and returned no output."


def wrong_output_text(name: str, came: str) -> str:
    return f"The tool {name!r} is broken: it returned {came} where an output was expected."


def cut_note(left_out: int) -> str:
    return f"\n[… {left_out} characters left out …]\n"


def dropped_media_note(kind: str, size: int) -> str:
    return f"[{kind} of {size} characters left out: too large]"


def dropped_parts_note(count: int) -> str:
    return f"[… {count} more parts left out …]"


MAX_PARTS = 500
"""Parts of content in one result. Tools return one or a few; providers refuse far fewer than this."""

Content = tuple[Text | Media | Opaque, ...]


def check_output(name: str, value: object) -> Output:
    """The output of a tool, if its value has the declared type.

    Raises:
        ToolError: it has another type.
    """
    if not isinstance(value, Output):
        raise ToolError(wrong_output_text(name, type(value).__name__))
    content = cast("object", value.content)
    if not isinstance(content, tuple):
        raise ToolError(wrong_output_text(name, f"content as {type(content).__name__}"))
    for part in cast("tuple[object, ...]", content):
        if not isinstance(part, Text | Media | Opaque):
            raise ToolError(wrong_output_text(name, f"{type(part).__name__} as content"))
        if isinstance(part, Text) and not isinstance(cast("object", part.text), str):
            raise ToolError(wrong_output_text(name, f"{type(part.text).__name__} as text"))
    return value


def fit_content(output: Output, *, max_characters: int, max_media: int) -> Content:
    """The content within the limits. An output that has only structured JSON becomes text."""
    content = output.content
    if not content and output.structured is not None:
        content = (Text(text=bytes(output.structured).decode("utf-8", "replace")),)
    if len(content) > MAX_PARTS:
        note = Text(text=dropped_parts_note(len(content) - MAX_PARTS))
        content = (*content[:MAX_PARTS], note)
    content = tuple(_fit_media(part, max_media) for part in content)
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
    return text[:head] + cut_note(len(text) - limit) + text[len(text) - tail :]


def _fit_texts(content: Content, total: int, limit: int) -> Iterable[Text | Media | Opaque]:
    """Each text gets a share of the limit in proportion to its length."""
    for part in content:
        if isinstance(part, Text):
            yield Text(text=cut_text(part.text, len(part.text) * limit // total))
        elif isinstance(part, Opaque):
            yield Text(text=dropped_media_note(part.type, _length(part)))
        else:
            yield part


def _fit_media(part: Text | Media | Opaque, limit: int) -> Text | Media | Opaque:
    if isinstance(part, Media):
        size = len(part.data or "") + len(part.url or "")
        if size > limit:
            return Text(text=dropped_media_note(part.kind, size))
    return part


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
    """The bytes of an image as a part of a message; None if they are no image."""
    kind = image_type(data)
    if kind is None:
        return None
    return Media(kind="image", media_type=kind, data=b64encode(data).decode("ascii"))
