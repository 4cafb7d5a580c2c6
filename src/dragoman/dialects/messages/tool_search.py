"""The vendor's own search for deferred tools, where the gateway searches in the vendor's place.

The vendor answers a search inside its answer, with a `server_tool_use` and a `tool_search_tool_result` block. Clients send both back.
"""

from collections.abc import Sequence

from dragoman._json import Raw, dumps
from dragoman.model.parts import Call, Extra, Opaque, Part, Result
from dragoman.model.request import Tool

MAX_PATTERN = 200
"""Characters of a pattern. The vendor's limit."""

_ID_PREFIX = "srvtoolu_"
_PATTERNS = "tool_search_tool_regex"
_RESULT = "tool_search"
_OWN = Extra("messages", {})


def takes_patterns(tool: Tool) -> bool:
    """Whether a search of this vendor takes a regular expression; the other takes words."""
    return tool.variant is not None and tool.variant.startswith(_PATTERNS)


def search_blocks(
    call: Call, call_id: str, names: Sequence[str], error: str | None = None
) -> tuple[Part, ...]:
    """Return the parts of a search and its result. `error`: one of the vendor's codes, if the search failed."""
    own_id = _ID_PREFIX + call_id
    content: dict[str, object]
    if error is None:
        references = [{"type": "tool_reference", "tool_name": name} for name in names]
        content = {"type": "tool_search_tool_search_result", "tool_references": references}
    else:
        content = {"type": "tool_search_tool_result_error", "error_code": error}
    return (
        Call(
            call_id=own_id,
            name=call.name,
            input=call.input,
            kind="tool_search",
            executor="gateway",
            extra=_OWN,
        ),
        Result(
            call_id=own_id,
            content=(
                Opaque(dialect="messages", type=f"{_RESULT}_tool_result", raw=Raw(dumps(content))),
            ),
            is_error=error is not None,
            kind="tool_search",
            name=_RESULT,
            executor="gateway",
            extra=_OWN,
        ),
    )


def searched_id(call: Call) -> str:
    """Return the id under which the model knows a search that a client sends back."""
    return call.call_id.removeprefix(_ID_PREFIX)
