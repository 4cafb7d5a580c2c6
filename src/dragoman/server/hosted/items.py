"""A call that the gateway ran, as an `mcp_call` item of the Responses API has it: both ways. Pure."""

from msgspec import Struct

from dragoman._json import Raw, dumps
from dragoman.core.fields import read_items, read_object, read_text
from dragoman.model.parts import Call, Extra, Media, Opaque, Result, Text

__all__ = ("ITEM_PREFIX", "Label", "called_item", "ended_item", "is_ours", "label_of", "result_of")

ITEM_PREFIX = "mcp_dgm"
"""How the ids of items begin that are ours. The vendor's go on with digits."""


class Label(Struct, frozen=True):
    """Which tool of which server."""

    server: str
    tool: str


def called_item(label: Label, item_id: str) -> Call:
    """The item when the call begins."""
    return Call(
        call_id=item_id,
        name=label.tool,
        kind="mcp",
        executor="gateway",
        status="in_progress",
        item_id=item_id,
        extra=Extra("responses", {"server_label": Raw(dumps(label.server))}),
    )


def ended_item(item: Call, arguments: str, result: Result) -> Call:
    """The item with what came of the call."""
    fields = {} if item.extra is None else dict(item.extra.fields)
    text = "\n".join(_words(part) for part in result.content)
    if result.is_error:
        fields["error"] = Raw(
            dumps({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]})
        )
        fields["output"] = Raw(b"null")
    else:
        fields["output"] = Raw(dumps(text))
        fields["error"] = Raw(b"null")
    return Call(
        call_id=item.call_id,
        name=item.name,
        kind="mcp",
        executor="gateway",
        status="failed" if result.is_error else "completed",
        input=arguments,
        item_id=item.item_id,
        extra=Extra("responses", fields),
    )


def is_ours(call: Call, servers: frozenset[str]) -> bool:
    """Whether a gateway ran it: by its id or, where a client left that out, by its server's name."""
    if call.kind != "mcp" or call.executor == "client":
        return False
    if call.item_id is not None:
        return call.item_id.startswith(ITEM_PREFIX)
    return label_of(call).server in servers


def label_of(call: Call) -> Label:
    """Which tool an item says that it called."""
    fields = {} if call.extra is None else call.extra.fields
    return Label(read_text(fields, "server_label") or "", call.name)


def result_of(call: Call, call_id: str) -> Result | None:
    """What came of the call of an item; None: nothing did."""
    fields = {} if call.extra is None else call.extra.fields
    output = read_text(fields, "output")
    if output is not None:
        return Result(call_id=call_id, content=(Text(text=output),), name=call.name)
    error = fields.get("error")
    if error is None or bytes(error).strip() == b"null":
        return None
    told = read_text(fields, "error")
    if told is None:
        entries = read_items(read_object(error).get("content"))
        told = "\n".join(read_text(entry, "text") or "" for entry in entries)
        told = told or read_text(read_object(error), "message") or bytes(error).decode()
    return Result(call_id=call_id, content=(Text(text=told),), is_error=True, name=call.name)


def _words(part: Text | Media | Opaque) -> str:
    """An item's output is text: what is none is named."""
    match part:
        case Text():
            return part.text
        case Media():
            return f"[{part.kind}{'' if part.media_type is None else f' {part.media_type}'}]"
        case Opaque():
            return f"[{part.type}]"
