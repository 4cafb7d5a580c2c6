"""Minted ids: the vendor's prefix, no repetition, the same again from the same seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.ids import NOISE_BITS, RESPONSE_PREFIX, Minter, number_of, response_of


def test_an_id_is_its_prefix_and_24_hexadecimal_digits() -> None:
    minted = Minter("seed")("toolu_")
    assert minted.startswith("toolu_")
    assert len(minted) == len("toolu_") + 24
    assert int(minted.removeprefix("toolu_"), 16) >= 0


@given(st.text(st.characters()))
def test_the_same_seed_mints_the_same_ids_and_never_one_twice(seed: str) -> None:
    first, second = Minter(seed), Minter(seed)
    minted = [first("call_") for _ in range(50)]
    assert minted == [second("call_") for _ in range(50)]
    assert len(set(minted)) == 50


def test_another_seed_mints_other_ids() -> None:
    assert Minter("a")("fc_") != Minter("b")("fc_")
    assert Minter()("fc_") != Minter("a")("fc_")


def test_ids_of_different_prefixes_differ_in_their_digits_too() -> None:
    mint = Minter("seed")
    assert mint("fc_").removeprefix("fc_") != mint("call_").removeprefix("call_")


@pytest.mark.parametrize("number", ["0123456789ab" * 2, "0123456789abcdefguv"])
def test_ids_from_a_response_of_ours_say_which_it_is(number: str) -> None:
    response_id = "resp_dgm" + number
    mint = Minter(response_id)
    first, second = mint("msg_"), mint("fc_")
    assert (first, second) == (f"msg_dgm{response_id[8:]}01", f"fc_dgm{response_id[8:]}02")
    assert response_of(first) == response_of(second) == response_id


@pytest.mark.parametrize(
    "item_id", ["", "msg_1", "msg_dgm", "fc_dgm" + "0" * 24, "fc_dgm" + "g" * 26, "dgm" + "0" * 26]
)
def test_other_ids_say_nothing(item_id: str) -> None:
    assert response_of(item_id) is None


@pytest.mark.parametrize(
    "seed", ["resp_dgm", "resp_dgm12", "resp_dgm" + "Z" * 24, "resp_" + "0" * 24]
)
def test_what_is_no_id_of_ours_is_a_seed_like_any_other(seed: str) -> None:
    assert response_of(Minter(seed)("msg_")) is None


NOISE = st.integers(0, 2**NOISE_BITS - 1)
TIMES = st.floats(0, 8e9)


@given(TIMES, NOISE)
def test_an_id_with_a_number_is_carried_by_the_ids_of_its_items(now: float, noise: int) -> None:
    response_id = RESPONSE_PREFIX + number_of(now, noise)
    minted = [Minter(response_id)("fc_"), *map(Minter(response_id), ["msg_"] * 300)]
    assert {response_of(item_id) for item_id in minted} == {response_id}


@given(TIMES, TIMES, NOISE, NOISE)
def test_numbers_are_in_the_order_of_their_times(a: float, b: float, x: int, y: int) -> None:
    first, second = sorted([(int(a * 64), x), (int(b * 64), y)])
    one, other = (number_of(tick / 64, noise) for tick, noise in (first, second))
    assert (one < other) == (first < second)
    assert len(one) == len(other) == 19
