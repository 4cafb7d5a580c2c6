"""The slopes of `make soak`, and what they are judged by."""

import math

from soak import Slope, slope_of, verdict


def test_slope_of_a_straight_line_is_exact() -> None:
    found = slope_of([(at, 100 + 2.5 * at / 3600) for at in range(0, 3600, 60)])
    assert math.isclose(found.per_hour, 2.5)
    assert found.band < 1e-6


def test_noise_widens_the_band_and_moves_the_slope_within_it() -> None:
    noise = (3.0, -1.0, -2.0, 2.0, -2.0)
    points = [(at * 60.0, 100 + noise[at % 5]) for at in range(100)]
    found = slope_of(points)
    assert abs(found.per_hour) < found.band
    assert slope_of(points[:20]).band > found.band > 0


def test_leak_of_one_handle_a_minute_grows() -> None:
    found = slope_of([(at * 60.0, 40.0 + at) for at in range(30)])
    assert verdict(found, 4.0) == "grows"


def test_verdict_needs_a_band_that_is_narrow_enough() -> None:
    assert verdict(Slope(1.0, 2.0, 1.0), 4.0) == "flat"
    assert verdict(Slope(-50.0, 2.0, 1.0), 4.0) == "flat"
    assert verdict(Slope(3.0, 2.0, 1.0), 4.0) == "unclear"
    assert verdict(Slope(7.0, 2.0, 2.0), 4.0) == "grows"


def test_rise_that_may_be_chance_is_unclear() -> None:
    assert verdict(Slope(40.0, 20.0, 0.1), 4.0) == "unclear"
    assert verdict(Slope(40.0, 20.0, 0.5), 4.0) == "grows"


def test_two_samples_say_nothing() -> None:
    assert verdict(slope_of([(0.0, 1.0), (1.0, 1.0)]), 4.0) == "unclear"
