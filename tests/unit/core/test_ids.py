"""Minted ids: the vendor's prefix, no repetition, the same again from the same seed."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.ids import Minter


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
