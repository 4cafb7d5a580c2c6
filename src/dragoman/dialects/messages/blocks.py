"""Reads content blocks to parts, for streams, bodies and requests. `render` writes parts as blocks.

A block of an unknown type, or without a field that its type requires, is kept whole as `Opaque`. Provider-run calls and
their results always have an `extra` of this dialect, even an empty one: it marks them as the vendor's own, which may be
sent back to it. Ids are not changed.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import cast

from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.core.fields import (
    NULL,
    Fields,
    expect_text,
    extra_of,
    is_object,
    is_present,
    present,
    read_bool,
    read_list,
    read_object,
    read_objects,
    read_text,
    source_text,
    without,
)
from dragoman.core.seals import seals_from_signature
from dragoman.dialects.messages.wire import (
    CACHE_CONTROL,
    DELTA_FIELDS,
    INVALID_KEY,
    MAPPED_FIELDS,
    RESULT_KINDS,
    RESULT_SUFFIX,
    SERVER_TOOL_KINDS,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TypedBlock,
)
from dragoman.errors import MalformedJson
from dragoman.model.parts import (
    Annotation,
    Breakpoint,
    Call,
    Extra,
    Media,
    MediaKind,
    Opaque,
    Part,
    Reasoning,
    Result,
    Seal,
    Text,
)


def type_of(block: Fields) -> str:
    return read_text(block.get("type")) or ""


_CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def check_block(block: Fields) -> None:
    """Raise MalformedJson for a block of a known type whose text, name or input has the wrong JSON type."""
    kind = expect_text(block.get("type"), "a block's type")
    if kind == "text":
        expect_text(block.get("text"), "the text of a block")
    if kind in _CALL_BLOCKS:
        expect_text(block.get("name"), "the name of a call")
        _check_input(block.get("input"), "the input of a call")


_BESIDE_CONTENT = frozenset({"type", "estimated_tokens"})
# The fields of a call: if one is dropped, the call has lost some of its input.
_CONTENTS = frozenset({"partial_json"})


def check_delta(delta: Fields) -> None:
    """Raise MalformedJson for a delta without a type, without its content, or whose text or input has the wrong JSON type."""
    kind = expect_text(delta.get("type"), "a delta's type")
    if kind is None:
        raise MalformedJson("expected a type in a delta, got none")
    field = DELTA_FIELDS.get(kind)
    # Servers that leave out empty strings send only the type. Other members in place of the content are what damage leaves.
    if field is not None and field not in delta and delta.keys() - _BESIDE_CONTENT:
        raise MalformedJson(f"expected {field} in a {kind}, got only {', '.join(delta)}"[:200])
    if field is None and not _CONTENTS.isdisjoint(delta):
        raise MalformedJson(f"expected a known type of a delta with content, got {kind[:40]!r}")
    if kind == "text_delta":
        expect_text(delta.get("text"), "text")
    if kind == "input_json_delta":
        _check_input(delta.get("partial_json"), "partial_json")


def _check_input(value: Raw | None, what: str) -> None:
    """Raise MalformedJson for tool input that is neither a string nor an object."""
    if value is not None and bytes(memoryview(value)[:1]) != b"{":
        expect_text(value, what)


def part_from_block(block: Fields, whole: Raw) -> Part:
    """Read a block. A call without an id or a name gets an empty one; the caller decides whether to accept it."""
    kind = type_of(block)
    reader = _READERS.get(kind)
    if reader is None and kind.endswith(RESULT_SUFFIX):
        reader = _server_result
    part = reader(block) if reader is not None else None
    return part or Opaque(dialect="messages", type=kind, raw=whole, text=_words(kind, block))


def _words(kind: str, block: Fields) -> str | None:
    """What a search result or a document made of texts says: title, place and texts; None for other blocks."""
    if kind == "search_result":
        content, heading = block.get("content"), ("title", "source")
    elif kind == "document":
        content, heading = read_object(block.get("source")).get("content"), ("title", "context")
    else:
        return None
    whole = read_text(content)
    texts = [read_text(each.get("text")) for each in read_objects(content)]
    said = [text for text in (whole, *texts) if text]
    if not said:
        return None
    about = [text for text in (read_text(block.get(name)) for name in heading) if text]
    return "\n\n".join((*(("\n".join(about),) if about else ()), *said))


def added_definition(block: Fields) -> Fields:
    """Return the definition in a `tool_addition`; empty if the block only refers to a tool."""
    return read_object(read_object(block.get("tool")).get("definition"))


def content_from_wire(content: Raw | None) -> tuple[Text | Media | Opaque, ...]:
    """Read the content of a result: a string, or blocks."""
    if content is None or not is_present(content):
        return ()
    text = read_text(content)
    if text is not None:
        return (Text(text=text),) if text else ()
    entries = read_list(content)
    if entries is None or not all(map(is_object, entries)):
        return (Opaque(dialect="messages", type="", raw=content),)
    parts: list[Text | Media | Opaque] = []
    for whole in entries:
        block = read_object(whole)
        part = part_from_block(block, whole)
        if not isinstance(part, (Text, Media, Opaque)):
            part = Opaque(dialect="messages", type=type_of(block), raw=whole)
        if isinstance(part, Opaque) and part.type == "tool_reference":
            part = _with_tool(part, block)
        parts.append(part)
    return tuple(parts)


def _with_tool(part: Opaque, block: Fields) -> Opaque:
    name = read_text(block.get("tool_name"))
    if not name:
        return part
    extra = extra_of("messages", _of_call(block), ("type", "tool_name"))
    return replace(part, tools=((None, name),), extra=extra)


def annotation_from_citation(citation: Raw) -> Annotation | None:
    """Read a citation, and keep it raw. Its offsets are not read: they point into the vendor's sources, not the answer."""
    if not is_object(citation):
        return None
    fields = read_object(citation)
    return Annotation(
        dialect="messages",
        raw=citation,
        url=read_text(fields.get("url")) or read_text(fields.get("source")),
        title=read_text(fields.get("title")) or read_text(fields.get("document_title")),
        quote=read_text(fields.get("cited_text")),
    )


