"""When a child that died is started again. Pure.

The first time at once, as a crash may be an accident; then after doubling waits. A child that has lived long enough is
not counted as having failed again.
"""

__all__ = ("LONGEST_WAIT", "SETTLED_SECONDS", "wait_before")

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
# A wrong configuration shows within a second; a minute of service is none.
SETTLED_SECONDS = 60.0


def wait_before(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    if failures <= 1:
        return 0.0
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 2, 60))
