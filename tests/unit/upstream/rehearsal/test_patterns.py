"""Texts made from regular expressions, tried against the real matcher."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.upstream.rehearsal.patterns import MAX_DEPTH, MAX_EXAMPLE, example


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "abc",
        "^abc$",
        "^[A-Z]{3}-\\d{2}$",
        "^[a-z0-9_-]+$",
        "^(foo|bar)(?:baz)?$",
        "^(?P<year>\\d{4})-(?<!x)?",
        "^(?P<year>\\d{4})$",
        "^(?<year>\\d{4})$",
        "^\\w+@\\w+\\.com$",
        "^[^a-z]+$",
        "^[^abc]$",
        "^[]a]$",
        "^[\\w.-]{2,5}$",
        "^[\\d]{2}[\\-x]$",
        "^a{2,}$",
        "^a{,3}b$",
        "^.*$",
        "^.+?x??$",
        "^\\s\\S\\D\\W$",
        "^\\n\\t\\.\\/$",
        "\\bword\\b",
        "a|b|c*",
        "^x{a}$",
        "^(a(b(c)))+$",
        "^[+-]?\\d+(\\.\\d+)?$",
        "^#[0-9a-fA-F]{6}$",
        "^[\\]\\\\]$",
    ],
)
def test_text_matches_its_pattern(pattern: str) -> None:
    text = example(pattern)
    if text is None:
        assert "(?<!" in pattern
    elif "(?<year" in pattern:
        assert re.search(pattern.replace("?<", "?P<"), text)
    else:
        assert re.search(pattern, text), text


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)a",
        "(?!a)b",
        "(?i)a",
        "(?P=name)",
        "(?P<name",
        "(a",
        "a)",
        "[a",
        "[",
        "*a",
        "a**",
        "\\",
        "(a)\\1",
        "\\p{L}",
        "\\u0041",
        "[z-a]",
        "[a-\\d]",
        "a{9999999}",
        "a{}",
        f"a{{{MAX_EXAMPLE + 1}}}",
        "(" * (MAX_DEPTH + 2) + ")" * (MAX_DEPTH + 2),
    ],
)
def test_pattern_that_is_not_understood_gives_none(pattern: str) -> None:
    text = example(pattern)
    assert text is None or (pattern == "a{}" and text == "a{}")


def test_text_is_as_long_as_it_must_be_if_the_pattern_lets_it() -> None:
    assert example("^a+$", 5) == "a" * 6
    assert example("^x[ab]*-(cd)+$", 8) == "xaaaaaaaaa-cd"
    assert example("^ab$", 5) == "ab"
    assert example("^(?:a|b+)$", 3) == "a"


def test_class_of_nothing_printable_gives_nothing() -> None:
    assert example("[^\\x]") is None
    assert example("[^ -~]") == ""


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(((a*)*)*)*c"])
def test_patterns_that_choke_a_matcher_do_not_choke_this(pattern: str) -> None:
    assert example(pattern, 200) is not None


@given(st.text(alphabet="ab[]()|*+?{}0123,^$\\-.dw", max_size=20))
def test_any_pattern_ends(pattern: str) -> None:
    text = example(pattern, 10)
    assert text is None or len(text) <= MAX_EXAMPLE
