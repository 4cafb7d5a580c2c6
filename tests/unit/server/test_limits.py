"""Limits: tools, depth, values, headers, open streams; each with its own error."""

import json

import pytest

from dragoman.core.failures import error_info, status_of
from dragoman.errors import RequestRefused
from dragoman.model.request import Request, Tool
from dragoman.server.limits import (
    BodyTooLarge,
    HeadersTooLarge,
    StreamSlots,
    TooManyStreams,
    check_head,
    check_json,
    check_tools,
)


def check(body: bytes, *, max_depth: int = 256, max_values: int = 500_000) -> None:
    check_json(body, max_depth=max_depth, max_values=max_values)


def test_document_as_deep_as_allowed_passes_and_one_level_more_does_not() -> None:
    check(b"[" * 256 + b"]" * 256)
    with pytest.raises(
        RequestRefused, match=r"at most 256 deep .*; the request is at least 257 deep"
    ) as caught:
        check(b"[" * 257 + b"]" * 257)
    info = error_info(caught.value)
    assert (status_of(info), info.code) == (400, "too_deep")


def test_brackets_inside_strings_do_not_count() -> None:
    check(json.dumps({"text": "[{" * 1000 + '\\"[' * 1000}).encode(), max_depth=2)


def test_broad_document_passes() -> None:
    check(json.dumps([{"a": [n]} for n in range(1000)]).encode(), max_depth=3)


def test_as_many_values_as_allowed_pass_and_one_more_does_not() -> None:
    check(json.dumps(list(range(1000))).encode(), max_values=1002)
    with pytest.raises(BodyTooLarge, match=r"at most 1000 JSON values") as caught:
        check(json.dumps(list(range(1000))).encode(), max_values=1000)
    info = error_info(caught.value)
    assert (status_of(info), info.code) == (413, "too_many_values")


def test_commas_inside_strings_are_no_values() -> None:
    check(json.dumps(["," * 5000, "[" * 5000]).encode(), max_values=10)


def test_as_many_tools_as_allowed_pass_and_one_more_does_not() -> None:
    tools = tuple(Tool(name=f"t{number}") for number in range(3))
    check_tools(Request(tools=tools), 3)
    with pytest.raises(RequestRefused, match=r"at most 2 tools .*; the request offers 3") as caught:
        check_tools(Request(tools=tools), 2)
    assert (caught.value.param, caught.value.code) == ("tools", "too_many_tools")


def test_all_of_a_head_counts_and_above_the_limit_it_is_refused_with_status_431() -> None:
    line = b"POST /v1/messages HTTP/1.1\r\n"
    headers = [(b"host", b"x"), (b"x-long", b"y" * 100)]
    fields = b"".join(b"%b: %b\r\n" % field for field in headers)
    size = len(line + fields + b"\r\n")
    check_head(headers, size, len(line))
    with pytest.raises(
        HeadersTooLarge, match=rf"at most {size - 1} bytes .*; {size} came"
    ) as caught:
        check_head(headers, size - 1, len(line))
    info = error_info(caught.value)
    assert (status_of(info), info.code) == (431, "headers_too_large")


def test_one_stream_more_than_allowed_gets_a_retry_after() -> None:
    slots = StreamSlots(2)
    slots.acquire()
    slots.acquire()
    with pytest.raises(TooManyStreams, match="fewer than 2 requests") as caught:
        slots.acquire()
    info = error_info(caught.value)
    assert (info.kind, status_of(info), info.code) == ("rate_limit", 429, "too_many_streams")
    assert caught.value.headers == ((b"retry-after", b"1"),)
    slots.release()
    slots.acquire()
    assert slots.open == 2
