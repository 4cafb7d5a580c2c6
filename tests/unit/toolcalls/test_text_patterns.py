"""Matchers for calls written as text."""

from collections.abc import Iterator
from typing import cast

import pytest

import dragoman
from dragoman import textcalls, toolcalls
from dragoman.dialects.codec import DecodeContext
from dragoman.errors import ConfigError
from dragoman.model.request import Tool
from dragoman.textcalls import JsonBody, TextPattern
from dragoman.toolcalls import (
    TEXT_PATTERNS,
    TextCall,
    TextMatcher,
    TextPatterns,
    ToolCallAggregator,
    register_text_pattern,
)

FIRST = TextCall("f", "{}", 0, 5)
SECOND = TextCall("g", "{}", 10, 15)


def broken(text: str) -> Iterator[TextCall]:
    yield FIRST
    raise ValueError(text)


def odd(text: str) -> list[tuple[str, str]]:
    return [("f", text)]


def test_empty_registry_finds_nothing() -> None:
    assert TextPatterns().find("anything") == ((), ())


def test_calls_come_by_position_whatever_matcher_found_them() -> None:
    patterns = TextPatterns()
    patterns.register("b", lambda text: [SECOND])
    patterns.register("a", lambda text: [FIRST])
    assert patterns.find("x") == ((FIRST, SECOND), ())


def test_overlapping_calls_are_one() -> None:
    inner = TextCall("inner", "{}", 2, 4)
    same = TextCall("same", "{}", 0, 9)
    patterns = TextPatterns()
    patterns.register("a", lambda text: [FIRST])
    patterns.register("b", lambda text: [inner, same, SECOND])
    assert patterns.find("x")[0] == (FIRST, SECOND)


def test_matcher_that_raises_is_reported_and_the_others_go_on() -> None:
    patterns = TextPatterns()
    patterns.register("broken", broken)
    patterns.register("works", lambda text: [SECOND])
    calls, troubles = patterns.find("secret")
    assert calls == (SECOND,)
    assert troubles == ("text pattern 'broken' raised ValueError",)


def test_matcher_that_gives_something_else_is_reported() -> None:
    patterns = TextPatterns()
    patterns.register("odd", cast("TextMatcher", odd))
    assert patterns.find("x") == ((), ("text pattern 'odd' raised ConfigError",))


def test_name_registered_again_is_replaced() -> None:
    patterns = TextPatterns()
    take_out_first = patterns.register("a", lambda text: [FIRST])
    take_out_second = patterns.register("a", lambda text: [SECOND])
    take_out_first()
    assert patterns.find("x")[0] == (SECOND,)
    take_out_second()
    take_out_second()
    assert patterns.find("x")[0] == ()


@pytest.mark.parametrize(("name", "matcher"), [(" ", broken), ("a", "no function")])
def test_unusable_pattern_is_refused(name: str, matcher: object) -> None:
    with pytest.raises(ConfigError):
        TextPatterns().register(name, cast("TextMatcher", matcher))


def test_refused_matcher_leaves_the_pattern_of_its_name() -> None:
    patterns = TextPatterns()
    pattern = TextPattern(name="a", openers=("@@",), body=JsonBody())
    patterns.register(pattern)
    with pytest.raises(ConfigError):
        patterns.register("a", cast("TextMatcher", None))
    assert patterns.snapshot() == (pattern,)


def test_shared_registry_can_be_filled_and_emptied() -> None:
    take_out = register_text_pattern("test", lambda text: [FIRST])
    assert TEXT_PATTERNS.find("x")[0] == (FIRST,)
    take_out()
    assert TEXT_PATTERNS.find("x")[0] == ()


USE_TOOL = "Well.\n<use_tool>\n<name>look</name>\n<a>x</a>\n</use_tool>"
MINE = TextPattern(name="mine", openers=("@@call ",), body=JsonBody(), closers=("@@",))


def names_in(text: str, aggregator: ToolCallAggregator) -> list[str]:
    message = {"role": "assistant", "content": text}
    aggregator.ingest_message(message, emit_if_missing=True)
    return [record.name for record in aggregator.snapshot()]


def test_there_is_one_registry_under_all_names() -> None:
    assert toolcalls.register_text_pattern is textcalls.register_text_pattern
    assert dragoman.register_text_pattern is textcalls.register_text_pattern
    assert toolcalls.TEXT_PATTERNS is textcalls.PATTERNS


def test_aggregator_finds_the_formats_that_scanners_find() -> None:
    assert names_in(USE_TOOL, ToolCallAggregator()) == ["look"]
    assert names_in(USE_TOOL, ToolCallAggregator(text_patterns=TextPatterns())) == []


def test_aggregator_that_knows_the_tools_finds_only_calls_of_them() -> None:
    for name, expected in (("look", ["look"]), ("other", [])):
        context = DecodeContext(tools=(Tool(name=name),))
        assert names_in(USE_TOOL, ToolCallAggregator(context)) == expected


def test_registered_pattern_serves_scanners_and_aggregators() -> None:
    text = '@@call {"name": "f", "arguments": {}}@@'
    take_out = register_text_pattern(MINE)
    try:
        assert names_in(text, ToolCallAggregator()) == ["f"]
        assert [call.name for call in textcalls.scan_text(text, ["f"]).calls] == ["f"]
    finally:
        take_out()
    assert names_in(text, ToolCallAggregator()) == []


def test_matcher_and_pattern_of_one_name_replace_one_another() -> None:
    patterns = TextPatterns((MINE,))
    patterns.register("mine", lambda text: [FIRST])
    assert patterns.snapshot() == ()
    assert patterns.find("@@call")[0] == (FIRST,)
    patterns.register(MINE)
    assert patterns.snapshot() == (MINE,)
    assert patterns.find("@@call")[0] == ()


def test_matcher_comes_before_a_pattern_that_finds_a_call_at_the_same_place() -> None:
    patterns = TextPatterns((MINE,))
    patterns.register("other", lambda text: [TextCall("mine", "{}", 0, 5)])
    found = patterns.find('@@call {"name": "f", "arguments": {}}@@')[0]
    assert [call.name for call in found] == ["mine"]