def seals_from_redacted(data: str) -> tuple[Seal, ...]:
    """Read the seals of redacted thinking: the vendor's own, or those in this gateway's envelope."""
    seals = seals_from_signature(data)
    if seals == (Seal("signature", data),):
        return (Seal("redacted", data),)
    return seals


_REFERENCES = b'"tool_references"'
_INVALID_OPENING = b'{"%s":' % INVALID_KEY.encode()


def input_of(value: Raw | None) -> str:
    """Return a call's input as source text: the exact bytes of an object, or the text of a string.

    Empty if there is no input; whether that means `{}` depends on whether the call was closed. A text under `INVALID_KEY`,
    which is no JSON object, is returned unchanged.
    """
    if value is None or not is_present(value):
        return ""
    text = read_text(value)
    if text is None and bytes(value).startswith(_INVALID_OPENING):
        text = read_text(read_object(value).get(INVALID_KEY))
    return source_text(value) if text is None else text


def _text(block: Fields) -> Part | None:
    text = read_text(block.get("text"))
    if text is None and is_present(block.get("text")):
        return None
    citations = read_list(block.get("citations")) or ()
    found = [annotation_from_citation(citation) for citation in citations]
    return Text(
        text=text or "",
        annotations=tuple(each for each in found if each is not None),
        cache=_cache(block),
        extra=extra_of("messages", present(block), MAPPED_FIELDS["text"]),
    )


def _thinking(block: Fields) -> Part:
    thinking = read_text(block.get("thinking"))
    return Reasoning(
        summary=(thinking,) if thinking else (),
        seals=seals_from_signature(read_text(block.get("signature"))),
        extra=extra_of("messages", present(block), MAPPED_FIELDS["thinking_block"]),
    )


def _redacted(block: Fields) -> Part | None:
    data = read_text(block.get("data"))
    if not data:
        return None
    return Reasoning(
        seals=seals_from_redacted(data),
        extra=extra_of("messages", present(block), MAPPED_FIELDS["redacted_thinking"]),
    )


def _tool_use(block: Fields) -> Call:
    return Call(
        call_id=read_text(block.get("id")) or "",
        name=read_text(block.get("name")) or "",
        input=input_of(block.get("input")),
        cache=_cache(block),
        extra=extra_of("messages", _of_call(block), MAPPED_FIELDS["tool_use"]),
    )


def _of_call(block: Fields) -> Fields:
    """The fields of a call's block that are not null, without a `caller` that says what holds without it."""
    fields = present(block)
    if "caller" in fields and _is_direct(read_object(fields["caller"])):
        del fields["caller"]
    return fields


def _is_direct(caller: Fields) -> bool:
    return len(caller) == 1 and type_of(caller) == "direct"


def _server_tool_use(block: Fields) -> Part:
    call = _tool_use(block)
    kind = SERVER_TOOL_KINDS.get(call.name, "other")
    return replace(call, kind=kind, executor="provider", extra=_own(block, "server_tool_use"))


def _mcp_tool_use(block: Fields) -> Part:
    server = read_text(block.get("server_name")) or None
    extra = _own(block, "mcp_tool_use")
    return replace(_tool_use(block), kind="mcp", namespace=server, executor="provider", extra=extra)


