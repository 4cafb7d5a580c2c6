"""The requirements and the tests that claim them, both read without running a test.

Run as a program it writes the claims it finds into `manifest.toml`, so that a mark on a test is all there is to add.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

__all__ = ("Line", "bind", "claims", "claims_in", "functions_in", "lines")

TESTS = Path(__file__).parents[1]
MANIFEST = Path(__file__).parent / "manifest.toml"


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """One requirement. `tests` are node ids; `later` names the piece of work a line waits for."""

    source: str
    layer: str
    statement: str
    decided: str | None = None
    later: str | None = None
    status: str | None = None
    tests: tuple[str, ...] = ()


def lines() -> dict[str, Line]:
    values = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))
    return {name: convert(value, Line) for name, value in values.items()}


@cache
def functions_in(path: str) -> set[str]:
    """The test functions of a file."""
    tree = ast.parse((TESTS.parent / path).read_text(encoding="utf-8"))
    return {node.name for node in _tests(tree)}


def claims() -> dict[str, set[str]]:
    """Which tests claim which requirement: id to node ids, over the whole test tree."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        name = path.relative_to(TESTS.parent).as_posix()
        source = path.read_text(encoding="utf-8")
        if "mark.requirement(" not in source:
            continue  # parsing every file takes two seconds
        for requirement, test in claims_in(source):
            found.setdefault(requirement, set()).add(f"{name}::{test}")
    return found


def claims_in(source: str) -> Iterator[tuple[str, str]]:
    """(requirement, test function) for every mark `pytest.mark.requirement(...)` in a file."""
    for test in _tests(ast.parse(source)):
        for decorator in test.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(attr="requirement"), args=arguments):
                    for argument in arguments:
                        yield ast.literal_eval(argument), test.name
                case _:
                    pass


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node


def bind(text: str, found: dict[str, set[str]]) -> str:
    """The manifest's text with the status and the tests of every line as the claims have them."""
    block = re.compile(
        r'^\[(S\d{3}-\d{2})\]$((?:(?!^\[).)*?)^status = "\w+"\ntests = \[.*?\]$',
        re.MULTILINE | re.DOTALL,
    )

    def rewrite(match: re.Match[str]) -> str:
        name, between = match.groups()
        tests = sorted(found.get(name, ()))
        status = "bound" if tests else "open"
        listed = "".join(f'\n    "{test}",' for test in tests) + ("\n" if tests else "")
        return f'[{name}]{between}status = "{status}"\ntests = [{listed}]'

    return block.sub(rewrite, text)


def main() -> None:
    bound = bind(MANIFEST.read_text(encoding="utf-8"), claims())
    MANIFEST.write_text(bound, encoding="utf-8")
    still_open = sorted(name for name, line in lines().items() if line.status == "open")
    print(f"{len(still_open)} open", *still_open)


if __name__ == "__main__":
    main()
