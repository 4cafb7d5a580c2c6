"""Finish reasons are settled by content."""

from typing import get_args

import pytest

from dragoman.core.fold import settle_finish
from dragoman.model.outcome import FinishReason

NATURAL: tuple[FinishReason | None, ...] = (None, "stop", "tool_calls")
STANDING = tuple(
    reason
    for reason in get_args(FinishReason)
    if reason not in {"stop", "tool_calls", "stop_sequence"}
)


@pytest.mark.parametrize("native", NATURAL)
def test_complete_calls_make_a_natural_end_tool_calls(native: FinishReason | None) -> None:
    """M064, M070: `stop`, or nothing, after calls that are complete."""
    assert settle_finish(native, has_complete_client_calls=True) == "tool_calls"


@pytest.mark.parametrize("native", NATURAL)
def test_without_complete_calls_a_natural_end_is_stop(native: FinishReason | None) -> None:
    assert settle_finish(native, has_complete_client_calls=False) == "stop"


@pytest.mark.parametrize("native", STANDING)
@pytest.mark.parametrize("has_calls", [True, False])
def test_an_end_that_is_not_natural_stands(native: FinishReason, has_calls: bool) -> None:
    """M068: `length` beats `tool_calls`."""
    assert settle_finish(native, has_complete_client_calls=has_calls) == native


def test_a_stop_sequence_stands_unless_calls_wait_to_be_run() -> None:
    assert settle_finish("stop_sequence", has_complete_client_calls=False) == "stop_sequence"
    assert settle_finish("stop_sequence", has_complete_client_calls=True) == "tool_calls"
