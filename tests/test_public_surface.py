"""What a user may import, and what importing it costs.

`public_surface.txt` holds the public names, one a line. After a deliberate change of them, write it anew with

    .venv/bin/python tests/test_public_surface.py

and say in CHANGELOG.md what a user sees of it.
"""

import ast
import importlib
import inspect
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec
import pytest

import dragoman
from import_rules import ROOT, modules

GOLDEN = Path(__file__).parent / "public_surface.txt"


# Modules that the documentation lets users import.
PUBLIC_MODULES = (
    "",
    "agent",
    "config.check",
    "config.mcp",
    "config.read",
    "config.settings",
    "engine.builtin",
    "engine.events",
    "engine.mcp.host",
    "engine.mcp.servers",
    "engine.run",
    "engine.settings",
    "obsidian",
    "server.app",
    "testing",
    "textcalls",
    "toolcalls",
)


def listing_modules() -> list[str]:
    """The public modules, and every other that says by `__all__` what it exports."""
    found = {
        name
        for name, path in modules().items()
        if any(
            isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
            for node in ast.parse(path.read_text(encoding="utf-8")).body
        )
    }
    return sorted(found | set(PUBLIC_MODULES))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"dragoman.{name}" if name else "dragoman")


def exported(module: ModuleType) -> list[str]:
    names: object = getattr(module, "__all__", None)
    assert isinstance(names, tuple), f"expected {module.__name__} to have a tuple __all__"
    return [str(name) for name in cast("tuple[object, ...]", names)]


def sort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as the linter sorts them."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def assigned_docstrings() -> set[str]:
    """Names bound at the top of a module whose assignment is followed by a string that says what they are."""
    found: set[str] = set()
    for path in modules().values():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in pairwise(body):
            match node, after:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str())),
                ):
                    found.add(name)
                case _:
                    pass
    return found


@pytest.mark.parametrize("name", listing_modules(), ids=lambda name: name or "dragoman")
def test_all_is_a_sorted_tuple_of_names_that_exist(name: str) -> None:
    module = load(name)
    names = exported(module)
    assert [item for item in names if not hasattr(module, item)] == []
    assert names == sorted(set(names), key=sort_key)


def test_public_names_are_the_recorded_ones() -> None:
    recorded = GOLDEN.read_text(encoding="utf-8").split()
    assert exported(dragoman) == recorded, f"after a deliberate change: {__doc__}"


@pytest.mark.parametrize("name", exported(dragoman))
def test_public_name_has_a_docstring(name: str) -> None:
    value: object = getattr(dragoman, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        assert own, f"{name} has no docstring of its own"
    else:
        assert name in assigned_docstrings(), (
            f"no string below the assignment of {name} says what it is"
        )


IMPORT_ALONE = """
import sys
from importlib.abc import MetaPathFinder

class OnlyMsgspec(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "dragoman", "msgspec"}:
            raise ImportError(f"dragoman must not need {name}")

sys.meta_path.insert(0, OnlyMsgspec())
sys.path[:0] = sys.argv[1:]
import dragoman
for name in dragoman.__all__:
    getattr(dragoman, name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported_by_dragoman() -> set[str]:
    """The top-level modules in memory after `import dragoman` in a bare interpreter."""
    places = [str(ROOT.parent), str(Path(msgspec.__file__).parents[1])]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALONE, *places],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_needs_msgspec_only() -> None:
    third_party = imported_by_dragoman() - sys.stdlib_module_names - {"__main__", "_distutils_hack"}
    assert third_party <= {"dragoman", "msgspec"}


def test_importing_starts_no_event_loop_and_no_terminal_library() -> None:
    assert not imported_by_dragoman() & {"asyncio", "rich", "socket", "logging", "http"}


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{name}\n" for name in exported(dragoman)), encoding="utf-8")
