"""What is left for the garbage collector: objects in cycles, which nobody frees when the last who knows them goes."""

import gc
from collections import Counter
from collections.abc import Callable

__all__ = ("left_by",)


def left_by(work: Callable[[], object]) -> Counter[str]:
    """The kinds of objects that work leaves, by module and name."""
    work()  # what is remembered for good is made the first time
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()
