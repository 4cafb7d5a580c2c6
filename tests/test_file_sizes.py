"""How long files and functions may be. At the limit, split by idea."""

import ast
from pathlib import Path

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


def test_no_file_is_too_long() -> None:
    paths = python_files("src", "tests", "scripts", "bench", "examples")
    lines = {path: (PROJECT / path).read_text(encoding="utf-8").count("\n") for path in paths}
    assert len(lines) > 500
    assert {
        path: count
        for path, count in lines.items()
        if (limit := limit_of(path)) is not None and count > limit
    } == {}


def test_no_function_is_too_long() -> None:
    sources = {path: (PROJECT / path).read_text(encoding="utf-8") for path in python_files("src")}
    found = {path: long_functions(source) for path, source in sources.items()}
    assert len(found) > 200
    assert {path: functions for path, functions in found.items() if functions} == {}


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
