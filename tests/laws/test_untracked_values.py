"""No value that the garbage collector does not track can be part of a reference cycle, which would then never be freed.

A `msgspec.Struct` with `gc=False` may hold numbers, texts, tuples, lists, dictionaries and other such structs: data, built from the
inside out. A function, a method or an object of any other class may lead back to the struct.
"""

import enum
import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator

import msgspec
import pytest

import dragoman

PLAIN = (str, int, float, bytes, bool, type(None), msgspec.Raw, msgspec.UnsetType, type)
CONTAINERS = (tuple, list, dict, frozenset, set)


def untracked() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting = [msgspec.Struct]
    while waiting:
        for each in waiting.pop().__subclasses__():
            waiting.append(each)
            if each.__module__.startswith("dragoman.") and not each.__struct_config__.gc:
                yield each


def leaves(hint: object) -> Iterator[object]:
    """The types that a value of this type may consist of."""
    if isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    if isinstance(hint, typing.TypeVar):
        hint = hint.__bound__ or object
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return
    if origin in (typing.Union, types.UnionType, typing.Annotated, *CONTAINERS):
        for each in typing.get_args(hint):
            if each is not ...:
                yield from leaves(each)
        return
    yield hint if origin is None else origin


def is_data(leaf: object) -> bool:
    if not isinstance(leaf, type):
        return False
    if issubclass(leaf, msgspec.Struct):
        return not leaf.__struct_config__.gc
    return issubclass(leaf, (enum.Enum, *PLAIN, *CONTAINERS))


STRUCTS = sorted(set(untracked()), key=lambda each: f"{each.__module__}.{each.__qualname__}")


@pytest.mark.parametrize(
    "struct", STRUCTS, ids=lambda each: f"{each.__module__}.{each.__qualname__}"
)
def test_untracked_struct_holds_nothing_but_data(struct: type[msgspec.Struct]) -> None:
    hints = typing.get_type_hints(struct)
    wrong = {
        name: [leaf for leaf in leaves(hints[name]) if not is_data(leaf)]
        for name in struct.__struct_fields__
    }
    assert {name: found for name, found in wrong.items() if found} == {}


def test_there_are_untracked_structs_and_a_function_in_one_would_be_found() -> None:
    assert len(STRUCTS) > 50
    assert not is_data(types.FunctionType)
    assert [leaf for leaf in leaves(typing.Callable[[int], str] | None) if not is_data(leaf)]
