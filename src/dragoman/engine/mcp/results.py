"""What a tool of a server gave back, in the engine's words: bounded, and checked where a lie would do harm later.

A picture that is none would be refused by the provider in every turn that follows, so it goes no further than here.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator

from mcp import types

from dragoman._json import Raw, dumps_document
from dragoman.engine.images import image_type
from dragoman.engine.schema_checks import problems_with
from dragoman.engine.tools import Output
from dragoman.errors import ToolError
from dragoman.model.parts import Media, MediaKind, Text

__all__ = ("MAX_BLOCKS", "MAX_MEDIA", "MAX_TEXT", "output_from_result")

MAX_TEXT = 200_000
"""Characters of one result: some 50,000 tokens, a quarter of a large context."""
MAX_MEDIA = 10 * 1024 * 1024
"""Characters of base64 of one result: providers take images of 5 MB, and some of them."""
MAX_BLOCKS = 200
"""Of one result; the rest is left out, and said to be."""

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+(?:;.*)?", re.IGNORECASE)


def output_from_result(result: types.CallToolResult, promised: bytes | None = None) -> Output:
    """A result, which fits the schema that the server promised, if it did.

    Raises:
        ToolError: it does not, or it holds what it cannot: a picture that is no base64, a media type that is none.
    """
    reader = _Reader()
    content = list(reader.blocks(result.content))
    structured = _structured(result)
    if promised is not None and not result.is_error:
        _check_promise(result, promised)
    if structured is not None and not content:
        # a server should send both; one that sends only values is read all the same
        content = [Text(text=reader.cut(structured.decode("utf-8", "replace")))]
    is_small = structured is not None and len(structured) <= MAX_TEXT
    return Output(
        content=tuple(content),
        is_error=bool(result.is_error),
        structured=Raw(structured) if structured is not None and is_small else None,
    )


def _check_promise(result: types.CallToolResult, promised: bytes) -> None:
    if result.structured_content is None:
        raise ToolError("it promised a structured result and sent none")
    problems = problems_with(promised, result.structured_content)
    if problems:
        raise ToolError(f"it does not fit the schema that it promised: {'; '.join(problems)}")


def _structured(result: types.CallToolResult) -> bytes | None:
    if result.structured_content is None:
        return None
    try:
        return dumps_document(result.structured_content)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"its structured result cannot be written as JSON: {error}") from error


class _Reader:
    """Counts what has been taken of one result."""

    def __init__(self) -> None:
        self._text_left = MAX_TEXT
        self._media_left = MAX_MEDIA

    def blocks(self, blocks: list[types.ContentBlock]) -> Iterator[Text | Media]:
        for block in blocks[:MAX_BLOCKS]:
            yield self._block(block)
        if len(blocks) > MAX_BLOCKS:
            yield Text(text=f"[{len(blocks) - MAX_BLOCKS} more parts of the result are left out]")

    def cut(self, text: str) -> str:
        kept = text[: self._text_left]
        self._text_left -= len(kept)
        if len(kept) == len(text):
            return text
        return f"{kept}\n[{len(text) - len(kept)} more characters are left out]"

    def _block(self, block: types.ContentBlock) -> Text | Media:
        match block:
            case types.TextContent():
                return Text(text=self.cut(block.text))
            case types.ImageContent():
                return self._media("image", block.data, block.mime_type)
            case types.AudioContent():
                return self._media("audio", block.data, block.mime_type)
            case types.ResourceLink():
                return Text(text=self.cut(_link_text(block)))
            case types.EmbeddedResource():
                return self._resource(block.resource)

    def _resource(
        self, held: types.TextResourceContents | types.BlobResourceContents
    ) -> Text | Media:
        if isinstance(held, types.TextResourceContents):
            return Text(text=self.cut(f"{held.uri}:\n{held.text}"))
        media_type = held.mime_type or "application/octet-stream"
        family = media_type.partition("/")[0]
        kind: MediaKind = "image" if family == "image" else "audio" if family == "audio" else "file"
        name = held.uri.rstrip("/").rpartition("/")[2] or None
        return self._media(kind, held.blob, media_type, filename=name)

    def _media(
        self, kind: MediaKind, data: str, media_type: str, *, filename: str | None = None
    ) -> Text | Media:
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise ToolError(f"it sent {kind} data of the media type {media_type[:100]!r}")
        if len(data) > self._media_left:
            return Text(text=f"[{kind} of {len(data) * 3 // 4} bytes is left out: it is too large]")
        self._media_left -= len(data)
        try:
            held = b64decode(data, validate=True)
        except (NotBase64, ValueError) as error:
            raise ToolError(f"it sent {kind} data that is not base64: {error}") from error
        if kind == "image":
            # what the bytes say, not what the server says: providers compare the two
            found = image_type(held)
            if found is None:
                return Text(
                    text=f"[image of the type {media_type} is left out: models take PNG, JPEG, GIF and WebP]"
                )
            media_type = found
        return Media(
            kind=kind,
            media_type=media_type,
            data=data,
            filename=filename if kind == "file" else None,
        )


def _link_text(link: types.ResourceLink) -> str:
    facts: list[str] = [link.mime_type] if link.mime_type else []
    if link.size is not None:
        facts.append(f"{link.size} bytes")
    text = f"{link.title or link.name}: {link.uri}" + (f" ({', '.join(facts)})" if facts else "")
    return f"{text}\n{link.description}" if link.description else text
