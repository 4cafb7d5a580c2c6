"""Writes parts as content blocks, for the stream encoder and the body encoder; and media, which only requests have.

A part without a block gives None, and a loss is noted. The conversation of a request has its own rules (`turns`), which use
some functions of this module.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import assert_never
from urllib.parse import unquote_to_bytes

from dragoman._json import Raw, dumps_text, loads, raw
from dragoman.core.aliases import IdLimits, alias_id, flat_name
from dragoman.core.fields import own_fields, read_object
from dragoman.core.losses import LossBook, note_opaque
from dragoman.core.seals import seal_to_signature
from dragoman.dialects.messages.losses import DEFAULT_TARGET, note_foreign
from dragoman.dialects.messages.wire import (
    CACHE_CONTROL,
    CALLED_RESULTS,
    DIRECT,
    INVALID_KEY,
    RESULT_SUFFIX,
    SERVER_TOOL_KINDS,
)
from dragoman.errors import MalformedJson
from dragoman.model.parts import (
    Annotation,
    Call,
    CallKind,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)

Block = dict[str, object]

REASONING_JOIN = "\n\n"

_IDS: IdLimits = DEFAULT_TARGET.ids

# Kinds of client-run tools that are plain `tool_use` blocks in this dialect too.
NATIVE_KINDS: frozenset[CallKind] = frozenset(
    {"function", "custom", "bash", "text_editor", "computer", "memory"}
)
# The vendor's own names for tools that other providers run under other names.
_SERVER_NAMES: Mapping[CallKind, str] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_interpreter": "code_execution",
}


def block_from_part(part: Part, book: LossBook, where: str) -> Block | None:
    """Write a complete block; None if this dialect has none for the part."""
    match part:
        case Text():
            return _text_block(part, book, where)
        case Refusal():
            note_foreign(book, part.extra, where)
            own = own_fields("messages", part.extra)
            return (
                {"type": "text", "text": part.text, "citations": [], **own} if part.text else None
            )
        case Reasoning():
            note_foreign(book, part.extra, where)
            return reasoning_block(part, book, where)
        case Call():
            header = call_header(part, book, where)
            if header is None:
                return None
            note_status(part, book, where)
            return {**header, "input": input_object(part, book, where)}
        case Result():
            return result_block(part, book, where)
        case Media():
            book.note("media_output", where, part.kind)
            return None
        case Opaque():
            if part.dialect == "messages":
                return {**read_object(part.raw), "type": part.type}
            note_opaque(book, "foreign_part", where, part)
            return None
        case _:
            assert_never(part)


def call_header(call: Call, book: LossBook, where: str) -> Block | None:
    """Write the block of a call without its input."""
    note_foreign(book, call.extra, where)
    if call.seals:
        book.note("call_seal", where)
    if call.executor != "client":
        return _server_header(call, book, where)
    if call.namespace:
        book.note("namespace", where, call.namespace)
    if call.kind == "custom":
        book.note("custom_call", where, call.name)
    elif call.kind not in NATIVE_KINDS:
        book.note("call_kind", where, call.kind)
    return {
        "type": "tool_use",
        "id": write_id(call.call_id),
        "name": flat_name(call.name or call.kind, call.namespace),
        "input": {},
        "caller": DIRECT,
        **own_fields("messages", call.extra),
    }


def _server_header(call: Call, book: LossBook, where: str) -> Block | None:
    call_id = write_id(call.call_id)
    own = own_fields("messages", call.extra)
    if call.kind == "mcp":
        server = call.namespace or ""
        names = {"name": call.name, "server_name": server}
        return {"type": "mcp_tool_use", "id": call_id, **names, "input": {}, **own}
    is_own = call.extra is not None and call.extra.dialect == "messages"
    name = call.name if is_own or call.name in SERVER_TOOL_KINDS else _SERVER_NAMES.get(call.kind)
    if name is None or (call.executor == "gateway" and call.kind == "function"):
        book.note("provider_call", where, call.kind)
        return None
    header: Block = {"type": "server_tool_use", "id": call_id, "name": name, "input": {}}
    return {**header, "caller": DIRECT, **own}


def note_status(call: Call, book: LossBook, where: str) -> None:
    """Note as a loss the failure of a provider's call, which a block cannot express."""
    if call.executor != "client" and call.status == "failed":
        book.note("call_status", where, call.name)


def input_object(call: Call, book: LossBook, where: str) -> Raw:
    """Return a call's input as the object that this dialect requires; an input that is an object keeps its exact bytes.

    An input that was cut never looks whole: it gets no `{}` for no input and no closed wrapper around half a text.
    """
    is_whole = call.status == "completed" or (call.executor != "client" and call.status == "failed")
    key = wrapper_key(call, call.input)
    if is_whole and key is not None:
        # The same characters that the stream encoder writes piece by piece.
        return Raw(b'{"%b":%b}' % (key.encode(), dumps_text(call.input)))
    if call.kind != "custom" and is_object_text(call.input):
        return Raw(call.input.encode("utf-8", "replace"))
    if is_whole and not call.input.strip():
        return Raw(b"{}")
    book.note("invalid_input", where, f"call {call.call_id}")
    return raw({INVALID_KEY: call.input})


