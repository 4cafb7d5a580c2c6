"""What is taken for harmful, and what is given instead."""

import pytest

from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.harmless import (
    has_effects,
    is_harmless_word,
    is_path_name,
    needs_care,
    safe_argv,
    safe_text,
)

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
