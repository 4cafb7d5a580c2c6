"""Matchers for calls written as text."""

from collections.abc import Iterator
from typing import cast

import pytest

from dragoman.errors import ConfigError
from dragoman.toolcalls.textpatterns import (
    TEXT_PATTERNS,
    TextCall,
    TextMatcher,
    TextPatterns,
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


def test_shared_registry_can_be_filled_and_emptied() -> None:
    take_out = register_text_pattern("test", lambda text: [FIRST])
    assert TEXT_PATTERNS.find("x")[0] == (FIRST,)
    take_out()
    assert TEXT_PATTERNS.find("x")[0] == ()
