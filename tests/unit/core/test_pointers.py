"""Local references into a document."""

import pytest

from dragoman.core.pointers import resolve

DOCUMENT = {"$defs": {"a/b": {"x": 1}, "~": 2, "list": [10, {"y": 3}]}, "": 4}


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("#", DOCUMENT),
        ("#/$defs/a~1b/x", 1),
        ("#/%24defs/~0", 2),
        ("#/$defs/list/0", 10),
        ("#/$defs/list/1/y", 3),
        ("#/", 4),
    ],
)
def test_a_local_reference_is_followed(reference: str, value: object) -> None:
    assert resolve(DOCUMENT, reference) == value


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "other.json#/x",
        "#anchor",
        "#/nothing",
        "#/$defs/list/2",
        "#/$defs/list/-1",
        "#/$defs/list/99999999999999999999",
        "#/$defs/list/x",
        "#/$defs/~0/deeper",
    ],
)
def test_a_reference_to_nothing_here_gives_none(reference: str) -> None:
    assert resolve(DOCUMENT, reference) is None
