"""The provider's own search for deferred tools, where the gateway searches in the provider's place.

The provider answers a search inside its answer, with a `tool_search_call` and a `tool_search_output` item. Neither has a call id.
"""

from collections.abc import Sequence

from dragoman._json import Raw, dumps
from dragoman.dialects.responses.tools import define_tools
from dragoman.model.parts import Call, Extra, Opaque, Part, Result
from dragoman.model.request import Namespace, Tool

_CALL_PREFIX = "tsc_"
_OUTPUT_PREFIX = "tso_"
_OWN = Extra("responses", {"call_id": Raw(b"null"), "execution": Raw(b'"server"')})


def search_items(
    call: Call, call_id: str, tools: Sequence[Tool], namespaces: Sequence[Namespace]
) -> tuple[Part, ...]:
    """Return the parts of a search and its result. A search that failed has found no tools: the output has no error."""
    return (
        Call(
            call_id=_CALL_PREFIX + call_id,
            name="tool_search",
            input=call.input,
            kind="tool_search",
            executor="gateway",
            item_id=_CALL_PREFIX + call_id,
            extra=_OWN,
        ),
        Result(
            call_id=_CALL_PREFIX + call_id,
            content=tuple(
                [
                    Opaque(dialect="responses", type="function", raw=Raw(dumps(each)))
                    for each in define_tools(tools, namespaces)
                ]
            ),
            kind="tool_search",
            executor="gateway",
            item_id=_OUTPUT_PREFIX + call_id,
            extra=_OWN,
        ),
    )


def searched_id(call: Call) -> str:
    """Return the id under which the model knows a search that a client sends back."""
    return call.call_id.removeprefix(_CALL_PREFIX)
