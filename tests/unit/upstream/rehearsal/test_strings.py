"""Texts made from regular expressions, tried against the real matcher."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.strings import (
    MAX_DEPTH,
    MAX_EXAMPLE,
    example,
    has_effects,
    is_harmless_word,
    is_path_name,
    needs_care,
    safe_argv,
    safe_text,
)


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


CHANGING = [
    "Write",
    "Edit",
    "NotebookEdit",
    "apply_patch",
    "deleteFile",
    "rm",
    "TodoWrite",
    "Agent",
]
RUNNING = ["Bash", "exec_command", "run_python", "shell", "write_stdin", "sql_query"]
LOOKING = ["Read", "Grep", "Glob", "get_weather", "view_image", "WebFetch", "search", "list_files"]


@pytest.mark.parametrize("name", CHANGING)
def test_tool_that_changes_things_is_known_by_its_name(name: str) -> None:
    assert has_effects(Tool(name=name))
    assert needs_care(Tool(name=name))


@pytest.mark.parametrize("name", RUNNING)
def test_tool_that_runs_things_needs_care(name: str) -> None:
    assert needs_care(Tool(name=name))


@pytest.mark.parametrize("name", LOOKING)
def test_tool_that_looks_does_not(name: str) -> None:
    assert not needs_care(Tool(name=name))


def test_patches_change_things_whatever_their_name() -> None:
    assert has_effects(Tool(name="p", kind="apply_patch"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cmd", "echo rehearsal"),
        ("command", "echo rehearsal"),
        ("commands", "echo rehearsal"),
        ("bashCommand", "echo rehearsal"),
        ("python_code_to_run", '"rehearsal"'),
        ("source_code", '"rehearsal"'),
        ("sql", "SELECT 1"),
        ("formula", "1 + 1"),
        ("country_code", None),
        ("zip_code", None),
        ("query", None),
        ("commander", None),
        ("city", None),
        ("", None),
    ],
)
def test_text_for_what_is_carried_out(name: str, text: str | None) -> None:
    assert safe_text(name, "tool") == text


def test_query_of_a_database_is_a_statement() -> None:
    assert safe_text("query", "postgres_query") == "SELECT 1"
    assert safe_text("query", "run_sql") == "SELECT 1"
    assert safe_text("query", "query") is None


def test_command_in_pieces() -> None:
    assert safe_argv("command") == ["echo", "rehearsal"]
    assert safe_argv("cities") == []


def test_words_of_a_choice_and_names_of_paths() -> None:
    assert is_harmless_word("read")
    assert is_harmless_word(3)
    assert not is_harmless_word("write_all")
    assert is_path_name("file_path")
    assert is_path_name("cwd")
    assert not is_path_name("profile")
