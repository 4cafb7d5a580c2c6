"""Deltas that came together: the first stands alone, the others are one value, and spread they are what they were."""

from dragoman.core.deltas import Deltas, add_deltas, spread
from dragoman.model.events import Event, InputDelta, TextDelta


def test_deltas_are_their_events() -> None:
    deltas = Deltas(InputDelta, 3, ["a", "b"])
    assert deltas.events() == [InputDelta(3, "a"), InputDelta(3, "b")]


def test_first_delta_stands_alone_and_the_others_follow_together() -> None:
    out: list[Event | Deltas] = []
    add_deltas(TextDelta, 0, ["a"], out)
    add_deltas(InputDelta, 1, ["b", "c", "d"], out)
    assert out == [TextDelta(0, "a"), InputDelta(1, "b"), Deltas(InputDelta, 1, ["c", "d"])]


def test_spread_gives_single_events() -> None:
    alone = (TextDelta(0, "a"),)
    assert spread(alone) is alone
    together: list[Event | Deltas] = [
        TextDelta(0, "a"),
        Deltas(TextDelta, 0, ["b", "c"]),
        TextDelta(1, "d"),
    ]
    assert spread(together) == [
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        TextDelta(0, "c"),
        TextDelta(1, "d"),
    ]
