"""The body of `submit_tool_outputs`: the results of the calls that a response waits for.

    {"tool_outputs": [{"tool_call_id": "call_…", "output": "…"}, …], "stream": true}

`call_id` is taken for `tool_call_id`. An output is a string, a list of content parts, or any other JSON, which the model
gets as it is written. `"is_error": true`, or `error` in place of `output`, marks a tool that failed.
"""

from collections.abc import Iterable, Mapping
from typing import Never

from msgspec.structs import replace

from dragoman._json import as_object
from dragoman.dialects.responses.expect import expect_bool, expect_list, expect_object, refuse
from dragoman.dialects.responses.fields import Fields, is_present, read_text
from dragoman.dialects.responses.results import read_result
from dragoman.dialects.responses.wire import RESULT_OF_KIND
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.parts import Call, Extra, Result
from dragoman.model.request import Request, Turn

__all__ = ("read_submitted",)

_FIELDS = ("tool_outputs", "stream")


def read_submitted(body: bytes, calls: Iterable[Call]) -> Request:
    """The results as turns of a request that says nothing else. `calls`: those that the response waits for.

    Raises:
        RequestRefused: it is no such body; or a call is unknown, answered twice or not at all, and is named.
    """
    try:
        fields = as_object(body)
    except MalformedJson as error:
        raise RequestRefused(f"body: {error.message}") from error
    for name in fields:
        if name not in _FIELDS:
            _refuse(name, f"expected no field but {' and '.join(_FIELDS)}, got {name!r}")
    waiting = {call.call_id: call for call in calls}
    results: dict[str, Result] = {}
    for number, entry in enumerate(expect_list(fields.get("tool_outputs"), "tool_outputs")):
        where = f"tool_outputs[{number}]"
        result = _result(expect_object(entry, where), where, waiting)
        if result.call_id in results:
            _refuse(
                f"{where}.tool_call_id",
                f"expected one output for each call, got a second for {result.call_id!r}",
            )
        results[result.call_id] = result
    missing = [call_id for call_id in waiting if call_id not in results]
    if missing:
        _refuse(
            "tool_outputs", f"expected an output for every call, got none for {', '.join(missing)}"
        )
    return Request(
        turns=tuple(Turn(role="tool", parts=(result,)) for result in results.values()),
        stream=expect_bool(fields, "stream") is True,
        extra=Extra("responses", {}),
    )


def _result(fields: Fields, where: str, waiting: Mapping[str, Call]) -> Result:
    call_id = read_text(fields, "tool_call_id") or read_text(fields, "call_id")
    if not call_id:
        refuse(f"{where}.tool_call_id", "the id of a call", fields.get("tool_call_id"))
    call = waiting.get(call_id)
    if call is None:
        known = ", ".join(waiting) or "none"
        _refuse(
            f"{where}.tool_call_id",
            f"expected a call that the response waits for ({known}), got {call_id!r}",
        )
    has_failed = "output" not in fields and "error" in fields
    output = fields.get("error" if has_failed else "output")
    if output is None or (has_failed and not is_present(output)):
        refuse(f"{where}.output", "what the tool gave back", output)
    spec = RESULT_OF_KIND.get(call.kind) or RESULT_OF_KIND["function"]
    result = read_result(spec, {spec.field: output}, "client")
    return replace(
        result,
        call_id=call_id,
        is_error=has_failed or result.is_error or expect_bool(fields, "is_error", where) is True,
    )


def _refuse(where: str, message: str) -> Never:
    raise RequestRefused(f"{where}: {message}", param=where)
