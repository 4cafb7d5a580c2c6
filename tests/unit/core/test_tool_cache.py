"""Tools that were read before: the same bytes are looked at once, and what was made of them is made once."""

import pytest

from dragoman._json import Raw
from dragoman.core.tool_cache import (
    MAX_KEY,
    MAX_LISTS,
    MAX_MADE,
    MAX_SOURCE,
    CachedTools,
    made_of,
    remembered,
)
from dragoman.errors import RequestRefused
from dragoman.model.request import Tool

TOOLS = (Tool(name="a"), Tool(name="b"))


def test_the_same_bytes_are_read_once() -> None:
    sources: list[bytes] = []

    @remembered
    def read(value: Raw) -> CachedTools:
        sources.append(bytes(value))
        return CachedTools(TOOLS)

    body = Raw(b"[1]")
    assert read(body) is read(Raw(b"[1]"))
    assert read(Raw(b"[2]")) is not read(body)
    assert sources == [b"[1]", b"[2]"]


def test_what_is_refused_is_refused_each_time() -> None:
    @remembered
    def read(_value: Raw) -> CachedTools:
        raise RequestRefused("tools[0]: expected an object", param="tools[0]")

    for _ in range(2):
        with pytest.raises(RequestRefused):
            read(Raw(b"[1]"))


def test_long_lists_are_read_each_time_and_only_the_last_lists_are_kept() -> None:
    @remembered
    def read(_value: Raw) -> CachedTools:
        return CachedTools(TOOLS)

    long = Raw(b'"' + b"x" * MAX_SOURCE + b'"')
    assert read(long) is not read(long)
    first = read(Raw(b"-1"))
    for number in range(MAX_LISTS):
        read(Raw(str(number).encode()))
    assert read(Raw(b"-1")) is not first


def test_kept_tools_equal_plain_ones() -> None:
    assert CachedTools(TOOLS) == TOOLS
    assert CachedTools() == ()


def test_a_thing_is_made_once_for_each_key() -> None:
    kept = CachedTools(TOOLS)
    made = [made_of(kept, key, lambda: ["new"]) for key in ("one", "two", "one")]
    assert made[0] is made[2]
    assert made[0] is not made[1]


def test_of_plain_tools_a_thing_is_made_each_time() -> None:
    made = [made_of(TOOLS, "key", lambda: ["new"]) for _ in range(2)]
    assert made[0] is not made[1]


def test_keys_that_never_repeat_do_not_fill_the_memory() -> None:
    kept = CachedTools(TOOLS)
    for number in range(3 * MAX_MADE):
        made_of(kept, number, lambda: None)
    assert len(kept.made) <= MAX_MADE


def test_a_value_whose_key_has_long_names_of_the_client_is_not_kept() -> None:
    kept = CachedTools(TOOLS)
    long = ("names", frozenset({(None, "a" * MAX_KEY)}))
    made = [made_of(kept, long, lambda: ["new"]) for _ in range(2)]
    assert made[0] is not made[1]
    many = ("names", tuple((None, str(number)) for number in range(MAX_KEY // 2)))
    made_of(kept, many, lambda: None)
    assert not kept.made
