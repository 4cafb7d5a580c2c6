"""Seals that come back."""

import pytest
from msgspec.structs import replace

from dragoman.errors import RequestRefused
from dragoman.model.parts import Dialect, Reasoning, Seal, Text
from dragoman.model.request import Request, Turn
from dragoman.upstream.rehearsal.seal import check_seals, sealed_thought

from .asking import DIALECTS


def check(thought: Reasoning) -> None:
    turns = (Turn(role="user", parts=(Text(text="hi"),)), Turn(role="assistant", parts=(thought,)))
    check_seals(Request(turns=turns))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_thought_that_comes_back_is_accepted(dialect: Dialect) -> None:
    check(sealed_thought("What is meant? 🤔", dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_damaged_seal_is_refused_and_says_where(dialect: Dialect) -> None:
    thought = sealed_thought("hm", dialect)
    [seal] = thought.seals
    with pytest.raises(RequestRefused, match=r"turn 1: expected .* damaged"):
        check(replace(thought, seals=(Seal(seal.kind, seal.data.replace(".a", ".b") + "x"),)))


def test_signature_over_other_words_is_refused() -> None:
    with pytest.raises(RequestRefused, match="other words"):
        check(replace(sealed_thought("hm", "messages"), summary=("ha",)))


def test_signature_without_the_words_is_accepted() -> None:
    check(replace(sealed_thought("hm", "messages"), summary=()))


def test_summary_beside_encrypted_thought_may_differ() -> None:
    check(replace(sealed_thought("hm", "responses"), summary=("shorter",)))


def test_other_providers_seals_are_not_looked_at() -> None:
    check(Reasoning(summary=("x",), seals=(Seal("signature", "EqQB"), Seal("encrypted", "gAAA"))))
