"""Requirements and tests are bound both ways. The last test says how many requirements nothing proves yet."""

import re

from requirements.manifest import MANIFEST, Line, bind, claims, claims_in, functions_in, lines

LINES = lines()


def wrong_with(name: str, line: Line) -> str | None:
    if not re.fullmatch(r"S\d{3}-\d{2}", name) or name[1:4] != line.source:
        return "its id does not begin with its source"
    if not line.statement.endswith(".") or not line.layer:
        return "it needs a layer and a sentence"
    if (line.later is None) == (line.status is None):
        return "it needs either `later` or `status`"
    if line.status not in (None, "open", "bound"):
        return "its status is neither open nor bound"
    if (line.status == "bound") != bool(line.tests):
        return "it is bound if, and only if, it lists tests"
    return None


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return (MANIFEST.parents[2] / path).is_file() and name in functions_in(path)


def test_every_line_is_well_formed() -> None:
    assert {name: wrong for name, line in LINES.items() if (wrong := wrong_with(name, line))} == {}


def test_lines_stand_in_order_and_without_gaps() -> None:
    names = list(LINES)
    assert names == sorted(names)
    for source in sorted({line.source for line in LINES.values()}):
        numbers = [int(name[-2:]) for name in names if name[1:4] == source]
        assert numbers == list(range(1, len(numbers) + 1))


def test_no_sentence_stands_twice() -> None:
    statements = [line.statement for line in LINES.values()]
    assert len(statements) == len(set(statements))


def test_every_listed_test_exists() -> None:
    assert [test for line in LINES.values() for test in line.tests if not exists(test)] == []


def test_every_claimed_requirement_is_listed_with_the_tests_that_claim_it() -> None:
    listed = {name: set(line.tests) for name, line in LINES.items() if line.tests}
    assert listed == claims(), (
        "after adding or moving marks: .venv/bin/python tests/requirements/manifest.py"
    )


def test_marks_are_found_on_test_functions_only() -> None:
    source = """
import pytest

@pytest.mark.requirement("S000-01", "S000-02")
@pytest.mark.parametrize("x", [1])
def test_one(x): ...

@pytest.mark.requirement("S000-01")
async def test_two(): ...

@pytest.mark.requirement("S000-03")
def not_a_test(): ...
"""
    assert list(claims_in(source)) == [
        ("S000-01", "test_one"),
        ("S000-02", "test_one"),
        ("S000-01", "test_two"),
    ]


def test_binding_writes_what_is_claimed_and_takes_back_what_is_not() -> None:
    text = (
        '[S000-01]\nsource = "000"\nstatus = "bound"\ntests = [\n    "tests/test_a.py::test_gone",\n]\n\n'
        '[S000-02]\nsource = "000"\nlater = "x"\n\n'
        '[S000-03]\nsource = "000"\nstatus = "open"\ntests = []\n'
    )
    bound = bind(text, {"S000-03": {"tests/test_b.py::test_two", "tests/test_a.py::test_one"}})
    assert bound == (
        '[S000-01]\nsource = "000"\nstatus = "open"\ntests = []\n\n'
        '[S000-02]\nsource = "000"\nlater = "x"\n\n'
        '[S000-03]\nsource = "000"\nstatus = "bound"\n'
        'tests = [\n    "tests/test_a.py::test_one",\n    "tests/test_b.py::test_two",\n]\n'
    )


def test_nothing_is_open() -> None:
    still_open = [name for name, line in LINES.items() if line.status == "open"]
    print(f"{len(still_open)} of {len(LINES)} requirements are open")
    assert still_open == []