def _tool_result(block: Fields) -> Result:
    return Result(
        call_id=read_text(block.get("tool_use_id")) or "",
        content=content_from_wire(block.get("content")),
        is_error=read_bool(block.get("is_error")) or False,
        cache=_cache(block),
        extra=extra_of("messages", present(block), MAPPED_FIELDS["tool_result"]),
    )


def _mcp_tool_result(block: Fields) -> Part:
    extra = _own(block, "mcp_tool_result")
    return replace(_tool_result(block), kind="mcp", executor="provider", extra=extra)


def _server_result(block: Fields) -> Part | None:
    """Read `<name>_tool_result`: the content belongs to the vendor's own tool and is kept raw."""
    kind = type_of(block)
    call_id = read_text(block.get("tool_use_id"))
    content = block.get("content")
    if call_id is None or content is None or not is_present(content):
        return None
    name = kind.removesuffix(RESULT_SUFFIX)
    return Result(
        call_id=call_id,
        content=(Opaque(dialect="messages", type=kind, raw=content, tools=_references(content)),),
        is_error=type_of(read_object(content)).endswith("_error"),
        kind=RESULT_KINDS.get(name, "other"),
        name=name,
        executor="provider",
        cache=_cache(block),
        extra=_own(block, "server_tool_result"),
    )


def _references(content: Raw) -> tuple[tuple[str | None, str], ...]:
    """Return the tools that the result of a search for tools names."""
    if _REFERENCES not in bytes(content):
        return ()
    found = read_objects(read_object(content).get("tool_references"))
    names = [read_text(each.get("tool_name")) for each in found]
    return tuple([(None, name) for name in names if name])


def _image(block: Fields) -> Part | None:
    return _media(block, "image", "image")


def _document(block: Fields) -> Part | None:
    return _media(block, "file", "document")


_SOURCE_FIELDS = frozenset({"type", "media_type", "data", "url", "file_id"})


def _media(block: Fields, kind: MediaKind, name: str) -> Part | None:
    if not is_object(block.get("source")):
        return None
    source = read_object(block.get("source"))
    media_type = read_text(source.get("media_type"))
    rest = without(present(block), MAPPED_FIELDS[name])
    data = url = file_id = None
    match type_of(source):
        case "base64":
            data = read_text(source.get("data"))
        case "url":
            url = read_text(source.get("url"))
        case "file":
            file_id = read_text(source.get("file_id"))
        case "text":
            # Only this dialect sends plain text as it is; in all others a file is base64.
            text = read_text(source.get("data"))
            data = None if text is None else b64encode(text.encode("utf-8", "replace")).decode()
            rest["source"] = block["source"]
        case _:
            pass
    if data is None and url is None and file_id is None:
        return None
    if without(present(source), _SOURCE_FIELDS):
        rest["source"] = block["source"]
    return Media(
        kind=kind,
        media_type=media_type,
        data=data,
        url=url,
        file_id=file_id,
        filename=read_text(block.get("title")) if kind == "file" else None,
        cache=_cache(block),
        extra=Extra("messages", rest) if rest else None,
    )


def _cache(block: Fields) -> Breakpoint | None:
    return CACHE_CONTROL.read(block.get("cache_control"))


def _own(block: Fields, name: str) -> Extra:
    return Extra("messages", without(_of_call(block), MAPPED_FIELDS[name]))


_READERS: Mapping[str, Callable[[Fields], Part | None]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "server_tool_use": _server_tool_use,
    "mcp_tool_use": _mcp_tool_use,
    "tool_result": _tool_result,
    "mcp_tool_result": _mcp_tool_result,
    "image": _image,
    "document": _document,
}


_decode_content = typed_decoder(cast("type[str | list[TypedBlock]]", str | list[TypedBlock]))


def read_content(content: Raw) -> tuple[Part, ...] | None:
    """Read a regular content list, or a string in its place; None if it must be read block by block."""
    try:
        found = _decode_content(content)
    except FAST_FAILURES:
        return None
    return (Text(text=found),) if isinstance(found, str) else tuple(map(part_of, found))


def part_of(block: TypedBlock) -> Part:
    match block:
        case TextBlock():
            return Text(text=block.text, cache=_typed_cache(block.cache_control))
        case ToolUseBlock():
            return Call(
                call_id=block.id,
                name=block.name,
                input=input_of(block.input),
                cache=_typed_cache(block.cache_control),
            )
        case ToolResultBlock():
            return Result(
                call_id=block.tool_use_id,
                content=(Text(text=block.content),) if block.content else (),
                is_error=bool(block.is_error),
                cache=_typed_cache(block.cache_control),
            )
        case ThinkingBlock():
            return Reasoning(
                summary=(block.thinking,) if block.thinking else (),
                seals=seals_from_signature(block.signature),
            )


def _typed_cache(value: Raw) -> Breakpoint | None:
    return None if value == NULL else CACHE_CONTROL.read(value)
