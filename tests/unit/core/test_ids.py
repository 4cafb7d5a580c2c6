"""Minted ids: the vendor's prefix, no repetition, the same again from the same seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.ids import Minter, response_of


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


def test_ids_from_a_response_of_ours_say_which_it_is() -> None:
    response_id = "resp_dgm" + "0123456789ab" * 2
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
