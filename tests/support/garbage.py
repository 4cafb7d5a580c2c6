"""Finds objects that outlive their use: those in reference cycles, which only the garbage collector frees, and those that nothing frees."""

import gc
from collections import Counter
from collections.abc import Callable

RUNS = 5


def left_by(work: Callable[[], object]) -> Counter[str]:
    """The kinds of objects that work leaves, by module and name."""
    work()  # what is remembered for good is made the first time
    gc.collect()
    gc.freeze()  # only what is made from now on matters. To unfreeze them would make every later collection slow
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        found: list[object] = gc.garbage
        return _kinds(found)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def kept_by(work: Callable[[], object]) -> Counter[str]:
    """The kinds of objects of which every run of work leaves at least one that even the garbage collector does not free.

    It frees no cycle through an object that it does not track (`gc=False`).
    """
    work()
    gc.collect()
    gc.freeze()
    for _ in range(RUNS):
        work()
    gc.collect()
    kept = _kinds(gc.get_objects())
    return Counter({kind: count for kind, count in kept.items() if count >= RUNS})


def _kinds(found: list[object]) -> Counter[str]:
    return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in found)
