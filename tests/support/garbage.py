"""Finds objects in reference cycles, which only the garbage collector frees."""

import gc
from collections import Counter
from collections.abc import Callable

__all__ = ("left_by",)


def left_by(work: Callable[[], object]) -> Counter[str]:
    """The kinds of objects that work leaves, by module and name."""
    work()  # what is remembered for good is made the first time
    gc.disable()
    gc.freeze()  # there may be millions of objects, and only the new ones matter
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        found: list[object] = gc.garbage
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in found)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
