"""A tool of an MCP server as a tool of the engine, and the result of a call as its output.

Results have limits on their size. An invalid image is refused here: the provider would refuse it in every later turn.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from typing import cast

from mcp import types

from dragoman._json import Raw, dumps_document, loads, raw
from dragoman.engine.json_schema import problems_with
from dragoman.engine.mcp.server import McpServer
from dragoman.engine.results import image_type
from dragoman.engine.tools import Declaration, Invocation, Offer, Output
from dragoman.engine.validation import given_arguments, nested
from dragoman.errors import MalformedJson, ToolError
from dragoman.model.parts import Media, MediaKind, Text

MAX_TEXT = 200_000
"""Characters of one result: some 50,000 tokens, a quarter of a large context."""
MAX_MEDIA = 10 * 1024 * 1024
"""Characters of base64 of one result: providers accept images of 5 MB, and several of them."""
MAX_BLOCKS = 200
"""Blocks of one result; a note says how many more there were."""

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+(?:;.*)?", re.IGNORECASE)


def output_from_result(result: types.CallToolResult, output_schema: bytes | None = None) -> Output:
    """The output for a result, checked against the output schema of the server, if it has one.

    Raises:
        ToolError: the result does not fit the schema, or has an image that is not base64, or an invalid media type.
    """
    reader = _ResultReader()
    content = list(reader.blocks(result.content))
    structured = _structured(result)
    if output_schema is not None and not result.is_error:
        _check_output_schema(result, output_schema)
    if structured is not None and not content:
        # a server should send text and structured content; a server that sends only structured content is accepted
        content = [Text(text=reader.cut(structured.decode("utf-8", "replace")))]
    is_small = structured is not None and len(structured) <= MAX_TEXT
    return Output(
        content=tuple(content),
        is_error=bool(result.is_error),
        structured=Raw(structured) if structured is not None and is_small else None,
    )


def _check_output_schema(result: types.CallToolResult, output_schema: bytes) -> None:
    if result.structured_content is None:
        raise ToolError("it promised a structured result and sent none")
    problems = problems_with(output_schema, result.structured_content)
    if problems:
        raise ToolError(f"it does not fit the schema that it promised: {'; '.join(problems)}")


def _structured(result: types.CallToolResult) -> bytes | None:
    if result.structured_content is None:
        return None
    try:
        return dumps_document(result.structured_content)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"its structured result cannot be written as JSON: {error}") from error


class _ResultReader:
    """Converts the blocks of one result, within its limits."""

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
            # the type of the bytes, not the one that the server states: providers compare the two
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


PERSON_SECONDS = 86_400.0
"""The time that a person may take to approve a call."""


class McpTool:
    """A tool of a server. Its namespace is the server's name. It is parallel if the server says that it only reads."""

    def __init__(self, server: McpServer, listed: types.Tool) -> None:
        self._server = server
        self._name = listed.name
        self._output_schema = (
            None if listed.output_schema is None else bytes(raw(listed.output_schema))
        )
        annotations = listed.annotations
        self.offer = Offer(
            declaration=Declaration(
                name=listed.name,
                namespace=server.name,
                description=listed.description or listed.title,
                schema=raw(listed.input_schema),
            ),
            is_parallel=annotations is not None and annotations.read_only_hint is True,
            # a person may be asked during a call; the server's own limit is paused meanwhile
            timeout=server.settings.call_timeout if server.host is None else PERSON_SECONDS,
        )

    async def run(self, invocation: Invocation) -> Output:
        text = invocation.call.input
        # servers refuse a null that their schema does not allow, and accept a missing member
        arguments = given_arguments(self.offer.declaration, text, _arguments(text))
        result = await self._server.call(self._name, arguments, invocation.report)
        try:
            return output_from_result(result, self._output_schema)
        except ToolError as error:
            raise ToolError(
                f"the result of {self._name!r} of the MCP server {self._server.name!r} cannot be"
                f" used: {error.message}"
            ) from error


def _arguments(text: str) -> dict[str, object]:
    if not text.strip():
        return {}
    try:
        value: object = loads(text)
    except MalformedJson as error:
        raise ToolError(f"the arguments of a tool are a JSON object: {error.message}") from error
    if not isinstance(value, dict):
        raise ToolError(
            f"the arguments of a tool are a JSON object, got one of type {type(value).__name__}"
        )
    arguments = cast("dict[str, object]", value)
    _check_texts(arguments)
    return arguments


def _check_texts(value: object) -> None:
    """Refuse half a surrogate pair: UTF-8 cannot express it, and the transport would fail for all its calls."""
    for each in nested(value):
        texts = cast("dict[str, object]", each) if isinstance(each, dict) else (each,)
        try:
            "".join(text for text in texts if isinstance(text, str)).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ToolError("the arguments hold half a surrogate pair") from error
