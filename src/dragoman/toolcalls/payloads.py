"""What a caller hands over, as JSON documents.

A payload is a mapping, JSON text or bytes, whole SSE frames, an object of a vendor's SDK (known by its `model_dump`;
no SDK is imported), or a list of these. It is read, never changed. Bytes are taken as they are, so that arguments
which stand in them as JSON keep their exact text; a mapping has no text and is written compactly.
"""

from collections.abc import Mapping
from typing import cast

from dragoman._json import FAST_FAILURES, Raw, dumps, typed_decoder
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.base import check_frame
from dragoman.errors import MalformedJson
from dragoman.sse import Frame, FrameParser

__all__ = ("BOM", "DONE", "document_of", "is_empty", "to_documents")

BOM = b"\xef\xbb\xbf"

DONE = b"[DONE]"
"""The end marker of the OpenAI dialects."""

_MAX_DEPTH = 200
"""Nesting of a value that must be copied before it can be written; what vendors accept is far below."""

# Another signature than pydantic's, or a value that cannot be serialised (a ValueError there).
_DUMP_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

_decode_array = typed_decoder(list[Raw])


def is_empty(payload: object) -> bool:
    """Whether there is nothing in it to read."""
    return payload is None or (
        isinstance(payload, str | bytes | bytearray | Mapping | list | tuple) and not payload
    )


def to_documents(payload: object) -> list[bytes]:
    """The JSON documents in a payload, in order; `DONE` stands for the marker.

    Raises:
        MalformedJson: it is nothing that could be read.
    """
    if isinstance(payload, str):
        payload = replace_lone(payload).encode()
    if isinstance(payload, bytes | bytearray):
        return _split(bytes(payload))
    if isinstance(payload, list | tuple):
        return [_write(entry) for entry in cast("list[object]", payload) if not is_empty(entry)]
    return [_write(payload)]


def _split(data: bytes) -> list[bytes]:
    text = data.removeprefix(BOM).strip()
    if text.startswith(b"{"):
        return [text]
    if text.upper() == DONE:
        return [DONE]
    if text.startswith(b"["):
        try:
            return [bytes(entry) for entry in _decode_array(text)]
        except FAST_FAILURES as error:
            raise MalformedJson(f"expected a JSON array, got {len(data)} other bytes") from error
    if not text:
        raise MalformedJson(f"expected JSON or SSE frames, got {len(data)} blanks")
    parser = FrameParser()
    documents = [document_of(frame) for frame in (*parser.feed(data), *parser.close())]
    return [document for document in documents if document is not None]


def document_of(frame: Frame) -> bytes | None:
    """The JSON in a frame, or `DONE`; None if it has none: a comment, or what keeps a connection open.

    Raises:
        MalformedJson: it lost its data, or that is no UTF-8.
    """
    check_frame(frame)
    data = frame.data
    if data is not None and data.strip():
        return DONE if frame.is_done else data
    # The names of all events that say something of an answer have a dot or an underscore, but for Chat's default.
    name = frame.name
    if b"." in name or b"_" in name or name == b"message":
        raise MalformedJson("expected data with an event, got none")
    return None


def _write(value: object) -> bytes:
    try:
        return dumps(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Not all JSON: an SDK's object somewhere in it, a mapping that is no dict, or a cycle.
        return dumps(_plain(value, 0))


def _plain(value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise MalformedJson(f"expected a payload of at most {_MAX_DEPTH} levels, got more")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): _plain(entry, depth + 1) for key, entry in entries.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, depth + 1) for entry in cast("list[object]", value)]
    return _plain(_dump(value), depth + 1)


def _dump(value: object) -> object:
    dump: object = getattr(value, "model_dump", None)
    if not callable(dump):
        raise MalformedJson(
            f"expected a mapping, JSON or an SDK's object, got {type(value).__name__}"
        )
    try:
        return dump(mode="json", by_alias=True, warnings=False)
    except _DUMP_FAILURES as error:
        # Not its words: they quote values.
        kind = type(error).__name__
        raise MalformedJson(f"model_dump of {type(value).__name__} raised {kind}") from error
