"""How long files and functions may be. At the limit, split by idea."""

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
SOURCE_LINES = 800
TEST_LINES = 800
EXAMPLE_LINES = 80
FUNCTION_LINES = 60


def limit_of(path: str) -> int | None:
    """The most lines a Python file may have; None for `wire.py`, which only copies a vendor's spellings."""
    if path.startswith("src/"):
        return None if path.endswith("/wire.py") else SOURCE_LINES
    return EXAMPLE_LINES if path.startswith("examples/") else TEST_LINES


def long_functions(source: str) -> list[str]:
    return [
        f"{node.name} (line {node.lineno}): {lines} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]


def python_files(*folders: str) -> list[str]:
    found = (path for folder in folders for path in (PROJECT / folder).rglob("*.py"))
    return sorted(path.relative_to(PROJECT).as_posix() for path in found)


@pytest.mark.parametrize("path", python_files("src", "tests", "scripts", "bench", "examples"))
def test_file_is_not_too_long(path: str) -> None:
    lines = len((PROJECT / path).read_text(encoding="utf-8").splitlines())
    limit = limit_of(path)
    assert limit is None or lines <= limit


@pytest.mark.parametrize("path", python_files("src"))
def test_functions_are_not_too_long(path: str) -> None:
    assert long_functions((PROJECT / path).read_text(encoding="utf-8")) == []


def test_each_kind_of_file_has_its_limit() -> None:
    assert limit_of("src/dragoman/core/fold.py") == SOURCE_LINES
    assert limit_of("src/dragoman/dialects/chat/wire.py") is None
    assert limit_of("src/dragoman/wired.py") == SOURCE_LINES
    assert limit_of("tests/unit/test_wire.py") == TEST_LINES
    assert limit_of("examples/inspect_stream.py") == EXAMPLE_LINES


def test_long_function_is_found_wherever_it_stands() -> None:
    body = "        x = 1\n" * FUNCTION_LINES
    assert long_functions(f"class A:\n    async def method(self):\n{body}") == [
        "method (line 2): 61 lines"
    ]
    assert long_functions(f"def outer():\n    def inner():\n{body}    return inner") == [
        "outer (line 1): 63 lines",
        "inner (line 2): 61 lines",
    ]
    assert long_functions("def short():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)) == []
