"""Content blocks as nearly all are, read by their types alone: text, thinking, calls of the client's tools, their results.

A list with any other block, or with a field that has no home, does not fit and is read block by block (`blocks`). Where
both can read a list they say the same.
"""

from typing import cast

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.core.seals import seals_from_signature
from dragoman.dialects.messages.blocks import input_of
from dragoman.model.parts import Call, Part, Reasoning, Result, Text

__all__ = ("PlainBlock", "part_of", "read_content")


_NULL = Raw(b"null")  # beside `Raw` a type cannot have `None`: it would take null alone


class _Block(Struct, gc=False, forbid_unknown_fields=True, tag_field="type"):
    pass


class _Text(_Block, tag="text"):
    text: str
    cache_control: Raw = _NULL
    citations: tuple[()] | None = None


class _Thinking(_Block, tag="thinking"):
    thinking: str
    signature: str | None = None


class _ToolUse(_Block, tag="tool_use"):
    id: str
    name: str
    input: Raw
    cache_control: Raw = _NULL


class _ToolResult(_Block, tag="tool_result"):
    tool_use_id: str
    content: str
    is_error: bool | None = None
    cache_control: Raw = _NULL


PlainBlock = _Text | _Thinking | _ToolUse | _ToolResult
_decode_content = typed_decoder(cast("type[str | list[PlainBlock]]", str | list[PlainBlock]))


def read_content(content: Raw) -> tuple[Part, ...] | None:
    """The parts of a content list, or of a string that stands for one; None if a closer look is needed."""
    try:
        found = _decode_content(content)
    except FAST_FAILURES:
        return None
    return (Text(text=found),) if isinstance(found, str) else tuple(map(part_of, found))


def part_of(block: PlainBlock) -> Part:
    match block:
        case _Text():
            return Text(text=block.text, cache=_cache(block.cache_control))
        case _ToolUse():
            return Call(
                call_id=block.id,
                name=block.name,
                input=input_of(block.input),
                cache=_cache(block.cache_control),
            )
        case _ToolResult():
            return Result(
                call_id=block.tool_use_id,
                content=(Text(text=block.content),),
                is_error=bool(block.is_error),
                cache=_cache(block.cache_control),
            )
        case _Thinking():
            return Reasoning(
                summary=(block.thinking,) if block.thinking else (),
                seals=seals_from_signature(block.signature),
            )


def _cache(value: Raw) -> Raw | None:
    return None if value == _NULL else value
