"""A call that the gateway ran, as an `mcp_call` item: written for the client, and read when the client sends it back."""

from msgspec import Struct

from dragoman._json import Raw, dumps
from dragoman.core.fields import read_object, read_objects, read_text
from dragoman.model.parts import Call, Extra, Media, Opaque, Result, Text

# Fields of a response object that repeat the request.
_ECHOED = ("tools", "tool_choice", "parallel_tool_calls", "instructions", "previous_response_id")


class ServerTool(Struct, frozen=True):
    """A tool of an MCP server."""

    server: str
    tool: str


def begin_mcp_call(tool: ServerTool, item_id: str) -> Call:
    """Return the item at the start of the call."""
    return Call(
        call_id=item_id,
        name=tool.tool,
        kind="mcp",
        executor="gateway",
        status="in_progress",
        item_id=item_id,
        extra=Extra("responses", {"server_label": Raw(dumps(tool.server))}),
    )


def end_mcp_call(item: Call, arguments: str, result: Result) -> Call:
    """Return the item with the result of the call."""
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


def mcp_tool(call: Call) -> ServerTool:
    """Return the tool that an item names."""
    fields = {} if call.extra is None else call.extra.fields
    return ServerTool(read_text(fields.get("server_label")) or "", call.name)


def mcp_result(call: Call, call_id: str) -> Result | None:
    """Return the result in an item; None if it has none."""
    fields = {} if call.extra is None else call.extra.fields
    output = read_text(fields.get("output"))
    if output is not None:
        return Result(call_id=call_id, content=(Text(text=output),), name=call.name)
    error = fields.get("error")
    if error is None or bytes(error).strip() == b"null":
        return None
    text = read_text(fields.get("error"))
    if text is None:
        entries = read_objects(read_object(error).get("content"))
        text = "\n".join(read_text(entry.get("text")) or "" for entry in entries)
        text = text or read_text(read_object(error).get("message")) or bytes(error).decode()
    return Result(call_id=call_id, content=(Text(text=text),), is_error=True, name=call.name)


def _words(part: Text | Media | Opaque) -> str:
    """Return the text of a part; media and opaque parts are named in brackets."""
    match part:
        case Text():
            return part.text
        case Media():
            return f"[{part.kind}{'' if part.media_type is None else f' {part.media_type}'}]"
        case Opaque():
            return f"[{part.type}]"


def mcp_arguments(text: str) -> Extra:
    """Return the field in which the event that ends the arguments repeats them."""
    return Extra("responses", {"arguments": Raw(dumps(text))})


def without_echo(extra: Extra | None) -> Extra | None:
    """Return the fields of a response object without those that repeat the request."""
    if extra is None or extra.dialect != "responses":
        return extra
    kept = {name: value for name, value in extra.fields.items() if name not in _ECHOED}
    return Extra("responses", kept)
