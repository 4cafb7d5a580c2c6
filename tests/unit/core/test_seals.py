"""Seals travel in one string and go back, unchanged, to their own family only."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.seals import (
    ENVELOPE,
    Family,
    seal_to_encrypted,
    seal_to_signature,
    seals_from_encrypted,
    seals_from_signature,
    split_family,
)
from dragoman.model.parts import Seal, SealKind

KINDS: list[SealKind] = ["signature", "redacted", "encrypted", "thought"]
SEALS = st.lists(
    st.builds(Seal, st.sampled_from(KINDS), st.text() | st.text().map(lambda text: ENVELOPE + text))
)


@given(SEALS)
def test_seals_come_back_from_either_string(seals: list[Seal]) -> None:
    assert seals_from_encrypted(seal_to_encrypted(seals)) == tuple(seals)
    assert seals_from_signature(seal_to_signature(seals)) == tuple(seals)


@given(st.text(min_size=1).filter(lambda text: not text.startswith(ENVELOPE)))
def test_a_native_seal_is_the_very_string(data: str) -> None:
    assert seal_to_encrypted([Seal("encrypted", data)]) == data
    assert seal_to_signature([Seal("signature", data)]) == data
    assert seals_from_encrypted(data) == (Seal("encrypted", data),)
    assert seals_from_signature(data) == (Seal("signature", data),)


def test_foreign_seals_ride_in_an_envelope() -> None:
    packed = seal_to_encrypted([Seal("signature", "EqQB")])
    assert packed is not None
    assert packed.startswith(ENVELOPE)
    assert "EqQB" not in packed
    assert seals_from_encrypted(packed) == (Seal("signature", "EqQB"),)


def test_without_seals_there_is_no_string() -> None:
    assert seal_to_encrypted([]) is None
    assert seal_to_signature([]) is None
    assert seals_from_encrypted(None) == ()
    assert seals_from_signature("") == ()


def envelope(content: bytes) -> str:
    return ENVELOPE + urlsafe_b64encode(content).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        ENVELOPE,
        ENVELOPE + "a",
        ENVELOPE + "é",
        ENVELOPE + "\ud83d",
        envelope(b"\xff"),
        envelope(b"{}"),
        envelope(b"[1]"),
        envelope(b'[["signature"]]'),
        envelope(b'[["unheard-of","x"]]'),
        envelope(b'[["signature",5]]'),
        envelope(b'[[["signature"],"x"]]'),
    ],
)
def test_what_is_no_envelope_of_ours_is_a_native_seal(text: str) -> None:
    assert seals_from_encrypted(text) == (Seal("encrypted", text),)


@given(SEALS, st.sampled_from(list[Family](["openai", "anthropic", "google"])))
def test_a_family_gets_its_own_seals_and_no_others(seals: list[Seal], family: Family) -> None:
    own, foreign = split_family(seals, family)
    kinds: dict[Family, set[SealKind]] = {
        "openai": {"encrypted"},
        "anthropic": {"signature", "redacted"},
        "google": {"thought"},
    }
    assert own == tuple(seal for seal in seals if seal.kind in kinds[family])
    assert foreign == tuple(seal for seal in seals if seal.kind not in kinds[family])


def test_encrypted_reasoning_keeps_the_id_it_was_made_for_through_a_signature() -> None:
    """OpenAI verifies the two together and refuses a seal beside another id."""
    signature = seal_to_signature((Seal("encrypted", "gAAA"),), "rs_1")
    assert seals_from_signature(signature) == (Seal("encrypted", "gAAA", "rs_1"),)


def test_signature_of_its_own_family_is_bound_to_no_item() -> None:
    assert seal_to_signature((Seal("signature", "sig"),), "rs_1") == "sig"
