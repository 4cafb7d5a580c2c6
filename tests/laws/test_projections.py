"""Laws 5 and 10: what comes back is what was sent less what the loss table declares, and every loss is reported.

Run more with `HYPOTHESIS_PROFILE`… see `MAX_EXAMPLES`.
"""

import os

import pytest
from hypothesis import given, settings
from projections import project, read, received, write
from strategies import events

from dragoman.dialects.registry import codec
from dragoman.model.events import Event

DIALECTS=("chat","messages")
EXAMPLES = 150 * int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(told=events())
def test_what_comes_back_is_what_was_sent_less_the_declared_losses(
    dialect: str, told: tuple[Event, ...]
) -> None:
    written = write(dialect, told)
    expected = project(dialect, told)
    back = read(dialect, [written.data])
    assert received(dialect, back.events) == expected.outcome
    assert {loss.code for loss in written.losses} == expected.codes
    assert expected.codes <= codec(dialect).losses.keys()