def is_object_text(text: str) -> bool:
    """Whether the text is one strict JSON object."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        loads(text)
    except MalformedJson:
        return False
    return True


def wrapper_key(call: Call, text: str) -> str | None:
    """Return the key for input that is no JSON, in the object that this dialect requires; None if the input is JSON.

    `text` is the beginning of the input: other vendors' code tools take bare code, this vendor's takes an object.
    """
    if call.kind == "custom":
        return "input"
    is_code = call.kind == "code_interpreter" and call.executor != "client"
    return "code" if is_code and text and not text.lstrip().startswith("{") else None


def reasoning_block(part: Reasoning, book: LossBook, where: str) -> Block | None:
    """Write a thinking block, or a redacted block if there is no text. None if there is no seal either."""
    entries = [entry for entry in (*part.summary, *part.content) if entry]
    if len(entries) > 1:
        book.note("reasoning_entries", where)
    text = REASONING_JOIN.join(entries)
    seals = part.seals
    own = own_fields("messages", part.extra)
    if text or (len(seals) == 1 and seals[0].kind == "signature"):
        signature = seal_to_signature(seals, part.item_id) or ""
        return {"type": "thinking", "thinking": text, "signature": signature, **own}
    if len(seals) == 1 and seals[0].kind == "redacted":
        return {"type": "redacted_thinking", "data": seals[0].data, **own}
    sealed = seal_to_signature(seals, part.item_id)
    return None if sealed is None else {"type": "redacted_thinking", "data": sealed, **own}


def result_block(part: Result, book: LossBook, where: str) -> Block | None:
    """Write the result of a provider's tool: the vendor's own result unchanged, of others only texts of MCP servers."""
    note_foreign(book, part.extra, where)
    call_id = write_id(part.call_id)
    own = own_fields("messages", part.extra)
    if part.kind == "mcp" and all(isinstance(each, Text) for each in part.content):
        texts = [_result_text(each, book, where) for each in part.content if isinstance(each, Text)]
        about = {"tool_use_id": call_id, "is_error": part.is_error, "content": texts}
        return {"type": "mcp_tool_result", **about, **own}
    match part.content:
        case (Opaque(dialect="messages") as opaque,) if part.name:
            block: Block = {"type": part.name + RESULT_SUFFIX, "tool_use_id": call_id}
            if part.name in CALLED_RESULTS:
                block["caller"] = DIRECT
            return {**block, "content": opaque.raw, **own}
        case _:
            book.note("provider_result", where, part.kind)
            return None


def _result_text(text: Text, book: LossBook, where: str) -> Block:
    block: Block = _text_block(text, book, where) or {"type": "text", "text": "", "citations": []}
    return (
        block if text.cache is None else {**block, "cache_control": CACHE_CONTROL.write(text.cache)}
    )


def citation_from_annotation(annotation: Annotation, book: LossBook, where: str) -> Raw | None:
    """Write a citation of this vendor, or of a web address; None for any other."""
    if annotation.dialect == "messages":
        return annotation.raw
    if annotation.url is None:
        book.note("citation", where)
        return None
    if annotation.start is not None or annotation.end is not None:
        book.note("citation", where, "where in the text")
    return raw(
        {
            "type": "web_search_result_location",
            "url": annotation.url,
            "title": annotation.title,
            "cited_text": annotation.quote or "",
            # The vendor's proof of the source, which is missing here: `turns` leaves such citations out of requests.
            "encrypted_index": "",
        }
    )


def write_id(call_id: str) -> str:
    """Return an id that clients may send back to a strict server. `core.aliases.original_id` reverses it."""
    return alias_id(call_id, _IDS)


def _text_block(part: Text, book: LossBook, where: str) -> Block | None:
    note_foreign(book, part.extra, where)
    note_foreign(book, part.item_extra, where)
    if part.logprobs is not None:
        book.note("logprobs", where)
    found = [citation_from_annotation(each, book, where) for each in part.annotations]
    citations = [each for each in found if each is not None]
    if not part.text and not citations:
        return None
    own = own_fields("messages", part.extra)
    return {"type": "text", "text": part.text, "citations": citations, **own}


_PDF = "application/pdf"
# OpenAI's file ids; the vendor's own begin with `file_`.
_FOREIGN_FILE = "file-"


def media_block(media: Media, book: LossBook, where: str) -> Block | None:
    """Write a media block; None, with a loss noted, if the vendor does not accept the media."""
    note_foreign(book, media.extra, where)
    if media.kind in ("audio", "video"):
        book.note("audio" if media.kind == "audio" else "video", where)
        return None
    if media.file_id is not None and media.file_id.startswith(_FOREIGN_FILE):
        book.note("file_id", where)
        return None
    source = _source(media)
    if source is None:
        book.note("file_type", where, media.media_type or "unknown type")
        return None
    own = dict(own_fields("messages", media.extra))
    block: Block = {"type": "image" if media.kind == "image" else "document", "source": source}
    if media.kind != "image" and media.filename:
        block["title"] = media.filename
    elif media.filename:
        book.note("file_name", where)
    if media.detail not in (None, "auto"):
        book.note("image_detail", where, str(media.detail))
    return {**block, **own}


def _source(media: Media) -> Block | None:
    media_type, data, url = media.media_type, media.data, media.url
    address = url or data or ""  # OpenAI's clients send the data of a file as a data URL too
    if address.startswith("data:"):
        head, _, data = address.partition(",")
        kind, *parameters = head.removeprefix("data:").split(";")
        media_type = kind or media_type
        if "base64" not in parameters:
            data = b64encode(unquote_to_bytes(data)).decode()
        url = None
    if media.file_id is not None:
        return {"type": "file", "file_id": media.file_id}
    if url is not None:
        return {"type": "url", "url": url}
    if data is None:
        return None
    if media.kind == "image":
        return {"type": "base64", "media_type": media_type or "image/png", "data": data}
    if media_type in (None, _PDF):
        return {"type": "base64", "media_type": _PDF, "data": data}
    if media_type.startswith("text/"):
        text = _decoded(data)
        return None if text is None else {"type": "text", "media_type": "text/plain", "data": text}
    return None


def _decoded(data: str) -> str | None:
    try:
        return b64decode(data, validate=True).decode("utf-8")
    except (Base64Error, ValueError):
        return None
